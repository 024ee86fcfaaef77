"""Where an exploration cannot judge a handler, a message or an `observe`, it says what the real cause is."""

from __future__ import annotations

import datetime as dt
import itertools
import logging
import random
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from bson import ObjectId
from pymongo import WriteConcern

from onewrite import ConfigurationError, Message, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import UnsupportedByStandIn, explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.standins.stores import mongomock_collection, moto_tables
from tests.support.batches import by_name, sqs
from tests.support.handlers import build_from

Handler = Callable[[Message], Any]
C1 = {"_id": "c1"}
ONE = (Message("m1", "s", 1, {"amount": 10}),)
CLOCK, RANDOM, MEMORY = "That is the time, from the machine's clock", "That looks random", "state that a module keeps"


def explored(build: Callable[[Any], Handler], messages: Any = ONE, **options: Any) -> Exploration:
    given: dict[str, Any] = {
        "world": lambda: mongomock_collection("customers"),
        "observe": lambda customers: (customers.find_one(C1) or {}).get("n"),
        **options,
    }
    return explore(build, messages=messages, **given)


def guarded(collection: Any) -> Handler:
    customers = GuardedCollection(collection, SeenIds())
    return lambda message: customers.update_one(message, C1, {"$inc": {"n": 1}}, upsert=True)


# --- handlers that do something else each time ------------------------------------------------------------------------


def setting(value: Callable[[], Any]) -> Callable[[Any], Handler]:
    return lambda collection: lambda _: collection.update_one(C1, {"$set": {"n": 1, "deep": {"at": [value()]}}}, upsert=True)


CLOCKS: dict[str, Callable[[], Any]] = {
    "datetime.now()": dt.datetime.now,  # that is the mistake
    "a time to live of an hour": lambda: int(time.time()) + 3600,
    "ISO text in whole seconds": lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    "a key with the time in it": lambda: f"receipt#{time.time_ns()}",
}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
@pytest.mark.few(5)
def test_handler_that_reads_the_clock_is_reported(clock: Callable[[], Any]) -> None:
    report = explored(setting(clock))
    assert not report.ok
    assert CLOCK in str(report.nondeterministic)


RANDOMS: dict[str, Callable[[], Any]] = {
    "a uuid": lambda: str(uuid.uuid4()),
    "an ObjectId": ObjectId,
    "bytes": lambda: random.randbytes(12),
}


@pytest.mark.parametrize("value", RANDOMS.values(), ids=RANDOMS)
def test_handler_that_generates_ids_is_reported(value: Callable[[], Any]) -> None:
    report = explored(setting(value))
    assert not report.ok
    assert RANDOM in str(report.nondeterministic)


_connected: list[str] = []


def by_a_global_list(collection: Any) -> Handler:
    inner = guarded(collection)

    def handle(message: Message) -> Any:
        if not _connected:
            _connected.append("yes")
            collection.database.audit.insert_one({"_id": "started"})
        return inner(message)

    return handle


def test_handler_with_module_state_is_reported() -> None:
    report = explored(by_a_global_list)
    assert not report.ok
    assert "It's the same from the second run on" in str(report)
    assert MEMORY in str(report.nondeterministic)


def test_module_counter_is_reported_as_memory_and_not_as_clock() -> None:
    numbers = itertools.count()
    report = explored(setting(lambda: next(numbers)))
    assert not report.ok
    text = str(report.nondeterministic)
    assert MEMORY in text
    assert "message.child(name)" in text
    assert CLOCK not in text


# --- states that look wrong for another cause -------------------------------------------------------------------------


def test_ledger_fields_in_observe_result_are_reported() -> None:
    def build(table: Any) -> Handler:
        customers = GuardedTable(table, SeenIds())
        add: Any = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
        return lambda message: customers.update_item(message, Key={"id": "c1"}, **add)

    with moto_tables() as make:
        whole = explore(build, ONE, lambda: make("customers", "id"), lambda table: table.scan()["Items"])
    assert "They differ only in onewrite's fields" in str(whole)


def test_difference_only_in_list_order_is_reported() -> None:
    def build(collection: Any) -> Handler:
        lines = GuardedCollection(collection, SeenIds())

        def handle(message: Message) -> Any:
            for name in ("a", "b"):
                lines.update_one(message, {"_id": name}, {"$push": {"of": message.id}}, upsert=True)

        return handle

    def names(collection: Any) -> Any:
        return [owner + line["_id"] for line in collection.find().sort("_id") for owner in line["of"]]

    messages, bounds = [Message("m1"), Message("m2")], {"deliveries": 1, "faults": 0}
    report = explored(build, messages, observe=names)
    assert "They differ only in the order of a list" in str(report)
    assert explored(build, messages, observe=lambda lines: sorted(names(lines)), **bounds).ok


