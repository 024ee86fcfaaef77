"""Orders: a DynamoDB item an order. It is placed by a shopper, and then moves as credit and shipping answer.

    {"orderId": "4f9c", "customerId": "c-1", "cents": 800, "grams": 500, "status": "SHIPPED", "steps": ["PLACED", "CONFIRMED", "SHIPPED"]}

The ledger is `SeenIds`: an order hears of its customer's credit, whose events are numbered over all orders of that customer. Of
these an order sees a few only, and so a gap in the numbers says nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onewrite import Applied, Duplicate, Message, Outbox, Outcome, Rejected, SeenIds
from onewrite.dynamodb import GuardedTable
from saga.events import (
    CreditRefused,
    CreditReleased,
    CreditReserved,
    Order,
    OrderCancelled,
    OrderConfirmed,
    OrderPlaced,
    OrderRefused,
    OrderShipped,
    ShippingRefused,
    ShopEvent,
    event_of,
    telling,
)
from saga.table import INDEX, SHARDS

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

Status: TypeAlias = Literal["PLACED", "CONFIRMED", "REFUSED", "SHIPPED", "CANCELLING", "CANCELLED"]
ENDS: frozenset[Status] = frozenset({"REFUSED", "SHIPPED", "CANCELLED"})
Reply: TypeAlias = Literal["created", "created before", "this key was used for another order"]


@dataclass(frozen=True, slots=True)
class PlaceOrder:
    """A shopper's POST. The Idempotency-Key is the same whenever the shopper's browser tries again."""

    idempotency_key: str
    customer_id: str
    cents: int
    grams: int

    def __post_init__(self) -> None:
        if self.cents <= 0:
            raise ValueError(f"{self.cents} cents: to reserve less than nothing would raise the credit.")


@dataclass(frozen=True, slots=True)
class Move:
    """What an event does to an order: from which status, to which, and what others are told."""

    before: Status
    after: Status
    tells: type[ShopEvent] | None = None


MOVES: Mapping[type[ShopEvent], Move] = {
    CreditReserved: Move("PLACED", "CONFIRMED", OrderConfirmed),
    CreditRefused: Move("PLACED", "REFUSED", OrderRefused),
    OrderShipped: Move("CONFIRMED", "SHIPPED"),
    ShippingRefused: Move("CONFIRMED", "CANCELLING", OrderCancelled),
    CreditReleased: Move("CANCELLING", "CANCELLED"),
}


class Orders:
    def __init__(self, table: Table, *, clock: Callable[[], float]) -> None:
        outbox = Outbox("shop/orders", index=INDEX, shards=SHARDS)
        self.guarded = GuardedTable(table, SeenIds(), outbox=outbox, clock=clock)

    def place(self, command: PlaceOrder) -> tuple[Reply, str]:
        """The reply, and the order's id. A command is a message too: it is delivered again when its answer was lost."""
        message = Message(command.idempotency_key, source=command.customer_id)
        # It is made of the shopper and the key, because two shoppers may have chosen the same key.
        order_id = message.child("order")
        order = Order(order_id, command.customer_id, command.cents, command.grams)
        match self._create(message, order):
            case Applied():
                return "created", order_id
            case Duplicate(entity=item) | Rejected(entity=item):  # the latter where the ledger has forgotten the key by now
                same = item is None or (item["cents"], item["grams"]) == (command.cents, command.grams)
                return ("created before" if same else "this key was used for another order"), order_id
            case outcome:
                raise RuntimeError(f"SeenIds knows no order of messages: {outcome!r}")

    def handle(self, message: Message) -> Outcome | None:
        """What credit and shipping say. None: nothing that concerns an order."""
        event = event_of(message)
        move = MOVES.get(type(event)) if event is not None else None
        return None if event is None or move is None else self._move(message, event.order, move)

    def order(self, order_id: str) -> dict[str, Any] | None:
        return self.guarded.get_item(Key={"orderId": order_id}, ConsistentRead=True)

    def _create(self, message: Message, order: Order) -> Outcome:
        placed: Status = "PLACED"
        return self.guarded.put_item(
            message,
            Item={
                "orderId": order.id,
                "customerId": order.customer_id,
                "cents": order.cents,
                "grams": order.grams,
                "status": placed,
                "steps": [placed],
            },
            emit=telling(OrderPlaced(order)),
        )

    def _move(self, message: Message, order: Order, move: Move) -> Outcome:
        """`Rejected`, and done with: the order has moved on. Only a copy that the ledger has forgotten by now can find it so."""
        return self.guarded.update_item(
            message,
            Key={"orderId": order.id},
            UpdateExpression="SET #status = :after, steps = list_append(steps, :steps)",
            ConditionExpression="#status = :before",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":before": move.before, ":after": move.after, ":steps": [move.after]},
            emit=telling(move.tells(order)) if move.tells is not None else None,
        )
