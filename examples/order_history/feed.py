"""The handler of the queue: `order_history.feed.handler` for Lambda, `order_history.feed:handler` for a worker.

The events are JSON: `{"type": "OrderApproved", "orderId": "o-1", "number": 2, "at": "2026-03-02T12:01:00Z"}`. Those of
a delivery also have a `deliveryId`. An unknown event fails, and ends in the dead-letter queue.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Any

import boto3

from onewrite import Message, Outcome
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import Record
from order_history.events import (
    DeliveryDelivered,
    DeliveryPickedUp,
    Event,
    LineItem,
    OrderApproved,
    OrderCancelled,
    OrderCreated,
    message_of,
)
from order_history.handlers import handle
from order_history.history import OrderHistory


class UnknownEvent(ValueError):
    """The event's type isn't one that this view uses."""


def identity(record: Record) -> Message:
    """Return the message of the event. The event's type determines its source."""
    event = event_of(json.loads(record["body"]))
    return replace(message_of(event), body=event)


@sqs_handler(identity)
def handler(message: Message) -> Outcome:
    return handle(history(), message.body)


@cache
def history() -> OrderHistory:
    """Create the view at the first message, so that importing this module needs neither credentials nor a table."""
    return OrderHistory(boto3.resource("dynamodb").Table(os.environ["ORDERS_TABLE"]))


def event_of(body: Any) -> Event:
    match body:
        case {"type": str(kind), "orderId": str(order_id), "number": int(number), "at": str(at)}:
            try:
                return _event(kind, order_id, number, _time(at), body)
            except (KeyError, TypeError) as error:
                raise UnknownEvent(f"A {kind} that lacks something: {error}.") from error
        case _:
            raise UnknownEvent("An event has a type, an orderId, a number and a time at which it happened.")


def _event(kind: str, order_id: str, number: int, at: datetime, body: Mapping[str, Any]) -> Event:
    match kind:
        case "OrderCreated":
            items = _line_items(body["lineItems"])
            return OrderCreated(order_id, number, at, body["consumerId"], body["restaurant"], items)
        case "OrderApproved":
            return OrderApproved(order_id, number, at)
        case "OrderCancelled":
            return OrderCancelled(order_id, number, at)
        case "DeliveryPickedUp":
            return DeliveryPickedUp(body["deliveryId"], order_id, number, at)
        case "DeliveryDelivered":
            return DeliveryDelivered(body["deliveryId"], order_id, number, at)
        case _:
            raise UnknownEvent(f"{kind!r} is an event of neither orders nor deliveries.")


def _line_items(items: Sequence[Mapping[str, Any]]) -> tuple[LineItem, ...]:
    return tuple(LineItem(item["name"], item["quantity"], item["cents"]) for item in items)


def _time(text: str) -> datetime:
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise UnknownEvent(f"{text!r} is no time.") from error
    if at.tzinfo is None:
        raise UnknownEvent(f"{text!r} has no zone: it could be any of a day's times.")
    return at
