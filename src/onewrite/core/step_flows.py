"""What beginning and performing a step take, request by request, on any engine. The rules are in onewrite/core/step.py."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from onewrite.core.event import copy_of, moment
from onewrite.core.flow import Do, Flow
from onewrite.core.ledgers import Ledger
from onewrite.core.step import (
    Step,
    StepRequest,
    answer_to,
    fence_of_unsent,
    may_be_taken_over,
    read_step,
    since,
)
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Answer, Begun, Busy, Outcome, Uncertain

_ROUNDS = 6  # each after the second means that another worker has come in between

Effect: TypeAlias = Callable[[Begun], Any]
Then: TypeAlias = Callable[[Any], Mapping[str, Any]]


class StepStore(Protocol):
    """As much of a store as a step needs."""

    ledger: Ledger
    clock: Callable[[], float]


class Start(NamedTuple):
    """What a call of `begin` starts from. `fresh` is the step as it would be if nobody had begun it."""

    message: Message
    entity_key: Mapping[str, Any]
    request: StepRequest
    fresh: Step
    now: float
    clock: Callable[[], float]


class TryToBegin(Protocol):
    """Begins the step, or puts it in the place of the one with the fence `old_fence`.

    Returns the step that is open then, or why the message has none. None: it has none, and nothing stands in its way.
    """

    def __call__(self, step: Step, old_fence: str | None) -> Flow[Step | Outcome | None]: ...


def begin_step(start: Start, try_to_begin: TryToBegin) -> Flow[Answer]:
    """Begin a step, or take it over from one who is believed to be dead."""
    message, request, fresh = start.message, start.request, start.fresh
    step, old_fence = fresh, None
    if request.after is not None:
        step, old_fence = fresh.reopen(request.after), request.after.fence
    for _ in range(_ROUNDS):
        answer = yield from try_to_begin(step, old_fence)
        if answer is None:
            step, old_fence = fresh, None
        elif not isinstance(answer, Step):
            return answer
        elif answer.is_same(fresh):
            return answer.as_begun(message, start.entity_key, start.clock)
        elif answer.fence == old_fence and answer.ledger != step.ledger:
            step = step._replace(ledger=answer.ledger)  # it was begun under the ledger before this one, and stays there
        elif may_be_taken_over(answer, start.now, request):
            step, old_fence = fresh.take_over(answer), answer.fence
        else:
            return answer_to(answer, message, start.now, None, start.entity_key)
    return Busy(message, start.now)  # others begin it and let it go all the time


def let_go(
    flows: StepStore,
    step: Begun,
    *,
    sent: bool,
    withdraw: Callable[[str], Flow[bool]] | None,
    change: Callable[[str, Mapping[str, Any]], Flow[bool]],
) -> Flow[None]:
    """End the lease, if the step is still this worker's. One whose effect nobody can have sent is withdrawn.

    It stays, as one that anybody may take over, under a ledger by which later messages may overtake this one (`withdraw` is None): only
    the step says then that the message is still to be done. Both functions are given the ledger under which the step may have been begun.
    """
    is_unsent = step.first and not sent
    for ledger in flows.ledger.terms.attributes:  # it may be under one in also=
        if is_unsent and withdraw is not None and (yield from withdraw(ledger)):
            return
        fields: dict[str, Any] = {"until": moment(flows.clock())}
        if is_unsent:
            fields |= {"unsent": True, "fence": fence_of_unsent(step.fence)}
        if (yield from change(ledger, fields)):
            return


def step_answers(flows: StepStore, stored_steps: Iterable[object], key: Mapping[str, Any]) -> list[Busy | Uncertain]:
    """The steps of this store's ledger, and of those in its also=, those first that were begun first."""
    steps = [step for step in map(read_step, stored_steps) if step.ledger in flows.ledger.terms.attributes]
    return [answer_to(step, step.message, flows.clock(), None, key) for step in sorted(steps, key=since)]


def perform_step(
    begin: Flow[Answer],
    effect: Effect,
    finish: Callable[[Begun, object], Flow[Outcome]],
    release: Callable[..., Flow[None]],
    then: Then,
) -> Flow[Outcome]:
    """`finish` and `release` make flows of a step. `then` makes the arguments of the write of what the effect has returned."""
    for name, function in (("the effect", effect), ("then=", then)):
        if not callable(function):
            raise InvalidUpdate(f"perform: {name} is a {type(cast('object', function)).__name__}: give a function.")
    step = yield from begin
    if not isinstance(step, Begun):
        return step
    if not step.left():  # this process stood still meanwhile: another worker may have the effect now
        yield from release(step, sent=False)
        return Busy(step.message, step.until)
    step_copy = replace(step, entity_key=copy_of(step.entity_key))  # the effect may change what it is given
    try:
        result = yield Do(effect, (step,))
        return (yield from finish(step_copy, then(result)))
    except Exception as error:
        # The effect may have happened: so the step stays, and the next delivery need not wait for the end of the lease.
        try:
            yield from release(step_copy, sent=True)
        except Exception as second_error:
            error.add_note(f"The step could not be released either, and stays until its lease ends: {second_error!r}")
        raise


class FinalWrite(NamedTuple):
    """The write that finishes a performed step: the name of the call, the arguments that it takes, and an example of them."""

    call: str
    arguments: frozenset[str]
    example: str

    def arguments_of(self, result: object) -> dict[str, Any]:
        """What `then=` has returned, as arguments. The effect has happened, so the driver's words for this would come too late to tell."""
        problem: str | None = None
        if not isinstance(result, Mapping):
            problem = f"a {type(result).__name__}"
        elif unknown := [name for name in cast("Mapping[object, object]", result) if name not in self.arguments]:
            problem = f"{', '.join(map(repr, unknown))}, which {self.call} does not take"
        if problem is not None:
            raise InvalidUpdate(
                f"then= returned {problem}: return a dict with the arguments of the write, as in {self.example}."
            )
        return dict(cast("Mapping[str, Any]", result))
