"""An entity's outbox, as a relay reads it: the pending events, their numbers, and their published form. This module does no I/O.

The number of an event is the count of events sent before, plus its place in the list. The source also contains the entity's
*incarnation*: the nonce of its first event. An entity that is deleted and created again therefore has a different source, and its
first event isn't a duplicate of its predecessor's first event.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum, auto
from functools import lru_cache
from hashlib import sha1
from json.encoder import encode_basestring_ascii as _quote
from typing import Any, NamedTuple, SupportsBytes, TypeVar, cast
from urllib.parse import unquote
from uuid import UUID

from onewrite.core.features.tombstone import Tombstone, read_tombstone
from onewrite.core.label import OUTBOX, TOMBSTONE, check_outbox
from onewrite.core.values import copy_value, seconds
from onewrite.errors import ConfigurationError, LedgerMismatch

Y = TypeVar("Y")
SKIPPED_TYPE = "onewrite.skipped"  # the type of an event that replaces a skipped one

# Any fixed UUID would do. It keeps the IDs of events apart from all other UUIDs.
_EVENTS = UUID("c0f4a1de-7a3b-4f58-9f0e-6f6e65777274").bytes
_TEXT = {str}
_FIELDS = ("id", "type", "body", "time", "nonce", "cause")


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """A stored event. Its `id` is derived from the message. The published ID is derived from this one, the source, and the number."""

    id: str
    type: str
    body: str
    time: str
    nonce: str
    cause: str

    def replacement(self, entity: Mapping[str, Any]) -> PendingEvent:
        """Return the event that replaces this one if it is skipped.

        It contains the entity's key, so that a consumer can find its own entity that waits for this number. It keeps the nonce, because
        the first event's nonce is the incarnation.
        """
        body = json.dumps({"type": self.type, "entity": dict(entity)}, default=_format_key_value)
        return replace(self, type=SKIPPED_TYPE, body=body)

    def as_fields(self) -> dict[str, str]:
        """Return the event's stored form."""
        return {name: getattr(self, name) for name in _FIELDS}


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An event to publish. Every copy has the same `id` and `source`, and `sequence` counts 1, 2, 3 in a source."""

    id: str
    source: str
    type: str
    sequence: int
    time: str
    body: str = field(repr=False)
    cause: str
    entity: Mapping[str, Any] = field(compare=False, repr=False)

    def cloudevent(self) -> str:
        """Return the event as a CloudEvent 1.0 in JSON. The body is byte for byte the emitted one."""
        # Written out, because an encoder takes twice as long.
        return (
            f'{{"specversion":"1.0","id":{_quote(self.id)},"source":{_quote(self.source)},"type":{_quote(self.type)},'
            f'"time":{_quote(self.time)},"datacontenttype":"application/json","sequence":"{self.sequence}","sequencetype":"Integer",'
            f'"causationid":{_quote(self.cause)},"data":{self.body}}}'
        )


@dataclass(frozen=True, slots=True)
class Box:
    """An entity's outbox, as it was read. `key` is the entity's key as text, for the source. `sent_count` is None before the first clear.

    `tombstone`: the entity was deleted, and the clear of the last event must set its expiry.
    """

    entity: Mapping[str, Any] = field(hash=False)
    origin: str
    sent_count: int | None = None
    incarnation: str | None = None
    events: tuple[PendingEvent, ...] = ()
    due: str | None = None
    tombstone: Tombstone | None = None
    # The entity in the caller's form.
    caller_entity: Mapping[str, Any] | None = field(default=None, compare=False, hash=False)

    @property
    def base(self) -> int:
        """The number of events that were sent before the pending ones."""
        return self.sent_count or 0

    @property
    def is_unused(self) -> bool:
        """Whether the entity has never emitted an event."""
        return self.sent_count is None and not self.events

    @property
    def source(self) -> str:
        """The source of the entity's events, if it has emitted any."""
        return f"{self.origin}/{self.life}"

    @property
    def life(self) -> str:
        """The entity's incarnation. It exists from the first event on, and the first clear stores it."""
        return self.events[0].nonce if self.incarnation is None else self.incarnation

    def is_postponed(self, now: float) -> bool:
        """Whether the broker refused the first event, and it's too early to retry it.

        An event whose time is in the future, because its writer's clock was ahead, isn't postponed.
        """
        return self.due is not None and self.due > self.events[0].time and seconds(self.due) > now

    def is_due(self, before: str | None) -> bool:
        """Whether a sweep for events that are due before this time takes the box. None: the sweep takes all pending events."""
        return bool(self.events) and (before is None or (self.due or self.events[0].time) <= before)

    def outgoing(self, place: int) -> Outgoing:
        """Return the pending event at this place (from 0) as a publisher gets it, with its number and ID."""
        event, source = self.events[place], self.source
        number = self.base + place + 1
        # The ID includes the number, because a message can take effect a second time, with different events. The length prefix makes the
        # string unambiguous.
        event_id = _make_uuid5(f"{len(source)}:{source}{number}:{event.id}")
        # A copy, because the publisher can change it.
        entity = copy_value(self.entity if self.caller_entity is None else self.caller_entity)
        return Outgoing(event_id, source, event.type, number, event.time, event.body, event.cause, entity)

    def list_outgoing(self, first: int = 0) -> tuple[Outgoing, ...]:
        """Return the pending events, starting at a place."""
        return tuple([self.outgoing(place) for place in range(first, len(self.events))])

    def after(self, count: int) -> Box:
        """Return the box after its first events are cleared."""
        return replace(self, sent_count=self.base + count, incarnation=self.life, events=self.events[count:], due=None)

    def with_event(self, place: int, event: PendingEvent) -> Box:
        return replace(self, events=(*self.events[:place], event, *self.events[place + 1 :]))

    def is_after(self, before: Box, count: int) -> bool:
        """Whether this is the box after any relay has cleared its first events."""
        return (self.sent_count, self.incarnation) == (before.base + count, before.life)

    def has_first_events(self, before: Box, count: int) -> bool:
        """Whether this box begins with the first `count` events of `before`, none of which has been cleared."""
        is_same = (self.sent_count, self.incarnation) == (before.sent_count, before.incarnation)
        return is_same and [event.nonce for event in self.events[:count]] == [event.nonce for event in before.events[:count]]


