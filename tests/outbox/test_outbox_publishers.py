"""Publishers, against moto's brokers, and what a consumer reads of what they send."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import boto3
import pytest
from moto import mock_aws

from onewrite import ConfigurationError, Message
from onewrite.identity import cloudevent, eventbridge, sns
from onewrite.outbox import Outgoing, to_eventbridge, to_sns, to_sqs

REGION: Any = {"region_name": "eu-west-1"}


def outgoing(n: int, body: str = '{"cents":1250}', source: str = "shop/orders/id=S:o-1/life") -> Outgoing:
    return Outgoing(f"id-{n}", source, "OrderPaid", n, "2026-11-22T08:00:00.000Z", body, "m1", {"id": "o-1"})


@pytest.fixture(autouse=True)
def aws() -> Iterator[None]:
    with mock_aws():
        yield


class Queue:
    """A queue of moto's, and what a Lambda function would get from it."""

    def __init__(self, name: str, **attributes: str) -> None:
        self.client: Any = boto3.client("sqs", **REGION)
        self.url = self.client.create_queue(QueueName=name, Attributes=cast("Any", attributes))["QueueUrl"]
        self.arn = self.client.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]

    def records(self) -> list[dict[str, Any]]:
        found = self.client.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10, AttributeNames=["All"])
        return [
            {"messageId": each["MessageId"], "body": each["Body"], "attributes": each["Attributes"], "messageAttributes": {}}
            for each in found.get("Messages", [])
        ]


def _read_as_sent(message: Message, n: int) -> bool:
    event = outgoing(n)
    same = (message.source, message.sequence, message.body) == (event.source, n, {"cents": 1250})
    return (
        same and message.id == f"{len(event.source)}:{event.source}:{event.id}" and message.attributes["causationid"] == "m1"
    )


def test_consumer_reads_published_events_from_a_queue() -> None:
    queue = Queue("orders")
    assert to_sqs(queue.client, queue.url)([outgoing(7)]) == []
    (record,) = queue.records()
    assert _read_as_sent(cloudevent()(record), 7)


def test_fifo_queue_gets_source_and_id() -> None:
    queue = Queue("orders.fifo", FifoQueue="true")
    publish = to_sqs(queue.client, queue.url)
    publish([outgoing(1)])
    publish([outgoing(1), outgoing(2, source="s" * 200)])
    first, second = [record["attributes"] for record in queue.records()]
    assert (first["MessageGroupId"], first["MessageDeduplicationId"]) == (outgoing(1).source, "id-1")
    assert len(second["MessageGroupId"]) == 64


@pytest.mark.parametrize("raw", ["true", "false"])
def test_consumer_reads_published_events_through_a_topic(raw: str) -> None:
    queue, topics = Queue("orders"), boto3.client("sns", **REGION)
    topic = topics.create_topic(Name="orders")["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue.arn, Attributes={"RawMessageDelivery": raw})
    assert to_sns(topics, topic)([outgoing(7)]) == []
    (record,) = queue.records()
    assert _read_as_sent(sns(cloudevent())(record), 7)


def test_consumer_reads_published_events_from_a_bus() -> None:
    queue, events = Queue("orders"), boto3.client("events", **REGION)
    events.put_rule(Name="paid", EventPattern=json.dumps({"source": ["shop"], "detail-type": ["OrderPaid"]}))
    events.put_targets(Rule="paid", Targets=[{"Id": "1", "Arn": queue.arn}])
    assert to_eventbridge(events, "default", source="shop")([outgoing(7)]) == []
    (record,) = queue.records()
    assert _read_as_sent(eventbridge(cloudevent())(record), 7)


class Client:
    """Answers as it is told, and keeps the requests. It stands in for failures that moto does not have."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._answers = iter(answers)

    def send_message_batch(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        return next(self._answers, {"Successful": [{"Id": entry["Id"]} for entry in request["Entries"]]})

    def put_events(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        return next(self._answers, {"Entries": [{"EventId": "e"} for _ in request["Entries"]]})


def test_failed_entries_are_logged_and_not_accepted(caplog: pytest.LogCaptureFixture) -> None:
    events = [outgoing(n) for n in range(3)]
    failed = {"Id": "1", "SenderFault": False, "Code": "InternalError", "Message": "try later"}
    assert to_sqs(Client({"Successful": [{"Id": "0"}, {"Id": "2"}], "Failed": [failed]}), "q")(events) == [events[1]]
    failed = {"ErrorCode": "ThrottlingException", "ErrorMessage": "too fast"}
    answer = {"FailedEntryCount": 1, "Entries": [{"EventId": "e"}, failed, {"EventId": "f"}]}
    assert to_eventbridge(Client(answer), "b", source="s")(events) == [events[1]]
    said = f"Publisher: event {events[1].id} of {events[1].source} wasn't accepted: "
    assert caplog.messages == [f"{said}InternalError: try later", f"{said}ThrottlingException: too fast"]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"Successful": [{"Id": "0"}]},
        {"Successful": [{"Id": "0"}], "Failed": [{"Id": "-1"}]},
        {"Entries": [{}, {}]},
        {"Entries": [{"EventId": "e"}]},
    ],
    ids=str,
)
def test_response_that_omits_events_is_a_failure(answer: dict[str, Any]) -> None:
    events = [outgoing(0), outgoing(1)]
    for publish in (to_sqs(Client(answer), "q"), to_eventbridge(Client(answer), "b", source="s")):
        with pytest.raises(ConnectionError, match="will be published again"):
            publish(events)


def test_too_long_eventbridge_type_does_not_block_other_events(caplog: pytest.LogCaptureFixture) -> None:
    events = [replace(outgoing(n), type="é" * length) for n, length in enumerate((128, 129, 1))]
    client = Client()
    assert to_eventbridge(client, "b", source="s")(events) == [events[1]]
    assert [len(entry["DetailType"]) for entry in client.requests[0]["Entries"]] == [128, 1]
    assert caplog.messages == [
        f"Publisher: event {events[1].id} of {events[1].source} wasn't accepted: its type has 129 characters, but the broker accepts at most 128"
    ]
    assert to_sqs(Client(), "q")(events) == []


def test_too_large_event_does_not_block_other_events() -> None:
    client, large = Client(), outgoing(1, f'"{"x" * 5000}"')
    assert to_sqs(client, "q", max_bytes=5000)([outgoing(0), large, outgoing(2)]) == [large]
    assert [len(request["Entries"]) for request in client.requests] == [2]


def test_publisher_with_asynchronous_client_is_awaited() -> None:
    class AsyncClient:
        async def publish_batch(self, **request: Any) -> dict[str, Any]:
            return {"Failed": [{"Id": "0"}]}

    assert asyncio.run(to_sns(AsyncClient(), "t")([outgoing(1)])) == [outgoing(1)]


@pytest.mark.parametrize("largest", [None, "1024", 1024.0, True, 0])
def test_size_limit_of_a_wrong_type_is_refused(largest: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_bytes="):
        to_sqs(Client({}), "q", max_bytes=largest)
