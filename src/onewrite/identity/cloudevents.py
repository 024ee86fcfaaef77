"""CloudEvents: in the structured mode, in the binary mode, and in batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any, cast

from onewrite.identity.record import (
    Decode,
    OneMessage,
    ParseFloat,
    Record,
    attributes_of,
    binary,
    decoder,
    kind,
    message,
    parsed,
    payload,
    refusal,
    text,
)
from onewrite.message import Message

# The prefixes of attributes in the bindings to HTTP, Kafka, AMQP and JMS. There is no binding to SQS.
_PREFIX = re.compile("ce[-_]|cloudevents[:_-]", re.IGNORECASE)
_CONTENT_TYPE = re.compile("content[-_]?type", re.IGNORECASE)
_LONGEST = 2048  # bytes. It is fixed, whatever Message.longest_text is, because an id must stay the same for ever.
_DIGESTED = "sha256:"
_INTEGER = re.compile("[+-]?[0-9]{1,129}")  # as many digits as a sequence number of Kinesis may have


def cloudevent(*, parse_float: ParseFloat = Decimal) -> OneMessage:
    """The source and the id of a CloudEvent. In structured mode the whole event is the JSON body of the record; in binary mode
    its attributes are beside the body, as ce-id or ce_id and so on.

    Stable: the specification has a producer send an event again with the same id, and give each event its own. Then the key
    stays the same in redeliveries, when a producer sends twice, and after redrives. Not stable: with a producer that does
    otherwise.

    `message.id` is made of both, because an id is unique within its source only; where that is longer than 2048 bytes, it is a
    digest of it. The extension `sequence` is text, which the
    producer must write so that it sorts; with the `sequencetype` Integer it becomes an int. `message.body` is the data, parsed
    unless a content type other than JSON is declared. `message.attributes` has the event's own: "type", "subject", "time".
    """
    decode = decoder(parse_float)

    def identify(record: Record) -> Message:
        if event := _binary_mode(record):
            return _message(record, event, _data(record, event, decode))
        return _structured(record, parsed(record, decode))

    return identify


def cloudevent_batch(*, parse_float: ParseFloat = Decimal) -> Callable[[Record], Sequence[Message]]:
    """Each CloudEvent of a batch: the JSON body of the record is an array of events in structured mode.

    The function is called with each in turn, and the record is settled when all of them are. After a failure the rest of the
    array is not begun, so that no event overtakes an earlier one.

    Stable: as with `cloudevent()`, whichever batches an event comes in. Not stable: with a producer that gives it a new id.
    """
    decode = decoder(parse_float)

    def identify(record: Record) -> Sequence[Message]:
        batch = parsed(record, decode)
        if not isinstance(batch, list):
            raise refusal(record, f"its body is {kind(batch)}, but an array is needed: cloudevent() reads a single event.")
        return tuple(_structured(record, event) for event in cast("list[Any]", batch))

    return identify


def _message(record: Record, event: Record, data: Any) -> Message:
    source = text(record, "the CloudEvent's source", event.get("source"))
    own_id = text(record, "the CloudEvent's id", event.get("id"))
    key = _kept(f"{len(source)}:{source}:{own_id}")  # The length keeps ("a:b", "c") and ("a", "b:c") apart.
    return message(record, key, source=_kept(source), sequence=_sequence(record, event), body=data, over=event)


def _kept(text: str) -> str:
    """The text, or a digest of it where no ledger would keep it: the source of an entity with a very long key.

    What looks like a digest is replaced by one too, so that nobody's source is that of another text.
    """
    encoded = text.encode(errors="surrogatepass")
    if len(encoded) <= _LONGEST and not text.startswith(_DIGESTED):
        return text
    return f"{_DIGESTED}{sha256(encoded).hexdigest()}"


def _binary_mode(record: Record) -> dict[str, Any]:
    """The event's attributes, if they are beside the body."""
    attributes = attributes_of(record)
    event: dict[str, Any] = {}
    declared: Any = None
    for name in attributes:  # The others are not decoded: a record fails only for what is used of it.
        if prefix := _PREFIX.match(name):
            event[name[prefix.end() :].lower()] = _decoded(record, attributes[name])
        elif _CONTENT_TYPE.fullmatch(name):
            declared = _decoded(record, attributes[name])
    # In structured mode they may be repeated here, but the body is the whole event then, and not its data.
    if "id" not in event or str(declared).lower().startswith("application/cloudevents"):
        return {}
    return event if declared is None else {**event, "datacontenttype": declared}


def _decoded(record: Record, value: Any) -> Any:
    """An attribute as text. Only Kafka's headers are bytes."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        pass
    raise refusal(record, "an attribute of its CloudEvent is not in UTF-8.")


def _structured(record: Record, body: object) -> Message:
    if not isinstance(body, Mapping) or "specversion" not in body:
        hint = " cloudevent_batch() reads an array of events." if isinstance(body, list) else ""
        raise refusal(record, f"it is not a CloudEvent: its body has no specversion, and it has no attribute ce-id.{hint}")
    event = dict(cast("Mapping[str, Any]", body))
    data, encoded = event.pop("data", None), event.pop("data_base64", None)
    return _message(record, event, data if encoded is None else binary(record, "its data_base64", encoded))


def _data(record: Record, event: Record, decode: Decode) -> Any:
    """The body in binary mode. Without a content type it is taken for JSON, as in structured mode."""
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
        raise refusal(
            record,
            "the CloudEvent's sequence is not a whole number of at most 129 digits, although its sequencetype is Integer.",
        )
    return int(sequence)
