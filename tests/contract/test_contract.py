"""What users rely on, whatever the store: the same suite over stand-ins and servers, blocking and asynchronous."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from onewrite import (
    Applied,
    Deferred,
    Duplicate,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    Rejected,
    SeenIds,
    Stale,
)
from onewrite.ledger import Ledger
from tests.contract.stores import NOW, MakeShop, Shop

DAY = 86_400.0
LEDGERS: dict[str, Ledger] = {
    "seen": SeenIds(),
    "seen digest": SeenIds(digest=True),
    "seen for ever": SeenIds(retention=None),
    "seen for ever digest": SeenIds(retention=None, digest=True),
    "mark": HighWaterMark(),
    "sequence": InSequence(),
}
SETS = {name: ledger for name, ledger in LEDGERS.items() if name.startswith("seen")}
TEXTS = [
    "",
    "a",
    "a.b",
    ".",
    "..",
    "$",
    "$a",
    "$[]",
    "0",
    "12",
    "%",
    "%2E",
    "a\0b",
    "é",
    "e\u0301",
    "x" * 300,
    "_id",
    " ",
    "😀",
]


def message(n: int, source: str = "order-1", **more: Any) -> Message:
    return Message(f"m{n}", source=source, sequence=n, **more)


@pytest.fixture(params=list(LEDGERS))
def shop(request: pytest.FixtureRequest, make_shop: MakeShop) -> Shop:
    return make_shop(LEDGERS[request.param])


def n_of(shop: Shop, order: str = "o-1") -> Any:
    entity = shop.get(order)
    return None if entity is None else entity.get("n")


# --- every ledger -----------------------------------------------------------------------------------------------------


def test_a_fresh_message_takes_effect(shop: Shop) -> None:
    assert shop.add(message(1), "o-1", 5) == Applied(message(1))
    assert n_of(shop) == 5


def test_a_message_delivered_twice_takes_effect_once(shop: Shop) -> None:
    shop.add(message(1), "o-1", 5)
    assert isinstance(shop.add(message(1), "o-1", 5), Duplicate)
    assert n_of(shop) == 5


def test_another_message_takes_effect_too(shop: Shop) -> None:
    outcomes = [shop.add(message(n), "o-1") for n in (1, 2, 3)]
    assert [type(outcome) for outcome in outcomes] == [Applied] * 3
    assert n_of(shop) == 3


def test_the_same_message_takes_effect_on_another_entity(shop: Shop) -> None:
    shop.add(message(1), "o-1")
    assert isinstance(shop.add(message(1), "o-2"), Applied)


def test_the_entity_comes_back_where_asked_for_and_without_its_ledger(shop: Shop) -> None:
    first = shop.add_and_return(message(1), "o-1", 5)
    second = shop.add_and_return(message(2), "o-1", 5)
    assert isinstance(first, Applied)
    assert isinstance(second, Applied)
    assert first.entity == {**shop.without_ledger(shop.raw("o-1") or {}), "n": 5}
    assert second.entity == shop.get("o-1")


def test_a_duplicate_shows_the_entity_without_its_ledger(shop: Shop) -> None:
    shop.add(message(1), "o-1", 5)
    outcome = shop.add(message(1), "o-1", 5)
    assert outcome == Duplicate(message(1), shop.get("o-1"))


def test_a_message_that_the_business_refuses_leaves_nothing_behind(shop: Shop) -> None:
    shop.put_raw("o-1", n=0, closed=True)
    before = shop.raw("o-1")
    assert shop.add(message(1), "o-1", if_open=True, create=False) == Rejected(message(1), shop.get("o-1"))
    assert shop.raw("o-1") == before


def test_a_message_that_the_business_refused_may_be_let_in_later(shop: Shop) -> None:
    shop.put_raw("o-1", n=0, closed=True)
    shop.add(message(1), "o-1", if_open=True, create=False)
    assert isinstance(shop.add(message(1), "o-1"), Applied)


def test_the_business_refuses_a_fresh_message_even_where_it_could_create(shop: Shop) -> None:
    shop.put_raw("o-1", n=0, closed=True)
    assert isinstance(shop.add(message(1), "o-1", if_open=True, create=True), Rejected)
    assert n_of(shop) == 0


def test_a_redelivery_is_a_duplicate_though_the_business_would_now_refuse_it(shop: Shop) -> None:
    shop.add(message(1), "o-1")
    shop.touch(message(2), "o-1", "closed")
    third = message(2)
    assert isinstance(shop.add(third, "o-1", if_open=True), Duplicate)


def test_an_entity_that_may_not_be_created_is_not(shop: Shop) -> None:
    assert shop.add(message(1), "o-1", create=False) == Rejected(message(1), None)
    assert shop.raw("o-1") is None


def test_a_creating_message_creates_once(shop: Shop) -> None:
    assert isinstance(shop.create(message(1), "o-1", 7), Applied)
    assert isinstance(shop.create(message(1), "o-1", 7), Duplicate)
    assert n_of(shop) == 7


def test_creating_never_replaces_what_is_there(shop: Shop) -> None:
    shop.put_raw("o-1", n=3)
    assert shop.create(message(1), "o-1", 7) == Rejected(message(1), shop.get("o-1"))
    assert n_of(shop) == 3


def test_creating_after_other_messages_is_rejected(shop: Shop) -> None:
    shop.add(message(1), "o-1", 3)
    assert isinstance(shop.create(message(2), "o-1", 7), Rejected)
    assert n_of(shop) == 3


def test_a_recorded_message_is_not_let_in_any_more(shop: Shop) -> None:
    shop.put_raw("o-1", n=0)
    assert shop.record(message(1), "o-1") == Applied(message(1))
    assert isinstance(shop.add(message(1), "o-1"), Duplicate)
    assert n_of(shop) == 0


def test_a_message_is_recorded_even_where_there_is_no_entity_yet(shop: Shop) -> None:
    shop.record(message(1), "o-1")
    assert isinstance(shop.record(message(1), "o-1"), Duplicate)
    assert isinstance(shop.add(message(2), "o-1"), Applied)


def test_seen_tells_what_a_write_would_get_and_writes_nothing(shop: Shop) -> None:
    assert shop.seen(message(1), "o-1") == Applied(message(1))
    assert shop.raw("o-1") is None
    shop.add(message(1), "o-1")
    before = shop.raw("o-1")
    assert shop.seen(message(1), "o-1") == Duplicate(message(1), shop.get("o-1"))
    assert shop.seen(message(2), "o-1") == Applied(message(2), shop.get("o-1"))
    assert shop.raw("o-1") == before


def test_the_entity_is_read_without_its_ledger(shop: Shop) -> None:
    assert shop.get("o-1") is None
    shop.add(message(1), "o-1", 5)
    raw = shop.raw("o-1")
    assert raw is not None
    assert len(raw) > 2
    assert shop.without_ledger(raw) == shop.get("o-1")
    assert set(shop.get("o-1") or {}) in ({"orderId", "n"}, {"_id", "n"})


def test_explain_sends_nothing(shop: Shop) -> None:
    assert isinstance(shop.explain(message(1), "o-1"), dict)
    assert shop.raw("o-1") is None


@pytest.mark.parametrize("field", ["messageIDs", "messageIDs.@order-1", "events", "events.@order-1"])
def test_a_call_that_touches_the_ledger_is_refused_before_it_is_sent(make_shop: MakeShop, field: str) -> None:
    shop = make_shop(SeenIds() if field.startswith("messageIDs") else HighWaterMark())
    with pytest.raises(InvalidUpdate, match="belongs to the ledger"):
        shop.touch(message(1), "o-1", field)
    assert shop.raw("o-1") is None


def test_ledgers_with_attributes_of_their_own_share_an_entity(make_shop: MakeShop) -> None:
    mine, theirs = make_shop(SeenIds(attribute="mine")), make_shop(HighWaterMark(attribute="theirs"))
    mine.add(message(1), "o-1")
    assert isinstance(theirs.add(message(1), "o-1"), Applied)
    assert isinstance(mine.add(message(1), "o-1"), Duplicate)
    assert isinstance(theirs.add(message(1), "o-1"), Duplicate)
    assert n_of(mine) == 2


# --- sets of ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ledger", SETS.values(), ids=SETS)
def test_any_order_is_let_in_once(make_shop: MakeShop, ledger: Ledger) -> None:
    shop = make_shop(ledger)
    outcomes = [shop.add(message(n), "o-1") for n in (3, 1, 3, 2, 1, 2, 3)]
    assert [type(outcome) for outcome in outcomes] == [Applied, Applied, Duplicate, Applied] + [Duplicate] * 3
    assert n_of(shop) == 3


@pytest.mark.parametrize("ledger", SETS.values(), ids=SETS)
def test_ids_that_look_alike_stay_apart(make_shop: MakeShop, ledger: Ledger) -> None:
    shop = make_shop(ledger)
    ids = [*filter(None, TEXTS), "A", "1", "1.0", "01", "true", "null", "~a", "0f8fad5b-d9cb-469f-a165-70867728950e"]
    ids += [ids[-1].upper(), ids[-1].replace("-", ""), "f" * 36]
    assert [type(shop.add(Message(id_), "o-1")) for id_ in ids] == [Applied] * len(ids)
    assert [type(shop.add(Message(id_), "o-1")) for id_ in ids] == [Duplicate] * len(ids)


def test_an_id_is_recognised_throughout_its_retention_and_forgotten_later(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(retention=timedelta(days=14)))
    shop.add(message(1), "o-1")
    for days in (0.5, 6, 13, 14):
        shop.clock.now = NOW + days * DAY
        shop.add(Message(f"other {days}"), "o-1")
        assert isinstance(shop.add(message(1), "o-1"), Duplicate)
    shop.clock.now = NOW + 23 * DAY
    assert isinstance(shop.add(message(1), "o-1"), Applied)


def test_an_id_from_a_consumer_whose_clock_is_fast_or_slow_is_recognised(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(retention=timedelta(days=14)))
    for hours in range(0, 24 * 16, 6):
        shop.clock.now = NOW + hours * 3600 + 6 * 3600
        shop.add(Message(f"fast {hours}"), "o-1")
        shop.clock.now = NOW + hours * 3600 - 6 * 3600
        assert isinstance(shop.add(Message(f"fast {hours}"), "o-1"), Duplicate)


def test_a_bounded_ledger_keeps_a_constant_number_of_attributes(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(retention=timedelta(days=14)))
    for days in range(0, 400, 7):
        shop.clock.now = NOW + days * DAY
        shop.add(Message(f"day {days}"), "o-1")
        raw = shop.raw("o-1") or {}
        slots = raw["messageIDs"] if "messageIDs" in raw else [name for name in raw if name.startswith("messageIDs")]
        assert len(slots) <= 6


def test_a_set_that_is_kept_for_ever_is_a_plain_set_of_ids(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(retention=None))
    shop.add(message(1), "o-1")
    shop.add(message(2), "o-1")
    assert sorted((shop.raw("o-1") or {})["messageIDs"]) == ["m1", "m2"]


# --- marks ------------------------------------------------------------------------------------------------------------


def test_what_is_below_the_mark_is_stale(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    shop.add(message(3), "o-1")
    assert shop.add(message(2), "o-1") == Stale(message(2), 3, shop.get("o-1"))
    assert isinstance(shop.add(message(7), "o-1"), Applied)
    assert n_of(shop) == 2


def test_text_sequences_compare_as_text(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    outcomes = [shop.add(Message("m", sequence=s), "o-1") for s in ("a1", "a10", "a2", "a10")]
    assert [type(outcome) for outcome in outcomes] == [Applied, Applied, Applied, Stale]
    assert outcomes[-1] == Stale(Message("m", sequence="a10"), "a2", shop.get("o-1"))


def test_a_source_that_changes_its_type_of_sequence_is_a_mismatch(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    shop.add(message(3), "o-1")
    with pytest.raises(LedgerMismatch):
        shop.add(Message("m4", source="order-1", sequence="4"), "o-1")
    assert n_of(shop) == 1


def test_each_source_has_a_mark_of_its_own(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    assert [type(shop.add(message(1, text), "o-1")) for text in TEXTS] == [Applied] * len(TEXTS)
    assert [type(shop.add(message(1, text), "o-1")) for text in TEXTS] == [Duplicate] * len(TEXTS)
    assert n_of(shop) == len(TEXTS)


def test_a_gap_defers_and_writes_nothing(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence())
    shop.add(message(1), "o-1")
    before = shop.raw("o-1")
    assert shop.add(message(3), "o-1") == Deferred(message(3), 2, shop.get("o-1"))
    assert shop.raw("o-1") == before
    assert [type(shop.add(message(n), "o-1")) for n in (2, 3)] == [Applied, Applied]


def test_a_gap_before_the_first_message_creates_nothing(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence())
    assert shop.add(message(2), "o-1") == Deferred(message(2), 1)
    assert shop.create(message(2), "o-1") == Deferred(message(2), 1)
    assert shop.record(message(2), "o-1") == Deferred(message(2), 1)
    assert shop.raw("o-1") is None


def test_a_sequence_may_begin_anywhere(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence(first=5))
    assert shop.add(message(4), "o-1") == Stale(message(4), 4)
    assert [type(shop.add(message(n), "o-1")) for n in (5, 6, 5)] == [Applied, Applied, Stale]


def test_a_gap_comes_before_the_business_condition(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence())
    shop.put_raw("o-1", n=0, closed=True)
    assert isinstance(shop.add(message(2), "o-1", if_open=True), Deferred)
    assert isinstance(shop.add(message(1), "o-1", if_open=True), Rejected)


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()], ids=["mark", "sequence"])
def test_a_message_without_a_sequence_is_invalid_for_a_mark(make_shop: MakeShop, ledger: Ledger) -> None:
    shop = make_shop(ledger)
    with pytest.raises(InvalidMessage, match="sequence"):
        shop.add(Message("m1"), "o-1")
    assert shop.raw("o-1") is None


def test_a_sequence_that_the_database_cannot_hold_is_invalid(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    with pytest.raises(InvalidMessage, match="sortable"):
        shop.add(message(10**40), "o-1")


# --- a broken ledger --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["m1", ["m1"], 5, {"m1": 1}], ids=["text", "list", "number", "map"])
@pytest.mark.parametrize("ledger", LEDGERS.values(), ids=LEDGERS)
def test_something_else_in_the_ledgers_place_is_a_mismatch(make_shop: MakeShop, ledger: Ledger, wrong: Any) -> None:
    shop = make_shop(ledger)
    if reason := _unfit(shop, ledger, wrong):
        pytest.skip(reason)
    shop.put_raw("o-1", **_nested(shop, _place(shop), wrong))
    for n in (1, 2):
        with pytest.raises(LedgerMismatch):
            shop.add(message(n), "o-1")
    assert n_of(shop) is None


def _unfit(shop: Shop, ledger: Ledger, wrong: Any) -> str | None:
    if isinstance(wrong, int) and not isinstance(ledger, SeenIds):
        return "a number is what a mark is"
    if shop.name in ("mongod", "mongomock") and isinstance(wrong, list) and isinstance(ledger, SeenIds):
        return "on MongoDB a list is what a set of ids is"
    return None


def _place(shop: Shop) -> str:
    """Where this shop's ledger keeps the next message, as its own request says."""
    request = shop.explain(message(1), "o-1")
    if "filter" in request:
        return next(path for change in ("$push", "$set") for path in request["update"].get(change, ()))
    action, names = request["UpdateExpression"], request.get("ExpressionAttributeNames", {})
    clause = action[max(action.find("ADD "), 0) :]
    place = re.findall(r"#ow_\d|messageIDs_r\d", clause)[0]  # nothing of the shop's own is called so
    return str(names.get(place, place))


def _nested(shop: Shop, path: str, value: Any) -> dict[str, Any]:
    if shop.name.startswith("mongo") and "." in path:
        outer, inner = path.split(".", 1)
        return {outer: {inner: value}}
    return {path: value}
