"""What the handlers share that publish: accounts with a log of what was paid in, and a broker that keeps what it was sent.

The broker is one more store, so to publish is a request like any other. A consumer of its messages keeps what it was told in
order, and at the end that must be the account's own log.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from onewrite import Event, InSequence, Message, Outbox, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.identity import cloudevent
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Outgoing, Relay

NAMES = ("accounts", "broker", "consumer")
CLOSE, RELAY = "close", "relay"  # what else is done beside payments, as messages of these ids

_LATER = 3600.0  # seconds: by then whatever was put off is due


class Shop(ABC):
    """The accounts, the broker and the consumer on one engine."""

    outbox: ClassVar[Outbox]
    key: ClassVar[dict[str, str]]
    guard: ClassVar[Callable[..., Any]]

    def __init__(self, stores: Mapping[str, Any]) -> None:
        self.stores = stores
        self.accounts = type(self).guard(stores["accounts"], SeenIds(), outbox=self.outbox)
        self.plain = type(self).guard(stores["accounts"], SeenIds())
        self.consumer = type(self).guard(stores["consumer"], InSequence())

    @abstractmethod
    def pay(self, message: Message, *, emit: Sequence[Event] | None = None) -> Outcome:
        """Log the amount in the account, which is created where it is missing."""

    @abstractmethod
    def open(self, message: Message) -> Outcome:
        """Create the account."""

    @abstractmethod
    def close(self) -> None:
        """Delete the account if nothing but the first payment is in it."""

    @abstractmethod
    def publish(self, *lines: str) -> None: ...
    @abstractmethod
    def published(self) -> list[str]: ...
    @abstractmethod
    def note(self, message: Message) -> Outcome:
        """The consumer keeps the message."""

    @abstractmethod
    def flush(self, relay: Relay) -> None: ...
    @abstractmethod
    def account(self) -> Mapping[str, Any] | None: ...
    @abstractmethod
    def noted(self) -> Mapping[str, Any] | None: ...

    def relay(self, store: Any = None, **options: Any) -> Relay:
        return Relay(store or self.accounts, self.take, **options)

    def take(self, events: Sequence[Outgoing]) -> None:
        """What a relay publishes with."""
        self.publish(*[event.cloudevent() for event in events])

    def messages(self) -> list[Message]:
        """What was published, as its consumer takes it."""
        return [cloudevent()({"messageId": "any", "body": line}) for line in self.published()]


class TableShop(Shop):
    outbox = Outbox("bank/accounts", index="pending", shards=1)
    key: ClassVar = {"id": "c1"}
    guard = GuardedTable

    def pay(self, message: Message, *, emit: Sequence[Event] | None = None) -> Outcome:
        return self.accounts.update_item(message, Key=self.key, **_appending("log", [message.body["amount"]]), emit=emit)

    def open(self, message: Message) -> Outcome:
        return self.accounts.put_item(message, Item={**self.key, "log": [message.body["amount"]]}, rejected_ok=True)

    def close(self) -> None:
        accounts = self.stores["accounts"]
        names, values = {"#log": "log"}, {":first": [10]}
        try:
            accounts.delete_item(
                Key=self.key,
                ConditionExpression="#log = :first",
                ExpressionAttributeNames=names,
                ExpressionAttributeValues=values,
            )
        except accounts.meta.client.exceptions.ConditionalCheckFailedException:
            return

    def publish(self, *lines: str) -> None:
        self.stores["broker"].update_item(Key={"id": "all"}, **_appending("lines", [*lines]))

    def published(self) -> list[str]:
        return self.stores["broker"].get_item(Key={"id": "all"}, ConsistentRead=True).get("Item", {}).get("lines", [])

    def note(self, message: Message) -> Outcome:
        return self.consumer.update_item(message, Key=self.key, **_appending("told", [message.body]))

    def flush(self, relay: Relay) -> None:
        relay.flush(Key=self.key)

    def account(self) -> Mapping[str, Any] | None:
        return self.plain.get_item(Key=self.key, ConsistentRead=True)

    def noted(self) -> Mapping[str, Any] | None:
        return self.consumer.get_item(Key=self.key, ConsistentRead=True)


class CollectionShop(Shop):
    outbox = Outbox("bank/accounts")
    key: ClassVar = {"_id": "c1"}
    guard = GuardedCollection

    def pay(self, message: Message, *, emit: Sequence[Event] | None = None) -> Outcome:
        return self.accounts.update_one(
            message, self.key, {"$push": {"log": message.body["amount"]}}, upsert=True, emit=emit
        )

    def open(self, message: Message) -> Outcome:
        return self.accounts.insert_one(message, {**self.key, "log": [message.body["amount"]]}, rejected_ok=True)

    def close(self) -> None:
        self.stores["accounts"].delete_one({**self.key, "log": [10]})

    def publish(self, *lines: str) -> None:
        self.stores["broker"].update_one({"_id": "all"}, {"$push": {"lines": {"$each": [*lines]}}}, upsert=True)

    def published(self) -> list[str]:
        return (self.stores["broker"].find_one({"_id": "all"}) or {}).get("lines", [])

    def note(self, message: Message) -> Outcome:
        return self.consumer.update_one(message, self.key, {"$push": {"told": message.body}}, upsert=True)

    def flush(self, relay: Relay) -> None:
        relay.flush(self.key)

    def account(self) -> Mapping[str, Any] | None:
        return self.plain.find_one(self.key)

    def noted(self) -> Mapping[str, Any] | None:
        return self.consumer.find_one(self.key)


def shop(stores: Mapping[str, Any]) -> Shop:
    return CollectionShop(stores) if hasattr(stores["accounts"], "find_one") else TableShop(stores)


def told(stores: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The account's log, and what a consumer is told of it that takes events in sequence, once relays have published what is left."""
    here = _relayed(stores)
    return _ints(here.account(), "log"), [body for bodies in _in_sequence(here).values() for body in bodies]


