"""The flows that begin, perform, finish, and release a step, on any engine. `step.py` has the rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Any, TypeAlias, cast

from onewrite.core.engine import Attempt, Engine, Native
from onewrite.core.features.claims import (
    Claim,
    StepRequest,
    check_begin,
    check_claim,
    is_takeover_allowed,
    make_step,
    make_unsent_fence,
)
from onewrite.core.flow import Do, Flow, split_final_refusals
from onewrite.core.ledgers.ledger import check_message
from onewrite.core.pipeline import make_write, send_begin, send_finish
from onewrite.core.step import Step, judge_open_step, read_step
from onewrite.core.values import copy_value, moment
from onewrite.core.write import Begins, Finishes, Withdraws, Write
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Answer, Begun, Busy, Outcome, Uncertain

_MAX_ROUNDS = 6  # each attempt after the second means that a different worker changed the step

Effect: TypeAlias = Callable[[Begun], Any]
Then: TypeAlias = Callable[[Any], Mapping[str, Any]]


def begin(
    engine: Engine,
    message: Message,
    name: str,
    native: Native,
    *,
    lease: timedelta,
    safe_for: timedelta,
    after: Uncertain | None = None,
) -> Flow[Answer]:
    """Begin a step, or take it over after its lease. Return `Begun`, or why this worker can't have the step."""
    check_message(message)
    request = StepRequest(name, lease, safe_for, after)
    check_begin(request)
    native, final = split_final_refusals(native)
    native = engine.keep(native)
    key = engine.read_key(native)
    if after is not None:
        check_claim(after, message, key, engine.canonical)
    write = make_write(engine, (message,), key, has_token=False)  # the fence identifies the step's owner
    fresh = make_step(engine.ledger.attribute, message, request, engine.name_call(), write.now)
    step, old_fence = fresh, None
    if after is not None:
        # The successor of an uncertain step whose effect did not happen, according to an operator.
        step, old_fence = fresh._replace(key=after.key, first=False), after.fence
    for _ in range(_MAX_ROUNDS):
        begins = write._replace(step=Begins(step))
        if old_fence is None:
            verdict = yield from send_begin(engine.make_begin_attempt(begins, native), final, replaces=False)
        else:
            attempt = engine.change_step(begins, native, step.ledger, old_fence, step)
            verdict = yield from send_begin(attempt, final, replaces=True)
        if verdict is None:  # the step to replace no longer exists
            step, old_fence = fresh, None
        elif not isinstance(verdict, Step):
            return verdict
        elif verdict.is_same(fresh):
            return verdict.as_begun(message, key, engine.clock)
        elif verdict.fence == old_fence and verdict.ledger != step.ledger:
            step = step._replace(ledger=verdict.ledger)  # it was begun under an earlier ledger, and remains there
        elif is_takeover_allowed(verdict, write.now, request):
            step, old_fence = fresh.take_over(verdict), verdict.fence
        else:
            return judge_open_step(verdict, message, write.now, entity=None, entity_key=key)
    return Busy(message, write.now)  # other workers repeatedly begin and release the step


def finish(
    engine: Engine,
    message: Message,
    native: Native,
    claim: Claim,
    *,
    emit: object = None,
    attempt: Callable[[Write, Native], Attempt] | None = None,
) -> Flow[Outcome]:
    """Send the write that finishes a step. `attempt`: creates the write, if it isn't an update."""
    native, final = split_final_refusals(native)
    if final.rejected_ok:
        raise InvalidUpdate("A write that finishes a step has no condition that could refuse it. Omit rejected_ok.")
    native = engine.keep(native)
    key = engine.read_key(native)
    check_claim(claim, message, key, engine.canonical)
    write = make_write(engine, (message,), key, Finishes(claim.fence, engine.ledger.attribute), emit=emit)
    return send_finish((attempt or engine.make_attempt)(write, native))


def release(engine: Engine, step: Begun, *, sent: bool = True) -> Flow[None]:
    """End the lease, if this worker still has the step. Withdraw a step whose effect wasn't sent.

    With a ledger under which later messages can overtake this one, the step remains for any worker to take over, because only the step
    shows that the message isn't done.
    """
    if not isinstance(cast("object", step), Begun):
        raise InvalidUpdate(f"release: expected the Begun that begin returned, got {type(step).__name__}.")
    native, is_unsent = engine.name_key(step.entity_key), step.first and not sent
    write = make_write(engine, (step.message,), step.entity_key, has_token=False)
    for ledger in engine.ledger.terms.attributes:  # it can be under a ledger in also=
        if is_unsent and not write.entry.is_overtakable:
            withdrawal = write._replace(step=Withdraws(step.fence, ledger), emission=None)
            if (yield from engine.make_attempt(withdrawal, native).try_send()):
                return
        fields: dict[str, Any] = {"until": moment(engine.clock())}
        if is_unsent:
            fields |= {"unsent": True, "fence": make_unsent_fence(step.fence)}
        if (yield from engine.change_step(write, native, ledger, step.fence, fields).try_send()):
            return


def perform(
    engine: Engine,
    message: Message,
    name: str,
    effect: Effect,
    native: Native,
    *,
    lease: timedelta,
    safe_for: timedelta,
    then: Then,
) -> Flow[Outcome]:
    """Begin a step, call the effect, and send the write that finishes the step.

    `then` takes the effect's result, and returns the write's arguments.
    """
    check_message(message)
    for role, function in (("the effect", effect), ("then=", then)):
        if not callable(function):
            raise InvalidUpdate(f"perform: {role}: expected a function, got a {type(cast('object', function)).__name__}.")
    step = yield from begin(engine, message, name, native, lease=lease, safe_for=safe_for)
    if not isinstance(step, Begun):
        return step
    if not step.left():  # this process was suspended, so a different worker might have begun the effect
        yield from release(engine, step, sent=False)
        return Busy(step.message, step.until)
    kept_step = replace(step, entity_key=copy_value(step.entity_key))  # the effect can change its argument
    try:
        result = yield Do(effect, (step,))
        arguments = {**engine.name_key(kept_step.entity_key), **engine.final_write.read_arguments(then(result))}
        emit = arguments.pop("emit", None)
        return (yield from finish(engine, message, arguments, kept_step, emit=emit))
    except Exception as error:
        # The effect might have happened, so the step remains. Without its lease, the next delivery doesn't have to wait.
        try:
            yield from release(engine, kept_step, sent=True)
        except Exception as second_error:  # the caller must see the first error
            error.add_note(f"The step couldn't be released either, so it stays open until its lease ends: {second_error!r}")
        raise


def read_open_steps(engine: Engine, native: Native) -> Flow[list[Busy | Uncertain]]:
    """Return the open steps of the store's ledger and the ledgers in its also=, the oldest first."""
    native = engine.keep(native)
    key = engine.read_key(native)
    image = yield from engine.read(key, native)
    steps = [step for step in map(read_step, image.steps.values()) if step.ledger in engine.ledger.terms.attributes]
    return [
        judge_open_step(step, step.message, engine.clock(), entity=None, entity_key=key)
        for step in sorted(steps, key=attrgetter("since"))
    ]
