"""Takes off the envelopes of SNS and EventBridge, so that the identity inside need not know of them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.identity.record import Decode, Identity, ParseFloat, Record, decoder, kind, parsed, part, refusal
from onewrite.message import Message

# What `message.attributes` keeps of the envelope of SNS. UnsubscribeURL is left out: whoever has it can end the subscription.
_KEPT_FIELDS = frozenset({"MessageId", "TopicArn", "Subject", "Timestamp"})


def sns(inner: Identity) -> Identity:
    """Takes off the envelope of SNS. A record of raw delivery, which has no envelope, goes to `inner` unchanged.

    `inner` is given the record with the published message as its body, and with the published attributes. The topic's own
    "MessageId" is in `message.attributes`.

    Stable: as stable as the key of `inner`. What a producer puts into the body stays the same if a topic delivers it twice.
    Not stable: with `sqs_message_id()` for `inner`, because such a topic makes two messages with two ids.
    """
    _check("sns", inner)
    decode = decoder(float)

    def identify(record: Record) -> Message:
        envelope = _unwrapped(record, decode)
        is_one = envelope.get("Type") == "Notification" and envelope.keys() >= {"MessageId", "TopicArn"}
        if not is_one or not isinstance(envelope.get("Message"), str):
            return inner(record)
        kept = {name: value for name, value in envelope.items() if name in _KEPT_FIELDS}
        opened = _opened(record, envelope["Message"], kept)
        published = envelope.get("MessageAttributes")
        if published:
            opened["messageAttributes"] = {**part(record, "messageAttributes"), **_as_in_sqs(record, published)}
        return inner(opened)

    return identify


def eventbridge(inner: Identity, *, parse_float: ParseFloat = Decimal) -> Identity:
    """Takes off the envelope of EventBridge. A record without one goes to `inner` unchanged; a rule may send `$.detail` alone.

    `inner` is given the record with the parsed detail of the event as its body. The rest of the event is in
    `message.attributes`: "detail-type", "source", "id", "time".

    Stable: as stable as the key of `inner`. What a producer puts into the detail stays the same if a rule delivers it twice.
    Not stable: with `sqs_message_id()` for `inner`, because such a rule makes two messages with two ids.
    """
    _check("eventbridge", inner)
    decode = decoder(parse_float)

    def identify(record: Record) -> Message:
        event = _unwrapped(record, decode)
        if not event.keys() >= {"detail-type", "source", "id"} or not isinstance(event.get("detail"), dict):
            return inner(record)
        kept = {name: value for name, value in event.items() if name != "detail"}
        return inner(_opened(record, event["detail"], kept))

    return identify


def _check(name: str, inner: object) -> None:
    if not callable(inner):
        raise ConfigurationError(
            f"{name}({inner!r}): give an identity for the message inside the envelope, such as json_body(...)."
        )


def _unwrapped(record: Record, decode: Decode) -> dict[str, Any]:
    """The body if it is a JSON object, as every envelope is; otherwise an empty one."""
    try:
        body = parsed(record, decode)
    except InvalidMessage:  # A body without an envelope may be anything, and `inner` decides about it.
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _opened(record: Record, body: Any, kept: Record) -> dict[str, Any]:
    # The queue's attributes replace those of the envelope, whose author must not be able to set a SequenceNumber.
    return {**record, "body": body, "attributes": {**kept, **part(record, "attributes")}}


def _as_in_sqs(record: Record, published: Any) -> dict[str, Any]:
    """The attributes of SNS in the form of those of an SQS record."""
    try:
        return {
            name: {"binaryValue" if value["Type"] == "Binary" else "stringValue": value["Value"]}
            for name, value in published.items()
        }
    except (AttributeError, KeyError, TypeError):
        pass
    raise refusal(
        record, f"the MessageAttributes of its SNS envelope are {kind(published)}, or one of them lacks Type or Value."
    )
