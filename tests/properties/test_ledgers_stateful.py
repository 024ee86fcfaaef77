"""Any schedule of deliveries, repeats and reorderings that a ledger is meant for ends with each message once."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, ClassVar

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from onewrite import Deferred, Duplicate, HighWaterMark, InSequence, InvalidMessage, LedgerMismatch, Message, SeenIds, Stale
from onewrite.core.label import Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Remember
from onewrite.core.ledgers.ring import MAX_LATENESS, SLOTS
from tests.support.examples import examples

NOW = 1_790_000_000.0
DAY = 86_400.0
SOURCES = ("", "order-1", "a.b")


class Store:
    """One entity and its ledger, in plain Python: what an engine does with an entry."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.held: dict[Slot, Any] = {}
        self.effects: list[str] = []

    def deliver(self, message: Message, now: float) -> object:
        """None for applied, otherwise the ledger's refusal."""
        entry = self.ledger.entry(message, now)
        let_in = self._lets_in(entry)
        try:
            refusal = entry.judge(message, self.look)
        except LedgerMismatch:
            assert not let_in, "what the judgement raises for, the condition does not let in"
            raise
        assert let_in is (refusal is None), "the ledger's judgement and its condition say the same"
        if refusal is None:
            self._apply(entry)
            self.effects.append(message.id)
        return refusal

    def look(self, slot: Slot) -> object:
        return self.held.get(slot, ABSENT)

    def _lets_in(self, entry: Entry) -> bool:
        """The condition as an engine spells it."""
        terms = entry.terms
        labelled = all(self.held.get(label.slot, label.text) in label.accepts for label in terms.labels)
        return labelled and all(self._lets_past(change) for change in entry.checked)

    def _lets_past(self, change: Change) -> bool:
        if isinstance(change, Remember):
            return all(
                mark not in self.held.get(slot, ()) for slot in change.sets.live for mark in (change.mark, *change.aliases)
            )
        held = self.held.get(change.slot)
        if held is None:
            return change.rule != "next"
        return bool(held < change.mark if change.rule == "below" else held == int(change.mark) - 1)

    def _apply(self, entry: Entry) -> None:
        for label in entry.terms.labels:
            self.held[label.slot] = label.text
        for slot in entry.dead:
            self.held.pop(slot, None)
        own = entry.own
        if isinstance(own, Advance):
            self.held[own.slot] = own.mark
        else:
            self.held[own.sets.present] = self.held.get(own.sets.present, frozenset()) | {own.mark}


class _Deliveries(RuleBasedStateMachine):
    """What all of them have: a store, and the oracle's list of what must have happened."""

    ledger: ClassVar[Ledger]

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(self.ledger)
        self.expected: list[str] = []

    @invariant()
    def each_message_took_effect_once_and_in_this_order(self) -> None:
        assert self.store.effects == self.expected


class AnyOrder(_Deliveries):
    """SeenIds, with clocks that differ and requests that land late: no id comes back later than its retention."""

    ledger = SeenIds()
    retention = 14 * DAY

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.times: dict[str, float] = {}

    @rule(
        pause=st.floats(min_value=0, max_value=0.4),
        n=st.integers(0, 3),
        source=st.sampled_from(SOURCES),
        part=st.sampled_from(["", "stock"]),
        skew=st.floats(min_value=-1, max_value=1),
        late=st.sampled_from([0.0, 1.0]) | st.floats(min_value=0, max_value=1),
    )
    def deliver(self, pause: float, n: int, source: str, part: str, skew: float, late: float) -> None:
        """An id counts with its source and its part."""
        self.now += pause * self.retention
        key = f"m{n}"
        if self.now - self.times.get(f"{source} {part} {key}", self.now) > self.retention:
            key = f"m{n} of {self.now}"  # a producer that gives up after the retention
        message = Message(key, source=source)
        if part:
            message = message.part(part)
        read = self.now + skew * self.retention / 56 - late * MAX_LATENESS.total_seconds()
        refusal = self.store.deliver(message, read)
        if f"{source} {part} {key}" in self.times:
            assert refusal == Duplicate(message)
        else:
            assert refusal is None
            self.times[f"{source} {part} {key}"] = self.now
            self.expected.append(key)

    @rule(days=st.floats(min_value=5, max_value=4000) | st.floats(min_value=0, max_value=0.1))
    def sleep(self, days: float) -> None:
        self.now += days * DAY

    @invariant()
    def there_are_six_slots_at_most(self) -> None:
        assert len([slot for slot in self.store.held if slot.key]) <= len(SLOTS)


