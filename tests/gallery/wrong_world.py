"""Handlers that are right as long as the world is kinder than it is: one process, one kind of error, one redelivery as before."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ConnectTimeoutError, ReadTimeoutError
from pymongo import DeleteOne, InsertOne, UpdateOne
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    ExecutionTimeout,
    NetworkTimeout,
    NotPrimaryError,
    PyMongoError,
)

from onewrite import Message
from tests.gallery.banking import Bank, Coroutine

DATABASE_ERRORS = (BotoCoreError, ClientError, PyMongoError)

# --- two processes share no memory -------------------------------------------------------------------------------------


def read_and_written_under_a_lock(bank: Bank) -> Coroutine:
    """A lock of the process keeps two deliveries apart, but not those of two processes."""
    lock = threading.Lock()

    async def handle(message: Message) -> None:
        with lock:
            customer = await bank.read() or {"balance": 0, "seen": []}
            if message.id not in customer["seen"]:
                await bank.put(int(customer["balance"]) + message.body["amount"], seen=[*customer["seen"], message.id])

    return handle


# --- a delivery has begun, and has sent nothing yet ----------------------------------------------------------------------


def acknowledged_while_in_flight(bank: Bank) -> Coroutine:
    """It leaves a message to the delivery that is in progress, which may fail."""
    in_flight: set[str] = set()

    async def handle(message: Message) -> Any:
        if message.id in in_flight:
            return None
        in_flight.add(message.id)
        try:
            return await bank.add(message)
        finally:
            in_flight.discard(message.id)

    return handle


# --- a collection beside that of world ---------------------------------------------------------------------------------


def marked_before_an_effect_beside(bank: Bank) -> Coroutine:
    """The mark and the effect are in two collections of one database, and have the same content."""

    async def handle(message: Message) -> None:
        try:
            bank.store.insert_one({"_id": message.id})
        except DuplicateKeyError:
            return
        bank.store.database.effects.insert_one({"_id": message.id})

    return handle


# --- two upserts find nothing ------------------------------------------------------------------------------------------


def upserted_by_a_field(bank: Bank) -> Coroutine:
    """No unique index is on the field, so two upserts at once make two documents."""

    async def handle(message: Message) -> None:
        bank.store.update_one({"owner": "c1"}, {"$max": {"balance": message.body["amount"]}}, upsert=True)

    return handle


def found_and_upserted_by_a_field(bank: Bank) -> Coroutine:
    """The same with the command that returns the document."""

    async def handle(message: Message) -> None:
        change = {"$set": {"owner": "c1", "receipt": message.id}}
        bank.store.find_one_and_update({"receipt": message.id}, change, upsert=True)

    return handle


def duplicate_key_taken_for_a_duplicate(bank: Bank) -> Coroutine:
    """It takes E11000 for a duplicate. But another message may have created the customer at the same time."""

    async def handle(message: Message) -> None:
        change = {"$inc": {"balance": message.body["amount"]}, "$push": {"seen": message.id}}
        try:
            bank.store.update_one({**bank.key, "seen": {"$ne": message.id}}, change, upsert=True)
        except DuplicateKeyError:
            return

    return handle


# --- a bulk write is several commands ----------------------------------------------------------------------------------


def marked_and_added_in_bulk(bank: Bank) -> Coroutine:
    """The mark and its effect are in one call, but pymongo sends two commands."""

    async def handle(message: Message) -> None:
        change = UpdateOne(bank.key, {"$inc": {"balance": message.body["amount"]}}, upsert=True)
        try:
            bank.store.bulk_write([InsertOne({"_id": message.id}), change])
        except BulkWriteError:
            return

    return handle


def replaced_in_bulk(bank: Bank) -> Coroutine:
    """Between the deletion and the insertion there is no customer, and another message starts from zero."""

    async def handle(message: Message) -> None:
        customer = bank.store.find_one(bank.key) or {"balance": 0}
        new = {**bank.key, "balance": max(customer["balance"], message.body["amount"])}
        bank.store.bulk_write([DeleteOne(bank.key), InsertOne(new)])

    return handle


# --- a batch comes again in other company ------------------------------------------------------------------------------


def record_taken_back_if_alone(bank: Bank) -> Any:
    """It takes back a record that comes alone and fails. But an earlier delivery of that record may have added it."""

    async def handle(event: Any) -> None:
        try:
            for record in event["Records"]:
                await bank.add_under(record["messageId"], 10 ** json.loads(record["body"]))
        except DATABASE_ERRORS:
            if len(event["Records"]) == 1:
                await bank.add_under(f"{event['Records'][0]['messageId']} taken back", -1)
            raise

    return handle


# --- drivers raise more than one kind of error -------------------------------------------------------------------------


def _swallow(bank: Bank, *errors: type[Exception], but: Callable[[ClientError], bool] = lambda _: False) -> Coroutine:
    """Return a handler that takes these errors for success."""

    async def handle(message: Message) -> Any:
        try:
            return await bank.add(message)
        except errors as error:
            if isinstance(error, ClientError) and but(error):
                raise
            return None

    return handle


def timeout_taken_for_success(bank: Bank) -> Coroutine:
    """A request that has timed out has arrived, it thinks."""
    return _swallow(bank, ReadTimeoutError, NetworkTimeout)


def error_of_the_server_swallowed(bank: Bank) -> Coroutine:
    """It takes an error of the server for a passing one, and lets the message go."""

    def is_our_own(error: Any) -> bool:
        return bool(error.response["ResponseMetadata"]["HTTPStatusCode"] < 500)

    return _swallow(bank, NotPrimaryError, ClientError, but=is_our_own)


def other_throttling_swallowed(bank: Bank) -> Coroutine:
    """It sends back what was throttled in one way, and not in another."""

    def is_no_throttling(error: Any) -> bool:
        return bool(error.response["Error"]["Code"] != "ThrottlingException")

    return _swallow(bank, ExecutionTimeout, ClientError, but=is_no_throttling)


def connection_timeout_swallowed(bank: Bank) -> Coroutine:
    """It lets a message go that never was sent."""
    return _swallow(bank, ConnectTimeoutError, NetworkTimeout)


def closed_connection_taken_for_success(bank: Bank) -> Coroutine:
    """The connection may also close before the request has arrived."""
    return _swallow(bank, ConnectionClosedError, AutoReconnect)


# --- an outage lasts ---------------------------------------------------------------------------------------------------


def parked_after_five_tries(bank: Bank) -> Coroutine:
    """What cannot be added is parked for an operator, who may be asleep."""

    async def handle(message: Message) -> Any:
        for _ in range(5):
            try:
                return await bank.add(message)
            except DATABASE_ERRORS:
                continue
        await bank.of("parked").put(0, message=message.id)
        return None

    return handle


# --- what a redelivery tells -------------------------------------------------------------------------------------------


def given_up_at_the_second_receipt(bank: Bank) -> Any:
    """It counts on one receipt, and takes the second one for poison."""

    async def handle(event: Any) -> None:
        for record in event["Records"]:
            if int(record["attributes"]["ApproximateReceiveCount"]) < 2:  # the second
                await bank.add_under(record["messageId"], 10 ** json.loads(record["body"]))

    return handle


def record_under_its_receipt(bank: Bank) -> Any:
    """Each receipt of a record has a handle of its own."""

    async def handle(event: Any) -> None:
        for record in event["Records"]:
            await bank.add_under(record["receiptHandle"], 10 ** json.loads(record["body"]))

    return handle
