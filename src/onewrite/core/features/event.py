"""The events that a write emits, and their form in the entity until a relay has published them. This module does no I/O.

docs/format.md specifies the stored data. An entity has a list of its events and a count of the events sent before. The count and
the place in the list number each event, without a read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, time
from decimal import Decimal
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID

from onewrite.core.label import make_outbox_label, plain, read_ledger_name
from onewrite.core.values import moment
from onewrite.core.write import Emission
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.message import Message

T = TypeVar("T")

_TEXT, _SIMPLE = frozenset({str}), frozenset({str, int, float, bool, type(None)})
_NONCE_BYTES = 8  # two nonces of one entity are equal once in 2^64
_MAX_SHARDS = 1000  # a sweep asks each shard once
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# The beginning of a URI reference: a scheme, or a first segment without a colon.
_REFERENCE = re.compile("(?:[A-Za-z][A-Za-z0-9.-]*:|(?![^/]*:))[A-Za-z0-9/._~:-]+")


@dataclass(frozen=True, slots=True)
class Event:
    """An event for other services, emitted by the write that it describes.

    `body` is any JSON value. The event's ID is derived from the message, the type, and the event's place among the events of its type in
    the write. `name` replaces the type and the place, if a handler can emit its events in a different order. `cause` is the ID of the
    event's cause, if that isn't the message. In a batch, it's the message to which the event belongs.
    """

    type: str
    body: Any = field(hash=False, repr=False)
    name: str | None = field(default=None, kw_only=True)
    cause: str | Message | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        cause = self.cause.id if isinstance(self.cause, Message) else self.cause
        for field_name, value in (("type", self.type), ("name", self.name), ("cause", cause)):
            if value is not None or field_name == "type":
                _check_text(field_name, value)
        if type(self.type) is not str:  # a member of an Enum has a different text in an f-string
            object.__setattr__(self, "type", str.__str__(self.type))
        if self.name is not None and type(self.name) is not str:
            object.__setattr__(self, "name", str.__str__(self.name))
        if not self.type.isprintable() and _CONTROL.search(self.type):
            raise InvalidUpdate(
                f"Event.type {self.type!r} contains a control character, which CloudEvents don't allow. Remove it."
            )


Emit: TypeAlias = Sequence[Event] | None  # the argument emit= of a write


def as_json(value: object) -> object:
    """Convert a value to JSON. A function for `Outbox(default=...)` can call it for the types that it doesn't convert itself.

    Times become strings in ISO 8601, UUIDs become strings, and dataclasses and pydantic models become objects. A Decimal becomes a number
    if it's whole, or if a float has the same value. Other Decimals are refused, because readers would round them.
    """
    match value:
        case Decimal():
            return _convert_decimal(value)
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return {member.name: getattr(value, member.name) for member in fields(value)}
        case _ if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
            return dump(mode="json")
        case _:
            raise InvalidUpdate(
                f"JSON has no form for a {type(value).__name__}. Convert it before you create the event, or pass Outbox(default=...), "
                "which converts it."
            )


@dataclass(frozen=True, slots=True)
class Outbox:
    """Allows a store's writes to emit events, which are stored in the entity until a relay has published them.

    `name` begins the source of every event. Never change it, because consumers recognize events by their source, and an entity refuses a different
    name. `index` is the sparse index of a DynamoDB table in which a sweep finds pending entities. Without an index, a sweep reads the whole
    table. `shards` is the number of partitions of the index over which writes are spread. `max_event_bytes` is the maximum size of an event's
    body in bytes of JSON: the broker's limit less two kilobytes, or less still if keys, types, or IDs are long. `default` converts
    other types to JSON, as in `json.dumps`.
    """

    name: str
    index: str | None = field(default=None, kw_only=True)
    shards: int = field(default=8, kw_only=True)
    max_event_bytes: int | None = field(default=None, kw_only=True)
    default: Callable[[Any], object] = field(default=as_json, kw_only=True)
    label: str = field(init=False, repr=False, compare=False)
    encode: Callable[[object], str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.name), str) or not _REFERENCE.fullmatch(self.name):
            raise ConfigurationError(
                f"Outbox({self.name!r}): expected a name that can begin a URI reference, for example 'shop/orders': letters, digits, "
                "and any of / - . _ ~ :"
            )
        if type(self.shards) is not int or not 1 <= self.shards <= _MAX_SHARDS:
            raise ConfigurationError(f"Outbox(shards={self.shards!r}): must be between 1 and {_MAX_SHARDS}.")
        index, limit, default = cast("tuple[object, ...]", (self.index, self.max_event_bytes, self.default))
        if index is not None and (not isinstance(index, str) or not index):
            raise ConfigurationError(f"Outbox(index={index!r}): expected the name of an index of the table, or None.")
        if limit is not None and (type(limit) is not int or limit < 1):
            raise ConfigurationError(f"Outbox(max_event_bytes={limit!r}): expected a number of bytes, or None.")
        if not callable(default):
            raise ConfigurationError(
                f"Outbox(default={default!r}): expected a function of a value, like the default= of json.dumps."
            )
        object.__setattr__(self, "name", plain(self.name))
        object.__setattr__(self, "label", make_outbox_label(self.name))
        # json.dumps would create an encoder for each event.
        encoder = json.JSONEncoder(default=self._convert, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        object.__setattr__(self, "encode", encoder.encode)

    def _convert(self, value: object) -> object:
        json_value = self.default(value)
        _check_names(json_value)
        return json_value


def require_outboxes(outboxes: T | None) -> T:
    """Return a store's outboxes, or raise if it has none."""
    if outboxes is None:
        raise ConfigurationError("This store has no outbox. Create it with outbox=Outbox(...).")
    return outboxes


