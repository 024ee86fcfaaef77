"""What every store and every client promises of several messages in one write: each as if it had been written alone, in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from onewrite import (
    Applied,
    Begun,
    Busy,
    ConfigurationError,
    Deferred,
    Duplicate,
    Event,
    Gone,
    HighWaterMark,
    IdSet,
    InSequence,
    InvalidMessage,
    InvalidUpdate,
    LedgerMismatch,
    Message,
    Missing,
    Outbox,
    Rejected,
    SeenIds,
    Stale,
    Tombstones,
)
from onewrite.core.flow import Meter, meter
from onewrite.core.ledgers import Ledger
from onewrite.outbox import Outgoing
from tests.contract.stores import Adding, MakeShop, Shop

REJECTED_OK = {"rejected_ok": True}
LEDGERS: dict[str, Ledger] = {
    "seen": SeenIds(),
    "message ids": IdSet("messageIDs"),
    "mark": HighWaterMark(),
    "sequence": InSequence(),
}
OUTBOX = Outbox("shop/orders")

seen_only = pytest.mark.parametrize("shop", ["seen"], indirect=True)
sequence_only = pytest.mark.parametrize("shop", ["sequence"], indirect=True)


@pytest.fixture(params=list(LEDGERS))
def shop(request: pytest.FixtureRequest, make_shop: MakeShop) -> Shop:
    return make_shop(LEDGERS[request.param])


def message(n: int, amount: int | None = None, source: str = "s") -> Message:
    return Message(f"m{n}", source=source, sequence=n, body=amount)


def messages(*numbers: int) -> list[Message]:
    return [message(n) for n in numbers]


def kinds(outcomes: list[Any]) -> list[type]:
    return [type(outcome) for outcome in outcomes]


def n_of(shop: Shop, order: str = "o") -> Any:
    return (shop.get(order) or {}).get("n")


def use(shop: Shop) -> None:
    """Until it has been seen to be there, a collection is asked by which rules it compares texts."""
    for each in messages(1, 2):
        shop.add(each, "used before")


@contextmanager
def counted() -> Iterator[Meter]:
    counting = Meter()
    token = meter.set(counting)
    yield counting
    meter.reset(token)


# --- one write --------------------------------------------------------------------------------------------------------


def test_ten_messages_create_an_entity_in_one_request(shop: Shop) -> None:
    use(shop)
    ten = messages(*range(1, 11))
    with counted() as counting:
        outcomes = shop.update_batch(ten, "o")
    assert outcomes == [Applied(each, shop.get("o") if "dynamo" in shop.name else None) for each in ten]
    assert counting.requests == 1
    assert n_of(shop) == 10
    assert {Applied} & {type(shop.add(each, "o")) for each in ten} == set()
    assert n_of(shop) == 10


def test_a_batch_leaves_the_same_entity_as_single_writes(shop: Shop) -> None:
    shop.update_batch(messages(1, 2), "o")
    shop.update_batch(messages(3, 4, 5), "o")
    for each in messages(1, 2, 3, 4, 5):
        shop.add(each, "by one")
    batched, single = (without_tokens(shop.raw(order) or {}, shop, order) for order in ("o", "by one"))
    assert batched == single


def without_tokens(item: dict[str, Any], shop: Shop, order: str) -> dict[str, Any]:
    """All that an entity holds beside its key and what tells one call from another. Sets are in no order."""
    kept = {name: value for name, value in item.items() if name != "ow_t" and name not in shop.key(order)}
    return {name: sorted(value, key=repr) if isinstance(value, list | set) else value for name, value in kept.items()}


def test_function_gets_messages_by_sequence_and_outcomes_keep_order(shop: Shop) -> None:
    adding = Adding()
    given = [message(3), message(1, source="other"), message(2), message(1)]
    outcomes = shop.update_batch(given, "o", adding)
    assert adding.asked == [["m1", "m1", "m2", "m3"]]
    assert [outcome.message for outcome in outcomes] == given
    assert kinds(outcomes) == [Applied] * 4


def test_second_copy_in_a_batch_is_a_duplicate(shop: Shop) -> None:
    adding = Adding()
    again = Message("m1", source="s", sequence=1, body=7)
    outcomes = shop.update_batch([message(1), again, message(2)], "o", adding)
    assert kinds(outcomes) == [Applied, Duplicate, Applied]
    assert outcomes[1].message is again
    assert adding.asked == [["m1", "m2"]]
    assert n_of(shop) == 2


def test_empty_batch_sends_no_request(shop: Shop) -> None:
    with counted() as counting:
        assert shop.update_batch([], "o") == []
    assert counting.requests == 0


def test_messages_are_only_remembered_if_function_returns_no_update(shop: Shop) -> None:
    shop.put_raw("o", n=0)
    name = "Key" if "dynamo" in shop.name else "filter"
    assert kinds(shop.batch_by(messages(1, 2), lambda _: {name: shop.key("o")})) == [Applied] * 2
    assert Applied not in kinds(shop.update_batch(messages(1, 2), "o"))
    assert n_of(shop) == 0


# --- messages that are kept out ---------------------------------------------------------------------------------------


@seen_only
def test_duplicates_are_left_out_of_a_batch(shop: Shop) -> None:
    shop.update_batch(messages(2, 4), "o")
    adding = Adding()
    with counted() as counting:
        outcomes = shop.update_batch(messages(1, 2, 3, 4, 5), "o", adding)
    assert kinds(outcomes) == [Applied, Duplicate, Applied, Duplicate, Applied]
    assert adding.asked == [["m1", "m2", "m3", "m4", "m5"], ["m1", "m3", "m5"]]
    assert counting.requests <= (2 if "dynamo" in shop.name else 3)
    assert n_of(shop) == 5


def test_redelivered_batch_is_not_written_again(shop: Shop) -> None:
    shop.update_batch(messages(1, 2, 3), "o")
    outcomes = shop.update_batch(messages(1, 2, 3), "o")
    assert {*kinds(outcomes)} <= {Duplicate, Stale}
    assert isinstance(outcomes[-1], Duplicate)
    assert outcomes[-1].entity == shop.get("o")
    assert n_of(shop) == 3


@pytest.mark.parametrize("shop", ["mark", "sequence"], indirect=True)
def test_batch_begins_after_the_mark_inside_the_batch(shop: Shop) -> None:
    shop.update_batch(messages(1, 2, 3), "o")
    adding = Adding()
    with counted() as counting:
        outcomes = shop.update_batch(messages(1, 2, 3, 4, 5), "o", adding)
    assert kinds(outcomes) == [Stale, Stale, Duplicate, Applied, Applied]
    assert adding.asked[-1] == ["m4", "m5"]
    assert counting.requests <= (2 if "dynamo" in shop.name else 3)
    assert n_of(shop) == 5


@sequence_only
def test_messages_after_a_gap_are_deferred(shop: Shop) -> None:
    outcomes = shop.update_batch(messages(1, 2, 4, 5), "o")
    assert kinds(outcomes) == [Applied, Applied, Deferred, Deferred]
    assert [outcome.expected for outcome in outcomes if isinstance(outcome, Deferred)] == [3, 3]
    assert n_of(shop) == 2


@sequence_only
def test_entity_ahead_of_the_batch_is_read_once(shop: Shop) -> None:
    shop.update_batch(messages(*range(1, 7)), "o")
    with counted() as counting:
        outcomes = shop.update_batch(messages(3, 4, 7, 8), "o")
    assert kinds(outcomes) == [Stale, Stale, Applied, Applied]
    assert counting.requests <= (2 if "dynamo" in shop.name else 3)


@seen_only
def test_too_many_messages_for_one_condition_take_several_writes(shop: Shop) -> None:
    many = messages(*range(1, 61))
    shop.update_batch(many[5:45:4], "o")
    outcomes = shop.update_batch(many, "o")
    assert kinds(outcomes) == [Duplicate if each in many[5:45:4] else Applied for each in many]
    assert n_of(shop) == 60


def test_many_sources_in_one_batch_are_all_written(shop: Shop) -> None:
    outcomes = shop.update_batch([message(1, source=f"s{n}") for n in range(100)], "o")
    assert {*kinds(outcomes)} == {Applied}
    assert n_of(shop) == 100


def test_batch_checks_each_source_in_the_former_ledger(make_shop: MakeShop) -> None:
    known = message(1, source="known")
    make_shop(HighWaterMark()).add(known, "o")
    assert kinds(make_shop(SeenIds(previous=HighWaterMark())).update_batch([message(1), known], "o")) == [Applied, Duplicate]


# --- what the caller's condition refuses ------------------------------------------------------------------------------


@pytest.mark.parametrize("shop", ["seen", "mark"], indirect=True)
def test_refused_batch_is_written_one_by_one(shop: Shop) -> None:
    shop.put_raw("o", n=0)
    adding = Adding(creates=False, limit=2, final=REJECTED_OK)
    with counted() as counting:
        outcomes = shop.update_batch([message(1, 1), message(2, 2), message(3, 1)], "o", adding)
    assert kinds(outcomes) == [Applied, Rejected, Applied]
    assert adding.asked == [["m1", "m2", "m3"], ["m1"], ["m2"], ["m3"]]
    assert counting.requests <= (4 if "dynamo" in shop.name else 9)
    assert n_of(shop) == 2


@sequence_only
def test_refusal_in_a_batch_moves_a_counted_mark(shop: Shop) -> None:
    shop.put_raw("o", n=0)
    adding = Adding(creates=False, limit=2, final=REJECTED_OK)
    outcomes = shop.update_batch([message(1, 1), message(2, 2), message(3, 1)], "o", adding)
    assert kinds(outcomes) == [Applied, Rejected, Applied]
    assert n_of(shop) == 2


@pytest.mark.parametrize("shop", ["mark", "sequence"], indirect=True)
def test_refusal_in_a_batch_holds_its_source_back(shop: Shop) -> None:
    shop.put_raw("o", n=0)
    batch = [message(number, 2 if number == 2 else 0) for number in range(1, 60)]
    outcomes = shop.update_batch(batch, "o", Adding(creates=False, limit=1))
    assert kinds(outcomes) == [Applied, Rejected, *[Deferred] * 57]
    assert not any(outcome.settled for outcome in outcomes[1:])
    assert kinds(shop.update_batch(batch, "o")) == [Duplicate, *[Applied] * 58]


@pytest.mark.parametrize("shop", ["seen", "mark"], indirect=True)
def test_all_messages_are_rejected_if_entity_is_missing(shop: Shop) -> None:
    outcomes = shop.update_batch(messages(1, 2), "o", Adding(creates=False))
    assert {*kinds(outcomes)} <= {Missing, Deferred}
    assert not any(outcome.settled for outcome in outcomes)
    assert shop.raw("o") is None
    outcomes = shop.update_batch(messages(1, 2), "o", Adding(creates=False, final={"missing_ok": True}))
    assert kinds(outcomes) == [Missing, Missing]
    assert all(outcome.settled for outcome in outcomes)


@seen_only
def test_ledger_is_checked_before_the_condition(shop: Shop) -> None:
    shop.update_batch(messages(1, 2), "o")
    outcomes = shop.update_batch([*messages(1, 2), message(3, 5)], "o", Adding(creates=False, limit=2))
    assert kinds(outcomes) == [Duplicate, Duplicate, Rejected]


# --- effects, tombstones, events ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shop", ["seen", "mark"], indirect=True)
def test_only_message_with_an_open_effect_is_busy(shop: Shop) -> None:
    shop.put_raw("o", n=0)
    effect = shop.begin_effect(message(2), "o")
    assert isinstance(effect, Begun)
    outcomes = shop.update_batch(messages(1, 2, 3), "o")
    assert kinds(outcomes) == [Applied, Busy, Applied]
    assert isinstance(shop.add(message(2), "o", finishes=effect), Applied)
    assert n_of(shop) == 3


@seen_only
def test_batch_ignores_an_effect_outside_of_the_batch(shop: Shop) -> None:
    shop.put_raw("o", n=0)
    shop.begin_effect(message(9), "o")
    assert kinds(shop.update_batch(messages(1, 2, 3), "o")) == [Applied] * 3
    assert n_of(shop) == 3


@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence()], ids=["mark", "sequence"])
def test_batch_ignores_an_effect_of_another_process(make_shop: MakeShop, ledger: Ledger) -> None:
    """Of two messages with one sequence only the first is written."""
    shop = make_shop(ledger)
    shop.put_raw("o", n=0)
    make_shop(SeenIds(name="billing")).begin_effect(message(9), "o")
    twin = Message("another id", source="s", sequence=1)
    assert kinds(shop.update_batch([message(1), twin], "o")) == [Applied, Duplicate]
    assert n_of(shop) == 1


@sequence_only
def test_open_effect_blocks_later_messages_of_its_source(shop: Shop) -> None:
    shop.put_raw("o", n=0)
    shop.begin_effect(message(1), "o")
    assert kinds(shop.update_batch([*messages(1, 2), message(1, source="other")], "o")) == [Busy, Deferred, Applied]


def test_deleted_entity_is_gone_for_all_messages(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(), None, Tombstones(timedelta(days=30)))
    shop.add(message(1), "o")
    shop.delete(message(2), "o")
    assert kinds(shop.update_batch(messages(1, 3, 4), "o")) == [Duplicate, Gone, Gone]
    assert shop.get("o") is None


def test_batch_events_have_the_same_ids_as_single_writes(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(), OUTBOX)
    sent: dict[str, list[Outgoing]] = {"o": [], "single": []}
    adding = Adding(emit=lambda each: Event("Added", {"n": each.sequence}, cause=each))
    outcomes = shop.update_batch(messages(1, 2, 3), "o", adding)
    for n in (1, 2, 3):
        shop.add(message(n), "single", emit=[Event("Added", {"n": n})])
    for order in ("o", "single"):
        shop.relay(sent[order].extend).flush(order)
    assert kinds(outcomes) == [Applied] * 3
    assert [event["id"] for event in map(_body, sent["o"])] != [event["id"] for event in map(_body, sent["single"])]
    causes = {order: [(event.sequence, _body(event)["causationid"], event.body) for event in sent[order]] for order in sent}
    assert causes["o"] == causes["single"]


def _body(event: Outgoing) -> dict[str, Any]:
    return json.loads(event.cloudevent())


def test_event_of_a_batch_belongs_to_one_message(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(), OUTBOX)
    for batch in (messages(1), messages(1, 2)):
        with pytest.raises(ConfigurationError, match="cause=message"):
            shop.update_batch(batch, "o", Adding(emit=lambda _: Event("Added", None)))
    assert shop.raw("o") is None


# --- misuse -----------------------------------------------------------------------------------------------------------


def test_batch_refuses_a_sequence_that_a_single_write_refuses(make_shop: MakeShop) -> None:
    shop = make_shop(SeenIds(previous=HighWaterMark()))
    for written in (lambda: shop.add(message(10**38), "o"), lambda: shop.update_batch(messages(1, 10**38), "o")):
        with pytest.raises(InvalidMessage, match="sortable"):
            written()
    assert shop.raw("o") is None


@seen_only
def test_invalid_message_is_refused(shop: Shop) -> None:
    with pytest.raises(InvalidMessage, match="a str"):
        shop.update_batch([message(1), "m2"], "o")  # type: ignore[list-item]  # what is tested  # pyright: ignore[reportArgumentType]
    for given in (message(1), "m1", None):
        with pytest.raises(InvalidMessage, match="update_batch: expected a list of messages first"):
            shop.update_batch(given, "o")  # type: ignore[arg-type]  # the same  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("shop", [name for name in LEDGERS if name != "message ids"], indirect=True)  # which has no label
def test_an_entity_with_another_ledger_is_refused(shop: Shop) -> None:
    shop.put_raw("o", ow_l="ow1 other")
    with pytest.raises(LedgerMismatch):
        shop.update_batch(messages(1, 2), "o")


@seen_only
@pytest.mark.parametrize(
    ("made", "error"),
    [
        ([], "returned a list"),
        ({}, "returned no (Key|filter)"),
        ({"finishes": None}, "can't finish an effect"),
    ],
)
def test_error_for_wrong_function_result_names_the_expected_one(shop: Shop, made: Any, error: str) -> None:
    with pytest.raises(InvalidUpdate, match=error):
        shop.batch_by(messages(1, 2), lambda _: made)


@seen_only
def test_a_batch_writes_to_one_entity(shop: Shop) -> None:
    shop.add(message(1), "o")
    orders = iter(("o", "p"))
    name = "Key" if "dynamo" in shop.name else "filter"
    with pytest.raises(InvalidUpdate, match="one entity"):
        shop.batch_by(messages(1, 2, 3), lambda _: {name: shop.key(next(orders))})


@seen_only
def test_asynchronous_function_needs_an_asynchronous_store(store: str, shop: Shop) -> None:
    name = "Key" if "dynamo" in shop.name else "filter"
    shop.put_raw("o", n=0)

    async def function(_: list[Message]) -> dict[str, Any]:
        return {name: shop.key("o")}

    if "async" in store:
        assert kinds(shop.batch_by(messages(1, 2), function)) == [Applied] * 2
    else:
        with pytest.raises(ConfigurationError, match="asynchronous function"):
            shop.batch_by(messages(1, 2), function)
