"""One business write, the same on both engines: what the proofs deliver and then count.

The write adds 1 to `n` and puts the message's id at the end of the list `effects`, so a lost effect and a doubled one
both show. Everything here can be sent to another process.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from aiobotocore.config import AioConfig
from aiobotocore.session import get_session
from pymongo import MongoClient
from pymongo.monitoring import CommandListener

from onewrite import HighWaterMark, Message, Outcome, SeenIds
from onewrite.core.clock import random_name
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.servers.engines import REGION, Dynoxide, Mongod, dynamo_client
from onewrite.testing.standins.stores import table_request
from tests.support.seams import name_calls

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Engine = Literal["mongod", "dynoxide"]
places = (f"place{n}" for n in itertools.count())
"""Names of tables and collections, which a process uses once."""


class Delivery(NamedTuple):
    message: Message
    entity: str


class Verdict(NamedTuple):
    """An outcome, small enough for a pipe."""

    id: str
    outcome: str


class State(NamedTuple):
    """What the entity says happened to it."""

    n: int
    effects: list[str]


class Apply(Protocol):
    def __call__(self, message: Message, entity: str) -> Outcome: ...


def verdict(outcome: Outcome) -> Verdict:
    return Verdict(outcome.message.id, type(outcome).__name__)


def create_table(client: DynamoDBClient, name: str) -> None:
    client.create_table(**table_request(name, "id"))


def create_table_with_outbox(
    client: DynamoDBClient,
    name: str,
    view: Literal["NEW_IMAGE", "KEYS_ONLY"] = "NEW_IMAGE",
    *,
    key: str = "id",
    shows: Sequence[str] = (),
) -> None:
    """A table with a stream, and with the sparse index `pending`, which `shows` attributes beside the keys."""
    projection = {"ProjectionType": "INCLUDE", "NonKeyAttributes": [*shows]} if shows else {"ProjectionType": "KEYS_ONLY"}
    schema = [{"AttributeName": "ow_shard", "KeyType": "HASH"}, {"AttributeName": "ow_due", "KeyType": "RANGE"}]
    index = {"IndexName": "pending", "KeySchema": schema, "Projection": projection}
    stream = {"StreamEnabled": True, "StreamViewType": view}
    native: dict[str, Any] = {"GlobalSecondaryIndexes": [index], "StreamSpecification": stream}
    client.create_table(**table_request(name, key, types={"ow_shard": "N"}, **native))


def addition(message: Message, entity: str) -> dict[str, Any]:
    """The write in DynamoDB's words."""
    return addition_of([message.id], entity)


def addition_of(effects: Sequence[str], entity: str) -> dict[str, Any]:
    return {
        "Key": {"id": entity},
        "UpdateExpression": "SET effects=list_append(if_not_exists(effects,:none),:effects) ADD n :count",
        "ExpressionAttributeValues": {":none": [], ":effects": [*effects], ":count": len(effects)},
    }


def increment(message: Message) -> dict[str, Any]:
    """The write in MongoDB's words."""
    return increment_of([message.id])


def increment_of(effects: Sequence[str]) -> dict[str, Any]:
    return {"$inc": {"n": len(effects)}, "$push": {"effects": {"$each": [*effects]}}}


def dynamo_state(client: DynamoDBClient, table: str, entity: str = "e") -> State:
    item = client.get_item(TableName=table, Key={"id": {"S": entity}}, ConsistentRead=True).get("Item", {})
    effects = [effect["S"] for effect in item.get("effects", {"L": []})["L"]]
    return State(int(item.get("n", {"N": "0"})["N"]), effects)


def mongo_state(collection: Any, entity: str = "e") -> State:
    document = collection.find_one({"_id": entity}) or {}
    return State(document.get("n", 0), document.get("effects", []))


