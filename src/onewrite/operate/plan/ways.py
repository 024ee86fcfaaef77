"""What was found of a live table or collection: enough to fill in what nobody said. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, Protocol

from onewrite.core.label import OUTBOX
from onewrite.core.ledgers import HighWaterMark, Ledger, SeenIds
from onewrite.core.ledgers.kept import kept_ledgers
from onewrite.core.ledgers.ring import Window, next_change
from onewrite.core.ledgers.seen_ids import UNITS
from onewrite.errors import LedgerMismatch
from onewrite.operate.image import EntityImage, later_labels
from onewrite.operate.plan.inputs import (
    BIRTH,
    CENTURY,
    DAY,
    SECOND,
    Cycle,
    IndexLoad,
    Inputs,
    MessageStream,
    moments,
    stream_of,
)


@dataclass(frozen=True, slots=True)
class StoreSample:
    """Some entities of a store. Sizes are in bytes; `own` and `ledger` are those of an average entity, without its ledger and of it."""

    engine: str
    name: str
    entities: int  # as the database estimates it
    looked_at: int
    own: int
    ledger: int
    largest: int
    largest_share: float  # of the ledger in the entity that has the largest
    kept: Mapping[str, int]  # how the ledgers are kept, by attribute, and how many of the entities have each
    retention: timedelta | None = None  # of most ledgers of ids, where there are any
    window: int | None = None  # of most ledgers of numbers
    outboxes: int = 0  # how many of the entities have one
    indexes: tuple[IndexLoad, ...] = ()
    unused: tuple[str, ...] = ()  # indexes in which none of the entities is


def sample_of(engine: str, name: str, entities: int, images: Sequence[EntityImage]) -> StoreSample:
    """What the images show."""
    layouts: dict[str, int] = {}
    for image in images:
        later = [f"{label}: {image.fields[label]}, of another version of onewrite" for label in later_labels(image.fields)]
        for text in [*[f"{label.attribute}: {label.layout}" for label in kept_ledgers(image.fields.items())], *later]:
            layouts[text] = layouts.get(text, 0) + 1
    our_sizes = [image.bytes_of(image.our_fields) for image in images]
    count = len(images) or 1
    return StoreSample(
        engine,
        name,
        max(entities, len(images)),
        len(images),
        round(sum([image.size - size for image, size in zip(images, our_sizes, strict=True)]) / count),
        round(sum(our_sizes) / count),
        max([image.size for image in images], default=0),
        max([size / image.size for image, size in zip(images, our_sizes, strict=True)], default=0.0),
        layouts,
        _usual_in(images, "retention"),
        _usual_in(images, "window"),
        sum([OUTBOX.label in image.fields for image in images]),
    )


def _usual_in(images: Sequence[EntityImage], name: str) -> Any:
    """What most of the ledgers that have something of that name have there."""
    counts = Counter[Any]()
    for image in images:
        for label in kept_ledgers(image.fields.items()):
            with suppress(LedgerMismatch):  # it has moved, or a later version has written it
                if (value := getattr(label.ledger, name, None)) is not None:
                    counts[value] += 1
    return counts.most_common(1)[0][0] if counts else None


# --- How large a ledger is over the time in which it fills and is cleared, and when its entity is full. Pure --------------


LOOKS = 36  # at an entity, for averages
_SLOWLY = 24  # how many generations of a slow stream show its extremes
_STEP = 1.2  # between two ages at which an entity is looked at to find when it is full


class SizedLedger(Protocol):
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


def sizes(ledger: SizedLedger, stream: MessageStream, age: int) -> Sizes:
    """Of an entity that has got messages for so long."""
    part_sizes = [_part(part, stream, age) for part in ledger.parts]
    even = tuple(map(sum, zip(*[part.even for part in part_sizes], strict=True)))
    return Sizes(even, sum(part.low for part in part_sizes), sum(part.high for part in part_sizes))


def highest(ledger: SizedLedger, stream: MessageStream, age: int) -> int:
    """The bytes of a ledger at its largest."""
    return sum(max(_extremes(part, stream, age)) for part in ledger.parts)


def _part(part: Cycle, stream: MessageStream, age: int) -> Sizes:
    even = tuple([part.size(stream, moment) for moment in evenly(part, stream, age)])
    extremes = [*_extremes(part, stream, age), *even]
    return Sizes(even, min(extremes), max(extremes))


def evenly(part: Cycle, stream: MessageStream, age: int) -> list[int]:
    """When to look for an average."""
    if isinstance(part.turns, Window):
        return moments(part.turns, age, LOOKS)[0]
    last, cycle = stream.last_by(BIRTH + age), part.turns.size * part.turns.sources
    return [stream.moment(max(0, last - cycle * step // LOOKS)) for step in range(LOOKS)]


def _extremes(part: Cycle, stream: MessageStream, age: int) -> list[int]:
    """The sizes before and after each message that finds another ring than the one before, or enters another block."""
    end = BIRTH + age
    if not isinstance(part.turns, Window):
        return [part.size(stream, stream.moment(n)) for n in part.turns.edges(stream.last_by(end))]
    extremes = [part.size(stream, end)]
    generations = 2 if stream.every < part.turns.width * stream.of else _SLOWLY
    for change in moments(part.turns, age, 1, generations)[1]:
        extremes.append(part.size(stream, change - 1))
        first = stream.moment(stream.first_from(change))
        extremes.extend([part.size(stream, first)] if first <= end else [])
    return extremes


def full_after(ledger: SizedLedger, entity: int, stream: MessageStream) -> float | None:
    """After how many days an entity, whose other attributes have so many bytes, takes no more messages; None if it always does."""

    def is_full(age: int) -> bool:
        return entity + sum(part.size(stream, BIRTH + age) for part in ledger.parts) > ledger.limit

    before = -1
    for age in _ages(ledger.parts):
        if is_full(age):
            return _first_age(is_full, before, age) / DAY
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


def _first_age(holds: Callable[[int], bool], least: int, most: int) -> int:
    """The first age after `least` at which it holds, as it does at `most`."""
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if holds(middle) else (middle, most)
    return most


# --- What a table or collection and its messages will cost with each ledger, and with what else keeps out duplicates. Pure


MONTH = 30  # days
GIGABYTE = 2**30
_RATES = 1e-9, 1e6  # messages a second: the least and the most that are tried
_EXACT = 1.002  # how near the most messages a second are found


@dataclass(frozen=True, slots=True)
class Spread:
    """A number that changes as a ledger fills and is cleared: on average, at its least and at its most."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, sizes: Sizes, cost: Callable[[int], float]) -> Spread:
        """What something costs, given the bytes of a ledger."""
        return cls(sum(map(cost, sizes.even)) / len(sizes.even), cost(sizes.low), cost(sizes.high))

    @classmethod
    def always(cls, value: float) -> Spread:
        return cls(value, value, value)


