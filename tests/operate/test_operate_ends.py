"""How verbs end: with which exit code, what they say of modules that fail, and what is theirs to say at all."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError, ParamValidationError
from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from onewrite import Event, HighWaterMark, Message, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.operate import main
from onewrite.operate.report import report_failure
from onewrite.testing.servers.engines import REGION
from tests.engines.stores import create_table

ORDERS = ("--table", "orders", "--key", '{"id": "e"}')
BAD_MODULES = {
    "raises": ("1 / 0", "ZeroDivisionError"),
    "exits": ("import sys; sys.exit(0)", "SystemExit: 0"),
    "needs": ("import nowhere_to_be_found", "nowhere_to_be_found"),
}


@pytest.fixture(autouse=True)
def _table(amazon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "dummy")
    create_table(boto3.client("dynamodb"), "orders")


@pytest.fixture
def store() -> GuardedTable:
    found = GuardedTable(boto3.client("dynamodb"), SeenIds(), table_name="orders")
    found.remember(Message("m1"), Key={"id": "e"})
    return found


# --- modules of the user's ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", BAD_MODULES)
@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "bad_{}", "--strict", "--json"),
        ("relay", "bad_{}:relay", "--once"),
        ("inspect", *ORDERS, "--message", "m", "--ledger", "bad_{}:store", "--json"),
        ("worker", "bad_{}:handler", "--queue-url", "https://sqs.eu-west-1.amazonaws.com/1/q"),
    ],
)  # fmt: skip
def test_failed_import_is_reported(
    bad: str, arguments: tuple[str, ...], folder: Path, store: GuardedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    text, told = BAD_MODULES[bad]
    (folder / f"bad_{bad}.py").write_text(f"{text}\n")
    assert main([each.replace("{}", bad) for each in arguments]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"onewrite: The module bad_{bad} can't be imported: " in printed.err
    assert told in printed.err.splitlines()[-1]


# --- exit codes -----------------------------------------------------------------------------------------------------------


OUTBOX = ("--outbox", "shop/orders")
NOWHERE = f"https://sqs.{REGION}.amazonaws.com/123456789012/nowhere"
# How each verb ends with each exit code. The table `orders` has the entity `e`, and `busy` what there is to be found.
ENDS: dict[int, list[list[str]]] = {
    0: [
        ["inspect", *ORDERS],
        ["forget", "--message", "m1", *ORDERS],
        ["clear", *ORDERS, "--yes"],
        ["effects", "--table", "orders"],
        ["doctor", "--table", "orders"],
        ["relay", "--table", "orders", *OUTBOX, "--stuck"],
        ["relay", "--table", "orders", *OUTBOX, "--once", "--to", NOWHERE],
    ],
    1: [
        ["doctor", "--queue", NOWHERE],
        ["relay", "--table", "busy", *OUTBOX, "--once", "--to", NOWHERE],
        ["worker", "bad_module:handler", "--queue-url", NOWHERE],
    ],
    2: [
        ["inspect", "--table", "orders", "--key", "[]"],
        ["set-mark", "--sequence", "4", *ORDERS],
        ["effects", "--table", "orders", "--collection", "mongodb://host/shop.orders"],
        ["doctor"],
        ["relay", "--table", "orders", *OUTBOX],
        ["relay", "--table", "orders", *OUTBOX, "--index", "none", "--stuck"],
        ["worker", "nowhere_to_be_found:handler", "--queue-url", NOWHERE],
    ],
    3: [
        ["inspect", "--table", "orders", "--key", '{"id": "missing"}'],
        ["clear", "--table", "missing", "--key", '{"id": "e"}'],
        ["effects", "--table", "missing"],
        ["relay", "--table", "orders", *OUTBOX, "--skip", "missing"],
    ],
    4: [
        ["forget", "--message", "m9", *ORDERS],
        ["set-mark", "--table", "busy", "--key", '{"id": "m"}', "--source", "s", "--sequence", "1"],
    ],
    5: [
        ["effects", "--table", "busy"],
        ["relay", "--table", "busy", *OUTBOX, "--stuck"],
        ["relay", "--table", "damaged", *OUTBOX, "--stuck"],
        ["relay", "--table", "damaged", *OUTBOX, "--once", "--to", NOWHERE],
    ],
}


@pytest.fixture
def _busy(store: GuardedTable, folder: Path) -> None:
    """What the verbs find: an effect, a pending event, a mark, a damaged outbox, a queue without dead letters, a module that fails."""
    client = boto3.client("dynamodb")
    for name in ("damaged", "busy"):
        create_table(client, name)
        busy = GuardedTable(client, SeenIds(), table_name=name, outbox=Outbox("shop/orders"))
        busy.remember(Message("m1"), Key={"id": "o"}, emit=[Event("Paid", 1)])
    busy.begin_effect(Message("m2"), "charge", Key={"id": "o"}, lease=timedelta(minutes=1), key_valid_for=timedelta(days=1))
    marks = GuardedTable(client, HighWaterMark(), table_name="busy")
    marks.remember(Message("m", source="s", sequence=1), Key={"id": "m"})
    boto3.resource("dynamodb").Table("damaged").update_item(Key={"id": "o"}, AttributeUpdates={"ow_sent": {"Value": "many"}})
    (folder / "bad_module.py").write_text("1 / 0\n")


@pytest.mark.usefixtures("_busy")
@pytest.mark.parametrize(
    ("code", "command"), [(code, command) for code, commands in ENDS.items() for command in commands], ids=str
)
def test_exit_codes_are_the_same_for_every_command(code: int, command: list[str]) -> None:
    assert main(command) == code


def test_bugs_and_outside_failures_are_distinguished(
    store: GuardedTable, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for error, code, told in (
        (EndpointConnectionError(endpoint_url="http://nowhere"), 1, "The database or the network fails"),
        (OSError("no route"), 1, "The database or the network fails"),
        (NoCredentialsError(), 1, "There are no AWS credentials. Set AWS_PROFILE"),
        (
            ParamValidationError(report="too short"),
            2,
            "The database rejected the request as invalid: Parameter validation failed",
        ),
        (KeyError("ours"), 1, "KeyError: 'ours'. This is a bug in onewrite, not a failure of the database."),
    ):

        def fails(*_: Any, error: Exception = error) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("onewrite.operate.dynamodb.TableStore.read", fails)
            assert main(["inspect", *ORDERS]) == code
        assert told in capsys.readouterr().err


def aws_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "No."}}, "GetItem")


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        (aws_error("AccessDeniedException"), "Check the permissions of your role or user"),
        (aws_error("ExpiredTokenException"), "Renew your credentials"),
        (aws_error("UnrecognizedClientException"), "Renew your credentials"),
        (aws_error("ThrottlingException"), "Repeat the command later"),
        (aws_error("InternalServerError"), "Repeat the command later"),
        (EndpointConnectionError(endpoint_url="http://h"), "Check the network, and the address"),
        (OperationFailure("no", 13, {"codeName": "Unauthorized"}), "Check the permissions of your role or user"),
        (OperationFailure("no", 18, {"codeName": "AuthenticationFailed"}), "Renew your credentials"),
        (ServerSelectionTimeoutError("h:1: refused"), "Check the network, and the address"),
    ],
    ids=repr,
)
def test_failure_names_the_next_step(error: Exception, advice: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_failure(error, "The database or the network fails") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("onewrite: The database or the network fails: ")
    assert advice in line


@pytest.mark.parametrize("number", ["-5", "-0", "7"])
def test_negative_number_is_accepted_as_an_option_value(
    number: str, store: GuardedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["forget", "--message", number, *ORDERS]) == 4
    assert f"message {number}" in capsys.readouterr().err
    assert main(["inspect", *ORDERS, "--message", "m", "--sequence", number]) == 0
    assert main(["forget", "--message", "m", "--colour", *ORDERS]) == 2
    assert main(["set-mark", "--sequence", number, *ORDERS, "--source", "s"]) == 2
    assert "There is no ledger of marks" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["two words", "it's", "$(ls)", "-x"])
def test_command_suggested_by_forget_runs_in_a_shell(source: str, capsys: pytest.CaptureFixture[str]) -> None:
    marks = GuardedTable(boto3.client("dynamodb"), HighWaterMark(), table_name="orders")
    marks.remember(Message("m", source=source, sequence=5), Key={"id": "e"})
    assert main(["forget", *ORDERS, "--message", "m", "--source", source]) == 2
    suggestion = re.search(r"onewrite (set-mark .*) --sequence N", capsys.readouterr().err)
    assert suggestion is not None
    assert main([*shlex.split(suggestion[1]), "--sequence", "4", *ORDERS, "--yes"]) == 0


# --- where the output goes, and a reader that goes ---------------------------------------------------------------------------------------------------


STORE = """
from onewrite import SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.testing.standins.collection import StandInClient

