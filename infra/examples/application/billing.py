"""The billing service: a worker on MongoDB that charges for each placed order at a provider, and its relay, which publishes what was paid.

onewrite worker billing:handler --queue-url ...
onewrite relay billing:relay
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any
from urllib.request import Request, urlopen

import boto3
from pymongo import MongoClient

from onewrite import Begun, Event, Message, Outbox, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import cloudevent
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay, to_sqs

# The charge and the write after it must end within this. It is no longer than the queue hides a message.
LEASE = timedelta(seconds=60)
SAFE_FOR = timedelta(hours=23)  # The provider knows its keys for 24: an hour is left for the way to it.

sdk: Any = boto3


def make_handler(bills: Callable[[], GuardedCollection], charge: Callable[..., str]) -> Callable[[Message], Outcome | None]:
    """What the worker calls, with its own store and provider. A test gives it others."""

    def handler(message: Message) -> Outcome | None:
        if message.attributes["type"] != "OrderPlaced":  # such as onewrite.skipped, for an event that an operator gave up
            return None
        bill = {"_id": message.body["orderId"]}
        # A step needs a document that is there. Creating it is a second write by the same message, so it gets a part of its own.
        bills().update_one(message.part("open"), bill, {"$set": {"cents": message.body["cents"]}}, upsert=True)

        def send(step: Begun) -> str:
            return charge(message.body["cents"], key=step.key, timeout=step.left())

        def record_payment(charge_id: str) -> dict[str, Any]:
            event = Event("OrderPaid", {"orderId": bill["_id"], "chargeId": charge_id})
            return {"update": {"$set": {"chargeId": charge_id}}, "emit": [event]}

        return bills().perform(message, "charge", send, bill, lease=LEASE, safe_for=SAFE_FOR, then=record_payment)

    return handler


def create_charge(cents: int, *, key: str, timeout: float) -> str:
    """The provider makes one charge per key, however often it is asked."""
    headers = {"Content-Type": "application/json", "Idempotency-Key": key}
    request = Request(os.environ["PROVIDER_URL"], json.dumps({"cents": cents}).encode(), headers)  # noqa: S310  # ours
    with urlopen(request, timeout=timeout) as answer:  # noqa: S310  # as above
        return str(json.load(answer)["chargeId"])


@cache
def bills() -> GuardedCollection:
    """Made at the first message: to import this module takes neither credentials nor a server."""
    secret = sdk.client("secretsmanager").get_secret_value(SecretId=os.environ["MONGODB_SECRET_ARN"])
    client: MongoClient[dict[str, Any]] = MongoClient(secret["SecretString"])
    collection = client.billing.bills
    collection.create_index("ow_due", sparse=True)  # by which the relay finds what is pending
    return GuardedCollection(collection, SeenIds(), outbox=Outbox("shop/bills"))


handler = sqs_handler(cloudevent(parse_float=float))(make_handler(bills, create_charge))


def __getattr__(name: str) -> Relay:
    """The relay is made when it is asked for: the worker has no queue to publish to."""
    if name != "relay":
        raise AttributeError(name)
    return Relay(bills(), to_sqs(sdk.client("sqs"), os.environ["ORDERS_QUEUE_URL"]))
