"""Faults that leave a request undone, wholly or in part, and reads that are answered too early."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, ReadTimeoutError
from pymongo import ReadPreference, ReturnDocument
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError, WaitQueueTimeoutError, WTimeoutError
from pymongo.read_concern import ReadConcern

from onewrite import Message
from onewrite.testing import explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.stale_reads import may_be_stale
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.traffic import Request
from tests.support.handlers import build_from

Handler = Callable[[Message], Any]
Build = Callable[[Any], Handler]

M1 = Message("m1", body=10)
C1 = {"id": "c1"}


@pytest.fixture
def customers(moto_table: Any) -> Callable[[], Any]:
    return lambda: moto_table("customers", key="id")


def balance(table: Any) -> Any:
    return int(table.get_item(Key=C1, ConsistentRead=True).get("Item", {}).get("balance", 0))


def count(table: Any) -> int:
    return int(table.scan(ConsistentRead=True)["Count"])


def explored(
    build: Build, world: Any, observe: Any = balance, messages: tuple[Message, ...] = (M1,), **options: Any
) -> Exploration:
    return explore(build, messages=messages, world=world, observe=observe, **options)


def words(report: Exploration) -> list[str]:
    assert report.counterexample is not None
    return [step.words for step in report.counterexample.steps]


def deposit(table: Any) -> Handler:
    """A handler with its own guard. An error of a guarded store would leave the message unsettled, even if the handler suppresses it."""

    def handle(message: Message) -> None:
        values = {":n": message.body, ":ids": {message.id}, ":id": message.id}
        change = {"UpdateExpression": "ADD balance :n, seen :ids", "ExpressionAttributeValues": values}
        with suppress(table.meta.client.exceptions.ConditionalCheckFailedException):
            table.update_item(Key=C1, ConditionExpression="NOT contains(seen, :id)", **change)

    return handle


# --- refused, or not sent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told"), [(ClientError, "throttled"), (BotoCoreError, "not sent, because no server is reachable")]
)
def test_suppressed_dynamodb_errors_are_found(customers: Any, error: type[Exception], told: str) -> None:
    """The handler takes whatever goes wrong for a duplicate, and says that the message is done."""

    def build(table: Any) -> Handler:
        inner = deposit(table)

        def handle(message: Message) -> None:
            with suppress(error):
                inner(message)

        return handle

    assert words(explored(build, customers)) == [f"UpdateItem customers c1: {told}"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OperationFailure, "throttled"),
        (ServerSelectionTimeoutError, "not sent, because no server is reachable"),
        (WaitQueueTimeoutError, "not served, because the service or the connection pool is exhausted"),
    ],
)
def test_suppressed_mongodb_errors_are_found(error: type[Exception], told: str) -> None:
    def handle(collection: Any, message: Message) -> None:
        with suppress(error):
            collection.update_one({"_id": "c1", "m1": None}, {"$inc": {"n": 1}, "$set": {"m1": 1}}, upsert=True)

    report = explored(
        build_from(handle), lambda: mongomock_collection("customers"), lambda c: c.find_one({"_id": "c1"}), deliveries=1
    )
    assert words(report) == [f"update_one customers c1: {told}"]


def test_explorer_finds_a_write_concern_error_treated_as_failure() -> None:
    def handle(collection: Any, message: Message) -> None:
        add = {"_id": "c1"}, {"$inc": {"n": 1}, "$push": {"seen": message.id}}
        try:
            collection.update_one({**add[0], "seen": {"$ne": message.id}}, add[1])
        except WTimeoutError:
            collection.update_one(*add)

    def world() -> Any:
        collection = mongomock_collection("customers")
        collection.insert_one({"_id": "c1", "n": 0})
        return collection

    report = explored(build_from(handle), world, lambda c: c.find_one({"_id": "c1"})["n"], deliveries=1)
    assert words(report)[0].endswith("applied, but too few members confirm it in time")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("RequestLimitExceeded", "throttled with a third code"),
        ("ServiceUnavailable", "not served, because the service or the connection pool is exhausted"),
    ],
)
def test_suppressed_refusal_is_found(customers: Any, code: str, told: str) -> None:
    build = catching(deposit, lambda error: error.response.get("Error", {}).get("Code") == code)
    assert words(explored(build, customers, deliveries=1)) == [f"UpdateItem customers c1: {told}"]


def transfer(table: Any) -> Handler:
    client, name = table.meta.client, table.name

    def handle(message: Message) -> None:
        mark = {"TableName": name, "Item": {"id": message.id}, "ConditionExpression": "attribute_not_exists(id)"}
        values = {":n": message.body}
        add = {"TableName": name, "Key": C1, "UpdateExpression": "ADD balance :n", "ExpressionAttributeValues": values}
        client.transact_write_items(TransactItems=[{"Put": mark}, {"Update": add}])

    return handle


def catching(inner_of: Build, passes: Callable[[ClientError], bool]) -> Build:
    def build(table: Any) -> Handler:
        inner = inner_of(table)

        def handle(message: Message) -> None:
            try:
                inner(message)
            except ClientError as error:
                if not passes(error):
                    raise

        return handle

    return build


def test_a_cancelled_transaction_taken_for_a_duplicate_is_found(customers: Any) -> None:
    def is_cancelled(error: ClientError) -> bool:
        return error.response.get("Error", {}).get("Code") == "TransactionCanceledException"

    def is_duplicate(error: ClientError) -> bool:
        reasons: Any = error.response.get("CancellationReasons", [{}])
        return bool(reasons[0].get("Code") == "ConditionalCheckFailed")

    found = words(explored(catching(transfer, is_cancelled), customers))
    assert found == ["TransactWriteItems customers m1 c1: refused because of a transaction on the same entity"]
    explored(catching(transfer, is_duplicate), customers).assert_effectively_once()


def test_a_single_write_conflicts_with_transactions_on_its_table(customers: Any) -> None:
    """Without a transaction there is nothing that it could be in conflict with."""

    def is_conflict(error: ClientError) -> bool:
        return error.response.get("Error", {}).get("Code") == "TransactionConflictException"

    def marked(table: Any) -> Handler:
        return lambda message: table.put_item(Item={**C1, "id": message.id, "balance": message.body})

    def beside_transactions(table: Any) -> Handler:
        single, transaction = catching(marked, is_conflict)(table), transfer(table)
        already = catching(lambda _: transaction, lambda error: "ConditionalCheckFailed" in str(error))(table)
        return lambda message: single(message) if message.id == "m1" else already(message)

    explored(catching(marked, is_conflict), customers, count).assert_effectively_once()
    report = explored(beside_transactions, customers, count, messages=(M1, Message("m2", body=5)))
    assert words(report) == ["PutItem customers m1: refused because of a transaction on the same entity"]


# --- batches that are carried out in part ---------------------------------------------------------------------------------


def puts(*names: str) -> dict[str, Any]:
    return {"customers": [{"PutRequest": {"Item": {"id": name}}} for name in names]}


def test_ignored_unprocessed_keys_are_found(moto_table: Any) -> None:
    def world() -> Any:
        tables = {name: moto_table(name, key="id") for name in ("customers", "limits")}
        for name, table in tables.items():
            table.put_item(Item={"id": "c1", "limit": 1, "name": name})
        return tables

    def handle(tables: Any, _: Message) -> None:
        wanted = {name: {"Keys": [C1], "ConsistentRead": True} for name in tables}
        found = tables["customers"].meta.client.batch_get_item(RequestItems=wanted)["Responses"]
        limits = [item["limit"] for items in found.values() for item in items]
        tables["customers"].put_item(Item={**C1, "balance": sum(limits)})

    report = explored(build_from(handle), world, lambda tables: balance(tables["customers"]))
    assert report.counterexample is not None
    assert (report.counterexample.expected, report.counterexample.observed) == ((2,), 1)


def test_batch_can_leave_its_first_element_unprocessed(customers: Any) -> None:
    def handle(table: Any, _: Message) -> None:
        left = table.meta.client.batch_write_item(RequestItems=puts("a", "b"))["UnprocessedItems"]
        if left == puts("b"):  # which it thinks is the only one that can be left
            table.meta.client.batch_write_item(RequestItems=left)

    report = explored(build_from(handle), customers, count)
    assert words(report) == ["BatchWriteItem customers a b: applied, but the first part is left, as the response says"]


# --- stale reads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "arguments", "stale"),
    [
        ("GetItem", {}, True),
        ("GetItem", {"ConsistentRead": True}, False),
        ("Query", {"IndexName": "by_message"}, True),
        ("BatchGetItem", {"RequestItems": {"a": {"Keys": []}}}, True),
        ("BatchGetItem", {"RequestItems": {"a": {"Keys": []}, "b": {"Keys": [], "ConsistentRead": True}}}, False),
        ("TransactGetItems", {}, False),
        ("ExecuteStatement", {}, True),
        ("DescribeTable", {}, False),
    ],
)
def test_dynamodb_reads_can_be_stale_unless_consistent(
    customers: Any, method: str, arguments: dict[str, Any], *, stale: bool
) -> None:
    assert may_be_stale(customers(), Request("customers", method, arguments, None, writes=False)) is stale


def test_a_write_is_never_stale(customers: Any) -> None:
    assert not may_be_stale(customers(), Request("customers", "ExecuteStatement", {}, None, writes=True))


SECONDARY = ReadPreference.SECONDARY_PREFERRED


@pytest.mark.parametrize(
    ("collection", "request_", "stale"),
    [
        ({}, {}, False),
        ({"read_preference": SECONDARY}, {}, True),
        ({"read_preference": SECONDARY, "read_concern": ReadConcern("majority")}, {}, True),
        ({}, {"options": {"read_preference": ReadPreference.SECONDARY}}, True),
        ({"read_preference": SECONDARY}, {"options": {"read_preference": ReadPreference.PRIMARY}}, False),
        ({"read_preference": SECONDARY}, {"tables": ("orders",)}, False),
        ({"read_preference": SECONDARY}, {"arguments": {"session": object()}}, False),
        ({"read_preference": SECONDARY}, {"writes": True}, False),
    ],
)
def test_mongodb_reads_can_be_stale_on_a_secondary(
    collection: dict[str, Any], request_: dict[str, Any], *, stale: bool
) -> None:
    store = mongomock_collection("customers").with_options(**collection)
    given = {"method": "find_one", "arguments": {}, "keys": None, "writes": False, "tables": ("customers",), **request_}
    assert may_be_stale(store, Request("customers", **given)) is stale


def test_stale_reads_distinguish_two_paths_to_the_same_state() -> None:
    """Both deposits end in the same balance, whichever comes first. Only a stale read sees which it was."""
    seen: set[Any] = set()

    def world() -> Any:
        collection = mongomock_collection("customers")
        collection.insert_one({"_id": "c1", "n": 0})  # so both deposits have the same answer
        return collection

    def build(collection: Any) -> Handler:
        late = collection.with_options(read_preference=ReadPreference.SECONDARY)

        def handle(message: Message) -> None:
            if message.body is not None:
                collection.update_one({"_id": "c1"}, {"$inc": {"n": message.body}}, upsert=True)
            elif collection.find_one({"_id": "c1"}) == {"_id": "c1", "n": 15}:
                seen.add(late.find_one({"_id": "c1"})["n"])

        return handle

    messages = (M1, Message("m2", body=5), Message("m3"))
    report = explored(build, world, lambda _: "no end is wrong here", messages, deliveries=1, concurrency=1)
    assert report.exhausted
    assert seen == {15, 10, 5}


def test_timeout_of_the_real_store_is_raised(customers: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    table = customers()

    def fail(*_: Any) -> None:
        raise ReadTimeoutError(endpoint_url="http://127.0.0.1")

    monkeypatch.setattr(table.meta.client, "_make_api_call", fail)
    with pytest.raises(ReadTimeoutError):
        explored(lambda _: lambda _: None, lambda: table)


def test_racing_upsert_can_return_a_value_without_a_pickle() -> None:
    """Two concurrent upserts that find nothing both insert, and each gets its document."""
    unnamed_type = type("Unnamed", (str,), {"__module__": __name__})  # pickle doesn't find it by its name
    found: list[Any] = []

    def handle(collection: Any, _: Message) -> None:
        change = {"$set": {"name": unnamed_type("Ann")}}
        order = collection.find_one_and_update({"order": 1}, change, upsert=True, return_document=ReturnDocument.AFTER)
        found.append(order["name"])

    messages, options = (M1, Message("m2")), {"deliveries": 1, "faults": 0}
    report = explored(
        build_from(handle),
        lambda: mongomock_collection("orders"),
        lambda orders: orders.count_documents({}),
        messages,
        **options,
    )
    assert report.counterexample is not None
    assert report.counterexample.observed == 2
    assert {*found} == {"Ann"}
    assert "raises" not in report.counterexample.text


def contents(collection: Any) -> Any:
    return sorted(collection.find({}), key=str)


def test_secondary_read_does_not_wait_for_a_secondary(mongod: Any) -> None:
    def handle(collection: Any, message: Message) -> None:
        late = collection.with_options(read_preference=ReadPreference.SECONDARY)
        if late.find_one({"_id": message.id}) is None:
            collection.insert_one({"_id": message.id})

    started = time.monotonic()
    explored(build_from(handle), lambda: mongod.collection("orders"), contents).assert_effectively_once()
    assert time.monotonic() - started < 20
