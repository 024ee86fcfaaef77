"""CloudEvents, in both of their modes."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any, cast

from onewrite.identity.record import (
    Decode,
    Identity,
    ParseFloat,
    Record,
    attributes_of,
    binary,
    decoder,
    message,
    parsed,
    payload,
    refusal,
    text,
)
from onewrite.message import Message

# As the bindings to HTTP and Kafka, and to AMQP and JMS have them. There is none to SQS.
_PREFIX = re.compile("ce[-_]|cloudevents[:_-]", re.IGNORECASE)
_CONTENT_TYPE = re.compile("content[-_]?type", re.IGNORECASE)
_INTEGER = re.compile("[+-]?[0-9]{1,129}")


def cloudevent(*, parse_float: ParseFloat = Decimal) -> Identity:
    """The source and id of a CloudEvent, structured (all in the JSON body) or binary (ce-id or ce_id, and so on, beside it).

    Stable: a producer has to resend an event with its first id, and to give each of its events another one; the key then
    survives redeliveries, producers that send twice, and redrives. Not stable: with a producer that does not keep to that.

    `message.id` is made of both, because ids are unique for a source only. The `sequence` extension is text, which is up to
    the producer to make such that it sorts; with the `sequencetype` Integer it is an int. `message.body` is the data, parsed
    unless another content type than JSON is declared. `message.attributes` has the event's: "type", "subject", "time".
    """
    decode = decoder(parse_float)

    def identify(record: Record) -> Message:
        attributes = attributes_of(record)
        event = _binary_mode(record, attributes)
        event, data = (event, _data(record, event, decode)) if event else _structured_mode(record, decode)
        source = text(record, "the CloudEvent's source", event.get("source"))
        own_id = text(record, "the CloudEvent's id", event.get("id"))
        return message(
            record,
            f"{len(source)}:{source}:{own_id}",  # the length keeps ("a:b", "c") and ("a", "b:c") apart
            source=source,
            sequence=_sequence(record, event),
            body=data,
            attributes={**attributes, **event},
        )

    return identify


def _binary_mode(record: Record, attributes: Record) -> dict[str, Any]:
    """The event's attributes, if they stand beside the body."""
    event: dict[str, Any] = {}
    declared: Any = None
    for name, value in attributes.items():
        if prefix := _PREFIX.match(name):
            event[name[prefix.end() :].lower()] = _said(record, value)
        elif _CONTENT_TYPE.fullmatch(name):
            declared = _said(record, value)
    # Structured mode may repeat them: the body is then the event, not its data.
    if "id" not in event or str(declared).lower().startswith("application/cloudevents"):
        return {}
    return event if declared is None else {**event, "datacontenttype": declared}


def _said(record: Record, value: Any) -> Any:
    """Kafka's headers are bytes."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        pass
    raise refusal(record, "an attribute of its CloudEvent is not in UTF-8.")


def _structured_mode(record: Record, decode: Decode) -> tuple[dict[str, Any], Any]:
    body = parsed(record, decode)
    if not isinstance(body, dict) or "specversion" not in body:
        raise refusal(record, "it is no CloudEvent: its body has no specversion, and it has no attribute ce-id.")
    event = cast("dict[str, Any]", body).copy()
    data, encoded = event.pop("data", None), event.pop("data_base64", None)
    return event, data if encoded is None else binary(record, "its data_base64", encoded)


def _data(record: Record, event: Record, decode: Decode) -> Any:
    """The body of binary mode. Without a content type it is JSON, as it is in structured mode."""
    declared = str(event.get("datacontenttype", "application/json"))
    media = declared.partition(";")[0].strip().lower()
    data = payload(record)
    return parsed(record, decode) if data and media.endswith(("/json", "+json")) else data


def _sequence(record: Record, event: Record) -> int | str | None:
    sequence = event.get("sequence")
    if sequence is None or type(sequence) is int:
        return sequence
    sequence = text(record, "the CloudEvent's sequence", sequence)
    if event.get("sequencetype") != "Integer":
        return sequence
    if not _INTEGER.fullmatch(sequence):
        raise refusal(record, "the CloudEvent's sequence is not in digits, and its sequencetype is Integer.")
    return int(sequence)