class Cost(NamedTuple):
    """Of a message, in write units of DynamoDB."""

    fresh: Spread
    refused: Spread


class OtherWay(NamedTuple):
    """A way to keep out duplicates that keeps nothing in the entity. `stored`: bytes in all that it keeps elsewhere."""

    name: str
    cost: Cost | None
    stored: float
    load: float  # what a message asks of the entity, of which `Engine.a_second` is there


class EngineCosts(Protocol):
    """What an engine counts, and by what its entities are bounded."""

    limit: int  # bytes of an entity
    a_second: float | None  # units that one entity takes in a second

    def sized_ledger(self, ledger: Ledger) -> SizedLedger: ...
    def cost(self, ledger: Ledger, stream: MessageStream, sizes: Sizes) -> Cost | None: ...  # None: a write has no price

    def load(self, ledger: Ledger, size: int) -> float:
        """What a message with its duplicates asks of an entity whose ledger has so many bytes."""
        ...

    def copies(self) -> int:
        """How many times a ledger is stored."""
        ...

    def other_ways(self) -> list[OtherWay]: ...


@dataclass(frozen=True, slots=True)
class Way:
    """One way to keep out duplicates, and what it costs.

    `fits` is False where the hottest entity would be full, or throttled, before it is as old as the inputs say; then the sums of a month are None.
    """

    name: str
    ledger: Spread | None  # bytes in the hottest entity
    entity: float  # bytes of the hottest entity with its ledger and its pending events, at its largest
    fresh: Spread | None  # of a message to the hottest entity; None for both where a write has no price
    refused: Spread | None
    fits: bool
    a_month: float | None  # units of all messages
    stored: float | None  # bytes in all, beside the entities themselves
    dollars: float | None  # a month, of units and of what is stored; None as well where the engine has no such price
    full_after: float | None  # days; None if never
    burst: float | None  # messages a second that the hottest entity takes as large as it is
    sustained: float | None  # and over the whole age of the inputs; None for both where nothing is known to bound them


