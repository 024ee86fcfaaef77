"""How what a ledger costs changes with the messages that one entity gets, and with its age. Pure."""

from __future__ import annotations

from typing import NamedTuple

from onewrite.costs.inputs import Inputs
from onewrite.costs.plan import Engine, ledgers
from onewrite.costs.sizes import sizes
from onewrite.costs.stream import BIRTH, DAY, stream_of

_RATES = 19  # points of a curve by rate, from a message in ten days to a hundred thousand a day
_AGES = 160  # points of a curve by age


class Curve(NamedTuple):
    """Points of a line. None: the entity is full there."""

    name: str
    x: list[float]
    y: list[float | None]


def by_rate(inputs: Inputs, engine: Engine) -> list[Curve]:
    """What a fresh message costs on average, by how many of them one entity gets a day."""
    rates = [10 ** (step * 6 / (_RATES - 1) - 1) for step in range(_RATES)]
    curves: list[Curve] = []
    for name, ledger in ledgers(inputs).items():
        sized, costs = engine.sized(ledger), list[float | None]()
        for rate in rates:
            stream = stream_of(rate / 86_400)
            looked = sizes(sized, stream, inputs.lifetime)
            full = inputs.item_bytes + looked.high > engine.limit
            costs.append(None if full else engine.cost(ledger, stream, looked).fresh.mean)
        curves.append(Curve(name, rates, costs))
    return [*curves, *[Curve(each.name, rates, [each.cost.fresh.mean] * _RATES) for each in engine.others()]]


def by_age(inputs: Inputs, engine: Engine) -> list[Curve]:
    """The bytes of the ledger of the busiest entity, from its first message on: over four retentions, or its age if that is shorter."""
    last = min(inputs.age, 4 * inputs.retention.total_seconds() / 86_400)
    days = [last * step / _AGES for step in range(1, _AGES + 1)]
    hot, curves = inputs.hot(), list[Curve]()
    for name, ledger in ledgers(inputs).items():
        parts = engine.sized(ledger).parts
        held = [sum(part.size(hot, BIRTH + round(day * DAY)) for part in parts) for day in days]
        most = engine.limit - inputs.item_bytes
        full = next((place for place, size in enumerate(held) if size > most), len(held))
        curves.append(Curve(name, days, [*held[:full], *[None] * (len(held) - full)]))
    return curves
