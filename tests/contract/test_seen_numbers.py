"""What every store and every client promises of a source whose numbers come in any order."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from onewrite import (
    Applied,
    Begun,
    Busy,
    Duplicate,
    Event,
    Gone,
    LedgerMismatch,
    Message,
    Outbox,
    Outcome,
    Rejected,
    SeenNumbers,
    Stale,
    Superseded,
    Tombstones,
)
from tests.contract.stores import MakeShop, Shop

# Blocks of two numbers in five slots: 0 and 1, 10 and 11, 20 and 21 share a slot.
LEDGER = SeenNumbers(8)
Write = Callable[[Shop, Message], Outcome]
WRITES: dict[str, Write] = {
    "update": lambda shop, m: shop.add(m, "o"),
    "update and return": lambda shop, m: shop.add_and_return(m, "o"),
    "update if open": lambda shop, m: shop.add(m, "o", if_open=True, create=False),
    "record": lambda shop, m: shop.record(m, "o"),
    "delete": lambda shop, m: shop.delete(m, "o"),
    "emit": lambda shop, m: shop.add(m, "o", emit=[Event("Paid", {})]),
    "transact": lambda shop, m: shop.transact(m, shop.adding("o"), shop.adding("p")),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def message(n: int, source: str = "s") -> Message:
    return Message(f"{source}-{n}", source=source, sequence=n)


def numbered(*numbers: int) -> list[Message]:
    return [message(n) for n in numbers]


@pytest.fixture
def shop(make_shop: MakeShop) -> Shop:
    return make_shop(LEDGER, Outbox("shop"), Tombstones(timedelta(days=30)))


def _opened(shop: Shop, *numbers: int) -> None:
    shop.put_raw("o", n=0)
    shop.put_raw("p", n=0)
    for m in numbered(*numbers):
        assert isinstance(shop.add(m, "o"), Applied)


def n_of(shop: Shop, order: str = "o") -> Any:
    return (shop.get(order) or {}).get("n")


def _joint(shop: Shop, write: Write) -> None:
    if write is WRITES["transact"] and shop.name == "mongomock":
        pytest.skip("mongomock has no sessions")


# --- numbers in any order ---------------------------------------------------------------------------------------------


def test_numbers_that_are_overtaken_by_less_than_the_window_take_effect_once_and_copies_never(shop: Shop) -> None:
    order = [7, 0, 3, 1, 7, 9, 2, 8, 10, 4, 15, 9, 17, 11, 10, 23, 16]
    applied = [n for n in order if isinstance(shop.add(message(n), "o"), Applied)]
    assert applied == list(dict.fromkeys(order))
    assert n_of(shop) == len(applied)
    for n in order:
        assert isinstance(shop.add(message(n), "o"), Duplicate | Stale)
    assert n_of(shop) == len(applied)


def test_a_copy_that_comes_after_thousands_of_numbers_is_stale_and_says_what_took_its_place(shop: Shop) -> None:
    _opened(shop, 0, 1, 5001, 5000)
    for m in numbered(0, 1):
        assert shop.add(m, "o") == Stale(m, 5000, shop.get("o"))
    assert isinstance(shop.add(message(5000), "o"), Duplicate)


def test_a_number_that_comes_late_into_a_slot_that_nobody_uses_takes_effect(shop: Shop) -> None:
    _opened(shop, 20, 2)
    assert n_of(shop) == 2


@pytest.mark.few(2)
def test_sources_do_not_share_a_slot_and_neither_do_parts(shop: Shop) -> None:
    long = "shop/orders/orderId=S:o-1/"
    sources = ["s", "", "%", "%w8=s", "s.t0", "%s", f"{long}0", f"{long}1", "é" * 8, "#AAAAAAAAAAAAAA"]
    messages = [message(n, source) for source in sources for n in (0, 10)]
    messages += [m.part("stock") for m in messages]
    for m in messages:
        assert isinstance(shop.add(m, "o"), Applied)
    for m in messages:
        assert isinstance(shop.add(m, "o"), Duplicate | Stale)


@pytest.mark.parametrize("n", [2**31, 2**62])
def test_numbers_of_any_size_are_known_again(shop: Shop, n: int) -> None:
    _opened(shop, n)
    assert isinstance(shop.add(message(n), "o"), Duplicate)
    assert isinstance(shop.add(message(n + 10), "o"), Applied)


# --- a block is entered -----------------------------------------------------------------------------------------------


@writes
def test_every_write_enters_a_block_and_is_known_then(shop: Shop, write: Write) -> None:
    _joint(shop, write)
    _opened(shop, 0, 1)
    assert isinstance(write(shop, message(10)), Applied)
    assert isinstance(write(shop, message(10)), Duplicate)
    assert isinstance(write(shop, message(0)), Stale | Gone)


@writes
def test_every_write_finds_a_number_that_came_late_stale_and_changes_nothing(shop: Shop, write: Write) -> None:
    _joint(shop, write)
    _opened(shop, 10)
    before = shop.raw("o")
    outcome = write(shop, message(0))
    assert isinstance(outcome, Stale)
    assert outcome.mark == 10
    assert shop.raw("o") == before


def test_what_the_business_refuses_is_not_remembered_in_either_form(shop: Shop) -> None:
    _opened(shop, 0)
    _replaced(shop, closed=True)
    before = shop.raw("o")
    for m in numbered(1, 2, 10):
        assert shop.add(m, "o", if_open=True, create=False) == Rejected(m, shop.get("o"))
    assert shop.raw("o") == before
    assert isinstance(shop.add(message(10), "o"), Applied)


def test_a_look_says_what_a_write_would_get_whatever_the_form(shop: Shop) -> None:
    _opened(shop, 0, 12)
    kinds = [type(shop.seen(message(n), "o")) for n in (0, 1, 2, 10, 13, 20)]
    assert kinds == [Duplicate, Applied, Stale, Applied, Applied, Applied]


def test_an_entity_is_created_with_a_number_and_never_over_another(shop: Shop) -> None:
    assert isinstance(shop.create(message(10), "o"), Applied)
    assert isinstance(shop.create(message(10), "o"), Duplicate)
    assert isinstance(shop.create(message(0), "o"), Stale)
    for n in (11, 20):
        assert isinstance(shop.create(message(n), "o"), Rejected)
    assert isinstance(shop.add(message(11), "o"), Applied)


def test_an_update_creates_the_entity_and_its_slots(shop: Shop) -> None:
    for n in (0, 1, 10):
        assert isinstance(shop.add(message(n), "o"), Applied)
    assert shop.without_ledger(shop.raw("o") or {}) == {**shop.key("o"), "n": 3}


def test_a_tombstone_refuses_every_number_but_its_own(shop: Shop) -> None:
    _opened(shop, 0)
    assert isinstance(shop.delete(message(10), "o"), Applied)
    assert isinstance(shop.delete(message(10), "o"), Duplicate)
    for n in (11, 20):
        assert isinstance(shop.add(message(n), "o"), Gone)
    assert shop.without_ledger(shop.raw("o") or {}) == shop.key("o")


# --- steps ------------------------------------------------------------------------------------------------------------


def begun(shop: Shop, n: int) -> Begun:
    step = shop.begin(message(n), "o")
    assert isinstance(step, Begun)
    return step


@pytest.mark.parametrize("n", [1, 2, 10])
def test_a_step_is_begun_and_finished_whether_its_block_is_entered_or_not(shop: Shop, n: int) -> None:
    _opened(shop, 0)
    step = begun(shop, n)
    assert isinstance(shop.add(message(n), "o"), Busy)
    assert isinstance(shop.add(message(n), "o", finishes=step), Applied)
    assert isinstance(shop.add(message(n), "o", finishes=step), Duplicate)
    assert isinstance(shop.begin(message(n), "o"), Duplicate)
    assert n_of(shop) == 2


@pytest.mark.parametrize("others", [(10,), (20,), (10, 11, 20)])
def test_a_step_whose_slot_others_have_entered_meanwhile_is_finished_all_the_same(
    shop: Shop, others: tuple[int, ...]
) -> None:
    _opened(shop, 0)
    step = begun(shop, 10)
    for m in numbered(*[n for n in others if n != 10], 11):
        shop.add(m, "o")
    before = n_of(shop)
    assert isinstance(shop.add(message(10), "o", finishes=step), Applied)
    assert n_of(shop) == before + 1
    assert isinstance(shop.add(message(10), "o"), Duplicate | Stale)
    assert n_of(shop) == before + 1


def test_no_step_is_begun_for_a_number_that_came_late(shop: Shop) -> None:
    _opened(shop, 10, 11)
    assert isinstance(shop.begin(message(0), "o"), Stale)
    assert isinstance(shop.begin(message(10), "o"), Duplicate)


def test_a_step_that_was_released_is_no_longer_finished(shop: Shop) -> None:
    _opened(shop, 0)
    step = begun(shop, 10)
    shop.release(step, sent=False)
    assert isinstance(shop.add(message(10), "o", finishes=step), Superseded)
    assert isinstance(shop.add(message(10), "o", finishes=begun(shop, 10)), Applied)


# --- what else stands in the entity -----------------------------------------------------------------------------------


def test_a_store_with_another_window_is_refused_and_told_of_the_one_before(make_shop: MakeShop) -> None:
    make_shop(LEDGER).add(message(0), "o")
    with pytest.raises(LedgerMismatch, match=r"also=SeenNumbers\(8\)"):
        make_shop(SeenNumbers(12)).add(message(1), "o")


@pytest.mark.parametrize("wrong", ["5", [5], {"a": 1}, True], ids=["text", "list", "map", "bool"])
def test_a_tag_of_a_wrong_type_is_a_mismatch(shop: Shop, wrong: Any) -> None:
    _opened(shop, 0)
    _replaced(shop, **_with_tag(shop.raw("o") or {}, wrong))
    before = shop.raw("o")
    for n in (0, 1, 10):
        with pytest.raises(LedgerMismatch, match="number of a block"):
            shop.add(message(n), "o")
    assert shop.raw("o") == before


def _replaced(shop: Shop, **fields: Any) -> None:
    """Give the entity other fields past its store."""
    held = {name: value for name, value in (shop.raw("o") or {}).items() if name not in shop.key("o")}
    shop.delete_raw("o")
    shop.put_raw("o", **{**held, **fields})


def _with_tag(held: dict[str, Any], tag: Any) -> dict[str, Any]:
    """The slots of the entity with something else for the tag of the slot of 0."""
    if "ow_@" in held:
        return {"ow_@": {"%w8=s": {**held["ow_@"]["%w8=s"], "t0": tag}}}
    return {"ow_@%w8=s.t0": tag}
