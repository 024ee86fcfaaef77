"""Readers for the parts of a raw record. Missing or malformed parts raise an `InvalidMessage` that shows no content.

The errors are raised outside of `except` blocks. Otherwise they would carry the first error along, which can quote content.
"""

from __future__ import annotations

import json
import math
import re
from binascii import a2b_base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import md5
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.message import Message, printable


@dataclass(frozen=True, slots=True)
class Skip:
    """An identity's result for a record that the function doesn't need. The record is settled and counted as skipped.

    `why` is for tests and debuggers. It is not logged.
    """

    why: str = ""


Record: TypeAlias = Mapping[str, Any]
"""A record as its source delivers it, in an event or from a queue."""
RecordContent: TypeAlias = Message | Skip | Sequence[Message]
"""A record's content, which is a message, several in their order, or nothing for the function."""
Identity: TypeAlias = Callable[[Record], RecordContent]
"""A function that says which message a record is."""
OneMessage: TypeAlias = Callable[[Record], Message]
Identification = TypeVar("Identification", bound=RecordContent)
ParseFloat: TypeAlias = Callable[[str], Any]
Decode: TypeAlias = Callable[[str], Any]

ENVELOPE = "onewrite:envelope"  # where a record keeps the fields around its body; no transport has a field of this name
DOCUMENTDB = "aws:docdb"
WHOLE_NUMBER = re.compile("[+-]?[0-9]{1,129}")  # Kinesis's sequence numbers have up to 129 digits
_AGGREGATE_PREFIX = b"\xf3\x89\x9a\xc2"  # the first bytes of a Kinesis record that the producer library aggregated
_AGGREGATE_PREFIX_IN_BASE64 = b"84maw"
_DIGEST_SIZE = 16  # bytes of MD5 at the end of an aggregated record


def record_id(record: Record) -> str:
    """Return a record's name for errors and logs, which is its messageId, its eventID, or topic-partition@offset."""
    if isinstance(cast("object", record), Mapping):
        for name in ("messageId", "eventID"):
            value = record.get(name)
            if isinstance(value, str) and value:
                return value
        topic, partition, offset = record.get("topic"), record.get("partition"), record.get("offset")
        if isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int):
            return f"{topic}-{partition}@{offset}"
    return "(no id)"


def check_identity(identity: object, usage: str) -> None:
    """Raise ConfigurationError unless this is an identity. `usage` shows its place in the user's code: "sns({})"."""
    name = getattr(identity, "__name__", repr(identity))
    is_ours = str(getattr(identity, "__module__", "")).startswith("onewrite.identity.") and identity is not record_id
    # Our identities are inner functions of the functions that return them.
    if is_ours and "<locals>" not in str(getattr(identity, "__qualname__", "<locals>")):
        raise ConfigurationError(f"{name} is a function that returns an identity. Call it: {usage.format(f'{name}(...)')}.")
    if isinstance(identity, type):
        raise ConfigurationError(
            f"expected an identity, got the class {name}. Pass an instance or a function, for example "
            f"{usage.format('sqs_message_id()')}."
        )
    if not callable(identity):
        raise ConfigurationError(
            f"{usage.format(repr(identity))}: expected an identity, got a {type(identity).__name__}. Pass one of "
            "onewrite.identity, for example json_body(id='id'), or a function that takes a record and returns a "
            "Message."
        )


def make_refusal(record: Record, reason: str) -> InvalidMessage:
    """Return an error that names the record."""
    return InvalidMessage(f"Record {printable(record_id(record))}: {reason}")


def read_field(record: Record, name: str) -> Any:
    """Return a field of the record, or None. Raise if the record isn't a mapping."""
    if not isinstance(cast("object", record), Mapping):
        raise make_refusal(
            record,
            f"it isn't a mapping, but {describe_type(record)}. Pass the raw record of a Lambda event, or "
            'for another broker {"messageId": ..., "body": ...}.',
        )
    return record.get(name)


def read_part(record: Record, name: str, within: Record | None = None) -> Record:
    """Return the mapping of this name in the record, or in a part of it. If it is missing, return an empty one."""
    value = read_field(record, name) if within is None else within.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise make_refusal(record, f"its {name}: expected an object, got {describe_type(value)}.")
    return cast("Record", value)


def require_text(record: Record, subject: str, value: object) -> str:
    """Return the value, or raise unless it's a non-empty string. `subject`: its name for the error."""
    if not isinstance(value, str) or not value:
        raise make_refusal(record, f"{subject}: expected a non-empty string, got {describe_type(value)}.")
    return value


def decode_base64(record: Record, subject: str, value: object) -> bytes:
    """Return the bytes that a field contains in base64. Raise if it isn't valid. `subject`: the field's name for the error."""
    try:
        return a2b_base64(cast("str", value), strict_mode=True)
    except (TypeError, ValueError):
        pass
    raise make_refusal(record, f"{subject}: expected valid base64.")


