"""A step of a message: an effect outside of the entity, begun before it is sent and finished by the guarded write after it. Pure.

What is stored is fixed by docs/format.md. An entity holds a step from its begin to its finish, under a mark of its message. The
rules, each of which keeps somebody from being charged twice, or a charge from being forgotten:

- One step per message. Its name only makes the key for whoever performs the effect, and the key of the first begin is kept.
- The fence is new with every begin. A write finishes the step only under the fence that it was begun with.
- A step is taken over only while the key of the first begin is known for certain to whoever performs the effect.
- Whoever may have sent the effect leaves the step where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.event import LAST_MOMENT, copy_value, moment, seconds
from onewrite.core.label import ledger_attribute, ledger_name
from onewrite.errors import InvalidMessage, InvalidUpdate, LedgerMismatch
from onewrite.message import Message, full_name
from onewrite.outcome import Begun, Busy, Entity, Uncertain

Claim: TypeAlias = Begun | Uncertain  # what a write finishes

STEP_SKEW = timedelta(minutes=5)  # how far the clocks of two workers may be off
_MIN_LEASE = timedelta(seconds=1)
_FENCE_BYTES = 8  # two fences of one step are the same once in 2^64


MOVED_BACK = (
    "The step is open, and the ledger's mark is neither past the message nor just before it: somebody has moved the mark back. Repair the "
    "entity."
)


class StepRequest(NamedTuple):
    """What a call of `begin` says of the step."""

    name: str
    lease: timedelta
    safe_for: timedelta
    after: Uncertain | None = None


class Step(NamedTuple):
    """A step as an entity holds it. By `ledger` that one is known which the finish writes; `first`: never taken over."""

    ledger: str
    message: Message
    key: str
    fence: str
    since: float
    until: float
    first: bool
    is_unsent: bool = False  # its worker let it go before the effect was sent, so anybody may take it over

    def is_same(self, step: Step) -> bool:
        """Whether both are one begin. Two begins may have the same fence by chance, but then their leases differ."""
        return (self.fence, self.until) == (step.fence, step.until)

    def take_over(self, open_step: Step) -> Step:
        """Return this step in the place of one that another worker has begun. Only the fence and the lease are new."""
        since = self.since if open_step.is_unsent else open_step.since
        return self._replace(ledger=open_step.ledger, key=open_step.key, since=since, first=open_step.is_unsent)

    def reopen(self, uncertain: Uncertain) -> Step:
        """Return this step in the place of one whose effect did not happen, as an operator knows."""
        return self._replace(key=uncertain.key, first=False)

    def as_begun(self, message: Message, entity_key: Mapping[str, Any], clock: Callable[[], float]) -> Begun:
        """Return the outcome for the worker whose step it is. The outcome outlives the call, so its key is a copy."""
        key = copy_value(entity_key)
        return Begun(message, self.key, self.fence, self.since, self.until, self.first, entity_key=key, clock=clock)

    def as_fields(self) -> dict[str, Any]:
        message = self.message
        fields: dict[str, Any] = {"id": message.id, "key": self.key, "fence": self.fence}
        fields |= {"since": moment(self.since), "until": moment(self.until), "first": self.first}
        optional: dict[str, Any] = {"source": message.source, "sequence": message.sequence, "parts": [*message.parts]}
        optional |= {"unsent": self.is_unsent, "ledger": ledger_name(self.ledger)}
        return fields | {name: value for name, value in optional.items() if value not in ("", None, [], False)}


def new_step(ledger: str, message: Message, request: StepRequest, call: str, now: float) -> Step:
    """Return a step that nobody has begun. `call` is a name that no other call has. Times are stored in milliseconds, so all workers see the same ones."""
    fence = blake2b(call.encode(), digest_size=_FENCE_BYTES).hexdigest()
    end = now + request.lease.total_seconds()
    if end > LAST_MOMENT:
        raise InvalidUpdate(
            f"begin: lease={request.lease!r} ends after the year 9999: give a shorter lease, in which the effect is over."
        )
    since, until = seconds(moment(now)), seconds(moment(end))
    return Step(ledger, message, message.child(request.name), fence, since, until, first=True)


def read_step(stored_step: object) -> Step:
    """Return the step that is stored so. Its sequence is an int or a text."""
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
        ledger, key, fence = ledger_attribute(str(fields.get("ledger", ""))), str(fields["key"]), str(fields["fence"])
        return Step(ledger, message, key, fence, since, until, bool(fields["first"]), fields.get("unsent") is True)
    except (KeyError, TypeError, ValueError, AttributeError, InvalidMessage) as error:
        raise make_step_error() from error


def make_step_error() -> LedgerMismatch:
    """Return the error to raise if an entity has another value in the place of its steps."""
    return LedgerMismatch(
        "The entity holds something else where a step of a message should be: another writer uses names that begin with ow_step. "
        "Repair the entity."
    )


def judge_open_step(
    step: Step, message: Message, now: float, entity: Entity | None, entity_key: Mapping[str, Any]
) -> Busy | Uncertain:
    """Return the outcome of every other write of the message while its step is open."""
    if now < step.until or step.is_unsent:  # of an effect that was not sent nothing is uncertain
        return Busy(message, max(now, step.until), entity)
    return Uncertain(message, step.since, step.fence, step.key, entity, entity_key=copy_value(entity_key))


def make_unsent_fence(fence: str) -> str:
    """Return the fence of a step that its worker has released, and so can no longer finish."""
    return f"unsent {fence}"


def may_be_taken_over(step: Step, now: float, request: StepRequest) -> bool:
    """Whether the lease has ended, and the provider will still know the key when a new lease ends, whatever the workers' clocks show."""
    ends = now + request.lease.total_seconds() + 2 * STEP_SKEW.total_seconds()
    return now >= step.until and (step.is_unsent or ends <= step.since + request.safe_for.total_seconds())


