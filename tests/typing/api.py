"""Never run: what mypy and pyright must find in the public types."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn, assert_never, assert_type

from aws_lambda_powertools.utilities.typing import LambdaContext
from boto3.dynamodb.conditions import Attr
from mypy_boto3_dynamodb import DynamoDBClient, DynamoDBServiceResource
from pymongo import ReturnDocument
from types_aiobotocore_dynamodb import DynamoDBClient as AsyncClient

from onewrite import (
    Applied,
    BeginOutcome,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    Gone,
    HighWaterMark,
    IdSet,
    InSequence,
    Message,
    Missing,
    Outcome,
    Rejected,
    SeenIds,
    Stale,
    TakenOver,
    Tombstones,
    Uncertain,
    sortable,
)
from onewrite.aws_lambda import Report, kafka_handler, kinesis_handler, sns_handler, sqs_handler
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.identity import json_body
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.sqs import Worker
from onewrite.testing import explore, lambda_context
from onewrite.testing.explorer.exploration import Exploration


def an_outcome_is_one_of_ten(outcome: Outcome) -> str:
    match outcome:
        case Applied():
            assert_type(outcome.retried, bool)
            return "applied"
        case Duplicate():
            return "duplicate"
        case Stale():
            assert_type(outcome.mark, int | str)
            return "stale"
        case Deferred():
            assert_type(outcome.expected, int | str)
            return "deferred"
        case Rejected():
            return "rejected"
        case Missing():
            assert_type(outcome.settled, bool)
            return "missing"
        case Gone() | TakenOver():
            return "gone or taken over"
        case Busy():
            assert_type(outcome.until, float)
            return "busy"
        case Uncertain():
            assert_type(outcome.fence, str)
            return "uncertain"
    assert_never(outcome)


def every_outcome_has_these(outcome: Outcome) -> None:
    assert_type(outcome.message, Message)
    assert_type(outcome.entity, dict[str, Any] | None)
    assert_type(outcome.settled, bool)


def two_outcomes_have_more(applied: Applied, message: Message) -> None:
    assert_type(applied.response, Any)
    assert_type(Rejected(message, settled=False).settled, bool)
    Duplicate(message, settled=False)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def an_outcome_is_no_yes_or_no(outcome: Outcome) -> None:
    assert_type(outcome.__bool__(), NoReturn)


def a_message_is_what_it_is_made_of(message: Message) -> None:
    assert_type(message.id, str)
    assert_type(message.source, str)
    assert_type(message.sequence, int | str | None)
    assert_type(message.child("charge"), str)
    assert_type(message.part("stock"), Message)
    assert_type(message.parts, tuple[str, ...])
    assert_type(sortable(7), str)
    Message("m1", source="s", sequence="0007", body={"any": "thing"}, attributes={"a": 1})
    Message(b"m1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Message("m1", sequence=1.5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    message.id = "m2"  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]


def the_ledgers_are_ledgers() -> tuple[Ledger, ...]:
    SeenIds(retention=14)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    SeenIds(digest=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    SeenIds(previous=[SeenIds()])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    HighWaterMark(previous="events")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    SeenIds().retention = None  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    return (
        SeenIds(),
        IdSet("ids"),
        SeenIds(timedelta(days=1), previous=SeenIds()),
        SeenIds(previous=(SeenIds(timedelta(days=1), previous=HighWaterMark()), InSequence())),
        HighWaterMark(name="marks", previous=HighWaterMark()),
        InSequence(first=0, name="marks"),
    )


def a_class_is_no_ledger() -> None:
    SeenIds(previous=SeenIds)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def a_guarded_table(client: Any, clock: Callable[[], float], message: Message) -> None:
    orders = GuardedTable(client, SeenIds(), table_name="orders", clock=clock)
    assert_type(orders.update_item(message, Key={"id": 1}, UpdateExpression="REMOVE a"), Outcome)
    assert_type(orders.put_item(message, Item={"id": 1}), Outcome)
    assert_type(orders.delete_item(message, Key={"id": 1}, ReturnValues="ALL_OLD"), Outcome)
    assert_type(orders.remember(message, Key={"id": 1}), Outcome)
    assert_type(orders.preview(message, Key={"id": 1}), Outcome)
    assert_type(orders.get_item(Key={"id": 1}), dict[str, Any] | None)
    assert_type(orders.without_ledger({"id": 1}), dict[str, Any])
    assert_type(orders.explain("update_item", message, Key={"id": 1}, UpdateExpression="REMOVE a"), dict[str, Any])
    GuardedTable(client, SeenIds(), "orders")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    GuardedTable(client, "SeenIds")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    GuardedTable(client, SeenIds)  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    orders.update_item("m1", Key={"id": 1})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def an_async_guarded_table(client: Any, clock: Callable[[], float], message: Message) -> None:
    orders = AsyncGuardedTable(client, HighWaterMark(), table_name="orders", clock=clock)
    assert_type(await orders.update_item(message, Key={"id": 1}, UpdateExpression="REMOVE a"), Outcome)
    assert_type(await orders.get_item(Key={"id": 1}), dict[str, Any] | None)
    assert_type(await orders.remember(message, Key={"id": 1}), Outcome)
    await orders.update_item(message, Key={"id": 1}, UpdateExpresion="REMOVE a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await orders.get_item(Kee={"id": 1})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(orders.explain("remember", message, Key={"id": 1}), dict[str, Any])


def a_native_call_is_checked_as_boto3_stubs_would(orders: GuardedTable, message: Message) -> None:
    orders.update_item(message, Key={"id": 1}, UpdateExpresion="REMOVE a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.update_item(message, UpdateExpression="REMOVE a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.update_item(message, Key={"id": 1}, ReturnValues="NEW")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.update_item(message, Key={"id": 1}, Item={"id": 1})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.put_item(message, Key={"id": 1})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.remember(message, Key={"id": 1}, UpdateExpression="REMOVE a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.delete_item(message, Key={"id": 1}, ReturnValues="ALL_NEW")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.delete_item(message, Key={"id": 1}, UpdateExpression="REMOVE a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.preview(message, Key={"id": 1}, ProjectionExpression="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.get_item(Kee={"id": 1})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    orders.update_item(message, Key={"id": 1}, ConditionExpression=Attr("a").exists(), ReturnConsumedCapacity="TOTAL")
    of_any_type: dict[str, Any] = {"Key": {"id": 1}, "UpdateExpression": "REMOVE a"}
    orders.update_item(message, **of_any_type)


def several_messages_are_one_write(orders: GuardedTable, messages: list[Message]) -> None:
    def added(fresh: list[Message]) -> dict[str, Any]:
        return {"Key": {"id": 1}, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": len(fresh)}}

    async def slowly(fresh: list[Message]) -> dict[str, Any]:
        return added(fresh)

    assert_type(orders.update_batch(messages, added), list[Outcome])
    orders.update_batch(iter(messages), lambda fresh: {"Key": {"id": fresh[0].source}})
    orders.update_batch(messages, slowly)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.update_batch(["m1"], added)  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    orders.update_batch(messages, lambda fresh: [fresh])  # type: ignore[arg-type,return-value]  # pyright: ignore[reportArgumentType]


async def several_messages_are_one_write_of_a_collection(
    stock: GuardedCollection, later: AsyncGuardedCollection, messages: list[Message]
) -> None:
    async def slowly(fresh: list[Message]) -> dict[str, Any]:
        return {"filter": {"_id": len(fresh)}}

    assert_type(stock.update_batch(messages, lambda _: {"filter": {"_id": 1}, "update": {"$inc": {"n": 1}}}), list[Outcome])
    assert_type(await later.update_batch(messages, slowly), list[Outcome])
    stock.update_batch(messages, slowly)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def several_messages_are_one_write_of_an_async_store(orders: AsyncGuardedTable, messages: list[Message]) -> None:
    async def slowly(fresh: list[Message]) -> dict[str, Any]:
        return {"Key": {"id": len(fresh)}}

    assert_type(await orders.update_batch(messages, slowly), list[Outcome])
    assert_type(await orders.update_batch(messages, lambda _: {"Key": {"id": 1}}), list[Outcome])


def a_client_needs_the_tables_name(resource: DynamoDBServiceResource, client: DynamoDBClient, aio: AsyncClient) -> None:
    GuardedTable(resource.Table("orders"), SeenIds())
    GuardedTable(client, SeenIds(), table_name="orders")
    GuardedTable(client, SeenIds(), table_name="orders", lean=True)
    GuardedTable(resource.Table("orders"), SeenIds(), lean=True)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]
    GuardedTable(client, SeenIds())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    AsyncGuardedTable(aio, SeenIds(), table_name="orders")
    AsyncGuardedTable(aio, SeenIds())  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def a_guarded_collection(collection: Any, clock: Callable[[], float], message: Message) -> None:
    stock = GuardedCollection(collection, InSequence(), clock=clock, durability="acknowledged")
    assert_type(stock.update_one(message, {"_id": 1}, {"$inc": {"n": 1}}, upsert=True), Outcome)
    assert_type(stock.update_one(message, {"_id": 1}, [{"$set": {"n": 1}}]), Outcome)
    assert_type(stock.find_one_and_update(message, {"_id": 1}, {"$inc": {"n": 1}}), Outcome)
    assert_type(stock.delete_one(message, {"_id": 1}), Outcome)
    assert_type(stock.find_one_and_delete(message, {"_id": 1}), Outcome)
    assert_type(stock.insert_one(message, {"_id": 1}), Outcome)
    assert_type(stock.remember(message, {"_id": 1}), Outcome)
    assert_type(stock.preview(message, {"_id": 1}), Outcome)
    assert_type(stock.find_one({"_id": 1}), dict[str, Any] | None)
    assert_type(stock.without_ledger({"_id": 1}), dict[str, Any])
    assert_type(stock.explain("update_one", message, {"_id": 1}, {"$inc": {"n": 1}}), dict[str, Any])
    GuardedCollection(collection, InSequence(), key=("email",))
    GuardedCollection(collection, InSequence(), tombstones=Tombstones(timedelta(days=14), ttl_attribute="expires"))
    GuardedCollection(collection, InSequence(), key=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    GuardedCollection(collection, InSequence(), durability="w1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stock.update_one({"_id": 1}, {"$inc": {"n": 1}})  # type: ignore[call-arg, arg-type]  # pyright: ignore[reportCallIssue]


def a_native_call_is_checked_as_pymongo_would(stock: GuardedCollection, message: Message) -> None:
    stock.update_one(message, {"_id": 1}, {"$inc": {"n": 1}}, upsret=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    stock.update_one(message, {"_id": 1}, {"$inc": {"n": 1}}, upsert="yes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    stock.find_one_and_update(message, {"_id": 1}, {"$inc": {"n": 1}}, return_document=ReturnDocument.AFTER, maxTimeMS=100)
    stock.insert_one(message, {"_id": 1}, upsert=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    stock.delete_one(message, {"_id": 1}, upsert=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    stock.preview(message, {"_id": 1}, projection={"n": 1})  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    stock.find_one({"_id": 1}, projection={"n": 1}, sort=[("n", -1)], max_time_ms=100)
    stock.remember(message, {"_id": 1}, upsert=False, comment="why")


async def an_async_guarded_collection(collection: Any, message: Message) -> None:
    stock = AsyncGuardedCollection(collection, SeenIds(), key=["tenant", "email"], durability="majority")
    assert_type(await stock.update_one(message, {"_id": 1}, {"$inc": {"n": 1}}, upsert=True), Outcome)
    assert_type(await stock.find_one({"_id": 1}), dict[str, Any] | None)
    assert_type(await stock.preview(message, {"_id": 1}), Outcome)
    await stock.update_one(message, {"_id": 1}, {"$inc": {"n": 1}}, upsret=True)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(stock.explain("update_one", message, {"_id": 1}, {"$inc": {"n": 1}}), dict[str, Any])


def replacing_never_returns(collection: Any) -> NoReturn:
    GuardedCollection(collection, SeenIds()).replace_one({"_id": 1}, {"_id": 1})


def a_handler(stock: GuardedCollection) -> None:
    @sqs_handler(json_body(id="id"), max_workers=4)
    def ship(message: Message) -> Outcome:
        return stock.remember(message, {"_id": 1})

    assert_type(ship.function(Message("m1")), Outcome)
    assert_type(ship({"Records": []}), dict[str, list[dict[str, Any]]])
    assert_type(ship.run({"Records": []}), Report)

    @sqs_handler(json_body(id="id"))
    def any_answer(message: Message) -> BeginOutcome:
        return Begun(message, "key", "fence", 0.0, 60.0)

    assert_type(any_answer.run({}), Report)

    sqs_handler(json_body(id="id"), max_worker=4)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]

    @sqs_handler(json_body(id="id"))  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    def _stray(message: Message) -> dict[str, Any]:
        return {"id": message.id}


def _key(message: Message) -> str:
    return message.source


def handlers_of_groups() -> None:
    @sqs_handler(json_body(id="id"), group_by=lambda message: message.source, max_workers=4)
    def settle(messages: list[Message]) -> list[Outcome]:
        return [Applied(message) for message in messages]

    assert_type(settle.function([Message("m1")]), list[Outcome])
    assert_type(settle({"Records": []}), dict[str, list[dict[str, Any]]])
    Worker("https://queue", settle)

    @kinesis_handler(json_body(id="id"), group_by=lambda message: message.body["orderId"])
    async def later(messages: list[Message]) -> tuple[BeginOutcome, ...] | None:
        return tuple(Applied(message) for message in messages) or None

    assert_type(later.run({}), Report)

    @sqs_handler(json_body(id="id"), group_by=lambda message: message.source)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def _of_one(message: Message) -> list[Outcome]:
        return [Applied(message)]

    @sqs_handler(json_body(id="id"), group_by=lambda message: message.source)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    def _stray(messages: list[Message]) -> Outcome:
        return Applied(messages[0])

    @kafka_handler(json_body(id="id"), group_by=lambda message: message.source, provisioned_mode=True)
    def of_a_partition(messages: list[Message]) -> None: ...

    assert_type(of_a_partition({}), dict[str, list[dict[str, Any]]])
    kafka_handler(json_body(id="id"), provisioned_mode="yes")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]

    sns_handler(json_body(id="id"), group_by=_key)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def options_of_any_type_leave_a_handler_typed(options: dict[str, Any]) -> None:
    # pyright chooses none of two overloads that differ in group_by, which may be among these.
    @sqs_handler(json_body(id="id"), **options)  # pyright: ignore[reportUntypedFunctionDecorator]
    def ship(message: Message) -> Outcome:
        return Applied(message)

    @kafka_handler(**options)  # pyright: ignore[reportUntypedFunctionDecorator]
    def later(messages: list[Message]) -> list[Outcome]:
        return [Applied(message) for message in messages]

    @sns_handler(json_body(id="id"), **options)
    def told(message: Message) -> None: ...

    assert_type(ship.function(Message("m1")), Outcome)  # pyright: ignore[reportAssertTypeFailure, reportFunctionMemberAccess]
    assert_type(later.function([Message("m1")]), list[Outcome])  # pyright: ignore[reportAssertTypeFailure, reportFunctionMemberAccess]
    assert_type(told.run({}), Report)


def a_context_fits_a_handler_that_asks_for_that_of_powertools(
    handler: Callable[[dict[str, Any], LambdaContext], Any],
) -> None:
    handler({}, lambda_context(remaining_ms=1000))


def a_decorator_without_an_identity_is_none() -> None:
    @sqs_handler  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    def _ship(message: Message) -> Outcome:
        return Applied(message)

    sns_handler()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def an_exploration(
    build: Callable[[Any], Callable[[Any], object]], world: Callable[[], Any], messages: list[Message]
) -> None:
    assert_type(explore(build, messages, world, repr), Exploration)
    assert_type(explore(build, messages=messages, world=world, observe=repr, invariant=bool, faults=0), Exploration)
    assert_type(explore.random(build, messages, world, repr, seed=1, reorder="within_source"), Exploration)
    explore(build, messages, world)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    explore(build, messages, world, repr, crashs=0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    explore(build, messages, world, repr, seed=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    explore(build, messages, world, repr, faults="one")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    explore.random(build, messages, world, repr, reorder="sometimes")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
