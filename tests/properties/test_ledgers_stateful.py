"""Any schedule of deliveries, repeats and reorderings that a ledger is meant for ends with each message once."""

from __future__ import annotations

from typing import Any, ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from onewrite import Deferred, Duplicate, HighWaterMark, InSequence, Message, SeenIds, Stale
from onewrite.ledger import Advance, Entry, Ledger

NOW = 1_790_000_000.0
DAY = 86_400.0
SOURCES = ("", "order-1", "a.b")


class Store:
    """One entity and its ledger, in plain Python: what an engine does with an entry."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.held: dict[str, Any] = {}
        self.effects: list[str] = []

    def deliver(self, message: Message, now: float) -> object:
        """None for applied, else the ledger's refusal."""
        entry = self.ledger.entry(message, now)
        refusal = entry.judge(message, self.held)
        if refusal is None:
            assert self._lets_in(entry), "the ledger's judgement and its condition say the same"
            self._apply(entry)
            self.effects.append(message.id)
        else:
            assert not self._lets_in(entry), "the ledger's judgement and its condition say the same"
        return refusal

    def _lets_in(self, entry: Entry) -> bool:
        """The condition as an engine spells it."""
        if not isinstance(entry, Advance):
            return all(mark not in self.held.get(slot, ()) for slot, mark in entry.lacks)
        held = self.held.get(entry.slot)
        if entry.rule == "absent":
            return held is None
        if entry.rule == "next":
            return held is not None and held == int(entry.mark) - 1
        return held is None or held < entry.mark

    def _apply(self, entry: Entry) -> None:
        if isinstance(entry, Advance):
            self.held[entry.slot] = entry.mark
            return
        for slot in entry.ring.drops:
            self.held.pop(slot, None)
        self.held[entry.slot] = self.held.get(entry.slot, frozenset()) | {entry.mark}


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
    """SeenIds, with clocks that differ: no id comes back later than its retention."""

    ledger = SeenIds()

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.times: dict[str, float] = {}

    @rule(days=st.floats(min_value=0, max_value=5), n=st.integers(0, 6), skew=st.floats(min_value=-0.25, max_value=0.25))
    def deliver(self, days: float, n: int, skew: float) -> None:
        self.now += days * DAY
        key = f"m{n}"
        if key in self.times and self.now - self.times[key] > 14 * DAY:
            key = f"m{n} of {self.now}"  # a producer that gives up after 14 days
        message = Message(key)
        refusal = self.store.deliver(message, self.now + skew * DAY)
        if key in self.times:
            assert refusal == Duplicate(message)
        else:
            assert refusal is None
            self.times[key] = self.now
            self.expected.append(key)

    @rule(days=st.floats(min_value=5, max_value=4000))
    def sleep(self, days: float) -> None:
        self.now += days * DAY

    @invariant()
    def there_are_six_slots_at_most(self) -> None:
        assert set(self.store.held) <= {f"r{n}" for n in range(6)}


class AnyOrderDigested(AnyOrder):
    ledger = SeenIds(digest=True)


class ForEver(_Deliveries):
    ledger = SeenIds(retention=None)

    @rule(n=st.integers(0, 9), now=st.floats(min_value=0, max_value=1e12))
    def deliver(self, n: int, now: float) -> None:
        message = Message(f"m{n}")
        refusal = self.store.deliver(message, now)
        if message.id in self.expected:
            assert refusal == Duplicate(message)
        else:
            assert refusal is None
            self.expected.append(message.id)


class _Numbered(_Deliveries):
    """Sources that number their messages, each at its own pace."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, int] = {}

    def message(self, source: str, n: int) -> Message:
        return Message(f"{source}/{n}", source=source, sequence=self.sequence(n))

    def sequence(self, n: int) -> int | str:
        return n

    def apply(self, source: str, n: int) -> None:
        assert self.store.deliver(self.message(source, n), NOW) is None
        self.last[source] = n
        self.expected.append(f"{source}/{n}")


class InOrder(_Numbered):
    """HighWaterMark: in order, with gaps of numbers and any repeats."""

    ledger = HighWaterMark()

    @rule(source=st.sampled_from(SOURCES), step=st.integers(1, 40))
    def deliver_the_next(self, source: str, step: int) -> None:
        self.apply(source, self.last.get(source, 0) + step)

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
    """InSequence: in any order, for what comes too early comes again."""

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
        last = self.last.get(source)
        following = self.first if last is None else last + 1
        if n == following:
            self.apply(source, n)
            return
        message = self.message(source, n)
        refusal = self.store.deliver(message, NOW)
        if n > following:
            assert refusal == Deferred(message, following)
        elif n == last:
            assert refusal == Duplicate(message)
        else:
            assert refusal == Stale(message, following - 1)


MACHINES = (AnyOrder, AnyOrderDigested, ForEver, InOrder, InOrderOfText, NoGaps)
for _machine in MACHINES:
    _machine.TestCase.settings = settings(settings.get_profile("ci"), max_examples=40, stateful_step_count=40)
TestAnyOrder = AnyOrder.TestCase
TestAnyOrderDigested = AnyOrderDigested.TestCase
TestForEver = ForEver.TestCase
TestInOrder = InOrder.TestCase
TestInOrderOfText = InOrderOfText.TestCase
TestNoGaps = NoGaps.TestCase
