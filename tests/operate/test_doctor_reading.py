"""What the doctor reads of SQS, Lambda, DynamoDB and a module, and what it does where it may not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import ModuleType
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from onewrite import Applied, HighWaterMark, Message, SeenIds, Tombstones
from onewrite.aws_lambda import kafka_handler, sqs_handler
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.errors import ConfigurationError
from onewrite.identity import fifo_sequence, kafka_position, sqs_message_id
from onewrite.mongodb import GuardedCollection
from onewrite.operate.doctor.amazon import read_function, read_queues, read_table
from onewrite.operate.doctor.facts import (
    EntitySample,
    EventSourceMapping,
    Facts,
    ModuleStore,
    Queue,
    TableDescription,
    TableIndex,
    Unread,
    read_module,
)
from onewrite.operate.doctor.mongodb import read_collection
from onewrite.testing.servers.engines import REGION
from onewrite.testing.standins.collection import StandInClient
from tests.engines.stores import create_table, create_table_with_outbox

pytestmark = pytest.mark.usefixtures("amazon")
NOW = 1_790_000_000.0
ACCOUNT = "123456789012"


def refusal(code: str = "AccessDeniedException") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "not\n  authorized"}}, "Operation")


@dataclass
class Without:
    """A client that refuses these methods, and answers all others."""

    client: Any
    refused: frozenset[str]
    error: Exception = field(default_factory=refusal)
    asked: list[str] = field(default_factory=list[str])

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return partial(self._raise) if name in self.refused else getattr(self.client, name)

    def _raise(self, **_: Any) -> None:
        raise self.error


def without(client: Any, *methods: str, error: Exception | None = None) -> Without:
    return Without(client, frozenset(methods), error or refusal())


# --- SQS and Lambda ---------------------------------------------------------------------------------------------------


def make_queue(name: str = "orders", dead: str | None = "dead") -> str:
    sqs = boto3.client("sqs")
    fifo: Any = {"FifoQueue": "true"} if name.endswith(".fifo") else {}
    if dead is not None:
        sqs.create_queue(QueueName=dead, Attributes={"MessageRetentionPeriod": "1209600", **fifo})
        policy = {"deadLetterTargetArn": arn_of(dead), "maxReceiveCount": 5}
        fifo = {**fifo, "RedrivePolicy": json.dumps(policy)}
    return sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "90", **fifo})["QueueUrl"]


def arn_of(name: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_queue_is_read_with_its_dead_letter_queue(suffix: str) -> None:
    url = make_queue(f"orders{suffix}", f"dead{suffix}")
    found = read_queues(boto3.client("sqs"), url)
    name, dead, fifo = f"orders{suffix}", f"dead{suffix}", bool(suffix)
    assert found.queue == Queue(name, arn_of(name), fifo, 345_600, arn_of(dead), 5)
    assert found.dead_letters == Queue(dead, arn_of(dead), fifo, 1_209_600)


def test_unreadable_queue_names_the_permission() -> None:
    found = read_queues(without(None, "get_queue_attributes"), "https://sqs.eu-west-1.amazonaws.com/1/orders")
    assert isinstance(found.queue, Unread)
    assert (found.queue.permission, found.dead_letters) == ("sqs:GetQueueAttributes", None)
    assert found.queue.error.endswith("not authorized")


def test_missing_queue_is_not_a_missing_permission() -> None:
    found = read_queues(boto3.client("sqs"), f"https://sqs.{REGION}.amazonaws.com/{ACCOUNT}/none")
    assert isinstance(found.queue, Unread)
    assert found.queue.permission is None


def test_queue_is_read_if_dead_letter_queue_is_unreadable() -> None:
    sqs, url = boto3.client("sqs"), make_queue()

    class OnlyTheFirst:
        def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: Any) -> Any:  # noqa: N803  # as botocore names them
            if QueueUrl != url:
                raise refusal("AccessDenied")
            return sqs.get_queue_attributes(QueueUrl=QueueUrl, AttributeNames=AttributeNames)

    found = read_queues(OnlyTheFirst(), url)
    assert isinstance(found.queue, Queue)
    assert isinstance(found.dead_letters, Unread)
    assert found.dead_letters.what == f"the dead-letter queue {url.removesuffix('orders')}dead"


class FakeLambda:
    """Answers as Lambda does, two pages of mappings."""

    def list_event_source_mappings(self, *, FunctionName: str, Marker: str | None = None) -> Any:  # noqa: N803  # as above
        assert FunctionName == "ship"
        if Marker is None:
            first = {"EventSourceArn": arn_of("orders"), "FunctionResponseTypes": ["ReportBatchItemFailures"]}
            off = {"EventSourceArn": arn_of("off"), "State": "Disabled"}
            return {"EventSourceMappings": [first, off], "NextMarker": "more"}
        stream = {"EventSourceArn": "arn:aws:kinesis:eu-west-1:1:stream/s", "State": "Enabled"}
        kafka = {"EventSourceArn": "arn:aws:kafka:eu-west-1:1:cluster/k", "ProvisionedPollerConfig": {"MinimumPollers": 1}}
        reports = {"FunctionResponseTypes": ["ReportBatchItemFailures"]}
        endpoints = {"Endpoints": {"KAFKA_BOOTSTRAP_SERVERS": ["a:9092", "b:9092"]}}
        others: Any = (
            {**kafka, **reports},
            {"SelfManagedEventSource": endpoints, "Topics": ["t"]},
            {"SelfManagedEventSource": {}},
            {"EventSourceArn": "arn:aws:mq:eu-west-1:1:broker:b"},
            {"EventSourceArn": "arn:aws:rds:eu-west-1:1:cluster:c"},
        )
        return {"EventSourceMappings": [stream, *others]}


def test_function_is_read_with_mappings_from_all_pages() -> None:
    found = read_function(FakeLambda(), "ship")
    assert found.feeds == (
        EventSourceMapping(arn_of("orders"), reports_failures=True),
        EventSourceMapping(arn_of("off"), reports_failures=False, enabled=False),
        EventSourceMapping("arn:aws:kinesis:eu-west-1:1:stream/s", reports_failures=False),
        EventSourceMapping("arn:aws:kafka:eu-west-1:1:cluster/k", reports_failures=True, kafka=True, provisioned=True),
        EventSourceMapping("self-managed:kafka:a:9092,b:9092", reports_failures=False, kafka=True),
        EventSourceMapping("self-managed:kafka:", reports_failures=False, kafka=True),
    )


def test_internal_error_is_raised() -> None:
    with pytest.raises(KeyError):
        read_function(without(None, "list_event_source_mappings", error=KeyError("ours")), "ship")


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


def make_table() -> Any:
    client = boto3.client("dynamodb")
    create_table(client, "orders")
    setting: Any = {"Enabled": True, "AttributeName": "expiresAt"}
    client.update_time_to_live(TableName="orders", TimeToLiveSpecification=setting)
    return client


def look(client: Any, limit: int = 100) -> Facts:
    return read_table(client, "orders", limit, lambda: NOW)


def sample_of(found: object) -> EntitySample:
    assert isinstance(found, EntitySample)
    return found


def test_table_is_read_with_indexes_and_ttl() -> None:
    client = boto3.client("dynamodb")
    create_table_with_outbox(client, "of-events", shows=["total"])
    found = read_table(client, "of-events", 100, lambda: NOW)
    pending = TableIndex("pending", ("ow_shard", "ow_due"), frozenset({"total"}), ("N", "S"))
    assert (found.table, found.expiry) == (TableDescription("of-events", ("id",), (pending,)), ())
    found = look(make_table())
    assert (found.table, found.expiry) == (TableDescription("orders", ("id",), ()), ("expiresAt",))
    assert sample_of(found.sample).entities == ()


class Described:
    """A client of a table that is described so."""

    def __init__(self, **described: Any) -> None:
        key_schema = [{"AttributeName": "id", "KeyType": "HASH"}]
        table = {"TableName": "orders", "KeySchema": key_schema, **described}
        self.names: list[str] = []
        self.describe_table = partial(self._answer, {"Table": table})
        self.describe_time_to_live = partial(self._answer, {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}})
        self.scan = partial(self._answer, {"Items": []})

    def _answer(self, answer: Any, *, TableName: str, **_: Any) -> Any:  # noqa: N803  # as botocore names it
        self.names.append(TableName)
        return answer


def test_requests_use_the_given_table_name() -> None:
    arn = "arn:aws:dynamodb:eu-west-2:210987654321:table/orders"  # the account of the credentials may have another one of that name
    client = Described()
    read_table(client, arn, 1, lambda: NOW)
    assert client.names == [arn] * 3


def test_item_is_read_with_its_ledger() -> None:
    client = make_table()
    store = GuardedTable(client, SeenIds(), table_name="orders", clock=lambda: NOW)
    assert isinstance(store.remember(Message("m"), Key={"id": "o1"}), Applied)
    client.put_item(TableName="orders", Item={"id": {"S": "o2"}})
    found = sample_of(look(client).sample)
    one, two = sorted(found.entities, key=lambda each: each.name)
    assert (one.name, one.fields["ow_l"], two.our_fields) == ('{"id": "o1"}', "ow1 14d", ())


def test_sample_limit_holds_over_several_pages() -> None:
    client = make_table()
    for n in range(7):
        client.put_item(TableName="orders", Item={"id": {"S": f"o{n}"}, "text": {"S": "x" * 1000}})

    class InPages:
        describe_table, describe_time_to_live = client.describe_table, client.describe_time_to_live

        def scan(self, *, Limit: int, **more: Any) -> Any:  # noqa: N803  # as botocore names it
            return client.scan(Limit=min(Limit, 2), **more)

    assert [len(sample_of(look(InPages(), limit).sample).entities) for limit in (1, 2, 5, 7, 100)] == [1, 2, 5, 7, 7]


@pytest.mark.parametrize(
    ("method", "permission"), [("describe_time_to_live", "dynamodb:DescribeTimeToLive"), ("scan", "dynamodb:Scan")]
)
def test_unreadable_part_of_a_table_is_named(method: str, permission: str) -> None:
    found = look(without(make_table(), method))
    assert isinstance(found.table, TableDescription)
    assert [fact.permission for fact in found.list_unread()] == [permission]


def test_only_ttl_is_read_if_table_description_is_unreadable() -> None:
    client = without(make_table(), "describe_table")
    found = look(client)
    assert isinstance(found.table, Unread)
    assert found.table.permission == "dynamodb:DescribeTable"
    assert (found.sample, found.expiry) == (found.table, ("expiresAt",))


def test_unreachable_table_is_queried_once() -> None:
    client = without(None, "describe_table", error=EndpointConnectionError(endpoint_url="http://nowhere"))
    found = look(client)
    assert client.asked == ["describe_table"]
    assert isinstance(found.table, Unread)
    assert (found.expiry, found.sample, found.table.permission) == (found.table, found.table, None)


# --- a module ---------------------------------------------------------------------------------------------------------


def module_of(**values: Any) -> ModuleType:
    found = ModuleType("handlers")
    vars(found).update(values)
    return found


def table_store(name: str, ledger: Any, **more: Any) -> GuardedTable:
    return GuardedTable(boto3.resource("dynamodb").Table(name), ledger, **more)


ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/plain"


def test_module_stores_are_found_with_their_ledgers() -> None:
    tombstones = Tombstones(timedelta(days=1))
    documents = GuardedCollection(StandInClient().shop.stock, HighWaterMark())
    first = table_store("orders", SeenIds(), tombstones=tombstones)
    found = read_module("shop", module_of(a=first, again=first, b=documents, d=table_store(ARN, SeenIds()), e=7))
    assert found.name == "shop"
    assert found.stores == (
        ModuleStore("the table orders", SeenIds(), tombstones),
        ModuleStore("the collection stock", HighWaterMark()),
        ModuleStore("the table plain", SeenIds()),
    )
    assert read_module("shop:a", first).stores == found.stores[:1]


def test_module_without_a_store_or_handler_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"shop has no guarded store or handler\. Name the store"):
        read_module("shop", module_of(a=7))


def test_module_names_handlers_with_sqs_message_id() -> None:
    def ship(_: object) -> None: ...

    found = read_module("shop", module_of(a=sqs_handler(sqs_message_id())(ship), b=sqs_handler(fifo_sequence())(ship)))
    assert found.bare_handlers == (read_module("shop:a", sqs_handler(sqs_message_id())(ship)).bare_handlers)
    assert len(found.bare_handlers) == 1


def test_module_shows_whether_kafka_handlers_respond() -> None:
    def handler(**options: Any) -> Any:
        return kafka_handler(kafka_position(), **options)(lambda _: None)

    assert read_module("shop", module_of(a=sqs_handler(sqs_message_id())(lambda _: None))).kafka_answers is None
    assert read_module("shop", module_of(a=handler())).kafka_answers is False
    assert read_module("shop", module_of(a=handler(), b=handler(provisioned_mode=True))).kafka_answers is True
    assert read_module("shop:a", handler(provisioned_mode=True)).kafka_answers is True


def test_asynchronous_store_is_found() -> None:
    class Asynchronous:
        __module__ = "aiobotocore.client"

        async def update_item(self, **_: Any) -> None: ...

    store = AsyncGuardedTable(Asynchronous(), SeenIds(), table_name="orders")
    assert read_module("shop", module_of(store=store)).stores == (ModuleStore("the table orders", SeenIds()),)


# --- MongoDB, where no server is needed -------------------------------------------------------------------------------


class Answering:
    """A collection with one document, and with these indexes unless they cannot be read."""

    name = "orders"

    def __init__(self, document: dict[str, Any], indexes: dict[str, Any] | Exception) -> None:
        self._document, self._indexes, self.asked = document, indexes, list[str]()

    def index_information(self) -> Any:
        self.asked.append("index_information")
        if isinstance(self._indexes, Exception):
            raise self._indexes
        return self._indexes

    def aggregate(self, _: Any) -> Any:
        self.asked.append("aggregate")
        return iter([self._document])


def look_at(collection: Answering) -> Facts:
    return read_collection(collection, 10, lambda: NOW)


def test_unreachable_server_is_queried_once() -> None:
    collection = Answering({}, ServerSelectionTimeoutError("no server"))
    found = look_at(collection)
    assert collection.asked == ["index_information"]
    assert isinstance(found.sample, Unread)
    assert {found.expiry, found.index_keys} == {found.sample}


@pytest.mark.parametrize("code", [13, 8000])  # MongoDB's and Atlas's
def test_documents_are_read_if_index_permission_is_missing(code: int) -> None:
    found = look_at(Answering({"_id": 1}, OperationFailure("no", code)))
    assert isinstance(found.index_keys, Unread)
    assert found.index_keys.permission == "listIndexes"
    assert len(sample_of(found.sample).entities) == 1
