"""`explain`: every call of a store shows what it would send first, and sends nothing."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import boto3
import pytest

from onewrite import Begun, ConfigurationError, Event, InSequence, InvalidUpdate, Message, Outbox, SeenIds, Tombstones
from onewrite.dynamodb import GuardedTable, table
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection, collection
from onewrite.testing import mongomock_collection, moto_table
from tests.support.seams import name_calls

NOW = 1_790_000_000.0
M1, M2 = Message("m1", source="s", sequence=1), Message("m2", source="s", sequence=2)
KEY, ONE = {"orderId": "o-1"}, {"_id": "o-1"}
EFFECT: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}
EVENTS = [Event("Paid", 1)]
BEGUN = Begun(M1, "key", "fence", NOW, NOW + 60, True, entity_key=KEY)
BEGUN_ONE = Begun(M1, "key", "fence", NOW, NOW + 60, True, entity_key=ONE)
MORE: dict[str, Any] = {"outbox": Outbox("shop"), "tombstones": Tombstones(timedelta(days=1)), "clock": lambda: NOW}
ADD: dict[str, Any] = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
INC = {"$inc": {"n": 1}}

Case = tuple[str, list[Any], dict[str, Any], str]

# The verb, its arguments, and what shows in the request.
OF_TABLES: dict[str, Case] = {
    "update_item": ("update_item", [M1], {"Key": KEY, **ADD}, "ADD n :n"),
    "emit": ("update_item", [M1], {"Key": KEY, **ADD, "emit": EVENTS}, "Paid"),
    "finishes": ("update_item", [M1], {"Key": KEY, **ADD, "finishes": BEGUN}, "fence"),
    "put_item": ("put_item", [M1], {"Item": {**KEY, "paid": True}}, "paid"),
    "delete_item": ("delete_item", [M1], {"Key": KEY}, "ow_tombstone"),
    "remember": ("remember", [M1], {"Key": KEY}, "o-1"),
    "begin_effect": ("begin_effect", [M1, "charge"], {"Key": KEY, **EFFECT}, "ow_effect"),
    "perform_effect": ("perform_effect", [M1, "charge", print], {"Key": KEY, "then": dict, **EFFECT}, "ow_effect"),
    "release_effect": ("release_effect", [BEGUN], {}, "fence"),
    "update_batch": ("update_batch", [[M1, M2], lambda fresh: {"Key": KEY, **ADD}], {}, "ADD n :n"),
    "preview": ("preview", [M1], {"Key": KEY}, "ConsistentRead"),
    "get_item": ("get_item", [], {"Key": KEY}, "o-1"),
    "open_effects": ("open_effects", [], {"Key": KEY}, "o-1"),
}
OF_COLLECTIONS: dict[str, Case] = {
    "update_one": ("update_one", [M1, ONE, INC], {"upsert": True}, "'$inc': {'n': 1}"),
    "a pipeline": ("update_one", [M1, ONE, [{"$set": {"n": 1}}]], {}, "{'$set': {'n': 1}}"),
    "emit": ("update_one", [M1, ONE, INC], {"emit": EVENTS}, "Paid"),
    "finishes": ("update_one", [M1, ONE, INC], {"finishes": BEGUN_ONE}, "fence"),
    "find_one_and_update": ("find_one_and_update", [M1, ONE, INC], {}, "$inc"),
    "insert_one": ("insert_one", [M1, {**ONE, "n": 1}], {}, "'document': {'_id': 'o-1', 'n': 1"),
    "delete_one": ("delete_one", [M1, ONE], {}, "ow_tombstone"),
    "find_one_and_delete": ("find_one_and_delete", [M1, ONE], {}, "ow_tombstone"),
    "remember": ("remember", [M1, ONE], {}, "'upsert': True"),
    "begin_effect": ("begin_effect", [M1, "charge", ONE], EFFECT, "ow_effects"),
    "perform_effect": ("perform_effect", [M1, "charge", print, ONE], {"then": dict, **EFFECT}, "ow_effects"),
    "release_effect": ("release_effect", [BEGUN_ONE], {}, "fence"),
    "update_batch": ("update_batch", [[M1, M2], lambda fresh: {"filter": ONE, "update": INC}], {}, "$inc"),
    "preview": ("preview", [M1, ONE], {}, "'filter': {'_id': 'o-1'}"),
    "find_one": ("find_one", [ONE], {}, "o-1"),
    "open_effects": ("open_effects", [ONE], {}, "o-1"),
}


@pytest.mark.parametrize("name", OF_TABLES)
@pytest.mark.parametrize("ledger", [SeenIds(), InSequence()], ids=["SeenIds", "InSequence"])
def test_explain_shows_a_table_verbs_request_without_sending(name: str, ledger: Any) -> None:
    verb, arguments, native, shown = OF_TABLES[name]
    with moto_table() as table:
        store: Any = GuardedTable(table, ledger, **MORE)
        assert shown in str(store.explain(verb, *arguments, **native))
        assert table.scan()["Items"] == []


@pytest.mark.parametrize("name", OF_COLLECTIONS)
@pytest.mark.parametrize("key", [(), ("email",)], ids=["_id", "key"])
def test_explain_shows_a_collection_verbs_request_without_sending(name: str, key: Any) -> None:
    verb, arguments, native, shown = OF_COLLECTIONS[name]
    with mongomock_collection() as collection:
        store: Any = GuardedCollection(collection, SeenIds(readable=True), key=key, **MORE)
        assert shown in str(store.explain(verb, *arguments, **native))
        assert [*collection.find()] == []


def test_asynchronous_store_explains_without_awaiting() -> None:
    with mongomock_collection(asynchronous=True) as collection:
        store: Any = AsyncGuardedCollection(collection, SeenIds(readable=True), **MORE)
        assert "$inc" in str(store.explain("update_one", M1, ONE, INC))


@pytest.mark.parametrize(
    ("store", "module", "cases"), [(GuardedTable, table, OF_TABLES), (GuardedCollection, collection, OF_COLLECTIONS)]
)
def test_every_method_that_sends_a_request_can_be_explained(store: Any, module: Any, cases: dict[str, Case]) -> None:
    silent = {"without_ledger", "explain", "outboxes"}
    refused = {"replace_one", "find_one_and_replace", "update_many"}
    methods = {name for name in dir(store) if name[0] != "_"} - silent - refused
    assert methods == {*module.VERBS} == {verb for verb, *_ in cases.values()}


def test_explained_request_is_the_one_that_is_sent() -> None:
    with moto_table():
        sent: list[Any] = []
        client = boto3.client("dynamodb", region_name="eu-west-1")
        client.meta.events.register("before-parameter-build.dynamodb.*", lambda params, **_: sent.append(dict(params)))
        for verb, arguments, native, _ in (case for name, case in OF_TABLES.items() if name != "finishes"):
            store: Any = GuardedTable(client, SeenIds(), table_name="orders", **MORE)
            told = name_calls(store, lambda: "a").explain(verb, *arguments, **native)
            sent.clear()
            getattr(store, verb)(*arguments, **native)
            assert [told] == sent[:1]


def test_explain_refuses_an_invalid_call() -> None:
    async def later(_: Any) -> Any:
        return {"Key": KEY}

    with moto_table() as table:
        store: Any = GuardedTable(table, SeenIds())
        with pytest.raises(InvalidUpdate, match="Key is a str"):
            store.explain("update_item", M1, Key="o-1", **ADD)
        for wrong in ("update_one", M1, {"Key": KEY}):
            with pytest.raises(
                ConfigurationError, match=r"expected the name of a method first, one of update_item, .*get_item\."
            ):
                store.explain(wrong, Key=KEY)
        with pytest.raises(ConfigurationError, match="this call sends no request"):
            store.explain("update_batch", [], dict)
        with pytest.raises(ConfigurationError, match="can't await an asynchronous function"):
            store.explain("update_batch", [M1, M2], later)
