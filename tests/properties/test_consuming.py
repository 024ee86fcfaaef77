"""The documentation's table of ledgers for consumers of events, row by row and broker by broker: any order that the broker may give,
with copies, of the very records that it makes of what a relay publishes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from onewrite import Deferred, Event, HighWaterMark, InSequence, Message, Outbox, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.identity import cloudevent, eventbridge, sns
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay, to_eventbridge, to_sns, to_sqs
from onewrite.testing import kinesis_event, mongomock_collection, sqs_event
from tests.support.examples import examples

ENTITIES, EVENTS = 3, 4
LEDGERS: dict[str, Ledger] = {
    "InSequence()": InSequence(),
    "HighWaterMark()": HighWaterMark(),
    "SeenIds()": SeenIds(),
}

Record = dict[str, Any]
Publish = Callable[[list[Outgoing]], list[Outgoing]]


@dataclass(frozen=True)
class Broker:
    """`name` is what the documentation's table calls it. `open` gives a publisher, and a function that takes the queue's records."""

    name: str
    identity: Callable[[Record], Any]
    open: Callable[[], tuple[Publish, Callable[[], list[Record]]]]

    @property
    def keeps_order(self) -> bool:
        return "FIFO" in self.name or self.name == "a stream"


def _queue(name: str) -> tuple[Any, str, str]:
    sqs: Any = boto3.client("sqs", region_name="eu-west-1")
    attributes = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    url = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return sqs, url, sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def _records(sqs: Any, url: str) -> Iterator[Record]:
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", []):
        for each in messages:
            yield from sqs_event(each["Body"], ids=[each["MessageId"]])["Records"]
            sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])


def _straight(suffix: str = "") -> tuple[Publish, Callable[[], list[Record]]]:
    sqs, url, _ = _queue(f"orders{suffix}")
    return to_sqs(sqs, url), lambda: [*_records(sqs, url)]


def _topic(suffix: str = "", raw: str = "false") -> tuple[Publish, Callable[[], list[Record]]]:
    sqs, url, arn = _queue(f"orders{suffix}")
    topics: Any = boto3.client("sns", region_name="eu-west-1")
    topic = topics.create_topic(Name=f"orders{suffix}", Attributes={"FifoTopic": "true"} if suffix else {})["TopicArn"]
    topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": raw})
    return to_sns(topics, topic), lambda: [*_records(sqs, url)]


def _bus() -> tuple[Publish, Callable[[], list[Record]]]:
    sqs, url, arn = _queue("orders")
    events: Any = boto3.client("events", region_name="eu-west-1")
    events.put_rule(Name="all", EventPattern=json.dumps({"source": ["shop"]}))
    events.put_targets(Rule="all", Targets=[{"Id": "1", "Arn": arn}])
    return to_eventbridge(events, "default", source="shop"), lambda: [*_records(sqs, url)]


def _stream() -> tuple[Publish, Callable[[], list[Record]]]:
    """Any function publishes: here to a stream, whose partition key is the event's source."""
    records: list[Record] = []

    def publish(events: list[Outgoing]) -> list[Outgoing]:
        for event in events:
            records.extend(
                kinesis_event(event.cloudevent(), partition_key=event.source, sequence=len(records) + 1)["Records"]
            )
        return []

    return publish, lambda: records


BROKERS = [
    Broker("a standard queue", cloudevent(), _straight),
    Broker("a FIFO queue", cloudevent(), lambda: _straight(".fifo")),
    Broker("a standard topic", sns(cloudevent()), _topic),
    Broker("a standard topic", cloudevent(), lambda: _topic(raw="true")),
    Broker("a FIFO topic with FIFO queues", sns(cloudevent()), lambda: _topic(".fifo")),
    Broker("EventBridge", eventbridge(cloudevent()), _bus),
    Broker("a stream", cloudevent(), _stream),
]
KEEPING_ORDER = [broker for broker in BROKERS if broker.keeps_order]
OTHERS = [broker for broker in BROKERS if not broker.keeps_order]
# The rows of the documentation's table, with the brokers that are meant and the ledgers that it names.
ROWS: dict[str, tuple[list[Broker], list[str]]] = {
    "a FIFO queue, a FIFO topic with FIFO queues, or a stream, from each entity's first event on": (
        KEEPING_ORDER,
        ["InSequence()"],
    ),
    "the same, from a later event on": (KEEPING_ORDER, ["HighWaterMark()"]),
    "a standard queue or topic, or EventBridge": (OTHERS, ["SeenIds()", "InSequence()"]),
    "any of these, if many entities feed one consumer entity": (BROKERS, ["SeenIds()"]),
}
CASES = [
    pytest.param(broker, row, ledger, id=f"{broker.name}{n}-{row}-{ledger}")
    for row, (brokers, named) in ROWS.items()
    for n, broker in enumerate(brokers)
    for ledger in named
]


