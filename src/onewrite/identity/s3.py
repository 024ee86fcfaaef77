"""The identity of S3 notifications, sent directly or through SQS, SNS, or EventBridge."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import unquote_plus

from onewrite.identity.record import (
    Attributes,
    OneMessage,
    Record,
    describe_type,
    make_decoder,
    make_message,
    make_refusal,
    parse_body,
    read_part,
    read_sender_attributes,
    require_text,
)
from onewrite.message import Message

_HEXADECIMAL = re.compile("[0-9A-Fa-f]{1,64}")  # S3 uses 16 or 18 digits


def s3_object() -> OneMessage:
    """Return an identity that reads an S3 notification: bucket, key, S3's sequencer, and the event's name.

    The notification can reach Lambda directly, through SQS, through SNS with `sns(...)`, or through EventBridge with
    `eventbridge(...)`. The message's source is the object, and its sequence is the sequencer. `message.body` is the
    notification's record, with a URL-encoded key; from EventBridge it is the detail.

    Stable: S3 repeats the sequencer if it sends an event twice. Not stable: a repeated upload is a new event. Only creations
    and removals have a sequencer; other events, such as restores, are refused. A handler skips S3's test message for a new
    destination, `s3:TestEvent`.
    """
    decode = make_decoder(float)  # a notification has no fractions

    def identify(record: Record) -> Message:
        body = parse_body(record, decode)
        entry, event, name = _read_object_event(record, body)
        bucket = require_text(record, "its bucket's name", read_part(record, "bucket", event).get("name"))
        changed_object = read_part(record, "object", event)
        key = require_text(record, "its object's key", changed_object.get("key"))
        if event is not entry:  # S3 encodes the key as in a URL, but EventBridge, whose detail has no inner part, doesn't
            key = unquote_plus(key)
        source = f"{bucket}/{key}"
        sequence = _format_sequencer(record, changed_object.get("sequencer"))
        return make_message(record, f"{source}@{sequence}/{name}", source=source, sequence=sequence, body=entry)

    return identify


def _read_object_event(record: Record, body: Any) -> tuple[Record, Record, str]:
    """Return the notification's record, its part about the object, and the event's name."""
    if not isinstance(body, Mapping):
        raise make_refusal(record, f"its body: expected an S3 notification, got {describe_type(body)}.")
    entry = cast("Record", body)
    if "Records" in entry:
        records = entry["Records"]
        if not isinstance(records, list) or len(cast("list[Any]", records)) != 1:
            raise make_refusal(record, "its S3 notification: expected exactly one record.")
        entry = read_part(record, "Records[0]", {"Records[0]": records[0]})
        return entry, read_part(record, "s3", entry), require_text(record, "its eventName", entry.get("eventName"))
    attributes = Attributes(record, read_sender_attributes)
    return entry, entry, require_text(record, "its detail-type", attributes.get("detail-type"))


def _format_sequencer(record: Record, sequencer: object) -> str:
    """Return the sequencer in sortable form. S3 compares from the left and pads the shorter one with zeros."""
    if not isinstance(sequencer, str) or not _HEXADECIMAL.fullmatch(sequencer):
        raise make_refusal(
            record,
            f"its sequencer: expected a hexadecimal string, got {describe_type(sequencer)}. Only creations and removals have "
            "one. For other events, read a key with json_body.",
        )
    return sequencer.upper().rstrip("0") or "0"
