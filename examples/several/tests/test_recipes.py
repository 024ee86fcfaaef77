"""Each recipe, explored on stand-ins, and on engines with threads, lost requests and responses, and killed processes."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import mongomock
import pymongo
import pytest
from botocore.exceptions import ClientError
from pymongo import MongoClient, common
from pymongo.errors import PyMongoError

from onewrite import Applied, Duplicate, Message, Outcome, Rejected
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import json_body
from onewrite.testing import Faults, explore, moto_table, sqs_event
from onewrite.testing.servers.engines import dynamo_resource
from several import processed_dynamodb, processed_mongodb, transfer_dynamodb, transfer_mongodb
from tests.engines.stores import billed
from tests.support.engines import mongod_binary, require
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault, FaultProxy
from tests.support.replica_set import ReplicaSet

NOW = 1_790_000_000.0
numbers = itertools.count()
Stores = Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """`writes`: the requests of a message that change something. `names`: the stores, of which the first has the sums."""

    module: Any
    engine: str
    names: tuple[str, ...]
    writes: tuple[str, ...]

    @property
    def transfers(self) -> bool:
        return len(self.names) == 1

    def build(self, stores: Stores) -> Callable[[Message], Outcome]:
        ordered = [stores[name] for name in self.names]
        handle: Callable[[Message], Outcome]
        if self.transfers:
            handle = self.module.make_transfer(*ordered)
        else:
            handle = self.module.make_counter(*ordered, clock=lambda: NOW)
        return handle

    def fill(self, stores: Stores) -> Stores:
        store = stores[self.names[0]]
        for name, cents in {"ann": 500, "bob": 0}.items() if self.transfers else [("total", 0)]:
            if self.engine == "mongod":
                store.insert_one({"_id": name, "cents": cents})
            else:
                store.put_item(Item={"id": name, "cents": cents})
        return stores

    def make_stand_ins(self) -> Stores:
        shop: Any = mongomock.MongoClient().shop
        return self.fill({name: shop[name] if self.engine == "mongod" else moto_table(name, "id") for name in self.names})

    def sums(self, stores: Stores) -> list[int]:
        store = stores[self.names[0]]
        found = store.find() if self.engine == "mongod" else store.scan(ConsistentRead=True)["Items"]
        return [int(cents) for _, cents in sorted((str(each.get("_id", each.get("id"))), each["cents"]) for each in found)]

    def expect(self, cents: int) -> list[int]:
        """Return the sums after messages of so many cents in all."""
        return [500 - cents, cents] if self.transfers else [cents]


RECIPES = {
    "transfer-dynamodb": Recipe(transfer_dynamodb, "dynoxide", ("accounts",), ("TransactWriteItems",)),
    "transfer-mongodb": Recipe(transfer_mongodb, "mongod", ("accounts",), ("update", "update", "commitTransaction")),
    "processed-dynamodb": Recipe(processed_dynamodb, "dynoxide", ("totals", "processed"), ("TransactWriteItems",)),
    "processed-mongodb": Recipe(
        processed_mongodb, "mongod", ("totals", "processed"), ("insert", "update", "commitTransaction")
    ),
}
TRANSFERS = [name for name in RECIPES if name.startswith("transfer")]


def body(cents: int, giver: str = "ann", taker: str = "bob") -> dict[str, Any]:
    return {"cents": cents, "from": giver, "to": taker}


def command(name: str, cents: int, giver: str = "ann", taker: str = "bob") -> Message:
    return Message(name, body=body(cents, giver, taker))


@pytest.fixture(params=RECIPES)
def recipe(request: pytest.FixtureRequest) -> Recipe:
    return RECIPES[request.param]


@pytest.fixture
def server(recipe: Recipe, start_engine: Callable[[str], Any]) -> Any:
    return start_engine(recipe.engine)


@pytest.fixture
def stores(recipe: Recipe, server: Any) -> Stores:
    number = next(numbers)
    if recipe.engine == "mongod":
        return recipe.fill({name: server.collection(f"{name}-{number}") for name in recipe.names})
    return recipe.fill({name: server.table(f"{name}-{number}", "id") for name in recipe.names})


# --- explored -----------------------------------------------------------------------------------------------------------


MESSAGES = [command("t-1", 100), command("t-2", 50, "bob", "ann")]
NO_FAULTS = {"deliveries": 1, "faults": 0}  # with faults, two transactions on MongoDB have too many schedules
EXPLORED = [
    pytest.param({"concurrency": 1}, 1, id="alone"),
    pytest.param(NO_FAULTS, 2, id="two messages"),
    pytest.param({}, 1, id="two deliveries", marks=pytest.mark.slow),
    pytest.param({"concurrency": 1}, 2, id="two messages with faults", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("bounds", "count"), EXPLORED)
def test_recipe_is_effectively_once_in_every_schedule(recipe: Recipe, bounds: dict[str, Any], count: int) -> None:
    invariant = (lambda stores: sum(recipe.sums(stores)) == 500) if recipe.transfers else None
    world, observe = recipe.make_stand_ins, recipe.sums
    report = explore(recipe.build, MESSAGES[:count], world, observe, invariant=invariant, **bounds)
    report.assert_effectively_once()
    assert report.exhausted


# --- on an engine -------------------------------------------------------------------------------------------------------


def test_each_message_is_applied_once_by_eight_threads(recipe: Recipe, stores: Stores) -> None:
    handle = recipe.build(stores)
    commands = [command(f"t-{n}", n % 5 + 1, *(("bob", "ann") if n % 4 == 3 else ())) for n in range(40)]
    outcomes: list[Outcome] = []

    def deliver(message: Message) -> None:
        settled = False
        while not settled:
            try:
                outcomes.append(handle(message))
                settled = outcomes[-1].settled
            except ClientError as error:  # the waits for a conflict are over
                if error.response["Error"]["Code"] != "TransactionCanceledException":
                    raise

    deliveries = commands * 3
    random.Random(7).shuffle(deliveries)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(deliver, deliveries))
    moved = sum([each.body["cents"] * (-1 if each.body["from"] == "bob" and recipe.transfers else 1) for each in commands])
    assert recipe.sums(stores) == recipe.expect(moved)
    assert sum(isinstance(outcome, Applied) for outcome in outcomes) == len(commands)


@contextmanager
def proxied(recipe: Recipe, server: Any, stores: Stores) -> Iterator[tuple[Any, Stores]]:
    """A proxy in front of the engine, and the stores as its clients see them."""
    with (MongoProxy if recipe.engine == "mongod" else FaultProxy)("127.0.0.1", server.port) as proxy:
        proxy.writes = frozenset(recipe.writes)
        if isinstance(proxy, MongoProxy):
            options: Any = {"serverSelectionTimeoutMS": 5000, "serverMonitoringMode": "poll"}
            with MongoClient[Any](proxy.uri, **options) as client:
                yield proxy, {name: client[store.database.name][store.name] for name, store in stores.items()}
        else:
            resource = dynamo_resource(proxy.endpoint, retries={"mode": "standard", "total_max_attempts": 3})
            yield proxy, {name: resource.Table(store.name) for name, store in stores.items()}
            resource.meta.client.close()


LOSSES = [Fault.DROP_REQUEST, Fault.DROP_ANSWER, Fault.RESET, Fault.ERROR_500_AFTER]
CASES = [
    pytest.param(name, place, fault, id=f"{name}-{place}-{fault.name}")
    for name, recipe in RECIPES.items()
    for place in range(len(recipe.writes))
    for fault in LOSSES
    if recipe.engine == "dynoxide" or fault is not Fault.ERROR_500_AFTER
]


@pytest.mark.parametrize(("recipe", "place", "fault"), CASES, indirect=["recipe"])
def test_message_is_applied_once_if_a_connection_fails(
    recipe: Recipe, server: Any, stores: Stores, place: int, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.005)
    with proxied(recipe, server, stores) as (proxy, reached):
        proxy.plan(*[Fault.PASS] * place, fault)
        handle = recipe.build(reached)
        assert isinstance(handle(command("t-1", 100)), Applied)
        assert proxy.past_faults == [fault]
        assert isinstance(handle(command("t-1", 100)), Duplicate)
    assert recipe.sums(stores) == recipe.expect(100)


WORKERS = {
    "mongod": "from pymongo import MongoClient; client = MongoClient({address!r}); stores = [client.test[name] for name in {names!r}]",
    "dynoxide": "from onewrite.testing.servers.engines import dynamo_resource; resource = dynamo_resource({address!r}); "
    "stores = [resource.Table(name) for name in {names!r}]",
}


@pytest.mark.slow
def test_message_is_applied_once_if_its_process_is_killed(recipe: Recipe, server: Any, stores: Stores) -> None:
    """The process is killed once the engine has done a request, before the process knows. The next delivery finds what is left."""
    names = [store.name for store in stores.values()]
    if recipe.engine == "mongod":  # the transaction of a killed process ends after this time
        stores[recipe.names[0]].database.client.admin.command("setParameter", 1, transactionLifetimeLimitSeconds=1)
    for place in range(len(recipe.writes)):
        with proxied(recipe, server, stores) as (proxy, _):
            address = proxy.uri if recipe.engine == "mongod" else proxy.endpoint
            code = [
                WORKERS[recipe.engine].format(address=address, names=names),
                f"import several.{recipe.module.__name__.split('.')[-1]} as recipe; from onewrite import Message",
                f"handle = recipe.{'make_transfer' if recipe.transfers else 'make_counter'}(*stores)",
                f"handle(Message('t-{place}', body={body(10)!r}))",
            ]
            process = subprocess.Popen([sys.executable, "-c", "\n".join(code)], env={"PYTHONPATH": ":".join(sys.path)})
            proxy.after_write = process.kill
            proxy.plan(*[Fault.PASS] * place, Fault.DROP_ANSWER)
            assert process.wait(60) == -9
        last = place == len(recipe.writes) - 1
        assert recipe.sums(stores) == recipe.expect(10 * (place + last))
        outcome = recipe.build(stores)(command(f"t-{place}", 10))
        assert isinstance(outcome, Duplicate if last else Applied)
        assert recipe.sums(stores) == recipe.expect(10 * (place + 1))


@pytest.mark.parametrize("recipe", ["transfer-dynamodb", "processed-dynamodb"], indirect=True)
@pytest.mark.parametrize("conflicts", [1, 3])
def test_message_is_applied_after_conflicts(recipe: Recipe, stores: Stores, conflicts: int) -> None:
    faults = Faults(stores)
    for _ in range(conflicts):
        faults.cancel_transaction(lambda request: request.method == "TransactWriteItems")
    handle = recipe.build(faults.store)
    assert isinstance(handle(command("t-1", 100)), Applied)
    faults.assert_all_used()
    assert recipe.sums(stores) == recipe.expect(100)


@pytest.mark.parametrize("recipe", ["transfer-dynamodb", "processed-dynamodb"], indirect=True)
def test_throttled_message_is_delivered_again(recipe: Recipe, stores: Stores) -> None:
    faults = Faults(stores)
    faults.throttle(1)
    handler = sqs_handler(json_body(id="id"))(recipe.build(faults.store))
    event = sqs_event({"id": "t-1", **body(100)})
    assert len(handler(event, None)["batchItemFailures"]) == 1
    assert recipe.sums(stores) == recipe.expect(0)
    assert handler(event, None) == {"batchItemFailures": []}
    assert recipe.sums(stores) == recipe.expect(100)


@pytest.mark.parametrize("recipe", ["transfer-dynamodb", "processed-dynamodb"], indirect=True)
def test_message_costs_four_units(recipe: Recipe, server: Any, stores: Stores) -> None:
    """As docs/several.md says."""
    client = stores[recipe.names[0]].meta.client
    with billed(client, "TransactWriteItems") as units:
        recipe.build(stores)(command("t-1", 100))
    assert sum(units) == 4


@pytest.mark.parametrize("recipe", TRANSFERS, indirect=True)
def test_refused_transfer_changes_neither_account_and_is_redelivered(recipe: Recipe, stores: Stores) -> None:
    handler = sqs_handler(json_body(id="id"))(recipe.build(stores))
    for refused in (body(501), body(1, "ann", "cid"), body(1, "cid", "bob")):
        assert len(handler(sqs_event({"id": "t-1", **refused}), None)["batchItemFailures"]) == 1
        assert recipe.sums(stores) == [500, 0]
    assert isinstance(recipe.build(stores)(command("t-2", 501)), Rejected)
    assert handler(sqs_event({"id": "t-1", **body(500)}), None) == {"batchItemFailures": []}
    assert recipe.sums(stores) == [0, 500]


@pytest.mark.parametrize("recipe", ["processed-mongodb"], indirect=True)
def test_message_without_a_total_is_not_remembered(recipe: Recipe, stores: Stores) -> None:
    stores["totals"].delete_one({"_id": "total"})
    with pytest.raises(LookupError):
        recipe.build(stores)(command("t-1", 100))
    recipe.fill(stores)
    assert isinstance(recipe.build(stores)(command("t-1", 100)), Applied)


def take_copies(recipe: Recipe, stores: Stores) -> dict[str, list[Any]]:
    is_mongo = recipe.engine == "mongod"
    return {name: [*store.find()] if is_mongo else store.scan()["Items"] for name, store in stores.items()}


def restore(recipe: Recipe, store: Any, copies: list[Any]) -> None:
    if recipe.engine == "mongod":
        store.delete_many({})
        store.insert_many(copies)
        return
    for item in store.scan()["Items"]:
        store.delete_item(Key={"id": item["id"]})
    for item in copies:
        store.put_item(Item=item)


@pytest.mark.parametrize("recipe", ["processed-dynamodb", "processed-mongodb"], indirect=True)
@pytest.mark.parametrize(("lag", "cents"), [(-1, 4 * 100 + 100), (0, 4 * 100), (1, 4 * 100 - 100)], ids=str)
def test_restored_total_is_right_with_messages_of_the_same_instant(
    recipe: Recipe, stores: Stores, lag: int, cents: int
) -> None:
    """`lag`: how many messages the restored table of processed messages has more than the total."""
    handle, copies = recipe.build(stores), list[dict[str, list[Any]]]()
    for number in range(4):
        handle(command(f"t-{number}", 100))
        copies.append(take_copies(recipe, stores))
    restore(recipe, stores["totals"], copies[1]["totals"])
    restore(recipe, stores["processed"], copies[1 + lag]["processed"])
    for number in range(4):
        handle(command(f"t-{number}", 100))
    assert recipe.sums(stores) == recipe.expect(cents)


@pytest.mark.slow
def test_duplicate_waits_for_a_majority() -> None:
    """A mark that only the primary has can be rolled back, so the message must not be settled yet."""
    require(mongod_binary)
    recipes = [RECIPES["transfer-mongodb"], RECIPES["processed-mongodb"]]
    message = command("t-1", 100)
    with ReplicaSet() as replica_set, MongoClient[Any](replica_set.uri) as client:
        places = [recipe.fill({name: client[str(n)][name] for name in recipe.names}) for n, recipe in enumerate(recipes)]
        for secondary in replica_set.members[1:]:
            secondary.follow(False)
        for recipe, stores in zip(recipes, places, strict=True):
            handle = recipe.build(stores)
            with pytest.raises(PyMongoError), pymongo.timeout(1):
                handle(message)  # committed, but only the primary has it
            assert recipe.sums(stores) == recipe.expect(100)
            with pytest.raises(PyMongoError), pymongo.timeout(1):
                handle(message)
        for secondary in replica_set.members[1:]:
            secondary.follow(True)
        for recipe, stores in zip(recipes, places, strict=True):
            assert isinstance(recipe.build(stores)(message), Duplicate)
