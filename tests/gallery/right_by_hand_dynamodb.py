"""Work done right on DynamoDB in other ways: by conditions, versions and transactions that the handler writes itself."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from botocore.exceptions import ClientError

from onewrite import Applied, Deferred, InSequence, Message, Missing, Outcome, Rejected, SeenIds
from onewrite.dynamodb import GuardedTable
from tests.gallery.cases import NOW, added_item

Handler = Callable[[Message], Any]

C1 = {"id": "c1"}
ABSENT = "attribute_not_exists(id)"


def put_by_the_id(entries: Any) -> Handler:
    """Each message is an item of its own."""

    def handle(message: Message) -> None:
        item = {"id": message.id, "balance": message.body["amount"]}
        with suppress(_refusal(entries)):
            entries.put_item(Item=item, ConditionExpression=ABSENT)

    return handle


def mark_in_each_entity(accounts: Any) -> Handler:
    """Each half of a transfer has a mark of its own, and both halves are tried each time."""

    def handle(message: Message) -> None:
        _add_unless_seen(accounts, "alice", message, -message.body["amount"])
        _add_unless_seen(accounts, "bob", message, message.body["amount"])

    return handle


def version_checked(customers: Any) -> Handler:
    """It reads everything again after a conflict, and sees whether another delivery was first."""

    def handle(message: Message) -> None:
        while True:
            customer = customers.get_item(Key=C1, ConsistentRead=True).get("Item", {"balance": 0, "version": 0, "seen": []})
            if message.id in customer["seen"]:
                return
            balance, version = customer["balance"] + message.body["amount"], customer["version"]
            changed = {**C1, "balance": balance, "version": version + 1, "seen": [*customer["seen"], message.id]}
            with suppress(_refusal(customers)):
                customers.put_item(
                    Item=changed,
                    ConditionExpression="attribute_not_exists(id) OR version = :read",
                    ExpressionAttributeValues={":read": version},
                )
                return

    return handle


def read_then_condition(stores: Mapping[str, Any]) -> Handler:
    """What it reads decides only what it writes. Whether it writes is decided by a condition."""
    customers, entries = stores["customers"], stores["entries"]

    def handle(message: Message) -> None:
        factor = customers.get_item(Key=C1, ConsistentRead=True)["Item"]["factor"]
        item = {"id": message.id, "balance": factor * message.body["amount"]}
        with suppress(_refusal(entries)):
            entries.put_item(Item=item, ConditionExpression=ABSENT)

    return handle


def mark_in_a_transaction_with_a_token(stores: Mapping[str, Any]) -> Handler:
    """The token spares a try whose answer was lost the refusal. What keeps duplicates out is the mark."""
    client = stores["customers"].meta.client

    def handle(message: Message) -> None:
        mark = {"TableName": "processed", "Item": {"id": message.id}, "ConditionExpression": ABSENT}
        effect = {"TableName": "customers", "Key": C1, **added_item(message)}
        _transact(client, {"Put": mark}, {"Update": effect}, ClientRequestToken=message.id)

    return handle


def taken_in_a_transaction(stores: Mapping[str, Any]) -> Handler:
    """A reservation is deleted in the transaction that adds its amount, so it can be added only once."""
    client = stores["customers"].meta.client

    def handle(message: Message) -> None:
        taken = {"TableName": "pending", "Key": {"id": message.id}, "ConditionExpression": "attribute_exists(id)"}
        _transact(client, {"Delete": taken}, {"Update": {"TableName": "customers", "Key": C1, **added_item(message)}})

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


def newest_wins(customers: Any) -> Handler:
    """Each message has the whole state. An older one that comes later changes nothing."""

    def handle(message: Message) -> None:
        with suppress(_refusal(customers)):
            customers.update_item(
                Key=C1,
                UpdateExpression="SET balance = :n, lastNumber = :number",
                ConditionExpression="attribute_not_exists(lastNumber) OR lastNumber < :number",
                ExpressionAttributeValues={":number": message.sequence, ":n": message.body["amount"]},
            )

    return handle


def unprocessed_items_again(entries: Any) -> Handler:
    """It sends what a batch left out until nothing is left, and also after it was throttled."""
    client = entries.meta.client

    def handle(message: Message) -> None:
        amounts = {"alice": -message.body["amount"], "bob": message.body["amount"]}
        puts = [{"PutRequest": {"Item": {"id": account, "balance": amount}}} for account, amount in amounts.items()]
        left = {entries.name: puts}
        while left:
            with suppress(client.exceptions.ProvisionedThroughputExceededException):
                left = client.batch_write_item(RequestItems=left)["UnprocessedItems"]

    return handle


def batch_writer(entries: Any) -> Handler:
    """boto3's own batch sends again what was left out."""

    def handle(message: Message) -> None:
        with entries.batch_writer() as batch:
            for line in ("a", "b"):
                batch.put_item(Item={"id": f"{message.id}-{line}", "balance": message.body["amount"]})

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


