"""A relay's sweep over a backlog, against a loop by hand that makes the same calls to the database and to the broker.

The broker takes two milliseconds for each call of ten events. A ratio of the throughput is ours by theirs, so more is better. A ratio
of the processor's time is of this process, so less is better.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from boto3.dynamodb.types import TypeDeserializer
from pymongo import MongoClient

from onewrite import Event, Message, Outbox, SeenIds
from onewrite.core.label import OUTBOX, TOMBSTONE
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.benchmarks.measure import Plan, Row
from tests.engines.stores import create_table_with_outbox

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_ENTITIES = 100
_EVENTS = 20  # of each entity
_TURNS = 5
_BATCH = 10
_CALL = 0.002  # seconds of a call to the broker
_TABLE = "orders-of-the-relay"
_OUTBOX = Outbox("shop/orders", index="pending")


class _Took(NamedTuple):
    seconds: float
    processor: float


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # a turn is a whole backlog
    with Mongod() as mongod, MongoClient[dict[str, Any]](mongod.uri) as mongo:
        documents = GuardedCollection(mongo.shop.orders, SeenIds(), outbox=_OUTBOX)
        mongo.shop.orders.create_index([("ow_due", 1)], sparse=True)
        yield from _compare(
            "mongod",
            lambda turn: _fill_collection(documents, turn),
            Relay(documents, _publish),
            _by_hand(documents.outboxes.target),
        )
    with Dynoxide() as dynoxide:
        client = dynoxide.client()
        create_table_with_outbox(client, _TABLE)
        table = GuardedTable(client, SeenIds(), table_name=_TABLE, outbox=_OUTBOX)
        yield from _compare(
            "dynoxide", lambda turn: _fill_table(table, turn), Relay(table, _publish), _by_hand_on_dynamodb(client)
        )
        client.close()


def _publish(events: list[Outgoing]) -> None:
    for event in events:
        event.cloudevent()
    time.sleep(_CALL)


def _compare(engine: str, fill: Callable[[int], None], relay: Relay, by_hand: Callable[[], int]) -> Iterator[Row]:
    ratios: list[_Took] = []
    for turn in range(_TURNS):
        fill(2 * turn)
        ours = _measure(lambda: relay.sweep().published)
        fill(2 * turn + 1)
        theirs = _measure(by_hand)
        ratios.append(_Took(theirs.seconds / ours.seconds, ours.processor / theirs.processor))
    for name, values in (
        ("throughput", [took.seconds for took in ratios]),
        ("processor's time", [took.processor for took in ratios]),
    ):
        yield Row(
            f"a relay's sweep, {name}, {engine}", "a loop by hand", statistics.median(values), min(values), max(values)
        )


def _measure(publish_all: Callable[[], int]) -> _Took:
    seconds, processor = time.perf_counter(), time.process_time()
    count = publish_all()
    took = _Took(time.perf_counter() - seconds, time.process_time() - processor)
    assert count == _ENTITIES * _EVENTS
    return took


def _emit(turn: int) -> list[Event]:
    return [Event("Paid", {"cents": 1250}, name=f"{turn}-{number}") for number in range(_EVENTS)]


def _fill_collection(documents: GuardedCollection, turn: int) -> None:
    for entity in range(_ENTITIES):
        message = Message(f"m{turn}-{entity}")
        documents.update_one(message, {"_id": f"e{entity}"}, {"$set": {"n": turn}}, upsert=True, emit=_emit(turn))


def _fill_table(table: GuardedTable, turn: int) -> None:
    for entity in range(_ENTITIES):
        update: Any = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": turn}}
        table.update_item(Message(f"m{turn}-{entity}"), Key={"id": f"e{entity}"}, emit=_emit(turn), **update)


@dataclass(slots=True)
class _Lane:
    """An entity of the loop by hand: its key, its events, the number of them that were sent, and the fields to clear it with."""

    key: Any
    events: list[Any]
    sent: int
    life: str
    done: int = 0


def _publish_by_hand(lanes: Iterator[_Lane], clear: Callable[[_Lane], None]) -> int:
    """Publish the next event of ten entities together, and clear an entity after its last event."""
    open_lanes, count = list[_Lane](), 0
    while True:
        open_lanes += itertools.islice(lanes, _BATCH - len(open_lanes))
        if not open_lanes:
            return count
        for lane in open_lanes:
            event, number = lane.events[lane.done], lane.sent + lane.done + 1
            source = f"shop/orders/{lane.key}/{lane.life}"
            head = {"specversion": "1.0", "id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{source}{number}")), "source": source}
            head |= {"type": event["type"], "time": event["time"], "datacontenttype": "application/json"}
            head |= {"sequence": str(number), "sequencetype": "Integer", "causationid": event["cause"]}
            json.dumps({**head, "data": json.loads(event["body"])})
            lane.done += 1
        time.sleep(_CALL)
        count += len(open_lanes)
        for lane in open_lanes:
            if lane.done == len(lane.events):
                clear(lane)
        open_lanes = [lane for lane in open_lanes if lane.done < len(lane.events)]


def _by_hand(orders: Any) -> Callable[[], int]:
    fields = dict.fromkeys((*OUTBOX, TOMBSTONE), 1)

    def find() -> Iterator[_Lane]:
        for found in orders.find({"ow_due": {"$exists": True}}, {"_id": 1, "ow_due": 1}, sort=[("ow_due", 1)]):
            document = orders.find_one({"_id": found["_id"]}, fields)
            events = document["ow_events"]
            yield _Lane(found["_id"], events, document.get("ow_sent", 0), document.get("ow_life", events[0]["nonce"]))

    def clear(lane: _Lane) -> None:
        last = len(lane.events) - 1
        query = {"_id": lane.key, f"ow_events.{last}.nonce": lane.events[last]["nonce"], "ow_events": {"$size": last + 1}}
        counts = {"ow_sent": lane.sent + lane.done, "ow_life": lane.life}
        assert orders.update_one(query, {"$set": counts, "$unset": {"ow_events": "", "ow_due": ""}}).matched_count

    return lambda: _publish_by_hand(find(), clear)


def _by_hand_on_dynamodb(client: DynamoDBClient) -> Callable[[], int]:
    read: Any = {"TableName": _TABLE, "ConsistentRead": True, "ProjectionExpression": ",".join((*OUTBOX, TOMBSTONE))}
    change: Any = {
        "TableName": _TABLE,
        "UpdateExpression": "SET ow_sent=:sent,ow_life=:life REMOVE ow_events,ow_due,ow_shard",
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    plain = TypeDeserializer().deserialize

    def find() -> Iterator[_Lane]:
        for page in client.get_paginator("scan").paginate(TableName=_TABLE, IndexName="pending"):
            for found in page["Items"]:
                item = client.get_item(Key={"id": found["id"]}, **read)["Item"]
                events = plain(item["ow_events"])
                yield _Lane(
                    found["id"],
                    events,
                    int(item.get("ow_sent", {"N": "0"})["N"]),
                    item.get("ow_life", {"S": events[0]["nonce"]})["S"],
                )

    def clear(lane: _Lane) -> None:
        last = len(lane.events) - 1
        values: Any = {":sent": {"N": str(lane.sent + lane.done)}, ":life": {"S": lane.life}, ":count": {"N": str(last + 1)}}
        values |= {":nonce": {"S": lane.events[last]["nonce"]}}
        condition = f"ow_events[{last}].nonce=:nonce AND size(ow_events)=:count"
        client.update_item(Key={"id": lane.key}, ConditionExpression=condition, ExpressionAttributeValues=values, **change)

    return lambda: _publish_by_hand(find(), clear)
