"""Identities of CloudEvents, in structured mode, in binary mode, and in batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any, cast

from onewrite.identity.record import (
    WHOLE_NUMBER,
    Attributes,
    OneMessage,
    ParseFloat,
    Record,
    decode_base64,
    describe_type,
    make_decoder,
    make_message,
    make_refusal,
    parse_body,
    read_payload,
    read_sender_attributes,
    require_text,
)
from onewrite.message import Message

# The attribute prefixes of the bindings for HTTP, Kafka, AMQP, and JMS. SQS has no binding.
_PREFIX = re.compile("ce[-_]|cloudevents[:_-]", re.IGNORECASE)
_CONTENT_TYPE = re.compile("content[-_]?type", re.IGNORECASE)
_MAX_BYTES = 2048  # bytes; independent of Message.max_text_bytes, because an ID must stay the same forever
_DIGEST_PREFIX = "sha256:"


def cloudevent(*, parse_float: ParseFloat = Decimal) -> OneMessage:
    """Return an identity that reads a CloudEvent's source and id.

    In structured mode the record's JSON body is the whole event. In binary mode its attributes are next to the body, as ce-id,
    ce_id, and so on.

    Stable: the specification requires a producer to resend an event with the same id. The key then survives redeliveries,
    repeated sends, and redrives. Not stable: with a producer that ignores this rule.

    `message.id` contains both, because an id is unique only within its source. Above 2048 bytes it is a digest. The
    extension `sequence` is text that the producer must write in a sortable form; if `sequencetype` is Integer, it becomes an
    int. `message.body` is the data, parsed unless the content type is something other than JSON. `message.attributes` has
    the event's own attributes: "type", "subject", "time".
    """
    decode = make_decoder(parse_float)

    def identify(record: Record) -> Message:
        event = _read_binary_mode(record)
        if not event:
            return _make_structured_message(record, parse_body(record, decode))
        content_type = str(event.get("datacontenttype", "application/json"))  # the default is that of structured mode
        media = content_type.partition(";")[0].strip().lower()
        data = read_payload(record)
        if data and media.endswith(("/json", "+json")):
            data = parse_body(record, decode)
        return _make_message(record, event, data)

    return identify


def cloudevent_batch(*, parse_float: ParseFloat = Decimal) -> Callable[[Record], Sequence[Message]]:
    """Return an identity that reads each CloudEvent of a batch.

    The record's JSON body is an array of events in structured mode. The function is called with each event in turn. The
    record is settled when all of them are. After a failure the rest of the array waits, so no event overtakes an earlier one.

    Stable: as with `cloudevent()`, whichever batch contains the event.
    """
    decode = make_decoder(parse_float)

    def identify(record: Record) -> Sequence[Message]:
        batch = parse_body(record, decode)
        if not isinstance(batch, list):
            raise make_refusal(
                record,
                f"its body: expected a JSON array, got {describe_type(batch)}. To read a single event, use cloudevent().",
            )
        return tuple(_make_structured_message(record, event) for event in cast("list[Any]", batch))

    return identify


def _make_message(record: Record, event: Record, data: Any) -> Message:
    """Return the message of an event. `event` has its attributes, without the data."""
    source = require_text(record, "the CloudEvent's source", event.get("source"))
    own_id = require_text(record, "the CloudEvent's id", event.get("id"))
    return make_message(
        record,
        cloudevent_key(source, own_id),
        source=_shorten_text(source),
        sequence=_read_sequence(record, event),
        body=data,
        overrides=event,
    )


def cloudevent_key(source: str, own_id: str) -> str:
    """Return the id of the message that `cloudevent()` creates from an event with this source and id."""
    return _shorten_text(f"{len(source)}:{source}:{own_id}")  # the length distinguishes ("a:b", "c") from ("a", "b:c")


def _shorten_text(text: str) -> str:
    """Return the text, or its digest if it is too long for a ledger, as the source of an entity with a very long key can be.

    A text that looks like a digest is digested too. Otherwise a sender could choose a source that equals the digest of a
    different one.
    """
    content = text.encode(errors="surrogatepass")
    if len(content) <= _MAX_BYTES and not text.startswith(_DIGEST_PREFIX):
        return text
    return f"{_DIGEST_PREFIX}{sha256(content).hexdigest()}"


def _read_binary_mode(record: Record) -> dict[str, Any]:
    """Return the attributes of an event in binary mode, or an empty dict."""
    attributes = Attributes(record, read_sender_attributes)
    event: dict[str, Any] = {}
    content_type: Any = None
    for name in attributes:  # decode only the event's own attributes: the others can be malformed without harm
        if prefix := _PREFIX.match(name):
            event[name[prefix.end() :].lower()] = _read_attribute_text(record, attributes[name])
        elif _CONTENT_TYPE.fullmatch(name):
            content_type = _read_attribute_text(record, attributes[name])
    # A sender of structured mode can repeat attributes here. The body is the whole event then, not its data.
    if "id" not in event or str(content_type).lower().startswith("application/cloudevents"):
        return {}
    return event if content_type is None else {**event, "datacontenttype": content_type}


def _read_attribute_text(record: Record, value: Any) -> Any:
    """Return an attribute as text. Kafka's headers are bytes."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        pass  # refused outside of the `except`: see record.py
    raise make_refusal(record, "a CloudEvent attribute isn't valid UTF-8.")


def _make_structured_message(record: Record, body: object) -> Message:
    """Return the message of a body that contains the whole event. Raise if it isn't a CloudEvent."""
    if not isinstance(body, Mapping) or "specversion" not in body:
        hint = " To read an array of events, use cloudevent_batch()." if isinstance(body, list) else ""
        raise make_refusal(
            record, f"it isn't a CloudEvent: its body has no specversion, and it has no attribute ce-id.{hint}"
        )
    event = dict(cast("Mapping[str, Any]", body))
    data, base64_data = event.pop("data", None), event.pop("data_base64", None)
    if base64_data is not None:
        data = decode_base64(record, "its data_base64", base64_data)
    return _make_message(record, event, data)


def _read_sequence(record: Record, event: Record) -> int | str | None:
    """Return the event's sequence, or None if it has none: an int if the event says that the text is an integer, or else as it is."""
    sequence = event.get("sequence")
    if sequence is None or type(sequence) is int:
        return sequence
    sequence = require_text(record, "the CloudEvent's sequence", sequence)
    if event.get("sequencetype") != "Integer":
        return sequence
    if not WHOLE_NUMBER.fullmatch(sequence):
        raise make_refusal(
            record,
            "the CloudEvent's sequence: expected an integer of at most 129 digits, because its sequencetype is Integer.",
        )
    return int(sequence)
