"""How large a ledger is over the time in which it fills and is cleared, and when its entity is full. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from onewrite.costs.stream import BIRTH, CENTURY, DAY, SECOND, Stream, moments
from onewrite.costs.texts import Cycle
from onewrite.ledgers.ring import Window, next_change

LOOKS = 36  # at an entity, for averages
_SLOWLY = 24  # how many generations of a slow stream show its extremes
_STEP = 1.2  # between two ages at which an entity is looked at to find when it is full


class Sized(Protocol):
    """A ledger in entities of one engine, which take so many bytes at most."""

    @property
    def limit(self) -> int: ...
    @property
    def parts(self) -> tuple[Cycle, ...]: ...


class Sizes(NamedTuple):
    """The bytes of a ledger: at even intervals, right after old marks were removed, and just before they are."""

    even: tuple[int, ...]
    low: int
    high: int


def sizes(ledger: Sized, stream: Stream, age: int) -> Sizes:
    """Of an entity that has got messages for so long."""
    looked = [_part(part, stream, age) for part in ledger.parts]
    even = tuple(map(sum, zip(*[each.even for each in looked], strict=True)))
    return Sizes(even, sum(each.low for each in looked), sum(each.high for each in looked))


def highest(ledger: Sized, stream: Stream, age: int) -> int:
    """The bytes of a ledger at its largest."""
    return sum(max(_extremes(part, stream, age)) for part in ledger.parts)


def _part(part: Cycle, stream: Stream, age: int) -> Sizes:
    even = tuple([part.size(stream, moment) for moment in evenly(part, stream, age)])
    extremes = [*_extremes(part, stream, age), *even]
    return Sizes(even, min(extremes), max(extremes))


def evenly(part: Cycle, stream: Stream, age: int) -> list[int]:
    """When to look for an average."""
    if isinstance(part.turns, Window):
        return moments(part.turns, age, LOOKS)[0]
    last, cycle = stream.last_by(BIRTH + age), part.turns.size * part.turns.sources
    return [stream.moment(max(0, last - cycle * step // LOOKS)) for step in range(LOOKS)]


def _extremes(part: Cycle, stream: Stream, age: int) -> list[int]:
    """The sizes before and after each message that finds another ring than the one before, or enters another block."""
    end = BIRTH + age
    if not isinstance(part.turns, Window):
        return [part.size(stream, stream.moment(n)) for n in part.turns.edges(stream.last_by(end))]
    found = [part.size(stream, end)]
    generations = 2 if stream.every < part.turns.width * stream.of else _SLOWLY
    for change in moments(part.turns, age, 1, generations)[1]:
        found.append(part.size(stream, change - 1))
        first = stream.moment(stream.first_from(change))
        found.extend([part.size(stream, first)] if first <= end else [])
    return found


def full_after(ledger: Sized, entity: int, stream: Stream) -> float | None:
    """After how many days an entity, whose other attributes have so many bytes, takes no more messages; None if it always does."""

    def is_full(age: int) -> bool:
        return entity + sum(part.size(stream, BIRTH + age) for part in ledger.parts) > ledger.limit

    before = -1
    for age in _ages(ledger.parts):
        if is_full(age):
            return _first(is_full, before, age) / DAY
        before = age
    return None


def _ages(parts: Sequence[Cycle]) -> list[int]:
    """When an entity may be larger than ever before: at any time, and just before a ring changes for the first times."""
    ages: list[int] = []
    age = float(SECOND)
    while age < CENTURY:
        ages.append(int(age))
        age *= _STEP
    return sorted([0, *ages, CENTURY, *[age for part in parts for age in _before_first_changes(part)]])


def _before_first_changes(part: Cycle) -> Iterator[int]:
    if not isinstance(part.turns, Window):
        return
    at = BIRTH
    while at - BIRTH < 4 * part.turns.width:
        at = next_change(part.turns, at)
        yield at - 1 - BIRTH


def _first(holds: Callable[[int], bool], least: int, most: int) -> int:
    """The first age after `least` at which it holds, as it does at `most`."""
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if holds(middle) else (middle, most)
    return most
