"""Several messages in one write, on a store in memory: who is let in, how often the store is asked, and what each message hears."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from onewrite import (
    Applied,
    Busy,
    Duplicate,
    HighWaterMark,
    InSequence,
    InvalidMessage,
    LedgerMismatch,
    Message,
    MessageIds,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
)
from onewrite.core.flow import run
from onewrite.core.folding import fold
from onewrite.core.ledgers import Ledger
from tests.support.serial_writes import Memory, Rules, add


def message(n: int | str, source: str = "s", cost: int = 1, name: str = "") -> Message:
    return Message(name or f"m{n}", source=source, sequence=n, body=cost)


def messages(*numbers: int) -> list[Message]:
    return [message(n) for n in numbers]


def kinds(outcomes: Sequence[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]


def memory(ledger: Ledger, **options: Any) -> Memory:
    return Memory(Rules(ledger), **options)


def limited(ledger: Ledger, limit: int) -> Memory:
    return Memory(Rules(ledger, limit))


def write(_: list[Message]) -> dict[str, Any]:
    return {"entity": "e"}


def folded(store: Memory, given: Sequence[Message]) -> list[Outcome]:
    return run(fold(store, given, write), None)


# --- how the store is asked -------------------------------------------------------------------------------------------


def test_write_that_is_too_much_is_halved() -> None:
    store = memory(InSequence(), fits=3)
    assert kinds(folded(store, messages(*range(1, 9)))) == [Applied] * 8
    assert [len(ids) for ids in store.writes] == [2, 2, 2, 2]


@pytest.mark.parametrize("ledger", [SeenIds(), HighWaterMark(), InSequence()], ids=["seen", "mark", "sequence"])
def test_faster_writer_costs_one_request_for_each_message(ledger: Ledger) -> None:
    store, left = memory(ledger), messages(*range(1, 11))

    def rival() -> None:
        if left:
            _, store.entity = add(store.rules, store.entity, left.pop(0))

    store.before = rival
    outcomes = folded(store, messages(*range(1, 11)))
    assert {*kinds(outcomes)} <= {Duplicate, Stale}
    assert len(store.writes) <= 10


# --- what each message hears ------------------------------------------------------------------------------------------


def test_messages_go_one_by_one_if_steps_come_and_go() -> None:
    store, busy = memory(SeenIds()), iter(messages(3, 2, 1))
    store.before = lambda: setattr(store, "rules", Rules(SeenIds(), begun_messages=tuple(islice(busy, 1))))
    assert kinds(folded(store, messages(1, 2, 3))) == [Busy, Applied, Applied]
    assert store.writes == [["m1", "m2", "m3"], ["m1", "m2"], ["m1", "m3"], ["m2"], ["m3"]]


def test_id_kept_by_hand_counts_for_every_source() -> None:
    ledger = MessageIds()
    plain, of_source = Message("x", body=1), Message("x", source="s", body=1)
    assert kinds(folded(memory(ledger), [plain, of_source])) == [Applied, Duplicate]
    assert kinds(folded(memory(ledger), [of_source, plain])) == [Applied, Applied]


def test_refused_message_leaves_no_mark_for_those_behind() -> None:
    refused, of_source = Message("x", body=5), Message("x", source="s", body=1)
    assert kinds(folded(limited(MessageIds(), 1), [refused, of_source])) == [Rejected, Applied]


def test_incomparable_sequences_are_refused_unwritten() -> None:
    store = memory(HighWaterMark())
    with pytest.raises(LedgerMismatch, match="do not compare"):
        folded(store, [message(1), message("a")])
    assert store.writes == []


def test_error_of_the_function_passes_through() -> None:
    store = memory(SeenIds(), most=2)

    def fails_at_last(fresh: list[Message]) -> dict[str, Any]:
        if fresh[0].id == "m3":
            raise ZeroDivisionError
        return write(fresh)

    with pytest.raises(ZeroDivisionError):
        run(fold(store, messages(1, 2, 3, 4), fails_at_last), None)
    assert kinds(folded(store, messages(1, 2, 3, 4))) == [Duplicate, Duplicate, Applied, Applied]


def test_the_function_may_change_the_list_that_it_is_given() -> None:
    store = limited(SeenIds(), 1)

    def empties(fresh: list[Message]) -> dict[str, Any]:
        fresh.clear()
        return {"entity": "e"}

    assert kinds(run(fold(store, messages(1, 2), empties), None)) == [Applied, Rejected]


@pytest.mark.parametrize("given", [message(1), "m1", None], ids=repr)
def test_messages_that_are_no_list_of_them_are_refused(given: Any) -> None:
    with pytest.raises(InvalidMessage, match="fold takes the messages first, as a list"):
        folded(memory(SeenIds()), given)
