"""A worker that takes a payment and is disturbed at one moment, and the count of the results.

A worker's moments are before and after each of its requests to the database and to the provider. A test can crash the worker at a moment,
or let something else happen first. This module doesn't know which way the worker uses.
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
    """The worker has crashed. It is a BaseException, because a crashed process catches nothing."""


def die() -> None:
    raise Died


@dataclass(frozen=True, slots=True)
class Count:
    """The result of one request to pay, counted at the provider, in the database, and among the events."""

    charges: int
    records: int
    events: int
    steps: int  # that are open, and show that something is to be looked up

    @property
    def verdict(self) -> Verdict:
        if self.charges > 1:
            return "TWICE"
        if (self.charges, self.records) == (1, 1):
            return "once"
        if self.steps:
            return "uncertain"
        return "LOST" if self.charges else "nothing"


@dataclass(slots=True)
class Moments:
    """The moments of all workers, in order.

    `plan` maps the number of a moment to what happens then; `each` is called with the name of each moment.
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
    """One request to pay, the workers that take it in the given way, and a client that repeats it."""

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
        """Let a worker take the request. Return None if it crashed or raised, so that the client gets no response."""
        try:
            return self._ways.take(self._way, self.payment)
        except (Died, ProviderDown, NoAnswer):
            return None

    def ask(self) -> Reply | None:
        """Send the request up to so often, until there is a response. Return None if there was none."""
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
        steps = self.payments.guarded.open_steps(Key=key)
        return Count(len(self.provider.charges), int("answer" in item), len(self._told), len(steps))

    @contextmanager
    def watched(self) -> Iterator[World]:
        """Give requests to the database moments within this block."""
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