@cache
def _read_behind(broker: Broker) -> list[Message]:
    """All events of some entities, as a relay publishes them and a consumer reads them behind that broker."""
    with mock_aws(), mongomock_collection("orders") as collection:
        publish, records = broker.open()
        orders = GuardedCollection(collection, SeenIds(), outbox=Outbox("shop/orders"))
        for n in range(EVENTS):
            for entity in range(ENTITIES):
                event = Event("Added", [entity, n + 1])
                orders.update_one(Message(f"{entity}-{n}"), {"_id": entity}, {"$inc": {"n": 1}}, upsert=True, emit=[event])
        Relay(orders, publish).sweep()
        found = [broker.identity(record) for record in records()]
    return sorted(found, key=lambda message: (message.sequence, message.source))


@st.composite
def _deliveries(draw: st.DrawFn, *, ordered: bool) -> list[int]:
    """Which event is delivered when, by its place: each at least once. A broker that keeps order has first copies in order."""
    total = ENTITIES * EVENTS
    copies = draw(st.lists(st.integers(0, total - 1), max_size=8))
    if not ordered:
        return draw(st.permutations([*range(total), *copies]))
    order = [*range(total)]
    for copy in copies:  # a copy comes anywhere behind the first
        order.insert(draw(st.integers(order.index(copy) + 1, len(order))), copy)
    return order


def test_documented_table_has_the_tested_rows() -> None:
    page = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
    table = page.partition("| Events arrive through | Ledger |\n|---|---|\n")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", table, re.MULTILINE))
    assert {row: re.findall(r"`(\w+\(\))`", cell) for row, cell in rows.items()} == {
        row: ledgers for row, (_, ledgers) in ROWS.items()
    }


@pytest.mark.parametrize(("broker", "row", "ledger"), CASES)
@settings(max_examples=examples(40), deadline=None)
@given(data=st.data())
@pytest.mark.few(8)
def test_consumer_sees_each_event_once_in_its_rows_order(broker: Broker, row: str, ledger: str, data: st.DataObject) -> None:
    events = _read_behind(broker)
    order = data.draw(_deliveries(ordered=broker.keeps_order))
    # From a later event on: what came first was never delivered here.
    first = 2 if "from a later event" in row else 1
    seen = _consumed([events[place] for place in order if _number(events[place]) >= first], LEDGERS[ledger])
    expected = [[entity, n] for entity in range(ENTITIES) for n in range(first, EVENTS + 1)]
    assert sorted(seen) == expected
    if not ledger.startswith("Seen"):
        assert sorted(seen, key=lambda body: body[0]) == expected  # sorting keeps the order within an entity


def _number(message: Message) -> int:
    assert isinstance(message.sequence, int)
    return message.sequence


def _consumed(events: Sequence[Message], ledger: Ledger) -> list[Any]:
    """What one consumer's entity has noted, once the broker has nothing left to deliver."""
    with mongomock_collection("history") as collection:
        history, waiting = GuardedCollection(collection, ledger), [*events]
        while waiting:
            waiting = [message for message in waiting if not _settled(history, message)]
        return [*(collection.find_one({"_id": 1}) or {}).get("noted", [])]


def _settled(history: GuardedCollection, message: Message) -> bool:
    outcome = history.update_one(message, {"_id": 1}, {"$push": {"noted": message.body}}, upsert=True)
    assert isinstance(outcome, Deferred) or outcome.settled
    return outcome.settled
