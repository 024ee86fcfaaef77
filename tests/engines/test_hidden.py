"""What reads and outcomes show: what the caller asks for, and nothing of what onewrite keeps, nor of an entity that was deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from bson import Decimal128, Int64
from pymongo import MongoClient, ReturnDocument

from onewrite import (
    Applied,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    Event,
    Gone,
    HighWaterMark,
    InSequence,
    InvalidUpdate,
    Message,
    Outbox,
    Rejected,
    SeenIds,
    Stale,
    Tombstones,
)
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide
from tests.engines.stores import create_table, places

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.measured

EVERYTHING: Any = {"outbox": Outbox("shop"), "tombstones": Tombstones(timedelta(days=14))}
ORDER: dict[str, Any] = {
    "n": 1,
    "goods": [{"sku": 1, "left": 2}, {"sku": 2, "left": 0}],
    "to": {"name": "ann", "street": {"no": 1}},
    "events": "mine",
}


def message(n: int) -> Message:
    return Message(f"m{n}", source="s", sequence=n)


# --- MongoDB ------------------------------------------------------------------------------------------------------------

# Each shows of an entity what it shows of a document that never had a ledger.
PROJECTIONS: list[Any] = [
    *({"n": 1}, {"n": True, "_id": 0}, ["n", "goods"], ("n",), [], {}, {"_id": 1}, {"_id": 0}, {"n": 0}),
    *({"to.name": 1}, {"to.name": 0}, {"to": {"name": 1}}, {"to": {"street": {"no": 0}}}, {"no_such": 1}, {"no_such": 0}),
    *({"goods": {"$slice": 1}}, {"goods": {"$slice": -1}, "n": 1}, {"goods": {"$elemMatch": {"sku": 2}}}, {"goods.sku": 1}),
    *({"twice": {"$multiply": ["$n", 2]}}, {"x": "$to.name", "n": 1}, {"to.name": {"$toUpper": "$to.name"}}),
    *({"x": {"$literal": 1}}, {"x": {"$getField": "n"}}, {"x": {"$map": {"input": "$goods", "in": "$$this.sku"}}}),
]
# Whether these show what they name, or all but that, is not told by whether Python takes their values for true.
ODD: list[Any] = [
    *({"_id": 1, "goods": 0}, {"_id": 0, "n": 1}, {"_id": ""}, {"x": None}, {"n": ""}, {"x": []}, {"x": b""}),
    *({"to": {"name": ""}}, {"x": {"$slice": ["$goods", 1]}}, {"to.name": {"$slice": ["$goods", 1]}}),
    *({"n": Decimal128("0")}, {"n": Decimal128("1")}, {"n": float("nan")}, {"n": Int64(0)}),
]
PROJECTIONS += ODD
# What names what is kept, or would compute something from it.
LEAKS: list[Any] = [
    *({"ow_l": 0}, {"ow_l": 1, "n": 1}, ["ow_events", "ow_steps"], {"ow_of a later version": 1}, {"ow_l": 0, "to": 0}),
    *({"ow_events": {"$slice": 1}}, {"ow_r.r0": 1, "to": 1}, {"ow_events.id": 1, "ow_events.body": 1}),
    *({"x": "$$ROOT"}, {"x": "$$CURRENT"}, {"x": "$ow_events.body", "n": 1}, {"to.x": "$$ROOT.KEPT"}, {"x": "$KEPT"}),
    *({"x": {"$objectToArray": "$$ROOT"}}, {"x": {"$mergeObjects": ["$$ROOT", {"n": 2}]}}, {"to": {"x": "$$ROOT"}}),
    *({"x": {"$getField": "KEPT"}}, {"x": {"$getField": {"field": "KEPT", "input": "$$CURRENT"}}}),
    *({"x": {"$let": {"vars": {"all": "$$ROOT"}, "in": "$$all.n"}}}, {"x": {"$cond": [{"$gt": ["$n", 0]}, "$KEPT", 1]}}),
    *({"x": {"$getField": {"$concat": ["ow_", "events"]}}}, {"x": {"$size": {"$ifNull": ["$ow_events", []]}}}),
    *({"x": ["$$ROOT"]}, {"x": ("$KEPT",)}, {"x": {"y": [{"z": "$KEPT"}]}}, {"x": {"$slice": ["$ow_events", 5]}}),
    *({"x": {"$slice": ("$ow_events", 0, 5)}}, {"x": {"$meta": "indexKey"}}),
]
LEDGERS: dict[str, tuple[Ledger, str]] = {
    "ids": (SeenIds(), "ow_r"),
    "marks": (HighWaterMark(), "ow_@"),
    "sequence": (InSequence(), "ow_@"),
}
ledgers = pytest.mark.parametrize(("ledger", "kept"), LEDGERS.values(), ids=LEDGERS)


@pytest.fixture
def orders(mongo: MongoClient[dict[str, Any]]) -> Callable[[Ledger], tuple[GuardedCollection, Any]]:
    def made(ledger: Ledger) -> tuple[GuardedCollection, Any]:
        """A store with an entity that has everything that can be kept, and the same entity in a plain collection."""
        guarded, plain = mongo.test[next(places)], mongo.test[next(places)]
        store = GuardedCollection(guarded, ledger, **EVERYTHING)
        guarded.insert_one({"_id": "o", **ORDER})
        plain.insert_one({"_id": "o", **ORDER})
        assert isinstance(store.update_one(message(1), {"_id": "o"}, {"$set": {"n": 1}}, emit=[Event("A", 1)]), Applied)
        return store, plain

    return made


def _shown(plain: Any, projection: Any) -> Any:
    """By find_one_and_update, and by find_one_and_delete."""
    return plain.find_one_and_update({"_id": "o"}, {"$set": {"n": 1}}, projection=projection)


@ledgers
@pytest.mark.few(2)
def test_projection_returns_same_fields_as_for_a_plain_document(orders: Any, ledger: Ledger, kept: str) -> None:
    del kept
    store, plain = orders(ledger)
    update: Any = {"$set": {"n": 1}}

    def written(m: Message, projection: Any, **more: Any) -> Any:
        query = {"_id": "o", **more}
        return store.find_one_and_update(
            m, query, update, projection=projection, return_document=ReturnDocument.AFTER, emit=[Event("A", 1)]
        )

    step = store.begin(message(1000), "charge", {"_id": "o"}, lease=timedelta(hours=1), safe_for=timedelta(0))
    for n, projection in enumerate(PROJECTIONS, start=2):
        expected = _shown(plain, projection)
        assert store.find_one({"_id": "o"}, projection=projection) == plain.find_one({"_id": "o"}, projection), projection
        found = {
            "applied": written(message(n), projection),
            "again": written(message(n), projection),
            "old": written(message(1), projection),
            "early": written(message(n + 2), projection, n=-1),
        }
        if isinstance(step, Begun):
            found["busy"] = written(message(1000), projection)
            assert isinstance(found["busy"], Busy)
        assert isinstance(found["applied"], Applied)
        assert isinstance(found["again"], Duplicate | Stale)
        assert isinstance(found["old"], Duplicate | Stale)
        assert isinstance(found["early"], Rejected | Deferred)
        for outcome in found.values():
            assert outcome.entity == expected, (projection, outcome)


@ledgers
@pytest.mark.parametrize("leak", LEAKS, ids=repr)
def test_projection_of_onewrite_fields_is_refused(orders: Any, ledger: Ledger, kept: str, leak: Any) -> None:
    store, _ = orders(ledger)
    projection = _with(leak, kept)
    with pytest.raises(InvalidUpdate):
        store.find_one({"_id": "o"}, projection=projection)
    with pytest.raises(InvalidUpdate):
        store.find_one_and_update(message(2), {"_id": "o"}, {"$inc": {"n": 1}}, projection=projection)
    with pytest.raises(InvalidUpdate):
        store.find_one_and_delete(message(2), {"_id": "o"}, projection=projection)
    assert isinstance(store.seen(message(2), {"_id": "o"}), Applied)


def _with(value: Any, kept: str) -> Any:
    if isinstance(value, str):
        return value.replace("KEPT", kept)
    if isinstance(value, dict):
        return {name: _with(each, kept) for name, each in value.items()}
    return type(value)(_with(each, kept) for each in value) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("projection", ODD, ids=repr)
def test_fold_with_any_projection_continues_after_duplicates(orders: Any, projection: Any) -> None:
    store, _ = orders(InSequence())

    def write(fresh: list[Message]) -> Any:
        return {"filter": {"_id": "o"}, "update": {"$inc": {"n": len(fresh)}}, "projection": projection}

    assert {type(each) for each in store.fold([message(n) for n in (2, 3)], write)} == {Applied}
    outcomes = store.fold([message(n) for n in range(1, 5)], write)
    assert [isinstance(each, Duplicate | Stale) for each in outcomes] == [True, True, True, False]
    assert isinstance(outcomes[3], Applied)


@pytest.mark.parametrize("more", [{}, {"n": 1}, {"_id": 0}, {"x": None}], ids=repr)
def test_refusal_omits_field_of_a_positional_projection(orders: Any, more: dict[str, Any]) -> None:
    store, plain = orders(SeenIds())
    query, update = {"_id": "o", "goods.sku": 2}, {"$set": {"n": 1}}
    options: Any = {"projection": {"goods.$": 1, **more}}
    expected = plain.find_one_and_update(query, update, **options)
    applied = store.find_one_and_update(message(2), query, update, **options)
    assert applied.entity == expected
    again = store.find_one_and_update(message(2), query, update, **options)
    assert isinstance(again, Duplicate)
    assert again.entity == {name: value for name, value in expected.items() if name != "goods"}


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_deleted_document_is_hidden_for_every_projection(orders: Any, projection: Any) -> None:
    store, plain = orders(SeenIds())
    deleted = store.find_one_and_delete(message(2), {"_id": "o"}, projection=projection)
    assert isinstance(deleted, Applied)
    assert deleted.entity == _shown(plain, projection)
    assert store.find_one({"_id": "o"}, projection=projection) is None
    for again in (message(2), message(3)):
        found = store.find_one_and_update(again, {"_id": "o"}, {"$set": {"n": 1}}, projection=projection)
        assert isinstance(found, Duplicate | Gone)
        assert found.entity is None


# --- DynamoDB -----------------------------------------------------------------------------------------------------------

CHOICES: list[dict[str, Any]] = [
    {},
    {"ProjectionExpression": "n"},
    {"ProjectionExpression": " n , goods[0].sku"},
    {"ProjectionExpression": "#to.#name,n", "ExpressionAttributeNames": {"#to": "to", "#name": "name"}},
    {"ProjectionExpression": "no_such"},
    {"AttributesToGet": ["n"]},
    {"AttributesToGet": ["id", "goods"]},
    {"AttributesToGet": ["no_such"]},
]


@pytest.fixture(params=["client", "table", "lean"])
def items(request: pytest.FixtureRequest, dynoxide: Dynoxide, dynamo: DynamoDBClient) -> Any:
    """A store of an item that has everything that can be kept, and how to write to it directly."""
    name = next(places)
    create_table(dynamo, name)
    table = dynoxide.resource().Table(name)
    table.put_item(Item={"id": "o", **ORDER})
    if request.param == "table":
        store = GuardedTable(table, SeenIds(), **EVERYTHING)
    else:
        # A client of its own: other tests listen to what the shared one sends, and a lean store refuses a client that is listened to.
        store = GuardedTable(dynoxide.client(), SeenIds(), table_name=name, lean=request.param == "lean", **EVERYTHING)
    update: Any = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 1}}
    assert isinstance(store.update_item(message(1), Key={"id": "o"}, emit=[Event("A", 1)], **update), Applied)
    return store, table


@pytest.mark.parametrize("choice", CHOICES, ids=repr)
def test_read_returns_only_the_chosen_attributes(items: Any, choice: Any) -> None:
    store, _ = items
    found = store.get_item(Key={"id": "o"}, ConsistentRead=True, **choice)
    assert found is not None
    assert found.keys() <= {"id", *ORDER}
    named = str(choice) + str(choice.get("ExpressionAttributeNames", ""))
    assert all(name in named or not choice for name in found)


@pytest.mark.parametrize("choice", CHOICES, ids=repr)
def test_deleted_item_is_hidden_for_every_choice_of_attributes(items: Any, choice: Any) -> None:
    store, table = items
    assert isinstance(store.delete_item(message(2), Key={"id": "o"}), Applied)
    assert store.get_item(Key={"id": "o"}, ConsistentRead=True, **choice) is None
    # As between the two requests of a delete, where the caller's attributes are still there.
    table.update_item(
        Key={"id": "o"}, UpdateExpression="SET n = :n, goods = :l", ExpressionAttributeValues={":n": 1, ":l": [{"sku": 1}]}
    )
    assert store.get_item(Key={"id": "o"}, ConsistentRead=True, **choice) is None
    for outcome in (store.seen(message(3), Key={"id": "o"}), store.record(message(3), Key={"id": "o"})):
        assert (type(outcome), outcome.entity) == (Gone, None)


@pytest.mark.parametrize("returned", ["ALL_NEW", "ALL_OLD", "UPDATED_NEW", "UPDATED_OLD"])
def test_return_values_do_not_show_the_ledger(items: Any, returned: str) -> None:
    store, _ = items
    update: Any = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 2}, "ReturnValues": returned}
    for n, emit in ((2, None), (3, [Event("A", 1)])):
        outcome = store.update_item(message(n), Key={"id": "o"}, emit=emit, **update)
        assert isinstance(outcome, Applied)
        assert outcome.entity is not None
        assert outcome.entity.keys() <= {"id", *ORDER}
        assert outcome.entity.keys() >= ({"n"} if "UPDATED" in returned else {"id", *ORDER})
    again = store.update_item(message(3), Key={"id": "o"}, **update)
    assert isinstance(again, Duplicate)
    # Who asks for what the write has changed alone is shown no more by a refusal.
    assert (again.entity or {}).keys() == (set() if "UPDATED" in returned else {"id", *ORDER})
