"""Keys in bodies whose form is known: envelopes of SNS and EventBridge, CloudEvents, and notifications of S3."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any, cast
from urllib.parse import unquote_plus

from onewrite.errors import InvalidMessage
from onewrite.identity.record import (
    ENVELOPE,
    Decode,
    Identification,
    OneMessage,
    ParseFloat,
    Record,
    Skip,
    attributes_of,
    binary,
    check_identity,
    decoder,
    is_deletion,
    kind,
    message,
    parse_body,
    part,
    payload,
    refusal,
    text,
)
from onewrite.message import Message

# --- around another identity: envelopes, and records that only say that something is gone -----------------------------

# What `message.attributes` keeps of the envelope of SNS. UnsubscribeURL is left out: whoever has it can end the subscription.
_KEPT_FIELDS = frozenset({"MessageId", "TopicArn", "Subject", "Timestamp"})
_MARKS_OF_AN_EVENT = frozenset({"detail-type", "source", "id"})  # what every event of EventBridge has beside its detail


def sns(inner: Callable[[Record], Identification]) -> Callable[[Record], Identification]:
    """Takes off the envelope of SNS. A record of raw delivery, which has no envelope, goes to `inner` unchanged.

    `inner` is given the record with the published message as its body, and with the published attributes. The topic's own
    "MessageId" is in `message.attributes`.

    Stable: as stable as the key of `inner`. What a producer puts into the body stays the same if a topic delivers it twice.
    Not stable: with `sqs_message_id()` for `inner`, because such a topic makes two messages with two ids.
    """
    check_identity(inner, "sns({})")
    decode = decoder(float)

    def identify(record: Record) -> Identification:
        envelope = _envelope_of(record, decode)
        if envelope.get("Type") != "Notification" or not envelope.keys() >= {"MessageId", "TopicArn"}:
            return inner(record)
        if not isinstance(text := envelope.get("Message"), str):
            raise refusal(record, f"the Message of its SNS envelope is {kind(text)}, but a text is needed.")
        fields = {name: value for name, value in envelope.items() if name in _KEPT_FIELDS}
        return inner(_without_envelope(record, text, fields, envelope.get("MessageAttributes")))

    return identify


def eventbridge(
    inner: Callable[[Record], Identification], *, parse_float: ParseFloat = Decimal
) -> Callable[[Record], Identification]:
    """Takes off the envelope of EventBridge. A record without one goes to `inner` unchanged; a rule may send `$.detail` alone.

    `inner` is given the record with the parsed detail of the event as its body. The rest of the event is in
    `message.attributes`: "detail-type", "source", "id", "time".

    Stable: as stable as the key of `inner`. What a producer puts into the detail stays the same if a rule delivers it twice.
    Not stable: with `sqs_message_id()` for `inner`, because such a rule makes two messages with two ids.
    """
    check_identity(inner, "eventbridge({})")
    decode = decoder(parse_float)

    def identify(record: Record) -> Identification:
        event = _envelope_of(record, decode)
        if not event.keys() >= _MARKS_OF_AN_EVENT:
            return inner(record)
        if not isinstance(detail := event.get("detail"), dict):  # Else `inner` would find its id in the envelope.
            raise refusal(record, f"the detail of its EventBridge event is {kind(detail)}, but an object is needed.")
        return inner(
            _without_envelope(record, detail, {name: value for name, value in event.items() if name != "detail"}, None)
        )

    return identify


def skip_deletions(inner: Callable[[Record], Identification]) -> Callable[[Record], Identification | Skip]:
    """Settles a record that only says that something is gone, and gives every other one to `inner`.

    Such records are the tombstones of Kafka, whose value is null, the REMOVE records of a DynamoDB stream, and the deletes
    of DocumentDB. They lack what `inner` may look for, and would hold up their partition or shard forever.

    Stable: as stable as the key of `inner`. Not stable: where that is not. A settled deletion is never seen again, so this
    is for functions that have nothing to do for one.
    """
    check_identity(inner, "skip_deletions({})")
    return lambda record: Skip("a deletion") if is_deletion(record) else inner(record)


def _envelope_of(record: Record, decode: Decode) -> dict[str, Any]:
    """The body if it is a JSON object, as every envelope is; otherwise an empty one."""
    try:
        body = parse_body(record, decode)
    except InvalidMessage:  # A body without an envelope may be anything, and `inner` decides about it.
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _without_envelope(record: Record, body: Any, fields: Record, sent_attributes: object) -> dict[str, Any]:
    """The record without this envelope. Of two envelopes the outer one wins, whose author the inner one's may not be."""
    inner_record = {**record, "body": body, ENVELOPE: {**fields, **part(record, ENVELOPE)}}
    if isinstance(sent_attributes, Mapping) and isinstance(of_queue := record.get("messageAttributes"), Mapping):
        inner_record["messageAttributes"] = {**cast("Record", of_queue), **cast("Record", sent_attributes)}
    elif sent_attributes:
        inner_record["messageAttributes"] = sent_attributes
    return inner_record


