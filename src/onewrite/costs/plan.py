"""What a table or collection and its messages will cost with each ledger, and with what else keeps out duplicates. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from onewrite.costs.inputs import Inputs
from onewrite.costs.sizes import Sized, Sizes, full_after, highest, sizes
from onewrite.costs.stream import Stream, stream_of
from onewrite.ledgers import HighWaterMark, Ledger, SeenIds, SeenNumbers
from onewrite.ledgers.seen_ids import UNITS

MONTH = 30  # days
GIGABYTE = 2**30
_RATES = 1e-9, 1e6  # messages a second: the least and the most that are tried
_EXACT = 1.002  # how near the most messages a second are found


class Spread(NamedTuple):
    """A number that changes as a ledger fills and is cleared: on average, at its least and at its most."""

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, looked: Sizes, cost: Callable[[int], float]) -> Spread:
        """What something costs, given the bytes of a ledger."""
        return cls(sum(map(cost, looked.even)) / len(looked.even), cost(looked.low), cost(looked.high))

    @classmethod
    def always(cls, value: float) -> Spread:
        return cls(value, value, value)


class Cost(NamedTuple):
    """Of a message: in write units of DynamoDB, or in bytes of MongoDB's oplog."""

    fresh: Spread
    refused: Spread


class Other(NamedTuple):
    """A way to keep out duplicates that keeps nothing in the entity. `stored`: bytes in all that it keeps elsewhere."""

    name: str
    cost: Cost
    stored: float
    load: float  # what a message asks of the entity, of which `Engine.a_second` is there


class Engine(Protocol):
    """What an engine counts, and by what its entities are bounded."""

    limit: int  # bytes of an entity
    a_second: float | None  # units that one entity takes in a second

    def sized(self, ledger: Ledger) -> Sized: ...
    def cost(self, ledger: Ledger, stream: Stream, looked: Sizes) -> Cost: ...

    def load(self, ledger: Ledger, size: int) -> float:
        """What a message with its duplicates asks of an entity whose ledger has so many bytes."""
        ...

    def copies(self) -> int:
        """How many times a ledger is stored."""
        ...

    def others(self) -> list[Other]: ...


@dataclass(frozen=True, slots=True)
class Way:
    """One way to keep out duplicates, and what it costs.

    `fits` is False where the hottest entity would be full, or throttled, before it is as old as the inputs say; then the sums of a month are None.
    """

    name: str
    ledger: Spread | None  # bytes in the hottest entity
    entity: float  # bytes of the hottest entity with its ledger, at its largest
    fresh: Spread  # of a message to the hottest entity
    refused: Spread
    fits: bool
    a_month: float | None  # units or bytes of the oplog of all messages
    stored: float | None  # bytes in all, beside the entities themselves
    dollars: float | None  # a month, of units and of what is stored; None as well where the engine has no such price
    full_after: float | None  # days; None if never
    burst: float | None  # messages a second that the hottest entity takes as large as it is
    sustained: float | None  # and over the whole age of the inputs; None for both where nothing is known to bound them


def ledgers(inputs: Inputs) -> dict[str, Ledger]:
    """The ledgers that are compared, by their names."""
    span = _in_words(inputs)
    return {
        f"SeenIds, {span}": SeenIds(inputs.retention),
        f"SeenIds, {span}, readable": SeenIds(inputs.retention, readable=True),
        "SeenIds, for ever": SeenIds(None),
        f"SeenNumbers, {inputs.window}": SeenNumbers(inputs.window),
        "HighWaterMark, InSequence": HighWaterMark(),
    }


def _in_words(inputs: Inputs) -> str:
    unit = next(unit for unit, length in UNITS.items() if not inputs.retention % length)
    return f"{inputs.retention // UNITS[unit]}{unit}"


def ways(inputs: Inputs, engine: Engine) -> list[Way]:
    """All that is compared: the ledgers, and then the others."""
    kept = [_of_ledger(name, ledger, inputs, engine) for name, ledger in ledgers(inputs).items()]
    return [*kept, *[_of_other(other, inputs, engine) for other in engine.others()]]


def _of_ledger(name: str, ledger: Ledger, inputs: Inputs, engine: Engine) -> Way:
    sized, hot = engine.sized(ledger), inputs.hot()
    looked = sizes(sized, hot, inputs.lifetime)
    cost = engine.cost(ledger, hot, looked)
    most = sustained(ledger, inputs, engine)
    full = full_after(sized, inputs.item_bytes, hot)
    fits = (full is None or full > inputs.age) and (most is None or most >= inputs.per_second)
    month, stored = _sums(ledger, inputs, engine) if fits else (None, None)
    return Way(
        name,
        Spread.of(looked, float),
        inputs.item_bytes + looked.high,
        *cost,
        fits,
        month,
        stored,
        _dollars(month, stored, inputs),
        full,
        _burst(engine, engine.load(ledger, looked.high)),
        most,
    )


def _sums(ledger: Ledger, inputs: Inputs, engine: Engine) -> tuple[float, float]:
    """The units of all messages in a month, and the bytes of all ledgers."""
    sized, month, stored = engine.sized(ledger), 0.0, 0.0
    for stream, entities in inputs.streams():
        usual = sizes(sized, stream, inputs.lifetime)
        month += _month(engine.cost(ledger, stream, usual), entities * stream.per_day, inputs)
        stored += entities * Spread.of(usual, float).mean * engine.copies()
    return month, stored


def _of_other(other: Other, inputs: Inputs, engine: Engine) -> Way:
    burst = _burst(engine, other.load)
    fits = burst is None or burst >= inputs.per_second
    month = _month(other.cost, inputs.per_day, inputs) if fits else None
    stored = other.stored if fits else None
    dollars = _dollars(month, stored, inputs)
    return Way(other.name, None, inputs.item_bytes, *other.cost, fits, month, stored, dollars, None, burst, burst)


def _month(cost: Cost, per_day: float, inputs: Inputs) -> float:
    return MONTH * per_day * (cost.fresh.mean + inputs.duplicates * cost.refused.mean)


def _dollars(units: float | None, stored: float | None, inputs: Inputs) -> float | None:
    if units is None or stored is None or inputs.engine == "mongodb":
        return None
    prices = inputs.prices
    return units / 1e6 * prices.per_million_units + stored / GIGABYTE * prices.per_gigabyte_month


def _burst(engine: Engine, load: float) -> float | None:
    return None if engine.a_second is None else engine.a_second / load


def sustained(ledger: Ledger, inputs: Inputs, engine: Engine) -> float | None:
    """How many messages a second one entity takes over its whole age; None where nothing of the ledger bounds them."""
    sized = engine.sized(ledger)

    def bears(rate: float) -> bool:
        size = highest(sized, stream_of(rate), inputs.lifetime)
        fast_enough = engine.a_second is None or rate * engine.load(ledger, size) <= engine.a_second
        return fast_enough and inputs.item_bytes + size <= sized.limit

    low, high = _RATES
    if not bears(low):
        return 0
    if bears(high):
        return None
    while high / low > _EXACT:
        middle = (low * high) ** 0.5
        low, high = (middle, high) if bears(middle) else (low, middle)
    return low