orders = GuardedCollection(StandInClient().shop.orders, SeenIds())
"""


def test_closed_pipe_causes_no_error_message(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text(STORE)
    command = [sys.executable, "-m", "onewrite", "doctor", "many"]
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        command, cwd=tmp_path, stdout=write, stderr=subprocess.PIPE, text=True, check=False, timeout=100
    )
    os.close(write)
    assert (process.stderr, process.returncode) == ("", 1)


@pytest.mark.parametrize(
    ("shell", "module", "code", "told"),
    [
        ("exec {} > /dev/full", STORE, 1, "onewrite: The output can't be written: [Errno 28] No space left on device\n"),
        ("exec {} >&- 2>&-", STORE, 1, ""),
        ("PYTHONIOENCODING=ascii exec {}", "", 2, "onewrite: \\xe9 has no guarded store or handler."),
    ],
)
@pytest.mark.few(1)
def test_unwritable_output_is_reported(shell: str, module: str, code: int, told: str, tmp_path: Path) -> None:
    (tmp_path / "é.py").write_text(module)
    script = shell.format(f"{sys.executable} -m onewrite doctor é")
    process = subprocess.run(["sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert process.returncode == code  # a store alone is not enough for any check
    assert process.stderr.startswith(told)
    assert (process.stderr == "") == (told == "")


LEFT = """
import threading, time
from onewrite import Outbox, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.outbox import Relay
from onewrite.testing.standins.collection import StandInClient