def test_invalid_date_string_does_not_stop_the_exploration() -> None:
    explored(
        lambda collection: lambda _: collection.update_one(C1, {"$set": {"n": "2026-02-30T10:00"}}, upsert=True)
    ).assert_effectively_once()


def test_an_unacknowledged_write_is_refused() -> None:
    def build(collection: Any) -> Handler:
        unsafe = collection.with_options(write_concern=WriteConcern(w=0))
        return lambda _: unsafe.update_one(C1, {"$set": {"n": 1}}, upsert=True)

    with pytest.raises(ConfigurationError, match=r"sent with WriteConcern\(w=0\).*Omit w=0"):
        explored(build)


def test_order_unsupported_by_the_stand_in_stops_the_exploration() -> None:
    """The second message alone is fine. Behind the first, it writes to the place after the end of an array, which MongoDB pads."""

    def each(collection: Any, message: Message) -> None:
        lines = collection.find_one(C1)["lines"]
        if message.id == "shrink":
            collection.update_one(C1, {"$set": {"lines": lines[:1]}})
            return
        with suppress(Exception):
            collection.update_one(C1, {"$set": {f"lines.{len(lines) - 1}.done": True}})

    def world() -> Any:
        collection = mongomock_collection("customers")
        collection.insert_one({**C1, "lines": [{}, {}, {}]})
        return collection

    with pytest.raises(UnsupportedByStandIn, match="fails at update_one"):
        explored(build_from(each), world=world, messages=[Message("mark"), Message("shrink")])


@pytest.mark.parametrize("name", ["updated_at", "#at"])
def test_nondeterministic_placeholder_is_reported_with_its_attribute_name(name: str) -> None:
    def build(table: Any) -> Handler:
        names = {"ExpressionAttributeNames": {"#at": "updated_at"}} if name == "#at" else {}
        values = {":at": str(time.time()), ":n": 1}
        return lambda _: table.update_item(
            Key={"id": "c1"},
            UpdateExpression=f"SET n = :n, {name} = :at",
            ExpressionAttributeValues={**values, ":at": str(time.time())},
            **names,
        )

    with moto_tables() as make:
        world = {"world": lambda: make("customers", "id"), "observe": lambda table: table.scan()["Count"]}
        report = explored(build, **world, deliveries=1, faults=0)
    assert not report.ok
    assert "updated_at (:at) of UpdateItem" in str(report.nondeterministic)


# --- an observe that returns what cannot be compared ------------------------------------------------------------------


class Plain:
    def __init__(self, n: Any) -> None:
        self.n = n


class Ambiguous:
    """As an array of numpy: what == returns is neither true nor false."""

    def __eq__(self, other: object) -> Any:
        return self

    __hash__ = None  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]

    def __bool__(self) -> bool:
        raise ValueError("the truth value of an array is ambiguous")


@pytest.mark.parametrize(
    ("observe", "text"),
    [
        (lambda customers: customers.find(), "Cursor, which doesn't equal a copy of itself"),
        (lambda customers: (customers.find_one(C1) or {}).values(), "dict_values, which can't be copied"),
        (lambda _: [Plain(1)], "list, which doesn't equal a copy of itself"),
        (lambda _: Ambiguous(), "Ambiguous, which can't be copied and compared"),
    ],
)
def test_observe_result_that_cannot_be_compared_is_refused(observe: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        explored(guarded, observe=observe)


# --- messages ---------------------------------------------------------------------------------------------------------


def test_message_without_copy_support_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"messages\[0\] can't be copied"):
        explored(guarded, [Message("m1", body={"lock": threading.Lock()})])


def test_changes_to_a_message_are_not_redelivered() -> None:
    def build(collection: Any) -> Handler:
        customers = GuardedCollection(collection, SeenIds())

        def handle(message: Message) -> Any:
            message.body["amount"] += 1
            return customers.update_one(message, C1, {"$inc": {"n": message.body["amount"]}}, upsert=True)

        return handle

    explored(build).assert_effectively_once()
    assert ONE[0].body == {"amount": 10}


# --- logs -------------------------------------------------------------------------------------------------------------


def _batch(collection: Any) -> Any:
    """Adds without a guard, says what it does, and fails with some records."""
    logger = logging.getLogger("shop")

    @sqs_handler(by_name)
    def handler(message: Message) -> Any:
        logger.warning("adds %s", message.id)
        collection.update_one(C1, {"$inc": {"n": 1}}, upsert=True)

    return handler


def test_an_exploration_logs_only_the_handlers_own_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    assert not explored(_batch, [sqs(["a", "b"])]).ok
    for name in ("onewrite", "onewrite.sqs"):
        logging.getLogger(name).warning("afterwards")
    names = [record.name for record in caplog.records if not record.name.startswith("pymongo.")]  # other tests' clients
    assert set(names[:-2]) == {"shop"}
    assert names[-2:] == ["onewrite", "onewrite.sqs"]
