"""Real engines for tests that a stand-in can't serve, such as those of threads, lost responses, and failovers.

`with mongod() as server:` starts MongoDB, and `dynoxide()` starts an engine that behaves like DynamoDB. If the program isn't
installed, they raise `ProgramMissing`, and pytest and unittest skip the test. The error explains how to get the program. Nothing is
downloaded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

from onewrite.testing.errors import needed_by
from onewrite.testing.servers.process import START_SECONDS, ServerProcess, find_dynoxide, find_mongod
from onewrite.testing.standins.stores import boto3_session, table_request

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient, DynamoDBServiceResource
    from pymongo import MongoClient
    from pymongo.collection import Collection

REGION = "eu-west-1"


def mongod() -> Mongod:
    """Return a MongoDB server for this test alone. Use it in a `with` block. It's a replica set of one member, so it supports transactions."""
    return Mongod()


def dynoxide() -> Dynoxide:
    """Return a DynamoDB engine for this test alone. Use it in a `with` block."""
    return Dynoxide()


class Mongod(ServerProcess):
    """A mongod with fail points: a replica set of one member, which supports retryable writes and transactions."""

    name: ClassVar[str] = "mongod"

    def __init__(self) -> None:
        with needed_by("mongod", "mongodb"):
            import_module("pymongo")
        super().__init__()
        self._binary = find_mongod()
        self._initiated = False
        self._clients: list[MongoClient[dict[str, Any]]] = []

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def client(self, **options: Any) -> MongoClient[dict[str, Any]]:
        """Return a client that is closed with the server. `options` are the arguments of MongoClient."""
        client = self._connect(**options)
        self._clients.append(client)
        return client

    def collection(self, name: str = "orders", *, database: str = "test") -> Collection[dict[str, Any]]:
        """Return an empty collection. An existing one of this name is dropped."""
        collection = (self._clients[0] if self._clients else self.client())[database][name]
        collection.drop()
        return collection

    def close(self) -> None:
        while self._clients:
            self._clients.pop().close()
        super().close()
        self._initiated = False

    def _connect(self, **options: Any) -> MongoClient[dict[str, Any]]:
        from pymongo import MongoClient

        return MongoClient(self.uri, **options)

    def _make_command(self, folder: Path) -> list[str]:
        (folder / "data").mkdir(exist_ok=True)
        command = [str(self._binary), "--dbpath", str(folder / "data"), "--port", str(self.port)]
        command += ["--bind_ip", "127.0.0.1", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.5"]
        for parameter in (
            "enableTestCommands=1",
            "diagnosticDataCollectionEnabled=false",
            "shutdownTimeoutMillisForSignaledShutdown=100",  # no other member can take over
        ):
            command += ["--setParameter", parameter]
        return [*command, "--replSet", "rs0", "--oplogSize", "64"]

    def _is_ready(self) -> bool:
        """Whether the server accepts writes. The first call that reaches it initiates its replica set."""
        from pymongo.errors import PyMongoError

        with self._connect(serverSelectionTimeoutMS=2000, connectTimeoutMS=2000) as client:
            try:
                if self._process is None or client.admin.command("serverStatus")["pid"] != self._process.pid:
                    return False  # another server has this port, so this one is about to exit
                if not self._initiated:
                    member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
                    client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
                    self._initiated = True
                return self._wait_until_writable(client)
            except PyMongoError:
                return False

    def _wait_until_writable(self, client: MongoClient[dict[str, Any]]) -> bool:
        """Poll on one connection until the election is over. A new client for each poll would take longer than the election."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.running:
            if client.admin.command("hello")["isWritablePrimary"]:
                return True
            time.sleep(0.01)
        return False


class Dynoxide(ServerProcess):
    """An engine that behaves like DynamoDB over HTTP. It starts in milliseconds, and its data survives kill() and restart()."""

    name: ClassVar[str] = "dynoxide"

    def __init__(self) -> None:
        with needed_by(self.name, "dynamodb"):
            import_module("boto3")
        super().__init__()
        self._binary = find_dynoxide()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **config: Any) -> DynamoDBClient:
        """Return a low-level client. `config` are the arguments of botocore's Config."""
        return dynamo_client(self.endpoint, **config)

    def resource(self, **config: Any) -> DynamoDBServiceResource:
        """Return a resource. Like every boto3 resource, it must not be shared between threads."""
        return dynamo_resource(self.endpoint, **config)

    def table(
        self,
        name: str = "orders",
        key: str = "orderId",
        *,
        sort_key: str | None = None,
        types: Mapping[str, str] | None = None,
        **native: Any,
    ) -> Any:
        """Return an empty table. It takes the arguments of `moto_table`. An existing table of this name is dropped."""
        request = table_request(name, key, sort_key=sort_key, types=types, **native)
        resource: Any = self.resource()
        with suppress(resource.meta.client.exceptions.ResourceNotFoundException):
            resource.Table(request["TableName"]).delete()
        return resource.create_table(**request)

    def _make_command(self, folder: Path) -> list[str]:
        command = [str(self._binary), "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        return [*command, "--db-path", str(folder / "data.sqlite")]

    def _is_ready(self) -> bool:
        from botocore.exceptions import BotoCoreError, ClientError

        if f"listening on {self.endpoint}" not in self.log_tail():
            return False  # another server responds on this port
        client = self.client(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
        try:
            client.list_tables(Limit=1)
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True


_session_lock = threading.Lock()


def dynamo_client(endpoint: str, **config: Any) -> DynamoDBClient:
    """Return a boto3 client for an engine, or for a proxy in front of it. `config` are the arguments of botocore's Config."""
    return cast("DynamoDBClient", _connect_boto3("client", endpoint, config))


def dynamo_resource(endpoint: str, **config: Any) -> DynamoDBServiceResource:
    """Return a boto3 resource for an engine. Like every boto3 resource, it must not be shared between threads."""
    return cast("DynamoDBServiceResource", _connect_boto3("resource", endpoint, config))


def _connect_boto3(kind: str, endpoint: str, config: Mapping[str, Any]) -> Any:
    from botocore.config import Config

    with _session_lock:  # a Session isn't safe for two threads, but its clients are
        make: Callable[..., Any] = getattr(boto3_session(REGION), kind)
        return make("dynamodb", endpoint_url=endpoint, config=Config(**config))
