"""Attributes from the sender and from the transport, and the message that carries them.

Each attribute is decoded on access, so a record fails only for an attribute that the function uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from onewrite.errors import InvalidMessage
from onewrite.identity.record import (
    ENVELOPE,
    Record,
    decode_base64,
    describe_type,
    make_refusal,
    read_field,
    read_part,
    read_payload,
)
from onewrite.message import Message

# A function that decodes a value of the record.
_Decoder: TypeAlias = Callable[[Record, Any], Any]
_Raw: TypeAlias = dict[str, tuple[_Decoder, Any]]


class Attributes(Mapping[str, Any]):
    """Attributes by name. Accessing a value that can't be decoded raises InvalidMessage."""

    __slots__ = ("_overrides", "_read", "_record", "_values")

    def __init__(self, record: Record, read: Callable[[Record], _Raw], overrides: Mapping[str, Any] | None = None) -> None:
        self._record = record
        self._read = read
        self._overrides = overrides or {}
        self._values: _Raw | None = None

    def __getitem__(self, name: str) -> Any:
        decode, value = self._raw[name]
        return decode(self._record, value)

    def __iter__(self) -> Iterator[str]:
        return iter(self._raw)

    def __len__(self) -> int:
        return len(self._raw)

    def __repr__(self) -> str:
        return "Attributes(...)"  # the values can be confidential

    @property
    def _raw(self) -> _Raw:
        """The values before their decoding, by name, each with the function that decodes it. They are read at the first use."""
        if self._values is None:
            self._values = {
                **self._read(self._record),
                **{name: (_return_unchanged, value) for name, value in self._overrides.items()},
            }
        return self._values


def make_message(
    record: Record,
    key: str,
    *,
    body: Any,
    overrides: Mapping[str, Any] | None = None,
    source: str = "",
    sequence: Any = None,
) -> Message:
    """Return a `Message` with this key, or raise an error that names the record.

    `overrides`: attributes that replace the record's own of the same name.
    """
    try:
        attributes = Attributes(record, read_sender_attributes, overrides)
        system = Attributes(record, _read_transport_attributes)
        return Message(key, source, sequence, body=body, attributes=attributes, system=system)
    except InvalidMessage as error:
        problem = str(error)
    raise make_refusal(record, problem)  # outside of the `except`: see record.py


def make_whole_message(record: Record, key: str, *, source: str = "", sequence: Any = None) -> Message:
    """Return a message whose body is as delivered."""
    return make_message(record, key, body=read_payload(record), source=source, sequence=sequence)


def read_sender_attributes(record: Record) -> _Raw:
    """Return the sender's attributes. The fields of removed envelopes replace them."""
    headers = read_field(record, "headers")
    attributes: _Raw = _read_headers(record, headers) if headers else {}
    attributes.update({name: (_read_attribute, value) for name, value in read_part(record, "messageAttributes").items()})
    attributes.update({name: (_return_unchanged, value) for name, value in read_part(record, ENVELOPE).items()})
    return attributes


def _read_transport_attributes(record: Record) -> _Raw:
    """Return the transport's attributes. Senders can't choose any of them."""
    if "kinesis" in record:
        return {name: (_return_unchanged, value) for name, value in read_part(record, "kinesis").items() if name != "data"}
    if read_field(record, "topic") is not None:
        names = ("topic", "partition", "offset", "timestamp", "timestampType")
        return {**{name: (_return_unchanged, record.get(name)) for name in names}, "key": (_read_key, record.get("key"))}
    attributes = {name: value for name, value in record.items() if name == "userIdentity"}
    return {name: (_return_unchanged, value) for name, value in {**attributes, **read_part(record, "attributes")}.items()}


def _return_unchanged(_: Record, value: Any) -> Any:
    return value


def _read_key(record: Record, value: Any) -> bytes | None:
    return None if value is None else decode_base64(record, "its key", value)


def _read_headers(record: Record, headers: Any) -> _Raw:
    """Return Kafka's headers, which are a list of mappings. Of two headers with the same name, the last one counts."""
    try:
        return {name: (_read_header, value) for header in headers for name, value in header.items()}
    except (AttributeError, TypeError):
        pass  # refused outside of the `except`: with this error as its context, the refusal would quote the content
    raise make_refusal(record, "its headers: expected a list of mappings.")


def _read_header(record: Record, value: Any) -> bytes | None:
    """Return the value of a Kafka header, which Lambda shows as a list of numbers; None for a header without a value."""
    if value is None:  # Kafka allows headers without a value
        return None
    if type(cast("object", value)) is list and all(type(byte) is int and -128 <= byte < 256 for byte in value):  # noqa: PLR2004
        return bytes([byte % 256 for byte in value])  # Java's bytes are signed
    raise make_refusal(record, f"one of its headers: expected a list of bytes, got {describe_type(value)}.")


def _read_attribute(record: Record, value: Any) -> str | bytes:
    """Return an attribute of an SQS record or of an SNS envelope, which use different field names."""
    if not isinstance(value, Mapping):
        raise make_refusal(record, f"one of its attributes: expected an object, got {describe_type(value)}.")
    attribute = cast("Record", value)
    string, base64_value = attribute.get("stringValue"), attribute.get("binaryValue")
    if "Type" in attribute:  # of an SNS envelope
        is_binary = attribute["Type"] == "Binary"
        string, base64_value = (None, attribute.get("Value")) if is_binary else (attribute.get("Value"), None)
    if isinstance(string, str):
        return string
    return decode_base64(record, "one of its attributes, which has no text", base64_value)
