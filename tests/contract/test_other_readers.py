"""Readers that don't know onewrite can turn every entity into JSON, whatever is stored in it."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from fastapi.encoders import jsonable_encoder

from onewrite import Applied, Begun, Event, HighWaterMark, IdSet, InSequence, Message, Outbox, SeenIds, Tombstones
from onewrite.core.ledgers import Ledger
from tests.contract.stores import MakeShop

LEDGERS: dict[str, Ledger] = {
    "ids": SeenIds(),
    "readable ids": SeenIds(timedelta(hours=36), readable=True, name="billing"),
    "ids forever": SeenIds(retention=None),
    "message ids": IdSet("messageIDs"),
    "marks": HighWaterMark(),
    "sequence": InSequence(),
    "ids after marks": SeenIds(name="new", previous=HighWaterMark()),
}
OUTBOX, TOMBSTONES = Outbox("shop/orders"), Tombstones(timedelta(days=14))


def message(number: int, source: str = "order-7") -> Message:
    return Message(f"evt-{number}", source=source, sequence=number)


def read_as_json(entity: dict[str, Any] | None) -> list[Any]:
    """Return the entity as two common readers show it. Both raise for bytes that aren't text."""
    assert entity is not None
    return [json.loads(json.dumps(entity, default=str)), json.loads(json.dumps(jsonable_encoder(entity)))]


@pytest.mark.parametrize("ledger", LEDGERS.values(), ids=LEDGERS)
def test_entity_can_be_read_as_json(make_shop: MakeShop, ledger: Ledger) -> None:
    shop = make_shop(ledger, OUTBOX, TOMBSTONES)
    for order in ("open", "gone"):
        assert isinstance(shop.create(message(1), order, emit=[Event("Created", {"n": 1})]), Applied)
        assert isinstance(shop.add(message(2), order), Applied)
    assert isinstance(shop.begin_effect(message(3), "open"), Begun)
    assert isinstance(shop.begin_effect(message(1, "order-8").part("line"), "open"), Begun)
    assert isinstance(shop.delete(message(3), "gone", emit=[Event("Deleted", None)]), Applied)
    for name, part in (("open", "ow_effects"), ("gone", "ow_tombstone")):
        for read in read_as_json(shop.raw(name)):
            assert {"ow_events", part} <= read.keys()