class AnyOrderReadable(AnyOrder):
    ledger = SeenIds(readable=True)


class AnyOrderShort(AnyOrder):
    ledger = SeenIds(timedelta(minutes=1))
    retention = 60.0


class AnyOrderShortest(AnyOrder):
    ledger = SeenIds(timedelta(seconds=1))
    retention = 1.0


class ForEver(_Deliveries):
    ledger = SeenIds(retention=None)

    @rule(n=st.integers(0, 9), now=st.floats(min_value=0, max_value=1e10))
    def deliver(self, n: int, now: float) -> None:
        message = Message(f"m{n}")
        refusal = self.store.deliver(message, now)
        if message.id in self.expected:
            assert refusal == Duplicate(message)
        else:
            assert refusal is None
            self.expected.append(message.id)


class ForEverReadable(ForEver):
    ledger = SeenIds(retention=None, readable=True)


class Changed(RuleBasedStateMachine):
    """A SeenIds that is changed again and again, each time with `previous=` for all before it, and rolled out store by store.

    A store that was not changed yet may get a message as well. It never takes a message for another, whatever it has missed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stores = [Store(SeenIds())]
        self.expected: list[str] = []
        self.known: set[tuple[str, str]] = set()
        self.newest = 0  # of the stores that have written

    @property
    def ledgers(self) -> list[Ledger]:
        return [store.ledger for store in self.stores]

    @precondition(lambda self: len(self.stores) < 4)
    @rule(
        retention=st.sampled_from([timedelta(days=14), timedelta(days=30), None]),
        readable=st.booleans(),
        name=st.sampled_from(["", "seen", "l"]),
        is_chain=st.booleans(),
    )
    def change(self, retention: timedelta | None, readable: bool, name: str, is_chain: bool) -> None:
        previous = self.ledgers[-1] if is_chain else tuple(reversed(self.ledgers))
        changed = Store(SeenIds(retention, name=name, readable=readable, previous=previous))
        # Who goes back to what was before makes labels that the first stores accept: these have to be gone by then.
        assume(
            all((each.attribute, each.layout) != (changed.ledger.attribute, changed.ledger.layout) for each in self.ledgers)
        )
        changed.held, changed.effects = self.stores[0].held, self.stores[0].effects  # it is one entity
        self.stores.append(changed)

    @rule(n=st.integers(0, 9), source=st.sampled_from(SOURCES))
    def deliver_to_the_newest(self, n: int, source: str) -> None:
        """It may never be refused, for nobody could mend that."""
        self._deliver(len(self.stores) - 1, Message(f"m{n}", source=source))

    @rule(data=st.data(), n=st.integers(0, 9), source=st.sampled_from(SOURCES))
    def deliver_to_any(self, data: st.DataObject, n: int, source: str) -> None:
        store = data.draw(st.integers(0, len(self.stores) - 1))
        try:
            self._deliver(store, Message(f"m{n}", source=source))
        except LedgerMismatch:
            assert store < self.newest, "only what a newer ledger has written is refused"

    def _deliver(self, store: int, message: Message) -> None:
        refusal = self.stores[store].deliver(message, NOW)
        if (message.source, message.id) in self.known:
            assert refusal == Duplicate(message)
        else:
            assert refusal is None
            self.known.add((message.source, message.id))
            self.expected.append(message.id)
            self.newest = max(self.newest, store)

    @invariant()
    def each_message_took_effect_once_and_in_this_order(self) -> None:
        assert self.stores[0].effects == self.expected


class _Numbered(_Deliveries):
    """Sources that number their messages, each at its own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, int] = {}

    def message(self, source: str, n: int) -> Message:
        return Message(f"{source}/{n}", source=source or "shop", sequence=self.sequence(n))

    def sequence(self, n: int) -> int | str:
        return n

    def apply(self, source: str, n: int) -> None:
        assert self.store.deliver(self.message(source, n), NOW) is None
        self.last[source] = n
        self.expected.append(f"{source}/{n}")