class Emitter(NamedTuple):
    """Makes the events of a store's writes. `prefix` begins the keys that distinguish the events of one message."""

    outbox: Outbox | None
    prefix: str

    @property
    def empty(self) -> Emission | None:
        """The emission of a write without events, if the store has an outbox."""
        return None if self.outbox is None else Emission(self.outbox.label)

    def emit(self, messages: Sequence[Message], argument: object, now: float, call: str) -> Emission:
        """Return the events of a write of these messages, in their stored form. Each has the same ID as in a write of its message alone.

        `argument`: the caller's `emit=`. `call`: the unique name of the call.
        """
        outbox, events = self.outbox, _require_events(argument)
        if outbox is None:
            raise ConfigurationError("emit= needs an outbox, and this store has none. Create it with outbox=Outbox(...).")
        if not events:
            return Emission(outbox.label)
        causes = [*messages] * len(events) if len(messages) == 1 else [_find_cause(event, messages) for event in events]
        nonce, at = blake2b(call.encode(), digest_size=_NONCE_BYTES).hexdigest(), moment(now)
        entries: list[dict[str, str]] = []
        for message, key, event in zip(causes, _make_event_keys(causes, events), events, strict=True):
            cause = message if event.cause is None else event.cause
            entries.append(
                {
                    "id": message.child(self.prefix + key),
                    "type": event.type,
                    "body": _encode_body(outbox, event),
                    "time": at,
                    "nonce": nonce,
                    "cause": cause.id if isinstance(cause, Message) else cause,
                }
            )
        shard = int.from_bytes(blake2b(causes[0].id.encode(), digest_size=8).digest()) % outbox.shards
        return Emission(outbox.label, entries, at, shard)


def make_emitter(outbox: Outbox | None, attribute: str) -> Emitter:
    """Return the emitter of a store. `attribute` is that of its ledger, if it has one. Raise if the store can't have this outbox.

    Two services with ledgers in one entity can both emit events for one message.
    """
    if not isinstance(cast("object", outbox), Outbox | None):
        raise ConfigurationError(f"outbox={outbox!r}: expected an Outbox, for example outbox=Outbox('shop/orders').")
    name = read_ledger_name(attribute)
    return Emitter(outbox, f"in {len(name)}:{name} " if name else "")


def check_causes(messages: Sequence[Message], events: object) -> None:
    """Raise unless the cause of each event is one of the messages."""
    for event in _require_events(events):
        _find_cause(event, messages)


def _find_cause(event: Event, messages: Sequence[Message]) -> Message:
    """Return the one message that the event names as its cause. Raise if it names none of them, or several."""
    matches = [message for message in messages if event.cause in (message, message.id)]
    if len(matches) == 1:
        return matches[0]
    reason = "names several of them" if matches else "is none of them"
    raise ConfigurationError(
        f"The cause of an event in a batch must be one of the messages that the function received, but that of {event.type!r} {reason}. "
        "Write Event(..., cause=message)."
    )