def ledgers(inputs: Inputs) -> dict[str, Ledger]:
    """The ledgers that are compared, by their names."""
    unit = next(unit for unit, length in UNITS.items() if not inputs.retention % length)
    span = f"{inputs.retention // UNITS[unit]}{unit}"
    return {
        f"SeenIds, {span}": SeenIds(inputs.retention),
        f"SeenIds, {span}, readable": SeenIds(inputs.retention, readable=True),
        "SeenIds, forever": SeenIds(None),
        "HighWaterMark, InSequence": HighWaterMark(),
    }


def ways(inputs: Inputs, engine: EngineCosts) -> list[Way]:
    """All that is compared: the ledgers, and then the others."""
    ledger_ways = [_of_ledger(name, ledger, inputs, engine) for name, ledger in ledgers(inputs).items()]
    return [*ledger_ways, *[_of_other(other_way, inputs, engine) for other_way in engine.other_ways()]]


def _of_ledger(name: str, ledger: Ledger, inputs: Inputs, engine: EngineCosts) -> Way:
    sized_ledger, hot = engine.sized_ledger(ledger), inputs.hot()
    ledger_sizes = sizes(sized_ledger, hot, inputs.lifetime)
    cost = engine.cost(ledger, hot, ledger_sizes)
    most = sustained_rate(ledger, inputs, engine)
    full = full_after(sized_ledger, inputs.largest_bytes, hot)
    fits = (full is None or full > inputs.age) and (most is None or most >= inputs.per_second)
    month, stored = _sums(ledger, inputs, engine) if fits else (None, None)
    return Way(
        name,
        Spread.of(ledger_sizes, float),
        inputs.largest_bytes + ledger_sizes.high,
        cost.fresh if cost else None,
        cost.refused if cost else None,
        fits,
        month,
        stored,
        _dollars(month, stored, inputs),
        full,
        _burst(engine, engine.load(ledger, ledger_sizes.high)),
        most,
    )


def _sums(ledger: Ledger, inputs: Inputs, engine: EngineCosts) -> tuple[float | None, float]:
    """The units of all messages in a month, and the bytes of all ledgers."""
    sized_ledger, stored, month = engine.sized_ledger(ledger), 0.0, list[float]()
    for stream, entities in inputs.streams():
        usual = sizes(sized_ledger, stream, inputs.lifetime)
        cost = engine.cost(ledger, stream, usual)
        month += [] if cost is None else [_month(cost, entities * stream.per_day, inputs)]
        stored += entities * Spread.of(usual, float).mean * engine.copies()
    return sum(month) if month else None, stored


