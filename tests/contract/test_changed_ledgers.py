"""A ledger that is changed while entities are there: `previous=` names what was used before, and no message takes effect twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast

import pytest

from onewrite import (
    Applied,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    HighWaterMark,
    IdSet,
    InSequence,
    LedgerMismatch,
    Message,
    SeenIds,
    Stale,
    TakenOver,
    Uncertain,
)
from tests.contract.stores import NOW, MakeShop, Shop

AnyLedger = SeenIds | IdSet | HighWaterMark | InSequence
DAY = 86_400.0
MONTH, WEEK = timedelta(days=30), timedelta(days=7)
PLAIN = IdSet("messageIDs")

# What was used before, and what is used now.
IN_PLACE: dict[str, tuple[AnyLedger, AnyLedger]] = {
    "longer retention": (SeenIds(), SeenIds(MONTH, previous=SeenIds())),
    "shorter retention": (SeenIds(MONTH), SeenIds(WEEK, previous=SeenIds(MONTH))),
    "never forgotten": (SeenIds(), SeenIds(None, previous=SeenIds())),
    "readable": (SeenIds(), SeenIds(readable=True, previous=SeenIds())),
    "hashed": (SeenIds(readable=True), SeenIds(previous=SeenIds(readable=True))),
    "hashed after a plain set": (PLAIN, SeenIds(previous=PLAIN)),
    "plain set after hashes": (SeenIds(), IdSet("messageIDs", previous=SeenIds())),
    "ids after marks": (HighWaterMark(), SeenIds(previous=HighWaterMark())),
    "marks after ids": (SeenIds(), HighWaterMark(previous=SeenIds())),
    "ids after a sequence": (InSequence(), SeenIds(previous=InSequence())),
    "third in a row": (SeenIds(WEEK), SeenIds(MONTH, previous=(SeenIds(), SeenIds(WEEK)))),
    "a chain": (SeenIds(WEEK), SeenIds(MONTH, previous=SeenIds(previous=SeenIds(WEEK)))),
}
MOVED: dict[str, tuple[AnyLedger, AnyLedger]] = {
    "new name": (SeenIds(), SeenIds(name="seen", previous=SeenIds())),
    "new name and retention": (SeenIds(), SeenIds(MONTH, name="seen", previous=SeenIds())),
    "new name of a mark": (HighWaterMark(), HighWaterMark(name="marks", previous=HighWaterMark())),
    "ids after marks under a new name": (
        HighWaterMark(name="marks"),
        SeenIds(name="seen", previous=HighWaterMark(name="marks")),
    ),
}
CHANGES = IN_PLACE | MOVED
changes = pytest.mark.parametrize(("before", "now"), CHANGES.values(), ids=CHANGES)
# A set of the caller's has no label, so nobody notices a change from it or to it.
LABELLED = {name: pair for name, pair in IN_PLACE.items() if not any(isinstance(each, IdSet) for each in pair)}
NOTICED = {name: pair for name, pair in CHANGES.items() if not isinstance(pair[0], IdSet)}
labelled = pytest.mark.parametrize(("before", "now"), NOTICED.values(), ids=NOTICED)
changes_in_place = pytest.mark.parametrize(("before", "now"), LABELLED.values(), ids=LABELLED)
# A source that counts waits for what the other ledger has, so two deployments cannot take turns.
UNCOUNTED = {name: pair for name, pair in CHANGES.items() if not any(isinstance(each, InSequence) for each in pair)}
moves = pytest.mark.parametrize(("before", "now"), MOVED.values(), ids=MOVED)


def message(n: int, source: str = "order-1") -> Message:
    return Message(f"m{n}", source=source, sequence=n)


@pytest.fixture
def earlier(make_shop: MakeShop, before: AnyLedger) -> Shop:
    return make_shop(before)


@pytest.fixture
def shop(make_shop: MakeShop, now: AnyLedger) -> Shop:
    return make_shop(now)


def by_hand(shop: Shop, ids: Iterable[str]) -> Any:
    """A set of ids as a handler keeps it that remembers them by itself."""
    return [*ids] if shop.name.startswith("mongo") else {*ids}


@changes
def test_message_in_the_former_ledger_is_a_duplicate(earlier: Shop, shop: Shop) -> None:
    earlier.add(message(1), "o-1")
    raw = shop.raw("o-1")
    for write in (shop.add, shop.add_and_return, shop.create, shop.remember, shop.preview):
        assert write(message(1), "o-1") == Duplicate(message(1), earlier.get("o-1"))
    assert shop.raw("o-1") == raw
    assert set(raw or {}) - set(shop.get("o-1") or {}) == set(raw or {}) - {"_id", "orderId", "n"}


@changes
def test_fresh_message_is_applied_once_next_to_the_former_ledger(earlier: Shop, shop: Shop) -> None:
    earlier.add(message(1), "o-1")
    assert [type(shop.add(message(2), "o-1")) for _ in range(2)] == [Applied, Duplicate]
    assert not isinstance(shop.add(message(1), "o-1"), Applied)
    assert (shop.get("o-1") or {})["n"] == 2
    assert set(shop.get("o-1") or {}) <= {"_id", "orderId", "n"}


@changes_in_place
def test_changed_ledger_is_a_mismatch_without_previous(make_shop: MakeShop, before: AnyLedger, now: AnyLedger) -> None:
    earlier, shop = make_shop(before), make_shop(replace(cast("Any", now), previous=()))
    earlier.add(message(1), "o-1")
    raw = shop.raw("o-1")
    for write in (shop.add, shop.add_and_return, shop.create, shop.remember, shop.preview):
        for n in (1, 2):
            with pytest.raises(LedgerMismatch, match="previous="):
                write(message(n), "o-1")
    assert shop.raw("o-1") == raw


@labelled
def test_store_of_the_former_ledger_is_a_mismatch_afterwards(earlier: Shop, shop: Shop) -> None:
    earlier.add(message(1), "o-1")
    shop.add(message(2), "o-1")
    raw = shop.raw("o-1")
    for n in (1, 2, 3):
        with pytest.raises(LedgerMismatch, match="previous="):
            earlier.add(message(n), "o-1")
    assert shop.raw("o-1") == raw


@moves
def test_new_entity_is_a_mismatch_for_the_former_attributes_store(earlier: Shop, shop: Shop) -> None:
    shop.create(message(1), "o-1")
    with pytest.raises(LedgerMismatch, match="moved"):
        earlier.add(message(1), "o-1")
    assert (shop.get("o-1") or {})["n"] == 0


@pytest.mark.parametrize(("before", "now"), UNCOUNTED.values(), ids=UNCOUNTED)
def test_deployments_work_together_if_each_names_the_others_ledger(
    make_shop: MakeShop, before: AnyLedger, now: AnyLedger
) -> None:
    earlier, later = cast("tuple[Any, Any]", (before, now))
    shops = [make_shop(replace(earlier, previous=replace(later, previous=()))), make_shop(now)]
    for n in range(1, 9):
        turn = shops if n % 4 < 2 else shops[::-1]
        assert [type(shop.add(message(n), "o-1")) for shop in turn] == [Applied, Duplicate]
    for shop in shops:
        for n in range(1, 9):
            assert isinstance(shop.add(message(n), "o-1"), Duplicate | Stale)
    assert (shops[0].get("o-1") or {})["n"] == 8


def test_straggler_repeats_a_message_if_three_versions_run(make_shop: MakeShop) -> None:
    """This is why a step begins only when the version before the last has stopped: docs/migrating.md says so."""
    first, middle, last = map(make_shop, (SeenIds(), SeenIds(previous=SeenIds(WEEK)), SeenIds(WEEK, previous=SeenIds())))
    assert isinstance(last.add(message(1), "o-1"), Applied)
    with pytest.raises(LedgerMismatch):
        first.add(message(1), "o-1")
    assert isinstance(middle.add(message(2), "o-1"), Applied)  # it writes the first version's label
    assert isinstance(first.add(message(1), "o-1"), Applied)


@changes
def test_former_ledger_distinguishes_sources_of_one_id(earlier: Shop, shop: Shop) -> None:
    earlier.add(message(1, "order-1"), "o-1")
    assert [type(shop.add(message(1, "order-2"), "o-1")) for _ in range(2)] == [Applied, Duplicate]


def test_message_below_the_former_mark_is_stale(make_shop: MakeShop) -> None:
    make_shop(HighWaterMark()).add(message(5), "o-1")
    shop = make_shop(SeenIds(previous=HighWaterMark()))
    assert shop.add(message(4), "o-1") == Stale(message(4), 5, shop.get("o-1"))
    assert [type(shop.add(message(n), "o-1")) for n in (9, 7, 9)] == [Applied, Applied, Duplicate]


def test_sequence_continues_at_the_former_high_water_mark(make_shop: MakeShop) -> None:
    make_shop(HighWaterMark()).add(message(5), "o-1")
    shop = make_shop(InSequence())
    assert shop.add(message(7), "o-1") == Deferred(message(7), 6, shop.get("o-1"))
    assert [type(shop.add(message(n), "o-1")) for n in (6, 7, 6)] == [Applied, Applied, Stale]


@pytest.mark.parametrize("before", [HighWaterMark(), InSequence(0)], ids=["marks", "sequence"])
def test_first_number_of_a_sequence_follows_the_former_mark(make_shop: MakeShop, before: AnyLedger) -> None:
    make_shop(before).add(message(0), "o-1")
    shop = make_shop(InSequence(first=1))
    assert [type(shop.add(message(n), "o-1")) for n in (2, 1, 1, 2)] == [Deferred, Applied, Duplicate, Applied]


def test_former_id_is_known_for_the_former_retention(make_shop: MakeShop) -> None:
    earlier, shop = make_shop(SeenIds()), make_shop(SeenIds(MONTH, previous=SeenIds()))
    earlier.add(message(1), "o-1")
    for days in (1, 7, 14):
        shop.clock.now = NOW + days * DAY
        shop.add(Message(f"other {days}"), "o-1")
        assert isinstance(shop.add(message(1), "o-1"), Duplicate)
    for days in range(21, 91, 7):
        shop.clock.now = NOW + days * DAY
        shop.add(Message(f"other {days}"), "o-1")
    raw = shop.raw("o-1") or {}
    assert not any(raw[name] for name in raw if name.startswith("ow_r"))


# --- a set of ids kept by hand ----------------------------------------------------------------------------------------

AFTER_A_PLAIN_SET: dict[str, AnyLedger] = {
    "hashes": SeenIds(previous=PLAIN),
    "never forgotten": SeenIds(None, previous=PLAIN),
    "readable": SeenIds(readable=True, previous=PLAIN),
    "a name of its own": SeenIds(name="seen", previous=PLAIN),
    "marks": HighWaterMark(previous=PLAIN),
}


@pytest.mark.parametrize("ledger", AFTER_A_PLAIN_SET.values(), ids=AFTER_A_PLAIN_SET)
def test_callers_own_set_is_checked_for_duplicates(make_shop: MakeShop, ledger: AnyLedger) -> None:
    shop = make_shop(ledger)
    kept = by_hand(shop, ["m1", "m2"])
    shop.put_raw("o-1", n=2, messageIDs=kept)
    for n in (1, 2):
        assert shop.add(message(n), "o-1") == Duplicate(message(n), shop.get("o-1"))
        assert isinstance(shop.preview(message(n, "" if isinstance(ledger, SeenIds) else "s"), "o-1"), Duplicate)
    assert [type(shop.add(message(3), "o-1")) for _ in range(2)] == [Applied, Duplicate]
    assert shop.get("o-1") == shop.without_ledger(shop.raw("o-1") or {})
    assert set(shop.get("o-1") or {}) <= {"_id", "orderId", "n"}
    assert (shop.raw("o-1") or {})["messageIDs"] == kept


@pytest.mark.parametrize("ledger", [PLAIN, SeenIds(previous=PLAIN)], ids=str)
@pytest.mark.parametrize("source", ["", "s"])
@pytest.mark.parametrize("id_", ["@m1", "@npm/m1"])
def test_id_in_callers_own_set_can_begin_with_any_character(
    make_shop: MakeShop, ledger: AnyLedger, source: str, id_: str
) -> None:
    shop = make_shop(ledger)
    shop.put_raw("o-1", n=1, messageIDs=by_hand(shop, [id_]))
    assert isinstance(shop.add(Message(id_, source=source), "o-1"), Duplicate)
    assert (shop.get("o-1") or {})["n"] == 1


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(readable=True), SeenIds(None), HighWaterMark()], ids=str)
def test_callers_set_is_ignored_without_previous(make_shop: MakeShop, ledger: AnyLedger) -> None:
    shop = make_shop(ledger)
    kept = by_hand(shop, ["m1"])
    shop.put_raw("o-1", n=1, messageIDs=kept)
    assert [type(shop.add(message(1), "o-1")) for _ in range(2)] == [Applied, Duplicate]
    assert (shop.get("o-1") or {})["messageIDs"] == kept
    assert isinstance(shop.touch(message(2), "o-1", "messageIDs"), Applied)
    assert (shop.get("o-1") or {})["messageIDs"] == 1


# --- effects that were begun under the ledger before ---------------------------------------------------------------------


@pytest.fixture
def effect(earlier: Shop) -> Begun:
    """An effect of m1, begun under the ledger before."""
    earlier.put_raw("o", n=0)
    begun = earlier.begin_effect(message(1), "o")
    assert isinstance(begun, Begun)
    return begun


@changes
def test_effect_of_the_former_ledger_blocks_other_workers(shop: Shop, effect: Begun) -> None:
    m = message(1)
    others = (shop.begin_effect, shop.add, shop.remember, shop.preview)
    assert [type(each(m, "o")) for each in others] == [Busy] * 4
    assert [type(each) for each in shop.update_batch([m], "o")] == [Busy]
    assert isinstance(shop.update_batch([m, message(2)], "o")[0], Busy)
    assert isinstance(shop.open_effects("o")[0], Busy)
    shop.clock.now = effect.until
    assert [type(each) for each in (shop.begin_effect(m, "o", key_valid_for=timedelta(0)), shop.add(m, "o"))] == [
        Uncertain
    ] * 2
    assert shop.open_effects("o") == [Uncertain(m, effect.since, effect.fence, effect.key)]
    assert isinstance(shop.add(message(3), "o"), Applied | Deferred)


@changes
def test_effect_of_the_former_ledger_is_finished_once(earlier: Shop, shop: Shop, effect: Begun, before: AnyLedger) -> None:
    assert isinstance(shop.add(message(1), "o", finishes=effect), Applied)
    assert isinstance(shop.add(message(1), "o", finishes=effect), Duplicate | Stale)
    assert isinstance(shop.begin_effect(message(1), "o"), Duplicate | Stale)
    assert shop.open_effects("o") == []
    if before != PLAIN:
        with pytest.raises(LedgerMismatch):
            earlier.add(message(1), "o")


@changes
def test_effect_of_the_former_ledger_is_taken_over(shop: Shop, effect: Begun) -> None:
    shop.clock.now = effect.until
    taken = shop.begin_effect(message(1), "o")
    assert isinstance(taken, Begun)
    assert (taken.key, taken.since, taken.first) == (effect.key, effect.since, False)
    assert shop.begin_effect(message(1), "o") == Busy(message(1), taken.until)
    assert isinstance(shop.add(message(1), "o", finishes=effect), TakenOver)
    assert isinstance(shop.add(message(1), "o", finishes=taken), Applied)
    assert (shop.get("o") or {})["n"] == 1


@changes
def test_effect_of_the_former_ledger_is_released(shop: Shop, effect: Begun) -> None:
    shop.release_effect(effect, sent=False)
    again: Any = shop.begin_effect(message(1), "o")
    assert (type(again), again.first) == (Begun, True)


@changes
def test_effect_of_the_former_ledger_is_allowed_again(shop: Shop, effect: Begun) -> None:
    shop.clock.now = effect.until
    again: Any = shop.begin_effect(message(1), "o", after=shop.open_effects("o")[0], key_valid_for=timedelta(0))
    assert (type(again), again.key, again.first) == (Begun, effect.key, False)
