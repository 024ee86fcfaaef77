"""Orders as models of PynamoDB."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Generic, TypeVar

from pynamodb.attributes import (
    ListAttribute,
    MapAttribute,
    NumberAttribute,
    UnicodeAttribute,
    UTCDateTimeAttribute,
    VersionAttribute,
)
from pynamodb.expressions.condition import Condition
from pynamodb.expressions.update import Action
from pynamodb.models import Model

from onewrite import Applied, Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable

M = TypeVar("M", bound=Model)


class GuardedModel(Generic[M]):
    """The bridge: actions and conditions of a model become a guarded update, and its typed values an instance again."""

    def __init__(self, model: type[M], client: Any) -> None:
        self.model = model
        self.store = GuardedTable(client, SeenIds(), table_name=model.Meta.table_name, typed=True)  # type: ignore[attr-defined]

    def create(self, message: Message, instance: M) -> tuple[Outcome, M | None]:
        """Create the item once per message, and return it with its version."""
        item = instance.get_save_kwargs_from_instance()["Item"]
        outcome = self.store.put_item(message, Item=item)
        return outcome, self.model.from_raw_data(item) if isinstance(outcome, Applied) else self._instance(outcome)

    def update(
        self, message: Message, key: Any, *, actions: list[Action], condition: Condition | None = None, sort_key: Any = None
    ) -> tuple[Outcome, M | None]:
        """Update the item with this key like `Model.update`."""
        version = self.model._version_attribute_name
        if version is not None:  # a full save() of an instance that was read before is then refused
            actions = [*actions, self.model.get_attributes()[version].add(1)]
        key, sort_key = self.model._serialize_keys(key, sort_key)
        connection = self.model._get_connection()
        native = connection.get_operation_kwargs(key, sort_key, key="Key", actions=actions, condition=condition)
        del native["TableName"]
        outcome = self.store.update_item(message, **native, ReturnValues="ALL_NEW")
        return outcome, self._instance(outcome)

    def _instance(self, outcome: Outcome) -> M | None:
        entity = getattr(outcome, "entity", None)
        return self.model.from_raw_data(entity) if entity else None


# --- the service ---------------------------------------------------------------------------------------------------------


class Status(StrEnum):
    OPEN = "open"
    PAID = "paid"
    CANCELED = "canceled"


class StatusAttribute(UnicodeAttribute):
    """A serializer of the service's own."""

    def serialize(self, value: Any) -> str:
        return Status(value).value

    def deserialize(self, value: Any) -> Any:
        return Status(super().deserialize(value))


class Line(MapAttribute[str, Any]):
    sku = UnicodeAttribute()
    cents = NumberAttribute()


class Order(Model):
    class Meta:
        table_name = "orders"
        region = "eu-west-1"

    order_id = UnicodeAttribute(hash_key=True)
    status = StatusAttribute(default=Status.OPEN)
    lines = ListAttribute(of=Line, default=list)
    due = NumberAttribute(default=0)
    paid = NumberAttribute(default=0)
    changed_at = UTCDateTimeAttribute()
    version = VersionAttribute()


class Orders:
    """What the service does to orders. Reads are PynamoDB's own."""

    def __init__(self, client: Any, clock: Any = lambda: datetime.now(UTC)) -> None:
        self._orders, self._clock = GuardedModel(Order, client), clock

    def place(self, message: Message, order_id: str) -> tuple[Outcome, Order | None]:
        return self._orders.create(message, Order(order_id, changed_at=self._clock()))

    def add_line(self, message: Message, order_id: str, sku: str, cents: int) -> tuple[Outcome, Order | None]:
        return self._orders.update(
            message,
            order_id,
            actions=[
                Order.lines.set(Order.lines.append([Line(sku=sku, cents=cents)])),
                Order.due.add(cents),
                Order.changed_at.set(self._clock()),
            ],
            condition=Order.status == Status.OPEN,
        )

    def pay(self, message: Message, order_id: str, cents: int) -> tuple[Outcome, Order | None]:
        return self._orders.update(
            message,
            order_id,
            actions=[Order.due.add(-cents), Order.paid.add(cents), Order.changed_at.set(self._clock())],
            condition=(Order.status == Status.OPEN) & (Order.due >= cents),
        )

    def cancel(self, message: Message, order_id: str) -> Outcome:
        outcome, _ = self._orders.update(
            message,
            order_id,
            actions=[Order.status.set(Status.CANCELED), Order.changed_at.set(self._clock())],
            condition=(Order.status == Status.OPEN) & (Order.paid == 0),
        )
        return outcome

    def get(self, order_id: str) -> Order:
        return Order.get(order_id, consistent_read=True)
