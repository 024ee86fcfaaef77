"""What a user types by mistake is refused where it is written, by an error that says what to write instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import boto3
import pymongo
import pytest

from onewrite import (
    ConfigurationError,
    Event,
    HighWaterMark,
    IdSet,
    InvalidMessage,
    InvalidUpdate,
    Message,
    Outbox,
    Outcome,
    SeenIds,
    Tombstones,
)
from onewrite.aws_lambda import (
    documentdb_handler,
    dynamodb_stream_handler,
    eventbridge_handler,
    kafka_handler,
    kinesis_handler,
    s3_handler,
    sns_handler,
    sqs_handler,
)
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.identity import cloudevent, skip_deletions, sns, sqs_message_id
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.outbox import AsyncRelay, Relay, stream_handler, to_eventbridge, to_sns, to_sqs
from onewrite.testing import mongomock_collection, moto_table

DECORATORS: list[Any] = [sqs_handler, kinesis_handler, dynamodb_stream_handler, kafka_handler, documentdb_handler]
DECORATORS += [sns_handler, eventbridge_handler, s3_handler]
M1, KEY, ONE = Message("m1"), {"orderId": "o-1"}, {"_id": 1}
EFFECT: dict[str, Any] = {"lease": timedelta(minutes=1), "key_valid_for": timedelta(0)}
MORE: dict[str, Any] = {"outbox": Outbox("shop"), "tombstones": Tombstones(timedelta(days=1))}
# As whoever has no type checker calls them.
untyped: Any = SimpleNamespace(
    GuardedTable=GuardedTable,
    sqs_handler=sqs_handler, sns=sns, skip_deletions=skip_deletions, SeenIds=SeenIds, GuardedCollection=GuardedCollection,
    stream_handler=stream_handler, to_sqs=to_sqs, to_sns=to_sns, to_eventbridge=to_eventbridge,
)  # fmt: skip
SQS: Any = boto3.client("sqs", region_name="eu-west-1")


@pytest.fixture
def table() -> Iterator[Any]:
    with moto_table() as made:
        yield made


@pytest.fixture
def collection() -> Iterator[Any]:
    with mongomock_collection() as made:
        yield made


# --- decorators -------------------------------------------------------------------------------------------------------


def of_a_message(message: Message) -> Outcome | None: ...
def of_messages(messages: list[Message]) -> list[Outcome] | None: ...


def by_record(record: Any) -> Message:
    return Message(record["messageId"])


class Identifies:
    def __call__(self, record: Any) -> Message:
        return Message(record["messageId"])


@pytest.mark.parametrize("decorator", DECORATORS)
def test_decorator_without_an_identity_is_refused_when_called(decorator: Any) -> None:
    unfinished = decorator(of_a_message)
    with pytest.raises(
        ConfigurationError, match=rf"its argument is missing. Write @{decorator.__name__}\(identity\) above the function"
    ):
        unfinished({"Records": []}, None)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: untyped.sqs_handler(sqs_message_id), r"returns an identity. Call it: sqs_handler\(sqs_message_id\("),
        (lambda: untyped.sns(cloudevent), r"cloudevent is a function that returns an identity.*sns\(cloudevent\("),
        (lambda: untyped.skip_deletions("id"), r"skip_deletions\('id'\): expected an identity"),
        (lambda: untyped.sqs_handler(SeenIds), "expected an identity, got the class SeenIds"),
        (lambda: untyped.sqs_handler(by_record, group_by="o")(of_messages), "group_by='o': expected a plain function"),
        (lambda: untyped.sqs_handler(by_record)(Identifies), "Identifies is a class: expected a function of a message"),
    ],
)
def test_wrong_identity_or_function_is_refused_at_once(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make()


# --- stores -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guard", [GuardedTable, AsyncGuardedTable])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("orders", SeenIds()), "'orders'.*expected a table, got its name. Pass for example boto3.resource"),
        ((SeenIds(), SimpleNamespace(name="orders", update_item=print)), "expected a table first, got a ledger"),
        ((SQS, SeenIds()), "expected a DynamoDB client, got a client for sqs"),
        ((boto3.resource("dynamodb", region_name="eu-west-1"), SeenIds()), "expected a table, got a resource"),
        ((object(), SeenIds()), "has no update_item. Pass a boto3 Table"),
    ],
)
def test_wrong_table_is_refused_at_once(guard: Any, given: tuple[Any, Any], said: str) -> None:
    for more in ({}, {"table_name": "orders"}):
        with pytest.raises(ConfigurationError, match=said):
            guard(*given, **more)


def test_guarded_table_is_refused_as_a_table(table: Any, collection: Any) -> None:
    again: Any = GuardedTable
    with pytest.raises(ConfigurationError, match=r"got a guarded store\. Pass the table itself"):
        again(GuardedTable(table, SeenIds()), SeenIds())
    with pytest.raises(ConfigurationError, match="None isn't a ledger: expected SeenIds"):
        again(table, None)
    with pytest.raises(ConfigurationError, match="table_name=3: expected the name of the table"):
        again(table.meta.client, SeenIds(), table_name=3)
    with pytest.raises(ConfigurationError, match="Use GuardedTable"):
        GuardedCollection(table, SeenIds())
    with pytest.raises(ConfigurationError, match=r"got a guarded store\. Pass the collection"):
        GuardedCollection(GuardedCollection(collection, SeenIds()), SeenIds())


def test_other_mongodb_object_is_refused_as_a_collection() -> None:
    with pymongo.MongoClient[dict[str, Any]]("localhost:1", connect=False) as client:
        for wrong, said in ((client, "got a client"), (client.shop, "got a database")):
            with pytest.raises(ConfigurationError, match=said):
                GuardedCollection(wrong, SeenIds())
        with pytest.raises(ConfigurationError, match=r"Collection is from MongoDB\. Use GuardedCollection"):
            untyped.GuardedTable(client.shop.orders, SeenIds(), table_name="orders")
        for wrong_ledger in (client.shop.orders, None):
            with pytest.raises(ConfigurationError, match="isn't a ledger: expected SeenIds"):
                untyped.GuardedCollection(client.shop.orders, wrong_ledger)


@pytest.mark.parametrize("guard", [GuardedCollection, AsyncGuardedCollection])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("orders", SeenIds()), "'orders'.*expected a collection, got its name"),
        ((SeenIds(), object()), "expected a collection first, got a ledger"),
        ((SeenIds, SeenIds()), "SeenIds.*expected a collection, got a class"),
        ((object(), SeenIds()), "has no update_one"),
    ],
)
def test_wrong_collection_is_refused_at_once(guard: Any, given: tuple[Any, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        guard(*given)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"outbox": Outbox}, r"outbox=.*expected an Outbox, for example outbox=Outbox\("),
        ({"tombstones": timedelta(days=1)}, "expected Tombstones"),
        ({"clock": 1.0}, "clock=1.0: expected a function"),
    ],
)
def test_class_in_place_of_an_instance_is_refused(table: Any, collection: Any, options: Any, said: str) -> None:
    for make in (
        lambda: GuardedTable(table, SeenIds(), **options),
        lambda: GuardedCollection(collection, SeenIds(), **options),
    ):
        with pytest.raises(ConfigurationError, match=said):
            make()
    with pytest.raises(ConfigurationError, match=r"HighWaterMark is a class.*Write HighWaterMark\(\)"):
        untyped.SeenIds(previous=HighWaterMark)


# --- calls ------------------------------------------------------------------------------------------------------------

OF_TABLES: dict[str, tuple[Callable[[Any], object], str]] = {
    "the key first": (lambda store: store.update_item(KEY, Key=M1), "expected a Message, got dict"),
    "an id": (lambda store: store.remember("m1", Key=KEY), "expected a Message, got str. Pass Message"),
    "a key of text": (lambda store: store.delete_item(M1, Key="o-1"), "Key is a str: expected a dict"),
    "an effect's name first": (
        lambda store: store.begin_effect("charge", M1, Key=KEY, **EFFECT),
        "expected a Message, got str",
    ),
    "seconds": (
        lambda store: store.begin_effect(M1, "a", Key=KEY, lease=60, key_valid_for=timedelta(0)),
        "lease=60: expected a timedelta",
    ),
    "no effect": (
        lambda store: store.perform_effect(M1, "a", 5, Key=KEY, then=dict, **EFFECT),
        "function: expected a function, got a int",
    ),
    "no then": (
        lambda store: store.perform_effect(M1, "a", print, Key=KEY, then={}, **EFFECT),
        "then=: expected a function, got a dict",
    ),
    "one to batch": (
        lambda store: store.update_batch(M1, dict),
        "update_batch: expected a list of messages first, got a Message",
    ),
    "no function": (
        lambda store: store.update_batch([M1], {"Key": KEY}),
        "update_batch: expected a function after the messages, got a",
    ),
    "a message to release": (
        lambda store: store.release_effect(M1),
        "release_effect: expected the Begun that begin_effect returned, got",
    ),
    "a message to finish": (
        lambda store: store.remember(M1, Key=KEY, finishes=M1),
        "finishes=: expected the Begun or Uncertain that begin_effect returned",
    ),
    "nothing to put": (lambda store: store.put_item(M1, Item={}), "put_item needs the Item to create"),
    "one event": (lambda store: store.remember(M1, Key=KEY, emit=Event("Paid", 1)), r"Write emit=\[Event\("),
}
OF_COLLECTIONS: dict[str, tuple[Callable[[Any], object], str]] = {
    "the filter first": (lambda store: store.update_one(ONE, M1, {}), "expected a Message, got dict"),
    "the message last": (lambda store: store.update_one(ONE, {"$set": {}}, M1), "expected a Message, got dict"),
    "the update first": (lambda store: store.update_one(M1, {"$set": {"a": 1}}, ONE), "where an operator is expected"),
    "a filter of text": (lambda store: store.delete_one(M1, "o-1"), "The filter is a str"),
    "a projection of text": (lambda store: store.find_one(ONE, projection="n"), "The projection: expected a dict or a"),
    "a collation": (lambda store: store.preview(M1, {"_id": "a"}, collation={"locale": "en"}), "Under this collation"),
    "an effect that creates": (
        lambda store: store.begin_effect(M1, "a", ONE, upsert=True, **EFFECT),
        "begin_effect can't create",
    ),
    "a message to find": (lambda store: store.find_one(M1), "Pass only the filter"),
    "an effect's name last": (
        lambda store: store.begin_effect(M1, ONE, "charge", **EFFECT),
        "the effect's name is {'_id': 1}",
    ),
    "the function first": (lambda store: store.update_batch(dict, [M1]), "update_batch: expected a list of messages first"),
}


@pytest.mark.parametrize("mistake", OF_TABLES)
def test_wrong_call_of_a_table_is_refused_unsent(mistake: str, table: Any) -> None:
    call, said = OF_TABLES[mistake]
    with pytest.raises((ConfigurationError, InvalidMessage, InvalidUpdate), match=said):
        call(GuardedTable(table, SeenIds(), **MORE))
    assert table.scan()["Items"] == []


@pytest.mark.parametrize("mistake", OF_COLLECTIONS)
def test_wrong_call_of_a_collection_is_refused_unsent(mistake: str, collection: Any) -> None:
    call, said = OF_COLLECTIONS[mistake]
    with pytest.raises((ConfigurationError, InvalidMessage, InvalidUpdate), match=said):
        call(GuardedCollection(collection, SeenIds(), **MORE))
    assert [*collection.find()] == []


# --- relays -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relay", [Relay, AsyncRelay])
def test_wrong_relay_argument_is_refused_with_an_example(relay: Any, table: Any) -> None:
    orders = GuardedTable(table, SeenIds(), **MORE)
    wrong: list[tuple[Any, Any, str]] = [
        (print, orders, "expected a guarded store"),
        (GuardedTable, print, "expected a guarded store"),
        (orders, None, "expected a function of a list of events"),
        (orders, "https://queue", r"for example to_sqs\(client, queue_url\)"),
        (GuardedTable(table, SeenIds()), print, "has no outbox"),
    ]
    for store, publish, said in wrong:
        with pytest.raises(ConfigurationError, match=said):
            relay(store, publish)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: untyped.to_sqs("https://sqs/1/queue", SQS), r"expected a client with send_message_batch\(\)"),
        (lambda: untyped.to_eventbridge("bus", SQS, source="shop"), r"expected a client with put_events\(\)"),
        (lambda: untyped.stream_handler(Relay), "expected a Relay"),
    ],
)
def test_swapped_publisher_arguments_are_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        make()


# --- options that go together only in failing -------------------------------------------------------------------------

WIDE = SeenIds(previous=tuple(HighWaterMark(name=f"marks-{n}") for n in range(40)))


@pytest.mark.parametrize("ledger", [IdSet("my_ids" * 600), SeenIds(previous=IdSet("my_ids" * 600)), WIDE])
def test_ledger_too_wide_is_named_with_remedies(table: Any, ledger: Any) -> None:
    orders = GuardedTable(table, ledger)
    with pytest.raises(
        InvalidUpdate, match=r"DynamoDB accepts at most 4096.*give the ledgers shorter names, or name fewer.*previous="
    ):
        orders.remember(Message("m", source="s", sequence=1), Key={"orderId": "o-1"})


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("email", "expected the fields that identify one entity"),
        (("_id",), "_id always identifies a document"),
        (("email", "email"), "a field occurs twice"),
        (("$email",), "isn't the name of a field"),
        (("ow_due",), "the store uses 'ow_due' itself"),
        (("messageIDs",), "the store uses 'messageIDs' itself"),
    ],
)
@pytest.mark.parametrize("guard", [GuardedCollection, AsyncGuardedCollection])
def test_key_without_an_entity_is_refused(guard: Any, key: Any, said: str) -> None:
    with (
        mongomock_collection(asynchronous=guard is AsyncGuardedCollection) as made,
        pytest.raises(ConfigurationError, match=said),
    ):
        guard(made, IdSet("messageIDs"), key=key, outbox=Outbox("shop"))
