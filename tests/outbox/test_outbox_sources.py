"""An operator names an entity by the source of its events: looks at its outbox, and restarts it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from bson import ObjectId
from hypothesis import given, settings
from hypothesis import strategies as st

from onewrite import ConfigurationError, Event, Message, Outbox, SeenIds
from onewrite.dynamodb.outboxes import Outboxes as TableOutboxes
from onewrite.dynamodb.outboxes import format_key as format_item_key
from onewrite.dynamodb.values import typed_values
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb.outboxes import Outboxes as CollectionOutboxes
from onewrite.mongodb.outboxes import format_key as format_document_key
from onewrite.outbox import OutboxState, Relay

OUTBOX = Outbox("shop/orders")
ITEMS = TableOutboxes(None, "orders", OUTBOX)


def store(collection: Any) -> GuardedCollection:
    return GuardedCollection(collection, SeenIds(), outbox=OUTBOX)


def emit(collection: Any, number: int) -> None:
    paid = Event("Paid", number)
    store(collection).update_one(Message(f"m{number}"), {"_id": "a/b=c"}, {"$set": {"n": 1}}, upsert=True, emit=[paid])


values = st.one_of(
    st.text(min_size=1), st.binary(min_size=1), st.integers(-(10**37), 10**37), st.decimals(-1000, 1000, places=3)
)


@settings(max_examples=30)
@given(st.dictionaries(st.text(min_size=1), values, min_size=1, max_size=2), st.sampled_from(["", "/0123456789abcdef"]))
def test_item_key_is_read_from_its_source(key: dict[str, Any], incarnation: str) -> None:
    found = ITEMS.read_source(f"shop/orders/{format_item_key(key)}{incarnation}")
    assert found == {name: Decimal(value) if isinstance(value, int | Decimal) else value for name, value in key.items()}


@pytest.mark.parametrize("number", ["1E+125", "-1E+40", "9." + 37 * "9" + "E+125", "1E-130"])
def test_key_with_a_large_number_can_be_sent(number: str) -> None:
    found = ITEMS.read_source(f"shop/orders/{format_item_key({'id': Decimal(number)})}/0123456789abcdef")
    assert Decimal(typed_values(found)["id"]["N"]) == Decimal(number)


@pytest.mark.parametrize(
    "_id", ["", "a/b=c\n", -(2**63), ObjectId("0" * 24), {"a": 1, "b": "/="}, True, None, 1.5, b"\0\xff"]
)
@pytest.mark.parametrize("incarnation", ["", "/0123456789abcdef"])
def test_document_id_is_read_from_its_source(collection: Any, _id: Any, incarnation: str) -> None:
    boxes = CollectionOutboxes(collection, ("_id",), OUTBOX)
    assert boxes.read_source(f"shop/orders/{format_document_key(_id)}{incarnation}") == {"_id": _id}


NO_KEY = ["", "shop/orders/", "shop/orders/0123456789abcdef", "_id=S:o"]
OF_NO_TYPE = [f"shop/orders/_id={value}/0123456789abcdef" for value in ("o", "X:o", "N:o", "N:")]
WRONG = [*NO_KEY, "shop/other/_id=S:o/0123456789abcdef", *OF_NO_TYPE]

# Values that the driver can't read or write, although their form is right.
NO_BSON = [f"N:{10**29}", 'J:{"$binary":5}', 'J:{"$numberDecimal":"x"}', "J:" + "[" * 9999]
NO_ID = ["O:o", "J:o", "S:a/x=S:b", *NO_BSON]


@pytest.mark.parametrize("source", [*WRONG, *(f"shop/orders/_id={value}" for value in NO_ID)], ids=lambda text: text[:50])
def test_wrong_source_of_a_document_is_refused(collection: Any, source: str) -> None:
    with pytest.raises(ConfigurationError, match=r"isn't a source of the outbox|doesn't identify a document"):
        CollectionOutboxes(collection, ("_id",), OUTBOX).read_source(source)


@pytest.mark.parametrize("source", [*WRONG, "shop/orders/_id=B:a"])
def test_wrong_source_of_an_item_is_refused(source: str) -> None:
    with pytest.raises(ConfigurationError, match=r"isn't a source of the outbox|doesn't identify an item"):
        ITEMS.read_source(source)


def test_entity_is_restarted_once(collection: Any) -> None:
    relay = Relay(store(collection), lambda _: None)
    emit(collection, 1)
    relay.sweep()
    emit(collection, 2)
    (waiting,) = relay.pending()
    source = waiting.event.source

    looked = relay.peek(source)
    assert looked == OutboxState(source, 1, (waiting.event,))
    restarted = relay.restart(source=source)
    assert restarted is not None
    assert relay.peek(source) == relay.peek(restarted)
    assert [(event.source, event.sequence) for event in relay.flush({"_id": "a/b=c"}).published] == [(restarted, 1)]
    with pytest.raises(ConfigurationError, match=f"source is now {restarted}"):
        relay.restart(source=source)
    assert relay.restart(source="shop/orders/_id=S:nowhere") is None
    assert relay.peek("shop/orders/_id=S:nowhere") is None
