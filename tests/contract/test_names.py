"""Every name that begins with ow_ is onewrite's, in every entity and whatever store has written it. All others are the caller's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from onewrite import (
    Applied,
    Begun,
    Duplicate,
    Event,
    HighWaterMark,
    IdSet,
    InSequence,
    InvalidUpdate,
    Message,
    Outbox,
    SeenIds,
    Tombstones,
)
from onewrite.core.ledgers import Ledger
from tests.contract.stores import MakeShop, Shop

OUTBOX, TOMBSTONES = Outbox("shop/orders"), Tombstones(timedelta(days=30))
LEDGERS: dict[str, Ledger] = {
    "seen": SeenIds(),
    "seen by name": SeenIds(name="billing"),
    "message ids": IdSet("messageIDs"),
    "mark": HighWaterMark(),
    "sequence": InSequence(),
}
# One of each kind that a ledger, an outbox, an effect or a tombstone uses, and what no version has used yet.
OURS = [
    *("ow_l", "ow_r", "ow_r0", "ow_36ht_r", "ow_14dt_r5", "ow_all", "ow_allt", "ow_@", "ow_@order-7", "ow_t"),
    *("ow_o", "ow_events", "ow_sent", "ow_life", "ow_due", "ow_shard", "ow_effects", "ow_effect_ab", "ow_tombstone"),
    *("ow_billing:l", "ow_", "ow_new"),
]
# What looks like these, and where handlers and other libraries keep what they remember.
THEIRS = ["ow", "owl", "OW_l", "ow-l", "_ow_l", "events", "outbox", "attempt", "expiresAt", "effects", "ids"]
EFFECT: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(hours=1)}


def message(n: int) -> Message:
    return Message(f"m{n}", source="s", sequence=n)


def _on_dynamodb(key: dict[str, Any], name: str) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Calls that touch an attribute: method, arguments behind the message, named arguments."""
    (own,) = key.values()
    named = {"ExpressionAttributeNames": {"#f": name}}
    update = {"Key": key, "UpdateExpression": "SET n = :v", "ExpressionAttributeValues": {":v": 1}}
    for text in ("SET #f = :v", "SET #f.a = :v", "SET n = if_not_exists(#f, :v)", "ADD #f :v", "SET n = :v REMOVE #f[0]"):
        yield "update_item", [], {**update, **named, "UpdateExpression": text}
    asks = {**named, "ConditionExpression": "attribute_not_exists(#f)"}
    yield "update_item", [], {**update, **asks}
    yield "update_item", [], {**update, "Key": {**key, name: 1}}
    yield "put_item", [], {"Item": {**key, name: own}}
    yield "put_item", [], {"Item": {**key, "orderId": "another"}, **asks}
    yield "remember", [], {"Key": key, **asks}
    yield "delete_item", [], {"Key": key, **asks}
    yield "begin_effect", ["charge"], {"Key": key, **EFFECT, **asks}


