"""The command itself: arguments, exit codes, and what it says if a package is missing."""

from __future__ import annotations

import importlib
import io
import re
import sys

import pytest
import typer
import typer.main

from onewrite.operate import main
from onewrite.operate.report import is_plain

REMEDY = 'pip install "onewrite[cli,aws,mongodb]"'
STEPS = ["steps", "--table", "orders"]


VERBS = ["worker", "relay", "steps", "doctor", "inspect", "forget", "set-mark", "clear"]


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0)])
def test_each_command_is_listed_in_whole_sentences(
    arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    printed = capsys.readouterr()
    told = (printed.err if code else printed.out).partition("Commands:\n")[2]
    assert re.findall(r"^  ([a-z-]+) ", told, re.MULTILINE) == VERBS
    assert "..." not in told


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["doctor", "--sample", "0"], "--sample 0: expected a whole number from 1 to 10000."),
        (["steps", "--older-than", "-1"], "--older-than -1: expected a number from 0 on."),
        (["steps", "--table"], "--table needs a value after it."),
        (["steps", "--json=3"], "--json doesn't take a value. Pass it alone."),
        (["steps", "--tabl", "orders"], "--tabl isn't an option of this verb. Did you mean --table?"),
        (["steps", "extra", "more"], "extra more isn't an argument of this verb."),
        (["dance"], "'dance' isn't a verb. The verbs are clear, doctor, forget,"),
        (["inspect", "--table", "orders"], "--key is missing. Pass --key JSON."),
        (["worker"], "MODULE:HANDLER is missing. Pass it, or set ONEWRITE_WORKER_HANDLER."),
        (["relay", "--metrics", "emf", "--metrics", "x"], "--metrics emf x: expected one of emf, opentelemetry."),
        (["relay", "--outbox", "o", "--skip", ""], "--skip is empty. Pass --skip ID."),
        (["doctor", "nowhere_to_be_found"], "there is no module 'nowhere_to_be_found'"),
    ],
)
def test_wrong_arguments_return_2(arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("onewrite: ")
    assert complaint in printed.err
    assert "--help`" in printed.err or "is empty" in complaint or "no module" in complaint
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert "\x1b" not in printed.err


def test_wrong_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("ONEWRITE_WORKER_STOP_WHEN_EMPTY", "maybe")
    assert main(["worker", "a:b", "--queue-url", "u"]) == 2
    assert "ONEWRITE_WORKER_STOP_WHEN_EMPTY maybe: expected true or false." in capsys.readouterr().err


def _keep_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the command neither catch this process's signals nor end it."""
    monkeypatch.setattr("onewrite.operate.handle_stop_signals", lambda _: lambda: None)
    monkeypatch.setattr("onewrite.operate.end_at_last", lambda _: None)


def test_question_fails_if_stdin_is_closed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("onewrite.operate.steps.open_store", lambda *_: typer.confirm("Is it?"))
    _keep_this_process(monkeypatch)
    monkeypatch.setattr(sys, "argv", ["onewrite", *STEPS])
    monkeypatch.setattr(sys, "stdin", None)
    assert main() == 1
    sys.stdin.close()
    assert "onewrite: The question got no answer" in capsys.readouterr().err


def test_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["onewrite", "--version"])
    _keep_this_process(monkeypatch)
    with pytest.raises(SystemExit) as end:
        importlib.import_module("onewrite.__main__")  # to import it is to run it
    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("onewrite ")


@pytest.mark.parametrize("name", ["typer", "rich.table"])
def test_missing_command_package_is_named_with_the_remedy(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _forget(monkeypatch, "onewrite.operate.app", "onewrite.operate.steps")
    _hide(monkeypatch, name)
    assert main(STEPS) == 2
    _assert_one_line_with_the_remedy(capsys, name)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["steps", "--table", "orders"], "boto3"),
        (["steps", "--collection", "mongodb://127.0.0.1/shop.orders"], "pymongo"),
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
    _assert_one_line_with_the_remedy(capsys, name)


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


def _assert_one_line_with_the_remedy(capsys: pytest.CaptureFixture[str], name: str) -> None:
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert REMEDY in printed.err
    assert name.partition(".")[0] in printed.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environ", "plain"),
    [
        (Terminal(), {"TERM": "xterm"}, False),
        (Terminal(), {"NO_COLOR": ""}, False),
        (Terminal(), {"NO_COLOR": "1"}, True),
        (Terminal(), {"TERM": "dumb"}, True),
        (io.StringIO(), {"TERM": "xterm"}, True),
    ],
)
def test_output_is_plain_without_a_terminal_or_with_no_color(
    stream: io.StringIO, environ: dict[str, str], plain: bool
) -> None:
    assert is_plain(stream, environ) is plain