# --- CloudEvents: in the structured mode, in the binary mode, and in batches ------------------------------------------

# The prefixes of attributes in the bindings to HTTP, Kafka, AMQP and JMS. There is no binding to SQS.
_PREFIX = re.compile("ce[-_]|cloudevents[:_-]", re.IGNORECASE)
_CONTENT_TYPE = re.compile("content[-_]?type", re.IGNORECASE)
_LONGEST = 2048  # bytes. It is fixed, whatever Message.max_text_bytes is, because an id must stay the same forever.
_DIGEST_PREFIX = "sha256:"
_INTEGER = re.compile("[+-]?[0-9]{1,129}")  # as many digits as a sequence number of Kinesis may have


def cloudevent(*, parse_float: ParseFloat = Decimal) -> OneMessage:
    """The source and the id of a CloudEvent. In structured mode the whole event is the JSON body of the record; in binary mode
    its attributes are beside the body, as ce-id or ce_id and so on.

    Stable: the specification has a producer send an event again with the same id, and give each event its own. Then the key
    stays the same in redeliveries, when a producer sends twice, and after redrives. Not stable: with a producer that does
    otherwise.

    `message.id` is made of both, because an id is unique within its source only; where that is longer than 2048 bytes, it is a
    digest of it. The extension `sequence` is text, which the
    producer must write in a form that sorts; with the `sequencetype` Integer it becomes an int. `message.body` is the data, parsed
    unless a content type other than JSON is declared. `message.attributes` has the event's own: "type", "subject", "time".
    """
    decode = decoder(parse_float)

    def identify(record: Record) -> Message:
        if event := _binary_mode(record):
            return _message(record, event, _data(record, event, decode))
        return _structured_message(record, parse_body(record, decode))

    return identify


def cloudevent_batch(*, parse_float: ParseFloat = Decimal) -> Callable[[Record], Sequence[Message]]:
    """Each CloudEvent of a batch: the JSON body of the record is an array of events in structured mode.

    The function is called with each in turn, and the record is settled when all of them are. After a failure the rest of the
    array is not begun, so no event overtakes an earlier one.

    Stable: as with `cloudevent()`, whichever batches an event comes in. Not stable: with a producer that gives it a new id.
    """
    decode = decoder(parse_float)

    def identify(record: Record) -> Sequence[Message]:
        batch = parse_body(record, decode)
        if not isinstance(batch, list):
            raise refusal(record, f"its body is {kind(batch)}, but an array is needed: cloudevent() reads a single event.")
        return tuple(_structured_message(record, event) for event in cast("list[Any]", batch))

    return identify


def _message(record: Record, event: Record, data: Any) -> Message:
    source = text(record, "the CloudEvent's source", event.get("source"))
    own_id = text(record, "the CloudEvent's id", event.get("id"))
    return message(
        record,
        cloudevent_key(source, own_id),
        source=_text_or_digest(source),
        sequence=_sequence(record, event),
        body=data,
        overrides=event,
    )


def cloudevent_key(source: str, own_id: str) -> str:
    """The id of the message that `cloudevent()` makes of an event of this source and id."""
    return _text_or_digest(f"{len(source)}:{source}:{own_id}")  # The length keeps ("a:b", "c") and ("a", "b:c") apart.


def _text_or_digest(text: str) -> str:
    """The text, or a digest of it where no ledger would keep it: the source of an entity with a very long key.

    What looks like a digest is replaced by one too, so nobody's source is that of another text.
    """
    content = text.encode(errors="surrogatepass")
    if len(content) <= _LONGEST and not text.startswith(_DIGEST_PREFIX):
        return text
    return f"{_DIGEST_PREFIX}{sha256(content).hexdigest()}"


def _binary_mode(record: Record) -> dict[str, Any]:
    """The event's attributes, if they are beside the body."""
    attributes = attributes_of(record)
    event: dict[str, Any] = {}
    content_type: Any = None
    for name in attributes:  # The others are not decoded: a record fails only for what is used of it.
        if prefix := _PREFIX.match(name):
            event[name[prefix.end() :].lower()] = _attribute_text(record, attributes[name])
        elif _CONTENT_TYPE.fullmatch(name):
            content_type = _attribute_text(record, attributes[name])
    # In structured mode they may be repeated here, but the body is the whole event then, and not its data.
    if "id" not in event or str(content_type).lower().startswith("application/cloudevents"):
        return {}
    return event if content_type is None else {**event, "datacontenttype": content_type}


