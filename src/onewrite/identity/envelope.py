"""Around another identity: the envelopes of SNS and EventBridge, and records that only say that something is gone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, cast

from onewrite.errors import InvalidMessage
from onewrite.identity.record import (
    ENVELOPE,
    Decode,
    Found,
    ParseFloat,
    Record,
    Skip,
    check_identity,
    decoder,
    is_deletion,
    kind,
    parsed,
    part,
    refusal,
)

# What `message.attributes` keeps of the envelope of SNS. UnsubscribeURL is left out: whoever has it can end the subscription.
_KEPT_FIELDS = frozenset({"MessageId", "TopicArn", "Subject", "Timestamp"})
_MARKS_OF_AN_EVENT = frozenset({"detail-type", "source", "id"})  # what every event of EventBridge has beside its detail


def sns(inner: Callable[[Record], Found]) -> Callable[[Record], Found]:
    """Takes off the envelope of SNS. A record of raw delivery, which has no envelope, goes to `inner` unchanged.

    `inner` is given the record with the published message as its body, and with the published attributes. The topic's own
    "MessageId" is in `message.attributes`.

    Stable: as stable as the key of `inner`. What a producer puts into the body stays the same if a topic delivers it twice.
    Not stable: with `sqs_message_id()` for `inner`, because such a topic makes two messages with two ids.
    """
    check_identity(inner, "sns({})")
    decode = decoder(float)

    def identify(record: Record) -> Found:
        envelope = _unwrapped(record, decode)
        if envelope.get("Type") != "Notification" or not envelope.keys() >= {"MessageId", "TopicArn"}:
            return inner(record)
        if not isinstance(text := envelope.get("Message"), str):
            raise refusal(record, f"the Message of its SNS envelope is {kind(text)}, but a text is needed.")
        kept = {name: value for name, value in envelope.items() if name in _KEPT_FIELDS}
        return inner(_opened(record, text, kept, envelope.get("MessageAttributes")))

    return identify


def eventbridge(inner: Callable[[Record], Found], *, parse_float: ParseFloat = Decimal) -> Callable[[Record], Found]:
    """Takes off the envelope of EventBridge. A record without one goes to `inner` unchanged; a rule may send `$.detail` alone.

    `inner` is given the record with the parsed detail of the event as its body. The rest of the event is in
    `message.attributes`: "detail-type", "source", "id", "time".

    Stable: as stable as the key of `inner`. What a producer puts into the detail stays the same if a rule delivers it twice.
    Not stable: with `sqs_message_id()` for `inner`, because such a rule makes two messages with two ids.
    """
    check_identity(inner, "eventbridge({})")
    decode = decoder(parse_float)

    def identify(record: Record) -> Found:
        event = _unwrapped(record, decode)
        if not event.keys() >= _MARKS_OF_AN_EVENT:
            return inner(record)
        if not isinstance(detail := event.get("detail"), dict):  # Else `inner` would find its id in the envelope.
            raise refusal(record, f"the detail of its EventBridge event is {kind(detail)}, but an object is needed.")
        return inner(_opened(record, detail, {name: value for name, value in event.items() if name != "detail"}, None))

    return identify


def skip_deletions(inner: Callable[[Record], Found]) -> Callable[[Record], Found | Skip]:
    """Settles a record that only says that something is gone, and gives every other one to `inner`.

    Such records are the tombstones of Kafka, whose value is null, the REMOVE records of a DynamoDB stream, and the deletes
    of DocumentDB. They lack what `inner` may look for, and would hold up their partition or shard for ever.

    Stable: as stable as the key of `inner`. Not stable: where that is not. A settled deletion is never seen again, so this
    is for functions that have nothing to do for one.
    """
    check_identity(inner, "skip_deletions({})")
    return lambda record: Skip("a deletion") if is_deletion(record) else inner(record)


def _unwrapped(record: Record, decode: Decode) -> dict[str, Any]:
    """The body if it is a JSON object, as every envelope is; otherwise an empty one."""
    try:
        body = parsed(record, decode)
    except InvalidMessage:  # A body without an envelope may be anything, and `inner` decides about it.
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _opened(record: Record, body: Any, kept: Record, published: object) -> dict[str, Any]:
    """The record without this envelope. Of two envelopes the outer one wins, whose author the inner one's may not be."""
    opened = {**record, "body": body, ENVELOPE: {**kept, **part(record, ENVELOPE)}}
    if published:
        of_queue = record.get("messageAttributes")
        both = isinstance(of_queue, Mapping) and isinstance(published, Mapping)
        opened["messageAttributes"] = {**cast("Record", of_queue), **cast("Record", published)} if both else published
    return opened
