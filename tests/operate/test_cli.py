"""The command itself: arguments, exit codes, and what it says if a package is missing."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any, NoReturn

import pytest

from onewrite.operate import main

REMEDY = 'pip install "onewrite[cli,testing,dynamodb,mongodb]"'
SMALL = ["demo", "--engine", "mongodb", "--messages", "3"]


def test_help_names_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "demo" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["demo", "--messages", "0"], "--messages"),
        (["demo", "--messages", "many"], "--messages"),
        (["demo", "--engine", "redis"], "--engine"),
        (["demo", "--seed", "x"], "--seed"),
        (["demo", "--colour"], "--colour"),
        (["demo", "extra"], "extra"),
        (["dance"], "dance"),
        (["--loud"], "--loud"),
    ],
)
def test_wrong_arguments_return_2_and_are_named_on_stderr(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert printed.out == ""
    assert "\x1b" not in printed.err


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("inspect --foo", "inspect has no option --foo. `onewrite inspect --help` shows what it takes."),
        (
            "inspect --keyy 1",
            "inspect has no option --keyy. Did you mean --key? `onewrite inspect --help` shows what it takes.",
        ),
        ("--loud", "onewrite has no option --loud. `onewrite --help` shows what it takes."),
        ("inspect --key", "--key needs a value behind it. `onewrite inspect --help` shows what it takes."),
        ("doctor --strict=maybe", "--strict takes no value. `onewrite doctor --help` shows what it takes."),
        ("set-mark -5 --source s", "set-mark needs --key JSON: The entity: "),
        (
            "forget --key 1",
            "forget needs --message ID: The id of the message. `onewrite forget --help` shows what it takes.",
        ),
        ("worker", "worker needs MODULE:HANDLER: Where the handler is, as in shop.handlers:ship. "),
        (
            "inspect --key 1 --in-sequence x",
            "--in-sequence takes a whole number. `onewrite inspect --help` shows what it takes.",
        ),
        ("steps --older-than -1", "--older-than takes a number from 0 on. "),
        ("worker a:b --timeout 1e9", "--timeout takes a number from 0.001 to 43200. "),
        ("demo --engine redis", "--engine takes one of dynamodb, mongodb. `onewrite demo --help` shows what it takes."),
        ("demo extra more", "demo takes no more arguments: extra more. `onewrite demo --help` shows what it takes."),
        ("demo --port 1", "--port: needs --web."),
        ("dance", "There is no verb 'dance': give one of demo, worker, relay, "),
    ],
)
def test_a_command_line_that_is_wrong_is_told_in_our_words_what_to_do(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"onewrite: {words}")
    assert printed.out == ""


def test_the_command_alone_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "set-mark" in "".join(capsys.readouterr())


def test_without_argv_the_arguments_of_the_process_are_used(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["onewrite", *SMALL])
    assert main() == 0
    assert "3 messages" in capsys.readouterr().out


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
    _forget(monkeypatch, "onewrite.operate.app", "onewrite.operate.demo")
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


def test_a_missing_bson_is_a_missing_pymongo(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def lacking(*_: Any) -> NoReturn:
        raise ModuleNotFoundError("No module named 'bson'", name="bson")

    monkeypatch.setattr("onewrite.operate.app.run", lacking)
    assert main(["demo"]) == 2
    _assert_one_line_with_the_remedy(capsys, "pymongo")


def test_a_missing_module_of_somebody_else_is_not_blamed_on_the_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_the_user(*_: Any) -> NoReturn:
        raise ModuleNotFoundError("No module named 'shop'", name="shop")

    monkeypatch.setattr("onewrite.operate.app.run", of_the_user)
    with pytest.raises(ModuleNotFoundError, match="shop"):
        main(["demo"])


@pytest.mark.parametrize(("code", "expected"), [(None, 0), ("text", 1), (7, 7)])
def test_the_exit_code_is_the_one_that_the_verb_ends_with(
    code: str | int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _end_with(monkeypatch, SystemExit(code))
    assert main(SMALL) == expected


def _end_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def verb(*_: Any, **__: Any) -> NoReturn:
        raise error

    monkeypatch.setattr("onewrite.operate.demo.compare", verb)


def _forget(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)


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
