"""Messages that come to one entity at even intervals, and how many of them its sets hold at a moment. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias, cast

from onewrite.core.ledgers import Ledger, SeenIds
from onewrite.core.ledgers.ring import Window, next_change, ring_of, window
from onewrite.core.ledgers.seen_ids import SLOTS
from onewrite.errors import ConfigurationError
from onewrite.message import Message
from onewrite.operate.report import count_of

SECOND = 1_000_000  # all moments are in microseconds, as the rings are
DAY = 86_400 * SECOND
CENTURY = 36_525 * DAY
# Any moment will do for an entity's birth. This one is no edge of a generation of the usual rings.
BIRTH = 1_790_000_000 * SECOND + 123_456_789
# How far back to look, in widths of a generation and in messages. What a steady stream has written is removed within four widths; in an entity
# that sleeps between its messages some stand longer, by chance of the slots: see ledgers/ring.py.
_WIDTHS, _MESSAGES = 16, 100


class MessageStream(NamedTuple):
    """Message n comes `n * every / of` microseconds after the first, rounded down."""

    every: int
    of: int = 1
    birth: int = BIRTH

    @property
    def per_day(self) -> float:
        return DAY * self.of / self.every

    def moment(self, n: int) -> int:
        return self.birth + n * self.every // self.of

    def first_from(self, moment: int) -> int:
        """The number of the first message that does not come before this moment."""
        return max(0, -((self.birth - moment) * self.of // self.every))

    def last_by(self, moment: int) -> int:
        """The number of the last message that has come by this moment, or -1."""
        return self.first_from(moment + 1) - 1


def stream_of(per_second: float) -> MessageStream:
    interval = Fraction(SECOND / per_second).limit_denominator(SECOND)
    return MessageStream(interval.numerator, interval.denominator)


@lru_cache(maxsize=4096)  # the tokens of attempts are the same beside each ledger
def ring_counts(stream: MessageStream, ring_window: Window, slots: int, moment: int) -> Mapping[str, int]:
    """How many members stand in each slot of a ring of so many `slots` when all messages up to this moment were written."""
    counts: dict[str, int] = {}
    last = stream.last_by(moment)
    n = max(0, min(stream.first_from(moment - _WIDTHS * ring_window.width), last - _MESSAGES))
    while n <= last:
        ring = ring_of(ring_window, stream.moment(n), slots)
        end = min(last + 1, stream.first_from(next_change(ring_window, stream.moment(n))))
        for dead in ring.dead:
            counts.pop(dead, None)
        counts[ring.present] = counts.get(ring.present, 0) + end - n
        n = end
    return MappingProxyType(counts)


def moments(ring_window: Window, age: int, count: int, generations: int = 2) -> tuple[list[int], list[int]]:
    """When to look at an entity of this age: at even intervals, for averages; and around each change of its ring, for extremes.

    Two generations show all that a steady stream does. One whose messages are further apart than a generation is wide needs more.
    """
    end, back = BIRTH + age, min(age, generations * ring_window.width)
    even = [end - back * step // count for step in range(count)]
    changes: list[int] = []
    at = next_change(ring_window, end - back)
    while at <= end:
        changes.append(at)
        at = next_change(ring_window, at)
    return even, changes


# --- What a plan assumes of messages, and what that means for each kind of ledger, on any engine. Pure --------------------


class Texts(NamedTuple):
    """How long the ids and sources of messages are, in bytes, and how many sources an entity hears of. These take turns."""

    id_bytes: int
    source_bytes: int
    sources: int

    def message(self, n: int) -> Message:
        return self.of_source(n % self.sources, n // self.sources + 1)

    def of_source(self, source: int, sequence: int) -> Message:
        name = f"{source:0{self.source_bytes}d}" if self.source_bytes else ""
        return Message(f"{sequence:0{self.id_bytes}d}"[-self.id_bytes :], source=name, sequence=sequence)


class NumberBlocks(NamedTuple):
    """What has no ring changes with the numbers of its messages: each of the sources that take turns has blocks of so many."""

    size: int
    sources: int

    def edges(self, last: int) -> list[int]:
        """The last message, the last before all sources entered a block, and the one with which they all had."""
        edge = (((last // self.sources + 1) // self.size) * self.size - 1) * self.sources
        return [n for n in dict.fromkeys((last, edge - 1, edge + self.sources - 1)) if 0 <= n <= last]


class Cycle(NamedTuple):
    """Bytes that an entity has at a moment, and what they follow: the time of a ring, or the numbers of messages."""

    size: Callable[[MessageStream, int], int]
    turns: Window | NumberBlocks


def cycle_of(ledger: Ledger) -> Window | NumberBlocks:
    if isinstance(ledger, SeenIds) and ledger.retention is not None:
        return _window(ledger)
    return NumberBlocks(1, 1)


def counts_of(ledger: Ledger, stream: MessageStream, moment: int) -> Mapping[str, int]:
    """How many marks stand in each slot of a ledger of ids. The only slot of one that never forgets has no key."""
    if isinstance(ledger, SeenIds) and ledger.retention is not None:
        return ring_counts(stream, _window(ledger), SLOTS, moment)
    return {"": stream.last_by(moment) + 1}


def _window(ledger: SeenIds) -> Window:
    return window(cast("timedelta", ledger.retention), cast("timedelta", ledger.skew))


def turns(last: int, sources: int) -> list[tuple[int, int]]:
    """The last sequence of sources that take turns up to message `last`, and how many sources have come to it."""
    whole, more = divmod(last + 1, sources)
    return [(sequence, count) for sequence, count in ((whole + 1, more), (whole, sources - more)) if sequence and count]


# --- what a plan is made from --------------------------------------------------------------------------------------------

UNIT = 1024  # bytes of a write unit of DynamoDB
Does: TypeAlias = Literal["still", "changes", "moves"]  # what the caller's own write does to an index's entry


def units(size: int) -> int:
    """The write units of so many bytes."""
    return max(1, -(-size // UNIT))


@dataclass(frozen=True, slots=True)
class IndexLoad:
    """What is known of an index where there are no items yet: the bytes of its entry without the ledger, and what happens to it."""

    name: str
    size: int
    copies_ledger: bool
    does: Does
    is_local: bool = False  # a local index shares the partition of its table

    def units(self, ledger: int, pending: int = 0) -> int:
        """What a fresh message costs here. The item has a ledger of so many bytes, and events of so many, which a relay's write clears."""
        if not (self.copies_ledger and (ledger or pending)):
            return units(self.size) * ("still", "changes", "moves").index(self.does)
        writes = units(self.size + ledger + pending) * (2 if pending else 1)
        return writes + (units(self.size + ledger) if self.does == "moves" else 0)


