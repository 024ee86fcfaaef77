"""The command itself: arguments, exit codes, and what it says if a package is missing."""

from __future__ import annotations

import importlib
import re
import sys
from typing import Any

import pytest

from onewrite.operate import main
from onewrite.operate.report import confirm

EFFECTS = ["effects", "--table", "orders"]


VERBS = ["worker", "relay", "effects", "doctor", "inspect", "forget", "set-mark", "clear"]


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0)])
def test_help_lists_each_verb(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    printed = capsys.readouterr()
    told = (printed.err if code else printed.out).partition("  VERB\n")[2]
    assert re.findall(r"^    ([a-z-]+) ", told, re.MULTILINE) == VERBS


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_verb_is_printed(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: onewrite {verb} [-h]")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["doctor", "--sample", "0"], "argument --sample: expected a whole number from 1 to 10000, got '0'"),
        (["effects", "--older-than", "nan"], "argument --older-than: expected a number from 0 to inf, got 'nan'"),
        (["effects", "--table"], "argument --table: expected one argument"),
        (["inspect", "--table", "t", "--key", "--json"], "argument --key: expected one argument"),
        (["effects", "--table", "a", "--table", "b"], "argument --table: pass it once"),
        (["effects", "--tabl", "orders"], "unrecognized arguments: --tabl orders"),
        (["effects", "extra", "more"], "unrecognized arguments: extra more"),
        (["dance"], "invalid choice: 'dance'"),
        (["--json", "effects"], "unrecognized arguments: --json"),
        (["inspect", "--table", "orders"], "--key is missing"),
        (["worker"], "MODULE:HANDLER is missing. Pass it, or set ONEWRITE_WORKER_HANDLER"),
        (["relay", "--metrics", "emf", "--metrics", "x"], "argument --metrics: invalid choice: 'x'"),
        (["relay", "--metrics", "emf", "--metrics", "emf"], "argument --metrics: pass emf once"),
        (["relay", "--outbox", "o", "--skip", ""], "argument --skip: the value is empty"),
        (["effects", "--table", "\x1b[31m", "--tabl\n"], "unrecognized arguments: --tabl\\n"),
    ],
)
def test_wrong_arguments_return_2(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    verb = f"onewrite {arguments[0]}" if arguments[0] in VERBS else "onewrite"
    printed = capsys.readouterr()
    assert printed.err.startswith("onewrite: ")
    assert complaint in printed.err
    assert printed.err.endswith(f". For usage, run `{verb} --help`.\n")
    assert printed.err.count("\n") == 1
    assert printed.out == ""


@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("inspect --table t --key 1 --source s", "--source"),
        ("inspect --table t --key 1 --ledger a:b", "--ledger"),
        ("forget --table t --key 1 --message m --operator ann", "--operator"),
        ("relay --json", "--json"),
        ("relay --skip e --json", "--json"),
        ("relay --operator ann", "--operator"),
        ("relay --stuck --yes", "--yes"),
        ("relay --stuck --to x", "--to"),
        ("relay --skip e --older-than 5", "--older-than"),
        ("relay --once --poll 5", "--poll"),
        ("worker a:b --queue-url u --health-host ::1", "--health-host"),
        ("doctor json --sample 5", "--sample"),
        ("doctor json --region eu-west-1", "--region"),
        ("doctor --queue u --endpoint-url u", "--endpoint-url"),
    ],
)
def test_option_without_effect_is_refused(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command.split()) == 2
    assert f"onewrite: {option} has no effect with" in capsys.readouterr().err


def test_value_can_begin_with_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []
    monkeypatch.setattr("onewrite.operate.effects.open_store", lambda options: found.append(options["table"]))
    main(["effects", "--table", "-x9"])
    assert found == ["-x9"]


@pytest.mark.parametrize(
    ("variable", "complaint"),
    [
        ("WORKER_STOP_WHEN_EMPTY=maybe", "ONEWRITE_WORKER_STOP_WHEN_EMPTY: expected true or false, got 'maybe'"),
        ("WORKER_IN_FLIGHT=0", "ONEWRITE_WORKER_IN_FLIGHT: argument --in-flight: expected a whole number"),
        ("WORKER_METRICS=emf x", "ONEWRITE_WORKER_METRICS: argument --metrics: invalid choice: 'x'"),
    ],
)
def test_wrong_environment_variable_is_named(
    variable: str, complaint: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, value = variable.partition("=")
    monkeypatch.setenv(f"ONEWRITE_{name}", value)
    assert main(["worker", "a:b", "--queue-url", "u"]) == 2
    assert complaint in capsys.readouterr().err


def _keep_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command neither catch this process's signals nor end it."""
    monkeypatch.setattr("onewrite.operate.handle_stop_signals", lambda _: lambda: None)
    monkeypatch.setattr("onewrite.operate.signal.signal", lambda *_: None)
    monkeypatch.setattr("onewrite.operate.end_at_last", lambda _: None)


def test_question_fails_if_stdin_is_closed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("onewrite.operate.effects.open_store", lambda *_: confirm("Is it?"))
    _keep_this_process(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["onewrite", *EFFECTS])
    monkeypatch.setattr(sys, "stdin", None)
    assert main() == 2
    sys.stdin.close()
    assert "onewrite: The question wasn't answered" in capsys.readouterr().err


def test_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["onewrite", "--version"])
    _keep_this_process(monkeypatch)
    with pytest.raises(SystemExit) as end:
        importlib.import_module("onewrite.__main__")  # to import it is to run it
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("onewrite ")


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["effects", "--table", "orders"], "boto3"),
        (["effects", "--collection", "mongodb://127.0.0.1/shop.orders"], "pymongo"),
        (["doctor", "--table", "orders"], "boto3"),
        (["worker", "json:loads", "--queue-url", "https://sqs.eu-west-1.amazonaws.com/1/q"], "boto3"),
        (["worker", "json:loads", "--queue-url", "https://sqs.eu-west-1.amazonaws.com/1/q"], "botocore.exceptions"),
    ],
)
def test_missing_driver_is_named_with_the_remedy(
    command: list[str], name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _forget(monkeypatch, *[each for each in sys.modules if each.startswith(("onewrite.operate.doctor.", "onewrite.sqs"))])
    _hide(monkeypatch, name)
    assert main(command) == 2
    printed = capsys.readouterr()
    extra = "mongodb" if name == "pymongo" else "aws"
    package = name.partition(".")[0]
    assert printed.err == f'onewrite: {package} is not installed. Run: pip install "onewrite[{extra}]"\n'
    assert printed.out == ""


def _forget(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    modules = dict(sys.modules)
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
        parent, _, child = name.rpartition(".")
        if name in modules:  # The next import also replaces the attribute of its package, which must be put back.
            monkeypatch.setattr(modules[parent], child, modules[name], raising=False)


def _hide(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As if not installed: an import finds None, and raises ModuleNotFoundError."""
    monkeypatch.setitem(sys.modules, name, None)