def check_begin(request: StepRequest) -> None:
    """Raise unless a step can be begun so."""
    name, lease, safe_for, after = cast("tuple[object, ...]", request)
    if after is not None and not isinstance(after, Uncertain):  # the key of a Begun is known only since the first begin
        raise InvalidUpdate(
            f"begin: after= is a {type(after).__name__}: give it the Uncertain of which you know that its effect did not happen. The lease of a "
            "step cannot be made longer, because the provider forgets its key all the same."
        )
    if not isinstance(name, str) or not name:
        raise InvalidUpdate(
            f"begin: the step's name is {name!r}: give it a text, such as 'charge', that says what the effect is."
        )
    if not isinstance(lease, timedelta) or lease < _MIN_LEASE:
        raise InvalidUpdate(f"begin: lease={lease!r}: give a timedelta of at least a second, in which the effect is over.")
    if not isinstance(safe_for, timedelta) or safe_for < timedelta(0):
        raise InvalidUpdate(
            f"begin: safe_for={safe_for!r}: give a timedelta, for which whoever performs the effect recognises its key, or "
            "timedelta(0) if it does not take one."
        )
    if timedelta(0) < safe_for and safe_for - lease < 2 * STEP_SKEW:  # may_be_taken_over would never be true
        shorter = "a shorter lease; or " if safe_for >= 2 * STEP_SKEW + _MIN_LEASE else ""
        raise InvalidUpdate(
            f"begin: safe_for={safe_for} is shorter than lease={lease} and the {2 * STEP_SKEW} by which two clocks may differ, so no "
            f"worker could ever take the step over. Give {shorter}timedelta(0), if the key is forgotten so soon: then the "
            "step of a worker that dies is Uncertain."
        )


def check_release(step: object) -> None:
    """Raise unless this is a step that can be let go."""
    if not isinstance(step, Begun):
        raise InvalidUpdate(f"release takes what begin has answered, Begun, and not a {type(step).__name__}.")


def check_claim(claim: object, message: Message, entity_key: object, canonical: Callable[[Any], object]) -> None:
    """Raise unless a write of the message to that entity may finish what is claimed. `canonical`: equal for two names of one entity."""
    if not isinstance(claim, Begun | Uncertain):
        raise InvalidUpdate(
            f"finishes= takes what begin has answered, Begun or Uncertain, and not a {type(claim).__name__}."
        )
    claimed_message = claim.message
    if (claimed_message.id, claimed_message.source, claimed_message.parts) != (message.id, message.source, message.parts):
        raise InvalidUpdate(
            f"This write is of {full_name(message)}, and the step that it is to finish is of {full_name(claimed_message)}: finish a step by "
            "a write of the message that began it."
        )
    if canonical(claim.entity_key) != canonical(entity_key):
        raise InvalidUpdate(
            f"This write is to the entity {entity_key!r}, and the step that it is to finish was begun in {dict(claim.entity_key)!r}: "
            "finish it there."
        )


class FinalWrite(NamedTuple):
    """The write that finishes a performed step: the name of the call, the arguments that it takes, and an example of them."""

    call: str
    arguments: frozenset[str]
    example: str

    def read_arguments(self, result: object) -> dict[str, Any]:
        """Return the result of `then=` as arguments. The effect has happened, so a mistake must be named before the driver meets it."""
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