def told_in_any_order(stores: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The same where an account has several lives: two sources have no order among them."""
    log, bodies = told(stores)
    return log, sorted(bodies)


def consumed(stores: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """The same with a consumer that is guarded by `InSequence`."""
    here = _relayed(stores)
    for message in here.messages():
        assert here.note(message).settled
    return _ints(here.account(), "log"), _ints(here.noted(), "told")


def _in_sequence(here: Shop) -> dict[str, list[int]]:
    """The bodies that each source has told of, in order. A copy must be of the event that had the number."""
    told: dict[str, list[int]] = {}
    for message in here.messages():
        bodies, number = told.setdefault(message.source, []), message.sequence
        assert isinstance(number, int)
        assert number <= len(bodies) + 1, f"{number} of {message.source} comes before the one before it"
        if number == len(bodies) + 1:
            bodies.append(message.body)
        assert bodies[number - 1] == message.body, f"{number} of {message.source} is not the same each time"
    return told


def received(stores: Mapping[str, Any]) -> list[int]:
    """What a consumer gets that knows copies by their ids."""
    events = {event["id"]: event["data"] for event in map(json.loads, _relayed(stores).published())}
    return sorted(events.values())


def _relayed(stores: Mapping[str, Any]) -> Shop:
    here = shop(stores)
    later = here.relay(clock=lambda: time.time() + _LATER)
    later.sweep()
    assert later.pending() == []
    return here


def _appending(name: str, values: Sequence[Any]) -> dict[str, Any]:
    return {
        "UpdateExpression": "SET #list = list_append(if_not_exists(#list, :none), :more)",
        "ExpressionAttributeNames": {"#list": name},
        "ExpressionAttributeValues": {":none": [], ":more": [*values]},
    }


def _ints(entity: Mapping[str, Any] | None, name: str) -> list[int]:
    return [int(value) for value in (entity or {}).get(name, ())]
