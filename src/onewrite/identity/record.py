"""Reads the parts of a raw record. Anything missing or malformed raises an `InvalidMessage` that shows no content.

None of these errors is raised inside an `except` block. It would carry the first error with it, and that may quote content.
"""

from __future__ import annotations

import json
import math
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
    """What an identity returns for a record that is not for the function: the record is settled, and counted as skipped.

    `why` is for those who read it in a test or a debugger. It is not logged.
    """

    why: str = ""


Record: TypeAlias = Mapping[str, Any]
"""A record as its source delivers it, in an event or from a queue."""
RecordContent: TypeAlias = Message | Skip | Sequence[Message]
"""What is in a record: a message, several of them in their order, or nothing for the function."""
Identity: TypeAlias = Callable[[Record], RecordContent]
"""Any function that says which message a record is."""
OneMessage: TypeAlias = Callable[[Record], Message]
Identification = TypeVar("Identification", bound=RecordContent)
ParseFloat: TypeAlias = Callable[[str], Any]
Decode: TypeAlias = Callable[[str], Any]

ENVELOPE = "onewrite:envelope"  # where a record keeps what was around its body; no transport has a field of this name
DOCUMENTDB = "aws:docdb"
_AGGREGATE_PREFIX = b"\xf3\x89\x9a\xc2"  # how a Kinesis record begins into which the producer library has put several
_AGGREGATE_PREFIX_IN_BASE64 = b"84maw"
_DIGEST_SIZE = 16  # bytes of MD5 at the end of such a record


def record_id(record: Record) -> str:
    """The name of a record in errors and logs: its messageId, its eventID, or topic-partition@offset."""
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
    """Raise unless this may be an identity. `usage` shows where it stands: "sns({})"."""
    name = getattr(identity, "__name__", repr(identity))
    makes_one = str(getattr(identity, "__module__", "")).startswith("onewrite.identity.") and identity is not record_id
    if makes_one and "<locals>" not in str(getattr(identity, "__qualname__", "<locals>")):
        raise ConfigurationError(
            f"{name} makes an identity, and is none itself: call it, as in {usage.format(f'{name}(...)')}."
        )
    if isinstance(identity, type):
        raise ConfigurationError(f"{name} is a class: give an identity, as in {usage.format('sqs_message_id()')}.")
    if not callable(identity):
        raise ConfigurationError(
            f"{usage.format(repr(identity))}: give an identity, such as json_body(id='id') or another of onewrite.identity, or a function of a "
            "record that returns a Message."
        )


def refusal(record: Record, reason: str) -> InvalidMessage:
    return InvalidMessage(f"Record {printable(record_id(record))}: {reason}")


def field(record: Record, name: str) -> Any:
    if not isinstance(cast("object", record), Mapping):
        needed = (
            'a mapping is needed: the raw record of a Lambda event, or of another broker {"messageId": ..., "body": ...}'
        )
        raise refusal(record, f"it is {kind(record)}, but {needed}.")
    return record.get(name)


def part(record: Record, name: str, within: Record | None = None) -> Record:
    """A mapping in the record, or in a part of it. If it is missing, an empty one."""
    value = field(record, name) if within is None else within.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise refusal(record, f"its {name} is {kind(value)}, but an object is needed.")
    return cast("Record", value)


