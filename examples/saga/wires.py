"""The handlers that the queues feed, and the relays that feed the queues.

orders    -> credit, shipping
credit    -> orders
shipping  -> orders
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pymongo.collection import Collection

from onewrite.aws_lambda import sqs_handler
from onewrite.identity import Identity, cloudevent
from onewrite.metrics import Hook
from onewrite.outbox import Outgoing, Relay, to_sqs
from saga.credit import Credit
from saga.orders import Orders
from saga.shipping import Shipping

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

Service: TypeAlias = Literal["orders", "credit", "shipping"]
Publish: TypeAlias = Callable[[list[Outgoing]], list[Outgoing]]

HEARD_BY: Mapping[Service, tuple[Service, ...]] = {
    "orders": ("credit", "shipping"),
    "credit": ("orders",),
    "shipping": ("orders",),
}
BY_CLOUDEVENT = cloudevent()  # who tells, and the number that the relay gave


@dataclass(frozen=True, slots=True)
class Shop:
    orders: Orders
    credit: Credit
    shipping: Shipping

    def handler(
        self, service: Service, *, identity: Identity = BY_CLOUDEVENT, on_outcome: Hook | None = None
    ) -> Callable[[Any, Any], dict[str, list[dict[str, Any]]]]:
        """Return the handler that Lambda or a worker calls with the messages of the service's queue."""
        return sqs_handler(identity, on_outcome=on_outcome)(self._of(service).handle)

    def publisher(self, service: Service, sqs: Any, queue_urls: Mapping[Service, str]) -> Publish:
        """Return a publisher to the queue of each service that receives this service's events."""
        return to_each(*[to_sqs(sqs, queue_urls[listener]) for listener in HEARD_BY[service]])

    def relay(self, service: Service, publish: Publish, **options: Any) -> Relay:
        """Return one of any number of relays of the service."""
        return Relay(self._of(service).guarded, publish, **options)

    def _of(self, service: Service) -> Orders | Credit | Shipping:
        match service:
            case "orders":
                return self.orders
            case "credit":
                return self.credit
            case "shipping":
                return self.shipping


def shop_on(
    orders: Table,
    accounts: Collection[dict[str, Any]],
    parcels: Table,
    *,
    clock: Callable[[], float] = time.time,
) -> Shop:
    """Return the three services in one process, each on its own store."""
    return Shop(
        Orders(orders, clock=clock),
        Credit(accounts, clock=clock),
        Shipping(parcels, clock=clock),
    )


def to_each(*publishers: Publish) -> Publish:
    """Publish to several queues. If one doesn't accept an event, all of them get it again, and some get a copy."""

    def publish(events: list[Outgoing]) -> list[Outgoing]:
        return [refused for publisher in publishers for refused in publisher(events)]

    return publish
