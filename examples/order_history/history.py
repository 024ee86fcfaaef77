"""The repository of the view: one guarded write per method, and the query that the view exists for.

The first event of an item can belong to the order or to a delivery, so every write can create the item. The writes don't conflict:
order events set the order's attributes, delivery events set `deliveryStatus`, and both append to `steps`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from onewrite import HighWaterMark, Message, Outcome
from onewrite.dynamodb import GuardedTable
from order_history.events import LineItem
from order_history.table import INDEX

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.service_resource import Table

Status: TypeAlias = Literal["PENDING", "APPROVED", "CANCELLED"]
DeliveryStatus: TypeAlias = Literal["PICKED_UP", "DELIVERED"]

_APPEND_STEP = "steps = list_append(if_not_exists(steps, :none), :step)"


@dataclass(frozen=True, slots=True)
class Page:
    """Orders, and the token for the next page, which can be empty. The token is None on the last page."""

    orders: list[dict[str, Any]]
    token: str | None


class OrderHistory:
    def __init__(self, table: Table) -> None:
        self._table = table
        self._guarded = GuardedTable(table, HighWaterMark())

    def add_order(
        self,
        message: Message,
        order_id: str,
        at: datetime,
        *,
        consumer_id: str,
        restaurant: str,
        line_items: Sequence[LineItem],
    ) -> Outcome:
        """Add the order by an update, because a delivery's event can have created the item already."""
        return self._guarded.update_item(
            message,
            Key={"orderId": order_id},
            UpdateExpression="SET consumerId = :consumer, creationDate = :at, restaurant = :restaurant, "
            f"lineItems = :items, #status = :status, {_APPEND_STEP}",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={
                ":consumer": consumer_id,
                ":at": _sortable(at),
                ":restaurant": restaurant,
                ":items": [asdict(item) for item in line_items],
                ":status": "PENDING",
                **_step("CREATED", at),
            },
        )

    def note_status(self, message: Message, order_id: str, status: Status, at: datetime) -> Outcome:
        """Set the status of an existing order. If its mark moved before the create, the create would be stale, and lost."""
        return self._guarded.update_item(
            message,
            Key={"orderId": order_id},
            UpdateExpression=f"SET #status = :status, {_APPEND_STEP}",
            ConditionExpression="attribute_exists(creationDate)",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":status": status, **_step(status, at)},
        )

    def note_delivery(self, message: Message, order_id: str, status: DeliveryStatus, at: datetime) -> Outcome:
        """Set the delivery's status, whether the order exists or not. The delivery has its own mark, which the create doesn't check."""
        return self._guarded.update_item(
            message,
            Key={"orderId": order_id},
            UpdateExpression=f"SET deliveryStatus = :status, {_APPEND_STEP}",
            ExpressionAttributeValues={":status": status, **_step(status, at)},
        )

    def order(self, order_id: str) -> dict[str, Any] | None:
        return self._guarded.get_item(Key={"orderId": order_id}, ConsistentRead=True)

    def orders_of(
        self, consumer_id: str, *, status: Status | None = None, limit: int = 20, token: str | None = None
    ) -> Page:
        """Return a consumer's orders, newest first."""
        query = _query(consumer_id, status)
        if token is not None:
            query["ExclusiveStartKey"] = _read_token(consumer_id, token)
        orders: list[dict[str, Any]] = []
        while True:
            # Limit counts items before the filter, so read on until the page is full or the index ends.
            answer = self._table.query(**query, Limit=limit - len(orders))
            orders += [self._guarded.without_ledger(item) for item in answer["Items"]]
            last = answer.get("LastEvaluatedKey")
            if last is None:
                return Page(orders, None)
            if len(orders) == limit:
                return Page(orders, _token(last))
            query["ExclusiveStartKey"] = last


def _query(consumer_id: str, status: Status | None) -> dict[str, Any]:
    query: dict[str, Any] = {
        "IndexName": INDEX,
        "KeyConditionExpression": "consumerId = :consumer",
        "ExpressionAttributeValues": {":consumer": consumer_id},
        "ScanIndexForward": False,
    }
    if status is not None:
        query["FilterExpression"] = "#status = :status"
        query["ExpressionAttributeNames"] = {"#status": "status"}
        query["ExpressionAttributeValues"][":status"] = status
    return query


def _step(what: str, at: datetime) -> dict[str, Any]:
    return {":none": [], ":step": [{"what": what, "at": _sortable(at)}]}


def _sortable(at: datetime) -> str:
    """Return the time in one zone and length, so that the index sorts it correctly."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds")


def _token(key: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps([key["creationDate"], key["orderId"]]).encode()).decode()


def _read_token(consumer_id: str, token: str) -> dict[str, Any]:
    """Read a token. It doesn't contain the consumer, so no one can page through another consumer's orders."""
    try:
        created, order_id = json.loads(base64.urlsafe_b64decode(token))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{token!r} is no page token.") from error
    return {"consumerId": consumer_id, "creationDate": created, "orderId": order_id}
