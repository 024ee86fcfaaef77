"""Effects of a message outside its entity, on any engine: the rules by which a worker claims an effect, and the flows that begin, perform,
finish, and release it. `core/effect.py` has the stored effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from hashlib import blake2b
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.effect import Effect, judge_open_effect, read_effect
from onewrite.core.engine import Attempt, Engine, Native
from onewrite.core.flow import Do, Flow, split_final_refusals
from onewrite.core.ledgers.entry import check_message
from onewrite.core.pipeline import make_write, send_begin, send_finish
from onewrite.core.values import copy_value, moment, seconds
from onewrite.core.write import Begins, Finishes, Withdraws, Write
from onewrite.errors import InvalidUpdate
from onewrite.message import Message, full_name
from onewrite.outcome import BeginOutcome, Begun, Busy, Outcome, Uncertain

# --- the rules ---------------------------------------------------------------------------------------------------------

Claim: TypeAlias = Begun | Uncertain  # the effects that a write can finish

MAX_EFFECT_SKEW = timedelta(minutes=5)  # how far each worker's clock can be off
_MIN_LEASE, _MAX_LEASE = timedelta(seconds=1), timedelta(days=36_525)  # clocks end in 2286, so every lease ends before 9999
_FENCE_BYTES = 8  # two fences of an effect are equal with a probability of 2^-64


class EffectRequest(NamedTuple):
    """The arguments of `begin_effect` that describe the effect."""

    name: str
    lease: timedelta
    key_valid_for: timedelta
    after: Uncertain | None = None


def make_effect(ledger: str, message: Message, request: EffectRequest, call: str, now: float) -> Effect:
    """Return a new effect. `call` is a unique name of the call. All workers see the same times, which are rounded to milliseconds."""
    fence = blake2b(call.encode(), digest_size=_FENCE_BYTES).hexdigest()
    since, until = seconds(moment(now)), seconds(moment(now + request.lease.total_seconds()))
    return Effect(ledger, message, message.child(request.name), fence, since, until, first=True)


def make_unsent_fence(fence: str) -> str:
    """Return the fence of an effect that its worker has released. The worker can no longer finish the effect."""
    return f"unsent {fence}"


def is_takeover_allowed(effect: Effect, now: float, request: EffectRequest) -> bool:
    """Whether the lease has ended, and the provider will still know the key at the end of a new lease, despite clock skew."""
    ends = now + request.lease.total_seconds() + 2 * MAX_EFFECT_SKEW.total_seconds()
    return now >= effect.until and (effect.is_unsent or ends <= effect.since + request.key_valid_for.total_seconds())


def check_begin(request: EffectRequest) -> None:
    """Raise unless these arguments of `begin_effect` are valid."""
    name, lease, key_valid_for, after = cast("tuple[object, ...]", request)
    if after is not None and not isinstance(after, Uncertain):
        # A Begun can't restart the time for which the provider knows its key.
        raise InvalidUpdate(
            f"begin_effect: after= is a {type(after).__name__}: expected the Uncertain of an effect that didn't happen. A lease can't be extended, because "
            "the provider forgets the key anyway."
        )
    if not isinstance(name, str) or not name:
        raise InvalidUpdate(
            f"begin_effect: the effect's name is {name!r}: expected a string that names the effect, for example 'charge'."
        )
    if not isinstance(lease, timedelta) or not _MIN_LEASE <= lease <= _MAX_LEASE:
        raise InvalidUpdate(
            f"begin_effect: lease={lease!r}: expected a timedelta between a second and a hundred years. Pass one just long enough for the effect, for "
            "example timedelta(minutes=1)."
        )
    if not isinstance(key_valid_for, timedelta) or key_valid_for < timedelta(0):
        raise InvalidUpdate(
            f"begin_effect: key_valid_for={key_valid_for!r}: expected a timedelta for which the provider recognizes a key, or timedelta(0) if it has no keys."
        )
    if (
        timedelta(0) < key_valid_for and key_valid_for - lease < 2 * MAX_EFFECT_SKEW
    ):  # is_takeover_allowed would never be true
        shorter = "Shorten the lease, or pass" if key_valid_for >= 2 * MAX_EFFECT_SKEW + _MIN_LEASE else "Pass"
        raise InvalidUpdate(
            f"begin_effect: key_valid_for={key_valid_for} is too short for lease={lease}. It must be at least {lease + 2 * MAX_EFFECT_SKEW} (the lease plus "
            f"{2 * MAX_EFFECT_SKEW} for clock differences), or no worker can ever take over the effect. {shorter} key_valid_for=timedelta(0) if "
            "the provider forgets keys that soon. With timedelta(0), an effect whose worker crashes becomes Uncertain."
        )


def check_claim(claim: object, message: Message, entity_key: object, canonical: Callable[[Any], object]) -> None:
    """Raise unless the effect is of this message and entity. `canonical` returns the same value for equal keys."""
    if not isinstance(claim, Begun | Uncertain):
        raise InvalidUpdate(
            f"finishes=: expected the Begun or Uncertain that begin_effect returned, got {type(claim).__name__}."
        )
    claimed_message = claim.message
    if (claimed_message.id, claimed_message.source, claimed_message.parts) != (message.id, message.source, message.parts):
        raise InvalidUpdate(
            f"The effect belongs to {full_name(claimed_message)}, but this call is for {full_name(message)}. Pass an effect of the call's own "
            "message."
        )
    if canonical(claim.entity_key) != canonical(entity_key):
        raise InvalidUpdate(
            f"The effect of {full_name(message)} belongs to a different entity than this call's. Pass an effect of the call's own entity."
        )


# --- the flows ---------------------------------------------------------------------------------------------------------

_MAX_ROUNDS = 6  # each attempt after the second means that a different worker changed the effect

EffectFunction: TypeAlias = Callable[[Begun], Any]
Then: TypeAlias = Callable[[Any], Mapping[str, Any]]


def begin_effect(
    engine: Engine,
    message: Message,
    name: str,
    native: Native,
    *,
    lease: timedelta,
    key_valid_for: timedelta,
    after: Uncertain | None = None,
) -> Flow[BeginOutcome]:
    """Begin an effect, or take it over after its lease. Return `Begun`, or why this worker can't have the effect."""
    check_message(message)
    request = EffectRequest(name, lease, key_valid_for, after)
    check_begin(request)
    native, final = split_final_refusals(native)
    native = engine.keep(native)
    key = engine.read_key(native)
    if after is not None:
        check_claim(after, message, key, engine.canonical)
    write = make_write(engine, (message,), key, has_token=False)  # the fence identifies the effect's owner
    fresh = make_effect(engine.ledger.attribute, message, request, engine.name_call(), write.now)
    effect, old_fence = fresh, None
    if after is not None:
        # The successor of an uncertain effect that didn't happen, according to an operator.
        effect, old_fence = fresh._replace(key=after.key, first=False), after.fence
    for _ in range(_MAX_ROUNDS):
        begins = write._replace(effect=Begins(effect))
        if old_fence is None:
            verdict = yield from send_begin(engine.make_begin_attempt(begins, native), final, replaces=False)
        else:
            attempt = engine.change_effect(begins, native, effect.ledger, old_fence, effect)
            verdict = yield from send_begin(attempt, final, replaces=True)
        if verdict is None:  # the effect to replace no longer exists
            effect, old_fence = fresh, None
        elif not isinstance(verdict, Effect):
            return verdict
        elif verdict.is_same(fresh):
            return verdict.as_begun(message, key, engine.clock)
        elif verdict.fence == old_fence and verdict.ledger != effect.ledger:
            effect = effect._replace(ledger=verdict.ledger)  # it was begun under an earlier ledger, and remains there
        elif is_takeover_allowed(verdict, write.now, request):
            effect, old_fence = fresh.take_over(verdict), verdict.fence
        else:
            return judge_open_effect(verdict, message, write.now, entity=None, entity_key=key)
    return Busy(message, write.now)  # other workers repeatedly begin and release the effect


