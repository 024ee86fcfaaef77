"""An effect of a message outside its entity. It begins before it is sent, and a guarded write finishes it. Pure.

docs/format.md specifies the stored data. An entity holds an effect from its begin to its finish, under a hash of its message. Each of these
rules keeps a customer from being charged twice, or a charge from being forgotten:

- A message has one effect. The effect's name only derives the key for the provider, and the key of the first begin stays.
- Every begin gets a new fence. A write finishes the effect only with the fence of its begin.
- A worker takes over an effect only while the provider certainly knows the key of the first begin.
- A worker that might have sent the effect doesn't remove the effect.
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
    "The effect is open, but the ledger's mark is neither past the message nor just before it. The mark was moved back. To repair the "
    "entity, set the mark to the number before the message, with `onewrite set-mark`."
)


class Effect(NamedTuple):
    """A stored effect. `ledger` identifies the ledger that the finish writes. `first` is true until a takeover."""

    ledger: str
    message: Message
    key: str
    fence: str
    since: float
    until: float
    first: bool
    is_unsent: bool = False  # released before it was sent. Any worker can take it over

    def is_same(self, effect: Effect) -> bool:
        """Whether both come from the same begin. Two begins can have the same fence by chance, but then their leases differ."""
        return (self.fence, self.until) == (effect.fence, effect.until)

    def take_over(self, open_effect: Effect) -> Effect:
        """Return this effect as a takeover of the open one. Only the fence and the lease are new."""
        since = self.since if open_effect.is_unsent else open_effect.since
        return self._replace(ledger=open_effect.ledger, key=open_effect.key, since=since, first=open_effect.is_unsent)

    def as_begun(self, message: Message, entity_key: Mapping[str, Any], clock: Callable[[], float]) -> Begun:
        """Return the outcome for the worker that holds the effect. `entity_key` is copied, because the outcome outlives the call."""
        key = copy_value(entity_key)
        return Begun(message, self.key, self.fence, self.since, self.until, self.first, entity_key=key, clock=clock)

    def as_fields(self) -> dict[str, Any]:
        """Return the fields that are stored. Fields with their usual value are omitted."""
        message = self.message
        fields: dict[str, Any] = {"id": message.id, "key": self.key, "fence": self.fence}
        fields |= {"since": moment(self.since), "until": moment(self.until), "first": self.first}
        # Only None is omitted, because a sequence can be 0.
        optional = {"source": message.source or None, "sequence": message.sequence, "parts": [*message.parts] or None}
        optional |= {"unsent": self.is_unsent or None, "ledger": read_ledger_name(self.ledger) or None}
        return fields | {name: value for name, value in optional.items() if value is not None}


def read_effect(stored_effect: object) -> Effect:
    """Return the effect, given its stored form. The sequence of the effect's message is an int or a string, never a Decimal."""
    try:
        fields = cast("Mapping[str, Any]", stored_effect)
        sequence = fields.get("sequence")
        message = Message(
            fields["id"],
            source=fields.get("source", ""),
            sequence=int(sequence) if sequence is not None and not isinstance(sequence, str) else sequence,
            parts=tuple(fields.get("parts", ())),
        )
        since, until = seconds(fields["since"]), seconds(fields["until"])
        ledger, key, fence = make_ledger_attribute(str(fields.get("ledger", ""))), str(fields["key"]), str(fields["fence"])
        return Effect(ledger, message, key, fence, since, until, bool(fields["first"]), fields.get("unsent") is True)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError, InvalidMessage) as error:
        raise make_effect_error() from error


def make_effect_error() -> LedgerMismatch:
    """Return the error for an entity that has other values in the place of its effects."""
    return LedgerMismatch(
        "The entity has other values in the place of a message's effect, because another writer uses names that begin with ow_effect. Repair the "
        "entity, and make the other writer use different names."
    )


def judge_open_effect(
    effect: Effect, message: Message, now: float, entity: Entity | None, entity_key: Mapping[str, Any]
) -> Busy | Uncertain:
    """Return the outcome of other writes of the message while its effect is open."""
    if now < effect.until or effect.is_unsent:  # an unsent effect isn't uncertain
        return Busy(message, max(now, effect.until), entity)
    return Uncertain(message, effect.since, effect.fence, effect.key, entity, entity_key=copy_value(entity_key))
