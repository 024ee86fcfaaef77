"""Every verb ends: at a signal at once, and without one when the endpoint of its table or collection has had its time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from onewrite.operate import main, stores
from tests.support.endpoints import DUMMY, Endpoint, endpoint_of

PATIENCE = 120.0  # seconds for one process on a busy machine
KEY = ("--key", '{"id": "e"}')
VERBS: dict[str, tuple[str, ...]] = {
    "inspect": KEY,
    "effects": (),
    "doctor": (),
    "forget": ("--message", "m", "--yes", *KEY),
    "set-mark": ("--source", "s", "--sequence", "2", "--yes", *KEY),
    "clear": ("--yes", *KEY),
    "relay": ("--outbox", "shop/orders", "--stuck"),
}


@pytest.fixture
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    with endpoint_of(request.param) as made:
        yield made


def command(verb: str, engine: str, host: str) -> list[str]:
    of_table = ["--table", "orders", "--endpoint-url", f"http://{host}"]
    place = of_table if engine == "dynamodb" else ["--collection", f"mongodb://{host}/shop.orders"]
    return [verb, *place, *VERBS[verb]]


def end_of(arguments: list[str], asked: threading.Event, number: signal.Signals) -> tuple[int, str, float]:
    """The exit code, the log, and the seconds from the signal to the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "onewrite", *arguments], env={**os.environ, **DUMMY}, stderr=subprocess.PIPE, text=True
    )
    try:
        assert asked.wait(PATIENCE)
        process.send_signal(number)
        start = time.monotonic()
        _, log = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    return process.returncode, log, time.monotonic() - start


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: str(number.name))
@pytest.mark.parametrize("endpoint", ["silent", "slow", "refusing"], indirect=True)
@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.few(1, each="verb")
def test_signal_ends_a_command_immediately(verb: str, engine: str, endpoint: Endpoint, number: signal.Signals) -> None:
    code, log, seconds = end_of(command(verb, engine, endpoint.host), endpoint.is_asked, number)
    assert (log, code) == ("onewrite: Interrupted by a signal.\n", 130)
    assert seconds < 10  # one, and the pauses of a busy machine


@pytest.mark.parametrize("endpoint", ["silent", "away"], indirect=True)
@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
@pytest.mark.parametrize("verb", VERBS)
def test_unreachable_endpoint_is_reported_in_one_line(
    verb: str, engine: str, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in DUMMY.items():
        monkeypatch.setenv(name, value)
    for name in ("_CONNECT", "_READ_AWS"):
        monkeypatch.setattr(stores, name, 0.3)
    start = time.monotonic()
    assert main(command(verb, engine, endpoint.host)) == 1
    assert time.monotonic() - start < 10
    out, err = capsys.readouterr()
    told = out if verb == "doctor" else err
    assert endpoint.host in told
    assert "configured timeouts" not in told  # with which pymongo fills half a page
    assert len(err.splitlines()) == (verb != "doctor")


# --- a write ----------------------------------------------------------------------------------------------------------------


ITEM = {"id": {"S": "e"}, "ow_l": {"S": "ow1 marks"}, "ow_@s": {"N": "1"}}


@pytest.fixture
def reads_only() -> Iterator[Endpoint]:
    """DynamoDB as far as a read, which never responds to a write."""
    with endpoint_of("silent", {"GetItem": [{"Item": ITEM}]}) as made:
        yield made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: str(number.name))
def test_interrupted_write_is_logged(reads_only: Endpoint, number: signal.Signals) -> None:
    arguments = command("set-mark", "dynamodb", reads_only.host)
    code, log, _ = end_of([*arguments[:-3], "--operator", "ann", *arguments[-3:]], reads_only.is_asked, number)
    line, last = log.splitlines()
    assert 'set-mark of {"id": "e"} (ow_@s: 1 becomes' in line
    assert "ended by KeyboardInterrupt before a response arrived. It is unknown whether it was written." in line
    assert line.endswith("Requested by ann.")
    assert (last, code) == ("onewrite: Interrupted by a signal.", 130)


def test_write_without_a_response_is_logged(
    reads_only: Endpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in DUMMY.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stores, "_READ_AWS", 0.3)
    assert main(command("set-mark", "dynamodb", reads_only.host)) == 1
    assert "ended by ReadTimeoutError before a response arrived. It is unknown whether it was written." in caplog.text
