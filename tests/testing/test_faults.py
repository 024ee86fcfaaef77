"""Each fault, on each kind of store: what the handler sees, and whether the request took effect."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import Any

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ConnectionClosedError, EndpointConnectionError, ReadTimeoutError
from bson import Decimal128
from pymongo.errors import AutoReconnect, NetworkTimeout, OperationFailure, ServerSelectionTimeoutError

from onewrite import ConfigurationError, Message, SeenIds
from onewrite.mongodb import AsyncGuardedCollection
from onewrite.testing import explore
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.aws import find_client, make_request
from onewrite.testing.taps.faults import Crash, Faults
from onewrite.testing.taps.tap import find_kind
from onewrite.testing.taps.traffic import Request
from tests.support.handlers import build_from

ADD: dict[str, Any] = {"UpdateExpression": "ADD n :one"}
MESSAGE = Message("m-1")


@dataclass
class Shop:
    """A counter in a store: `add` is one request of a handler's, `count` looks past all faults."""

    store: Any
    add: Callable[[Any], Any]
    read: Callable[[Any], Any]
    count: Callable[[], int]


def table_shop(table: Any) -> Shop:
    def add(store: Any) -> Any:
        return store.update_item(Key={"id": "c1"}, **ADD, ExpressionAttributeValues={":one": 1})

    def count() -> int:
        return int(table.get_item(Key={"id": "c1"}).get("Item", {}).get("n", 0))

    return Shop(table, add, lambda store: store.get_item(Key={"id": "c1"}), count)


def client_shop(table: Any, client: Any) -> Shop:
    key = {"TableName": "customers", "Key": {"id": {"S": "c1"}}}

    def add(store: Any) -> Any:
        return store.update_item(**key, **ADD, ExpressionAttributeValues={":one": {"N": "1"}})

    return Shop(client, add, lambda store: store.get_item(**key), table_shop(table).count)


def collection_shop() -> Shop:
    collection = mongomock_collection("customers")

    def add(store: Any) -> Any:
        return store.update_one({"_id": "c1"}, {"$inc": {"n": 1}}, upsert=True)

    def count() -> int:
        return (collection.find_one({"_id": "c1"}) or {"n": 0})["n"]

    return Shop(collection, add, lambda store: store.find_one({"_id": "c1"}), count)


@cache
def session() -> boto3.Session:
    """Made when moto is there already, and kept: making one takes long."""
    return boto3.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name="eu-west-1")


@pytest.fixture
def table(moto_table: Any) -> Any:
    return moto_table("customers", "id")


@pytest.fixture
def client(table: Any) -> Iterator[Any]:
    made = session().client("dynamodb")
    yield made
    made.close()


@pytest.fixture(params=["table", "client", "collection"])
def shop(request: pytest.FixtureRequest) -> Shop:
    if request.param == "collection":
        return collection_shop()
    table = request.getfixturevalue("table")
    return table_shop(table) if request.param == "table" else client_shop(table, request.getfixturevalue("client"))


def is_mongo(shop: Shop) -> bool:
    return find_kind(shop.store) == "collection"


# ---------------------------------------------------------------- crashes


def test_crash_before_a_request_has_no_effect(shop: Shop) -> None:
    faults = Faults(shop.store)
    faults.crash_before(2)
    shop.add(faults.store)
    with pytest.raises(Crash, match=r"died at (update_one|UpdateItem) customers c1"):
        shop.add(faults.store)
    assert shop.count() == 1
    shop.add(faults.store)
    assert shop.count() == 2


def test_effect_remains_after_a_crash_following_the_request(shop: Shop) -> None:
    faults = Faults(shop.store)
    faults.crash_after(1)
    with pytest.raises(Crash):
        shop.add(faults.store)
    assert shop.count() == 1


def test_crashed_process_sends_no_more_requests(shop: Shop) -> None:
    faults = Faults(shop.store)
    faults.crash_before(1)

    def handler() -> None:
        try:
            shop.add(faults.store)
        finally:
            try:
                dict[str, int]()["lock"]
            except KeyError:
                shop.add(faults.store)

    with pytest.raises(Crash, match="is dead"):
        handler()
    assert shop.count() == 0
    assert len(faults.requests) == 1
    shop.add(faults.store)
    assert shop.count() == 1


# ---------------------------------------------------------------- lost answers


def test_a_lost_response_raises_the_drivers_error_without_retries(shop: Shop) -> None:
    faults = Faults(shop.store)
    faults.lose_response(1, retried=False)
    with pytest.raises(AutoReconnect if is_mongo(shop) else ConnectionClosedError):
        shop.add(faults.store)
    assert shop.count() == 1


