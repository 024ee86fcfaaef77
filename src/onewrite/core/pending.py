"""What an entity's outbox holds, as a relay reads it: which events wait, their numbers, and what consumers see of them. Pure.

The number of an event is the count of those sent before and its place in the list. The source names the entity's *incarnation*
as well: the nonce of its first event. So an entity that is deleted and created again is another source, and its first event is
not taken for the first one of the entity before it.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum, auto
from typing import Any, NamedTuple, SupportsBytes, TypeVar, cast
from urllib.parse import unquote
from uuid import UUID, uuid5

from onewrite.core.event import copy_value, seconds
from onewrite.core.label import OUTBOX, TOMBSTONE, check_outbox
from onewrite.core.tombstone import Tombstone, read_tombstone
from onewrite.errors import ConfigurationError, LedgerMismatch

Y = TypeVar("Y")
SKIPPED_TYPE = "onewrite.skipped"  # the type of what stands in for an event that was skipped

# Any fixed UUID would do: it keeps the ids of events apart from everybody else's.
_EVENTS = UUID("c0f4a1de-7a3b-4f58-9f0e-6f6e65777274")
_FIELDS = ("id", "type", "body", "time", "nonce", "cause")


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """An event as it is stored. `id` is derived from the message; the id that is published is derived from it, the source and the number."""

    id: str
    type: str
    body: str
    time: str
    nonce: str
    cause: str

    def replacement(self, entity: Mapping[str, Any]) -> PendingEvent:
        """Return the event that takes its place. It has the key of its entity, by which a consumer finds the entity of its own that waits for this
        number. The nonce stays, because the first event's names the incarnation.
        """
        body = json.dumps({"type": self.type, "entity": dict(entity)}, default=_format_key_value)
        return replace(self, type=SKIPPED_TYPE, body=body)

    def as_fields(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in _FIELDS}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An event on its way out. `id` and `source` are the same in every copy of it, and `sequence` counts 1, 2, 3 in a source."""

    id: str
    source: str
    type: str
    sequence: int
    time: str
    body: str
    cause: str
    entity: Mapping[str, Any] = field(compare=False, repr=False)

    def cloudevent(self) -> str:
        """Return the event as a CloudEvent 1.0, in JSON. The body stands in it byte for byte as it was emitted."""
        attributes = {
            "specversion": "1.0",
            "id": self.id,
            "source": self.source,
            "type": self.type,
            "time": self.time,
            "datacontenttype": "application/json",
            "sequence": str(self.sequence),
            "sequencetype": "Integer",
            "causationid": self.cause,
        }
        head = json.dumps(attributes, separators=(",", ":"))
        return f'{head[:-1]},"data":{self.body}}}'


@dataclass(frozen=True, slots=True)
class Box:
    """An entity's outbox as it was read. `key` is the entity's key as text, for the source; `sent_count` is None before the first clear.

    `tombstone`: the entity was deleted, and whoever clears the last event lets the database remove it.
    """

    entity: Mapping[str, Any] = field(hash=False)
    origin: str
    sent_count: int | None = None
    incarnation: str | None = None
    events: tuple[PendingEvent, ...] = ()
    due: str | None = None
    tombstone: Tombstone | None = None
    caller_entity: Mapping[str, Any] | None = field(
        default=None, compare=False, hash=False
    )  # the entity as the caller's client reads it

    @property
    def base(self) -> int:
        return self.sent_count or 0

    @property
    def is_unused(self) -> bool:
        """Whether nothing has been emitted since the entity was created."""
        return self.sent_count is None and not self.events

    @property
    def source(self) -> str:
        """The source of its events. Asked only where something was emitted."""
        return f"{self.origin}/{self.life}"

    @property
    def life(self) -> str:
        """The incarnation, which the first clear will keep. There is one as soon as there is an event."""
        return self.events[0].nonce if self.incarnation is None else self.incarnation

    @property
    def due_at(self) -> str:
        """When a sweep takes it. Asked only where something is pending."""
        return self.due or self.events[0].time

    def is_postponed(self, now: float) -> bool:
        """Whether an event was refused, and it is too early for a retry. The time of the oldest event itself postpones nothing, however
        far ahead the clock of its writer was."""
        return self.due is not None and self.due > self.events[0].time and seconds(self.due) > now

    def is_due(self, before: str | None) -> bool:
        """Whether a sweep takes the box if it looks for events that are due before that time. None: it takes all pending events."""
        return bool(self.events) and (before is None or self.due_at <= before)

    def outgoing(self, place: int) -> Outgoing:
        event, source = self.events[place], self.source
        number = self.base + place + 1
        # The number, because a message may take effect a second time, and its events are others then. The length keeps two triples apart.
        event_id = str(uuid5(_EVENTS, f"{len(source)}:{source}{number}:{event.id}"))
        # A copy, because the publisher may do with it what it wants.
        entity = copy_value(self.entity if self.caller_entity is None else self.caller_entity)
        return Outgoing(event_id, source, event.type, number, event.time, event.body, event.cause, entity)

    def outgoing_from(self, first: int = 0) -> tuple[Outgoing, ...]:
        """Return the pending events from a place on."""
        return tuple([self.outgoing(place) for place in range(first, len(self.events))])

    def after(self, count: int) -> Box:
        """Return the box without its first events, as it is once they are cleared."""
        return replace(self, sent_count=self.base + count, incarnation=self.life, events=self.events[count:], due=None)

    def with_event(self, place: int, event: PendingEvent) -> Box:
        return replace(self, events=(*self.events[:place], event, *self.events[place + 1 :]))

    def is_after(self, before: Box, count: int) -> bool:
        """Whether this is the box with its first events cleared, by any relay."""
        return (self.sent_count, self.incarnation) == (before.base + count, before.life)

    def follows(self, before: Box, count: int) -> bool:
        """Whether this is the box as it was `before`, with at most more events after the first `count`."""
        is_same = (self.sent_count, self.incarnation) == (before.sent_count, before.incarnation)
        return is_same and [event.nonce for event in self.events[:count]] == [event.nonce for event in before.events[:count]]


