"""A broker that delivers at least once, and two workers that may die. Time is simulated, and the seed decides everything.

Copies of messages wait in the broker. A copy that is received is redelivered unless it is acknowledged in time. A handler is a
generator that stops before each of its requests. At each turn one of the workers goes on by one step, so the requests of
both interleave, or it dies at that point: before a request, between two requests, or before the acknowledgement.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import InitVar, dataclass, field
from enum import Enum, StrEnum, auto
from functools import partial
from random import Random
from types import MappingProxyType
from typing import TypeAlias

from onewrite.message import Message
from onewrite.operate.demo.shops import Engine, OpenShop, Shop, shops

# --- A broker that delivers at least once, and two workers that may die. Time is simulated, and the seed decides everything


class RequestResult(StrEnum):
    """What a request of a handler came to."""

    WRITTEN = "written"
    CLAIMED = "claimed"
    KNOWN = "known"


# Stops before each request, and yields what the one before came to. Returns what the last one came to.
Steps: TypeAlias = Generator[RequestResult | None, None, RequestResult]
Handler: TypeAlias = Callable[[Message], Steps]

START = 1_767_225_600  # 2026-01-01: any fixed moment would do
_EVENTS_PER_ORDER = 10  # on average
_KINDS = (("paidCents", 50_000), ("shippedItems", 9), ("refundedCents", 5_000))
_PACE = 5  # seconds between two messages: so few that redeliveries mix with new messages, and the workers still keep up
_SPREAD = 20  # seconds that a copy may be late, so messages overtake a few others
_SENT_TWICE = 0.15  # the share of messages that the producer sends twice
_SENT_AGAIN = 3  # seconds until it sends again: so few that both workers sometimes hold the same message
VISIBILITY = 12  # seconds until an unacknowledged copy is redelivered, which is before a slow worker is done
_CRASH = 0.07  # the chance of a worker to die at each step
_WORKERS = 2


@dataclass(slots=True)
class SimulatedClock:
    """The simulated time, in epoch seconds."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Copy:
    """One copy of a message in the broker, which can be received when it is due."""

    number: int
    message: Message
    due: float
    receives: int = 0
    acknowledged: bool = False


@dataclass(slots=True)
class Broker:
    """Gives out copies, earliest first, until they are acknowledged."""

    copies: InitVar[Iterable[Copy]] = ()
    deliveries: int = 0
    _queue: list[tuple[float, int, Copy]] = field(init=False, default_factory=list[tuple[float, int, Copy]])

    def __post_init__(self, copies: Iterable[Copy]) -> None:
        for copy in copies:
            self.add(copy)

    def add(self, copy: Copy) -> None:
        heapq.heappush(self._queue, (copy.due, copy.number, copy))

    def waiting(self) -> list[Copy]:
        """The copies that are not acknowledged, in the order in which they can be received."""
        return [copy for _, _, copy in sorted(self._queue) if not copy.acknowledged]

    def next_due(self) -> float | None:
        """When the next copy can be received. None: all are acknowledged."""
        while self._queue and self._queue[0][2].acknowledged:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None

    def receive(self, now: float) -> Copy | None:
        due = self.next_due()
        if due is None or due > now:
            return None
        copy = self._queue[0][2]
        copy.due = now + VISIBILITY
        heapq.heapreplace(self._queue, (copy.due, copy.number, copy))
        copy.receives += 1
        self.deliveries += 1
        return copy


class Turn(Enum):
    """What a worker did at its turn."""

    WAITED = auto()
    RECEIVED = auto()
    WENT_ON = auto()
    ENDED = auto()
    DIED = auto()


