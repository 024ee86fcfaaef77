"""What reads and outcomes show: what the caller asks for, and nothing of what onewrite keeps, nor of an entity that was deleted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
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
# What names what is kept, or would compute something from it.
LEAKS: list[Any] = [
    *({"ow_l": 0}, {"ow_l": 1, "n": 1}, ["ow_events", "ow_effects"], {"ow_of a later version": 1}, {"ow_l": 0, "to": 0}),
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


@ledgers
@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
@pytest.mark.few(2)
def test_read_shows_the_same_fields_as_of_a_plain_document(orders: Any, ledger: Ledger, kept: str, projection: Any) -> None:
    del kept
    store, plain = orders(ledger)
    assert store.find_one({"_id": "o"}, projection=projection) == plain.find_one({"_id": "o"}, projection)


@ledgers
def test_outcome_shows_the_whole_entity_without_the_ledger(orders: Any, ledger: Ledger, kept: str) -> None:
    del kept
    store, plain = orders(ledger)
    expected, update = plain.find_one({"_id": "o"}), {"$set": {"n": 1}}

    def written(m: Message, **more: Any) -> Any:
        return store.find_one_and_update(m, {"_id": "o", **more}, update, return_document=ReturnDocument.AFTER)

    begun = store.begin_effect(message(2), "charge", {"_id": "o"}, lease=timedelta(hours=1), key_valid_for=timedelta(0))
    assert isinstance(begun, Begun)
    found = [written(message(1)), written(message(2)), written(message(3), n=-1)]
    assert isinstance(found[0], Duplicate)
    assert isinstance(found[1], Busy)
    assert isinstance(found[2], Rejected | Deferred)
    store.remember(message(2), {"_id": "o"}, finishes=begun)
    found.append(written(message(4 if isinstance(ledger, InSequence) else 3)))
    assert isinstance(found[3], Applied | Deferred)
    assert [outcome.entity for outcome in found] == [expected] * 4


def test_guarded_write_with_a_projection_is_refused(orders: Any) -> None:
    store, _ = orders(SeenIds())
    calls: list[Callable[[], Any]] = [
        lambda: store.find_one_and_update(message(2), {"_id": "o"}, {"$inc": {"n": 1}}, projection={"n": 1}),
        lambda: store.find_one_and_delete(message(2), {"_id": "o"}, projection={"n": 1}),
        lambda: store.update_batch([message(2)], lambda _: {"filter": {"_id": "o"}, "projection": {"n": 1}}),
    ]
    for call in calls:
        with pytest.raises(InvalidUpdate, match="doesn't take a projection"):
            call()
    assert isinstance(store.preview(message(2), {"_id": "o"}), Applied)


@ledgers
@pytest.mark.parametrize("leak", LEAKS, ids=repr)
def test_projection_of_onewrite_fields_is_refused(orders: Any, ledger: Ledger, kept: str, leak: Any) -> None:
    store, _ = orders(ledger)
    with pytest.raises(InvalidUpdate):
        store.find_one({"_id": "o"}, projection=_with(leak, kept))


def _with(value: Any, kept: str) -> Any:
    if isinstance(value, str):
        return value.replace("KEPT", kept)
    if isinstance(value, dict):
        return {name: _with(each, kept) for name, each in value.items()}
    return type(value)(_with(each, kept) for each in value) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("projection", PROJECTIONS, ids=repr)
def test_deleted_document_is_hidden_for_every_projection(orders: Any, projection: Any) -> None:
    store, plain = orders(SeenIds())
    deleted = store.find_one_and_delete(message(2), {"_id": "o"})
    assert isinstance(deleted, Applied)
    assert deleted.entity == plain.find_one({"_id": "o"})
    assert store.find_one({"_id": "o"}, projection=projection) is None
    for again in (message(2), message(3)):
        found = store.find_one_and_update(again, {"_id": "o"}, {"$set": {"n": 1}})
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
    for outcome in (store.preview(message(3), Key={"id": "o"}), store.remember(message(3), Key={"id": "o"})):
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
