"""Work done right on DynamoDB in other ways: by conditions, versions and transactions that the handler writes itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError

from onewrite import Applied, Deferred, InSequence, Message, Outcome
from onewrite.dynamodb import GuardedTable
from tests.gallery.cases import NOW, added_item

Handler = Callable[[Message], Any]

C1 = {"id": "c1"}
ABSENT = "attribute_not_exists(id)"


def ids_in_the_condition(customers: Any) -> Handler:
    """The mark and its condition are in the write itself."""

    def handle(message: Message) -> None:
        _add_unless_seen(customers, "c1", message, message.body["amount"])

    return handle


def mark_in_a_transaction_with_a_token(stores: Mapping[str, Any]) -> Handler:
    """The token spares a try whose answer was lost the refusal. What keeps duplicates out is the mark."""
    client = stores["customers"].meta.client

    def handle(message: Message) -> None:
        mark = {"TableName": "processed", "Item": {"id": message.id}, "ConditionExpression": ABSENT}
        effect = {"TableName": "customers", "Key": C1, **added_item(message)}
        _transact(client, {"Put": mark}, {"Update": effect}, ClientRequestToken=message.id)

    return handle


def put_before_it_is_deleted(stores: Mapping[str, Any]) -> Handler:
    """It takes an order out of one table only when it is in the other. A redelivery puts the same again, or finds nothing."""
    pending, customers = stores["pending"], stores["customers"]

    def handle(message: Message) -> None:
        order = pending.get_item(Key={"id": message.id}, ConsistentRead=True).get("Item")
        if order:
            customers.put_item(Item=order)
            with suppress(_refusal(pending)):
                pending.delete_item(Key={"id": message.id}, ConditionExpression="attribute_exists(id)")

    return handle


def phases(orders: Any) -> Handler:
    """An order is paid and then shipped. What comes too early raises, and is redelivered."""
    before = {"paid": "placed", "shipped": "paid"}

    def handle(message: Message) -> None:
        after = message.body["phase"]
        try:
            orders.update_item(
                Key=C1,
                UpdateExpression="SET phase = :after ADD been :set, balance :n",
                ConditionExpression="phase = :before",
                ExpressionAttributeValues={
                    ":before": before[after],
                    ":after": after,
                    ":set": {after},
                    ":n": message.body["amount"],
                },
            )
        except _refusal(orders):
            if after not in orders.get_item(Key=C1, ConsistentRead=True)["Item"].get("been", ()):
                raise

    return handle


def fenced_lease(customers: Any) -> Handler:
    """Its lock expires, and each holder has a number. A write with the number of an earlier holder is refused."""
    minutes = itertools.count(NOW, 60)

    def handle(message: Message) -> None:
        now = next(minutes)
        lock = customers.update_item(
            Key=C1,
            UpdateExpression="SET lockedUntil = :until ADD holder :one",
            ConditionExpression="attribute_not_exists(lockedUntil) OR lockedUntil < :now",
            ExpressionAttributeValues={":until": now + 30, ":now": now, ":one": 1},
            ReturnValues="ALL_NEW",
        )["Attributes"]
        if message.id not in lock.get("seen", ()):
            values = {":n": message.body["amount"], ":ids": {message.id}, ":id": message.id, ":holder": lock["holder"]}
            customers.update_item(
                Key=C1,
                UpdateExpression="ADD balance :n, seen :ids REMOVE lockedUntil",
                ConditionExpression="holder = :holder AND NOT contains(seen, :id)",
                ExpressionAttributeValues=values,
            )

    return handle


def parked_until_its_turn(stores: Mapping[str, Any]) -> Handler:
    """What is deferred waits in a table. Who has let in a message also lets in those that wait behind it."""
    customers, parked = GuardedTable(stores["customers"], InSequence()), stores["parked"]

    def let_in(message: Message) -> Outcome:
        return customers.update_item(message, Key=C1, **added_item(message))

    def waiting() -> Iterator[Message]:
        for item in sorted(parked.scan(ConsistentRead=True)["Items"], key=lambda item: item["number"]):
            number = int(item["number"])
            yield Message(item["id"], source="bank", sequence=number, body={"amount": 10**number})

    def handle(message: Message) -> Outcome:
        if isinstance(let_in(message), Deferred):
            parked.put_item(Item={"id": message.id, "number": message.sequence})
        for other in waiting():
            if let_in(other).settled:
                parked.delete_item(Key={"id": other.id})
        return Applied(message)

    return handle


def _add_unless_seen(table: Any, entity: str, message: Message, amount: int) -> None:
    with suppress(_refusal(table)):
        table.update_item(
            Key={"id": entity},
            UpdateExpression="ADD balance :n, seen :ids",
            ConditionExpression="NOT contains(seen, :id)",
            ExpressionAttributeValues={":n": amount, ":ids": {message.id}, ":id": message.id},
        )


def _transact(client: Any, guard: Mapping[str, Any], effect: Mapping[str, Any], **options: Any) -> None:
    """Do both, or nothing if the condition of the first does not hold. Any other refusal is raised."""
    try:
        client.transact_write_items(TransactItems=[guard, effect], **options)
    except client.exceptions.TransactionCanceledException as refusal:
        if refusal.response["CancellationReasons"][0]["Code"] != "ConditionalCheckFailed":
            raise


def _refusal(table: Any) -> type[ClientError]:
    refusal: type[ClientError] = table.meta.client.exceptions.ConditionalCheckFailedException
    return refusal
