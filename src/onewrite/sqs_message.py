"""An SQS message in its two forms: as ReceiveMessage returns it, and as Lambda hands it to a function."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, TypeAlias

Received: TypeAlias = Mapping[str, Any]
"""A message as ReceiveMessage returns it."""


def lambda_record(received: Received, queue_arn: str) -> dict[str, Any]:
    """The record that Lambda makes of a received message."""
    record: dict[str, Any] = {
        "messageId": received["MessageId"],
        "receiptHandle": received["ReceiptHandle"],
        "body": received.get("Body", ""),
        "attributes": dict(received.get("Attributes", {})),
        "messageAttributes": {
            name: _message_attribute(value) for name, value in received.get("MessageAttributes", {}).items()
        },
        "md5OfBody": received.get("MD5OfBody", ""),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }
    if "MD5OfMessageAttributes" in received:
        record["md5OfMessageAttributes"] = received["MD5OfMessageAttributes"]
    return record


def _message_attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    attribute: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "StringValue" in value:
        attribute["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        attribute["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
    return attribute
