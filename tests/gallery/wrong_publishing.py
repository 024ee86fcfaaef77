"""Handlers and relays that publish, and lose events or invent them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from onewrite import Applied, Event, Message
from onewrite.core.flow import drive, make_executor
from tests.gallery.publishing import RELAY, shop

Handler = Callable[[Message], Any]


def saved_then_published(stores: Mapping[str, Any]) -> Handler:
    """It saves and then publishes. If it dies in between, the message is redelivered as a duplicate, and nobody publishes."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        outcome = here.pay(message)
        if isinstance(outcome, Applied):
            here.publish(_event(message))
        return outcome

    return handle


def published_then_saved(stores: Mapping[str, Any]) -> Handler:
    """It publishes that the account is opened, and then opens it. Another message has opened it meanwhile."""
    here = shop(stores)

    def handle(message: Message) -> Any:
        if here.account() is None:
            here.publish(_event(message))
        return here.open(message)

    return handle


def cleared_before_it_is_published(stores: Mapping[str, Any]) -> Handler:
    """Its relay takes the events out of the entity and then publishes them. If it dies in between, they are gone."""
    here = shop(stores)
    boxes = here.accounts.outboxes
    perform = make_executor(boxes.target)

    def handle(message: Message) -> Any:
        if message.id != RELAY:
            return here.pay(message, emit=[Event("Paid", message.body["amount"])])
        box = drive(boxes.read(here.key), perform)
        if box.events and drive(boxes.clear(box, len(box.events), 0.0), perform) is None:
            here.take([box.outgoing(place) for place in range(len(box.events))])
        return None

    return handle


def _event(message: Message) -> str:
    return json.dumps({"id": message.id, "data": message.body["amount"]})
