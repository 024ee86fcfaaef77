"""Events that a write emits, and how an entity keeps them until a relay has published them. Pure.

What is stored is fixed by docs/format.md. An entity's events are a list beside the number of those that were sent before, so
that each has a number without a read: that count and the place in the list give it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast
from uuid import UUID

from onewrite.core.label import ledger_name, outbox_label, plain
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.message import Message

T = TypeVar("T")

_TEXT, _SIMPLE = frozenset({str}), frozenset({str, int, float, bool, type(None)})
_NONCE_BYTES = 8  # two nonces of one entity are the same once in 2^64
_MAX_SHARDS = 1000  # a sweep asks each shard once
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
# What may begin a URI reference: a scheme, or a first segment without a colon.
_REFERENCE = re.compile("(?:[A-Za-z][A-Za-z0-9.-]*:|(?![^/]*:))[A-Za-z0-9/._~:-]+")


@dataclass(frozen=True, slots=True)
class Event:
    """Something that others shall be told, emitted by the write that makes it true.

    `body` is anything that JSON can say. The id of the event comes from the message and from the event's place among the
    events of its type in the write; `name` takes the place of both, where a handler may emit them in another order.
    `cause` is the id of what led to it, if that is not the message itself. In a fold it is one of the messages, and says which of
    them the event belongs to.
    """

    type: str
    body: Any = field(hash=False)
    name: str | None = field(default=None, kw_only=True)
    cause: str | Message | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        cause = self.cause.id if isinstance(self.cause, Message) else self.cause
        for field_name, value in (("type", self.type), ("name", self.name), ("cause", cause)):
            if value is not None or field_name == "type":
                _check_text(field_name, value)
        if type(self.type) is not str:  # as a member of an Enum, whose text in an f-string is another one
            object.__setattr__(self, "type", str.__str__(self.type))
        if self.name is not None and type(self.name) is not str:
            object.__setattr__(self, "name", str.__str__(self.name))
        if not self.type.isprintable() and _CONTROL.search(self.type):
            raise InvalidUpdate(f"Event.type {self.type!r} has a control character, which no CloudEvent may have there.")


Emit: TypeAlias = Sequence[Event] | None  # what the argument emit= of a write takes


def copied_events(emit: Emit) -> Emit:
    """Return the events of a write that is sent later. What is no list of events is refused then."""
    argument = cast("object", emit)
    if not isinstance(argument, list | tuple):
        return emit
    return [
        replace(event, body=copy_value(event.body)) if isinstance(event, Event) else event
        for event in cast("Sequence[Any]", argument)
    ]


def as_json(value: object) -> object:
    """Return what JSON has for a value of another type. A function for `Outbox(default=...)` can call it for the types that it does not know.

    Times become text in ISO 8601 and UUIDs text; dataclasses and pydantic's models become objects. A Decimal becomes a number
    if it is whole, or if a float has the same value; another is refused, because readers would round it.
    """
    match value:
        case Decimal():
            return _number(value)
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
                f"JSON has nothing for a {type(value).__name__}: convert it where the event is made, or give the Outbox a default= "
                "that does."
            )


@dataclass(frozen=True, slots=True)
class Outbox:
    """Lets a store's writes emit events, which stand in the entity until a relay has published them.

    `name` begins the source of every event, and stays as it is forever: consumers know the events by it. The entity remembers it,
    and refuses another one. `index` names the sparse index of a DynamoDB table by which a sweep finds what is pending; without one it
    reads the whole table. `shards` says over how many partitions of such an index writes are spread. `largest_event` is how many bytes
    an event's body may have as JSON: what the broker takes, less two kilobytes for the rest, or more where keys, types or ids are
    long. `default` converts what JSON does not know, as in `json.dumps`.
    """

    name: str
    index: str | None = field(default=None, kw_only=True)
    shards: int = field(default=8, kw_only=True)
    largest_event: int | None = field(default=None, kw_only=True)
    default: Callable[[Any], object] = field(default=as_json, kw_only=True)
    label: str = field(init=False, repr=False, compare=False)
    encode: Callable[[object], str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(cast("object", self.name), str) or not _REFERENCE.fullmatch(self.name):
            raise ConfigurationError(
                f"Outbox({self.name!r}): give a name that can begin a URI reference, such as shop/orders: letters, digits and any of "
                "/ - . _ ~ :"
            )
        if type(self.shards) is not int or not 1 <= self.shards <= _MAX_SHARDS:
            raise ConfigurationError(f"Outbox(shards={self.shards!r}): an index has from 1 to {_MAX_SHARDS} partitions.")
        self._check_options()
        object.__setattr__(self, "name", plain(self.name))
        object.__setattr__(self, "label", outbox_label(self.name))
        # json.dumps would make an encoder for each event.
        encoder = json.JSONEncoder(default=self._convert, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        object.__setattr__(self, "encode", encoder.encode)

    def _check_options(self) -> None:
        index, largest, default = cast("tuple[object, ...]", (self.index, self.largest_event, self.default))
        if index is not None and (not isinstance(index, str) or not index):
            raise ConfigurationError(f"Outbox(index={index!r}): give the name of an index of the table, or None.")
        if largest is not None and (type(largest) is not int or largest < 1):
            raise ConfigurationError(f"Outbox(largest_event={largest!r}): give a number of bytes, or None.")
        if not callable(default):
            raise ConfigurationError(f"Outbox(default={default!r}): give a function of a value, as json.dumps takes it.")

    def _convert(self, value: object) -> object:
        json_value = self.default(value)
        _check_names(json_value)
        return json_value


class Emission(NamedTuple):
    """What one write adds to an entity's outbox. With no events the outbox is still the store's own."""

    label: str
    events: tuple[dict[str, str], ...] = ()
    due: str = ""
    shard: int = 0


def require_outboxes(outboxes: T | None) -> T:
    if outboxes is None:
        raise ConfigurationError("This store has no outbox: make it with outbox=Outbox(...).")
    return outboxes


class Emitter(NamedTuple):
    """What a store emits with. `prefix` begins what tells the events of one message apart."""

    outbox: Outbox
    prefix: str


def make_emitter(outbox: Outbox | None, attribute: str) -> Emitter | None:
    """Return the emitter of a store whose ledger is known by this attribute, if it has a ledger. Raise unless the store may have this outbox.

    Two services that write to one entity keep two ledgers in it, and each may emit for one message.
    """
    if outbox is None:
        return None
    if not isinstance(cast("object", outbox), Outbox):
        raise ConfigurationError(f"outbox={outbox!r}: give an Outbox, as in outbox=Outbox('shop/orders').")
    if not attribute:
        raise ConfigurationError(
            "A store without a ledger emits no events, because nothing would tell which write has emitted them: give it a ledger."
        )
    name = ledger_name(attribute)
    return Emitter(outbox, f"in {len(name)}:{name} " if name else "")


def check_causes(messages: Sequence[Message], events: object) -> None:
    """Raise unless each of the events has one of the messages for its cause."""
    for event in _checked_events(events):
        _find_cause(event, messages)


def _find_cause(event: Event, messages: Sequence[Message]) -> Message:
    """Return the one of the messages that led to the event."""
    matches = [message for message in messages if event.cause in (message, message.id)]
    if len(matches) == 1:
        return matches[0]
    reason = "names several of them" if matches else "is none of them"
    raise ConfigurationError(
        f"An event of a fold belongs to one of the messages that were given to its function, and the cause of {event.type!r} {reason}: "
        "write Event(..., cause=message)."
    )


def make_emission(emitter: Emitter | None, messages: Sequence[Message], argument: object, now: float, call: str) -> Emission:
    """Return the events of a write of these messages, as they are stored. Each has the id that a write of its message alone gives it.

    `argument`: the caller's `emit=`. `call`: a name that no other call has.
    """
    events = _checked_events(argument)
    if emitter is None:
        raise ConfigurationError("This store has no outbox to emit into: make it with outbox=Outbox(...).")
    outbox, prefix = emitter
    if not events:
        return Emission(outbox.label)
    causes = [*messages] * len(events) if len(messages) == 1 else [_find_cause(event, messages) for event in events]
    nonce, at = blake2b(call.encode(), digest_size=_NONCE_BYTES).hexdigest(), moment(now)
    entries: list[dict[str, str]] = []
    keys = _keys(causes, events) if len(events) > 1 else [_key(events[0], 0)]  # of one event, as nearly always
    for message, key, event in zip(causes, keys, events, strict=True):
        cause = message if event.cause is None else event.cause
        entries.append(
            {
                "id": message.child(prefix + key),
                "type": event.type,
                "body": _body_text(outbox, event),
                "time": at,
                "nonce": nonce,
                "cause": cause.id if isinstance(cause, Message) else cause,
            }
        )
    shard = int.from_bytes(blake2b(causes[0].id.encode(), digest_size=8).digest()) % outbox.shards
    return Emission(outbox.label, tuple(entries), at, shard)


LAST_MOMENT = 253_402_300_799.0  # the end of the year 9999, after which Python has no dates


def moment(now: float) -> str:
    """Return a time as text that sorts as times do: 2026-11-22T08:00:00.000Z."""
    second, millisecond = divmod(round(now * 1e6) // 1000, 1000)
    return f"{datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()}.{millisecond:03d}Z"


def seconds(at: str) -> float:
    """Return the time that `moment` has written, in seconds since 1970."""
    return datetime.fromisoformat(at).timestamp()


def _checked_events(events: object) -> Sequence[Event]:
    argument = cast("Sequence[object]", events) if isinstance(events, list | tuple) else (events,)
    for event in argument:
        if not isinstance(event, Event) or argument is not events:
            raise InvalidUpdate(f"emit= takes a list of events, and got a {type(event).__name__}: write emit=[Event(...)].")
    return cast("Sequence[Event]", argument)


def _keys(causes: Sequence[Message], events: Sequence[Event]) -> list[str]:
    """Return the keys that distinguish the events of one message: the name, or the type and the place among its type."""
    counts: dict[tuple[int, str], int] = {}
    keys: list[str] = []
    # A message is found many times faster by its address than by its contents.
    cause_ids = [id(message) for message in causes]
    for cause, event in zip(cause_ids, events, strict=True):
        place = counts.get((cause, event.type), 0)
        keys.append(_key(event, place))
        if event.name is None:
            counts[cause, event.type] = place + 1
    if len(set(zip(cause_ids, keys, strict=True))) < len(keys):
        raise InvalidUpdate("Two events of one write have the same name: consumers would take them for one.")
    return keys


def _key(event: Event, place: int) -> str:
    return f"event {place} {event.type}" if event.name is None else f"event named {event.name}"


def _body_text(outbox: Outbox, event: Event) -> str:
    try:
        text = outbox.encode(event.body)
        _check_names(event.body)
        if not text.isascii():
            text.encode()
            # SQS takes no such characters. They can only be inside of a text, where JSON has another way to write them.
            text = text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
    except InvalidUpdate:
        raise
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidUpdate(f"The body of event {event.type!r} has no form in JSON: {error}.") from error
    if outbox.largest_event is not None and (size := len(text.encode())) > outbox.largest_event:
        raise InvalidUpdate(
            f"The body of event {event.type!r} has {size} bytes, and this outbox takes {outbox.largest_event}, because a broker "
            "would refuse it forever: put the large part where the consumer can fetch it, and emit its address."
        )
    return text


def _check_names(body: object) -> None:
    """Raise where two keys of an object are one name in JSON, as 1 and "1" are: readers keep one of the values."""
    if isinstance(body, dict):
        members = cast("dict[object, object]", body)
        if not _TEXT.issuperset(map(type, members)):
            _check_keys(members)
        for value in members.values():
            if type(value) not in _SIMPLE:
                _check_names(value)
    elif isinstance(body, list | tuple):
        for value in cast("Sequence[object]", body):
            _check_names(value)


def _check_keys(members: dict[object, object]) -> None:
    names: list[str] = json.loads(
        json.dumps(dict.fromkeys(members)), object_pairs_hook=lambda pairs: [name for name, _ in pairs]
    )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidUpdate(
            f"Two keys of the event's body are {twice!r} in JSON, where a key is a text: readers would lose one of them."
        )


def _number(value: Decimal) -> int | float:
    if value.is_finite():
        number = float(value)
        # abs() would round as the caller's context says.
        if value == value.to_integral_value() and value.copy_abs() < 10**38:  # longer ones do not fit a database either
            return int(value)
        if Decimal(repr(number)) == value:
            return number
    raise InvalidUpdate(f"The number {value} would be rounded by readers of JSON: emit it as text.")


def _check_text(field_name: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        fault = "empty" if value == "" else f"a {type(value).__name__}"
        raise InvalidUpdate(f"Event.{field_name} is {fault}: give it a text.")
    try:
        length = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise InvalidUpdate(f"Event.{field_name} has a lone surrogate, which no database stores.") from error
    if length > Message.max_text_bytes:
        raise InvalidUpdate(
            f"Event.{field_name} has {length} bytes, and at most {Message.max_text_bytes} are allowed, as in an id: put what is long into the body."
        )


# --- what a caller may change after the call -----------------------------------------------------------------------------


_LEAVES = frozenset({str, int, float, bool, bytes, type(None)})


def copy_value(value: Any) -> Any:
    """Return a copy down to the last container. What cannot be copied, as an object with a lock, stays the same object."""
    if type(value) in _LEAVES:
        return value
    if type(value) is dict or type(value) is MappingProxyType:
        return {name: copy_value(member) for name, member in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if type(value) is list:
        return [copy_value(member) for member in value]  # pyright: ignore[reportUnknownVariableType]
    if type(value) is tuple:
        return tuple([copy_value(member) for member in value])  # pyright: ignore[reportUnknownVariableType]
    try:
        return deepcopy(value)
    except Exception:
        return value
