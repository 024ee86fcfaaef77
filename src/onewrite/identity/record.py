"""What can be read from a raw record. Whatever is not as it should be is an `InvalidMessage` that shows no content.

Such an error is never raised inside an `except`: it would carry the first error along, and that one what it choked on.
"""

from __future__ import annotations

import json
from binascii import a2b_base64
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias, cast

from onewrite.errors import InvalidMessage
from onewrite.message import Message

Record: TypeAlias = Mapping[str, Any]
Identity: TypeAlias = Callable[[Record], Message]
ParseFloat: TypeAlias = Callable[[str], Any]
Decode: TypeAlias = Callable[[str], Any]


def record_id(record: Record) -> str:
    """What errors and logs call a record: its messageId, its eventID, or topic-partition@offset."""
    if isinstance(cast("object", record), Mapping):
        for name in ("messageId", "eventID"):
            known = record.get(name)
            if isinstance(known, str) and known:
                return known
        topic, partition, offset = record.get("topic"), record.get("partition"), record.get("offset")
        if isinstance(topic, str) and isinstance(partition, int) and isinstance(offset, int):
            return f"{topic}-{partition}@{offset}"
    return "(no id)"


def refusal(record: Record, why: str) -> InvalidMessage:
    return InvalidMessage(f"Record {record_id(record)}: {why}")


def message(record: Record, key: str, *, body: Any, attributes: Mapping[str, Any] | None = None, **position: Any) -> Message:
    """A `Message`, or an error that names the record."""
    attributes = attributes_of(record) if attributes is None else attributes
    try:
        return Message(key, body=body, attributes=attributes, **position)
    except InvalidMessage as error:
        problem = str(error)
    raise refusal(record, problem)


def field(record: Record, name: str) -> Any:
    if not isinstance(cast("object", record), Mapping):
        raise refusal(record, f"it is {kind(record)}, where the raw record of a Lambda event is needed.")
    return record.get(name)


def part(record: Record, name: str) -> Record:
    """A mapping within the record. One that is not there is empty."""
    found = field(record, name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise refusal(record, f"its {name} is {kind(found)}, where an object is needed.")
    return cast("Record", found)


def text(record: Record, what: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise refusal(record, f"{what} is {kind(value)}, where a text with something in it is needed.")
    return value


def binary(record: Record, what: str, value: object) -> bytes:
    try:
        return a2b_base64(cast("str", value), strict_mode=True)
    except (TypeError, ValueError):
        pass
    raise refusal(record, f"{what} is not in base64.")


def kind(value: object) -> str:
    """A value's type in the words of JSON, for errors: they show no values."""
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
    """The body as it came: text from SQS, bytes from Kinesis and Kafka, and what an envelope left of it."""
    body = field(record, "body")
    if body is not None:
        return body
    if "kinesis" in record:
        return binary(record, "its data", part(record, "kinesis").get("data"))
    if "dynamodb" in record:
        return {"eventName": record.get("eventName"), **part(record, "dynamodb")}
    value = record.get("value")
    return None if value is None else binary(record, "its value", value)


def decoder(parse_float: ParseFloat) -> Decode:
    """Made once, because `json.loads` with options makes one each time."""
    return json.JSONDecoder(parse_float=parse_float, parse_constant=_refuse_constant).decode


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # Python would read NaN and Infinity, which are no JSON


def parsed(record: Record, decode: Decode) -> Any:
    """The body, out of its JSON; an envelope may have done it already."""
    body = payload(record)
    if body is None:
        raise refusal(record, "it has no body.")
    if not isinstance(body, str | bytes):
        return body
    try:
        return decode(body if isinstance(body, str) else body.decode())
    except Exception as error:
        problem = f"at character {error.pos}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
    raise refusal(record, f"its body is no JSON ({problem}).")


def attributes_of(record: Record) -> dict[str, Any]:
    """The user's attributes over the system's."""
    found = _system(record)
    found.update(part(record, "attributes"))
    headers = record.get("headers")
    if headers:
        found.update(_headers(record, headers))
    users = part(record, "messageAttributes")
    if users:
        found.update({name: _attribute(record, value) for name, value in users.items()})
    return found


def _system(record: Record) -> dict[str, Any]:
    if field(record, "kinesis") is not None:
        return {name: value for name, value in part(record, "kinesis").items() if name != "data"}
    if record.get("topic") is None:
        return {"userIdentity": record["userIdentity"]} if "userIdentity" in record else {}
    found = {name: record.get(name) for name in ("topic", "partition", "offset", "timestamp", "timestampType")}
    key = record.get("key")
    return {**found, "key": None if key is None else binary(record, "its key", key)}


def _headers(record: Record, headers: Any) -> dict[str, bytes]:
    try:
        # Kafka's bytes come as Java has them, with a sign. Of two headers with one name, the last one stands.
        return {name: bytes([byte % 256 for byte in value]) for header in headers for name, value in header.items()}
    except (AttributeError, TypeError, ValueError):
        pass
    raise refusal(record, "its headers are not lists of bytes by name.")


def _attribute(record: Record, value: Any) -> str | bytes:
    if isinstance(value, Mapping):
        attribute = cast("Record", value)
        if isinstance(said := attribute.get("stringValue"), str):
            return said
        return binary(record, "one of its messageAttributes, if it is meant to be binary,", attribute.get("binaryValue"))
    raise refusal(record, f"one of its messageAttributes is {kind(value)}, where an object is needed.")