def finish(
    engine: Engine,
    message: Message,
    native: Native,
    claim: Claim,
    *,
    emit: object = None,
    attempt: Callable[[Write, Native], Attempt] | None = None,
) -> Flow[Outcome]:
    """Send the write that finishes an effect. `attempt`: creates the write, if it isn't an update."""
    native, final = split_final_refusals(native)
    if final.rejected_ok:
        raise InvalidUpdate("A write that finishes an effect has no condition that could refuse it. Omit rejected_ok.")
    native = engine.keep(native)
    key = engine.read_key(native)
    check_claim(claim, message, key, engine.canonical)
    write = make_write(engine, (message,), key, Finishes(claim.fence, engine.ledger.attribute), emit=emit)
    return send_finish((attempt or engine.make_attempt)(write, native))


def release_effect(engine: Engine, effect: Begun, *, sent: bool = True) -> Flow[None]:
    """End the lease, if this worker still has the effect. Withdraw an effect that wasn't sent.

    With a ledger under which later messages can overtake this one, the effect remains for any worker to take over, because only the effect
    shows that the message isn't done.
    """
    if not isinstance(cast("object", effect), Begun):
        raise InvalidUpdate(f"release_effect: expected the Begun that begin_effect returned, got {type(effect).__name__}.")
    native, is_unsent = engine.name_key(effect.entity_key), effect.first and not sent
    write = make_write(engine, (effect.message,), effect.entity_key, has_token=False)
    for ledger in engine.ledger.terms.attributes:  # it can be under a ledger in previous=
        if is_unsent and not write.entry.is_overtakable:
            withdrawal = write._replace(effect=Withdraws(effect.fence, ledger), emission=None)
            if (yield from engine.make_attempt(withdrawal, native).try_send()):
                return
        fields: dict[str, Any] = {"until": moment(engine.clock())}
        if is_unsent:
            fields |= {"unsent": True, "fence": make_unsent_fence(effect.fence)}
        if (yield from engine.change_effect(write, native, ledger, effect.fence, fields).try_send()):
            return