def test_botocore_retries_a_request_if_response_is_lost(table: Any, client: Any) -> None:
    for shop in (table_shop(table), client_shop(table, client)):
        before = shop.count()
        faults = Faults(shop.store)
        faults.lose_response(1)
        answer = shop.add(faults.store)
        assert answer["ResponseMetadata"]["RetryAttempts"] == 1
        assert shop.count() == before + 2
        shop.add(faults.store)
        assert shop.count() == before + 3


def test_retried_mongodb_write_returns_the_first_response() -> None:
    shop = collection_shop()
    faults = Faults(shop.store)
    faults.lose_response(1)
    faults.lose_response(2)
    faults.lose_response(3)
    assert shop.add(faults.store).upserted_id == "c1"
    assert shop.read(faults.store) == {"_id": "c1", "n": 1}
    with pytest.raises(AutoReconnect):
        faults.store.update_many({}, {"$inc": {"n": 1}})
    assert shop.count() == 2


# ---------------------------------------------------------------- the other faults


def test_throttling_ends_after_the_planned_requests(shop: Shop) -> None:
    faults = Faults(shop.store)
    for where in (1, lambda request: request.writes):
        faults.throttle(where)
    errors = find_client(shop.store).exceptions if not is_mongo(shop) else None
    kind: Any = OperationFailure if errors is None else errors.ProvisionedThroughputExceededException
    for _ in range(2):
        with pytest.raises(kind):
            shop.add(faults.store)
    assert shop.count() == 0
    shop.add(faults.store)
    assert shop.count() == 1


@pytest.mark.parametrize("applied", [True, False])
def test_timeout_raises_whether_or_not_request_took_effect(shop: Shop, applied: bool) -> None:
    faults = Faults(shop.store)
    faults.time_out(1, applied=applied)
    with pytest.raises(NetworkTimeout if is_mongo(shop) else ReadTimeoutError):
        shop.add(faults.store)
    assert shop.count() == applied


