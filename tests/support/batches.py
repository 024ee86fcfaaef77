"""Events as Lambda gives them, and a context that counts down."""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from onewrite import Applied, BeginOutcome, Duplicate, InvalidMessage, Message, Outcome
from onewrite.testing import dynamodb_stream_event, kafka_event, kinesis_event

STANDARD = "arn:aws:sqs:eu-west-1:123456789012:orders"
FIFO = f"{STANDARD}.fifo"
SENT_AT = 1_700_000_000.0  # when every record was sent
EFFECT: Any = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}


def sqs_record(name: str, *, arn: str = STANDARD, group: str | None = None, **fields: Any) -> dict[str, Any]:
    """A record whose body is the name, and whose messageId is the name after `id-`."""
    attributes = {"ApproximateReceiveCount": "1", "SentTimestamp": str(int(SENT_AT * 1000))}
    return {
        "messageId": f"id-{name}",
        "receiptHandle": f"handle-{name}",
        "body": name,
        "attributes": attributes if group is None else {**attributes, "MessageGroupId": group},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": "eu-west-1",
        **fields,
    }


def sqs(names: Iterable[str]) -> dict[str, Any]:
    return {"Records": [sqs_record(name) for name in names]}


def fifo(*names: str) -> dict[str, Any]:
    """The first letter of a name is its group."""
    return {"Records": [sqs_record(name, arn=FIFO, group=name[0]) for name in names]}


def kinesis(names: Iterable[str]) -> dict[str, Any]:
    """The sequence numbers are 1, 2, 3."""
    event = kinesis_event(*names)
    for number, record in enumerate(event["Records"], 1):
        record["kinesis"]["sequenceNumber"] = str(number)
        record["eventID"] = f"shardId-000000000000:{number}"
    return event


def dynamodb(names: Iterable[str]) -> dict[str, Any]:
    """The sequence numbers are 1, 2, 3."""
    event = dynamodb_stream_event(*[(None, {"name": name}) for name in names], key="name")
    for number, record in enumerate(event["Records"], 1):
        record["dynamodb"]["SequenceNumber"] = str(number)
        record["eventID"] = f"e{number}"
    return event


def kafka(**partitions: Iterable[str]) -> dict[str, Any]:
    """`p0=["a"]` is partition 0 of the topic `orders`. The offsets are 0, 1, 2."""
    places = [(name, int(partition[1:])) for partition, names in partitions.items() for name in names]
    return kafka_event(*[name for name, _ in places], partition=[number for _, number in places])


def by_name(record: Any) -> Message:
    """An identity for the records of every source."""
    match record:
        case {"messageId": _, "body": name} | {"dynamodb": {"NewImage": {"name": {"S": name}}}}:
            return Message(name, body=name)
        case {"kinesis": {"data": data}} | {"value": data}:
            name = base64.b64decode(data).decode()
            return Message(name, body=name)
        case _:
            raise ValueError(record)


def identifiers(response: dict[str, Any]) -> list[Any]:
    assert list(response) == ["batchItemFailures"]
    assert all(list(failure) == ["itemIdentifier"] for failure in response["batchItemFailures"])
    return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]


class Context:
    """The context of an invocation with `time_left()` seconds left."""

    def __init__(self, seconds_left: Callable[[], float]) -> None:
        self._seconds_left = seconds_left

    def get_remaining_time_in_millis(self) -> int:
        return int(self._seconds_left() * 1000)


class Clock:
    """A clock that a test sets."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def goes_on(self, seconds: float) -> None:
        self.now += seconds

    def until(self, end: float) -> Context:
        """The context of an invocation that ends at this time."""
        return Context(lambda: end - self.now)


def apply(message: Message) -> Outcome:
    return Applied(message)


class Shop:
    """Remembers what it was given, and fails on names that end in `!`."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, message: Message) -> Outcome:
        self.names.append(message.id)
        if message.id.endswith("!"):
            raise ValueError(message.id)
        return Applied(message)


def letter(message: Message) -> str:
    """The group: `a` of `a1`."""
    return message.id[0]


class GroupShop:
    """Remembers what each call was given, and answers Applied, or Duplicate to a message that was applied before."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, messages: list[Message]) -> list[BeginOutcome]:
        with self._lock:
            self.calls.append(" ".join(message.id for message in messages))
            return [self.apply(message) for message in messages]

    def apply(self, message: Message) -> BeginOutcome:
        outcome = Duplicate(message) if message.id in self._seen else Applied(message)
        self._seen.add(message.id)
        return outcome


def refuse(record: Any) -> Message:
    raise InvalidMessage("no key")


def make_payment(name: str) -> dict[str, Any]:
    """Return the arguments of `update_item` for a payment of an order that exists."""
    return {
        "Key": {"orderId": name},
        "UpdateExpression": "ADD paid :one",
        "ConditionExpression": "attribute_exists(orderId)",
        "ExpressionAttributeValues": {":one": 1},
    }
