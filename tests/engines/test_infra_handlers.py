"""The handlers of the stacks: the MongoDB stack's, the stream stack's and the relay's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import boto3
import pytest
from moto import mock_aws
from pymongo import MongoClient

from onewrite import Event, Message
from onewrite.testing import kinesis_event, lambda_context, sqs_event
from onewrite.testing.schema import table_request
from onewrite.testing.servers.engines import REGION, Mongod
from tests.engines.stores import create_table_with_outbox
from tests.support.deployment import loaded, queue_attributes
from tests.support.packages import ROOT

SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event"}
EXAMPLES = ROOT / "infra" / "examples"
sdk: Any = boto3  # its types know two services


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> str:
    arn = str(sdk.client("secretsmanager").create_secret(Name="stock-mongodb")["ARN"])
    monkeypatch.setenv("MONGODB_SECRET_ARN", arn)
    return arn


def test_stock_handler_recovers_after_password_change(
    mongod: Mongod, mongo: MongoClient[dict[str, Any]], secret: str
) -> None:
    stock = loaded(EXAMPLES / "mongodb" / "stock.py")
    secrets = sdk.client("secretsmanager")
    event = sqs_event({"eventId": "e-1", "sku": "sku-1", "count": 2}, {"eventId": "e-1", "sku": "sku-1", "count": 2})
    mongo.shop.stock.drop()

    secrets.put_secret_value(SecretId=secret, SecretString=mongod.uri.replace("mongodb://", "mongodb://stock:old@"))
    assert len(stock.handler(event, None)["batchItemFailures"]) == 2

    secrets.put_secret_value(SecretId=secret, SecretString=mongod.uri)
    assert stock.handler(event, None) == {"batchItemFailures": []}
    assert stock.stock().find_one({"_id": "sku-1"}) == {"_id": "sku-1", "left": 2}
    stock.disconnect()


def test_meter_readings_are_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METERS_TABLE", "meters")
    sdk.client("dynamodb").create_table(**table_request("meters", "meterId"))
    meters = loaded(EXAMPLES / "stream" / "meters.py")
    readings = [json.dumps({"readingId": reading, "meterId": "m-1", "units": 3}) for reading in ("r-1", "r-2", "r-1")]

    assert meters.handler(kinesis_event(*readings), None) == {"batchItemFailures": []}
    assert meters.meters().get_item(Key={"meterId": "m-1"}) == {"meterId": "m-1", "units": 6}


# ---------------------------------------------------------------- the relay


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The operations that botocore is asked for by clients that are made from now on."""
    session, operations = boto3.Session(), set[str]()
    session.events.register(
        "before-call", lambda model, **_: operations.add(f"{model.service_model.service_name}:{model.name}")
    )
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)
    return operations


@pytest.fixture
def subscriber() -> str:
    """A FIFO queue that gets what the relay publishes."""
    return str(sdk.client("sqs").create_queue(QueueName="told.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"])


@pytest.fixture
def stream() -> str:
    """The stream of the relay's table, which is made as its stack makes it."""
    create_table_with_outbox(sdk.client("dynamodb"), "orders", key="orderId")
    return str(sdk.client("dynamodb").describe_table(TableName="orders")["Table"]["LatestStreamArn"])


@pytest.fixture
def relay(called: set[str], stream: str, subscriber: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    topic = sdk.client("sns").create_topic(Name="orders.fifo", Attributes={"FifoTopic": "true"})["TopicArn"]
    queue = queue_attributes(subscriber)["QueueArn"]
    raw = {"RawMessageDelivery": "true"}
    sdk.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes=raw)
    names = {"TOPIC_ARN": topic, "AWS_LAMBDA_FUNCTION_NAME": "orders-relay", "ORDERS_TABLE": "orders"}
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    return loaded(EXAMPLES / "relay" / "relay.py")


def emit(relay: ModuleType, order: str, event: str) -> None:
    relay.orders.update_item(
        Message(f"{order} {event}"),
        Key={"orderId": order},
        UpdateExpression="SET stage = :stage",
        ExpressionAttributeValues={":stage": event},
        emit=[Event(event, {"order": order})],
    )


def records(stream: str) -> dict[str, Any]:
    """All that the table's stream reports, as Lambda hands it to the function."""
    streams = sdk.client("dynamodbstreams")
    (shard,) = streams.describe_stream(StreamArn=stream)["StreamDescription"]["Shards"]
    start = {"StreamArn": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    found = streams.get_records(ShardIterator=streams.get_shard_iterator(**start)["ShardIterator"])["Records"]
    return {"Records": found}


def published(queue: str) -> list[tuple[str, int]]:
    sqs = sdk.client("sqs")
    messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
    events = [json.loads(message["Body"]) for message in messages]
    return sorted((event["type"], int(event["sequence"])) for event in events)


def test_relay_publishes_events_from_the_stream(relay: ModuleType, stream: str, subscriber: str) -> None:
    emit(relay, "o-1", "OrderPaid")
    emit(relay, "o-1", "OrderShipped")
    assert relay.handler(records(stream), lambda_context()) == {"batchItemFailures": []}
    assert published(subscriber) == [("OrderPaid", 1), ("OrderShipped", 2)]


def test_scheduled_sweep_publishes_events_missing_from_the_stream(relay: ModuleType, subscriber: str) -> None:
    emit(relay, "o-1", "OrderPaid")
    relay.handler(SCHEDULE, lambda_context())
    relay.handler(SCHEDULE, lambda_context())
    assert published(subscriber) == [("OrderPaid", 1)]


def test_relay_calls_only_operations_allowed_by_its_role(relay: ModuleType, called: set[str], stream: str) -> None:
    for order in ("o-1", "o-2"):
        emit(relay, order, "OrderPaid")
    event = records(stream)
    event["Records"].pop()
    called.clear()
    relay.handler(event, lambda_context())
    relay.handler(SCHEDULE, lambda_context())
    # sns:Publish allows PublishBatch.
    assert called == {"dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:Scan", "sns:PublishBatch"}