@pytest.mark.parametrize("kind", [ReadTimeoutError, ConnectionClosedError])
def test_failure_of_the_real_server_outweighs_the_fault(
    client: Any, kind: type[BotoCoreError], monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = kind(endpoint_url="http://127.0.0.1")

    def fail(*_: Any) -> None:
        raise failure

    shop, faults = client_shop(None, client), Faults(client)
    faults.crash_after(1)
    monkeypatch.setattr(client, "_make_api_call", fail)
    with pytest.raises(kind) as caught:
        shop.add(faults.store)
    assert caught.value is failure


def test_cancelled_transaction_has_a_reason_for_each_action(table: Any, client: Any) -> None:
    faults = Faults(client)
    faults.cancel_transaction(1)
    put = {"Put": {"TableName": "customers", "Item": {"id": {"S": "c1"}}}}
    check = {"ConditionCheck": {"TableName": "customers", "Key": {"id": {"S": "c2"}}}}
    check["ConditionCheck"]["ConditionExpression"] = "attribute_not_exists(id)"
    with pytest.raises(client.exceptions.TransactionCanceledException) as caught:
        faults.store.transact_write_items(TransactItems=[put, check])
    codes = [reason["Code"] for reason in caught.value.response["CancellationReasons"]]
    assert codes == ["TransactionConflict", "None"]
    assert "[TransactionConflict, None]" in str(caught.value)
    assert "Item" not in table.get_item(Key={"id": "c1"})


def test_refused_connection_has_no_effect(shop: Shop) -> None:
    faults = Faults(shop.store)
    faults.refuse_connection(1)
    with pytest.raises(ServerSelectionTimeoutError if is_mongo(shop) else EndpointConnectionError, match="connect"):
        shop.add(faults.store)
    assert shop.count() == 0


def batch_of(*names: str) -> dict[str, Any]:
    return {"customers": [{"PutRequest": {"Item": {"id": {"S": name}}}} for name in names]}


def test_unprocessed_writes_of_the_database_stay_reported(client: Any) -> None:
    database = Faults(client)
    faults = Faults(database.store)
    database.leave_unprocessed(1)
    faults.leave_unprocessed(1)
    answer = faults.store.batch_write_item(RequestItems=batch_of("c1", "c2", "c3"))
    assert answer["UnprocessedItems"] == batch_of("c2", "c3")


def test_batch_reports_its_last_write_as_unprocessed(table: Any, client: Any) -> None:
    faults = Faults(client)
    faults.leave_unprocessed(1)
    faults.leave_unprocessed(2)
    answer = faults.store.batch_write_item(RequestItems=batch_of("c1", "c2"))
    assert answer["UnprocessedItems"] == batch_of("c2")
    assert [item["id"] for item in table.scan()["Items"]] == ["c1"]
    answer = faults.store.batch_write_item(RequestItems=batch_of("c2"))
    assert answer["UnprocessedItems"] == batch_of("c2")
    assert [item["id"] for item in table.scan()["Items"]] == ["c1"]
    faults.assert_all_used()


def test_leave_unprocessed_refuses_a_request_without_a_batch(shop: Shop) -> None:
    faults = Faults(shop.store)
    faults.leave_unprocessed(1)
    with pytest.raises(ConfigurationError, match="is done whole or not at all: plan leave_unprocessed for BatchWriteItem"):
        shop.add(faults.store)


# ---------------------------------------------------------------- plans


def test_an_unused_fault_fails_with_a_remedy(shop: Shop) -> None:
    faults = Faults(shop.store)
    faults.throttle(2)

    def is_query(request: Request) -> bool:
        return request.method == "Query"

    faults.time_out(is_query)
    faults.crash_before(7, optional=True)
    with pytest.raises(AssertionError, match="The requests were: none"):
        faults.assert_all_used()
    shop.read(faults.store)
    with pytest.raises(AssertionError) as caught:
        faults.assert_all_used()
    assert "throttle(2), time_out(is_query)." in str(caught.value)
    assert "optional=True" in str(caught.value)
    assert f"\n  1. {faults.requests[0]}" in str(caught.value)


def test_stores_in_a_dict_share_request_positions(table: Any) -> None:
    shops = {"customers": table_shop(table), "archive": collection_shop()}
    faults = Faults({name: shop.store for name, shop in shops.items()})
    faults.crash_before(2)
    shops["customers"].add(faults.store["customers"])
    with pytest.raises(Crash):
        shops["archive"].add(faults.store["archive"])
    assert [shop.count() for shop in shops.values()] == [1, 0]


# ---------------------------------------------------------------- asynchronous stores


def test_faults_work_with_an_async_collection() -> None:
    async def main() -> None:
        raw = mongomock_collection("customers", asynchronous=True)
        faults = Faults(raw)
        faults.crash_before(1)
        faults.crash_after(2)
        faults.lose_response(3)
        faults.time_out(5, applied=False)  # the duplicate was looked for in a fourth
        stock = AsyncGuardedCollection(faults.store, SeenIds())

        async def handle() -> Any:
            return await stock.update_one(MESSAGE, {"_id": "c1"}, {"$inc": {"n": 1}}, upsert=True)

        for _ in range(2):
            with pytest.raises(Crash):
                await handle()
        assert (await handle()).settled
        with pytest.raises(NetworkTimeout):
            await handle()
        assert (await raw.find_one({"_id": "c1"}))["n"] == 1
        faults.assert_all_used()

    asyncio.run(main())


# ---------------------------------------------------------------- the entities of a request


def key_of_id(value: object) -> object:
    collection = mongomock_collection()
    faults = Faults(collection)
    faults.store.find_one({"_id": value})
    return faults.requests[0].keys


def test_requests_for_equal_ids_are_for_one_entity() -> None:
    assert key_of_id(1) == key_of_id(Decimal128("1.00")) not in (None, key_of_id("1"), key_of_id(2))
    assert key_of_id(None) == key_of_id({"$gt": 1}) == key_of_id(re.compile("a")) is None


def test_requests_for_equal_keys_are_for_one_entity() -> None:
    def key_of(value: object) -> object:
        return make_request("shop", "GetItem", {"TableName": "lines", "Key": {"id": value, "order": value}}, {}).keys

    assert key_of(1) == key_of(Decimal("1.0")) == key_of({"N": "1.00"}) not in (None, key_of(2))
    assert key_of(b"a") == key_of({"B": b"a"}) not in (None, key_of({"S": "a"}))


def test_transactions_that_insert_equal_ids_are_in_conflict() -> None:
    """1 and 1.0 are one document, so only the first commit is applied."""

    def handle(orders: Any, message: Message) -> None:
        with orders.database.client.start_session() as session, session.start_transaction():
            orders.update_one({"_id": message.body}, {"$inc": {"n": 1}}, upsert=True, session=session)

    messages = [Message("m1", body=1), Message("m2", body=1.0)]
    report = explore(
        build_from(handle),
        messages,
        mongomock_collection,
        lambda orders: [document["n"] for document in orders.find()],
        faults=0,
        deliveries=1,
    )
    report.assert_effectively_once()
