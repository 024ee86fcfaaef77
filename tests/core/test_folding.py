"""Several messages in one write, on a store in memory: who is let in, how often the store is asked, and what each message hears."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
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
    MessageIDs,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
)
from onewrite.core.flow import Flow, run
from onewrite.core.folding import TOO_MUCH, FoldRefusal, Landing, Member, Native, Plan, TooMuch, fold, join
from onewrite.core.label import Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import ABSENT, Advance, Entry, Lookup, Remember

NOW = 1_790_000_000.0


def message(n: int | str, source: str = "s", cost: int = 1, name: str = "") -> Message:
    return Message(name or f"m{n}", source=source, sequence=n, body=cost)


def messages(*numbers: int) -> list[Message]:
    return [message(n) for n in numbers]


def kinds(outcomes: Sequence[Outcome]) -> list[type[Outcome]]:
    return [type(outcome) for outcome in outcomes]


@dataclass
class Memory:
    """An entity with a ledger, and with a budget that the messages' costs are taken from. `writes` are the ids of each try."""

    ledger: Ledger
    budget: int = 1000
    most: int = 100
    fits: int = 100  # how many messages one write may have
    busy: frozenset[str] = frozenset()
    before: Callable[[], object] = lambda: None  # what others do before each try
    held: dict[Slot, Any] = field(default_factory=dict[Slot, Any])
    writes: list[list[str]] = field(default_factory=list[list[str]])

    def entry(self, message: Message) -> Entry:
        return self.ledger.entry(message, NOW)

    def entity_of(self, native: Native) -> object:
        return native.get("entity")

    def canonical(self, entity: object) -> Hashable:
        return repr(entity)

    def write_all(self, plan: Plan, native: Native) -> Flow[Landing | FoldRefusal | TooMuch]:
        yield from ()
        if len(plan.fresh) > self.fits:
            return TOO_MUCH
        return self.attempt([one.message for one in plan.fresh])

    def pass_one(self, message: Message, native: Native) -> Flow[Outcome | None]:
        raise NotImplementedError

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        yield from ()
        done = self.attempt([message])
        if isinstance(done, Landing):
            return Applied(message)
        refusal = self._refusal(Member(0, message, self.entry(message)), self._look_up)
        return Rejected(message) if refusal is None else refusal

    def attempt(self, messages: Sequence[Message]) -> Landing | FoldRefusal:
        """The write of an engine: all of the marks, or nothing."""
        self.before()
        self.writes.append([message.id for message in messages])
        entry, cost = (join([self.entry(message) for message in messages]), sum([message.body for message in messages]))
        first = [Member(0, message, self.entry(message)) for message in messages]
        kept_out = any(not self._lets_in(one, first) for one in first)
        if kept_out or cost > self.budget:
            return FoldRefusal(self._look_up, self._refusal, lambda *_: False)
        self.budget -= cost
        for change in entry.written_changes:
            if isinstance(change, Advance):
                self.held[change.slot] = change.reaches
            elif isinstance(change, Remember):
                self.held[change.sets.present] = self.held.get(change.sets.present, frozenset()) | {change.mark}
        return Landing()

    def _lets_in(self, one: Member, each: Sequence[Member]) -> bool:
        """As a condition does, which asks of the first message of each source where its mark stands."""
        own = one.entry.own
        before = [other.entry.own for other in each[: each.index(one)]]
        earlier = [
            other for other in before if isinstance(own, Advance) and isinstance(other, Advance) and other.slot == own.slot
        ]
        return bool(earlier) or self._refusal(one, self._look_up) is None

    def _look_up(self, slot: Slot) -> object:
        return self.held.get(slot, ABSENT)

    def _refusal(self, one: Member, ledger: Lookup) -> Outcome | None:
        if one.message.id in self.busy:
            return Busy(one.message, NOW)
        return one.entry.judge(one.message, ledger)


def write(_: list[Message]) -> dict[str, Any]:
    return {"entity": "e"}


