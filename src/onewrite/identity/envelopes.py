"""Identities around another identity, which remove the envelopes of SNS and EventBridge or skip deletions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, cast

from onewrite.errors import InvalidMessage
from onewrite.identity.record import (
    ENVELOPE,
    Decode,
    Identification,
    ParseFloat,
    Record,
    Skip,
    check_identity,
    describe_type,
    is_deletion,
    make_decoder,
    make_refusal,
    parse_body,
    read_part,
)

# The fields of an SNS envelope that `message.attributes` keeps. UnsubscribeURL is left out, because its holder can end the
# subscription.
_KEPT_FIELDS = frozenset({"MessageId", "TopicArn", "Subject", "Timestamp"})
EVENT_FIELDS = frozenset({"detail-type", "source", "id"})  # present in every EventBridge event, next to its detail


def sns(inner: Callable[[Record], Identification]) -> Callable[[Record], Identification]:
    """Return an identity that removes an SNS envelope. A record of raw delivery has none, and goes to `inner` unchanged.

    `inner` gets the published message as the record's body, with the published attributes. The topic's own "MessageId" is in
    `message.attributes`.

    Stable: as stable as the key of `inner`. The producer's body stays the same if a topic delivers it twice.
    Not stable: with `sqs_message_id()` as `inner`, because a second delivery by the topic is another SQS message with
    another ID.
    """
    check_identity(inner, "sns({})")
    decode = make_decoder(float)

    def identify(record: Record) -> Identification:
        envelope = _read_envelope(record, decode)
        if envelope.get("Type") != "Notification" or not envelope.keys() >= {"MessageId", "TopicArn"}:
            return inner(record)
        text = envelope.get("Message")
        if not isinstance(text, str):
            raise make_refusal(record, f"the Message of its SNS envelope: expected a string, got {describe_type(text)}.")
        fields = {name: value for name, value in envelope.items() if name in _KEPT_FIELDS}
        return inner(_remove_envelope(record, text, fields, envelope.get("MessageAttributes")))

    return identify


def eventbridge(
    inner: Callable[[Record], Identification], *, parse_float: ParseFloat = Decimal
) -> Callable[[Record], Identification]:
    """Return an identity that removes an EventBridge envelope.

    A record without one goes to `inner` unchanged, for example if a rule sends only `$.detail`.

    `inner` gets the event's parsed detail as the record's body. The other fields are in `message.attributes`: "detail-type",
    "source", "id", "time".

    Stable: as stable as the key of `inner`. The producer's detail stays the same if a rule delivers it twice.
    Not stable: with `sqs_message_id()` as `inner`, because a second delivery by the rule is another SQS message with another
    ID.
    """
    check_identity(inner, "eventbridge({})")
    decode = make_decoder(parse_float)

    def identify(record: Record) -> Identification:
        event = _read_envelope(record, decode)
        if not event.keys() >= EVENT_FIELDS:
            return inner(record)
        detail = event.get("detail")
        if not isinstance(detail, dict):  # otherwise `inner` would look for its ID in the envelope
            raise make_refusal(
                record, f"the detail of its EventBridge event: expected an object, got {describe_type(detail)}."
            )
        fields = {name: value for name, value in event.items() if name != "detail"}
        return inner(_remove_envelope(record, detail, fields, sent_attributes=None))

    return identify


def skip_deletions(inner: Callable[[Record], Identification]) -> Callable[[Record], Identification | Skip]:
    """Return an identity that settles a record of a deletion as skipped, and passes every other record to `inner`.

    Deletions are Kafka's tombstones, whose value is null, REMOVE records of a DynamoDB stream, and deletes of DocumentDB.
    They lack the fields that `inner` reads, so they would block their partition or shard forever.

    Stable: as stable as the key of `inner`. A settled deletion is not delivered again, so use this only if your function
    does nothing on deletions.
    """
    check_identity(inner, "skip_deletions({})")
    return lambda record: Skip("a deletion") if is_deletion(record) else inner(record)


def _read_envelope(record: Record, decode: Decode) -> dict[str, Any]:
    """Return the body if it is a JSON object, as every envelope is, or else an empty dict."""
    try:
        body = parse_body(record, decode)
    except InvalidMessage:  # a body without an envelope can be anything, and `inner` judges it
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _remove_envelope(record: Record, body: Any, fields: Record, sent_attributes: object) -> dict[str, Any]:
    """Return the record without this envelope. If two nested envelopes have the same field, the outer one wins.

    The author of the outer one is known. `sent_attributes`: those that the sender gave to an SNS message.
    """
    inner_record = {**record, "body": body, ENVELOPE: {**fields, **read_part(record, ENVELOPE)}}
    queue_attributes = record.get("messageAttributes")
    if isinstance(sent_attributes, Mapping) and isinstance(queue_attributes, Mapping):
        inner_record["messageAttributes"] = {**cast("Record", queue_attributes), **cast("Record", sent_attributes)}
    elif sent_attributes:
        inner_record["messageAttributes"] = sent_attributes
    return inner_record
