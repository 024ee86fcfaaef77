"""Events are what AWS sends: checked against its record formats, and against its runtime client."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from typing import Any

import pytest

from onewrite import ConfigurationError
from onewrite.testing import dynamodb_stream_event, kafka_event, kinesis_event, lambda_context, sqs_event

NOW = 1_700_000_000.0


# ---------------------------------------------------------------- SQS


def test_sqs_record_equals_the_aws_format() -> None:
    (record,) = sqs_event({"order": "o-1"})["Records"]
    handle = record.pop("receiptHandle")
    assert handle.startswith("AQEB")
    assert record == {
        "messageId": record["messageId"],
        "body": '{"order": "o-1"}',
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1700000000000",
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": "1700000000010",
        },
        "messageAttributes": {},
        "md5OfBody": "00a1ae1aa091e3e5fb31488ac3f38d7f",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:eu-west-1:123456789012:orders",
        "awsRegion": "eu-west-1",
    }


def test_fifo_record_has_its_group_and_sequence_number() -> None:
    event = sqs_event("a", "b", "c", queue="orders.fifo", group=["g1", "g2", "g1"], sequence=7)
    attributes = [record["attributes"] for record in event["Records"]]
    assert [found["MessageGroupId"] for found in attributes] == ["g1", "g2", "g1"]
    places = [found["SequenceNumber"] for found in attributes]
    assert [len(place) for place in places] == [20, 20, 20]
    assert places == sorted(places, key=int)
    assert sqs_event("d", queue="orders.fifo", sequence=8)["Records"][0]["attributes"]["SequenceNumber"] == places[1]
    assert len({found["MessageDeduplicationId"] for found in attributes}) == 3


def test_same_body_in_a_later_event_keeps_its_message_id() -> None:
    first, second = sqs_event("a", "a")["Records"]
    assert first["messageId"] != second["messageId"]
    (again,) = sqs_event("a", attributes={"ApproximateReceiveCount": 2})["Records"]
    assert again["messageId"] == first["messageId"]
    assert again["attributes"]["ApproximateReceiveCount"] == "2"
    assert sqs_event("b")["Records"][0]["messageId"] != first["messageId"]
    assert sqs_event("a", queue="other")["Records"][0]["messageId"] != first["messageId"]


def test_message_attributes_equal_the_sqs_format() -> None:
    (record,) = sqs_event("body", message_attributes={"trace": "é", "n": 5, "blob": b"\x00\x01"})["Records"]
    number = {"stringValue": "5", "dataType": "Number", "stringListValues": [], "binaryListValues": []}
    assert record["messageAttributes"]["n"] == number
    assert record["messageAttributes"]["blob"]["binaryValue"] == base64.b64encode(b"\x00\x01").decode()


# ---------------------------------------------------------------- streams


def test_kinesis_record_equals_the_aws_format() -> None:
    event = kinesis_event({"n": 1}, b"\x00", "é", partition_key=["a", "b", "c"], shard=3, sequence=5)
    first, second, third = event["Records"]
    assert first["kinesis"] == {
        "kinesisSchemaVersion": "1.0",
        "partitionKey": "a",
        "sequenceNumber": first["kinesis"]["sequenceNumber"],
        "data": base64.b64encode(b'{"n": 1}').decode(),
        "approximateArrivalTimestamp": NOW,
    }
    assert first["eventID"] == f"shardId-000000000003:{first['kinesis']['sequenceNumber']}"
    assert first["eventSourceARN"] == "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    numbers = [int(record["kinesis"]["sequenceNumber"]) for record in (first, second, third)]
    assert [len(str(number)) for number in numbers] == [56, 56, 56]
    assert kinesis_event("x", sequence=6)["Records"][0]["kinesis"]["sequenceNumber"] == str(numbers[1])
    assert [base64.b64decode(record["kinesis"]["data"]) for record in (second, third)] == [b"\x00", "é".encode()]


def test_dynamodb_stream_record_equals_the_aws_format() -> None:
    item = {
        "orderId": "o-1",
        "n": Decimal("1.5"),
        "tags": {"b", "a"},
        "lines": [{"raw": b"\x01"}],
        "raws": {b"\x02", b"\x01"},
    }
    event = dynamodb_stream_event((None, {"orderId": "o-1"}), ({"orderId": "o-1"}, item), (item, None), sequence=4)
    insert, modify, remove = event["Records"]
    assert [record["eventName"] for record in event["Records"]] == ["INSERT", "MODIFY", "REMOVE"]
    assert insert["dynamodb"] == {
        "ApproximateCreationDateTime": NOW,
        "Keys": {"orderId": {"S": "o-1"}},
        "NewImage": {"orderId": {"S": "o-1"}},
        "SequenceNumber": "100000000000000000004",
        "SizeBytes": 2 * len("orderIdo-1"),
        "StreamViewType": "NEW_AND_OLD_IMAGES",
    }
    assert modify["dynamodb"]["NewImage"] == {
        "orderId": {"S": "o-1"},
        "n": {"N": "1.5"},
        "tags": {"SS": ["a", "b"]},
        "lines": {"L": [{"M": {"raw": {"B": "AQ=="}}}]},
        "raws": {"BS": ["AQ==", "Ag=="]},
    }
    assert "NewImage" not in remove["dynamodb"]
    stream = "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2023-11-14T22:13:20.000"
    assert insert["eventSourceARN"] == stream
    assert len({record["eventID"] for record in event["Records"]}) == 3


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (({"orderId": "o-1"}, {"orderId": "o-2"}), "isn't the change of one item"),
        ((None, {"id": "o-1"}), "has no 'orderId': name the table's key"),
        ({"orderId": "o-1"}, r"got dict\. Pass \(None, item\)"),
    ],
)
def test_invalid_stream_change_is_refused(change: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        dynamodb_stream_event(change)


def test_kafka_event_equals_the_aws_format() -> None:
    event = kafka_event(
        {"n": 1}, b"\x00", None, partition=[0, 1, 0], offset=15, key=["a", None, {"k": 1}], headers={"h": "v"}
    )
    records = event["records"]
    assert records["orders-0"][0] == {
        "topic": "orders",
        "partition": 0,
        "offset": 15,
        "timestamp": 1_700_000_000_000,
        "timestampType": "CREATE_TIME",
        "key": "YQ==",
        "value": base64.b64encode(b'{"n": 1}').decode(),
        "headers": [{"h": [118]}],
    }
    offsets = [(record["partition"], record["offset"]) for part in records.values() for record in part]
    assert offsets == [(0, 15), (0, 16), (1, 15)]
    assert "value" not in records["orders-0"][1]  # a tombstone
    assert "key" not in records["orders-1"][0]


@pytest.mark.parametrize(
    "make",
    [
        lambda: sqs_event({"a": 1}, queue="orders.fifo", message_attributes={"n": 1}),
        lambda: kinesis_event({"a": 1}),
        lambda: dynamodb_stream_event((None, {"orderId": "o-1", "s": {"a", "b", "c"}, "b": b"\x00"})),
        lambda: kafka_event({"a": 1}, headers={"h": b"\xff"}),
    ],
)
def test_every_event_is_deterministic_json(make: Callable[[], dict[str, Any]]) -> None:
    assert json.dumps(make()) == json.dumps(make())


# ---------------------------------------------------------------- the context


def test_context_has_every_attribute_of_the_lambda_context() -> None:
    LambdaContext: Any = import_module("awslambdaric.lambda_context").LambdaContext  # noqa: N806  # the runtime has no types
    public = {name for name in dir(LambdaContext("id", {}, None, 0)) if not name.startswith("_")}
    context = lambda_context(function_name="orders")
    assert {name for name in public if not hasattr(context, name)} == set()
    assert context.memory_limit_in_mb == "128"
    assert context.invoked_function_arn == "arn:aws:lambda:eu-west-1:123456789012:function:orders"
    context.log("line")
    assert context.lines == ["line"]


def test_remaining_time_of_a_context_ends_at_zero() -> None:
    times = iter([100.0, 100.2, 100.999, 102.0])
    context = lambda_context(remaining_ms=1000, clock=lambda: next(times))
    assert [context.get_remaining_time_in_millis() for _ in range(3)] == [800, 1, 0]
