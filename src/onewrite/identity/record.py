"""Reads the parts of a raw record. Anything missing or malformed raises an `InvalidMessage` that shows no content.

None of these errors is raised inside an `except` block. It would carry the first error with it, and that may quote content.
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
    """The name of a record in errors and logs: its messageId, its eventID, or topic-partition@offset."""
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
    """A `Message` with this key, or an error that names the record."""
    attributes = attributes_of(record) if attributes is None else attributes
    try:
        return Message(key, body=body, attributes=attributes, **position)
    except InvalidMessage as error:
        problem = str(error)
    raise refusal(record, problem)


def field(record: Record, name: str) -> Any:
    if not isinstance(cast("object", record), Mapping):
        raise refusal(record, f"it is {kind(record)}, but the raw record of a Lambda event is needed.")
    return record.get(name)


def part(record: Record, name: str) -> Record:
    """A mapping in the record. If it is missing, an empty one."""
    found = field(record, name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise refusal(record, f"its {name} is {kind(found)}, but an object is needed.")
    return cast("Record", found)


def text(record: Record, what: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise refusal(record, f"{what} is {kind(value)}, but a text that is not empty is needed.")
    return value


def binary(record: Record, what: str, value: object) -> bytes:
    try:
        return a2b_base64(cast("str", value), strict_mode=True)
    except (TypeError, ValueError):
        pass
    raise refusal(record, f"{what} is not valid base64.")


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
    """The body as it was delivered, or as the envelope that was taken off left it: text from SQS, bytes from Kinesis and Kafka."""
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
    """A JSON decoder, to be kept: `json.loads` with these options would make a new one for each record."""
    return json.JSONDecoder(parse_float=parse_float, parse_constant=_refuse_constant).decode


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # Python accepts NaN and Infinity, which JSON does not have.


def parsed(record: Record, decode: Decode) -> Any:
    """The body, parsed from JSON, unless taking off an envelope has done that already."""
    body = payload(record)
    if body is None:
        raise refusal(record, "it has no body.")
    if not isinstance(body, str | bytes):
        return body
    try:
        return decode(body if isinstance(body, str) else body.decode())
    except Exception as error:
        problem = f"at character {error.pos}" if isinstance(error, json.JSONDecodeError) else type(error).__name__
    raise refusal(record, f"its body is not valid JSON ({problem}).")


def attributes_of(record: Record) -> dict[str, Any]:
    """The attributes of the system, and those of the user, which replace them if the names are equal."""
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
        # Java's bytes have a sign. If two headers have the same name, the last one is taken.
        return {name: bytes([byte % 256 for byte in value]) for header in headers for name, value in header.items()}
    except (AttributeError, TypeError, ValueError):
        pass
    raise refusal(record, "one of its headers is not a list of bytes under a name.")


def _attribute(record: Record, value: Any) -> str | bytes:
    if isinstance(value, Mapping):
        attribute = cast("Record", value)
        if isinstance(string := attribute.get("stringValue"), str):
            return string
        return binary(
            record, "one of its messageAttributes has no stringValue, and its binaryValue", attribute.get("binaryValue")
        )
    raise refusal(record, f"one of its messageAttributes is {kind(value)}, but an object is needed.")