class InOrder(_Numbered):
    """HighWaterMark: in order, with gaps of numbers and any repeats."""

    ledger = HighWaterMark()

    @rule(source=st.sampled_from(SOURCES), effect=st.integers(1, 40))
    def deliver_the_next(self, source: str, effect: int) -> None:
        self.apply(source, self.last.get(source, 0) + effect)

    @precondition(lambda self: self.last)
    @rule(data=st.data())
    def deliver_again(self, data: st.DataObject) -> None:
        source = data.draw(st.sampled_from(sorted(self.last)))
        last = self.last[source]
        n = data.draw(st.integers(0, last))
        message = self.message(source, n)
        refusal = self.store.deliver(message, NOW)
        assert refusal == (Duplicate(message) if n == last else Stale(message, self.sequence(last)))


class InOrderOfText(InOrder):
    def sequence(self, n: int) -> str:
        return f"{n:06}"


class NoGaps(_Numbered):
    """InSequence: in any order, for what comes too early is redelivered."""

    ledger = InSequence(first=-1)
    first = -1

    @initialize()
    def nothing_is_there(self) -> None:
        assert self.store.held == {}

    @rule(source=st.sampled_from(SOURCES))
    def deliver_the_next(self, source: str) -> None:
        self.apply(source, self.last.get(source, self.first - 1) + 1)

    @rule(source=st.sampled_from(SOURCES), n=st.integers(-3, 60))
    def deliver_any(self, source: str, n: int) -> None:
        message = self.message(source, n)
        if n < self.first:
            with pytest.raises(InvalidMessage, match=f"first={n}"):
                self.store.deliver(message, NOW)
            return
        last = self.last.get(source)
        following = self.first if last is None else last + 1
        if n == following:
            self.apply(source, n)
            return
        refusal = self.store.deliver(message, NOW)
        if n > following:
            assert refusal == Deferred(message, following)
        elif n == last:
            assert refusal == Duplicate(message)
        else:
            assert refusal == Stale(message, following - 1)


class Followed(_Numbered):
    """HighWaterMark and InSequence take turns with the marks of one attribute, and `first` is changed now and then."""

    ledger = HighWaterMark()

    @rule(
        ledger=st.sampled_from([HighWaterMark(), *map(InSequence, range(-1, 4))]),
        source=st.sampled_from(SOURCES),
        n=st.integers(-2, 8),
    )
    def deliver(self, ledger: HighWaterMark | InSequence, source: str, n: int) -> None:
        self.store.ledger = ledger
        last = self.last.get(source)
        if isinstance(ledger, HighWaterMark):
            is_due = last is None or n > last
        elif n < ledger.first:
            with pytest.raises(InvalidMessage):
                self.store.deliver(self.message(source, n), NOW)
            return
        else:
            is_due = n == (ledger.first if last is None else last + 1)
        if is_due:
            self.apply(source, n)
        else:
            assert self.store.deliver(self.message(source, n), NOW) is not None


MACHINES = (
    AnyOrder,
    AnyOrderReadable,
    AnyOrderShort,
    AnyOrderShortest,
    ForEver,
    ForEverReadable,
    Changed,
    InOrder,
    InOrderOfText,
    NoGaps,
    Followed,
)


@pytest.mark.parametrize("machine", MACHINES)
def test_each_message_takes_effect_once_in_any_schedule(machine: type[RuleBasedStateMachine]) -> None:
    # What goes wrong between ledgers needs a certain row of changes.
    count, steps = (200, 20) if machine is Changed else (40, 40)
    profile = settings(settings.get_profile("repeatable"), max_examples=examples(count), stateful_step_count=steps)
    run_state_machine_as_test(machine, settings=profile)