def perform_effect(
    engine: Engine,
    message: Message,
    name: str,
    function: EffectFunction,
    native: Native,
    *,
    lease: timedelta,
    key_valid_for: timedelta,
    then: Then,
) -> Flow[Outcome]:
    """Begin an effect, call the function, and send the write that finishes the effect.

    `then` takes the effect's result, and returns the write's arguments.
    """
    check_message(message)
    for role, given in (("function", function), ("then=", then)):
        if not callable(given):
            raise InvalidUpdate(
                f"perform_effect: {role}: expected a function, got a {type(cast('object', given)).__name__}."
            )
    effect = yield from begin_effect(engine, message, name, native, lease=lease, key_valid_for=key_valid_for)
    if not isinstance(effect, Begun):
        return effect
    if not effect.time_left():  # this process was suspended, and a different worker might have begun the effect
        yield from release_effect(engine, effect, sent=False)
        return Busy(effect.message, effect.until)
    kept_effect = replace(effect, entity_key=copy_value(effect.entity_key))  # the function can change its argument
    try:
        result = yield Do(function, (effect,))
        arguments = {**engine.name_key(kept_effect.entity_key), **engine.final_write.read_arguments(then(result))}
        emit = arguments.pop("emit", None)
        return (yield from finish(engine, message, arguments, kept_effect, emit=emit))
    except Exception as error:
        # The effect remains in the entity, because it might have happened. Without its lease, the next delivery doesn't have to wait.
        try:
            yield from release_effect(engine, kept_effect, sent=True)
        except Exception as second_error:  # the caller must see the first error
            error.add_note(f"The effect couldn't be released either ({second_error!r}). It stays open until its lease ends.")
        raise


def read_open_effects(engine: Engine, native: Native) -> Flow[list[Busy | Uncertain]]:
    """Return the open effects of the store's ledger and the ledgers in its previous=, the oldest first."""
    native = engine.keep(native)
    key = engine.read_key(native)
    image = yield from engine.read(key, native)
    effects = [
        effect for effect in map(read_effect, image.effects.values()) if effect.ledger in engine.ledger.terms.attributes
    ]
    return [
        judge_open_effect(effect, effect.message, engine.clock(), entity=None, entity_key=key)
        for effect in sorted(effects, key=attrgetter("since"))
    ]