def _of_other(way: OtherWay, inputs: Inputs, engine: EngineCosts) -> Way:
    burst = _burst(engine, way.load)
    fits = burst is None or burst >= inputs.per_second
    month = _month(way.cost, inputs.per_day, inputs) if fits and way.cost is not None else None
    stored = way.stored if fits else None
    dollars = _dollars(month, stored, inputs)
    return Way(
        way.name,
        None,
        inputs.item_bytes,
        way.cost.fresh if way.cost else None,
        way.cost.refused if way.cost else None,
        fits,
        month,
        stored,
        dollars,
        None,
        burst,
        burst,
    )


def _month(cost: Cost, per_day: float, inputs: Inputs) -> float:
    return MONTH * per_day * (cost.fresh.mean + inputs.duplicates * cost.refused.mean)


def _dollars(units: float | None, stored: float | None, inputs: Inputs) -> float | None:
    if units is None or stored is None:
        return None
    prices = inputs.prices
    return units / 1e6 * prices.per_million_units + stored / GIGABYTE * prices.per_gigabyte_month


def _burst(engine: EngineCosts, load: float) -> float | None:
    return None if engine.a_second is None else engine.a_second / load


def sustained_rate(ledger: Ledger, inputs: Inputs, engine: EngineCosts) -> float | None:
    """How many messages a second one entity takes over its whole age; None where nothing of the ledger bounds them."""
    sized_ledger = engine.sized_ledger(ledger)

    def bears(rate: float) -> bool:
        size = highest(sized_ledger, stream_of(rate), inputs.lifetime)
        fast_enough = engine.a_second is None or rate * engine.load(ledger, size) <= engine.a_second
        return fast_enough and inputs.largest_bytes + size <= sized_ledger.limit

    low, high = _RATES
    if not bears(low):
        return 0
    if bears(high):
        return None
    while high / low > _EXACT:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if bears(middle) else (low, middle)
    return low


# --- How what a ledger costs changes with the messages that one entity gets, and with its age. Pure -----------------------


_POINTS = 19  # points of a curve by rate, from a message in ten days to a hundred thousand a day
_AGES = 160  # points of a curve by age


class Curve(NamedTuple):
    """Points of a line. None: the entity is full there."""

    name: str
    x: list[float]
    y: list[float | None]


def by_rate(inputs: Inputs, engine: EngineCosts) -> list[Curve]:
    """What a fresh message costs on average, by how many of them one entity gets a day."""
    rates = [10 ** (step * 6 / (_POINTS - 1) - 1) for step in range(_POINTS)]
    curves: list[Curve] = []
    for name, ledger in ledgers(inputs).items():
        sized_ledger, costs = engine.sized_ledger(ledger), list[float | None]()
        for rate in rates:
            stream = stream_of(rate / 86_400)
            ledger_sizes = sizes(sized_ledger, stream, inputs.lifetime)
            full = inputs.largest_bytes + ledger_sizes.high > engine.limit
            cost = engine.cost(ledger, stream, ledger_sizes)
            costs.append(None if full or cost is None else cost.fresh.mean)
        curves.append(Curve(name, rates, costs))
    return [
        *curves,
        *[Curve(way.name, rates, [way.cost.fresh.mean] * _POINTS) for way in engine.other_ways() if way.cost is not None],
    ]


def by_age(inputs: Inputs, engine: EngineCosts) -> list[Curve]:
    """The bytes of the ledger of the busiest entity, from its first message on: over four retentions, or its age if that is shorter."""
    last = min(inputs.age, 4 * inputs.retention.total_seconds() / 86_400)
    days = [last * step / _AGES for step in range(1, _AGES + 1)]
    hot, curves = inputs.hot(), list[Curve]()
    for name, ledger in ledgers(inputs).items():
        parts = engine.sized_ledger(ledger).parts
        ledger_bytes = [sum(part.size(hot, BIRTH + round(day * DAY)) for part in parts) for day in days]
        most = engine.limit - inputs.largest_bytes
        full = next((place for place, size in enumerate(ledger_bytes) if size > most), len(ledger_bytes))
        curves.append(Curve(name, days, [*ledger_bytes[:full], *[None] * (len(ledger_bytes) - full)]))
    return curves