def _on_mongodb(key: dict[str, Any], name: str) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Calls that touch a field."""
    updates: list[Any] = [
        *({operator: {name: 1}} for operator in ("$set", "$inc", "$unset", "$push", "$setOnInsert", "$min")),
        *({"$rename": {"n": name}}, {"$rename": {name: "m"}}, {"$set": {f"{name}.a": 1}}),
        *([{"$set": {name: 1}}], [{"$unset": name}], [{"$set": {"m": f"${name}"}}], [{"$set": {"m": {"$getField": name}}}]),
    ]
    change = {"$set": {"n": 1}}
    for update in updates:
        yield "update_one", [key, update], {}
        yield "find_one_and_update", [key, update], {"upsert": True}
    for query in ({**key, name: 1}, {**key, "$or": [{f"{name}.a": 1}]}, {**key, "$expr": {"$gt": [f"${name}", 1]}}):
        yield "update_one", [query, change], {}
        yield "remember", [query], {}
        yield "delete_one", [query], {}
        yield "begin_effect", ["charge", query], EFFECT
        yield "preview", [query], {}
    yield "insert_one", [{"_id": "another", name: 1}], {}


def _reads(
    dynamodb: bool, key: dict[str, Any], name: str
) -> Iterator[tuple[str, list[Any], dict[str, Any]]]:  # which engine
    if dynamodb:
        yield "get_item", [], {"Key": key, "ProjectionExpression": "n,#f", "ExpressionAttributeNames": {"#f": name}}
        yield "get_item", [], {"Key": key, "AttributesToGet": ["n", name]}
    else:
        yield "find_one", [{**key, name: 1}], {}
        for projection in ({name: 1}, {name: 0}, {f"{name}.a": 1}, {"x": f"${name}"}):
            yield "find_one", [key], {"projection": projection}


def _done(shop: Any, method: str, arguments: list[Any], native: dict[str, Any]) -> Any:
    return shop._done(getattr(shop._guarded, method)(*arguments, **native))


@pytest.mark.parametrize("ledger", LEDGERS.values(), ids=LEDGERS)
def test_call_that_uses_reserved_names_is_refused_before_sending(make_shop: MakeShop, ledger: Ledger) -> None:
    shop: Any = make_shop(ledger, OUTBOX, TOMBSTONES)
    shop.add(message(1), "o", emit=[Event("Paid", 1)])
    before, key, dynamodb = shop.raw("o"), shop.key("o"), "dynamo" in shop.name
    for name in [*(OURS if ledger == SeenIds() else ["ow_"]), *[each for each in before if each.startswith("ow_")]]:
        for method, arguments, native in (_on_dynamodb if dynamodb else _on_mongodb)(key, name):
            with pytest.raises(InvalidUpdate, match="reserved for onewrite"):
                _done(shop, method, [message(2), *arguments], native)
        for method, arguments, native in _reads(dynamodb, key, name):
            with pytest.raises(InvalidUpdate, match="reserved for onewrite"):
                _done(shop, method, arguments, native)
    assert shop.raw("o") == before
    assert isinstance(shop.add(message(2), "o"), Applied)


def test_batch_refuses_reserved_names(make_shop: MakeShop) -> None:
    shop: Any = make_shop(SeenIds())
    shop.add(message(1), "o")
    before, key, dynamodb = shop.raw("o"), shop.key("o"), "dynamo" in shop.name
    for name in OURS:
        names = {"ExpressionAttributeNames": {"#f": name}, "ExpressionAttributeValues": {":v": 1}}
        native: dict[str, Any] = {"Key": key, "UpdateExpression": "SET #f = :v", **names}
        batch = native if dynamodb else {"filter": key, "update": {"$set": {name: 1}}}
        with pytest.raises(InvalidUpdate, match="reserved for onewrite"):
            shop.batch_by([message(2), message(3)], lambda _, batch=batch: batch)
    assert shop.raw("o") == before


def _storing(dynamodb: bool, key: dict[str, Any], name: str) -> list[tuple[str, list[Any], dict[str, Any]]]:  # which engine
    """Calls that store something of every kind under a name of the caller's."""
    if dynamodb:
        values: list[Any] = [{"m1", "m2"}, {1, 2}, {b"x"}, ["m1"], "m1", 1, {"r0": {b"x"}}, None, True]
        named = {"Key": key, "ExpressionAttributeNames": {"#f": name}}
        sets = [{**named, "UpdateExpression": "SET #f = :v", "ExpressionAttributeValues": {":v": value}} for value in values]
        adds = [{**named, "UpdateExpression": "REMOVE #f"}]
        adds += [{**named, "UpdateExpression": "ADD #f :v", "ExpressionAttributeValues": {":v": {"m1"}}}]
        return [("update_item", [], native) for native in (*sets, *adds)]
    stored: list[Any] = [["m1"], [b"x"], [{"a": 1}], "m1", 1, {"r0": [b"x"]}, None]
    updates: list[Any] = [{"$set": {name: value}} for value in stored]
    updates += [[{"$set": {name: {"$literal": value}}}] for value in stored]
    updates += [
        {"$unset": {name: ""}},
        {"$push": {name: "m1"}},
        {"$rename": {name: "elsewhere"}},
        {"$rename": {"elsewhere": name}},
    ]
    return [("update_one", [key, update], {}) for update in updates]


