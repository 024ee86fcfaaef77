"""A worker that takes a payment, to whom something happens at one moment of its work; and the count of what came of it.

The moments of a worker are those before and after each of its requests, to the database and to the provider. At each of them a
test may let it die, or let something else happen first. Nothing here knows in which way the payment is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onewrite.outbox import Outgoing, Relay
from payment.payments import Payment, Payments, Reply, digest_of
from payment.provider import Charge, NoAnswer, Provider, ProviderDown, Trouble
from payment.ways import Way, Ways

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

MORNING = 1_772_438_400.0  # 2 March 2026, 8:00 UTC
_MOST_TRIES = 5

Verdict: TypeAlias = Literal["once", "TWICE", "LOST", "uncertain", "nothing"]


class Died(BaseException):
    """The worker's process is no more. A dead process catches nothing."""


def die() -> None:
    raise Died


@dataclass(frozen=True, slots=True)
class Count:
    """What came of one request to pay, counted at the provider, in the database and among the events."""

    charges: int
    records: int
    events: int
    effects: int  # that are open, and show that something is to be looked up

    @property
    def verdict(self) -> Verdict:
        if self.charges > 1:
            return "TWICE"
        if (self.charges, self.records) == (1, 1):
            return "once"
        if self.effects:
            return "uncertain"
        return "LOST" if self.charges else "nothing"


@dataclass(slots=True)
class Moments:
    """The moments of all workers, in the order in which they came.

    `plan` says what happens at some of them, by number; `each` is called with the name of each.
    """

    plan: dict[int, Callable[[], object]] = field(default_factory=dict)
    each: Callable[[str], object] = field(default=str)
    names: list[str] = field(default_factory=list)

    def come(self, name: str) -> None:
        self.names.append(name)
        self.each(name)
        act = self.plan.pop(len(self.names) - 1, None)
        if act is not None:
            act()


class Watched(Provider):
    """A provider whose requests have moments too."""

    def __init__(self, moments: Moments, **options: Any) -> None:
        super().__init__(**options)
        self._moments = moments

    def charge(self, **request: Any) -> Charge:
        self._moments.come("before the charge")
        charge = super().charge(**request)
        self._moments.come("after the charge")
        return charge


class World:
    """One request to pay, the workers that take it in the given way, and a client that sends it again."""

    def __init__(
        self, table: Table, way: Way, key: str, *, troubles: tuple[Trouble, ...] = (), card: str = "card-1"
    ) -> None:
        self.now = MORNING
        self.moments = Moments()
        self.provider = Watched(self.moments, clock=self._clock, sleep=self.wait, troubles=troubles)
        self.payments = Payments(table, self.provider, clock=self._clock)
        self.payment = Payment("acme", key, 1250, card, digest_of({"cents": 1250, "card": card}))
        self._table, self._way = table, way
        self._told: set[str] = set()
        self._ways = Ways(table, self.provider, self.payments)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def work(self) -> Reply | None:
        """A worker takes the request. None: it died, or it has raised an error, and the client gets no answer."""
        try:
            return self._ways.take(self._way, self.payment)
        except (Died, ProviderDown, NoAnswer):
            return None

    def ask(self) -> Reply | None:
        """A client that asks, as often as it is told to, until it has an answer. None: it has given up."""
        for _ in range(_MOST_TRIES):
            reply = self.work()
            if reply is not None and reply.retry_after is None:
                return reply
            self.wait(1 if reply is None or reply.retry_after is None else reply.retry_after)
        return None

    def count(self) -> Count:
        key = {"paymentId": self.payment.id}
        item: Mapping[str, Any] = self._table.get_item(Key=key, ConsistentRead=True).get("Item", {})

        def publish(events: list[Outgoing]) -> list[Outgoing]:
            self._told.update(event.id for event in events if event.type == "PaymentTaken")
            return []

        Relay(self.payments.guarded, publish, clock=self._clock).flush(Key=key)
        effects = self.payments.guarded.open_effects(Key=key)
        return Count(len(self.provider.charges), int("answer" in item), len(self._told), len(effects))

    @contextmanager
    def watched(self) -> Iterator[World]:
        """Requests to the database have moments within this block."""
        events, name = self._table.meta.client.meta.events, "payment-moments"
        hooks = {
            "before-call.dynamodb": lambda model, **_: self.moments.come(f"before {model.name}"),
            "after-call.dynamodb": lambda model, **_: self.moments.come(f"after {model.name}"),
        }
        for event, hook in hooks.items():
            events.register(event, hook, unique_id=f"{name}-{event}")
        try:
            yield self
        finally:
            for event, hook in hooks.items():
                events.unregister(event, hook, unique_id=f"{name}-{event}")

    def _clock(self) -> float:
        return self.now