threading.Thread(target=time.sleep, args=(3600,)).start()
orders = GuardedCollection(StandInClient().shop.orders, SeenIds(), outbox=Outbox("shop/orders"))
relay = Relay(orders, print)
"""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("relay", "left:relay", "--once"), 0),
        (("doctor", "left:orders"), 1),
        (("worker", "left:none", "--queue-url", "https://sqs.eu-west-1.amazonaws.com/1/q"), 2),
    ],
)
@pytest.mark.few(1)
def test_command_ends_despite_a_users_thread(arguments: tuple[str, ...], code: int, tmp_path: Path) -> None:
    (tmp_path / "left.py").write_text(LEFT)
    script = "from onewrite.operate import exits, main; exits._LAST_SECONDS = 0.1; raise SystemExit(main())"
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], cwd=tmp_path, stderr=subprocess.PIPE)
    try:
        process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == code


# --- a later format ---------------------------------------------------------------------------------------------------------


def test_later_format_is_reported_and_not_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    table = boto3.resource("dynamodb").Table("orders")
    ledger: dict[str, Any] = {"ow_l": "ow2 14d fancy", "ow_r0": {"x"}, "ow_t": "y", "ow_@s": 7}
    outbox: dict[str, Any] = {"ow_o": "ow2 outbox o", "ow_events": [{}], "ow_due": "2026-01-01T00:00:00.000Z"}
    table.put_item(Item={"id": "e", "n": 1, **ledger, **outbox})

    def told(*arguments: str, code: int) -> str:
        capsys.readouterr()
        assert main([*arguments]) == code, capsys.readouterr().err
        printed = capsys.readouterr()
        return printed.out + printed.err

    text = told("inspect", *ORDERS, "--message", "m1", code=0)
    assert "another version of onewrite" in text
    assert "'ow2 14d fancy'" in text
    assert "'ow2 outbox o'" in text
    assert "source s" not in text
    assert "ow_r0" not in text
    for verb in (("forget", "--message", "m1"), ("set-mark", "--sequence", "3"), ("clear",)):
        assert "'ow2 14d fancy'" in told(*verb, *ORDERS, code=2)
    assert "ow2" not in told("doctor", "--table", "orders", code=0)
    assert "ow2 outbox o" in told("relay", "--table", "orders", "--outbox", "o", "--stuck", code=5)
