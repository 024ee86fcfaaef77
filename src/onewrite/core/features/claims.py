"""The rules by which a worker claims a message's effect: when a step begins, is taken over, and is finished. Pure. `core/step.py` has the step."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.step import Step
from onewrite.core.values import moment, seconds
from onewrite.errors import InvalidUpdate
from onewrite.message import Message, full_name
from onewrite.outcome import Begun, Uncertain

Claim: TypeAlias = Begun | Uncertain  # the steps that a write can finish

MAX_STEP_SKEW = timedelta(minutes=5)  # how far each worker's clock can be off
_MIN_LEASE, _MAX_LEASE = timedelta(seconds=1), timedelta(days=36_525)  # clocks end in 2286, so every lease ends before 9999
_FENCE_BYTES = 8  # two fences of a step are equal with a probability of 2^-64


class StepRequest(NamedTuple):
    """The arguments of `begin` that describe the step."""

    name: str
    lease: timedelta
    safe_for: timedelta
    after: Uncertain | None = None


def make_step(ledger: str, message: Message, request: StepRequest, call: str, now: float) -> Step:
    """Return a new step. `call` is a unique name of the call. Times are rounded to milliseconds, so that all workers see the same times."""
    fence = blake2b(call.encode(), digest_size=_FENCE_BYTES).hexdigest()
    since, until = seconds(moment(now)), seconds(moment(now + request.lease.total_seconds()))
    return Step(ledger, message, message.child(request.name), fence, since, until, first=True)


def make_unsent_fence(fence: str) -> str:
    """Return the fence of a step that its worker has released, so that the worker can't finish it anymore."""
    return f"unsent {fence}"


def is_takeover_allowed(step: Step, now: float, request: StepRequest) -> bool:
    """Whether the lease has ended, and the provider will still know the key at the end of a new lease, despite clock skew."""
    ends = now + request.lease.total_seconds() + 2 * MAX_STEP_SKEW.total_seconds()
    return now >= step.until and (step.is_unsent or ends <= step.since + request.safe_for.total_seconds())


def check_begin(request: StepRequest) -> None:
    """Raise unless these arguments of `begin` are valid."""
    name, lease, safe_for, after = cast("tuple[object, ...]", request)
    if after is not None and not isinstance(after, Uncertain):
        # A Begun can't restart the time for which the provider knows its key.
        raise InvalidUpdate(
            f"begin: after= is a {type(after).__name__}: expected an Uncertain whose effect did not happen. A lease can't be extended, because "
            "the provider forgets the key anyway."
        )
    if not isinstance(name, str) or not name:
        raise InvalidUpdate(
            f"begin: the step's name is {name!r}: expected a string that names the effect, for example 'charge'."
        )
    if not isinstance(lease, timedelta) or not _MIN_LEASE <= lease <= _MAX_LEASE:
        raise InvalidUpdate(
            f"begin: lease={lease!r}: expected a timedelta between a second and a hundred years. Pass one just long enough for the effect, for "
            "example timedelta(minutes=1)."
        )
    if not isinstance(safe_for, timedelta) or safe_for < timedelta(0):
        raise InvalidUpdate(
            f"begin: safe_for={safe_for!r}: expected a timedelta for which the provider recognizes a key, or timedelta(0) if it has no keys."
        )
    if timedelta(0) < safe_for and safe_for - lease < 2 * MAX_STEP_SKEW:  # is_takeover_allowed would never be true
        shorter = "Shorten the lease, or pass" if safe_for >= 2 * MAX_STEP_SKEW + _MIN_LEASE else "Pass"
        raise InvalidUpdate(
            f"begin: safe_for={safe_for} is too short for lease={lease}. It must be at least {lease + 2 * MAX_STEP_SKEW} (the lease plus "
            f"{2 * MAX_STEP_SKEW} for clock differences), or no worker can ever take over the step. {shorter} safe_for=timedelta(0) if "
            "the provider forgets keys that soon. With timedelta(0), a step whose worker crashes becomes Uncertain."
        )


def check_claim(claim: object, message: Message, entity_key: object, canonical: Callable[[Any], object]) -> None:
    """Raise unless the step is of this message and entity. `canonical` returns the same value for equal keys."""
    if not isinstance(claim, Begun | Uncertain):
        raise InvalidUpdate(f"finishes=: expected the Begun or Uncertain that begin returned, got {type(claim).__name__}.")
    claimed_message = claim.message
    if (claimed_message.id, claimed_message.source, claimed_message.parts) != (message.id, message.source, message.parts):
        raise InvalidUpdate(
            f"The step belongs to {full_name(claimed_message)}, but this call is for {full_name(message)}. Pass a step of the call's own "
            "message."
        )
    if canonical(claim.entity_key) != canonical(entity_key):
        raise InvalidUpdate(
            f"The step of {full_name(message)} belongs to a different entity than this call's. Pass a step of the call's own entity."
        )
