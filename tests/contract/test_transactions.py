"""What every store and every client promises of several writes that are one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from onewrite import (
    Applied,
    ConfigurationError,
    Deferred,
    Duplicate,
    Event,
    Gone,
    HighWaterMark,
    InSequence,
    InvalidUpdate,
    Message,
    Missing,
    Outbox,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
    Tombstones,
)
from tests.contract.stores import MakeIn, MakeShop, Shop, open_with_transactions, skip_without_transactions

M1, M2, M3 = (Message(f"m{n}", source="s", sequence=n) for n in (1, 2, 3))


@pytest.fixture(scope="module")
def opened(store: str, opened: MakeIn) -> Iterator[MakeIn]:
    skip_without_transactions(store)
    with open_with_transactions(store, opened) as make:
        yield make


@pytest.fixture
def shop(make_shop: MakeShop) -> Shop:
    return make_shop(SeenIds())


def numbers(shop: Shop, *orders: str) -> list[int | None]:
    """The number of each order; None where it has none or is not there."""
    found = [(shop.get(order) or {}).get("n") for order in orders]
    return [None if n is None else int(n) for n in found]


def test_all_writes_are_made_once(shop: Shop) -> None:
    for expected in (Applied, Duplicate, Duplicate):
        outcome = shop.transact(M1, shop.adding("a", -5), shop.adding("b", 5), shop.creating("c", 7))
        assert isinstance(outcome, expected)
    assert numbers(shop, "a", "b", "c") == [-5, 5, 7]
    assert isinstance(shop.transact(M2, shop.adding("a", -5), shop.adding("b", 5)), Applied)
    assert numbers(shop, "a", "b") == [-10, 10]


def test_transaction_writes_nothing_if_one_condition_fails(shop: Shop) -> None:
    shop.put_raw("b", closed=True)
    outcome = shop.transact(M1, shop.adding("a"), shop.adding("b", if_open=True), shop.adding("c"))
    assert isinstance(outcome, Rejected)
    assert (outcome.participant, outcome.settled) == (1, True)
    assert (outcome.entity or {})["closed"] is True
    assert numbers(shop, "a", "b", "c") == [None, None, None]


def test_creation_is_unsettled_if_only_another_record_exists(shop: Shop) -> None:
    shop.record(M1, "b")
    for _ in range(2):
        outcome = shop.transact(M2, shop.adding("a"), shop.creating("b"))
        assert (place_and_kind(outcome), outcome.settled) == ((1, Rejected), False)
    assert not shop.transact(M2, shop.creating("b")).settled
    assert numbers(shop, "a", "b") == [None, None]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_message_is_a_duplicate_if_one_participant_has_applied_it(shop: Shop, place: int) -> None:
    shop.add(M1, "abc"[place])
    before = numbers(shop, "a", "b", "c")
    shop.put_raw("closed", closed=True)
    writes = [shop.adding(order) for order in "abc"]
    outcome = shop.transact(M1, *writes)
    assert isinstance(outcome, Duplicate)
    assert (outcome.participant, (outcome.entity or {})["n"]) == (place, 1)
    assert isinstance(shop.transact(M1, shop.adding("closed", if_open=True), *writes), Duplicate)
    assert numbers(shop, "a", "b", "c") == before


def test_outcome_is_the_first_one_of_highest_precedence(make_shop: MakeShop) -> None:
    marks, counted = make_shop(HighWaterMark()), make_shop(InSequence(name="counted"))
    marks.add(M3, "late")
    marks.put_raw("closed", closed=True)
    rejected, stale = marks.adding("closed", if_open=True), marks.adding("late")
    deferred = counted.adding("fresh")
    assert place_and_kind(marks.transact(M2, counted.creating("new"), marks.adding("other"))) == (0, Deferred)
    assert place_and_kind(marks.transact(M2, rejected, deferred, stale)) == (2, Stale)
    assert place_and_kind(marks.transact(M2, rejected, deferred, counted.adding("fresh too"))) == (1, Deferred)
    assert place_and_kind(marks.transact(M2, rejected, marks.adding("other"))) == (0, Rejected)
    assert place_and_kind(marks.transact(M3, rejected, deferred, stale)) == (2, Duplicate)


def test_transaction_is_unsettled_unless_all_missing_entities_are_allowed(make_shop: MakeShop) -> None:
    shop, counted, plain = make_shop(SeenIds()), make_shop(InSequence()), make_shop(None)
    shop.put_raw("there", n=0)
    shop.put_raw("closed", closed=True)
    there, gone, may_be_gone = shop.adding("there"), shop.adding_there("x"), shop.adding_there("y", missing_ok=True)
    unguarded = plain.adding_there("z")
    for participants, place, settled in (
        ([there, gone], 1, False),
        ([there, may_be_gone], 1, True),
        ([may_be_gone, gone], 1, False),
        ([gone, may_be_gone], 0, False),
        ([may_be_gone, shop.adding("closed", if_open=True)], 0, True),
        ([shop.adding("closed", if_open=True), gone], 1, False),
        ([there, counted.adding_there("w", missing_ok=True)], 1, False),
    ):
        outcome = shop.transact(M1, *participants)
        assert (place_and_kind(outcome), outcome.settled) == ((place, Missing), settled)
    outcome = shop.transact(M1, there, unguarded, inbox=shop.inbox("c"))
    assert (place_and_kind(outcome), outcome.settled) == ((1, Missing), False)
    assert (shop.get("there") or {})["n"] == 0
    assert shop.transact(M1, gone) == Missing(M1, participant=0)
    assert shop.transact(M1, may_be_gone) == Missing(M1, settled=True, participant=0)


def place_and_kind(outcome: Any) -> tuple[int | None, type[Outcome]]:
    return outcome.participant, type(outcome)


def test_refusal_is_unsettled_if_others_would_wait_forever(make_shop: MakeShop) -> None:
    counted, plain = make_shop(InSequence()), make_shop(SeenIds())
    plain.put_raw("closed", closed=True)
    outcome = counted.transact(M1, counted.adding("a"), plain.adding("closed", if_open=True))
    assert isinstance(outcome, Rejected)
    assert not outcome.settled
    assert isinstance(counted.transact(M1, counted.recording("a"), plain.recording("closed")), Applied)
    assert isinstance(counted.transact(M2, counted.adding("a"), plain.adding("b")), Applied)
    assert numbers(counted, "a", "b") == [1, 1]


def test_tombstone_refuses_a_transaction(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(), None, Tombstones(timedelta(days=30)))
    assert isinstance(shop.delete(M2, "b"), Applied)
    outcome = shop.transact(M1, shop.adding("a"), shop.adding("b"))
    assert isinstance(outcome, Gone)
    assert outcome.participant == 1
    assert numbers(shop, "a") == [None]


def test_events_are_emitted_with_the_transaction(make_shop: MakeShop) -> None:
    outbox = Outbox("shop/orders")
    shop, plain = make_shop(SeenIds(), outbox), make_shop(SeenIds())
    paid = [Event("Paid", 5)]
    for _ in range(2):
        shop.transact(M1, shop.adding("a", emit=paid), plain.adding("b"), shop.adding("c", emit=paid))
    assert [len((shop.raw(order) or {}).get("ow_events", [])) for order in "abc"] == [1, 0, 1]
    with pytest.raises(ConfigurationError, match="this store has none"):
        shop.transact(M2, shop.adding("a"), plain.adding("b", emit=paid))


# --- an inbox ----------------------------------------------------------------------------------------------------------


def test_inbox_remembers_messages_for_participants_without_ledger(make_shop: MakeShop) -> None:
    plain = make_shop(None)
    inbox = plain.inbox("billing")
    for expected in (Applied, Duplicate, Duplicate):
        outcome = plain.transact(M1, plain.adding("a"), plain.creating("b", 4), inbox=inbox)
        assert isinstance(outcome, expected)
    assert isinstance(plain.transact(M1, plain.adding("c"), inbox=inbox), Duplicate)
    assert isinstance(plain.transact(M2, plain.adding("c"), inbox=inbox), Applied)
    assert numbers(plain, "a", "b", "c") == [1, 4, 1]
    assert "ow_t" not in (plain.raw("a") or {})


def test_ledgers_are_still_checked_with_an_inbox(make_shop: MakeShop) -> None:
    shop, plain = make_shop(SeenIds()), make_shop(None)
    shop.add(M1, "a")
    for _ in range(2):
        outcome = shop.transact(M1, plain.adding("b"), shop.adding("a"), inbox=shop.inbox("billing"))
        assert place_and_kind(outcome) == (1, Duplicate)
    assert numbers(shop, "a", "b") == [1, None]


def test_expired_inbox_message_is_a_duplicate_while_it_is_stored(make_shop: MakeShop) -> None:
    plain = make_shop(None)
    inbox = plain.inbox("billing")
    assert isinstance(plain.transact(M1, plain.adding("a"), inbox=inbox), Applied)
    plain.clock.now += 30 * 86400
    assert isinstance(plain.transact(M1, plain.adding("a"), inbox=inbox), Duplicate)


def test_consumers_sources_and_parts_share_no_inbox_place(make_shop: MakeShop) -> None:
    plain = make_shop(None)
    billing, mailing = plain.inbox("billing"), plain.inbox("mailing")
    others = [M1, replace(M1, source="other"), M1.part("second"), replace(M1, source="", id="sm1")]
    for inbox in (billing, mailing):
        for message in others:
            assert isinstance(plain.transact(message, plain.adding("a"), inbox=inbox), Applied)
    assert numbers(plain, "a") == [8]


def test_renamed_consumer_knows_messages_of_its_old_names(make_shop: MakeShop) -> None:
    plain = make_shop(None)
    oldest, old, other = plain.inbox("bills"), plain.inbox("billing"), plain.inbox("mail")
    new = replace(old, consumer=old.consumer.replace("billing", "invoices"), also=(old.consumer, oldest.consumer))
    messages = [Message(f"n{n}") for n in range(4)]
    for inbox, m in zip((oldest, old, other), messages, strict=False):
        assert isinstance(plain.transact(m, plain.adding("a"), inbox=inbox), Applied)
    found = [type(plain.transact(m, plain.adding("a"), inbox=new)) for m in messages]
    assert found == [Duplicate, Duplicate, Applied, Applied]
    # A deployment of before, which is still there or comes back, sees what is done now.
    assert [type(plain.transact(messages[3], plain.adding("a"), inbox=inbox)) for inbox in (old, oldest)] == [Duplicate] * 2
    assert (plain.get("a") or {})["n"] == 5


def test_refused_message_is_not_stored_in_the_inbox(make_shop: MakeShop) -> None:
    plain, shop = make_shop(None), make_shop(SeenIds())
    inbox = plain.inbox("billing")
    plain.put_raw("closed", closed=True)
    outcome: Any = plain.transact(M1, plain.adding("a"), plain.adding("closed", if_open=True), inbox=inbox)
    assert place_and_kind(outcome) == (1, Rejected)
    assert (outcome.entity or {})["closed"] is True
    assert isinstance(plain.transact(M1, plain.adding("a"), shop.adding("b"), inbox=inbox), Applied)


def test_tombstone_refuses_a_participant_without_a_ledger(make_shop: MakeShop) -> None:
    plain, shop = make_shop(None), make_shop(SeenIds(), None, Tombstones(timedelta(days=30)))
    assert isinstance(shop.delete(M2, "b"), Applied)
    for write in (plain.adding("b"), plain.creating("b")):
        assert place_and_kind(plain.transact(M1, plain.adding("a"), write, inbox=plain.inbox("x"))) == (1, Gone)


# --- what is refused ---------------------------------------------------------------------------------------------------


def test_store_without_ledger_is_refused_without_an_inbox(make_shop: MakeShop) -> None:
    plain, shop = make_shop(None), make_shop(SeenIds())
    plain.put_raw("a")
    with pytest.raises(ConfigurationError, match="inbox"):
        shop.transact(M1, shop.adding("b"), plain.adding("a"))
    with pytest.raises(ConfigurationError, match="inbox"):
        shop.transact(M1, plain.adding("a"))
    for write in (plain.add, plain.create, plain.record, plain.seen, plain.explain):
        with pytest.raises(ConfigurationError, match="no ledger"):
            write(M1, "a")
    assert plain.get("a") is not None
    assert numbers(plain, "a", "b") == [None, None]
    with pytest.raises(ConfigurationError, match="can't emit events"):
        make_shop(None, Outbox("shop/orders"))


def test_transaction_without_participants_is_refused(shop: Shop) -> None:
    with pytest.raises(InvalidUpdate, match="at least one participant"):
        shop.transact(M1)


def test_transaction_refuses_a_write_that_is_not_prepared(shop: Shop) -> None:
    with pytest.raises(InvalidUpdate, match="got a Applied"):
        shop.transact(M2, shop.add(M1, "a"))


def test_two_writes_of_one_entity_are_refused(shop: Shop) -> None:
    for other in (shop.adding("a"), shop.creating("a")):
        with pytest.raises(InvalidUpdate, match="same"):
            shop.transact(M1, shop.adding("a"), other)
    with pytest.raises(InvalidUpdate, match="same"):
        shop.transact(M1, shop.creating("z", 1), shop.creating("z", 2))
    assert numbers(shop, "a", "z") == [None, None]