@dataclass(frozen=True, slots=True)
class Broken:
    """An entity whose outbox cannot be read: something else stands there (`LedgerMismatch`), or the database or its driver refuses."""

    entity: Mapping[str, Any]
    error: Exception


def try_read(
    read: Callable[[Mapping[str, Any]], Generator[Y, Any, Box]], entity: Mapping[str, Any]
) -> Generator[Y, Any, Box | Broken]:
    """Return the entity's outbox, or why it cannot be read: such an entity must not block the others."""
    try:
        return (yield from read(entity))
    except ConfigurationError:
        raise
    except Exception as error:
        return Broken(entity, error)


class Search(Enum):
    """What looks for entities with something pending has found none on its last step, and has not come to the end."""

    GOES_ON = auto()


def read_box(label: str | None, entity: Mapping[str, Any], origin: str, fields: Mapping[str, Any]) -> Box:
    """Return the outbox of that label in the fields of an entity, whose numbers are ints; of any label, if it is None.

    Raises `LedgerMismatch` where something else stands there.
    """
    check_outbox(label, fields)
    outbox_fields = {name: fields[name] for name in OUTBOX if name in fields and name != OUTBOX.label}
    count, incarnation, due = [outbox_fields.get(name) for name in (OUTBOX.sent_count, OUTBOX.incarnation, OUTBOX.due)]
    events = _events(outbox_fields.get(OUTBOX.events, ()))
    is_counted = (count is None and incarnation is None) or (
        type(count) is int and count >= 0 and isinstance(incarnation, str)
    )
    is_in_time = due is None or (events and _is_moment(due))
    if events is None or not is_counted or not is_in_time or None in outbox_fields.values():
        raise LedgerMismatch(
            "The outbox of an entity holds something other than events and their count: another writer uses its names. Repair the "
            "entity."
        )
    tombstone = read_tombstone(fields[TOMBSTONE]) if TOMBSTONE in fields else None
    return Box(entity, origin, count, incarnation, events, due, tombstone)


def _format_key_value(value: object) -> object:
    """Return what JSON has for a part of a key that is neither a text nor an int."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return urlsafe_b64encode(bytes(value)).decode() if isinstance(value, SupportsBytes) else str(value)


class KeyAttribute(NamedTuple):
    """A part of an entity's key as a source says it: its name, its type as a letter, and its value, still percent-encoded."""

    name: str
    kind: str
    value: str


def parse_source(source: str, outbox: str) -> list[KeyAttribute]:
    """Return the parts of the entity's key in the source of an event. The incarnation may be missing at its end."""
    parts = source.removeprefix(f"{outbox}/").split("/")
    if "=" not in parts[-1]:
        parts.pop()
    matches = [re.fullmatch("([^=]+)=([A-Z]):(.*)", part) for part in parts]
    if not source.startswith(f"{outbox}/") or not matches or not all(matches):
        raise ConfigurationError(
            f"{source!r} is no source of the outbox {outbox!r}: name it as an event of the entity does."
        )
    return [KeyAttribute(unquote(part[1]), part[2], part[3]) for part in matches if part is not None]


def _is_moment(text: object) -> bool:
    try:
        return isinstance(text, str) and seconds(text) >= 0
    except (ValueError, OverflowError):
        return False


def _events(entries: Sequence[object]) -> tuple[PendingEvent, ...] | None:
    events: list[PendingEvent] = []
    for entry in entries:
        if not isinstance(entry, Mapping):
            return None
        texts = [cast("Mapping[str, object]", entry).get(name) for name in _FIELDS]
        if not all(isinstance(text, str) for text in texts):
            return None
        event = PendingEvent(*cast("list[str]", texts))
        if not _is_moment(event.time):
            return None
        events.append(event)
    return tuple(events)
