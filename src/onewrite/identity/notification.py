"""The notifications of S3, from wherever they come."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast
from urllib.parse import unquote_plus

from onewrite.identity.record import Record, Skip, attributes_of, decoder, kind, message, parsed, part, refusal, text
from onewrite.message import Message

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
        body = parsed(record, decode)
        if is_s3_test(body):
            return Skip("s3:TestEvent")
        found, event, name = _event(record, body)
        bucket = text(record, "the name of its bucket", part(record, "bucket", event).get("name"))
        about = part(record, "object", event)
        key = text(record, "the key of its object", about.get("key"))
        source = f"{bucket}/{unquote_plus(key) if event is not found else key}"
        sequence = _sequence(record, about.get("sequencer"))
        return message(record, f"{source}@{sequence}/{name}", source=source, sequence=sequence, body=found)

    return identify


def is_s3_test(body: object) -> bool:
    """Is this what S3 sends when a notification is set up, to see whether it arrives?"""
    if not isinstance(body, Mapping):
        return False
    said = cast("Mapping[str, object]", body)
    return said.get("Event") == "s3:TestEvent" and said.get("Service") == "Amazon S3"


def _event(record: Record, body: Any) -> tuple[Record, Record, str]:
    """The record of a notification, the part of it that is about the object, and the name of the event."""
    if not isinstance(body, Mapping):
        raise refusal(record, f"its body is {kind(body)}, but a notification of S3 is needed.")
    found = cast("Record", body)
    if "Records" in found:
        records = found["Records"]
        if not isinstance(records, list) or len(cast("list[Any]", records)) != 1:
            raise refusal(record, "its notification does not hold one record, as those of S3 do.")
        found = part(record, "Records[0]", {"Records[0]": records[0]})
        return found, part(record, "s3", found), text(record, "its eventName", found.get("eventName"))
    return found, found, text(record, "its detail-type", attributes_of(record).get("detail-type"))


def _sequence(record: Record, sequencer: object) -> str:
    """The sequencer, as it sorts. S3 has it compared from the left, as if the shorter one ended in zeros."""
    if not isinstance(sequencer, str) or not _HEXADECIMAL.fullmatch(sequencer):
        raise refusal(
            record,
            f"its sequencer is {kind(sequencer)}, but a hexadecimal text is needed. S3 gives one to created and removed objects "
            "only: for other events read a key with json_body.",
        )
    return sequencer.upper().rstrip("0") or "0"