def _require_events(argument: object) -> Sequence[Event]:
    """Return the caller's `emit=`, or raise unless it's a list or tuple of events."""
    wrong: list[object] = [argument]
    if isinstance(argument, list | tuple):
        wrong = [event for event in cast("Sequence[object]", argument) if not isinstance(event, Event)]
    if wrong:
        raise InvalidUpdate(f"emit=: expected a list of events, got a {type(wrong[0]).__name__}. Write emit=[Event(...)].")
    return cast("Sequence[Event]", argument)


def _make_event_keys(causes: Sequence[Message], events: Sequence[Event]) -> list[str]:
    """Return the keys that distinguish the events of one message: the name, or the type and the place among its type."""
    counts: dict[tuple[int, str], int] = {}
    keys: list[str] = []
    # Finding a message by its address is many times faster than by its contents.
    cause_ids = [id(message) for message in causes]
    for cause, event in zip(cause_ids, events, strict=True):
        place = counts.get((cause, event.type), 0)
        keys.append(f"event {place} {event.type}" if event.name is None else f"event named {event.name}")
        if event.name is None:
            counts[cause, event.type] = place + 1
    if len(set(zip(cause_ids, keys, strict=True))) < len(keys):
        raise InvalidUpdate(
            "Two events of one write have the same name, and consumers would treat one as a duplicate. Give each its own "
            "name."
        )
    return keys


def _encode_body(outbox: Outbox, event: Event) -> str:
    """Return the event's body as JSON. Raise `InvalidUpdate` for a body that JSON or the outbox doesn't allow."""
    try:
        text = outbox.encode(event.body)
        if type(event.body) not in _SIMPLE:
            _check_names(event.body)
        if not text.isascii():
            text.encode()  # raises for a lone surrogate, which no database stores
            # SQS refuses these characters. They only occur in strings, where JSON can escape them.
            text = text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    except InvalidUpdate:  # raised by `default` or by the check of the names, with its own advice
        raise
    except (TypeError, ValueError, RecursionError) as error:
        problem = (
            type(error).__name__ if outbox.default is not as_json else error
        )  # the text of the user's own error can quote the body
        raise InvalidUpdate(f"The body of event {event.type!r} can't be converted to JSON: {problem}.") from error
    if outbox.max_event_bytes is not None and (size := len(text.encode())) > outbox.max_event_bytes:
        raise InvalidUpdate(
            f"The body of event {event.type!r} has {size} bytes, but this outbox accepts at most {outbox.max_event_bytes}, because the "
            "broker would always refuse it. Store the large part where consumers can read it, and emit its address."
        )
    return text


def _check_names(body: object) -> None:
    """Raise if two keys of an object have the same name in JSON, such as 1 and "1", because readers would keep only one value."""
    if isinstance(body, dict):
        members = cast("dict[object, object]", body)
        if not _TEXT.issuperset(map(type, members)):
            names: list[str] = json.loads(
                json.dumps(dict.fromkeys(members)), object_pairs_hook=lambda pairs: [name for name, _ in pairs]
            )
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise InvalidUpdate(
                    f"Two keys of the event's body are {twice!r} in JSON, and readers would lose one of them. Use different keys."
                )
        for value in members.values():
            if type(value) not in _SIMPLE:
                _check_names(value)
    elif isinstance(body, list | tuple):
        for value in cast("Sequence[object]", body):
            _check_names(value)


def _convert_decimal(value: Decimal) -> int | float:
    """Return the equal number that JSON can show without rounding. Raise `InvalidUpdate` if there is none."""
    if value.is_finite():
        number = float(value)
        # Longer integers don't fit into a database either. abs() would round to the precision of the caller's context.
        if value == value.to_integral_value() and value.copy_abs() < 10**38:
            return int(value)
        if Decimal(repr(number)) == value:
            return number
    raise InvalidUpdate(
        f"A {type(value).__name__} in the event's body would be rounded by many JSON readers. Emit it as a string."
    )


def _check_text(field_name: str, value: object) -> None:
    """Raise unless this is a non-empty string that every database stores and that isn't too long for an ID."""
    if not isinstance(value, str) or not value:
        fault = "empty" if value == "" else f"a {type(value).__name__}"
        raise InvalidUpdate(f"Event.{field_name} is {fault}. Pass a string.")
    try:
        length = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidUpdate(f"Event.{field_name} has a lone surrogate, which no database stores. Remove it.") from error
    if length > Message.max_text_bytes:
        raise InvalidUpdate(
            f"Event.{field_name} has {length} bytes, but at most {Message.max_text_bytes} are allowed, like in an ID. Put long text "
            "into the body."
        )