Engine: TypeAlias = Literal["dynamodb", "mongodb"]
_SECONDS_A_DAY = 86_400
_LARGEST = {"dynamodb": 400 * 1024, "mongodb": 16 * 1024 * 1024}  # bytes of an item, of a document
_LONGEST_ID = 2048  # bytes, as `Message` takes them
_MOST = 10**12  # of anything: more is a mistake
_FEWEST = 1e-6  # messages a day
_OLDEST = 36_525  # days: a hundred years


@dataclass(frozen=True, slots=True)
class Prices:
    """In US dollars. The defaults are those of on-demand tables of the standard class in us-east-1, as they have been since 2024-11-01."""

    per_million_units: float = 0.625
    per_gigabyte_month: float = 0.25
    where: str = "on-demand, us-east-1, since 2024-11-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """One table or collection, and the messages that come to its entities.

    `per_day` counts the messages of all entities, each once; `duplicates` is the share of them that is delivered once more. `hottest` is the
    share of the messages that one entity gets; the others get the rest evenly. `age` is how many days the entities have got messages.
    `events` is how many a message emits.
    """

    engine: Engine
    item_bytes: int
    per_day: float
    entities: int
    hottest: float | None = None
    duplicates: float = 0.01
    id_bytes: int = 36
    source_bytes: int = 16
    sources: int = 1
    retention: timedelta = timedelta(days=14)
    window: int = 500
    age: float = 365
    indexes: tuple[IndexLoad, ...] = ()
    prices: Prices = field(default_factory=Prices)
    events: float = 0
    event_bytes: int = 500

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ConfigurationError(problem)

    def _problems(self) -> Iterator[str]:
        yield from self._out_of_bounds()
        if self.hottest is not None and not self.even_share <= self.hottest + 1e-12:
            yield (
                f"The hottest of {count_of(self.entities, 'entity', 'entities')} gets at least {self.even_share:.4%} of the messages, and {self.hottest:.4%} was "
                "given: give a larger share, or leave it out if all get as many."
            )
        if self.sources > 10**self.source_bytes:
            yield (
                f"There are no {count_of(self.sources, 'different source')} with names of {count_of(self.source_bytes, 'byte')}: give longer names, or fewer sources."
            )
        if self.engine == "mongodb" and self.indexes:
            yield "Indexes are counted for DynamoDB only, which charges for them: leave them out."

    def _out_of_bounds(self) -> Iterator[str]:
        bounds: tuple[tuple[str, float, float, float], ...] = (
            ("The bytes of an item", self.item_bytes, 1, _LARGEST[self.engine]),
            ("The messages a day", self.per_day, _FEWEST, _MOST),
            ("The number of entities", self.entities, 1, _MOST),
            ("The share of the hottest entity", 1 if self.hottest is None else self.hottest, 1e-12, 1),
            ("The share of duplicates", self.duplicates, 0, 1),
            ("The bytes of an id", self.id_bytes, 1, _LONGEST_ID),
            ("The bytes of a source", self.source_bytes, 0, _LONGEST_ID),
            ("The events of a message", self.events, 0, 1000),
            ("The bytes of an event", self.event_bytes, 1, _LARGEST[self.engine]),
            ("The number of sources", self.sources, 1, 1_000_000),
            ("The age of an entity in days", self.age, 1 / _SECONDS_A_DAY, _OLDEST),
            ("The price of a million write units", self.prices.per_million_units, 0, _MOST),
            ("The price of a gigabyte a month", self.prices.per_gigabyte_month, 0, _MOST),
        )
        for what, value, least, most in bounds:
            if not (math.isfinite(value) and least <= value <= most):
                yield f"{what} must be from {least:g} to {most:,.0f}, and {value:g} was given."

    @property
    def even_share(self) -> float:
        return 1 / self.entities

    @property
    def hot_share(self) -> float:
        return self.even_share if self.hottest is None else self.hottest

    @property
    def emitting(self) -> float:
        """The share of the messages that emit events."""
        return min(1, self.events)

    @property
    def pending_bytes(self) -> int:
        """What stands in the outbox between the write and the relay: the events of one message that emits any."""
        return round(max(1, self.events) * self.event_bytes) if self.events else 0

    @property
    def largest_bytes(self) -> int:
        """Of an entity without its ledger, while its events are pending."""
        return self.item_bytes + self.pending_bytes

    @property
    def texts(self) -> Texts:
        return Texts(self.id_bytes, self.source_bytes, self.sources)

    @property
    def lifetime(self) -> int:
        """The age in microseconds."""
        return round(self.age * DAY)

    @property
    def per_second(self) -> float:
        """Of the hottest entity."""
        return self.per_day * self.hot_share / _SECONDS_A_DAY

    def hot(self) -> MessageStream:
        """The messages of the hottest entity."""
        return stream_of(self.per_second)

    def streams(self) -> list[tuple[MessageStream, int]]:
        """The messages of an entity, and how many entities have such."""
        rest = (1 - self.hot_share) * self.per_day
        if self.hottest is None:
            return [(self.hot(), self.entities)]
        usual = [(stream_of(rest / (self.entities - 1) / _SECONDS_A_DAY), self.entities - 1)] if rest > _FEWEST else []
        return [(self.hot(), 1), *usual]
