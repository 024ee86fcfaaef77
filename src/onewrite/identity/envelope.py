"""Envelopes around a message, which an inner identity need not know of."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, cast

from onewrite.errors import ConfigurationError, InvalidMessage
from onewrite.identity.record import Decode, Identity, ParseFloat, Record, decoder, kind, parsed, part, refusal
from onewrite.message import Message

_SAID = frozenset({"MessageId", "TopicArn", "Subject", "Timestamp"})  # not the link by which anybody may unsubscribe


def sns(inner: Identity) -> Identity:
    """Takes off the envelope of SNS. Raw delivery, which has none, goes to `inner` as it is.

    `inner` sees the record with the published message for its body, and with the attributes published along. The topic's
    own "MessageId" is in `message.attributes`.

    Stable: as the key of `inner` is. What a producer puts into the body survives a topic that delivers it twice. Not stable:
    `sqs_message_id()` for `inner`, the id of the queue's message, of which such a topic makes two.
    """
    _check("sns", inner)
    decode = decoder(float)

    def identify(record: Record) -> Message:
        envelope = _unwrapped(record, decode)
        is_one = envelope.get("Type") == "Notification" and envelope.keys() >= {"MessageId", "TopicArn"}
        if not is_one or not isinstance(envelope.get("Message"), str):
            return inner(record)
        said = {name: value for name, value in envelope.items() if name in _SAID}
        opened = _opened(record, envelope["Message"], said)
        published = envelope.get("MessageAttributes")
        if published:
            opened["messageAttributes"] = {**part(record, "messageAttributes"), **_as_in_sqs(record, published)}
        return inner(opened)

    return identify


def eventbridge(inner: Identity, *, parse_float: ParseFloat = Decimal) -> Identity:
    """Takes off the envelope of EventBridge. A body without one (a rule may send `$.detail` alone) goes to `inner` as it is.

    `inner` sees the record with the event's detail, parsed, for its body. The rest of the event is in `message.attributes`:
    "detail-type", "source", "id", "time".

    Stable: as the key of `inner` is. What a producer puts into the detail survives a rule that delivers it twice. Not stable:
    `sqs_message_id()` for `inner`, the id of the queue's message, of which such a rule makes two.
    """
    _check("eventbridge", inner)
    decode = decoder(parse_float)

    def identify(record: Record) -> Message:
        event = _unwrapped(record, decode)
        if not event.keys() >= {"detail-type", "source", "id"} or not isinstance(event.get("detail"), dict):
            return inner(record)
        said = {name: value for name, value in event.items() if name != "detail"}
        return inner(_opened(record, event["detail"], said))

    return identify


def _check(name: str, inner: object) -> None:
    if not callable(inner):
        raise ConfigurationError(
            f"{name}({inner!r}): what is within the envelope needs an identity, such as json_body(...)."
        )


def _unwrapped(record: Record, decode: Decode) -> dict[str, Any]:
    """The body, if it is a JSON object, as each envelope is."""
    try:
        body = parsed(record, decode)
    except InvalidMessage:  # raw delivery carries anything: what is wrong with it, if it is, `inner` will say
        return {}
    return cast("dict[str, Any]", body) if isinstance(body, dict) else {}


def _opened(record: Record, body: Any, said: Record) -> dict[str, Any]:
    # What the queue says of the record goes first: no envelope passes off a SequenceNumber of its own.
    return {**record, "body": body, "attributes": {**said, **part(record, "attributes")}}


def _as_in_sqs(record: Record, published: Any) -> dict[str, Any]:
    """The attributes of SNS in the form that those of an SQS record have."""
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