def describe_type(value: object) -> str:
    """Return JSON's name for a value's type, for an error that must not show the value."""
    match value:
        case None:
            return "missing or null"
        case bool():
            return "a boolean"
        case int() | float() | Decimal():
            return "a number"
        case str():
            return "a string" if value else "an empty string"
        case list() | tuple():
            return "an array"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def read_payload(record: Record) -> Any:
    """Return the body as delivered, or as the removed envelope contained it.

    It is text from SQS, bytes from Kinesis and Kafka, and a change as an object from DynamoDB and DocumentDB.
    """
    body = read_field(record, "body")
    if body is not None:
        return body
    if "kinesis" in record:
        refuse_aggregated(record)
        return decode_base64(record, "its data", read_part(record, "kinesis").get("data"))
    if "dynamodb" in record:
        return {"eventName": record.get("eventName"), **read_part(record, "dynamodb")}
    if record.get("eventSource") == DOCUMENTDB:
        return read_part(record, "event")
    value = record.get("value")
    return None if value is None else decode_base64(record, "its value", value)


def refuse_aggregated(record: Record) -> None:
    """Raise InvalidMessage for a Kinesis record that Amazon's producer library or agent aggregated from several."""
    kinesis = read_part(record, "kinesis")
    data = kinesis.get("data")
    if not isinstance(data, str | bytes) or "subSequenceNumber" in kinesis:
        return
    encoded_data = data.encode(errors="replace") if isinstance(data, str) else data
    if not encoded_data.startswith(_AGGREGATE_PREFIX_IN_BASE64):
        return
    content = decode_base64(record, "its data", data).removeprefix(_AGGREGATE_PREFIX)
    if md5(content[:-_DIGEST_SIZE], usedforsecurity=False).digest() == content[-_DIGEST_SIZE:]:
        raise make_refusal(
            record,
            "it contains several records, aggregated by the Kinesis Producer Library. Split it before the handler with"
            " deaggregate_records of the package aws-kinesis-agg, or turn off aggregation in the producer.",
        )


def is_change(record: Record) -> bool:
    """Whether the record is a database change, whose body is part of the record itself."""
    return "dynamodb" in record or record.get("eventSource") == DOCUMENTDB


def is_deletion(record: Record) -> bool:
    """Whether the record reports a deletion: a null value of Kafka, or a removed item or document."""
    if read_field(record, "topic") is not None:
        return record.get("value") is None
    if "dynamodb" in record:
        return record.get("eventName") == "REMOVE"
    return record.get("eventSource") == DOCUMENTDB and read_part(record, "event").get("operationType") == "delete"


def make_decoder(parse_float: ParseFloat) -> Decode:
    """Return a reusable JSON decoder. `json.loads` with these options would create one for each record."""
    if not callable(parse_float):
        raise ConfigurationError(
            f"parse_float={parse_float!r}: expected a function of the digits, for example Decimal or float, got a "
            f"{type(parse_float).__name__}."
        )

    def parse_finite(digits: str) -> Any:
        number = parse_float(digits)
        if _is_infinite(number):
            raise ValueError(digits)  # 1e999 as a float is infinite, and so is every sum that includes it
        return number

    return json.JSONDecoder(parse_float=parse_finite, parse_constant=_refuse_constant).decode


def _is_infinite(number: Any) -> bool:
    """Whether the parsed number is infinite or NaN. The user's `parse_float` can return values of any type."""
    if isinstance(number, Decimal):
        return not number.is_finite()  # math.isfinite would convert it to a float first
    try:
        return not math.isfinite(number)
    except (TypeError, ValueError, OverflowError):  # not a number for Python, or an exact one of any size
        return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # Python accepts NaN and Infinity, which JSON doesn't have


def parse_body(record: Record, decode: Decode) -> Any:
    """Return the body, parsed from JSON unless an envelope's identity has already parsed it."""
    body = read_payload(record)
    if body is None:
        advice = " It is a tombstone. To settle tombstones, wrap the identity in skip_deletions(...)."
        raise make_refusal(record, f"it has no body.{advice if is_deletion(record) else ''}")
    if not isinstance(body, str | bytes | bytearray | memoryview):
        return body
    try:
        return decode(body if isinstance(body, str) else bytes(cast("bytes", body)).decode())
    except Exception as error:  # `parse_float` can raise anything
        problem = f"at character {error.pos}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
    raise make_refusal(record, f"its body isn't valid JSON ({problem}).")


# --- the attributes of the sender and of the transport, and the message that carries them ------------------------------
# Each attribute is decoded on access, so a record fails only for an attribute that the function uses.

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
    raise make_refusal(record, problem)  # outside of the `except`: see the top of this file


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
