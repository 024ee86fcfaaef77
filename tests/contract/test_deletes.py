"""What every store and every client promises of deletes: what was deleted stays deleted, whatever comes late or again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from onewrite import (
    Applied,
    Busy,
    ConfigurationError,
    Deferred,
    Duplicate,
    Event,
    Gone,
    HighWaterMark,
    IdSet,
    InSequence,
    LedgerMismatch,
    Message,
    Outbox,
    Rejected,
    SeenIds,
    Stale,
    Tombstones,
)
from onewrite.core.ledgers import Ledger
from onewrite.outbox import Outgoing
from tests.contract.stores import NOW, MakeShop, Shop

RETENTION = timedelta(days=30)
TOMBSTONES = Tombstones(RETENTION)
EXPIRY = NOW + 3600 + RETENTION.total_seconds()  # a delete can land an hour after its clock was read
OUTBOX = Outbox("shop/orders")
M1, M2, M3 = Message("m1"), Message("m2"), Message("m3")
LATE = Message("late")


@pytest.fixture
def shop(make_shop: MakeShop) -> Shop:
    return make_shop(SeenIds(), OUTBOX, TOMBSTONES)


def _left(shop: Shop, order: str) -> set[str]:
    """What the store holds of an order beside its key, its ledgers and its outboxes."""
    held = shop.raw(order) or {}
    return {name for name in held if not name.startswith("ow_")}


def test_deleted_entity_is_gone_and_keeps_no_callers_field(shop: Shop) -> None:
    shop.create(M1, "o", n=3)
    shop.touch(M2, "o", "colour")
    assert isinstance(shop.delete(M3, "o"), Applied)
    assert shop.get("o") is None
    assert _left(shop, "o") == {next(iter(shop.key("o"))), "expiresAt"}
    assert shop.expiry("o") == EXPIRY
    assert shop.without_ledger(shop.raw("o") or {}) == shop.key("o")


def test_late_write_returns_gone_without_changes(shop: Shop) -> None:
    shop.create(M1, "o")
    shop.delete(M2, "o")
    before = shop.raw("o")
    answers = [
        shop.add(LATE, "o"),
        shop.add(LATE, "o", if_open=True),
        shop.add_and_return(LATE, "o"),
        shop.create(LATE, "o"),
        shop.touch(LATE, "o", "colour"),
        shop.remember(LATE, "o"),
        shop.delete(LATE, "o"),
        shop.begin_effect(LATE, "o"),
        shop.preview(LATE, "o"),
    ]
    assert answers == [Gone(LATE)] * len(answers)
    assert shop.raw("o") == before


def test_messages_applied_before_the_delete_stay_duplicates(shop: Shop) -> None:
    shop.create(M1, "o")
    shop.add(M2, "o")
    shop.delete(M3, "o")
    assert [shop.create(M1, "o"), shop.add(M2, "o"), shop.delete(M3, "o"), shop.preview(M2, "o")] == [
        Duplicate(M1),
        Duplicate(M2),
        Duplicate(M3),
        Duplicate(M2),
    ]


def test_tombstone_of_a_missing_entity_refuses_a_late_creation(shop: Shop) -> None:
    outcome = shop.delete(M2, "o")
    assert isinstance(outcome, Applied)
    assert outcome.entity is None
    assert shop.create(M1, "o") == Gone(M1)
    assert shop.expiry("o") == EXPIRY
    assert shop.get("o") is None


def test_id_is_free_if_the_database_removed_its_tombstone(shop: Shop) -> None:
    shop.create(M1, "o")
    shop.delete(M2, "o")
    shop.delete_raw("o")
    assert isinstance(shop.create(M3, "o"), Applied)
    assert shop.get("o") is not None


def test_deleted_entity_is_returned_if_requested(shop: Shop) -> None:
    shop.add(M1, "o", amount=7, emit=[Event("A", 1)])
    outcome = shop.delete(M2, "o", shows=True)
    assert isinstance(outcome, Applied)
    assert outcome.entity == {**shop.key("o"), "n": 7}


def test_store_without_tombstones_refuses_delete_with_a_reason(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds())
    shop.create(M1, "o")
    for shows in (False, True):
        with pytest.raises(ConfigurationError, match="tombstones=Tombstones"):
            shop.delete(M2, "o", shows=shows)
    assert shop.get("o") is not None


@pytest.mark.parametrize("other", [SeenIds(name="mine"), HighWaterMark(name="mine"), IdSet("mine")], ids=repr)
def test_store_without_tombstones_does_not_write_to_deleted_entity(make_shop: MakeShop, other: Ledger) -> None:
    shop, second = make_shop(SeenIds(), tombstones=TOMBSTONES), make_shop(other)
    first, late = Message("first", "s", sequence=1), Message("late", "s", sequence=2)
    second.add(first, "o")
    shop.delete(M1, "o")
    assert second.get("o") is None
    assert second.add(late, "o") == Gone(late)
    assert second.create(late, "o") == Gone(late)
    assert second.remember(late, "o") == Gone(late)
    assert second.preview(late, "o") == Gone(late)
    # What IdSet keeps is an attribute of the caller's, which a delete by another store removes.
    assert second.add(first, "o") == (Gone(first) if isinstance(other, IdSet) else Duplicate(first))
    assert second.without_ledger(shop.raw("o") or {}) == shop.key("o")


def test_delete_is_not_made_if_the_callers_condition_fails(shop: Shop) -> None:
    shop.put_raw("o", closed=True, n=1)
    outcome = shop.delete(M1, "o", if_open=True)
    assert isinstance(outcome, Rejected)
    assert outcome.entity == {**shop.key("o"), "closed": True, "n": 1}
    assert shop.get("o") == outcome.entity
    assert isinstance(shop.delete(M1, "o"), Applied)


@pytest.mark.parametrize("value", ["x", 5, True], ids=repr)
def test_delete_is_a_mismatch_if_effects_are_something_else(shop: Shop, value: object) -> None:
    shop.put_raw("o", n=1, ow_effects=value)
    with pytest.raises(LedgerMismatch, match="ow_effect"):
        shop.delete(M1, "o")
    assert (shop.raw("o") or {})["n"] == 1


def test_delete_moves_the_mark_and_is_refused_by_it(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence(), tombstones=TOMBSTONES)
    one, two, three, four = (Message(f"m{n}", "s", sequence=n) for n in range(1, 5))
    shop.add(one, "o")
    assert isinstance(shop.delete(three, "o"), Deferred)
    assert isinstance(shop.delete(two, "o"), Applied)
    assert shop.add(three, "o") == Gone(three)
    assert shop.add(four, "o") == Gone(four)
    assert shop.delete(two, "o") == Duplicate(two)
    assert isinstance(shop.delete(two, "other"), Deferred)
    assert shop.raw("other") is None


def test_a_refused_delete_moves_the_mark_of_a_counted_source(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence(), tombstones=TOMBSTONES)
    shop.put_raw("o", closed=True)
    assert isinstance(shop.delete(Message("m1", "s", sequence=1), "o", if_open=True, rejected_ok=True), Rejected)
    assert isinstance(shop.delete(Message("m2", "s", sequence=2), "o"), Applied)


def test_delete_is_stale_after_a_later_update(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark(), tombstones=TOMBSTONES)
    shop.add(Message("m2", "s", sequence=2), "o")
    assert isinstance(shop.delete(Message("m1", "s", sequence=1), "o"), Stale)
    assert shop.get("o") is not None


def test_open_effect_keeps_the_entity_alive_after_its_lease(shop: Shop) -> None:
    shop.create(M1, "o")
    begun: Any = shop.begin_effect(M2, "o")
    for late in (0, 3600):
        shop.clock.now = NOW + late
        outcome = shop.delete(M3, "o")
        assert isinstance(outcome, Busy)
        assert outcome.until == begun.until
        assert isinstance(shop.delete(M2, "o"), Busy)
    assert isinstance(shop.remember(M2, "o", finishes=begun), Applied)
    assert isinstance(shop.delete(M3, "o"), Applied)


def test_delete_waits_for_the_last_effect(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence(), tombstones=TOMBSTONES)
    one, two, three = (Message(f"m{n}", f"s{n}", sequence=1) for n in range(3))
    shop.put_raw("o", closed=True)
    shop.begin_effect(one, "o", lease=timedelta(minutes=2))
    shop.begin_effect(two, "o")
    outcome = shop.delete(three, "o", if_open=True)
    assert isinstance(outcome, Busy)
    assert outcome.until == NOW + 120
    assert isinstance(shop.preview(three, "o"), Applied)


def test_released_unsent_effect_is_deleted_with_its_entity(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark(), tombstones=TOMBSTONES)
    one, two, three, delete = (Message(f"m{n}", f"s{n}", sequence=1) for n in range(4))
    shop.put_raw("o")
    for message in (one, two):
        effect: Any = shop.begin_effect(message, "o")
        shop.release_effect(effect, sent=False)
    other: Any = shop.begin_effect(three, "o")
    assert shop.delete(delete, "o") == Busy(delete, other.until, shop.get("o"))
    assert isinstance(shop.remember(three, "o", finishes=other), Applied)
    assert isinstance(shop.delete(delete, "o"), Applied)
    assert [type(shop.begin_effect(message, "o")) for message in (one, two)] == [Gone, Gone]
    assert shop.open_effects("o") == []


def test_tombstone_does_not_keep_the_former_entitys_ttl(shop: Shop) -> None:
    shop.touch(M1, "o", "expiresAt")
    shop.delete(M2, "o", emit=[Event("Deleted", None)])
    assert shop.expiry("o") is None


def test_delete_emits_its_event_once(shop: Shop) -> None:
    shop.add(M1, "o", emit=[Event("Made", 1)])
    shop.delete(M2, "o", emit=[Event("Deleted", 2)])
    shop.delete(M2, "o", emit=[Event("Deleted", 2)])
    assert [event["type"] for event in (shop.raw("o") or {})["ow_events"]] == ["Made", "Deleted"]
    assert shop.expiry("o") is None


# --- pending events ----------------------------------------------------------------------------------------------------


def _accepts(events: list[Outgoing]) -> None:
    """A broker that takes everything."""


def test_native_update_does_not_bring_a_deleted_entity_back(shop: Shop) -> None:
    shop.create(M1, "o")
    assert isinstance(shop.delete(M2, "o"), Applied)
    shop.touch_raw("o", "mine")
    assert shop.get("o") is None
    assert isinstance(shop.add(M3, "o"), Gone)
    assert isinstance(shop.delete(M2, "o"), Duplicate)
    assert ("mine" in (shop.raw("o") or {})) is (
        shop.key_name == "_id"
    )  # on DynamoDB, the delete completes its clean-up again


def test_tombstone_expires_after_its_last_event_is_cleared(shop: Shop) -> None:
    shop.add(M1, "o", emit=[Event("A", 1), Event("B", 2)])
    shop.delete(M2, "o", emit=[Event("C", 3)])
    assert shop.expiry("o") is None
    flushed = shop.relay(_accepts, clock=lambda: NOW + 100).flush("o")
    assert [(event.type, event.sequence) for event in flushed.published] == [("A", 1), ("B", 2), ("C", 3)]
    assert flushed.cleared
    assert shop.expiry("o") == EXPIRY + 100
    held = shop.raw("o") or {}
    assert "ow_events" not in held
    assert held["ow_sent"] == 3
    assert shop.add(LATE, "o") == Gone(LATE)


def test_event_numbering_continues_after_a_delete(shop: Shop) -> None:
    relay = shop.relay(_accepts)
    shop.add(M1, "o", emit=[Event("A", 1)])
    (first,) = relay.flush("o").published
    shop.delete(M2, "o", emit=[Event("B", 2)])
    (second,) = relay.flush("o").published
    assert (second.source, second.sequence) == (first.source, 2)


def test_a_refused_event_holds_the_tombstone_until_it_is_skipped(shop: Shop) -> None:
    shop.delete(M1, "o", emit=[Event("A", 1), Event("Poison", 2)])
    relay = shop.relay(lambda events: [event for event in events if event.type == "Poison"], clock=lambda: NOW)
    refused = relay.flush("o").refused
    assert refused is not None
    assert shop.expiry("o") is None
    relay.skip("o", refused.id)
    relay.flush("o")
    assert shop.expiry("o") == EXPIRY


def test_entity_deleted_while_published_expires_without_copies(store: str, shop: Shop) -> None:
    if "async" in store:
        pytest.skip("a blocking delete cannot come in between; the flow and the requests are those of the blocking store")
    published: list[str] = []

    def publish(events: list[Outgoing]) -> None:
        published.extend([event.type for event in events])
        shop.delete(M2, "o")

    shop.add(M1, "o", emit=[Event("A", 1)])
    assert shop.relay(publish, clock=lambda: NOW).flush("o").cleared
    assert published == ["A"]
    assert shop.expiry("o") == EXPIRY
    assert "ow_events" not in (shop.raw("o") or {})


def test_tombstone_of_two_services_expires_with_the_last_event(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(), OUTBOX, TOMBSTONES)
    other = make_shop(SeenIds(name="mine"), OUTBOX)
    shop.add(M1, "o", emit=[Event("A", 1)])
    other.add(M1, "o", emit=[Event("B", 2)])
    shop.delete(M2, "o")
    assert shop.expiry("o") is None
    assert [event.type for event in other.relay(_accepts, clock=lambda: NOW + 7).flush("o").published] == ["A", "B"]
    assert shop.expiry("o") == EXPIRY + 7