@dataclass(slots=True)
class SimulatedWorker:
    """Has one copy in hand at a time. When it dies, another worker takes its place.

    The moments of its deaths depend on the copy only, so each handler dies at the same deliveries. `settled` is called when
    a copy is acknowledged.
    """

    broker: Broker
    handle: Handler
    seed: int
    settled: Callable[[], None]
    copy: Copy | None = field(init=False, default=None)
    result: RequestResult | None = field(init=False, default=None)  # of the latest request for this copy
    _steps: Generator[RequestResult | None, None, None] = field(init=False)
    _fate: Random = field(init=False)

    def turn(self, now: float, crash: float) -> Turn:
        """Receive a copy, or go on with it by one step. `crash` is the chance to die before that step."""
        if self.copy is None:
            return self._receive(now)
        if self._fate.random() < crash:
            self.die()
            return Turn.DIED
        try:
            self.result = next(self._steps)
        except StopIteration:
            self.copy = None
            return Turn.ENDED
        return Turn.WENT_ON

    def die(self) -> None:
        self._steps.close()
        self.copy = None

    def _receive(self, now: float) -> Turn:
        copy = self.broker.receive(now)
        if copy is None:
            return Turn.WAITED
        self.copy, self._fate = copy, Random(f"{self.seed}/{copy.number}/{copy.receives}")
        self._steps = self._process(copy)
        self.result = next(self._steps)  # The handler stops just before its first request.
        return Turn.RECEIVED

    def _process(self, copy: Copy) -> Generator[RequestResult | None, None, None]:
        yield (yield from self.handle(copy.message))  # The effect is written, and the copy is not acknowledged yet.
        if not copy.acknowledged:
            copy.acknowledged = True
            self.settled()


def order_events(messages: int, seed: int) -> list[Message]:
    """What happened to some orders. Each event has an id, and adds to one number of its order."""
    chance = Random(f"{seed}/events")
    orders = 1 + messages // _EVENTS_PER_ORDER
    return [_event(number, chance, orders) for number in range(1, messages + 1)]


def sendings(events: Sequence[Message], seed: int) -> list[Copy]:
    """The copies that reach the broker. Each is a little late, and some messages have two."""
    chance = Random(f"{seed}/sendings")
    copies: list[Copy] = []
    for place, event in enumerate(events):
        due = START + place * _PACE + chance.random() * _SPREAD
        copies.append(Copy(len(copies), event, due))
        if chance.random() < _SENT_TWICE:
            copies.append(Copy(len(copies), event, due + chance.random() * _SENT_AGAIN))
    return copies


def deliver(broker: Broker, handle: Handler, clock: SimulatedClock, *, seed: int, settled: Callable[[], None]) -> None:
    """Let the workers go on until every copy is acknowledged. `settled` is called for each of these."""
    turns = Random(f"{seed}/turns")
    workers = [SimulatedWorker(broker, handle, seed, settled) for _ in range(_WORKERS)]
    while (due := broker.next_due()) is not None:
        busy = any(worker.copy is not None for worker in workers)
        clock.now = clock.now + 1 if busy else max(clock.now + 1, due)
        workers[turns.randrange(_WORKERS)].turn(clock.now, _CRASH)


def _event(number: int, chance: Random, orders: int) -> Message:
    field_name, most = chance.choice(_KINDS)
    body = {"order": f"order-{chance.randint(1, orders)}", "field": field_name, "amount": chance.randint(1, most)}
    return Message(f"event-{number}", body=body)


# --- Delivers one stream of messages to three handlers, and counts what became of the orders ------------------------------


ShopHandler: TypeAlias = Callable[[Shop, Message], Steps]
Settled: TypeAlias = Callable[[str], None]
"""Called with the name of the handler whenever a copy of a message has been acknowledged."""


def plain_write(shop: Shop, message: Message) -> Steps:
    """Trusts that each message comes once."""
    yield None
    shop.write(message)
    return RequestResult.WRITTEN


def claim_then_write(shop: Shop, message: Message) -> Steps:
    """Uses a deduplication table with care: the check and the mark are one conditional request, before the write."""
    yield None
    if not shop.claim(message):
        return RequestResult.KNOWN
    yield RequestResult.CLAIMED
    shop.write(message)
    return RequestResult.WRITTEN


def guarded_write(shop: Shop, message: Message) -> Steps:
    """Makes the check, the mark and the effect one request."""
    yield None
    return RequestResult.WRITTEN if shop.guarded_write(message) else RequestResult.KNOWN


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
    clock, broker = SimulatedClock(), Broker(sendings(events, seed))
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
