"""Handlers and relays that publish, and lose events or invent them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from onewrite import Applied, Event, Message
from onewrite.core.flow import drive, make_executor
from onewrite.dynamodb.outboxes import Outboxes as TableOutboxes
from onewrite.mongodb.outboxes import Outboxes as CollectionOutboxes
from tests.gallery.publishing import CLOSE, RELAY, shop

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


def cleared_by_the_count_alone(stores: Mapping[str, Any]) -> Handler:
    """Its relay clears if as many events were sent, and are there, as it has read. So it may be in another life of the account."""
    here = shop(stores)
    relay = here.relay(_ByCount(here.accounts))

    def handle(message: Message) -> Any:
        if message.id == RELAY:
            here.flush(relay)
            return None
        if message.id == CLOSE:
            here.close()
            return None
        return here.pay(message, emit=[Event("Paid", message.body["amount"])])

    return handle


def _event(message: Message) -> str:
    return json.dumps({"id": message.id, "data": message.body["amount"]})


class _TableByCount(TableOutboxes):
    def _match_read_box(self, box: Any, words: Any, place: int | None) -> list[str]:
        del place
        return super()._match_read_box(box, words, None)[:1]


class _CollectionByCount(CollectionOutboxes):
    def _match_read_box(self, box: Any, place: int | None) -> dict[str, Any]:
        del place
        found = super()._match_read_box(box, None)
        return {name: found[name] for name in ("_id", "ow_sent")}


class _ByCount:
    """A store whose outboxes are cleared so."""

    outboxes: Any = None

    def __init__(self, accounts: Any) -> None:
        self.outboxes = copy(accounts.outboxes)
        kind = _TableByCount if isinstance(self.outboxes, TableOutboxes) else _CollectionByCount
        self.outboxes.__class__ = kind  # pyright: ignore[reportAttributeAccessIssue]  # a class of the same engine
