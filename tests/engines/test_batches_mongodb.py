"""MongoDB: several messages in one write, as only a real server shows it: large documents, transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from pymongo.collection import Collection

from onewrite import (
    Applied,
    Deferred,
    Duplicate,
    EntityTooLarge,
    HighWaterMark,
    InSequence,
    Message,
    Missing,
    Outcome,
    SeenIds,
)
from onewrite.mongodb import GuardedCollection
from tests.engines.ledgers import AnyLedger, ledgers
from tests.engines.stores import mongo_state

Documents = Collection[dict[str, Any]]
MB = 1024 * 1024


def messages(*numbers: int) -> list[Message]:
    return [Message(f"m-{n}", source="s", sequence=n) for n in numbers]


def kinds(outcomes: Sequence[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]


# --- the write itself -------------------------------------------------------------------------------------------------


@ledgers
def test_redelivered_batch_with_a_pipeline_writes_nothing(collection: Documents, ledger: AnyLedger) -> None:
    guarded = GuardedCollection(collection, ledger)

    def function(fresh: list[Message]) -> dict[str, Any]:
        more = {"$add": [{"$ifNull": ["$n", 0]}, len(fresh)]}
        return {"filter": {"_id": "e"}, "update": [{"$set": {"n": more}}], "upsert": True}

    assert kinds(guarded.update_batch(messages(1, 2, 3), function)) == [Applied] * 3
    assert Applied not in kinds(guarded.update_batch(messages(1, 2, 3), function))
    assert kinds(guarded.update_batch(messages(3, 4), function))[1] is Applied
    assert mongo_state(collection).n == 4


def test_batch_applies_messages_until_the_entity_is_full(collection: Documents) -> None:
    collection.insert_one({"_id": "e", "n": 0, "filling": "x" * 10 * MB})
    guarded = GuardedCollection(collection, SeenIds())

    def function(fresh: list[Message]) -> dict[str, Any]:
        pages = {f"page {message.id}": "y" * (19 * MB // 10) for message in fresh}
        return {"filter": {"_id": "e"}, "update": {"$set": pages, "$inc": {"n": len(fresh)}}}

    with pytest.raises(EntityTooLarge, match="16777216"):
        guarded.update_batch(messages(1, 2, 3, 4), function)
    assert mongo_state(collection).n == 3
    assert kinds(guarded.update_batch(messages(1, 2, 3), function)) == [Duplicate] * 3


def test_oversized_batch_is_split_into_several_requests(collection: Documents) -> None:
    guarded = GuardedCollection(collection, SeenIds())

    def function(fresh: list[Message]) -> dict[str, Any]:
        """What it sets is large, but each message sets the same."""
        return {"filter": {"_id": "e"}, "update": {"$set": {"page": "y" * (6 * MB * len(fresh))}}, "upsert": True}

    assert kinds(guarded.update_batch(messages(1, 2, 3, 4), function)) == [Applied] * 4
    assert len((collection.find_one({"_id": "e"}) or {})["page"]) == 12 * MB


@ledgers
def test_conditional_batch_without_update_does_not_create_the_entity(collection: Documents, ledger: AnyLedger) -> None:
    store, both = GuardedCollection(collection, ledger), messages(1, 2)
    asked = {"_id": "e", "status": "NEW"}
    first, second = store.update_batch(both, lambda _: {"filter": asked})
    assert first == Missing(both[0])
    assert isinstance(second, Deferred if isinstance(ledger, InSequence | HighWaterMark) else Missing)
    assert collection.find_one() is None
    assert isinstance(store.insert_one(both[0], {"_id": "e", "status": "NEW"}), Applied)
    assert [type(each) for each in store.update_batch(messages(2, 3), lambda _: {"filter": asked})] == [Applied, Applied]
