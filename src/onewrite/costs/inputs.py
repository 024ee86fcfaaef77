"""What a plan is made from. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias

from onewrite.costs.capacity import IndexLoad
from onewrite.costs.stream import DAY, Stream, stream_of
from onewrite.costs.texts import Texts
from onewrite.errors import ConfigurationError

Engine: TypeAlias = Literal["dynamodb", "mongodb"]
_SECONDS_A_DAY = 86_400
_LARGEST = {"dynamodb": 400 * 1024, "mongodb": 16 * 1024 * 1024}  # bytes of an item, of a document
_LONGEST_ID = 2048  # bytes, as `Message` takes them
_MOST = 10**12  # of anything: more is a mistake
_FEWEST = 1e-6  # messages a day
_OLDEST = 36_525  # days: a hundred years


class Prices(NamedTuple):
    """In US dollars. The defaults are those of on-demand tables of the standard class in us-east-1, as they have been since 2024-11-01."""

    per_million_units: float = 0.625
    per_gigabyte_month: float = 0.25
    where: str = "on-demand, us-east-1, since 2024-11-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """One table or collection, and the messages that come to its entities.

    `per_day` counts the messages of all entities, each once; `duplicates` is the share of them that is delivered once more. `hottest` is the
    share of the messages that one entity gets; the others get the rest evenly. `age` is how many days the entities have got messages.
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
    namespace: str = "shop.orders"

    def __post_init__(self) -> None:
        for problem in self._problems():
            raise ConfigurationError(problem)

    def _problems(self) -> Iterator[str]:
        yield from self._out_of_bounds()
        if self.hottest is not None and not self.even_share <= self.hottest + 1e-12:
            yield (
                f"The hottest of {self.entities:,} entities gets at least {self.even_share:.4%} of the messages, and {self.hottest:.4%} was "
                "given: give a larger share, or leave it out if all get as many."
            )
        if self.sources > 10**self.source_bytes:
            yield (
                f"There are no {self.sources:,} different sources with names of {self.source_bytes} bytes: give longer names, or fewer sources."
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

    def hot(self) -> Stream:
        """The messages of the hottest entity."""
        return stream_of(self.per_second)

    def streams(self) -> list[tuple[Stream, int]]:
        """The messages of an entity, and how many entities have such."""
        others = (1 - self.hot_share) * self.per_day
        if self.hottest is None:
            return [(self.hot(), self.entities)]
        usual = [(stream_of(others / (self.entities - 1) / _SECONDS_A_DAY), self.entities - 1)] if others > _FEWEST else []
        return [(self.hot(), 1), *usual]