def text(record: Record, subject: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise refusal(record, f"{subject} is {kind(value)}, but a text that is not empty is needed.")
    return value


def binary(record: Record, subject: str, value: object) -> bytes:
    try:
        return a2b_base64(cast("str", value), strict_mode=True)
    except (TypeError, ValueError):
        pass
    raise refusal(record, f"{subject} is not valid base64.")


def kind(value: object) -> str:
    """What JSON calls a value of this type. Errors show this instead of the value."""
    match value:
        case None:
            return "missing or null"
        case bool():
            return "a boolean"
        case int() | float() | Decimal():
            return "a number"
        case str():
            return "a text" if value else "an empty text"
        case list() | tuple():
            return "an array"
        case Mapping():
            return "an object"
        case _:
            return f"a {type(value).__name__}"


def payload(record: Record) -> Any:
    """The body as it was delivered, or as the envelope that was taken off left it.

    It is text from SQS, bytes from Kinesis and Kafka, and a change as an object from DynamoDB and DocumentDB.
    """
    body = field(record, "body")
    if body is not None:
        return body
    if "kinesis" in record:
        refuse_aggregated(record)
        return binary(record, "its data", part(record, "kinesis").get("data"))
    if "dynamodb" in record:
        return {"eventName": record.get("eventName"), **part(record, "dynamodb")}
    if record.get("eventSource") == DOCUMENTDB:
        return part(record, "event")
    value = record.get("value")
    return None if value is None else binary(record, "its value", value)


def refuse_aggregated(record: Record) -> None:
    """Refuse a Kinesis record that holds several, as Amazon's producer library and agents make them."""
    kinesis = part(record, "kinesis")
    data = kinesis.get("data")
    if not isinstance(data, str | bytes) or "subSequenceNumber" in kinesis:
        return
    if not (data.encode(errors="replace") if isinstance(data, str) else data).startswith(_AGGREGATE_PREFIX_IN_BASE64):
        return
    content = binary(record, "its data", data).removeprefix(_AGGREGATE_PREFIX)
    if md5(content[:-_DIGEST_SIZE], usedforsecurity=False).digest() == content[-_DIGEST_SIZE:]:
        raise refusal(
            record,
            "it holds several records that the Kinesis Producer Library has aggregated. Take them apart before the handler, with "
            "deaggregate_records of the package aws-kinesis-agg, or turn aggregation off in the producer.",
        )


def is_change(record: Record) -> bool:
    """Is the record a change in a database, whose body is a part of the record itself?"""
    return "dynamodb" in record or record.get("eventSource") == DOCUMENTDB


def is_deletion(record: Record) -> bool:
    """Does the record only say that something is gone: a null value of Kafka, or the removal of an item or a document?"""
    if field(record, "topic") is not None:
        return record.get("value") is None
    if "dynamodb" in record:
        return record.get("eventName") == "REMOVE"
    return record.get("eventSource") == DOCUMENTDB and part(record, "event").get("operationType") == "delete"


def decoder(parse_float: ParseFloat) -> Decode:
    """A JSON decoder, to be kept: `json.loads` with these options would make a new one for each record."""
    if not callable(parse_float):
        raise ConfigurationError(f"parse_float={parse_float!r}: give a function of the digits, such as Decimal or float.")

    def parse_finite(digits: str) -> Any:
        number = parse_float(digits)
        if _is_infinite(number):
            raise ValueError(digits)  # As a float 1e999 is infinite, and a sum that it once entered is so forever.
        return number

    return json.JSONDecoder(parse_float=parse_finite, parse_constant=_refuse_constant).decode


def _is_infinite(number: Any) -> bool:
    if isinstance(number, Decimal):
        return not number.is_finite()  # math.isfinite would make a float of it first
    try:
        return not math.isfinite(number)
    except (TypeError, ValueError, OverflowError):  # It is no number that Python could ask, or an exact one of any size.
        return False


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # Python accepts NaN and Infinity, which JSON does not have.


def parse_body(record: Record, decode: Decode) -> Any:
    """The body, parsed from JSON, unless taking off an envelope has done that already."""
    body = payload(record)
    if body is None:
        hint = " It is a tombstone, which skip_deletions(...) settles." if is_deletion(record) else ""
        raise refusal(record, f"it has no body.{hint}")
    if not isinstance(body, str | bytes | bytearray | memoryview):
        return body
    try:
        return decode(body if isinstance(body, str) else bytes(cast("bytes", body)).decode())
    except Exception as error:
        problem = f"at character {error.pos}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
    raise refusal(record, f"its body is not valid JSON ({problem}).")


# --- attributes, and the message -------------------------------------------------------------------------------------
#
# What is beside the body: the attributes of the sender, and what the transport says of the delivery. The two are kept apart.
#
# Each is decoded when it is asked for, so a record fails only for an attribute that is used.


# Decodes a value of the record, of which errors show the record's id only.
_Decoder: TypeAlias = Callable[[Record, Any], Any]
_Raw: TypeAlias = dict[str, tuple[_Decoder, Any]]


class Attributes(Mapping[str, Any]):
    """Attributes by name. A value that cannot be decoded raises InvalidMessage where it is asked for."""

    __slots__ = ("_overrides", "_read", "_record", "_values")

    def __init__(self, record: Record, read: Callable[[Record], _Raw], overrides: Mapping[str, Any]) -> None:
        self._record = record
        self._read = read
        self._overrides = overrides
        self._values: _Raw | None = None

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
        if self._values is None:
            self._values = {
                **self._read(self._record),
                **{name: (_as_it_is, value) for name, value in self._overrides.items()},
            }
        return self._values


def attributes_of(record: Record, overrides: Mapping[str, Any] | None = None) -> Attributes:
    """What the sender put beside the body, below the fields of the envelopes that were taken off, below `overrides`."""
    return Attributes(record, _sender_attributes, overrides or {})


def system_of(record: Record) -> Attributes:
    """What the transport says. Nothing that a sender may choose is among its names, so none of them can be forged."""
    return Attributes(record, _transport_attributes, {})


def message(
    record: Record,
    key: str,
    *,
    body: Any,
    overrides: Mapping[str, Any] | None = None,
    source: str = "",
    sequence: Any = None,
) -> Message:
    """A `Message` with this key, or an error that names the record. `overrides`: attributes of the message's own."""
    try:
        return Message(
            key, source, sequence, body=body, attributes=attributes_of(record, overrides), system=system_of(record)
        )
    except InvalidMessage as error:
        problem = str(error)
    raise refusal(record, problem)


def whole_message(record: Record, key: str, *, source: str = "", sequence: Any = None) -> Message:
    """A message whose body is as it was delivered."""
    return message(record, key, body=payload(record), source=source, sequence=sequence)


def _sender_attributes(record: Record) -> _Raw:
    headers = field(record, "headers")
    attributes: _Raw = _headers(record, headers) if headers else {}
    attributes.update({name: (_attribute, value) for name, value in part(record, "messageAttributes").items()})
    attributes.update({name: (_as_it_is, value) for name, value in part(record, ENVELOPE).items()})
    return attributes


def _transport_attributes(record: Record) -> _Raw:
    if "kinesis" in record:
        return {name: (_as_it_is, value) for name, value in part(record, "kinesis").items() if name != "data"}
    if field(record, "topic") is not None:
        names = ("topic", "partition", "offset", "timestamp", "timestampType")
        return {**{name: (_as_it_is, record.get(name)) for name in names}, "key": (_key, record.get("key"))}
    attributes = {name: value for name, value in record.items() if name == "userIdentity"}
    return {name: (_as_it_is, value) for name, value in {**attributes, **part(record, "attributes")}.items()}


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
    string, base64_value = attribute.get("stringValue"), attribute.get("binaryValue")
    if "Type" in attribute:
        is_binary = attribute["Type"] == "Binary"
        string, base64_value = (None, attribute.get("Value")) if is_binary else (attribute.get("Value"), None)
    if isinstance(string, str):
        return string
    return binary(record, "one of its attributes has no text, and its binary value", base64_value)