def outbox_cleared_after_sending(stores: Mapping[str, Any]) -> Handler:
    """A receipt stays in the entity until it is sent, and is sent under an id of its own."""
    customers, receipts = GuardedTable(stores["customers"], SeenIds()), stores["receipts"]

    def handle(message: Message) -> None:
        values = {":n": message.body["amount"], ":receipt": {message.id}}
        add = "ADD balance :n, outbox :receipt"
        customers.update_item(message, Key=C1, UpdateExpression=add, ExpressionAttributeValues=values)
        pending = stores["customers"].get_item(Key=C1, ConsistentRead=True)["Item"].get("outbox", ())
        for receipt in sorted(pending):
            receipts.put_item(Item={"id": receipt, "balance": 1})
            sent = {":sent": {receipt}}
            stores["customers"].update_item(Key=C1, UpdateExpression="DELETE outbox :sent", ExpressionAttributeValues=sent)

    return handle


def undone_as_a_part_of_its_own(accounts: Any) -> Handler:
    """What is given back is a part of the message with a mark of its own. So it is given back once."""
    guarded = GuardedTable(accounts, SeenIds())

    def add(message: Message, account: str, amount: int, **condition: Any) -> Outcome:
        values = {":n": amount}
        native: dict[str, Any] = {"UpdateExpression": "ADD balance :n", "ExpressionAttributeValues": values, **condition}
        return guarded.update_item(message, Key={"id": account}, **native)

    def handle(message: Message) -> None:
        amount = message.body["amount"]
        add(message, "alice", -amount)
        condition = {"ConditionExpression": "attribute_exists(opened)", "missing_ok": True, "rejected_ok": True}
        if isinstance(add(message, "bob", amount, **condition), Rejected | Missing):
            add(message.part("undo"), "alice", amount)

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


def withdrawn_when_covered(accounts: Any) -> Handler:
    """A withdrawal that is not covered raises, and is redelivered until it is."""
    guarded = GuardedTable(accounts, SeenIds())

    def handle(message: Message) -> None:
        amount = message.body["amount"]
        add: dict[str, Any] = {"Key": C1, "UpdateExpression": "ADD balance :n"}
        if amount > 0:
            guarded.update_item(message, **add, ExpressionAttributeValues={":n": amount})
            return
        values = {":n": amount, ":least": -amount}
        covered: dict[str, Any] = {"ConditionExpression": "balance >= :least", "ExpressionAttributeValues": values}
        if isinstance(guarded.update_item(message, **add, **covered), Rejected | Missing):
            raise LookupError("not covered yet")  # noqa: TRY004  # what is wrong is the balance

    return handle


def refused_for_now(accounts: Any) -> Callable[[Message], Outcome]:
    """A withdrawal that is not covered is refused, which the handler answers. It had no effect, so nothing has to be kept."""
    guarded = GuardedTable(accounts, SeenIds())

    def handle(message: Message) -> Outcome:
        amount = message.body["amount"]
        values = {":n": amount, ":least": -amount}
        return guarded.update_item(
            message,
            Key=C1,
            UpdateExpression="ADD balance :n",
            ConditionExpression="balance >= :least",
            ExpressionAttributeValues=values,
            missing_ok=True,
            rejected_ok=True,
        )

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
