"""Real engines, started once for the folder, and a fresh place on them for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
from botocore.retries.quota import RetryQuota
from botocore.retries.standard import ExponentialBackoff
from pymongo import MongoClient, common
from pymongo.collection import Collection

from onewrite.lean.refusals import METHODS
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.engines.stores import create_table, places
from tests.support.engines import dynoxide_binary, mongod_binary, require
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import FaultProxy
from tests.support.repairs import CollectionPlace, Place, TablePlace, log_as_it_was

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@pytest.fixture(scope="session")
def mongod() -> Iterator[Mongod]:
    require(mongod_binary)
    with Mongod() as server:
        yield server


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[Dynoxide]:
    require(dynoxide_binary)
    with Dynoxide() as server:
        yield server


@pytest.fixture
def mortal(engine: Callable[[], Mongod | Dynoxide]) -> Iterator[Mongod | Dynoxide]:
    """A server of this test's own, which it may kill. `engine` is a parameter of the test."""
    require(mongod_binary if engine is Mongod else dynoxide_binary)
    with engine() as server:
        yield server


@pytest.fixture(scope="session")
def mongo(mongod: Mongod) -> Iterator[MongoClient[dict[str, Any]]]:
    with MongoClient[dict[str, Any]](mongod.uri) as client:
        yield client


@pytest.fixture
def collection(mongo: MongoClient[dict[str, Any]]) -> Collection[dict[str, Any]]:
    """An empty collection of this test's own."""
    return mongo.test[next(places)]


@pytest.fixture(scope="session")
def dynamo(dynoxide: Dynoxide) -> Iterator[DynamoDBClient]:
    client = dynoxide.client()
    yield client
    client.close()


@pytest.fixture
def table(dynamo: DynamoDBClient) -> str:
    """The name of an empty table of this test's own, with `id` for its key."""
    name = next(places)
    create_table(dynamo, name)
    return name


@pytest.fixture(scope="module")
def module_fault_proxy(dynoxide: Dynoxide) -> Iterator[FaultProxy]:
    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        yield proxy


@pytest.fixture
def fault_proxy(module_fault_proxy: FaultProxy) -> Iterator[FaultProxy]:
    """One proxy a module, so clients can be shared; clean for each test."""
    module_fault_proxy.operations.clear()
    module_fault_proxy.past_faults.clear()
    yield module_fault_proxy
    module_fault_proxy.calm()
    module_fault_proxy.after_write = None


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's pause after a lost connection proves nothing here. And a client that many tests share has retries for all of them."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda *_: 0.01)
    monkeypatch.setattr(RetryQuota, "acquire", lambda *_: True)
    monkeypatch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.005)


@pytest.fixture
def mongo_proxy(mongod: Mongod) -> Iterator[MongoProxy]:
    with MongoProxy("127.0.0.1", mongod.port) as proxy:
        yield proxy


@pytest.fixture(params=["dynamodb", "mongodb"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """An entity on either engine, and the verbs that look at it, which set up logging."""
    with log_as_it_was():
        if request.param == "mongodb":
            yield CollectionPlace(request.getfixturevalue("collection"), monkeypatch)
        else:
            yield TablePlace(request.getfixturevalue("dynamo"), request.getfixturevalue("table"), monkeypatch)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes lean clients of a class, whose boto3 client may not be asked."""

    def fell_back(**_: Any) -> NoReturn:
        raise AssertionError("the request was left to boto3")

    def made(kind: Any, client: Any) -> Any:
        target = kind(client)
        for method in METHODS.values():
            monkeypatch.setattr(client, method, fell_back)
        monkeypatch.setattr(target.client_check, "must_use_client", lambda: False)
        return target

    return made
