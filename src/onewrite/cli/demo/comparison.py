"""Delivers one stream of messages to three handlers, and counts what became of the orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

from onewrite.cli.demo.shops import Engine, OpenShop, Shop, shops
from onewrite.cli.demo.simulation import Broker, Clock, Steps, deliver, order_events, sendings
from onewrite.message import Message

ShopHandler: TypeAlias = Callable[[Shop, Message], Steps]
Settled: TypeAlias = Callable[[str], None]
"""Called with the name of the handler whenever a copy of a message has been acknowledged."""


def plain_write(shop: Shop, message: Message) -> Steps:
    """Trusts that each message comes once."""
    yield
    shop.write(message)


def claim_then_write(shop: Shop, message: Message) -> Steps:
    """Uses a deduplication table with care: the check and the mark are one conditional request, before the write."""
    yield
    if shop.claim(message):
        yield
        shop.write(message)


def guarded_write(shop: Shop, message: Message) -> Steps:
    """Makes the check, the mark and the effect one request."""
    yield
    shop.guarded_write(message)


PLAIN, CLAIM, ONEWRITE = "plain write", "claim, then write", "onewrite"
HANDLERS = MappingProxyType({PLAIN: plain_write, CLAIM: claim_then_write, ONEWRITE: guarded_write})


@dataclass(frozen=True, slots=True)
class Row:
    """What one handler did. `applied_twice` and `lost` count messages: those with two or more effects, and those with none."""

    handler: str
    deliveries: int
    requests: int
    requests_per_message: float
    applied_twice: int
    lost: int


@dataclass(frozen=True, slots=True)
class Comparison:
    engine: Engine
    messages: int
    seed: int
    rows: tuple[Row, ...]

    @property
    def exactly_once(self) -> bool:
        """Whether onewrite applied each message once."""
        return all(row.applied_twice == row.lost == 0 for row in self.rows if row.handler == ONEWRITE)


def compare(engine: Engine, messages: int, seed: int, settled: Settled) -> Comparison:
    events = order_events(messages, seed)
    with shops(engine) as open_shop:
        rows = tuple(_row(name, open_shop, events, seed, settled) for name in HANDLERS)
    return Comparison(engine, messages, seed, rows)


def _row(name: str, open_shop: OpenShop, events: Sequence[Message], seed: int, settled: Settled) -> Row:
    clock, broker = Clock(), Broker(sendings(events, seed))
    shop = open_shop(f"shop-{list(HANDLERS).index(name)}", clock)
    deliver(broker, partial(HANDLERS[name], shop), clock, seed=seed, settled=lambda: settled(name))
    requests = shop.requests  # before counting the effects sends requests too
    times = times_applied(shop, events)
    return Row(
        handler=name,
        deliveries=broker.deliveries,
        requests=requests,
        requests_per_message=round(requests / len(events), 2),
        applied_twice=sum(times[event.id] > 1 for event in events),
        lost=sum(times[event.id] == 0 for event in events),
    )


def times_applied(shop: Shop, events: Sequence[Message]) -> Counter[str]:
    """How often each event took effect, as the journals of the orders say."""
    orders = dict.fromkeys(event.body["order"] for event in events)
    return Counter(entry for name in orders for entry in shop.order(name).get("journal", ()))
