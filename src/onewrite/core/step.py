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
from typing import Any, NamedTuple, cast

from onewrite.core.label import make_ledger_attribute, read_ledger_name
from onewrite.core.values import copy_value, moment, seconds
from onewrite.errors import InvalidMessage, LedgerMismatch
from onewrite.message import Message
from onewrite.outcome import Begun, Busy, Entity, Uncertain

MOVED_BACK = (
    "The step is open, but the ledger's mark is neither past the message nor just before it, so the mark was moved back. Repair the "
    "entity: set the mark to the number before the message, with `onewrite set-mark`."
)


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
