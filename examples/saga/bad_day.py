"""A bad day, played from a seed: impatient shoppers, copies, crashes, lost answers, and two relays on each store.

One process plays everybody, one act after the other, and one random generator decides who acts and what goes wrong. All that is
here makes trouble and counts it. It knows nothing of what should become of an order: `count.py` asks the databases.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, get_args

import boto3
from botocore.exceptions import BotoCoreError, EndpointConnectionError
from moto import mock_aws
from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from onewrite import Deferred, Duplicate, Message, Stale
from onewrite.identity import Record
from onewrite.metrics import Reported
from onewrite.outbox import Outgoing, Relay
from onewrite.testing import Crash, Faults, mongomock_collection, seeded
from saga.orders import PlaceOrder
from saga.queues import Published, Queues
from saga.table import create_table
from saga.wires import BY_CLOUDEVENT, Publish, Service, shop_on

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

SERVICES: tuple[Service, ...] = get_args(Service)
QUEUE_URLS: Mapping[Service, str] = {service: f"https://sqs.example/{service}" for service in SERVICES}
CUSTOMERS = ("ann", "ben", "cat")
LIMIT = 15_000  # cents that each customer may spend
_MORNING = 1_772_438_400.0  # 2 March 2026, 8:00 UTC


@dataclass(frozen=True, slots=True)
class Trouble:
    """How likely it is, at each occasion."""

    database: float = 0.05  # an act meets it: the process dies at a write, or the answer to one is lost
    publish: float = 0.15  # after a publish the relay dies, its answer is lost, or the other relay is faster
    acknowledgement: float = 0.05  # after a batch the worker dies, before it has told the queue
    repeat: float = 0.15  # what is done comes once more: a message, or an order from an impatient shopper


@dataclass(frozen=True, slots=True)
class Stores:
    """The databases: each service has one of its own."""

    orders: Table
    accounts: Collection[dict[str, Any]]
    parcels: Table


@contextmanager
def opened() -> Iterator[Stores]:
    """All of it in memory, and empty."""
    with mock_aws(), mongomock_collection("accounts") as accounts:
        dynamodb = boto3.resource("dynamodb", region_name="eu-west-1")
        yield Stores(create_table(dynamodb, "orders"), accounts, create_table(dynamodb, "parcels"))


def orders_of_the_day(count: int, random: Random) -> list[PlaceOrder]:
    """Some cost more than their customer has left, and some are too heavy for the carrier."""
    return [
        PlaceOrder(f"key-{n}", random.choice(CUSTOMERS), random.randrange(500, 12_000), random.randrange(100, 40_000))
        for n in range(count)
    ]


class BadDay:
    """`guarded=False` is the control: it takes each delivery, and each try of a shopper, for a new message. All else is the same."""

    def __init__(
        self, stores: Stores, seed: int, wanted: Sequence[PlaceOrder], *, trouble: Trouble, guarded: bool = True
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.published = {service: Published() for service in SERVICES}
        self._random, self._trouble, self._guarded = Random(seed), trouble, guarded
        self._now, self._wanted, self._tries = _MORNING, [*wanted], itertools.count()
        self._most_rounds = 20 * (len(wanted) + 2)  # some six for each order are usual
        self._fault_waits = False  # for a write to meet it
        self._faults = Faults({"orders": stores.orders, "accounts": stores.accounts, "parcels": stores.parcels})
        self.shop = shop_on(**self._faults.store, clock=self._clock)
        self._queues = Queues(self._random)
        self._relays = {service: (self._made_relay(service, 0), self._made_relay(service, 1)) for service in SERVICES}
        self._acts = self._made_acts()

    def play(self) -> None:
        """From the first order until nothing moves any more."""
        with seeded(self._random.getrandbits(64)):
            for customer in CUSTOMERS:
                self.shop.credit.open_account(Message(f"open {customer}"), customer, LIMIT)
            self._until_quiet()

    def redeliver(self) -> None:
        """Every event that was ever published comes once more, as from a queue that was redriven."""
        for service, published in self.published.items():
            self.shop.publisher(service, self._queues, QUEUE_URLS)(published.events)
        with seeded(self._random.getrandbits(64)):
            self._until_quiet()

    def _until_quiet(self) -> None:
        """Some act, in any order, while the others are slow. It ends when nobody has anything to do, and no event waits for a relay.

        Where something fails again and again it ends as well: what has no end then, the count shows.
        """
        everybody = len(self._acts)
        for _ in range(self._most_rounds):
            if not (self._round(everybody // 2) or self._round(everybody) or self._has_pending()):
                return

    def _round(self, actors: int) -> bool:
        """Did any of them have something to do?"""
        self._now += self._random.uniform(1, 120)
        worked = [self._survived(act) for act in self._random.sample(self._acts, actors)]
        return any(worked)

    def _has_pending(self) -> bool:
        return any(relay.pending() for relay, _ in self._relays.values())

    def _made_acts(self) -> list[Callable[[], bool]]:
        acts: list[Callable[[], bool]] = [self._order]
        for service in SERVICES:
            identity = BY_CLOUDEVENT if self._guarded else self._as_if_new
            handler = self.shop.handler(service, identity=identity, on_outcome=self._note)
            acts.append(partial(self._deliver, service, handler))
            acts += [partial(self._sweep, service, n) for n in range(len(self._relays[service]))]
        return acts

    def _order(self) -> bool:
        """A shopper orders. Who gets no answer orders again, and who is impatient does so anyway."""
        if not self._wanted:
            return False
        command = self._random.choice(self._wanted)
        key = command.idempotency_key if self._guarded else f"{command.idempotency_key}, try {next(self._tries)}"
        reply, _ = self.shop.orders.place(replace(command, idempotency_key=key))
        self.counts["copies dropped"] += reply == "created before"
        if not self._happens(self._trouble.repeat):
            self._wanted.remove(command)
        return True

    def _deliver(self, service: Service, handler: Callable[[Any, Any], dict[str, Any]]) -> bool:
        """A worker takes messages. Where it dies on the way, or after the last one, it acknowledges nothing."""
        before = self.counts["crashes"]
        dies = self._happens(self._trouble.acknowledgement)

        def acknowledges() -> bool:
            return not dies and self.counts["crashes"] == before and not self._happens(self._trouble.repeat)

        some = self._queues.deliver(QUEUE_URLS[service], handler, acknowledges)
        self.counts["crashes"] += some and dies
        return some

    def _sweep(self, service: Service, relay: int) -> bool:
        return self._relays[service][relay].sweep().entities > 0

    def _publish(self, service: Service, relay: int, send: Publish, events: list[Outgoing]) -> list[Outgoing]:
        refused = send(events)
        for event in events:
            self.published[service].note(event)
        if self._happens(self._trouble.publish):
            match self._random.choice(("dies", "gets no answer", "is overtaken")):
                case "dies":
                    self.counts["crashes"] += 1
                    raise Crash("The relay died after it had published, before it cleared.")
                case "gets no answer":
                    self.counts["lost answers"] += 1
                    raise EndpointConnectionError(endpoint_url=QUEUE_URLS[service])
                case _:
                    self._survived(partial(self._sweep, service, 1 - relay))
        return refused

    def _survived(self, act: Callable[[], bool]) -> bool:
        """Whoever dies or gives up has a successor, who knows nothing and finds all in the database or in the queue."""
        if not self._fault_waits and self._happens(self._trouble.database):
            self._plan_a_fault()
        try:
            return act()
        except (Crash, BotoCoreError, PyMongoError):
            return True

    def _plan_a_fault(self) -> None:
        """The next write meets it, of whomever."""
        what, plan = self._random.choice(
            (
                ("crashes", self._faults.crash_before),
                ("crashes", self._faults.crash_after),
                ("lost answers", partial(self._faults.lose_response, retried=False)),
                ("lost answers", self._faults.time_out),
            )
        )
        plan(partial(self._strikes, what), optional=True)
        self._fault_waits = True

    def _strikes(self, what: str, request: Any) -> bool:
        if not request.writes:
            return False
        self.counts[what] += 1
        self._fault_waits = False
        return True

    def _note(self, _message: Message | None, outcome: Reported, _seconds: float) -> None:
        self.counts["copies dropped"] += isinstance(outcome, Duplicate | Stale)
        self.counts["came too early"] += isinstance(outcome, Deferred)

    def _as_if_new(self, record: Record) -> Message:
        message = BY_CLOUDEVENT(record)
        return replace(message, id=f"{message.id}, delivery {next(self._tries)}")

    def _happens(self, likely: float) -> bool:
        return self._random.random() < likely

    def _made_relay(self, service: Service, relay: int) -> Relay:
        send = self.shop.publisher(service, self._queues, QUEUE_URLS)
        publish = partial(self._publish, service, relay, send)
        return self.shop.relay(service, publish, clock=self._clock)

    def _clock(self) -> float:
        return self._now