@dataclass(frozen=True, slots=True)
class BrokenOutbox:
    """An entity whose outbox can't be read, because it contains other data (`LedgerMismatch`), or because the database or its driver refuses."""

    entity: Mapping[str, Any]
    error: Exception


def try_read(
    read: Callable[[Mapping[str, Any]], Generator[Y, Any, Box]], entity: Mapping[str, Any]
) -> Generator[Y, Any, Box | BrokenOutbox]:
    """Return the entity's outbox, or why it can't be read. An entity with an unreadable outbox must not block the others."""
    try:
        return (yield from read(entity))
    except ConfigurationError:  # misuse, which isn't this entity's fault
        raise
    except Exception as error:
        return BrokenOutbox(entity, error)


class Search(Enum):
    """The result of a search step that found no pending entity, but hasn't reached the end."""

    CONTINUES = auto()


def read_box(label: str | None, entity: Mapping[str, Any], origin: str, fields: Mapping[str, Any]) -> Box:
    """Return the outbox in an entity's fields, whose numbers must be ints.

    Raise `LedgerMismatch` if the outbox has a different label, or contains other data. With None as the `label`, any label is accepted.
    """
    check_outbox(label, fields)
    outbox_fields = {name: fields[name] for name in OUTBOX if name in fields and name != OUTBOX.label}
    count, incarnation, due = [outbox_fields.get(name) for name in (OUTBOX.sent_count, OUTBOX.incarnation, OUTBOX.due)]
    events = _read_events(outbox_fields.get(OUTBOX.events, ()))
    is_counted = (count is None and incarnation is None) or (
        type(count) is int and count >= 0 and isinstance(incarnation, str)
    )
    has_valid_due = due is None or (bool(events) and isinstance(due, str) and _can_parse(due))
    # onewrite removes a field instead of setting it to null.
    if events is None or not is_counted or not has_valid_due or None in outbox_fields.values():
        raise LedgerMismatch(
            "The entity's outbox contains other data than events and their count, because another writer uses its names. Repair the entity, "
            "and make the other writer use different names."
        )
    tombstone = read_tombstone(fields[TOMBSTONE]) if TOMBSTONE in fields else None
    return Box(entity, origin, count, incarnation, events, due, tombstone)


def _format_key_value(value: object) -> object:
    """Convert a part of a key to JSON, if it's neither a string nor an int."""
    if isinstance(value, Decimal) and value == value.to_integral_value():
        return int(value)
    return urlsafe_b64encode(bytes(value)).decode() if isinstance(value, SupportsBytes) else str(value)


class KeyAttribute(NamedTuple):
    """A key attribute in an event's source: its name, its type's letter, and its percent-encoded value."""

    name: str
    kind: str
    value: str


def parse_source(source: str, outbox: str) -> list[KeyAttribute]:
    """Return the key attributes in the source of an event. The incarnation at its end is optional."""
    parts = source.removeprefix(f"{outbox}/").split("/")
    if "=" not in parts[-1]:  # the incarnation
        parts.pop()
    matches = [re.fullmatch("([^=]+)=([A-Z]):(.*)", part) for part in parts]
    if not source.startswith(f"{outbox}/") or not matches or not all(matches):
        raise ConfigurationError(
            f"{source!r} isn't a source of the outbox {outbox!r}. Pass the source that an event of the entity has."
        )
    return [KeyAttribute(unquote(match[1]), match[2], match[3]) for match in matches if match is not None]


def _make_uuid5(name: str) -> str:
    """Return the text of `uuid5` in our namespace, in a fifth of its time."""
    digits = sha1(_EVENTS + name.encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(digits[16], 16) & 3]
    return f"{digits[:8]}-{digits[8:12]}-5{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:32]}"


@lru_cache(maxsize=32)  # the events of a write have the same time
def _can_parse(moment: str) -> bool:
    """Whether this is a time since 1970 in the form of `moment`."""
    try:
        return seconds(moment) >= 0
    except (ValueError, OverflowError):
        return False


def _read_events(entries: Sequence[object]) -> tuple[PendingEvent, ...] | None:
    """Return the stored events, or None if one of them isn't in the format."""
    events: list[PendingEvent] = []
    for entry in entries:
        if not isinstance(entry, Mapping):
            return None
        texts = [*map(cast("Mapping[str, object]", entry).get, _FIELDS)]
        if {*map(type, texts)} != _TEXT and not all(isinstance(text, str) for text in texts):
            return None
        event = PendingEvent(*cast("list[str]", texts))
        if not _can_parse(event.time):
            return None
        events.append(event)
    return tuple(events)