def folded(store: Memory, given: Sequence[Message]) -> list[Outcome]:
    return run(fold(store, given, write), None)


# --- how the store is asked -------------------------------------------------------------------------------------------


def test_what_is_too_much_is_halved_and_the_rest_is_written_in_chunks_of_that_size() -> None:
    store = Memory(InSequence(), fits=3)
    assert kinds(folded(store, messages(*range(1, 9)))) == [Applied] * 8
    assert [len(ids) for ids in store.writes] == [2, 2, 2, 2]


@pytest.mark.parametrize("ledger", [SeenIds(), HighWaterMark(), InSequence()], ids=["seen", "mark", "sequence"])
def test_another_writer_who_is_always_first_costs_one_request_a_message(ledger: Ledger) -> None:
    rival, store, left = Memory(ledger), Memory(ledger), messages(*range(1, 11))
    rival.held = store.held
    store.before = lambda: rival.attempt([left.pop(0)]) if left else None
    outcomes = folded(store, messages(*range(1, 11)))
    assert {*kinds(outcomes)} <= {Duplicate, Stale}
    assert len(store.writes) <= 10


# --- what each message hears ------------------------------------------------------------------------------------------


def test_steps_that_others_begin_and_let_go_all_the_time_end_the_rounds_and_the_messages_go_one_by_one() -> None:
    store, busy = Memory(SeenIds()), iter(["m3", "m2", "m1"])
    store.before = lambda: setattr(store, "busy", frozenset({next(busy, "")}))
    assert kinds(folded(store, messages(1, 2, 3))) == [Busy, Applied, Applied]
    assert store.writes == [["m1", "m2", "m3"], ["m1", "m2"], ["m1", "m3"], ["m2"], ["m3"]]


def test_an_id_that_was_kept_by_hand_counts_for_every_source_within_a_batch_too() -> None:
    ledger = MessageIDs()
    plain, of_source = Message("x", body=1), Message("x", source="s", body=1)
    assert kinds(folded(Memory(ledger), [plain, of_source])) == [Applied, Duplicate]
    assert kinds(folded(Memory(ledger), [of_source, plain])) == [Applied, Applied]


def test_a_refused_message_leaves_no_mark_by_which_those_behind_it_are_judged() -> None:
    refused, of_source = Message("x", body=5), Message("x", source="s", body=1)
    assert kinds(folded(Memory(MessageIDs(), budget=1), [refused, of_source])) == [Rejected, Applied]


def test_sequences_that_do_not_compare_are_refused_before_anything_is_written() -> None:
    store = Memory(HighWaterMark())
    with pytest.raises(LedgerMismatch, match="do not compare"):
        folded(store, [message(1), message("a")])
    assert store.writes == []


def test_what_the_function_raises_passes_through_and_what_was_written_before_stays() -> None:
    store = Memory(SeenIds(), most=2)

    def fails_at_last(fresh: list[Message]) -> dict[str, Any]:
        if fresh[0].id == "m3":
            raise ZeroDivisionError
        return write(fresh)

    with pytest.raises(ZeroDivisionError):
        run(fold(store, messages(1, 2, 3, 4), fails_at_last), None)
    assert kinds(folded(store, messages(1, 2, 3, 4))) == [Duplicate, Duplicate, Applied, Applied]


def test_the_function_may_change_the_list_that_it_is_given() -> None:
    store = Memory(SeenIds(), budget=1)

    def empties(fresh: list[Message]) -> dict[str, Any]:
        fresh.clear()
        return {"entity": "e"}

    assert kinds(run(fold(store, messages(1, 2), empties), None)) == [Applied, Rejected]


@pytest.mark.parametrize("given", [message(1), "m1", None], ids=repr)
def test_messages_that_are_no_list_of_them_are_refused(given: Any) -> None:
    with pytest.raises(InvalidMessage, match="fold takes the messages first, as a list"):
        folded(Memory(SeenIds()), given)
