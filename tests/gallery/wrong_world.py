"""Handlers that are right as long as the world is kinder than it is: one process, one kind of error, one redelivery as before."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError, ConnectTimeoutError, ReadTimeoutError
from pymongo import DeleteOne, InsertOne
from pymongo.errors import (
    AutoReconnect,
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


def in_flight_in_this_process(bank: Bank) -> Coroutine:
    """It sends back what is in progress, in the same process. Another process reads that the message is new."""
    in_flight: set[str] = set()

    async def handle(message: Message) -> None:
        if in_flight:
            raise RuntimeError("busy")
        in_flight.add(message.id)
        try:
            customer = await bank.read() or {}
            if message.id not in customer.get("seen", ()):
                await bank.put(int(customer.get("balance", 0)) + message.body["amount"], seen=[message.id])
        finally:
            in_flight.clear()

    return handle


def balance_kept_under_a_lock(bank: Bank) -> Coroutine:
    """It reads the balance once, and writes it through. A second process has a balance of its own."""
    lock, kept = threading.Lock(), dict[str, Any]()

    async def handle(message: Message) -> None:
        with lock:
            if not kept:
                kept.update(await bank.read() or {"balance": 0, "seen": []})
            if message.id not in kept["seen"]:
                changed = {"balance": int(kept["balance"]) + message.body["amount"], "seen": [*kept["seen"], message.id]}
                await bank.put(**changed)
                kept.update(changed)

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


def dropped_when_busy(bank: Bank) -> Coroutine:
    """It lets a message go that comes while another one is in progress."""
    free = threading.Semaphore(1)

    async def handle(message: Message) -> Any:
        if not free.acquire(blocking=False):
            return None
        try:
            return await bank.add(message)
        finally:
            free.release()

    return handle


def left_to_the_first(bank: Bank) -> Coroutine:
    """The first delivery writes what the others have collected. If it fails, only its own message comes again."""
    collected: list[Message] = []
    leads = threading.Lock()

    async def handle(message: Message) -> None:
        collected.append(message)
        if not leads.acquire(blocking=False):
            return
        try:
            while collected:
                await bank.add(collected[0])
                collected.pop(0)
        finally:
            collected.clear()
            leads.release()

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


def replaced_in_bulk(bank: Bank) -> Coroutine:
    """Between the deletion and the insertion there is no customer, and another message starts from zero."""

    async def handle(message: Message) -> None:
        customer = bank.store.find_one(bank.key) or {"balance": 0}
        new = {**bank.key, "balance": max(customer["balance"], message.body["amount"])}
        bank.store.bulk_write([DeleteOne(bank.key), InsertOne(new)])

    return handle


# --- a batch comes again in other company ------------------------------------------------------------------------------


def batch_under_its_first_record(bank: Bank) -> Any:
    """It marks a batch by its first record. If the second one comes alone, it has another mark."""

    async def handle(event: Any) -> None:
        bodies = [json.loads(record["body"]) for record in event["Records"]]
        await bank.add_under(event["Records"][0]["messageId"], sum(10**number for number in bodies))

    return handle


def batch_under_all_its_records(bank: Bank) -> Any:
    """The same with a mark of all of them."""

    async def handle(event: Any) -> None:
        bodies = [json.loads(record["body"]) for record in event["Records"]]
        await bank.add_under("+".join(record["messageId"] for record in event["Records"]), sum(10**n for n in bodies))

    return handle


def record_under_its_place(bank: Bank) -> Any:
    """It marks each record by its place in the batch."""

    async def handle(event: Any) -> None:
        for place, record in enumerate(event["Records"]):
            await bank.add_under(f"record-{place}", 10 ** json.loads(record["body"]))

    return handle


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


def _swallow(bank: Bank, *errors: type[Exception], but: Callable[[Any], bool] = lambda _: False) -> Coroutine:
    """Return a handler that takes these errors for success."""

    async def handle(message: Message) -> Any:
        try:
            return await bank.add(message)
        except errors as error:
            if isinstance(error, ClientError) and but(error.response):
                raise
            return None

    return handle


def timeout_taken_for_success(bank: Bank) -> Coroutine:
    """A request that has timed out has arrived, it thinks."""
    return _swallow(bank, ReadTimeoutError, NetworkTimeout)


def error_of_the_server_swallowed(bank: Bank) -> Coroutine:
    """It takes an error of the server for a passing one, and lets the message go. It raises an error of its own."""
    return _swallow(
        bank, NotPrimaryError, ClientError, but=lambda response: response["ResponseMetadata"]["HTTPStatusCode"] < 500
    )


def other_throttling_swallowed(bank: Bank) -> Coroutine:
    """It sends back what was throttled in one way, and not in another."""
    return _swallow(
        bank, ExecutionTimeout, ClientError, but=lambda response: response["Error"]["Code"] != "ThrottlingException"
    )


def connection_timeout_swallowed(bank: Bank) -> Coroutine:
    """It lets a message go that never was sent."""
    return _swallow(bank, ConnectTimeoutError, NetworkTimeout)


def closed_connection_taken_for_success(bank: Bank) -> Coroutine:
    """The connection may also close before the request has arrived."""
    return _swallow(bank, ConnectionClosedError, AutoReconnect)


# --- an outage lasts ---------------------------------------------------------------------------------------------------


def tried_three_times_and_logged(bank: Bank) -> Coroutine:
    """Three tries, and then it logs an error and lets the message go."""

    async def handle(message: Message) -> Any:
        for _ in range(3):
            try:
                return await bank.add(message)
            except DATABASE_ERRORS:
                continue
        return None

    return handle


def tried_again_and_left(bank: Bank) -> Coroutine:
    """What fails twice is left to the other delivery, of which there may be none."""

    async def handle(message: Message) -> Any:
        try:
            return await bank.add(message)
        except DATABASE_ERRORS:
            pass
        try:
            return await bank.add(message)
        except DATABASE_ERRORS:
            return None

    return handle


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
