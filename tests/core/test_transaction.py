"""A transaction on no engine: how long it waits, what it leaves out at the next try, and which answer counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from onewrite import Applied, Busy, ConfigurationError, Duplicate, EntityTooLarge, Message, Missing, Rejected, Stale
from onewrite.core.engine import Attempt, Engine
from onewrite.core.flow import Call, Flow, Wait
from onewrite.core.inbox import Inbox
from onewrite.core.transaction import Backoff, Findings, Transaction
from onewrite.core.write import Write
from onewrite.outcome import Outcome
from tests.support.driven import play

M1 = Message("m1")
SECOND = timedelta(seconds=1)
FULL = EntityTooLarge("full")


# --- how long it waits ---------------------------------------------------------------------------------------------------


class Clock:
    """Goes on by what is waited, and stands still otherwise."""

    now = 1_790_000_000.0

    def __call__(self) -> float:
        return self.now


def pauses(deadline: timedelta, *, chance: float = 1.0, goes_on: bool = True) -> list[float]:
    """All the waits until the time is over."""
    clock, waits = Clock(), list[float]()
    backoff = Backoff(deadline, lambda: chance, clock)
    while (wait := backoff.pause()) is not None:
        waits.append(wait)
        clock.now += wait if goes_on else 0
        assert len(waits) < 1000
    return waits


def test_waits_double_from_milliseconds_to_half_a_second() -> None:
    waits = pauses(timedelta(seconds=10))
    assert waits[0] == 0.005
    assert waits[:7] == pytest.approx([0.005 * 2**n for n in range(7)])
    assert set(waits[7:]) == {0.5}


@pytest.mark.parametrize("goes_on", [True, False], ids=["a clock that goes on", "a clock that stands still"])
def test_waits_take_nearly_as_long_as_the_deadline(*, goes_on: bool) -> None:
    for deadline in (SECOND, timedelta(seconds=30)):
        total = sum(pauses(deadline, goes_on=goes_on))
        assert deadline.total_seconds() - 0.5 <= total <= deadline.total_seconds() + 1e-6


def test_what_takes_long_itself_is_part_of_the_deadline() -> None:
    clock = Clock()
    backoff = Backoff(SECOND, lambda: 1.0, clock)
    clock.now += 0.99
    assert backoff.pause() == 0.005
    clock.now += 0.005
    assert backoff.pause() is None


@pytest.mark.parametrize("deadline", [30, None])
def test_a_deadline_is_a_timedelta(deadline: Any) -> None:
    with pytest.raises(ConfigurationError, match=rf"deadline={deadline!r}: give a timedelta"):
        Backoff(deadline, lambda: 0.0, Clock())


# --- which answer counts -------------------------------------------------------------------------------------------------


CLOCK = Clock()


@dataclass(frozen=True)
class Store:
    is_async: bool = False
    guards: bool = True
    target: object = None
    clock: Callable[[], float] = CLOCK
    attempts: Callable[[], str] = lambda: "call"


@dataclass(frozen=True)
class Planned:
    store: Store = Store()


@dataclass(frozen=True)
class Action:
    place: int | None = None
    requires_predecessor: bool = False

    def pass_over(self, _: object) -> Flow[Outcome | None]:
        yield from ()
        return None


class Sketch(Transaction[Any, Any, Findings]):
    """As little of an engine as there can be: it answers each try with what the test says, `Applied` or why it was refused."""

    kind = Planned
    stores = "tables"
    instead = "[orders.updating(...)]"

    def open_inbox(self, inbox: Inbox) -> Engine:
        raise NotImplementedError

    def attempt_inbox(self, write: Write, expires: float) -> Attempt:
        raise NotImplementedError

    def check(self) -> None:
        self.turns: list[int] = []

    def actions(self, name: str) -> list[Action]:
        return [Action() for _ in self.participants]

    def make(self, actions: Sequence[Action], name: str, round_number: int, backoff: Backoff) -> Flow[Applied | Findings]:
        self.turns.append(round_number)
        return (yield TRY)

    def findings(self, actions: Sequence[Action], refusal: Findings, round_number: int) -> Flow[Findings]:
        yield from ()
        return refusal

    def give_up(self, actions: Sequence[Action], refusal: Findings) -> Flow[Outcome]:
        yield from ()
        return GIVEN_UP


TRY = Call("transact_write_items")
GIVEN_UP = Busy(M1, 0.0)
CONFLICT = Findings([], passes=True, waits=True)


def sketch() -> Sketch:
    return Sketch(M1, [Planned()] * 3, None, is_async=False)


def within(transaction: Sketch, deadline: timedelta) -> Flow[Outcome]:
    return transaction.flow(Backoff(deadline, lambda: 1.0, Clock()))


def answered(transaction: Sketch, *answers: Applied | Findings) -> Outcome:
    """What it says, once these have been the answers to its tries, none of which is waited for."""
    outcome, _ = play(within(transaction, SECOND), *answers)
    return outcome


def test_conflict_is_waited_for_before_the_next_try() -> None:
    outcome, steps = play(within(sketch(), SECOND), CONFLICT, None, CONFLICT, None, Applied(M1))
    assert outcome == Applied(M1)
    assert steps == [TRY, Wait(0.005), TRY, Wait(0.01), TRY]


def test_lasting_conflict_is_given_up_at_the_deadline() -> None:
    outcome, steps = play(within(sketch(), timedelta(milliseconds=8)), CONFLICT, None, CONFLICT)
    assert outcome == GIVEN_UP
    assert steps == [TRY, Wait(0.005), TRY]


@pytest.mark.parametrize("outcomes", [[], [Rejected(M1)], [Missing(M1)]], ids=["none", "rejected", "missing"])
def test_failure_is_raised_if_no_ledger_says_anything(outcomes: list[Outcome]) -> None:
    with pytest.raises(EntityTooLarge) as raised:
        answered(sketch(), Findings(outcomes, failure=FULL))
    assert raised.value is FULL


@pytest.mark.parametrize("outcome", [Duplicate(M1), Stale(M1, 7), Busy(M1, 1.0)])
def test_what_a_ledger_says_comes_before_what_cannot_be_done(outcome: Outcome) -> None:
    assert answered(sketch(), Findings([Rejected(M1), outcome], failure=FULL)) == outcome


def test_a_duplicate_is_final_although_another_write_may_pass_later() -> None:
    assert answered(sketch(), Findings([Duplicate(M1)], passes=True, waits=True)) == Duplicate(M1)


def test_an_undecided_try_is_sent_again_whatever_refused_it() -> None:
    undecided = Findings([Duplicate(M1), Rejected(M1)], failure=FULL, is_undecided=True)
    assert answered(sketch(), undecided, Applied(M1)) == Applied(M1)


# --- what may take part --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("is_async", "right"), [(True, "transact"), (False, "atransact")])
def test_stores_of_the_other_kind_are_refused_with_the_remedy(*, is_async: bool, right: str) -> None:
    other = Planned(Store(is_async=not is_async))
    with pytest.raises(ConfigurationError, match=rf"\buse {right}\.$"):
        Sketch(M1, [Planned(Store(is_async=is_async)), other], None, is_async=is_async)


def test_an_inbox_is_an_inbox() -> None:
    wrong: Any = "inbox"
    with pytest.raises(ConfigurationError, match="give an Inbox"):
        Sketch(M1, [Planned()], wrong, is_async=False)
