"""The client's processor time for a fresh message, beside the shortest guard by hand: one set, and one condition.

DynamoDB's answers come from a stub below botocore, MongoDB's from a real server. Processor time does not count what others do meanwhile, and the
least of many rounds counts: so the ratios hold on a loaded machine too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from time import process_time
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from pymongo import MongoClient

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Mongod, dynamo_client, dynamo_resource
from tests.benchmarks.measure import Plan, Row
from tests.benchmarks.speed_mongodb import DURABLE

_CALLS = 25  # in one timing
_UNREACHABLE = "http://127.0.0.1:1"
_ADD: dict[str, Any] = {"UpdateExpression": "ADD paid :cents", "ExpressionAttributeValues": {":cents": 1}}

Write = Callable[[int], object]


class _EmptyBody:
    """The body of an answer that says nothing."""

    def stream(self, **_: Any) -> Iterator[bytes]:
        yield b"{}"

    def read(self, *_: Any) -> bytes:
        return b"{}"


def _answer(request: Any, **_: Any) -> Any:
    return AWSResponse(request.url, 200, HTTPHeaders.from_dict({"content-length": "2"}), _EmptyBody())


def rows(plan: Plan) -> Iterator[Row]:
    yield from _dynamodb(plan)
    yield from _mongodb(plan)


def _dynamodb(plan: Plan) -> Iterator[Row]:
    client, table = dynamo_client(_UNREACHABLE), dynamo_resource(_UNREACHABLE).Table("orders")
    for sender in (client, table.meta.client):
        sender.meta.events.register("before-send.dynamodb.UpdateItem", _answer)
    ids = GuardedTable(client, SeenIds(), table_name="orders")
    of_table = GuardedTable(table, SeenIds())

    def set_by_hand(n: int) -> None:
        client.update_item(
            TableName="orders",
            Key={"id": {"S": "o"}},
            UpdateExpression="ADD paid :cents, seen :ids",
            ConditionExpression="NOT contains(seen, :id)",
            ExpressionAttributeValues={":cents": {"N": "1"}, ":ids": {"SS": [_id(n)]}, ":id": {"S": _id(n)}},
        )

    def set_by_hand_in_table(n: int) -> None:
        table.update_item(
            Key={"id": "o"},
            UpdateExpression="ADD paid :cents, seen :ids",
            ConditionExpression="NOT contains(seen, :id)",
            ExpressionAttributeValues={":cents": 1, ":ids": {_id(n)}, ":id": _id(n)},
        )

    duels: list[tuple[str, str, Write, Write]] = [
        (
            "SeenIds, client",
            "a set by hand",
            lambda n: ids.update_item(Message(_id(n)), Key={"id": "o"}, **_ADD),
            set_by_hand,
        ),
        (
            "SeenIds, Table",
            "a set by hand, Table",
            lambda n: of_table.update_item(Message(_id(n)), Key={"id": "o"}, **_ADD),
            set_by_hand_in_table,
        ),
    ]
    yield from _compare(duels, plan, 1.18)


def _mongodb(plan: Plan) -> Iterator[Row]:
    with Mongod() as server, MongoClient[dict[str, Any]](server.uri) as client:
        collection = client["shop"].orders
        durable = collection.with_options(write_concern=DURABLE)
        ids = GuardedCollection(collection, SeenIds())
        increment = {"$inc": {"paid": 1}}

        def array_by_hand(n: int) -> None:
            change = {**increment, "$push": {"seen": _id(n)}}
            durable.update_one({"_id": f"hand {n}", "seen": {"$ne": _id(n)}}, change, upsert=True)

        def guarded_ids(n: int) -> None:
            ids.update_one(Message(_id(n)), {"_id": f"ids {n}"}, increment, upsert=True)

        duels: list[tuple[str, str, Write, Write]] = [
            ("SeenIds, mongod", "an array by hand", guarded_ids, array_by_hand),
        ]
        yield from _compare(duels, plan, 1.25)


def _id(n: int) -> str:
    return f"{n:036d}"


def _compare(duels: list[tuple[str, str, Write, Write]], plan: Plan, target: float) -> Iterator[Row]:
    numbers = count(1)  # each message is a fresh one

    def took(write: Write) -> float:
        began = process_time()
        for _ in range(_CALLS):
            write(next(numbers))
        return (process_time() - began) / _CALLS

    rounds = max(plan.rounds // _CALLS, 2)
    for what, against, ours, theirs in duels:
        pairs = [(took(ours), took(theirs)) for _ in range(rounds)]
        half = rounds // 2
        ratios = [
            min(seconds for seconds, _ in part) / min(by_hand for _, by_hand in part)
            for part in (pairs, pairs[:half], pairs[half:])
        ]
        yield Row(what, f"{against}, processor", ratios[0], min(ratios), max(ratios), target=target)
