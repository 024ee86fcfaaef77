"""A step of a message: an effect outside the entity that begins before it is sent, and that the guarded write after it finishes. Pure.

docs/format.md specifies the stored data. An entity holds a step from its begin to its finish, under a hash of its message. Each of these
rules keeps a customer from being charged twice, or a charge from being forgotten:

- A message has one step. The step's name only derives the key for the provider, and the key of the first begin stays.
- Every begin gets a new fence. A write finishes the step only with the fence of its begin.
- A worker takes over a step only while the provider certainly knows the key of the first begin.
- A worker that might have sent the effect doesn't remove the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.event import copy_value, moment, seconds
from onewrite.core.label import make_ledger_attribute, read_ledger_name
from onewrite.errors import InvalidMessage, InvalidUpdate, LedgerMismatch
from onewrite.message import Message, full_name
from onewrite.outcome import Begun, Busy, Entity, Uncertain

Claim: TypeAlias = Begun | Uncertain  # the steps that a write can finish

MAX_STEP_SKEW = timedelta(minutes=5)  # how far each worker's clock can be off
_MIN_LEASE, _MAX_LEASE = timedelta(seconds=1), timedelta(days=36_525)  # clocks end in 2286, so every lease ends before 9999
_FENCE_BYTES = 8  # two fences of a step are equal with a probability of 2^-64


MOVED_BACK = (
    "The step is open, but the ledger's mark is neither past the message nor just before it, so the mark was moved back. Repair the "
    "entity: set the mark to the number before the message, with `onewrite set-mark`."
)


class StepRequest(NamedTuple):
    """The arguments of `begin` that describe the step."""

    name: str
    lease: timedelta
    safe_for: timedelta
    after: Uncertain | None = None


class Step(NamedTuple):
    """A stored step. `ledger` identifies the ledger that the finish writes. `first` is true until a takeover."""

    ledger: str
    message: Message
    key: str
    fence: str
    since: float
    until: float
    first: bool
    is_unsent: bool = False  # released before the effect was sent, so any worker can take it over

    def is_same(self, step: Step) -> bool:
        """Whether both come from the same begin. Two begins can have the same fence by chance, but then their leases differ."""
        return (self.fence, self.until) == (step.fence, step.until)

    def take_over(self, open_step: Step) -> Step:
        """Return this step as a takeover of the open one. Only the fence and the lease are new."""
        since = self.since if open_step.is_unsent else open_step.since
        return self._replace(ledger=open_step.ledger, key=open_step.key, since=since, first=open_step.is_unsent)

    def as_begun(self, message: Message, entity_key: Mapping[str, Any], clock: Callable[[], float]) -> Begun:
        """Return the outcome for the worker that holds the step. `entity_key` is copied, because the outcome outlives the call."""
        key = copy_value(entity_key)
        return Begun(message, self.key, self.fence, self.since, self.until, self.first, entity_key=key, clock=clock)

    def as_fields(self) -> dict[str, Any]:
        """Return the fields that are stored. Fields with their usual value are omitted."""
        message = self.message
        fields: dict[str, Any] = {"id": message.id, "key": self.key, "fence": self.fence}
        fields |= {"since": moment(self.since), "until": moment(self.until), "first": self.first}
        # Only None is omitted: a sequence can be 0.
        optional = {"source": message.source or None, "sequence": message.sequence, "parts": [*message.parts] or None}
        optional |= {"unsent": self.is_unsent or None, "ledger": read_ledger_name(self.ledger) or None}
        return fields | {name: value for name, value in optional.items() if value is not None}


def make_step(ledger: str, message: Message, request: StepRequest, call: str, now: float) -> Step:
    """Return a new step. `call` is a unique name of the call. Times are rounded to milliseconds, so that all workers see the same times."""
    fence = blake2b(call.encode(), digest_size=_FENCE_BYTES).hexdigest()
    since, until = seconds(moment(now)), seconds(moment(now + request.lease.total_seconds()))
    return Step(ledger, message, message.child(request.name), fence, since, until, first=True)


def read_step(stored_step: object) -> Step:
    """Return the step, given its stored form. The sequence of the step's message is an int or a string, never a Decimal."""
    try:
        fields = cast("Mapping[str, Any]", stored_step)
        sequence = fields.get("sequence")
        message = Message(
            fields["id"],
            source=fields.get("source", ""),
            sequence=int(sequence) if sequence is not None and not isinstance(sequence, str) else sequence,
            parts=tuple(fields.get("parts", ())),
        )
        since, until = seconds(fields["since"]), seconds(fields["until"])
        ledger, key, fence = make_ledger_attribute(str(fields.get("ledger", ""))), str(fields["key"]), str(fields["fence"])
        return Step(ledger, message, key, fence, since, until, bool(fields["first"]), fields.get("unsent") is True)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, InvalidMessage) as error:
        raise make_step_error() from error


def make_step_error() -> LedgerMismatch:
    """Return the error for an entity that has other values in the place of its steps."""
    return LedgerMismatch(
        "The entity holds something else where a step of a message should be: another writer uses names that begin with ow_step. Repair the "
        "entity, and make the other writer use other names."
    )


def judge_open_step(
    step: Step, message: Message, now: float, entity: Entity | None, entity_key: Mapping[str, Any]
) -> Busy | Uncertain:
    """Return the outcome of other writes of the message while its step is open."""
    if now < step.until or step.is_unsent:  # an unsent effect isn't uncertain
        return Busy(message, max(now, step.until), entity)
    return Uncertain(message, step.since, step.fence, step.key, entity, entity_key=copy_value(entity_key))


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
            f"The step belongs to the entity {dict(claim.entity_key)!r}, but this call is for {entity_key!r}. Pass a step of the call's own "
            "entity."
        )


class FinalWrite(NamedTuple):
    """The write that finishes a performed step: the name of its method, its arguments, and an example."""

    call: str
    arguments: frozenset[str]
    example: str

    def read_arguments(self, result: object) -> dict[str, Any]:
        """Return the result of `then=` as arguments. The effect has happened, so a mistake is reported before the driver sees it."""
        problem: str | None = None
        if not isinstance(result, Mapping):
            problem = f"a {type(result).__name__}"
        elif unknown := [name for name in cast("Mapping[object, object]", result) if name not in self.arguments]:
            problem = f"{', '.join(map(repr, unknown))}, which {self.call} doesn't take"
        if problem is not None:
            raise InvalidUpdate(
                f"then= returned {problem}: expected a dict with the arguments of the write, for example {self.example}."
            )
        return dict(cast("Mapping[str, Any]", result))
