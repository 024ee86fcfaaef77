"""A guarded write, on any engine: the caller's own call with parts in addition to it. Pure.

The parts are the ledger, an effect, the outbox, the token of the call, and the tombstone of a delete. An update, a `remember`, a creation, a
delete, a batch, and the begin and the finish of an effect are writes with different parts. An engine's `dialect.py` has the conditions and
changes of each part. `judging.py` turns a refusal into an outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from onewrite.core.effect import Effect
from onewrite.core.ledgers.entry import Entry, Lookup, Remember
from onewrite.core.ledgers.seen_ids import UNNAMED, hash_message
from onewrite.errors import EntityTooLarge
from onewrite.message import Message
from onewrite.outcome import Entity


class NoEffect(NamedTuple):
    """Requires that the messages have no open effect."""


class NoEffectAtAll(NamedTuple):
    """Requires that no message has an open effect. A delete would remove the effect, and a batch rarely meets one.

    `unsent`: the effects that the write removes, because they were released before they were sent: the hash of each,
    and its stored value.
    """

    unsent: tuple[tuple[str, Any], ...] = ()


class Begins(NamedTuple):
    """Begins this effect, unless the message has one."""

    effect: Effect


class Finishes(NamedTuple):
    """Ends the message's open effect, which `fence` and `ledger` identify. `overtaken`: the ledger's mark has moved past the message.

    `is_unsent`: the effect was released before it was sent. Then any write of the message ends it, even a conditional write.
    """

    fence: str
    ledger: str
    overtaken: bool = False
    is_unsent: bool = False


class Withdraws(NamedTuple):
    """Withdraws the message's effect, if the ledger would accept the message without it."""

    fence: str
    ledger: str


class Emission(NamedTuple):
    """The events that one write adds to an entity's outbox. Without events, the outbox is still checked to be the store's."""

    label: str
    events: Sequence[dict[str, str]] = ()
    due: str = ""
    shard: int = 0


class Burial(NamedTuple):
    """Turns the entity into a tombstone.

    - `fields`: the stored tombstone
    - `by`: the unique name of the delete, which is one of the fields
    - `ttl`: the attribute with the entity's expiry, which no longer applies
    - `removes`: attributes that the same request removes, if the entity is too large for a tombstone
    """

    fields: Mapping[str, Any]
    by: str
    ttl: str
    removes: tuple[str, ...] = ()


NO_EFFECT = NoEffect()
_UNNAMED_ONLY = (UNNAMED,)
EffectPart: TypeAlias = NoEffect | NoEffectAtAll | Begins | Finishes | Withdraws


class Write(NamedTuple):
    """One guarded write: its messages, the entity, and the parts that are added to the caller's call."""

    messages: tuple[Message, ...]  # several in a batch, in the order of their changes
    key: Mapping[str, Any]  # names the entity, in the caller's form
    now: float
    entry: Entry  # the ledger's conditions and changes
    effect: EffectPart
    emission: Emission | None = None  # the events, in a store with an outbox
    token: str | None = None  # names the call, on an engine that doesn't recognize retries
    burial: Burial | None = None  # only a delete has one

    @property
    def message(self) -> Message:
        """The first message. In a write of one message, the outcome is for this one."""
        return self.messages[0]

    @property
    def has_outbox_condition(self) -> bool:
        """Whether the entity's outbox must be the store's. A begin requires it too, because its finish can emit."""
        return self.emission is not None and (bool(self.emission.events) or isinstance(self.effect, Begins))

    def has_effect(self, part: EffectPart) -> bool:
        """Whether this is the write's effect part. Parts of different kinds can be equal, because they're tuples."""
        return (type(part), part) == (type(self.effect), self.effect)

    @property
    def effect_hash(self) -> str:
        """The hash that identifies the effect that this write begins or ends."""
        effect = self.effect
        return hash_message(
            self.message, effect.ledger if isinstance(effect, Finishes | Withdraws) else self.entry.terms.attribute
        )

    def hash_effects(self, *messages: Message) -> list[str]:
        """Return the hashes of the effects that these messages could have, under this ledger and the ledgers in its previous=."""
        own = self.entry.checked[0]
        if (
            len(messages) == 1
            and self.entry.terms.attributes == _UNNAMED_ONLY
            and type(own) is Remember
            and own.sets.has_hashes
        ):
            return [own.mark]  # the mark is the message's hash
        return [hash_message(message, ledger) for ledger in self.entry.terms.attributes for message in messages]


class Unreadable(dict[str, Any]):
    """An entity without the fields that the driver couldn't read. Judging doesn't need them, and outcomes don't contain such an entity."""


class Image(NamedTuple):
    """An entity at the time it refused a write, or as it was read afterwards."""

    exists: bool
    is_gone: bool  # the entity is a tombstone
    entity: Entity | None  # in the caller's form
    ledger: Lookup
    effects: Mapping[str, Any]  # open effects, by their hashes
    fields: Mapping[str, Any]  # its top-level attributes or fields
    is_null_absent: bool  # whether the engine's filters treat null like an absent field


class Size(NamedTuple):
    """The bytes of an entity, by their owner. `new_events`: the bytes of this write's events."""

    total: int
    caller: int  # its own attributes or fields
    outbox: int
    new_events: int = 0

    @property
    def ledger(self) -> int:
        return self.total - self.caller - self.outbox


def make_too_large_error(limit: str, size: Size, remedy: str) -> EntityTooLarge:
    """Return the error for an entity that would be too large. `remedy`: the advice if the ledger takes more bytes than the events."""
    if not size.total:
        shares = "its current size isn't known"
    else:
        outbox = f", {size.outbox} its outbox's, whose events are pending," if size.outbox else ""
        shares = f"it has {size.total} now, {size.ledger} of them its ledger's{outbox} and {size.caller} your own"
    brings = f" The events of this write would add {size.new_events}." if size.new_events else ""
    if size.outbox + size.new_events > size.ledger:
        remedy = "Emit less, and publish the pending events with a relay, which removes them from the entity."
    return EntityTooLarge(
        f"The entity would exceed {limit}: {shares}.{brings} It's unchanged, and refuses every message that would make it larger. "
        f"{remedy}"
    )
