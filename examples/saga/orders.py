"""Orders: one DynamoDB item per order. A shopper places it, and responses of credit and shipping move it.

    {"orderId": "4f9c", "customerId": "c-1", "cents": 800, "grams": 500, "status": "SHIPPED", "steps": ["PLACED", "CONFIRMED", "SHIPPED"]}

The ledger is `SeenIds`: credit numbers its events across all orders of a customer. An order sees only some of them, so a gap in the
numbers means nothing.
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
    """A shopper's POST. The Idempotency-Key is the same when the browser retries."""

    idempotency_key: str
    customer_id: str
    cents: int
    grams: int

    def __post_init__(self) -> None:
        if self.cents <= 0:
            raise ValueError(f"{self.cents} cents: to reserve less than nothing would raise the credit.")


@dataclass(frozen=True, slots=True)
class Move:
    """A state change of an order: the states from and to, and the event that it emits."""

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
        """Place the order, and return the reply and the order's ID. The command is a message too: it is repeated if its response was lost."""
        message = Message(command.idempotency_key, source=command.customer_id)
        # The ID combines the shopper and the key, because two shoppers can choose the same key.
        order_id = message.child("order")
        order = Order(order_id, command.customer_id, command.cents, command.grams)
        match self._create(message, order):
            case Applied():
                return "created", order_id
            case Duplicate(entity=item) | Rejected(entity=item):  # Rejected if the ledger has forgotten the key
                same = item is None or (item["cents"], item["grams"]) == (command.cents, command.grams)
                return ("created before" if same else "this key was used for another order"), order_id
            case outcome:
                raise RuntimeError(f"SeenIds knows no order of messages: {outcome!r}")

    def handle(self, message: Message) -> Outcome | None:
        """Handle an event of credit or shipping. Return None if it doesn't concern orders."""
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
        """Move the order. A refusal is final, because the order has moved on: only a copy that the ledger has forgotten gets it."""
        return self.guarded.update_item(
            message,
            Key={"orderId": order.id},
            UpdateExpression="SET #status = :after, steps = list_append(steps, :steps)",
            ConditionExpression="#status = :before",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":before": move.before, ":after": move.after, ":steps": [move.after]},
            emit=telling(move.tells(order)) if move.tells is not None else None,
            rejected_ok=True,
        )
