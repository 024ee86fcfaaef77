"""What a handler sends through clients that the explorer did not give it is explored too, or refused by name."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any

import boto3
import mongomock
import moto.core.models  # noqa: F401  # clients that are made before this are not mocked
import pytest
from aiobotocore.session import get_session
from botocore.client import BaseClient
from pymongo import MongoClient
from pymongo.errors import DuplicateKeyError

from onewrite import ConfigurationError, Message
from onewrite.dynamodb.values import typed_values
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.explore import explore
from onewrite.testing.model.databases import Databases
from onewrite.testing.standins.stores import MakeTable, mongomock_collection
from onewrite.testing.taps import everywhere
from tests.support.handlers import build_from

Handler = Callable[[Message], Any]
M1 = Message("m1", "s", 1, 30)
REGION = "eu-west-1"
KEYS: dict[str, Any] = {"region_name": REGION, "aws_access_key_id": "x", "aws_secret_access_key": "x"}

SQS: Any = boto3.Session(**KEYS).client("sqs")
SNS: Any = boto3.Session(**KEYS).client("sns")
TABLE = boto3.resource("dynamodb", region_name=REGION).Table("customers")
CLIENT = boto3.client("dynamodb", region_name=REGION)
ELSEWHERE = boto3.client("dynamodb", region_name="us-east-1")


def aio_client(service: str) -> Any:
    session: Any = get_session()
    return session.create_client(service, **KEYS)


@pytest.fixture
def world(moto_table: MakeTable) -> Callable[[], Any]:
    return lambda: moto_table("customers", "id")


def credit(table: Any) -> Any:
    item = table.get_item(Key={"id": "c1"}).get("Item", {})
    return int(item.get("credit", 0))


def on(world: Any, build: Any, **options: Any) -> Exploration:
    given: Any = {"messages": [M1], "world": world, "observe": credit, **options}
    return explore(build, **given)


def words(report: Exploration) -> list[str]:
    assert report.counterexample is not None, report
    return [str(step) for step in report.counterexample.steps]


def assert_right(report: Exploration) -> None:
    report.assert_effectively_once()
    assert report.exhausted
    assert report.schedules > 1
    assert report.remarks == ()


ADDED_TWICE = [f"m1, delivery {number}: UpdateItem customers c1: applied" for number in (1, 2)]


# ---------------------------------------------------------------- DynamoDB


def plain(message: Message, *, guarded: bool) -> dict[str, Any]:
    values = {":credit": message.body, ":ids": {message.id}, **({":id": message.id} if guarded else {})}
    guard = {"ConditionExpression": "NOT contains(seen, :id)"} if guarded else {}
    update = "ADD credit :credit, seen :ids"
    return {"Key": {"id": "c1"}, "UpdateExpression": update, "ExpressionAttributeValues": values, **guard}


def typed(message: Message, *, guarded: bool) -> dict[str, Any]:
    given = plain(message, guarded=guarded)
    values = typed_values(given["ExpressionAttributeValues"])
    return {**given, "TableName": "customers", "Key": {"id": {"S": "c1"}}, "ExpressionAttributeValues": values}


def through_table(*, guarded: bool) -> Handler:
    def handle(message: Message) -> None:
        try:
            TABLE.update_item(**plain(message, guarded=guarded))
        except TABLE.meta.client.exceptions.ConditionalCheckFailedException:
            return

    return handle


def through_client(client: Callable[[], Any], *, guarded: bool) -> Handler:
    def handle(message: Message) -> None:
        used = client()
        try:
            used.update_item(**typed(message, guarded=guarded))
        except used.exceptions.ConditionalCheckFailedException:
            return

    return handle


def made_here() -> Any:
    return boto3.client("dynamodb", region_name=REGION)


@pytest.mark.parametrize(
    "handler",
    [
        through_table,
        lambda guarded: through_client(lambda: CLIENT, guarded=guarded),
        lambda guarded: through_client(made_here, guarded=guarded),
    ],
    ids=["a Table of the module", "a client of the module", "a client made in the handler"],
)
@pytest.mark.few(1)
def test_handler_with_its_own_client_is_explored(world: Any, handler: Any) -> None:
    assert words(on(world, lambda _: handler(guarded=False))) == ADDED_TWICE
    assert_right(on(world, lambda _: handler(guarded=True)))


def test_database_outside_the_world_is_refused(world: Any) -> None:

    def handle(message: Message) -> None:
        try:
            ELSEWHERE.update_item(**typed(message, guarded=False))
        except Exception:
            TABLE.update_item(**plain(message, guarded=True))

    with pytest.raises(
        ConfigurationError, match=r"us-east-1.amazonaws.com:443 in us-east-1.*Create a store there in world\(\)"
    ):
        on(world, lambda _: handle)


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.few(1)
def test_aioboto3_table_is_explored(world: Any, guarded: bool) -> None:
    aioboto3 = pytest.importorskip("aioboto3", reason="`make aioboto3` tries it in an environment of its own")

    async def handle(message: Message) -> None:
        async with aioboto3.Session(**KEYS).resource("dynamodb") as resource:
            table = await resource.Table("customers")
            try:
                await table.update_item(**plain(message, guarded=guarded))
            except table.meta.client.exceptions.ConditionalCheckFailedException:
                return

    report = on(world, lambda _: handle)
    if guarded:
        assert_right(report)
    else:
        assert words(report) == ADDED_TWICE


def test_async_observe_can_use_its_own_client(world: Any) -> None:
    async def awaited_credit(_: Any) -> Any:
        async with aio_client("dynamodb") as client:
            answer = await client.get_item(TableName="customers", Key={"id": {"S": "c1"}})
        return answer["Item"]["credit"]

    assert_right(on(world, lambda _: through_table(guarded=True), observe=awaited_credit))


# ---------------------------------------------------------------- other services


def queue_url() -> str:
    return str(SQS.get_queue_url(QueueName="orders")["QueueUrl"])


@pytest.fixture
def world_with_queue(moto_table: MakeTable) -> Callable[[], Any]:
    def world() -> Any:
        with suppress(SQS.exceptions.QueueDoesNotExist):
            SQS.delete_queue(QueueUrl=queue_url())
        SQS.create_queue(QueueName="orders")
        return moto_table("customers", "id")

    return world


def sent(table: Any) -> Any:
    found = SQS.receive_message(QueueUrl=queue_url(), MaxNumberOfMessages=10).get("Messages", [])
    return sorted(one["Body"] for one in found), credit(table)


def sending(_: Any) -> Handler:
    url = queue_url()

    def handle(message: Message) -> None:
        SQS.send_message(QueueUrl=url, MessageBody=message.id)
        through_table(guarded=True)(message)

    return handle


def test_message_sent_before_the_write_is_sent_twice(world_with_queue: Any) -> None:
    report = on(world_with_queue, sending, observe=sent)
    assert words(report)[0] == "m1, delivery 1: SendMessage orders: applied"
    assert report.counterexample is not None
    assert report.counterexample.expected == ((["m1"], 30),)
    assert report.counterexample.observed == (["m1", "m1"], 30)


def test_observe_does_not_remove_messages_from_a_queue(world_with_queue: Any) -> None:
    assert_right(on(world_with_queue, sending, observe=lambda table: (bool(sent(table)[0]), credit(table))))


def test_queue_not_emptied_by_world_is_reported(moto_table: MakeTable) -> None:
    def world() -> Any:
        SQS.create_queue(QueueName="orders")
        return moto_table("customers", "id")

    with pytest.raises(
        ConfigurationError, match=r"in a new world.*everything that observe\(\) reads in world\(\), such as a queue"
    ):
        on(world, sending, observe=sent)


def test_cached_queue_url_is_not_reported_as_nondeterminism(world_with_queue: Any) -> None:
    urls: list[str] = []

    def handle(message: Message) -> None:
        if not urls:
            urls.append(queue_url())
        SQS.send_message(QueueUrl=urls[0], MessageBody=message.id)

    report = on(world_with_queue, lambda _: handle, observe=lambda table: bool(sent(table)[0]))
    assert report.nondeterministic is None
    assert_right(report)


@pytest.mark.parametrize(("service", "shown"), [("sns", "Publish paid"), ("asynchronous sqs", "SendMessage orders")])
@pytest.mark.slow
@pytest.mark.measured
def test_requests_to_other_services_are_steps(world_with_queue: Any, service: str, shown: str) -> None:
    def publish(message: Message) -> None:
        SNS.publish(TopicArn=SNS.create_topic(Name="paid")["TopicArn"], Message=message.id)
        TABLE.update_item(**plain(message, guarded=False))

    async def send(message: Message) -> None:
        async with aio_client("sqs") as sqs, aio_client("sns") as sns:
            await sns.list_topics()
            await sqs.send_message(QueueUrl=queue_url(), MessageBody=message.id)
        TABLE.update_item(**plain(message, guarded=False))

    report = on(world_with_queue, lambda _: publish if service == "sns" else send)
    assert any(shown in step for step in words(report))


# ---------------------------------------------------------------- MongoDB stand-ins


def credited(collection: Any) -> Any:
    return collection.find_one({"_id": "c1"}, {"credit": 1})


def on_mongodb(world: Any, build: Any, **options: Any) -> Exploration:
    given: Any = {"messages": [M1], "world": world, "observe": credited, **options}
    return explore(build, **given)


def adding(collection: Callable[[], Any], *, guarded: bool) -> Handler:
    def handle(message: Message) -> None:
        query = {"_id": "c1", **({"seen": {"$ne": message.id}} if guarded else {})}
        change = {"$inc": {"credit": message.body}, "$push": {"seen": message.id}}
        try:
            collection().update_one(query, change, upsert=True)
        except DuplicateKeyError:
            collection().update_one(query, change)

    return handle


async def add_to_the_stand_in(message: Message) -> None:
    await ASYNC_STAND_IN.update_one({"_id": "c1"}, {"$inc": {"credit": message.body}}, upsert=True)


STAND_IN = mongomock_collection("customers")
ASYNC_STAND_IN = mongomock_collection("customers", asynchronous=True)
MOCK: Any = mongomock.MongoClient()


def emptied(collection: Any) -> Any:
    collection.delete_many({})
    return collection


@pytest.mark.parametrize("collection", [STAND_IN, MOCK.shop.customers], ids=["stand-in", "mongomock"])
def test_module_level_collection_is_explored(collection: Any) -> None:
    def world() -> Any:
        return emptied(collection)

    report = on_mongodb(world, lambda _: adding(lambda: collection, guarded=False))
    assert words(report) == [f"m1, delivery {number}: update_one customers c1: applied" for number in (1, 2)]
    assert_right(on_mongodb(world, lambda _: adding(lambda: collection, guarded=True)))


def test_another_database_on_the_same_server_is_explored() -> None:
    def world() -> Any:
        emptied(MOCK.archive.customers)
        return emptied(MOCK.shop.customers)

    def archived(_: Any) -> Any:
        return list(MOCK.archive.customers.find({}, {"credit": 1}))

    report = on_mongodb(world, lambda _: adding(lambda: MOCK.archive.customers, guarded=False), observe=archived)
    assert report.counterexample is not None
    assert report.counterexample.observed == [{"_id": "c1", "credit": 60}]
    assert_right(on_mongodb(world, lambda _: adding(lambda: MOCK.archive.customers, guarded=True), observe=archived))


def test_stand_in_server_outside_the_world_is_refused() -> None:
    other: Any = mongomock.MongoClient()
    with pytest.raises(ConfigurationError, match=r"'shop' of MongoDB at a separate server in memory"):
        on_mongodb(lambda: emptied(MOCK.shop.customers), lambda _: adding(lambda: other.shop.customers, guarded=False))


def test_subclass_of_pymongos_client_is_on_the_same_server() -> None:
    class TracedClient(MongoClient[Any]):
        """As applications define it, to log or to trace."""

    databases = Databases({"orders": TracedClient(connect=False).shop.orders})
    assert databases.adopt_database(MongoClient[Any](connect=False).shop) == "orders"


def async_world() -> Any:
    emptied_with_its_marks(ASYNC_STAND_IN.stand_in)
    return ASYNC_STAND_IN


async def credits_of(collection: Any) -> Any:
    return [each["credit"] async for each in collection.find({})]


def test_module_level_async_stand_in_is_explored() -> None:
    assert not on_mongodb(async_world, lambda _: add_to_the_stand_in, observe=credits_of).ok


def test_a_blocking_client_in_an_asynchronous_observe_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="use the stores that are passed"):
        on_mongodb(async_world, lambda _: add_to_the_stand_in, observe=lambda _: credits_of(ASYNC_STAND_IN))


def test_methods_that_a_tap_cannot_see_are_refused() -> None:
    for call in (lambda: MOCK.shop.create_collection("new"), lambda: MOCK.shop.command("dropDatabase")):
        with pytest.raises(ConfigurationError, match="can't be tapped"):
            on_mongodb(lambda: emptied(MOCK.shop.customers), lambda _, call=call: lambda message: call())


def test_session_started_before_the_exploration_is_refused() -> None:
    session = SimpleNamespace(in_transaction=False)
    handle = lambda message: STAND_IN.insert_one({"_id": message.id}, session=session)  # noqa: E731
    with pytest.raises(ConfigurationError, match="in a session that began before"):
        on_mongodb(lambda: emptied(STAND_IN), lambda _: handle)


def in_one_transaction(client: Any, name: str) -> Handler:
    """Mark and effect in a session of a client that the explorer did not give it."""

    def write(message: Message, session: Any) -> None:
        client[name].marks.insert_one({"_id": message.id}, session=session)
        client[name].customers.update_one({"_id": "c1"}, {"$inc": {"credit": message.body}}, upsert=True, session=session)

    def handle(message: Message) -> None:
        with client.start_session() as session, suppress(DuplicateKeyError):
            session.with_transaction(lambda _: write(message, session))

    return handle


def in_one_transaction_awaited(customers: Any) -> Any:
    """The collections are those that it was given, and the session is not."""

    async def write(message: Message, session: Any) -> None:
        await customers.database.marks.insert_one({"_id": message.id}, session=session)
        await customers.update_one({"_id": "c1"}, {"$inc": {"credit": message.body}}, upsert=True, session=session)

    async def handle(message: Message) -> None:
        async with ASYNC_STAND_IN.database.client.start_session() as session:
            with suppress(DuplicateKeyError):
                await session.with_transaction(lambda _: write(message, session))

    return handle


def emptied_with_its_marks(customers: Any) -> Any:
    customers.database.marks.delete_many({})
    return emptied(customers)


@pytest.mark.parametrize("customers", [STAND_IN, MOCK.shop.customers], ids=["stand-in", "mongomock"])
def test_a_session_of_another_client_is_explored(customers: Any) -> None:
    database = customers.database
    handle = in_one_transaction(database.client, database.name)
    assert_right(on_mongodb(lambda: emptied_with_its_marks(customers), lambda _: handle))


def test_async_session_of_another_client_is_explored() -> None:
    assert_right(on_mongodb(async_world, in_one_transaction_awaited, observe=credits_of))


# ---------------------------------------------------------------- threads


def test_request_from_a_thread_of_the_handler_is_refused(world: Any) -> None:
    def send(message: Message) -> None:
        with suppress(ConfigurationError):
            through_table(guarded=True)(message)

    def handle(message: Message) -> None:
        thread = threading.Thread(target=send, args=[message])
        thread.start()
        thread.join()

    with pytest.raises(ConfigurationError, match="UpdateItem customers c1 was sent by a thread that the handler started"):
        on(world, lambda _: handle)


def test_request_of_an_unrelated_thread_is_allowed(world: Any, moto_table: MakeTable) -> None:
    moto_table("customers", "id")
    other_client = made_here()
    done = threading.Event()
    started = threading.Event()
    answers: list[Any] = []

    def look() -> None:
        while not done.wait(0.001):
            answers.append(other_client.list_tables()["TableNames"])
            started.set()

    other = threading.Thread(target=look)
    other.start()
    assert started.wait(60)
    assert_right(on(world, lambda _: through_table(guarded=True)))
    done.set()
    other.join()
    assert set(map(tuple, answers)) == {("customers",)}


# ---------------------------------------------------------------- what was tested


def test_an_exploration_without_a_write_is_an_error(world: Any) -> None:
    for handle in (lambda message: None, lambda message: TABLE.get_item(Key={"id": "c1"})):
        with pytest.raises(ConfigurationError, match="Nothing was tested, because no call of the handler sent a write"):
            on(world, lambda _, handle=handle: handle)


# ---------------------------------------------------------------- taps on classes


def test_taps_are_removed_after_the_last_exploration(world: Any) -> None:
    before = vars(BaseClient)["_make_api_call"], threading.Thread.start, ThreadPoolExecutor.submit
    inner: list[Exploration] = []

    def handle(table: Any, message: Message) -> None:
        if not inner:
            inner.append(
                explore(lambda _: adding(lambda: STAND_IN, guarded=True), [M1], lambda: emptied(STAND_IN), credited)
            )
        assert inner[0].exhausted
        assert vars(BaseClient)["_make_api_call"] is not before[0]
        through_table(guarded=True)(message)

    assert_right(on(world, build_from(handle), deliveries=1, faults=1))
    with pytest.raises(ConfigurationError):
        on(world, lambda _: None)
    assert (vars(BaseClient)["_make_api_call"], threading.Thread.start, ThreadPoolExecutor.submit) == before


def test_handler_that_imports_its_driver_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    later: Any = ModuleType("later.collection")
    later.Collection = type("Collection", (), {"insert": lambda self, message: STAND_IN.update_one({"_id": "c1"}, message)})
    monkeypatch.setitem(everywhere._CLASSES, "later.collection", {"Collection": frozenset()})

    def handle(_: Any, message: Message) -> None:
        first = "later.collection" not in sys.modules
        monkeypatch.setitem(sys.modules, "later.collection", later)
        if not first:
            adding(lambda: STAND_IN, guarded=True)(message)

    assert_right(on_mongodb(lambda: emptied(STAND_IN), build_from(handle)))


def test_concurrent_explorations_tap_each_module_once(monkeypatch: pytest.MonkeyPatch) -> None:
    taps, tapped, start = everywhere._Taps(), list[str](), threading.Barrier(4)

    def tap_slowly(module: str) -> list[Any]:
        tapped.append(module)
        time.sleep(0.002)
        return []

    def extend(_: int) -> bool:
        start.wait(timeout=10)
        return taps.extend()

    monkeypatch.setattr(everywhere, "_tap_module", tap_slowly)
    with taps.on(), ThreadPoolExecutor(4) as pool:
        taps._originals.clear()  # as if all drivers were imported only now
        tapped.clear()
        assert sum(pool.map(extend, range(4))) == 1
    assert len(tapped) == len(set(tapped)) > 0


def test_sessions_made_in_an_exploration_share_the_descriptions_of_services() -> None:
    def load() -> Any:
        return boto3.Session()._session.get_component("data_loader")

    with everywhere.taps.on():
        one, other = load(), load()
        assert one.load_service_model("sqs", "service-2") is other.load_service_model("sqs", "service-2")
        assert one.search_paths == other.search_paths
