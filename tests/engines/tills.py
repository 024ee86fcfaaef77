"""A payment that is recorded in an entity, after a provider was charged: what the proofs of steps deliver and then count.

Time runs fast here, so nobody waits for the lease of a worker that is dead. Everything can be sent to another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from pymongo import MongoClient

from onewrite import Begun, Busy, Message, Outcome
from onewrite.core.clock import random_name
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import plain_values
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import Dynoxide, Mongod, dynamo_client
from tests.engines.stores import Apply, Store, addition, create_table, increment, store_on
from tests.support.seams import name_calls

SPEED = 200.0  # seconds of the simulated time in one of the wall's
LEASE, DAY = timedelta(minutes=1), timedelta(days=1)


class Pay(Protocol):
    def __call__(self, message: Message, entity: str, effect: Callable[[Begun], Any]) -> Outcome: ...


@dataclass(frozen=True, slots=True)
class Till(Store):
    """The entities of payments, and beside them a provider that counts how often it is asked under each key."""

    started: float = 0.0

    def clock(self) -> float:
        """The same in all processes of a machine."""
        return self.started + (time.time() - self.started) * SPEED

    @contextmanager
    def open(self, attempts: Callable[[], str] = random_name) -> Iterator[Apply]:
        """The payment in one call, which is redelivered until it is settled, as a queue's delivery would."""
        with self.opened(attempts) as (pay, charge):

            def apply(message: Message, entity: str) -> Outcome:
                while not (outcome := pay(message, entity, charge)).settled:
                    self.wait_for(outcome)
                return outcome

            yield apply

    def wait_for(self, outcome: Outcome) -> None:
        """Until the lease is over that somebody else has. Any other answer needs no wait."""
        if isinstance(outcome, Busy):
            time.sleep(max(0.0, outcome.until - self.clock()) / SPEED)

    @contextmanager
    def opened(self, attempts: Callable[[], str] = random_name) -> Iterator[tuple[Pay, Callable[[Begun], None]]]:
        """How to pay with an effect of one's own, and the effect that charges the provider."""
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](self.address) as mongo:
                provider = mongo.test[f"{self.place}-provider"]
                payments = name_calls(GuardedCollection(mongo.test[self.place], self.ledger, clock=self.clock), attempts)
                yield _on_mongodb(payments), lambda step: _ask_collection(provider, step)
        else:
            client = dynamo_client(self.address, max_pool_connections=8)
            table = name_calls(GuardedTable(client, self.ledger, table_name=self.place, clock=self.clock), attempts)
            yield _on_dynamodb(table), lambda step: _ask_table(client, f"{self.place}-provider", step)
            client.close()

    def asked(self) -> dict[str, int]:
        """How often the provider was asked under each key."""
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](self.address) as mongo:
                return {each["_id"]: each["asked"] for each in mongo.test[f"{self.place}-provider"].find()}
        client = dynamo_client(self.address)
        items = client.scan(TableName=f"{self.place}-provider", ConsistentRead=True)["Items"]
        client.close()
        return {item["id"]: int(item["asked"]) for item in map(plain_values, items)}

    def create(self, *entities: str) -> None:
        """A step needs an entity."""
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](self.address) as mongo:
                mongo.test[self.place].insert_many([{"_id": entity} for entity in entities])
            return
        client = dynamo_client(self.address)
        create_table(client, f"{self.place}-provider")
        for entity in entities:
            client.put_item(TableName=self.place, Item={"id": {"S": entity}})
        client.close()


def till_on(server: Mongod | Dynoxide, place: str, ledger: Any, entities: list[str]) -> Till:
    store = store_on(server, place, ledger)
    till = Till(store.engine, store.address, store.place, store.ledger, started=time.time())
    till.create(*entities)
    return till


def _on_dynamodb(table: GuardedTable) -> Pay:
    def pay(message: Message, entity: str, effect: Callable[[Begun], Any]) -> Outcome:
        return table.perform(
            message,
            "charge",
            effect,
            Key={"id": entity},
            lease=LEASE,
            safe_for=DAY,
            then=lambda _: addition(message, entity),
        )

    return pay


def _on_mongodb(payments: GuardedCollection) -> Pay:
    def pay(message: Message, entity: str, effect: Callable[[Begun], Any]) -> Outcome:
        return payments.perform(
            message,
            "charge",
            effect,
            {"_id": entity},
            lease=LEASE,
            safe_for=DAY,
            then=lambda _: {"update": increment(message)},
        )

    return pay


def _ask_collection(provider: Any, step: Begun) -> None:
    provider.update_one({"_id": step.key}, {"$inc": {"asked": 1}}, upsert=True)


def _ask_table(client: Any, table: str, step: Begun) -> None:
    change = {"UpdateExpression": "ADD asked :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
    client.update_item(TableName=table, Key={"id": {"S": step.key}}, **change)
