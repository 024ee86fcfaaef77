"""What a guarded collection does step by step: each flow is driven by hand, with the answers that MongoDB would give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import DBRef, Timestamp
from pymongo import WriteConcern
from pymongo.errors import DuplicateKeyError

from onewrite import (
    Applied,
    Begun,
    ConfigurationError,
    Duplicate,
    InSequence,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    Missing,
    Rejected,
    SeenIds,
    Stale,
)
from onewrite.core.flow import Call, Flow
from onewrite.core.ledgers import Ledger
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb.flows import Flows, is_entity_taken
from tests.support.driven import Collection, play, reply

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = "PKFN90PGmAw"  # of the source "s" and the id "m5"
QUERY: dict[str, Any] = {"_id": "o-1"}
OPEN_ONLY: dict[str, Any] = {"_id": "o-1", "closed": {"$exists": False}}
UPDATE: dict[str, Any] = {"$inc": {"n": 1}}
ENTITY: dict[str, Any] = {"_id": "o-1", "n": 1}
SEEN: dict[str, Any] = {**ENTITY, "ow_l": "ow1 14d", "ow_r": {"r1": [HASH]}}
FOURTH: dict[str, Any] = {**ENTITY, "ow_l": "ow1 marks", "ow_@": {"s": 4}}
BY_ID: dict[str, Any] = {"_id_": {"key": [("_id", 1)]}}
LINKED: dict[str, Any] = {"session": None, "comment": "c"}  # each request of a call has them


LANDED, NOTHING = reply(1), reply()


def flows(ledger: Ledger) -> Flows:
    return Flows(Collection(), ledger, lambda: NOW, (), "majority", is_async=False)


def in_use(ledger: Ledger) -> Flows:
    """A store that has seen that its collection has an index on `_id`."""
    store = flows(ledger)
    store._indexes = BY_ID
    return store


def write(ledger: Ledger, query: Any = QUERY, /, **native: Any) -> Flow[Any]:
    return flows(ledger).write(M5, query, UPDATE, writer="update_one", **native)


def methods(effects: list[Call]) -> list[str]:
    return [("upsert" if effect.kwargs.get("upsert") else effect.method) for effect in effects]


def lost_race(**details: Any) -> DuplicateKeyError:
    return DuplicateKeyError("E11000", 11000, {"keyPattern": {"_id": 1}, **details})


# --- a write ----------------------------------------------------------------------------------------------------------


def test_reference_in_the_place_of_marks_is_a_mismatch() -> None:
    """A reference is hashable by its type, but not if it names a document as its ID."""
    foreign = {**SEEN, "ow_r": {"r1": [DBRef("orders", {"no": 1})]}}
    with pytest.raises(LedgerMismatch, match="Repair the entity"):
        play(write(SeenIds()), NOTHING, foreign)


EFFECT: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(hours=23)}
CLAIM = Begun(M5, "key", "fence", NOW, NOW + 60, entity_key=QUERY)


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.remember(M5, QUERY, update=UPDATE),
        lambda store: store.remember(M5, QUERY, update=UPDATE, finishes=CLAIM),
        lambda store: store.begin_effect(M5, "charge", QUERY, update=UPDATE, **EFFECT),
        lambda store: store.perform_effect(M5, "charge", print, QUERY, then=lambda _: {}, update=UPDATE, **EFFECT),
    ],
)
def test_update_is_refused_if_only_the_ledger_can_change(call: Callable[[Any], Any]) -> None:
    with pytest.raises(InvalidUpdate, match="changes only the"):
        call(GuardedCollection(Collection(), SeenIds()))


@pytest.mark.parametrize(
    "native", [{"query": {"_id": 2}}, {"writeConcern": {"w": 0}}, {"fields": {"all": "$$ROOT"}, "new": True}], ids=str
)
def test_unsupported_command_options_are_refused_before_sending(native: Any) -> None:
    with pytest.raises(InvalidUpdate, match=f"doesn't accept {', '.join(sorted(native))}"):
        play(flows(SeenIds()).write(M5, QUERY, UPDATE, writer="find_one_and_update", **native))


def test_write_is_retried_if_its_gap_is_filled() -> None:
    outcome, effects = play(write(InSequence()), NOTHING, FOURTH, LANDED)
    assert outcome == Applied(M5)
    assert methods(effects) == ["update_one", "find_one", "update_one"]


def test_write_is_retried_if_its_condition_now_holds() -> None:
    outcome, effects = play(write(SeenIds(), OPEN_ONLY, let={"n": 1}), NOTHING, ENTITY, {"_id": "o-1"}, LANDED)
    assert outcome == Applied(M5)
    assert methods(effects) == ["update_one", "find_one", "find_one", "update_one"]
    assert (effects[2].args, effects[2].kwargs) == ((OPEN_ONLY,), {"let": {"n": 1}, "projection": {"_id": 1}})


def test_clock_is_compared_with_the_servers(caplog: pytest.LogCaptureFixture) -> None:
    play(write(SeenIds()), reply(1, operationTime=Timestamp(int(NOW) + 24_800, 1)))
    assert "Clock skew: this process is at least 24800 s behind" in caplog.text


def test_clocks_are_compared_hourly_and_after_being_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    times, compared, now = [0, 1, 3599, 3600, 3601, 7200, 3601, 3600], list[float](), [NOW]
    steady = Flows(Collection(), SeenIds(), lambda: now[0], (), "majority", is_async=False)
    monkeypatch.setattr(steady.watch, "compare", lambda before, *_: compared.append(before - NOW))
    for time in times:
        now[0] = NOW + time
        play(steady.write(M5, QUERY, UPDATE, writer="update_one"), reply(1, operationTime=Timestamp(int(NOW), 1)))
    assert compared == [0, 3600, 7200, 3600]


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("details", "entity", "expected"),
    [
        ({"keyPattern": {"_id": 1}}, {"_id": 1}, True),
        ({"keyPattern": {"email": 1}}, {"_id": 1}, False),
        ({"keyPattern": {"_id": 1, "email": 1}}, {"_id": 1}, False),
        ({"keyPattern": {"sku": 1}}, {"sku": 1, "shop": 2}, True),
        ({}, {"_id": 1}, True),
        (None, {"_id": 1}, True),
    ],
)
def test_duplicate_key_of_the_callers_index_is_distinguished(details: Any, entity: Any, *, expected: bool) -> None:
    assert is_entity_taken(DuplicateKeyError("E11000", 11000, details), entity) is expected


# --- a refusal in a sequence ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (None, Missing(M5)),  # the entity was deleted meanwhile
        (ENTITY, Rejected(M5, ENTITY)),
        ({**ENTITY, "ow_@": {"s": 5}}, Duplicate(M5, ENTITY)),
        ({**ENTITY, "ow_@": {"s": 7}}, Stale(M5, 7, ENTITY)),
    ],
)
def test_change_before_the_mark_moves_is_reported(found: Any, expected: object) -> None:
    outcome, effects = play(
        write(InSequence(5), OPEN_ONLY, rejected_ok=True, **LINKED), NOTHING, ENTITY, None, NOTHING, found
    )
    assert outcome == expected
    assert all(effect.kwargs.items() >= LINKED.items() for effect in effects)
    assert methods(effects) == ["update_one", "find_one", "find_one", "update_one", "find_one"]


# --- an insert --------------------------------------------------------------------------------------------------------


def insert(ledger: Ledger, **native: Any) -> Flow[Any]:
    return in_use(ledger).insert_one(M5, ENTITY, **native)


def test_refused_insert_is_a_duplicate_on_the_second_lookup() -> None:
    outcome, effects = play(insert(SeenIds(), **LINKED), lost_race(), ENTITY, NOTHING, SEEN)
    assert outcome == Duplicate(M5, ENTITY)
    assert all(effect.kwargs.items() >= LINKED.items() for effect in effects)


def test_insert_over_a_key_only_document_is_unsettled() -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    held = {"_id": at.replace(tzinfo=None)}
    flow = in_use(SeenIds()).insert_one(M5, {"_id": at, "n": 1})
    outcome, _ = play(flow, lost_race(), held, NOTHING, held)
    assert outcome == Rejected(M5, held)


def test_insert_is_retried_if_its_entity_was_deleted_meanwhile() -> None:
    outcome, effects = play(insert(SeenIds()), lost_race(), None, "nothing matched", "the answer")
    assert outcome == Applied(M5)
    assert methods(effects) == ["insert_one", "find_one", "update_one", "insert_one"]


# --- what else is asked -----------------------------------------------------------------------------------------------


def test_a_read_takes_a_filter_and_no_message() -> None:
    odd: Any = M5
    with pytest.raises(InvalidUpdate, match="only the filter"):
        next(flows(SeenIds()).find_one(odd))


# --- the collection ---------------------------------------------------------------------------------------------------

ENGLISH: dict[str, Any] = {"_id_": {"key": [("_id", 1)], "collation": {"locale": "en"}}}
READABLE = SeenIds(readable=True)
NAMES = "database.list_collection_names"


def test_collation_is_read_again_if_the_collection_is_missing() -> None:
    store = flows(READABLE)
    play(store.write(M5, QUERY, UPDATE, writer="update_one"), {}, NOTHING, None)
    with pytest.raises(ConfigurationError, match="compares text by the collation 'en'"):
        play(store.write(M5, QUERY, UPDATE, writer="update_one"), ENGLISH)


def test_collection_created_between_two_lookups_accepts_an_insert() -> None:
    effects = play(flows(SeenIds()).insert_one(M5, ENTITY), {}, ["orders"], BY_ID, "the answer")[1]
    assert methods(effects) == ["index_information", NAMES, "index_information", "insert_one"]


def test_unacknowledged_write_concern_is_refused() -> None:
    class Careless(Collection):
        write_concern = WriteConcern(w=0)

    with pytest.raises(ConfigurationError, match="w=0"):
        Flows(Careless(), SeenIds(), lambda: NOW, (), "acknowledged", is_async=False)
    odd: Any = "none"
    with pytest.raises(ConfigurationError, match="durability='none'"):
        Flows(Collection(), SeenIds(), lambda: NOW, (), odd, is_async=False)
