"""An SQS message becomes the record that Lambda makes of it."""

from __future__ import annotations

from onewrite.sqs_message import lambda_record
from tests.support.fake_sqs import ARN


def test_a_received_message_becomes_the_record_that_lambda_hands_over() -> None:
    received = {
        "MessageId": "m1",
        "ReceiptHandle": "h1",
        "Body": "text",
        "MD5OfBody": "1cb2",
        "MD5OfMessageAttributes": "00ff",
        "Attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1767225600000"},
        "MessageAttributes": {
            "kind": {"StringValue": "order", "DataType": "String"},
            "picture": {"BinaryValue": b"\x00\xff", "DataType": "Binary.png"},
        },
    }
    assert lambda_record(received, ARN) == {
        "messageId": "m1",
        "receiptHandle": "h1",
        "body": "text",
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1767225600000"},
        "messageAttributes": {
            "kind": {"stringValue": "order", "stringListValues": [], "binaryListValues": [], "dataType": "String"},
            "picture": {"binaryValue": "AP8=", "stringListValues": [], "binaryListValues": [], "dataType": "Binary.png"},
        },
        "md5OfBody": "1cb2",
        "md5OfMessageAttributes": "00ff",
        "eventSource": "aws:sqs",
        "eventSourceARN": ARN,
        "awsRegion": "eu-west-1",
    }


def test_a_message_with_nothing_but_a_body_has_empty_attributes() -> None:
    record = lambda_record({"MessageId": "m1", "ReceiptHandle": "h1", "Body": "text"}, ARN)
    assert record["attributes"] == record["messageAttributes"] == {}
    assert "md5OfMessageAttributes" not in record
