"""A ledger that counts and follows another one: its mark moves over what that one holds, so no message waits forever."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, combinations, permutations
from typing import Any

import pytest

from onewrite import (
    Applied,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    HighWaterMark,
    InSequence,
    Message,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
)
from tests.contract.stores import Adding, MakeIn, MakeShop, Shop, open_with_transactions, skip_without_transactions
from tests.contract.test_deletes import TOMBSTONES

OLD = SeenIds()
NEW = InSequence(also=(HighWaterMark(), OLD))
FROM_5 = InSequence(first=5, also=OLD)


@pytest.fixture(scope="module")
def opened(store: str, opened: MakeIn) -> Iterator[MakeIn]:
    with open_with_transactions(store, opened) as make:
        yield make


def message(n: int, source: str = "s") -> Message:
    return Message(f"{source}{n}", source=source, sequence=n)


def kinds(outcomes: Sequence[Any]) -> list[type[Any]]:
    return [type(outcome) for outcome in outcomes]


def settled_in(shop: Shop, order: str, turns: Sequence[int]) -> list[Outcome]:
    """Deliver each message until it is settled, in this order again and again. The outcomes that settled them."""
    outcomes: dict[int, Outcome] = {}
    for _ in turns:
        for n in turns:
            if n not in outcomes and (outcome := shop.add(message(n), order)).settled:
                outcomes[n] = outcome
    return [outcomes[n] for n in sorted(outcomes)]


VERBS: dict[str, Callable[[Shop, Message], Any]] = {
    "update": lambda shop, m: shop.add(m, "o"),
    "find and update": lambda shop, m: shop.add_and_return(m, "o"),
    "insert": lambda shop, m: shop.create(m, "o"),
    "delete": lambda shop, m: shop.delete(m, "o"),
    "find and delete": lambda shop, m: shop.delete(m, "o", shows=True),
    "record": lambda shop, m: shop.record(m, "o"),
    "begin": lambda shop, m: shop.begin(m, "o"),
    "perform": lambda shop, m: shop.perform(m, "o", lambda _: 1 / 0, lambda n: n),
    "fold of one": lambda shop, m: shop.fold([m], "o")[0],
    "transact alone": lambda shop, m: shop.transact(m, shop.adding("o")),
    "transact first": lambda shop, m: shop.transact(m, shop.adding("o"), shop.adding("p")),
    "transact last": lambda shop, m: shop.transact(m, shop.adding("p"), shop.recording("o")),
    "transact an insert": lambda shop, m: shop.transact(m, shop.adding("p"), shop.creating("o")),
    "transact with an inbox": lambda shop, m: shop.transact(m, shop.adding("o"), inbox=shop.inbox("billing")),
}


@pytest.fixture
def old(make_shop: MakeShop) -> Shop:
    return make_shop(OLD)


@pytest.fixture
def new(make_shop: MakeShop) -> Shop:
    return make_shop(NEW)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(("ledger", "n"), [(NEW, 1), (FROM_5, 5)], ids=["first", "from 5"])
def test_former_message_moves_the_mark_in_every_verb(
    make_shop: MakeShop, store: str, old: Shop, ledger: InSequence, n: int, verb: str
) -> None:
    if verb.startswith("transact "):
        skip_without_transactions(store)
    shop, orders = make_shop(ledger, tombstones=TOMBSTONES), ("o", "p")
    for order in orders:
        assert kinds([old.add(message(each), order) for each in (n, n + 1)]) == [Applied] * 2
    for each in (n, n + 1):
        assert type(VERBS[verb](shop, message(each))) is Duplicate
    assert kinds([shop.add(message(each), "o") for each in (n + 2, n + 1, n + 3)]) == [Applied, Duplicate, Applied]
    assert [(shop.get(order) or {})["n"] for order in orders] == [4, 2]


def test_former_message_is_deferred_until_its_turn(old: Shop, new: Shop) -> None:
    for n in (2, 1):
        old.add(message(n), "o")
    entity = new.get("o")
    assert [new.add(message(2), "o"), new.seen(message(2), "o")] == [Deferred(message(2), 1, entity)] * 2
    assert kinds([new.add(message(n), "o") for n in (1, 2, 3)]) == [Duplicate, Duplicate, Applied]


@pytest.mark.parametrize("held", [*chain.from_iterable(combinations((1, 2, 3), size) for size in range(4))])
def test_every_order_of_redeliveries_takes_effect_once_and_settles(
    make_shop: MakeShop, old: Shop, new: Shop, held: tuple[int, ...]
) -> None:
    for place, order in enumerate(permutations((1, 2, 3))):
        name = f"o{place}"
        for n in held:
            old.add(message(n), name)
        outcomes = settled_in(new, name, order)
        assert kinds(outcomes) == [Duplicate if n in held else Applied for n in (1, 2, 3)]
        assert (new.get(name) or {})["n"] == 3


@pytest.mark.parametrize("held", [*chain.from_iterable(combinations((1, 2, 3, 4), size) for size in range(1, 5))])
def test_fold_passes_over_former_messages(old: Shop, new: Shop, held: tuple[int, ...]) -> None:
    for n in held:
        old.add(message(n), "o")
    adding = Adding()
    outcomes = new.fold([message(n) for n in (4, 2, 1, 3)], "o", adding)
    assert kinds(outcomes) == [Duplicate if n in held else Applied for n in (4, 2, 1, 3)]
    assert kinds(new.fold([message(5), message(6)], "o")) == [Applied] * 2
    assert (new.get("o") or {})["n"] == 6
    assert len(adding.asked) <= 2


def test_refused_fold_passes_over_former_messages(old: Shop, new: Shop) -> None:
    old.add(message(2), "o")
    outcomes = new.fold([message(n) for n in (1, 2, 3)], "o", Adding(creates=False, limit=2))
    assert kinds([*outcomes, new.add(message(4), "o")]) == [Applied, Duplicate, Rejected, Applied]


def test_old_writer_can_continue_next_to_new_writers(make_shop: MakeShop, new: Shop) -> None:
    old = make_shop(SeenIds(also=HighWaterMark()))
    turns = [
        *((new, 1, Applied), (old, 3, Applied), (old, 2, Applied), (new, 3, Deferred), (new, 2, Duplicate)),
        *((old, 1, Stale), (new, 3, Duplicate), (new, 4, Applied), (old, 4, Duplicate)),
        *((old, 5, Applied), (new, 5, Duplicate), (new, 6, Applied)),
    ]
    for shop, n, expected in turns:
        assert type(shop.add(message(n), "o")) is expected
    assert (new.get("o") or {})["n"] == 6


def test_open_step_of_a_held_message_keeps_the_mark(old: Shop, new: Shop) -> None:
    old.put_raw("o", n=0)
    step = old.begin(message(1), "o")
    assert isinstance(step, Begun)
    assert type(new.add(message(1), "o")) is Busy
    assert type(old.add(message(1), "o", finishes=step)) is Applied
    assert type(new.begin(message(1), "o")) is Duplicate
    again = new.begin(message(2), "o")
    assert isinstance(again, Begun)
    assert kinds([new.add(message(3), "o"), new.add(message(2), "o", finishes=again)]) == [Deferred, Applied]


def test_mark_moves_if_an_inbox_holds_the_message(store: str, old: Shop, new: Shop) -> None:
    skip_without_transactions(store)
    for n in (1, 2):
        assert type(old.transact(message(n), old.adding("o"), inbox=old.inbox("billing"))) is Applied
    turns = [new.transact(message(n), new.adding("o"), inbox=new.inbox("billing")) for n in (2, 1, 2, 3)]
    assert kinds(turns) == [Deferred, Duplicate, Duplicate, Applied]


@pytest.mark.parametrize("deferred", [0, 1])
def test_message_is_redelivered_until_each_participants_turn(
    store: str, make_shop: MakeShop, old: Shop, new: Shop, deferred: int
) -> None:
    skip_without_transactions(store)
    for n in (1, 2):
        old.add(message(n), "o")
    other = make_shop(SeenIds(name="other"))
    other.add(message(2), "p")
    writes = [other.adding("p"), new.adding("o")]
    outcome = new.transact(message(2), *(writes if deferred else writes[::-1]))
    assert (type(outcome), outcome.participant if isinstance(outcome, Deferred) else None) == (Deferred, deferred)
    new.add(message(1), "o")
    assert type(new.transact(message(2), *writes)) is Duplicate
    assert type(new.add(message(3), "o")) is Applied
