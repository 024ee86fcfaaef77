"""The command itself: arguments, exit codes, and what it says if a package is missing."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from onewrite.operate import main

REMEDY = 'pip install "onewrite[cli,testing,dynamodb,mongodb]"'
SMALL = ["demo", "--engine", "mongodb", "--messages", "3"]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--messages", "0"], "--messages 0: give a whole number from 1 on."),
        (["demo", "--messages=many"], "--messages many: give a whole number from 1 on."),
        (["demo", "--engine", "redis"], "--engine redis: give one of dynamodb, mongodb."),
        (["demo", "--seed"], "--seed: give a value after it."),
        (["demo", "--json=3"], "--json is a switch: give it without a value."),
        (["demo", "--engin", "mongodb"], "--engin is no option here. Did you mean --engine or --open?"),
        (["demo", "extra", "more"], "extra more: there is nothing that takes this."),
        (["dance"], "'dance' is no verb. The verbs are clear, demo, doctor, forget,"),
        (["forget", "--key", "k"], "--message is missing: give --message ID."),
        (["worker", "a:b"], "--queue-url is missing: give --queue-url VALUE, or set ONEWRITE_WORKER_QUEUE_URL."),
        (["relay", "--poll", "soon"], "--poll soon: give a number from 0.01 to 86400."),
        (["doctor", "nowhere_to_be_found"], "there is no module 'nowhere_to_be_found'"),
    ],
)
def test_wrong_arguments_return_2_and_are_named_on_stderr(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("onewrite: ")
    assert complaint in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""
    assert "\x1b" not in printed.err


def test_the_package_runs_as_a_module(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["onewrite", *SMALL])
    with pytest.raises(SystemExit) as end:
        importlib.import_module("onewrite.__main__")  # to import it is to run it
    assert end.value.code == 0
    assert "3 messages" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["typer", "rich.table"])
def test_without_the_packages_of_the_command_one_line_names_the_remedy(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("onewrite.operate.app", "onewrite.operate.demo"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    _hide(monkeypatch, name)
    assert main(["demo"]) == 2
    _assert_one_line_with_the_remedy(capsys, name)


@pytest.mark.parametrize(("engine", "name"), [("mongodb", "mongomock"), ("dynamodb", "moto"), ("dynamodb", "boto3")])
def test_without_a_stand_in_one_line_names_the_remedy(
    engine: str, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _hide(monkeypatch, name)
    assert main(["demo", "--json", "--engine", engine]) == 2
    _assert_one_line_with_the_remedy(capsys, name)


def _hide(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """As if not installed: an import finds None, and raises ModuleNotFoundError."""
    monkeypatch.setitem(sys.modules, name, None)


def _assert_one_line_with_the_remedy(capsys: pytest.CaptureFixture[str], name: str) -> None:
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert REMEDY in printed.err
    assert name.partition(".")[0] in printed.err


def test_the_verbs_need_neither_driver_before_they_use_it() -> None:
    program = """
import sys
import onewrite.operate.app
print(*sorted({name.split(".")[0] for name in sys.modules} & {"boto3", "botocore", "pymongo", "bson", "mongomock", "moto"}))
"""
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"
