"""The rules by which a worker claims a message's effect: when an effect begins, is taken over, and is finished. Pure. `core/effect.py` has the stored effect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.effect import Effect
from onewrite.core.values import moment, seconds
from onewrite.errors import InvalidUpdate
from onewrite.message import Message, full_name
from onewrite.outcome import Begun, Uncertain

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
    """Return a new effect. `call` is a unique name of the call. Times are rounded to milliseconds, so that all workers see the same times."""
    fence = blake2b(call.encode(), digest_size=_FENCE_BYTES).hexdigest()
    since, until = seconds(moment(now)), seconds(moment(now + request.lease.total_seconds()))
    return Effect(ledger, message, message.child(request.name), fence, since, until, first=True)


def make_unsent_fence(fence: str) -> str:
    """Return the fence of an effect that its worker has released, so that the worker can't finish it anymore."""
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
