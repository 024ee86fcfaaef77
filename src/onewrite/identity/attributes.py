"""What is beside the body: the attributes of the sender, and what the transport says of the delivery. The two are kept apart.

Each is decoded when it is asked for, so that a record fails only for an attribute that is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from onewrite.errors import InvalidMessage
from onewrite.identity.record import ENVELOPE, Record, binary, field, kind, part, payload, refusal
from onewrite.message import Message

# Decodes a value of the record, of which errors show the record's id only.
_Decoder: TypeAlias = Callable[[Record, Any], Any]
_Raw: TypeAlias = dict[str, tuple[_Decoder, Any]]


class Attributes(Mapping[str, Any]):
    """Attributes by name. A value that cannot be decoded raises InvalidMessage where it is asked for."""

    __slots__ = ("_found", "_over", "_read", "_record")

    def __init__(self, record: Record, read: Callable[[Record], _Raw], over: Mapping[str, Any]) -> None:
        self._record = record
        self._read = read
        self._over = over
        self._found: _Raw | None = None

    def __getitem__(self, name: str) -> Any:
        decode, value = self._raw[name]
        return decode(self._record, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return "Attributes(...)"  # They may hold what is not to be logged.

    @property
    def _raw(self) -> _Raw:
        if self._found is None:
            self._found = {**self._read(self._record), **{name: (_as_it_is, value) for name, value in self._over.items()}}
        return self._found


def attributes_of(record: Record, over: Mapping[str, Any] | None = None) -> Attributes:
    """What the sender put beside the body, below the fields of the envelopes that were taken off, below `over`."""
    return Attributes(record, _sent, over or {})


def system_of(record: Record) -> Attributes:
    """What the transport says. Nothing that a sender may choose is among its names, so that none of them can be forged."""
    return Attributes(record, _said, {})


def message(
    record: Record, key: str, *, body: Any, over: Mapping[str, Any] | None = None, source: str = "", sequence: Any = None
) -> Message:
    """A `Message` with this key, or an error that names the record. `over`: attributes of the message's own."""
    try:
        return Message(key, source, sequence, body=body, attributes=attributes_of(record, over), system=system_of(record))
    except InvalidMessage as error:
        problem = str(error)
    raise refusal(record, problem)


def whole_message(record: Record, key: str, *, source: str = "", sequence: Any = None) -> Message:
    """A message whose body is as it was delivered."""
    return message(record, key, body=payload(record), source=source, sequence=sequence)


def _sent(record: Record) -> _Raw:
    headers = field(record, "headers")
    found: _Raw = _headers(record, headers) if headers else {}
    found.update({name: (_attribute, value) for name, value in part(record, "messageAttributes").items()})
    found.update({name: (_as_it_is, value) for name, value in part(record, ENVELOPE).items()})
    return found


def _said(record: Record) -> _Raw:
    if "kinesis" in record:
        return {name: (_as_it_is, value) for name, value in part(record, "kinesis").items() if name != "data"}
    if field(record, "topic") is not None:
        names = ("topic", "partition", "offset", "timestamp", "timestampType")
        return {**{name: (_as_it_is, record.get(name)) for name in names}, "key": (_key, record.get("key"))}
    found = {name: value for name, value in record.items() if name == "userIdentity"}
    return {name: (_as_it_is, value) for name, value in {**found, **part(record, "attributes")}.items()}


def _as_it_is(_: Record, value: Any) -> Any:
    return value


def _key(record: Record, value: Any) -> bytes | None:
    return None if value is None else binary(record, "its key", value)


def _headers(record: Record, headers: Any) -> _Raw:
    try:  # If two headers have the same name, the last one is taken.
        return {name: (_header, value) for header in headers for name, value in header.items()}
    except (AttributeError, TypeError):
        pass
    raise refusal(record, "its headers are not a list of names with their values.")


def _header(record: Record, value: Any) -> bytes | None:
    if value is None:  # Kafka knows headers without a value.
        return None
    if type(cast("object", value)) is list and all(type(byte) is int and -128 <= byte < 256 for byte in value):  # noqa: PLR2004
        return bytes([byte % 256 for byte in value])  # Java's bytes have a sign.
    raise refusal(record, f"one of its headers is {kind(value)}, but a list of bytes is needed.")


def _attribute(record: Record, value: Any) -> str | bytes:
    """An attribute of an SQS record, or of an SNS envelope, which says the same in other words."""
    if not isinstance(value, Mapping):
        raise refusal(record, f"one of its attributes is {kind(value)}, but an object is needed.")
    attribute = cast("Record", value)
    string, encoded = attribute.get("stringValue"), attribute.get("binaryValue")
    if "Type" in attribute:
        is_binary = attribute["Type"] == "Binary"
        string, encoded = (None, attribute.get("Value")) if is_binary else (attribute.get("Value"), None)
    if isinstance(string, str):
        return string
    return binary(record, "one of its attributes has no text, and its binary value", encoded)
