"""More handlers that look right, on DynamoDB: they go wrong between two requests, or when a request fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from onewrite import Applied, Deferred, InSequence, Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from tests.gallery.cases import OUTBOX, added_item, marked_item

Handler = Callable[[Message], Any]

C1 = {"id": "c1"}
FIRST = "attribute_not_exists(id)"

log = logging.getLogger(__name__)


def swallowed_exception(customers: Any) -> Handler:
    """It logs what has gone wrong, and returns. So the queue deletes a message that DynamoDB has refused."""
    guarded = GuardedTable(customers, SeenIds())

    def handle(message: Message) -> None:
        try:
            guarded.update_item(message, Key=C1, **added_item(message))
        except (ClientError, BotoCoreError):
            log.warning("could not add %s", message.id)

    return handle


def unprocessed_items_ignored(entries: Any) -> Handler:
    """Both entries have ids of their own, so they may be written again. But what the batch left out is never written."""
    client = entries.meta.client

    def handle(message: Message) -> None:
        amounts = {"alice": -message.body["amount"], "bob": message.body["amount"]}
        puts = [{"PutRequest": {"Item": {"id": account, "balance": amount}}} for account, amount in amounts.items()]
        client.batch_write_item(RequestItems={entries.name: puts})

    return handle


def undone_on_error(accounts: Any) -> Handler:
    """It gives the money back if the second half fails. But an answer that is lost does not mean that the half is not there."""
    guarded = GuardedTable(accounts, SeenIds())

    def add(message: Message, account: str, amount: int) -> None:
        values = {":n": amount}
        guarded.update_item(
            message, Key={"id": account}, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values
        )

    def handle(message: Message) -> None:
        amount = message.body["amount"]
        add(message, "alice", -amount)
        try:
            add(message, "bob", amount)
        except (ClientError, BotoCoreError):
            add(message.part("undo"), "alice", amount)
            raise

    return handle


def tried_again_by_hand(customers: Any) -> Handler:
    """It looks for the id once, and then tries until the write succeeds. The first try may have taken effect."""

    def handle(message: Message) -> None:
        customer = customers.get_item(Key=C1, ConsistentRead=True).get("Item", {})
        while message.id not in customer.get("seen", ()):
            try:
                customers.update_item(Key=C1, **marked_item(message))
            except (ClientError, BotoCoreError):
                continue
            return

    return handle


def numbered_by_an_index(entries: Any) -> Handler:
    """It numbers the entries of a customer by those that an index has. The index does not have the last one yet."""

    def handle(message: Message) -> None:
        values = {":customer": "c1"}
        wanted = {"IndexName": "customer", "KeyConditionExpression": "customer = :customer"}
        found = entries.query(**wanted, ExpressionAttributeValues=values)["Items"]
        if all(entry["message"] != message.id for entry in found):
            number, amount = len(found) + 1, message.body["amount"]
            entries.put_item(Item={"id": f"c1-{number}", "customer": "c1", "message": message.id, "balance": amount})

    return handle


def scanned_before_the_write(customers: Any) -> Handler:
    """It looks for the id in the whole table, page by page. Another delivery writes before the look is over."""
    pages = customers.meta.client.get_paginator("scan")

    def handle(message: Message) -> None:
        wanted = {"FilterExpression": "contains(seen, :id)", "ExpressionAttributeValues": {":id": message.id}}
        found = pages.paginate(TableName=customers.name, ConsistentRead=True, **wanted)
        if not any(page["Items"] for page in found):
            customers.update_item(Key=C1, **marked_item(message))

    return handle


def processing_state_left_behind(orders: Any) -> Handler:
    """It lets nobody else work on an order that is being processed. An order whose worker has died is so forever."""
    refused = orders.meta.client.exceptions.ConditionalCheckFailedException

    def handle(message: Message) -> None:
        key = {"id": message.id}
        try:
            orders.put_item(Item={**key, "phase": "processing"}, ConditionExpression=FIRST)
        except refused as refusal:
            if orders.get_item(Key=key, ConsistentRead=True)["Item"]["phase"] == "done":
                return
            raise TimeoutError("another worker has it: come again") from refusal
        orders.put_item(Item={**key, "phase": "done", "balance": message.body["amount"]})

    return handle


def moved_in_two_steps(stores: Mapping[str, Any]) -> Handler:
    """It takes an order out of one table and puts it into another. Between the two it is in neither."""

    def handle(message: Message) -> None:
        taken = stores["pending"].delete_item(Key=C1, ReturnValues="ALL_OLD").get("Attributes")
        if taken:
            stores["customers"].put_item(Item=taken)

    return handle


def eventually_consistent_look(customers: Any) -> Handler:
    """One worker, one message at a time. But its look is not consistent, so it does not see what it has just written."""

    def handle(message: Message) -> None:
        if message.id not in customers.get_item(Key=C1).get("Item", {}).get("seen", ()):
            customers.update_item(Key=C1, **marked_item(message))

    return handle


def outbox_emptied_before_it_is_sent(customers: Any) -> Handler:
    """It takes the receipts out of the entity and then sends them. If it dies in between, they are gone."""
    OUTBOX.clear()
    guarded = GuardedTable(customers, SeenIds())

    def handle(message: Message) -> None:
        receipt = {":n": message.body["amount"], ":receipt": {message.id}}
        add: dict[str, Any] = {"UpdateExpression": "ADD balance :n, receipts :receipt", "ExpressionAttributeValues": receipt}
        guarded.update_item(message, Key=C1, **add)
        taken = customers.update_item(Key=C1, UpdateExpression="REMOVE receipts", ReturnValues="ALL_OLD")["Attributes"]
        OUTBOX.extend(sorted(taken.get("receipts", ())))

    return handle


def parked_and_left_there(stores: Mapping[str, Any]) -> Handler:
    """What is deferred waits in a table for the message before it. That one may have looked there just before."""
    customers, parked = GuardedTable(stores["customers"], InSequence()), stores["parked"]

    def let_in(message: Message) -> Outcome:
        return customers.update_item(message, Key=C1, **added_item(message))

    def handle(message: Message) -> Outcome:
        if isinstance(let_in(message), Deferred):
            parked.put_item(Item={"id": message.id, "number": message.sequence})
            return Applied(message)
        for item in parked.scan(ConsistentRead=True)["Items"]:
            number = int(item["number"])
            let_in(Message(item["id"], source="bank", sequence=number, body={"amount": 10**number}))
        return Applied(message)

    return handle


def first_failure_ends_the_batch(customers: Any) -> Callable[[Any, Any], Any]:
    """It stops at the record that fails, and names only this one. SQS deletes the records behind it, which nobody has looked at."""
    guarded = GuardedTable(customers, SeenIds())

    def handle(event: Any, context: object) -> dict[str, Any]:
        for record in event["Records"]:
            name = record["messageId"]
            values = {":n": 10 ** int(record["body"])}
            try:
                guarded.update_item(
                    Message(name), Key=C1, UpdateExpression="ADD balance :n", ExpressionAttributeValues=values
                )
            except (ClientError, BotoCoreError):
                return {"batchItemFailures": [{"itemIdentifier": name}]}
        return {"batchItemFailures": []}

    return handle
