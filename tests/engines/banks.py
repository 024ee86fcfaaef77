"""Transfers between accounts, each of them one transaction of two guarded writes: what the proofs deliver and then count.

A message says in its body who gets how much. Each account keeps the ids of its transfers, so one that is lost and one that
is doubled both show, and so does half of one. Everything can be sent to another process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from pymongo import MongoClient

from onewrite import Duplicate, Message, Outcome, SeenIds
from onewrite.core.clock import random_name
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb import transact as transact_items
from onewrite.dynamodb.values import plain_values
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import transact as transact_documents
from onewrite.testing.servers.engines import Dynoxide, Mongod, dynamo_client
from tests.engines.stores import Apply, Delivery, Store, store_on
from tests.support.seams import name_calls

ACCOUNTS = ("ann", "bob", "cid", "dan")
START = 1000  # cents on each account


class Account(NamedTuple):
    cents: int
    transfers: list[str]  # their ids, in order


Accounts = Mapping[str, Account]


def orders(count: int, seed: int) -> list[Delivery]:
    """Transfers of which no two are of the same amount. The entity of a delivery is the giver."""
    draw = random.Random(seed)
    pairs = [draw.sample(ACCOUNTS, 2) for _ in range(count)]
    return [
        Delivery(Message(f"t-{n}", body={"taker": taker, "cents": n + 1}), giver) for n, (giver, taker) in enumerate(pairs)
    ]


def in_turn(deliveries: Sequence[Delivery]) -> Accounts:
    """The accounts after these transfers, one after the other, each once."""
    accounts = {name: Account(START, []) for name in ACCOUNTS}
    for message, giver in deliveries:
        for name, cents in sides(message, giver).items():
            before = accounts[name]
            accounts[name] = Account(before.cents + cents, [*before.transfers, message.id])
    return accounts


def sides(message: Message, giver: str) -> dict[str, int]:
    """What a transfer adds to each of its two accounts."""
    order = message.body
    return {giver: -order["cents"], order["taker"]: order["cents"]}


@dataclass(frozen=True, slots=True)
class Bank(Store):
    """The accounts of one table or collection."""

    @contextmanager
    def open(self, attempts: Callable[[], str] = random_name) -> Iterator[Apply]:
        """The transfer, for as many threads as like."""
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](self.address, serverSelectionTimeoutMS=3000) as mongo:
                yield partial(
                    _between_documents, name_calls(GuardedCollection(mongo.test[self.place], self.ledger), attempts)
                )
        else:
            retries = {"total_max_attempts": 3, "mode": "standard"}
            client = dynamo_client(self.address, max_pool_connections=8, retries=retries)
            yield partial(_between_items, name_calls(GuardedTable(client, self.ledger, table_name=self.place), attempts))
            client.close()

    @contextmanager
    def reading(self) -> Iterator[Callable[[], Accounts]]:
        """All accounts as they were at one moment."""
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](self.address, serverSelectionTimeoutMS=3000) as mongo:
                yield partial(_read_documents, mongo, self.place)
        else:
            client = dynamo_client(self.address)
            yield partial(_read_items, client, self.place)
            client.close()

    def accounts(self) -> Accounts:
        with self.reading() as read:
            return read()

    def known(self, messages: Sequence[Message]) -> dict[str, set[str]]:
        """The accounts whose ledgers hold the message, by its id."""
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](self.address) as mongo:
                documents = GuardedCollection(mongo.test[self.place], self.ledger)
                return {
                    message.id: _holding(message, lambda m, name: documents.seen(m, {"_id": name})) for message in messages
                }
        client = dynamo_client(self.address)
        items = GuardedTable(client, self.ledger, table_name=self.place)
        found = {message.id: _holding(message, lambda m, name: items.seen(m, Key={"id": name})) for message in messages}
        client.close()
        return found

    def create(self) -> None:
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](self.address) as mongo:
                new = [{"_id": name, "cents": START, "transfers": []} for name in ACCOUNTS]
                mongo.test[self.place].insert_many(new)
            return
        client = dynamo_client(self.address)
        for name in ACCOUNTS:
            item: Any = {"id": {"S": name}, "cents": {"N": str(START)}, "transfers": {"L": []}}
            client.put_item(TableName=self.place, Item=item)
        client.close()


def bank_on(server: Mongod | Dynoxide, place: str) -> Bank:
    store = store_on(server, place, SeenIds())
    bank = Bank(store.engine, store.address, store.place, store.ledger)
    bank.create()
    return bank


def _holding(message: Message, seen: Callable[[Message, str], Outcome]) -> set[str]:
    return {name for name in ACCOUNTS if isinstance(seen(message, name), Duplicate)}


def _between_documents(accounts: GuardedCollection, message: Message, entity: str) -> Outcome:
    changes = [
        accounts.updating({"_id": name}, {"$inc": {"cents": cents}, "$push": {"transfers": message.id}})
        for name, cents in sides(message, entity).items()
    ]
    return transact_documents(message, changes)


def _between_items(accounts: GuardedTable, message: Message, entity: str) -> Outcome:
    changes = [
        accounts.updating(
            Key={"id": name},
            UpdateExpression="SET transfers=list_append(transfers,:id) ADD cents :c",
            ExpressionAttributeValues={":id": [message.id], ":c": cents},
        )
        for name, cents in sides(message, entity).items()
    ]
    return transact_items(message, changes)


def _read_documents(mongo: MongoClient[dict[str, Any]], place: str) -> Accounts:
    with mongo.start_session(snapshot=True) as session:
        found = list(mongo.test[place].find(session=session))
    return {each["_id"]: Account(each["cents"], each["transfers"]) for each in found}


def _read_items(client: Any, table: str) -> Accounts:
    asked = [{"Get": {"TableName": table, "Key": {"id": {"S": name}}}} for name in ACCOUNTS]
    found = [plain_values(each["Item"]) for each in client.transact_get_items(TransactItems=asked)["Responses"]]
    return {each["id"]: Account(int(each["cents"]), each["transfers"]) for each in found}
