"""What comes and goes is counted in MongoDB, whose connection string is a secret of Secrets Manager.

The messages are JSON: `{"eventId": "e-1", "sku": "sku-1", "count": -2}`.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import boto3
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from onewrite import Message, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import json_body
from onewrite.mongodb import GuardedCollection

AUTHENTICATION_FAILED = 18


@sqs_handler(json_body(id="eventId"))
def handler(message: Message) -> Outcome:
    change = {"$inc": {"left": message.body["count"]}}
    try:
        return stock().update_one(message, {"_id": message.body["sku"]}, change, upsert=True)
    except OperationFailure as error:
        if error.code == AUTHENTICATION_FAILED:
            disconnect()  # The password was changed. This message is redelivered, and finds the new one.
        raise


@cache
def stock() -> GuardedCollection:
    return GuardedCollection(client().shop.stock, SeenIds())


@cache
def client() -> MongoClient[dict[str, Any]]:
    """Made at the first message, and kept with its connections: to import this module takes neither credentials nor a server."""
    return MongoClient(connection_string())


def disconnect() -> None:
    client().close()
    client.cache_clear()
    stock.cache_clear()


def connection_string() -> str:
    secrets = boto3.client("secretsmanager")
    return str(secrets.get_secret_value(SecretId=os.environ["MONGODB_SECRET_ARN"])["SecretString"])
