"""What a message costs in requests, counted on the wire."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

import pytest
from pymongo import MongoClient
from pymongo.collection import Collection

from onewrite import Applied, Deferred, Duplicate, InSequence, Message, Missing, Outcome, Rejected, SeenIds, Stale
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import dynamo_client
from tests.engines.ledgers import LEDGERS, AnyLedger
from tests.engines.stores import addition, addition_of, increment, increment_of
from tests.support.mongo_proxy import MongoProxy
from tests.support.pages import ROOT
from tests.support.proxy import FaultProxy

Delivery: TypeAlias = tuple[str, int]  # a way to write, and the number of a message
Ways: TypeAlias = dict[str, Callable[[Message], Outcome]]


class Case(NamedTuple):
    """`most`: the requests of the last delivery, on DynamoDB and on MongoDB. `counted`: where the ledger counts the refusal, too."""

    deliveries: list[Delivery]
    outcome: type[Outcome]
    most: tuple[int, int]
    counted: tuple[int, int] | None = None


CASES: dict[str, Case] = {
    "fresh": Case([("upsert", 1)], Applied, (1, 1)),
    "duplicate": Case([("upsert", 1), ("upsert", 1)], Duplicate, (1, 2)),
    "duplicate of a creation": Case([("create", 1), ("create", 1)], Duplicate, (1, 2)),
    "rejected creation": Case([("create", 1), ("create", 2)], Rejected, (1, 4)),
    "missing": Case([("update", 1)], Missing, (1, 2)),
    # On MongoDB the last one tells a refusal from a document made meanwhile.
    "rejected": Case([("upsert", 1), ("refused", 2)], Rejected, (1, 3), counted=(2, 6)),
    # A condition that fails looks like a lost creation, or like a gap that was just filled: the write goes out again.
    "rejected upsert": Case([("upsert", 1), ("refused upsert", 2)], Rejected, (1, 5), counted=(2, 6)),
    "rejected batch of three": Case([("upsert", 1), ("refused batch", 2)], Rejected, (4, 11), counted=(7, 22)),
}
OF_A_SEQUENCE: dict[str, Case] = {
    "stale": Case([("upsert", 1), ("upsert", 2), ("upsert", 1)], Stale, (1, 2)),
    "deferred": Case([("upsert", 1), ("upsert", 5)], Deferred, (1, 2)),
}
# The rows of docs/ledgers.md that one message with one store can show: exactly so many requests on DynamoDB and on MongoDB.
LEDGERS_PAGE = (ROOT / "docs" / "ledgers.md").read_text()
COST_ROWS = {
    row: (int(one), int(other))
    for row, one, other in re.findall(r"^\| ([^|]+) \| (\d) \| (\d) \|$", LEDGERS_PAGE, re.MULTILINE)
}
COST_CASES: dict[str, tuple[AnyLedger, list[Delivery]]] = {
    "a new message": (SeenIds(), [("upsert", 1)]),
    "a duplicate": (SeenIds(), [("upsert", 1), ("upsert", 1)]),
    "a refusal by your condition": (SeenIds(), [("upsert", 1), ("refused", 2)]),
    "the same with `InSequence` and `rejected_ok=True`": (InSequence(), [("upsert", 1), ("refused", 2)]),
    "an external effect: `begin_effect` and finish": (SeenIds(), [("upsert", 1), ("effect", 2)]),
    "ten messages with `update_batch`": (SeenIds(), [("upsert", 1), ("ten", 2)]),
}
REFUSED: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(n)", "rejected_ok": True}
EFFECT: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(hours=1)}


def three_from(first: Message) -> list[Message]:
    n = int(first.sequence or 0)
    return [Message(f"m-{each}", source="s", sequence=each) for each in range(n, n + 3)]


def of_table(store: GuardedTable) -> Ways:
    def add(message: Message, **native: Any) -> Outcome:
        return store.update_item(message, **addition(message, "e"), **native)

    def refused(fresh: list[Message]) -> dict[str, Any]:
        return {**addition(fresh[0], "e"), **REFUSED}

    return {
        "upsert": add,
        "update": lambda message: add(message, ConditionExpression="attribute_exists(n)"),
        "refused": lambda message: add(message, **REFUSED),
        "refused upsert": lambda message: add(message, **REFUSED),
        "create": lambda message: store.put_item(message, Item={"id": "e", "n": 1}),
        "effect": lambda message: store.perform_effect(
            message, "charge", lambda _: None, Key={"id": "e"}, then=lambda _: {"UpdateExpression": "REMOVE x"}, **EFFECT
        ),
        "ten": lambda message: store.update_batch(ten(message), lambda fresh: addition_of([each.id for each in fresh], "e"))[
            0
        ],
        "refused batch": lambda message: store.update_batch(three_from(message), refused)[2],
    }


def of_collection(store: GuardedCollection) -> Ways:
    def add(message: Message, *, upsert: bool, **condition: Any) -> Outcome:
        return store.update_one(message, {"_id": "e", **condition}, increment(message), upsert=upsert, rejected_ok=True)

    def refused(fresh: list[Message]) -> dict[str, Any]:
        return {"filter": {"_id": "e", "n": 7}, "update": increment(fresh[0]), "rejected_ok": True}

    return {
        "upsert": lambda message: add(message, upsert=True),
        "update": lambda message: add(message, upsert=False),
        "refused": lambda message: add(message, upsert=False, n=7),
        "refused upsert": lambda message: add(message, upsert=True, n=7),
        "create": lambda message: store.insert_one(message, {"_id": "e", "n": 1}),
        "effect": lambda message: store.perform_effect(
            message, "charge", lambda _: None, {"_id": "e"}, then=lambda _: {"update": {"$unset": {"x": ""}}}, **EFFECT
        ),
        "ten": lambda message: store.update_batch(
            ten(message), lambda fresh: {"filter": {"_id": "e"}, "update": increment_of([each.id for each in fresh])}
        )[0],
        "refused batch": lambda message: store.update_batch(three_from(message), refused)[2],
    }


def ten(message: Message) -> list[Message]:
    return [Message(f"{message.id}/{n}") for n in range(10)]


@pytest.fixture
def table_ways(fault_proxy: FaultProxy, table: str) -> Iterator[Callable[[AnyLedger], Ways]]:
    client = dynamo_client(fault_proxy.endpoint)
    yield lambda ledger: of_table(GuardedTable(client, ledger, table_name=table))
    client.close()


@pytest.fixture
def collection_ways(
    mongo_proxy: MongoProxy, collection: Collection[dict[str, Any]]
) -> Iterator[Callable[[AnyLedger], Ways]]:
    with MongoClient[dict[str, Any]](mongo_proxy.uri) as client:
        yield lambda ledger: of_collection(GuardedCollection(client.test[collection.name], ledger))


@pytest.mark.parametrize(
    ("ledger", "case"),
    [
        pytest.param(ledger, case, id=f"{name}-{what}")
        for name, ledger in LEDGERS.items()
        for what, case in (CASES | OF_A_SEQUENCE if isinstance(ledger, InSequence) else CASES).items()
    ],
)
@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
def test_message_needs_at_most_the_expected_requests(
    request: pytest.FixtureRequest, engine: str, ledger: AnyLedger, case: Case
) -> None:
    outcome, requests = deliver(request, engine, ledger, case.deliveries)
    most = case.counted if case.counted and isinstance(ledger, InSequence) else case.most
    assert isinstance(outcome, case.outcome)
    assert 1 <= requests <= most[engine == "mongodb"]


@pytest.mark.parametrize("row", COST_CASES)
@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
def test_ledgers_page_states_the_number_of_requests(request: pytest.FixtureRequest, engine: str, row: str) -> None:
    _, requests = deliver(request, engine, *COST_CASES[row])
    assert requests == COST_ROWS[row][engine == "mongodb"]


def deliver(
    request: pytest.FixtureRequest, engine: str, ledger: AnyLedger, deliveries: list[Delivery]
) -> tuple[Outcome | None, int]:
    """Make the deliveries, and return the last outcome and its number of requests."""
    place, proxy = {"dynamodb": ("table_ways", "fault_proxy"), "mongodb": ("collection_ways", "mongo_proxy")}[engine]
    ways: Ways = request.getfixturevalue(place)(ledger)
    operations: list[str] = request.getfixturevalue(proxy).operations
    outcome: Outcome | None = None
    for way, n in deliveries:
        operations.clear()
        outcome = ways[way](Message(f"m-{n}", source="s", sequence=n))
    return outcome, len(operations)
