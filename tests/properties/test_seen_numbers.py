"""Writers that race for the slots of one source, some of which look at the entity long before they write again.

The model has what an engine has: single writes, each with a condition, and looks. A writer does what the flows do, request by
request, and any number of others come in between.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, cast

from bson import encode
from hypothesis import given, settings
from hypothesis import strategies as st

from onewrite import Duplicate, Message, SeenNumbers, Stale
from onewrite.core.label import Slot
from onewrite.core.ledgers.entry import ABSENT, Entry, Lookup, Number
from onewrite.core.ledgers.seen_numbers import blocks_of
from onewrite.dynamodb.layout import name_of
from onewrite.dynamodb.size import item_size
from onewrite.mongodb.request import initial
from onewrite.outcome import Outcome as Answer
from tests.support.examples import examples

NOW = 1_790_000_000.0
REPEATABLE = settings(settings.get_profile("repeatable"), max_examples=examples(300))


class Write(NamedTuple):
    """A request that writes if its form fits. The answer: did it?"""

    own: Number


class Look(NamedTuple):
    """A request that reads. The answer: what is stored."""


Request = Write | Look
Writer = Generator[Request, Any, Answer | None]


class Slots:
    """The slots of one source, and how often each number took effect."""

    def __init__(self) -> None:
        self.held: dict[Slot, Any] = {}
        self.effects: list[int] = []

    def answer(self, request: Request) -> Any:
        return self._write(request.own) if isinstance(request, Write) else dict(self.held)

    def _write(self, own: Number) -> bool:
        tag, numbers = self.held.get(own.tag), self.held.get(own.numbers, frozenset())
        lets_in = (tag is None or tag == own.block) and own.mark not in numbers
        if own.form == "enters":
            lets_in = tag is not None and tag < own.block
        if lets_in:
            kept = numbers if own.form == "joins" else frozenset()
            self.held |= {own.tag: own.block, own.numbers: kept | {own.mark}}
            self.effects.append(own.mark)
        return lets_in


def lookup(held: dict[Slot, Any]) -> Lookup:
    return lambda slot: held.get(slot, ABSENT)


def exact(entry: Entry, message: Message) -> Writer:
    """A writer to DynamoDB: what refuses it shows what was there at that very moment."""
    while not (yield Write(cast("Number", entry.own))):
        held = lookup((yield Look()))
        refusal = entry.judge(message, held)
        if refusal is not None:
            return refusal
        entry = entry.fit_to(held)
    return None


def looking_later(entry: Entry, message: Message) -> Writer:
    """A writer to MongoDB: what it sees may be newer than what refused it."""
    while not (yield Write(cast("Number", entry.own))):
        held = lookup((yield Look()))
        refusal = entry.judge(message, held)
        if refusal is not None:
            return refusal
        assert entry.fit_to(held) != entry, "no look says twice that a write which nothing refuses would be let in"
        entry = entry.fit_to(held)
    return None


class Race:
    """Writers of one source, of which each goes on when it is its turn."""

    def __init__(self, window: int, numbers: list[int], *, looks_later: bool) -> None:
        ledger, flow = SeenNumbers(window), looking_later if looks_later else exact
        messages = [Message(f"m{n}", source="s", sequence=n) for n in numbers]
        self.slots, self.looks_later = Slots(), looks_later
        self.writers = [flow(ledger.entry(message, NOW), message) for message in messages]
        self.due = [next(writer) for writer in self.writers]
        self.answers: dict[int, Answer | None] = {}

    def step(self, which: int) -> None:
        if which in self.answers:
            return
        try:
            request = self.writers[which].send(self.slots.answer(self.due[which]))
            if isinstance(request, Look) and not self.looks_later:  # the image belongs to the refusal
                request = self.writers[which].send(self.slots.answer(request))
            self.due[which] = request
        except StopIteration as end:
            self.answers[which] = end.value

    def end(self) -> list[Answer | None]:
        """Let all go on until each has its answer. The tag of a slot rises at most once for each writer."""
        for _ in range(6 * len(self.writers)):
            for which in range(len(self.writers)):
                self.step(which)
        return [self.answers[which] for which in range(len(self.writers))]


@given(
    window=st.integers(4, 12),
    numbers=st.lists(st.integers(0, 40), min_size=2, max_size=12),
    turns=st.lists(st.integers(0, 11), max_size=120),
    looks_later=st.booleans(),
)
@REPEATABLE
def test_whatever_comes_in_between_no_number_takes_effect_twice_and_every_writer_ends(
    window: int, numbers: list[int], turns: list[int], looks_later: bool
) -> None:
    race = Race(window, numbers, looks_later=looks_later)
    for turn in turns:
        race.step(turn % len(numbers))
    answers = race.end()
    effects = race.slots.effects
    assert sorted(effects) == sorted(set(effects))
    for n, answer in zip(numbers, answers, strict=True):
        assert answer is None or isinstance(answer, Duplicate | Stale)
        assert not isinstance(answer, Duplicate) or n in effects
    if max(numbers) - min(numbers) <= window:
        assert sorted(effects) == sorted(set(numbers)), "what is within one window is let in"


@given(window=st.integers(4, 10_000), n=st.integers(0, 10**12), ahead=st.integers(0, 20_000))
@REPEATABLE
def test_a_number_is_refused_unseen_only_for_one_that_is_a_window_ahead(window: int, n: int, ahead: int) -> None:
    size, slots = blocks_of(window)
    assert slots <= 5
    if (n + ahead) // size % slots == n // size % slots and (n + ahead) // size > n // size:
        assert ahead > window


@given(start=st.integers(0, 10**8 - 700), source=st.text(max_size=60))
@settings(REPEATABLE, max_examples=examples(40))
def test_the_ledger_of_a_source_stays_within_3_6_kb_on_dynamodb_and_5_3_on_mongodb(start: int, source: str) -> None:
    ledger, item, document = SeenNumbers(), {}, {}  # type: ignore[var-annotated]  # what each engine holds
    size, slots = blocks_of(ledger.window)
    for n in range(start, start + slots * size):
        entry = ledger.entry(Message(f"m{n}", source=source, sequence=n), NOW)
        own = entry.own
        assert isinstance(own, Number)
        joined = item.get(name_of(own.numbers), frozenset()) if item.get(name_of(own.tag)) == own.block else frozenset()
        item |= {name_of(own.tag): own.block, name_of(own.numbers): joined | {n}, "ow_l": "ow1 numbers 500"}
        ((group, held),) = [(name, value) for name, value in initial(entry).items() if name != "ow_l"]
        ((key, parts),) = held.items()
        document.setdefault(group, {}).setdefault(key, {}).update(
            {name: [*joined, n] if isinstance(value, list) else value for name, value in parts.items()}
        )
    assert item_size(item) <= 3600
    assert len(encode({**document, "ow_l": "ow1 numbers 500"})) <= 5300
