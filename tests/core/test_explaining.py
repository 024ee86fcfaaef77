"""`explain`: every call of a store shows what it would send first, and sends nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import boto3
import pytest
from bson.codec_options import CodecOptions, TypeDecoder, TypeRegistry
from pymongo import MongoClient

from onewrite import Begun, ConfigurationError, Event, InSequence, InvalidUpdate, Message, Outbox, SeenIds, Tombstones
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing import mongomock_collection, moto_table
from onewrite.testing.standins.stores import MakeTable
from tests.support.seams import name_calls

NOW = 1_790_000_000.0
M1, M2 = Message("m1", source="s", sequence=1), Message("m2", source="s", sequence=2)
KEY, ONE = {"orderId": "o-1"}, {"_id": "o-1"}
STEP: dict[str, Any] = {"lease": timedelta(minutes=1), "safe_for": timedelta(0)}
EMIT: dict[str, Any] = {"emit": [Event("Paid", 1)]}
BEGUN = Begun(M1, "key", "fence", NOW, NOW + 60, True, entity_key=KEY)
BEGUN_ONE = Begun(M1, "key", "fence", NOW, NOW + 60, True, entity_key=ONE)
MORE: dict[str, Any] = {"outbox": Outbox("shop"), "tombstones": Tombstones(timedelta(days=1)), "clock": lambda: NOW}
ADD: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
INC = {"$inc": {"n": 1}}

# The call, the method that it sends first, and what shows in the request.
OF_TABLES: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "update_item": (lambda store: store.update_item(M1, Key=KEY, **ADD), "update_item", "ADD n :n"),
    "emit": (lambda store: store.update_item(M1, Key=KEY, **ADD, **EMIT), "update_item", "Paid"),
    "finishes": (lambda store: store.update_item(M1, Key=KEY, **ADD, finishes=BEGUN), "update_item", "fence"),
    "put_item": (lambda store: store.put_item(M1, Item={**KEY, "n": 1}), "put_item", "'n': 1"),
    "delete_item": (lambda store: store.delete_item(M1, Key=KEY), "update_item", "ow_tombstone"),
    "record": (lambda store: store.record(M1, Key=KEY), "update_item", "o-1"),
    "begin": (lambda store: store.begin(M1, "charge", Key=KEY, **STEP), "update_item", "ow_step"),
    "perform": (lambda store: store.perform(M1, "charge", print, Key=KEY, then=dict, **STEP), "update_item", "ow_step"),
    "release": (lambda store: store.release(BEGUN), "update_item", "fence"),
    "fold": (lambda store: store.fold([M1, M2], lambda fresh: {"Key": KEY, **ADD}), "update_item", "ADD n :n"),
    "seen": (lambda store: store.seen(M1, Key=KEY), "get_item", "ConsistentRead"),
    "get_item": (lambda store: store.get_item(Key=KEY), "get_item", "o-1"),
    "open_steps": (lambda store: store.open_steps(Key=KEY), "get_item", "o-1"),
}
OF_COLLECTIONS: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "update_one": (lambda store: store.update_one(M1, ONE, INC), "update_one", "'$inc': {'n': 1}"),
    "a pipeline": (lambda store: store.update_one(M1, ONE, [{"$set": {"n": 1}}]), "update_one", "{'$set': {'n': 1}}"),
    "emit": (lambda store: store.update_one(M1, ONE, INC, **EMIT), "update_one", "Paid"),
    "finishes": (lambda store: store.update_one(M1, ONE, INC, finishes=BEGUN_ONE), "update_one", "fence"),
    "find_one_and_update": (lambda store: store.find_one_and_update(M1, ONE, INC), "find_one_and_update", "$inc"),
    "insert_one": (lambda store: store.insert_one(M1, {**ONE, "n": 1}), "insert_one", "'n': 1"),
    "delete_one": (lambda store: store.delete_one(M1, ONE), "update_one", "ow_tombstone"),
    "find_one_and_delete": (lambda store: store.find_one_and_delete(M1, ONE), "find_one_and_update", "ow_tombstone"),
    "record": (lambda store: store.record(M1, ONE), "update_one", "'upsert': True"),
    "begin": (lambda store: store.begin(M1, "charge", ONE, **STEP), "update_one", "ow_steps"),
    "perform": (lambda store: store.perform(M1, "charge", print, ONE, then=dict, **STEP), "update_one", "ow_steps"),
    "release": (lambda store: store.release(BEGUN_ONE), "update_one", "fence"),
    "fold": (lambda store: store.fold([M1, M2], lambda fresh: {"filter": ONE, "update": INC}), "update_one", "$inc"),
    "seen": (lambda store: store.seen(M1, ONE), "find_one", "o-1"),
    "find_one": (lambda store: store.find_one(ONE), "find_one", "o-1"),
    "open_steps": (lambda store: store.open_steps(ONE), "find_one", "o-1"),
}


@pytest.mark.parametrize("name", OF_TABLES)
@pytest.mark.parametrize("ledger", [SeenIds(), InSequence()], ids=["SeenIds", "InSequence"])
def test_a_call_of_a_table_shows_its_first_request_and_sends_nothing(name: str, ledger: Any) -> None:
    call, method, shown = OF_TABLES[name]
    with moto_table() as table:
        told = GuardedTable(table, ledger, **MORE).explain(call)
        assert table.scan()["Items"] == []
        client: Any = table.meta.client
        asynchronous: Any = AsyncGuardedTable(_awaited(client, "update_item"), ledger, table_name="orders", **MORE)
        assert list(asynchronous.explain(call)) == [method]
    assert list(told) == [method]
    assert shown in str(told)


@pytest.mark.parametrize("name", OF_COLLECTIONS)
@pytest.mark.parametrize("key", [(), ("email",)], ids=["_id", "key"])
def test_a_call_of_a_collection_shows_its_first_request_and_sends_nothing(name: str, key: Any) -> None:
    call, method, shown = OF_COLLECTIONS[name]
    with mongomock_collection() as collection:
        told = GuardedCollection(collection, SeenIds(readable=True), key=key, **MORE).explain(call)
        assert [*collection.find()] == []
    with mongomock_collection(asynchronous=True) as later:
        assert list(AsyncGuardedCollection(later, SeenIds(readable=True), key=key, **MORE).explain(call)) == [method]
    assert list(told) == [method]
    assert shown in str(told)


def _awaited(client: Any, method: str) -> Any:
    """As asynchronous as is looked at."""

    async def awaited(**_: Any) -> None:
        raise AssertionError("nothing is sent")

    return type("Client", (), {method: staticmethod(awaited)})()


def test_what_is_explained_is_what_is_sent() -> None:
    with moto_table():
        sent: list[Any] = []
        client = boto3.client("dynamodb", region_name="eu-west-1")
        client.meta.events.register("before-parameter-build.dynamodb.*", lambda params, **_: sent.append(dict(params)))
        store = name_calls(GuardedTable(client, SeenIds(), table_name="orders", clock=lambda: NOW), lambda: "a")
        for call in (OF_TABLES[name][0] for name in ("update_item", "record", "begin", "seen", "get_item")):
            told = store.explain(call)
            sent.clear()
            call(store)
            assert [*told.values()] == sent[:1]


def test_explaining_teaches_a_store_nothing() -> None:
    with mongomock_collection() as collection:
        store = GuardedCollection(collection, SeenIds(), key=("email",), clock=lambda: NOW)
        store.explain(lambda each: each.update_one(M1, {"email": "a@b"}, INC, upsert=True))
        with pytest.raises(ConfigurationError, match="only under a unique index"):
            store.update_one(M1, {"email": "a@b"}, INC, upsert=True)


@pytest.mark.parametrize("name", ["seen", "open_steps"])
def test_a_read_of_a_client_with_types_of_its_own_is_shown_and_not_sent(name: str) -> None:
    call, method, shown = OF_COLLECTIONS[name]

    class AsText(TypeDecoder):
        bson_type = int

        def transform_bson(self, value: int) -> str:
            return str(value)

    codec: CodecOptions[Any] = CodecOptions(type_registry=TypeRegistry([AsText()]))
    with MongoClient[dict[str, Any]]("localhost:1", serverSelectionTimeoutMS=1) as client:  # where no server is
        store = GuardedCollection(client.shop.get_collection("orders", codec_options=codec), SeenIds())
        request = store.explain(call)
    assert list(request) == [method]
    assert shown in str(request)


def test_a_wrong_call_is_refused_as_it_is_refused_elsewhere() -> None:
    with moto_table() as table:
        store: Any = GuardedTable(table, SeenIds())
        with pytest.raises(InvalidUpdate, match="Key is a str"):
            store.explain(lambda each: each.update_item(M1, Key="o-1", **ADD))
        with pytest.raises(ConfigurationError, match="or a function of the store, and got a str"):
            store.explain("update_item")
        with pytest.raises(ConfigurationError, match="This call sends nothing to the store"):
            store.explain(lambda each: each.without_ledger({}))


def test_a_message_and_what_follows_it_is_the_update_or_the_put_that_would_be_sent(moto_table: MakeTable) -> None:
    orders, stock = GuardedTable(moto_table("explained"), SeenIds()), GuardedCollection(mongomock_collection(), SeenIds())
    assert "ADD n :n" in orders.explain(M1, Key=KEY, **ADD)["UpdateExpression"]
    assert orders.explain(M1, Item={**KEY, "n": 1})["Item"]["n"] == 1
    request = stock.explain(M1, ONE, INC, upsert=True)
    assert (request["filter"]["_id"], request["update"]["$inc"], request["upsert"]) == ("o-1", {"n": 1}, True)