def _attribute_text(record: Record, value: Any) -> Any:
    """An attribute as text. Only Kafka's headers are bytes."""
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        pass
    raise refusal(record, "an attribute of its CloudEvent is not in UTF-8.")


def _structured_message(record: Record, body: object) -> Message:
    if not isinstance(body, Mapping) or "specversion" not in body:
        hint = " cloudevent_batch() reads an array of events." if isinstance(body, list) else ""
        raise refusal(record, f"it is not a CloudEvent: its body has no specversion, and it has no attribute ce-id.{hint}")
    event = dict(cast("Mapping[str, Any]", body))
    data, base64_data = event.pop("data", None), event.pop("data_base64", None)
    return _message(record, event, data if base64_data is None else binary(record, "its data_base64", base64_data))


def _data(record: Record, event: Record, decode: Decode) -> Any:
    """The body in binary mode. Without a content type it is taken for JSON, as in structured mode."""
    content_type = str(event.get("datacontenttype", "application/json"))
    media = content_type.partition(";")[0].strip().lower()
    data = payload(record)
    return parse_body(record, decode) if data and media.endswith(("/json", "+json")) else data


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


# --- the notifications of S3, from wherever they come -----------------------------------------------------------------

_HEXADECIMAL = re.compile("[0-9A-Fa-f]{1,64}")  # S3 gives 16 or 18 digits


def s3_object() -> Callable[[Record], Message | Skip]:
    """What has happened to an S3 object: the bucket, the key, S3's sequencer, and the name of the event.

    The body of the record is a notification of S3, which comes straight to Lambda or through SQS, in `sns(...)` through SNS, or in
    `eventbridge(...)` through EventBridge. The source is the object, the sequence is the sequencer. `message.body` is the
    notification's record, in which the key is encoded as in a URL; from EventBridge it is the detail.

    Stable: S3 gives an event the same sequencer each time that it notifies of it. Not stable: an upload that is
    repeated makes a second event. S3 gives no sequencer to events other than created and removed objects, such as restored
    ones: these are refused. The message by which S3 tries a new destination, `s3:TestEvent`, is skipped.
    """
    decode = decoder(float)  # A notification has no fractions.

    def identify(record: Record) -> Message | Skip:
        body = parse_body(record, decode)
        if is_s3_test(body):
            return Skip("s3:TestEvent")
        entry, event, name = _object_event(record, body)
        bucket = text(record, "the name of its bucket", part(record, "bucket", event).get("name"))
        about = part(record, "object", event)
        key = text(record, "the key of its object", about.get("key"))
        source = f"{bucket}/{unquote_plus(key) if event is not entry else key}"
        sequence = _sortable_sequencer(record, about.get("sequencer"))
        return message(record, f"{source}@{sequence}/{name}", source=source, sequence=sequence, body=entry)

    return identify


def is_s3_test(body: object) -> bool:
    """Is this what S3 sends when a notification is set up, to see whether it arrives?"""
    if not isinstance(body, Mapping):
        return False
    notification = cast("Mapping[str, object]", body)
    return notification.get("Event") == "s3:TestEvent" and notification.get("Service") == "Amazon S3"


def _object_event(record: Record, body: Any) -> tuple[Record, Record, str]:
    """The record of a notification, the part of it that is about the object, and the name of the event."""
    if not isinstance(body, Mapping):
        raise refusal(record, f"its body is {kind(body)}, but a notification of S3 is needed.")
    entry = cast("Record", body)
    if "Records" in entry:
        records = entry["Records"]
        if not isinstance(records, list) or len(cast("list[Any]", records)) != 1:
            raise refusal(record, "its notification does not hold one record, as those of S3 do.")
        entry = part(record, "Records[0]", {"Records[0]": records[0]})
        return entry, part(record, "s3", entry), text(record, "its eventName", entry.get("eventName"))
    return entry, entry, text(record, "its detail-type", attributes_of(record).get("detail-type"))


def _sortable_sequencer(record: Record, sequencer: object) -> str:
    """The sequencer, as it sorts. S3 has it compared from the left, as if the shorter one ended in zeros."""
    if not isinstance(sequencer, str) or not _HEXADECIMAL.fullmatch(sequencer):
        raise refusal(
            record,
            f"its sequencer is {kind(sequencer)}, but a hexadecimal text is needed. S3 gives one to created and removed objects "
            "only: for other events read a key with json_body.",
        )
    return sequencer.upper().rstrip("0") or "0"