@dataclass(frozen=True, slots=True)
class Store:
    """Where to write, in a form that another process understands."""

    engine: Engine
    address: str
    place: str
    ledger: SeenIds | HighWaterMark
    driver_retries: bool = True

    @contextmanager
    def open(self, attempts: Callable[[], str] = random_name) -> Iterator[Apply]:
        """The guarded write, for as many threads as like. `attempts` names the calls on DynamoDB."""
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](
                self.address, serverSelectionTimeoutMS=3000, retryWrites=self.driver_retries, retryReads=self.driver_retries
            ) as mongo:
                collection = GuardedCollection(mongo.test[self.place], self.ledger)
                yield lambda message, entity: collection.update_one(
                    message, {"_id": entity}, increment(message), upsert=True
                )
        else:
            retries = {"total_max_attempts": 3 if self.driver_retries else 1, "mode": "standard"}
            client = dynamo_client(self.address, max_pool_connections=8, retries=retries)
            table = name_calls(GuardedTable(client, self.ledger, table_name=self.place), attempts)
            yield lambda message, entity: table.update_item(message, **addition(message, entity))
            client.close()

    def state(self, entity: str = "e") -> State:
        if self.engine == "mongod":
            with MongoClient[dict[str, Any]](self.address) as mongo:
                return mongo_state(mongo.test[self.place], entity)
        client = dynamo_client(self.address)
        try:
            return dynamo_state(client, self.place, entity)
        finally:
            client.close()


def store_on(server: Mongod | Dynoxide, place: str, ledger: SeenIds | HighWaterMark) -> Store:
    """A place on a server; on DynamoDB the table is created."""
    if isinstance(server, Mongod):
        return Store("mongod", server.uri, place, ledger)
    client = server.client()
    create_table(client, place)
    client.close()
    return Store("dynoxide", server.endpoint, place, ledger)


class Commands(CommandListener):
    """The commands that a client of MongoDB sends, as it sends them."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def started(self, event: Any) -> None:
        self.sent.append(dict(event.command))

    def succeeded(self, event: Any) -> None: ...
    def failed(self, event: Any) -> None: ...


def streams_client(endpoint: str, **config: Any) -> Any:
    """A boto3 client for the streams of tables. Dynoxide's shards have names that are too short for boto3's taste."""
    import boto3  # noqa: PLC0415  # the session is slow to make, and few need it
    from botocore.config import Config  # noqa: PLC0415

    session = boto3.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name=REGION)
    return session.client("dynamodbstreams", endpoint_url=endpoint, config=Config(parameter_validation=False, **config))


@contextmanager
def billed(client: Any, operation: str) -> Iterator[list[float]]:
    """The units of the client's requests of this kind, each of which is asked for them."""
    units: list[float] = []

    def ask(params: dict[str, Any], **_: Any) -> None:
        params["ReturnConsumedCapacity"] = "TOTAL"

    def note(parsed: dict[str, Any], **_: Any) -> None:
        found = parsed["ConsumedCapacity"]
        units.append(sum(each["CapacityUnits"] for each in (found if isinstance(found, list) else [found])))

    handlers: dict[str, Any] = {f"provide-client-params.dynamodb.{operation}": ask, f"after-call.dynamodb.{operation}": note}
    for event, handler in handlers.items():
        client.meta.events.register(event, handler)
    yield units
    for event, handler in handlers.items():
        client.meta.events.unregister(event, handler)


@contextmanager
def failing(client: Any, commands: Sequence[str], **data: Any) -> Iterator[None]:
    """The server says this of these commands."""
    point = {"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": {"failCommands": [*commands], **data}}
    client.admin.command(point)
    try:
        yield
    finally:
        client.admin.command({**point, "mode": "off"})


def async_dynamo(endpoint: str, **config: Any) -> Any:
    """An aiobotocore client, to be used in `async with`."""
    return get_session().create_client(
        "dynamodb",
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id="dummy",
        aws_secret_access_key="dummy",  # the engine asks for any
        config=AioConfig(**config),
    )


def applied(verdicts: Sequence[Verdict]) -> Counter[str]:
    """How often each message was said to be applied."""
    return Counter(seen.id for seen in verdicts if seen.outcome == "Applied")