@pytest.mark.parametrize("ledger", LEDGERS.values(), ids=LEDGERS)
@pytest.mark.few(1, each="store")
def test_entity_is_accepted_with_any_stored_values(make_shop: MakeShop, ledger: Ledger) -> None:
    shop: Any = make_shop(ledger, OUTBOX, TOMBSTONES)
    others = [make_shop(each) for each in (SeenIds(name="a"), HighWaterMark(name="b"))]
    dynamodb, n = "dynamo" in shop.name, 0
    for name in [*THEIRS, *(["messageIDs"] if not isinstance(ledger, IdSet) else [])]:
        storing = _storing(dynamodb, shop.key("o"), name)
        for method, arguments, native in storing if name in ("events", "messageIDs") else storing[:1]:
            n += 1
            shop.add(message(n), "o", emit=[Event("Paid", 1)])
            n += 1
            assert isinstance(_done(shop, method, [message(n), *arguments], native), Applied), (name, native, arguments)
            assert not isinstance(shop.add(message(n), "o"), Applied)
            assert isinstance(shop.preview(message(n + 1), "o"), Applied)
    for other in others:
        assert [type(other.add(message(1), "o")) for _ in range(2)] == [Applied, Duplicate]
    assert shop.relay(lambda events: None).flush("o").published
    effect = shop.begin_effect(message(n + 1), "o")
    assert isinstance(effect, Begun)
    assert isinstance(shop.add(message(n + 1), "o", finishes=effect), Applied)
    assert isinstance(shop.delete(message(n + 2), "o"), Applied)
    assert shop.get("o") is None


def test_read_hides_reserved_names(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds())
    for ledger in (HighWaterMark(name="b"), SeenIds(None, readable=True, name="d")):
        make_shop(ledger, OUTBOX).add(message(1), "o", emit=[Event("Paid", 1)])
    left = {name: value for name, value in (shop.raw("o") or {}).items() if name not in shop.key("o")}
    shop.delete_raw("o")
    shop.put_raw("o", **{**left, "ow_of a later version": 1, "ow_x:l": "ow7 rings", "mine": 1})
    shown = {*shop.key("o"), "n", "mine"}
    assert (shop.get("o") or {}).keys() == shown
    assert shop.without_ledger(shop.raw("o") or {}).keys() == shown
    outcomes: list[Callable[[], Any]] = [
        lambda: shop.add_and_return(message(2), "o"),
        lambda: shop.add_and_return(message(2), "o"),
        lambda: shop.preview(message(3), "o"),
        lambda: shop.create(message(4), "o"),
    ]
    for outcome in outcomes:
        assert set((outcome().entity or {}).keys()) <= shown


def test_callers_set_is_a_ledger_only_if_requested(make_shop: MakeShop) -> None:
    asks: list[Shop] = [make_shop(IdSet("messageIDs")), make_shop(SeenIds(name="a", previous=IdSet("messageIDs")))]
    other = make_shop(SeenIds(), tombstones=TOMBSTONES)
    asks[0].add(message(1), "o")
    for shop in asks:
        assert isinstance(shop.add(message(1), "o"), Duplicate)
        assert "messageIDs" not in (shop.get("o") or {})
        with pytest.raises(InvalidUpdate, match="keeps IDs"):
            shop.touch(message(9), "o", "messageIDs")
    assert list((other.get("o") or {})["messageIDs"]) == ["@s/m1"]
    assert isinstance(other.touch(message(2), "o", "mine"), Applied)
    assert isinstance(asks[0].add(message(1), "o"), Duplicate)
    other.delete(message(3), "o")
    assert "messageIDs" not in (other.raw("o") or {})
