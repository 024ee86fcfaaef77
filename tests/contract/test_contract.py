"""What users rely on, whatever the store: the same suite over stand-ins and servers, blocking and asynchronous."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from functools import partial
from typing import Any, cast

import pytest
from pymongo.results import UpdateResult

from onewrite import (
    Applied,
    BeginOutcome,
    ConfigurationError,
    Deferred,
    Duplicate,
    HighWaterMark,
    IdSet,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    Missing,
    Rejected,
    SeenIds,
    Stale,
    Tombstones,
    sortable,
)
from onewrite.core.ledgers import Ledger
from onewrite.outcome import ENTITY_EXISTS
from tests.contract.stores import NOW, MakeShop, MongoShop, Shop

DAY = 86_400.0
LEDGERS: dict[str, Ledger] = {
    "seen": SeenIds(),
    "seen readable": SeenIds(readable=True),
    "seen forever": SeenIds(retention=None),
    "seen forever readable": SeenIds(retention=None, readable=True),
    "message ids": IdSet("messageIDs"),
    "mark": HighWaterMark(),
    "sequence": InSequence(),
}
SETS = {name: ledger for name, ledger in LEDGERS.items() if name.startswith("seen")}
NOT_COUNTED = [name for name in LEDGERS if name != "sequence"]
not_counted = pytest.mark.parametrize("shop", NOT_COUNTED, indirect=True)
TEXTS = [
    *("a", "a.b", ".", "..", "$", "$a", "$[]", "0", "12", "%", "%2E", "a\0b", "é", "e\u0301", "x" * 300, "_id", " ", "😀"),
]


def message(n: int, source: str = "order-1", **more: Any) -> Message:
    return Message(f"m{n}", source=source, sequence=n, **more)


@pytest.fixture(params=list(LEDGERS))
def shop(request: pytest.FixtureRequest, make_shop: MakeShop) -> Shop:
    return make_shop(LEDGERS[request.param])


def n_of(shop: Shop, order: str = "o-1") -> Any:
    entity = shop.get(order)
    return None if entity is None else entity.get("n")


def ledger_of(shop: Shop, order: str = "o-1") -> dict[str, Any]:
    """What the entity holds and does not show."""
    shown = shop.get(order) or {}
    return {name: value for name, value in (shop.raw(order) or {}).items() if name not in shown}


# --- every ledger -----------------------------------------------------------------------------------------------------


def test_a_fresh_message_takes_effect(shop: Shop) -> None:
    assert shop.add(message(1), "o-1", 5) == Applied(message(1))
    assert n_of(shop) == 5


def test_a_message_delivered_twice_takes_effect_once(shop: Shop) -> None:
    shop.add(message(1), "o-1", 5)
    assert isinstance(shop.add(message(1), "o-1", 5), Duplicate)
    assert n_of(shop) == 5


def test_the_same_message_takes_effect_on_another_entity(shop: Shop) -> None:
    shop.add(message(1), "o-1")
    assert isinstance(shop.add(message(1), "o-2"), Applied)


def test_requested_entity_is_returned_without_its_ledger(shop: Shop) -> None:
    first = shop.add_and_return(message(1), "o-1", 5)
    second = shop.add_and_return(message(2), "o-1", 5)
    assert isinstance(first, Applied)
    assert isinstance(second, Applied)
    assert first.entity == {**shop.without_ledger(shop.raw("o-1") or {}), "n": 5}
    assert second.entity == shop.get("o-1")


@not_counted
def test_message_refused_by_its_condition_can_apply_later(shop: Shop) -> None:
    shop.put_raw("o-1", n=0, closed=True)
    shop.add(message(1), "o-1", if_open=True, create=False)
    assert isinstance(shop.add(message(1), "o-1"), Applied)


def test_condition_can_refuse_a_fresh_message_that_creates(shop: Shop) -> None:
    shop.put_raw("o-1", n=0, closed=True)
    assert isinstance(shop.add(message(1), "o-1", if_open=True, create=True), Rejected)
    assert n_of(shop) == 0


def test_redelivery_is_a_duplicate_if_its_condition_is_now_false(shop: Shop) -> None:
    shop.add(message(1), "o-1")
    shop.touch(message(2), "o-1", "closed")
    third = message(2)
    assert isinstance(shop.add(third, "o-1", if_open=True), Duplicate)


@not_counted
def test_entity_is_not_created_without_permission(shop: Shop) -> None:
    assert shop.add(message(1), "o-1", create=False) == Missing(message(1))
    assert shop.raw("o-1") is None


def test_a_creating_message_creates_once(shop: Shop) -> None:
    assert isinstance(shop.create(message(1), "o-1", 7), Applied)
    assert isinstance(shop.create(message(1), "o-1", 7), Duplicate)
    assert n_of(shop) == 7


def test_create_does_not_replace_an_existing_entity(shop: Shop) -> None:
    shop.put_raw("o-1", n=3)
    outcome = shop.create(message(1), "o-1", 7)
    assert isinstance(outcome, Rejected)
    assert (outcome.settled, outcome.reason) == (False, ENTITY_EXISTS)
    assert outcome.entity == shop.get("o-1")
    assert n_of(shop) == 3


def test_recorded_message_is_a_duplicate(shop: Shop) -> None:
    shop.put_raw("o-1", n=0)
    assert shop.remember(message(1), "o-1") == Applied(message(1))
    assert isinstance(shop.add(message(1), "o-1"), Duplicate)
    assert n_of(shop) == 0


def test_conditional_record_does_not_create_an_entity(shop: Shop) -> None:
    assert shop.remember(message(1), "o-1", if_n=0) == Missing(message(1))
    assert shop.raw("o-1") is None
    assert isinstance(shop.create(message(1), "o-1", 7), Applied)
    assert isinstance(shop.remember(message(2), "o-1", if_n=0, rejected_ok=True), Rejected)
    assert isinstance(shop.remember(message(3), "o-1", if_n=7), Applied)
    assert isinstance(shop.add(message(3), "o-1"), Duplicate)


def test_creation_is_unsettled_if_only_another_record_exists(shop: Shop) -> None:
    shop.remember(message(1), "o-1")
    for _ in range(2):
        assert shop.create(message(2), "o-1", 7) == Rejected(message(2), shop.get("o-1"))
    assert shop.get("o-1") == shop.key("o-1")


@pytest.mark.parametrize("ledger", [SeenIds(), HighWaterMark()])
def test_refusal_settles_only_if_declared_final(make_shop: MakeShop, ledger: Ledger) -> None:
    shop = make_shop(ledger, tombstones=Tombstones(timedelta(days=14), ttl_attribute="expires"))
    shop.put_raw("o-1", n=0, closed=True)
    calls: list[Callable[..., BeginOutcome]] = [
        partial(shop.add, message(1), "o-1", if_open=True),
        partial(shop.delete, message(1), "o-1", if_open=True),
        partial(shop.delete, message(1), "o-1", if_open=True, shows=True),
        partial(shop.begin_effect, message(1), "o-1", if_open=True),
        partial(shop.remember, message(1), "o-1", if_n=7),
        partial(shop.create, message(1), "o-1"),
    ]
    for call in calls:
        assert call() == Rejected(message(1), shop.get("o-1"))
        assert call(rejected_ok=True) == Rejected(message(1), shop.get("o-1"), settled=True)
    assert isinstance(shop.add(message(1), "o-1"), Applied)  # none of them remembers the message


def test_creation_of_a_key_alone_is_rejected_if_it_exists(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds())
    assert isinstance(shop.create_bare(message(1), "o-1"), Applied)
    outcome = shop.create_bare(message(2), "o-1", rejected_ok=True)
    assert (type(outcome), outcome.settled) == (Rejected, True)
    assert isinstance(shop.create_bare(message(1), "o-1"), Duplicate)


def test_message_is_recorded_if_no_entity_exists(shop: Shop) -> None:
    shop.remember(message(1), "o-1")
    assert isinstance(shop.remember(message(1), "o-1"), Duplicate)
    assert isinstance(shop.add(message(2), "o-1"), Applied)


def test_seen_returns_the_expected_outcome_without_writing(shop: Shop) -> None:
    assert shop.preview(message(1), "o-1") == Applied(message(1))
    assert shop.raw("o-1") is None
    shop.add(message(1), "o-1")
    before = shop.raw("o-1")
    assert shop.preview(message(1), "o-1") == Duplicate(message(1), shop.get("o-1"))
    assert shop.preview(message(2), "o-1") == Applied(message(2), shop.get("o-1"))
    assert shop.raw("o-1") == before


@pytest.mark.parametrize("stored", [None, "!x", 5])
@pytest.mark.parametrize("sequence", [2**63, 10**38, sortable(7)], ids=["64 bits", "39 digits", "sortable"])
def test_seen_agrees_with_the_write_on_unusual_marks(make_shop: MakeShop, sequence: int | str, stored: Any) -> None:
    shop = make_shop(HighWaterMark())
    shop.put_raw(
        "o", **({} if stored is None else {"ow_@s": stored} if shop.key_name == "orderId" else {"ow_@": {"s": stored}})
    )
    odd = Message("m", "s", sequence=sequence)
    results = [_find_result(function, odd) for function in (shop.preview, shop.add)]
    assert results[0] is results[1]


def _find_result(function: Any, message: Message) -> type:
    """Return the type of the outcome, or of the error."""
    try:
        return type(function(message, "o"))
    except (InvalidMessage, LedgerMismatch) as error:
        return type(error)


def test_number_below_the_first_is_invalid_in_all_verbs(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence(), None, Tombstones(timedelta(days=1)))
    zero = Message("m", "s", sequence=0)
    shop.put_raw("o", n=1)
    before = shop.raw("o")
    verbs: list[Any] = [shop.add, shop.create, shop.remember, shop.preview, shop.delete, shop.begin_effect]
    for verb in (*verbs, lambda message, order: shop.update_batch([message, message], order)):
        with pytest.raises(InvalidMessage, match=r"pass InSequence\(first=0\)"):
            verb(zero, "o")
    assert shop.raw("o") == before
    assert isinstance(make_shop(InSequence(first=0)).add(zero, "o"), Applied)


def test_read_returns_the_entity_without_its_ledger(shop: Shop) -> None:
    assert shop.get("o-1") is None
    shop.add(message(1), "o-1", 5)
    raw = shop.raw("o-1")
    assert raw is not None
    assert len(raw) > 2
    assert shop.without_ledger(raw) == shop.get("o-1")
    assert set(shop.get("o-1") or {}) in ({"orderId", "n"}, {"_id", "n"})


def test_ledgers_with_different_names_can_share_an_entity(make_shop: MakeShop) -> None:
    mine, theirs = make_shop(SeenIds(name="mine")), make_shop(HighWaterMark(name="theirs"))
    mine.add(message(1), "o-1")
    assert isinstance(theirs.add(message(1), "o-1"), Applied)
    assert isinstance(mine.add(message(1), "o-1"), Duplicate)
    assert isinstance(theirs.add(message(1), "o-1"), Duplicate)
    assert n_of(mine) == 2


def test_second_write_of_a_message_applies_as_another_part(shop: Shop) -> None:
    writes = [message(1), message(1).part("stock"), message(1).part("price"), message(1).part("stock").part("price")]
    assert [type(shop.add(each, "o-1")) for each in writes] == [Applied] * 4
    assert [type(shop.add(each, "o-1")) for each in writes] == [Duplicate] * 4
    assert n_of(shop) == 4


NEEDS_SOURCE = ("mark", "sequence")


def test_similar_parts_and_sources_are_distinguished(shop: Shop, request: pytest.FixtureRequest) -> None:
    writes = [message(1, "a").part("b"), message(1, "a%+b"), message(1, "a+b"), message(1, "a"), message(1, "%+a")]
    if request.node.callspec.params["shop"] not in NEEDS_SOURCE:
        writes += [message(1, "").part("a").part("b"), message(1, "").part("a"), message(1, "").part("a+b")]
    assert [type(shop.add(each, "o-1")) for each in writes] == [Applied] * len(writes)
    assert [type(shop.add(each, "o-1")) for each in writes] == [Duplicate] * len(writes)


def test_same_id_from_two_sources_is_two_messages(shop: Shop, request: pytest.FixtureRequest) -> None:
    # In a set as handlers keep it by hand, an id alone counts for every source.
    alone = [] if request.node.callspec.params["shop"] in ("message ids", *NEEDS_SOURCE) else [""]
    twins = [message(1, source) for source in ("billing", *alone, "shipping", "@", "/", "billing/m1")]
    assert [type(shop.add(twin, "o-1")) for twin in twins] == [Applied] * len(twins)
    assert [type(shop.add(twin, "o-1")) for twin in twins] == [Duplicate] * len(twins)


def test_applied_outcome_includes_the_driver_response(shop: Shop) -> None:
    outcome = shop.add_measured(message(1), "o-1")
    assert isinstance(outcome, Applied)
    if shop.name.startswith("mongo"):
        assert isinstance(outcome.response, UpdateResult) or shop.name == "mongomock"
        assert outcome.response.upserted_id is not None
    else:
        assert outcome.response["ConsumedCapacity"]["CapacityUnits"] > 0


def test_seen_refuses_to_read_a_part_of_the_entity(shop: Shop) -> None:
    with pytest.raises(InvalidUpdate, match=r"whole (current )?entity"):
        shop.seen_in_part(message(1), "o-1")


# --- misuse -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["m1", message(1).child("x"), {"id": "m1"}, None], ids=["text", "child", "dict", "none"])
def test_invalid_message_is_refused_by_its_type(shop: Shop, wrong: Any) -> None:
    writes = (shop.add, shop.create, shop.remember, shop.preview, shop.explain)
    for write in writes:
        with pytest.raises(InvalidMessage, match=f"takes the Message first: expected a Message, got {type(wrong).__name__}"):
            cast("Any", write)(wrong, "o-1")
    assert shop.raw("o-1") is None


@pytest.mark.parametrize("wrong", [SeenIds, HighWaterMark, InSequence, "messageIDs", timedelta(days=14)], ids=str)
def test_store_with_an_invalid_ledger_is_refused(make_shop: MakeShop, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Write \w+\(\)|isn't a ledger"):
        make_shop(wrong)


WRONG_TIMES: list[Any] = [NOW * 1000, 86_400.5, -1.0, float("nan"), Decimal(NOW), f"{NOW}", None, True]


def test_clock_with_an_invalid_value_is_refused_before_sending(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds())
    shop.put_raw("o-1", n=1)
    before = shop.raw("o-1")
    for shop.clock.now in WRONG_TIMES:
        for write in (
            lambda: shop.add(message(1), "o-1"),
            lambda: shop.create(message(1), "o-2"),
            lambda: shop.remember(message(1), "o-1"),
            lambda: shop.update_batch([message(1), message(2)], "o-1"),
            lambda: shop.begin_effect(message(1), "o-1"),
            lambda: shop.preview(message(1), "o-1"),
        ):
            with pytest.raises(ConfigurationError, match="seconds since 1970"):
                write()
    assert (shop.raw("o-1"), shop.raw("o-2")) == (before, None)


# --- sets of ids ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ledger", SETS.values(), ids=SETS)
def test_similar_ids_are_distinguished(make_shop: MakeShop, ledger: Ledger) -> None:
    shop = make_shop(ledger)
    ids = [
        *filter(None, TEXTS),
        *("@", "@/a", "@a", "@a/b", "@+a/b", "A", "1", "1.0", "01", "true", "null", "~a"),
        "0f8fad5b-d9cb-469f-a165-70867728950e",
    ]
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


def test_id_is_recognised_if_a_clock_is_fast_or_slow(make_shop: MakeShop) -> None:
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
        slots = raw.get("ow_r") or [name for name in raw if name.startswith("ow_r")]
        assert len(slots) <= 6
        assert len(ledger_of(shop)) <= 1 + 6 + 5  # the label, the sets of marks, and those of attempts


# --- marks ------------------------------------------------------------------------------------------------------------


def test_message_below_the_mark_is_stale(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    shop.add(message(3), "o-1")
    outcome = shop.add(message(2), "o-1")
    assert outcome == Stale(message(2), 3, shop.get("o-1"))
    assert type(cast("Stale", outcome).mark) is int  # DynamoDB's client reads a Decimal
    assert isinstance(shop.add(message(7), "o-1"), Applied)
    assert n_of(shop) == 2


def test_string_sequences_compare_as_strings(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    outcomes = [shop.add(Message("m", "s", sequence=s), "o-1") for s in ("a1", "a10", "a2", "a10")]
    assert [type(outcome) for outcome in outcomes] == [Applied, Applied, Applied, Stale]
    assert outcomes[-1] == Stale(Message("m", "s", sequence="a10"), "a2", shop.get("o-1"))
    assert [type(shop.add(Message("m", "t", sequence=s), "o-1")) for s in ("0", "1")] == [Applied, Applied]
    assert [type(shop.add(Message("m", "numbers", sequence=s), "o-1")) for s in "0191"] == [Applied] * 3 + [Stale]


def test_source_that_changes_its_sequence_type_is_a_mismatch(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    shop.add(message(3), "o-1")
    with pytest.raises(LedgerMismatch):
        shop.add(Message("m4", source="order-1", sequence="4"), "o-1")
    assert n_of(shop) == 1


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()], ids=["mark", "sequence"])
def test_message_without_source_is_refused_by_marks(make_shop: MakeShop, ledger: HighWaterMark | InSequence) -> None:
    shop = make_shop(ledger)
    with pytest.raises(InvalidMessage, match="has no source"):
        shop.add(Message("orders-1", sequence=1), "o-1")
    assert shop.raw("o-1") is None


def test_each_source_has_its_own_mark(make_shop: MakeShop) -> None:
    shop = make_shop(HighWaterMark())
    assert [type(shop.add(message(1, text), "o-1")) for text in TEXTS] == [Applied] * len(TEXTS)
    assert [type(shop.add(message(1, text), "o-1")) for text in TEXTS] == [Duplicate] * len(TEXTS)
    assert n_of(shop) == len(TEXTS)


@pytest.mark.parametrize(("first", "second"), [("9", "10"), ("10", "9")])
def test_text_numbers_of_two_lengths_are_refused_with_remedies(make_shop: MakeShop, first: str, second: str) -> None:
    shop = make_shop(HighWaterMark())
    shop.add(Message("m1", "s", sequence=first), "o-1")
    before = shop.raw("o-1")
    with pytest.raises(InvalidMessage, match=r"number\(\.\.\.\)(.|\s)*sortable"):
        shop.add(Message("m2", "s", sequence=second), "o-1")
    assert shop.raw("o-1") == before


def test_gap_defers_the_message_without_a_write(make_shop: MakeShop) -> None:
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
    assert shop.remember(message(2), "o-1") == Deferred(message(2), 1)
    assert shop.raw("o-1") is None


def test_sequence_can_begin_at_any_number(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence(first=5))
    assert [type(shop.add(message(n), "o-1")) for n in (5, 6, 5)] == [Applied, Applied, Stale]


def test_gap_is_checked_before_the_condition(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence())
    shop.put_raw("o-1", n=0, closed=True)
    assert isinstance(shop.add(message(2), "o-1", if_open=True), Deferred)
    assert isinstance(shop.add(message(1), "o-1", if_open=True), Rejected)


def test_message_refused_by_its_condition_moves_a_counted_mark(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence())
    shop.put_raw("o-1", n=0, closed=True)
    assert shop.add(message(1), "o-1", if_open=True) == Rejected(message(1), shop.get("o-1"))
    assert isinstance(shop.add(message(2), "o-1"), Deferred)  # until the first is settled
    refused = shop.add(message(1), "o-1", if_open=True, rejected_ok=True)
    assert refused == Rejected(message(1), shop.get("o-1"), settled=True)
    assert shop.add(message(1), "o-1", if_open=True) == Duplicate(message(1), shop.get("o-1"))
    assert shop.add(message(2), "o-1") == Applied(message(2))
    assert isinstance(shop.add(message(3), "o-1", if_open=True, rejected_ok=True), Rejected)
    assert isinstance(shop.add(message(4), "o-1"), Applied)
    assert n_of(shop) == 2


def test_counted_refusal_is_unsettled_if_nothing_can_remember_it(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence())
    assert shop.add(message(1), "o-1", create=False) == Missing(message(1))
    assert shop.add(message(1), "o-1", create=False, missing_ok=True) == Missing(message(1))
    assert shop.raw("o-1") is None
    assert isinstance(shop.add(message(1), "o-1"), Applied)


def test_counted_refused_creation_holds_its_source_back(make_shop: MakeShop) -> None:
    shop = make_shop(InSequence())
    shop.put_raw("o-1", n=3)
    assert shop.create(message(1), "o-1", 7) == Rejected(message(1), shop.get("o-1"))
    assert isinstance(shop.add(message(2), "o-1"), Deferred)
    if isinstance(shop, MongoShop):  # DynamoDB's put doesn't show which attributes are the key
        assert shop.create(message(1), "o-1", 7, rejected_ok=True).settled
        assert isinstance(shop.add(message(2), "o-1"), Applied)


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()], ids=["mark", "sequence"])
def test_message_without_sequence_is_invalid_if_ledger_needs_one(make_shop: MakeShop, ledger: Ledger) -> None:
    shop = make_shop(ledger)
    with pytest.raises(InvalidMessage, match="sequence"):
        shop.add(Message("m1"), "o-1")
    assert shop.raw("o-1") is None


# --- a broken ledger --------------------------------------------------------------------------------------------------


WRONG: dict[str, Any] = {"text": "m1", "number": 5, "map": {"m1": 1}, "null": None, "bytes": b"m1"}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("ledger", LEDGERS.values(), ids=LEDGERS)
def test_foreign_value_in_the_ledger_field_is_a_mismatch(make_shop: MakeShop, ledger: Ledger, wrong: Any) -> None:
    shop = make_shop(ledger)
    if wrong == 5 and not isinstance(ledger, SeenIds | IdSet):
        pytest.skip("a number is what a mark is")
    shop.put_raw("o-1", **_broken(shop, wrong))
    for n in (1, 2):
        with pytest.raises(LedgerMismatch):
            shop.add(message(n), "o-1")
    assert n_of(shop) is None


def _broken(shop: Shop, wrong: Any) -> dict[str, Any]:
    """The marks of an entity with something else in their place."""
    shop.add(message(1), "o-2")
    marks = {name: value for name, value in ledger_of(shop, "o-2").items() if name not in ("ow_l", "ow_t")}
    return {name: dict.fromkeys(value, wrong) if isinstance(value, dict) else wrong for name, value in marks.items()}


@pytest.mark.parametrize("wrong", ["ow2 14d", "ow1", "", 5, True, ["m1"], {"ow1": 1}], ids=str)
def test_unknown_ledger_label_is_a_mismatch(shop: Shop, wrong: Any) -> None:
    shop.add(message(1), "o-2")
    if "ow_l" not in ledger_of(shop, "o-2"):
        pytest.skip("a set of the user's has no label")
    shop.put_raw("o-1", ow_l=wrong)
    before = shop.raw("o-1")
    for write in (shop.add, shop.add_and_return, shop.create, shop.remember, shop.preview):
        with pytest.raises(LedgerMismatch):
            cast("Any", write)(message(1), "o-1")
    assert shop.raw("o-1") == before


def test_hot_entity_is_logged_once(make_shop: MakeShop, caplog: pytest.LogCaptureFixture) -> None:
    shop = make_shop(SeenIds(readable=True))
    ids = [Message(f"{n:0>500}") for n in range(25)]
    for each in ids[:15]:
        shop.add(each, "o-1")
    shop.add(ids[0], "o-1")
    assert "Hot entity" not in caplog.text
    for each in ids[15:]:
        shop.add(each, "o-1")
    for _ in range(2):
        assert isinstance(shop.add(ids[0], "o-1"), Duplicate)
    assert caplog.text.count("Hot entity: the ledger 'ow_l' of an entity has about 1") == 1
