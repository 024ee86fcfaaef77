"""`onewrite worker`: what it runs, and what it says to those who call it wrongly."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from onewrite.cli import main
from onewrite.cli.worker import Lines
from onewrite.sqs import Worker
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime, client_error

SHOP = """
from onewrite import Applied, Message
from onewrite.aws_lambda import kinesis_handler, sqs_handler

shipped = []

def by_body(record):
    return Message(record["body"])

@sqs_handler(by_body)
def ship(message):
    shipped.append(message.id)
    return Applied(message)

class Nested:
    handlers = ship

@kinesis_handler(by_body)
def stream(message):
    ...

def plain(message):
    ...
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A current directory with modules of a user's, none of which is imported yet."""
    (tmp_path / "corner_shop.py").write_text(SHOP)
    (tmp_path / "needy_shop.py").write_text("import nowhere_to_be_found")
    (tmp_path / "broken_shop.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    yield tmp_path
    for name in ("corner_shop", "needy_shop", "broken_shop"):
        sys.modules.pop(name, None)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The clients that were made."""
    return []


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch, made: list[dict[str, Any]]) -> FakeSqs:
    fake = FakeSqs(VirtualTime())

    def client(service: str, **options: Any) -> FakeSqs:
        made.append({"service": service, **options})
        return fake

    monkeypatch.setattr(boto3, "client", client)
    return fake


def run(*options: str, handler: str = "corner_shop:ship") -> int:
    return main(["worker", "--queue-url", URL, *options, handler])


def shipped() -> list[str]:
    return sys.modules["corner_shop"].shipped


def test_it_runs_a_handler_from_the_current_directory_until_the_queue_is_empty(sqs: FakeSqs) -> None:
    sqs.send("a")
    sqs.send("b")
    assert run("--stop-when-empty") == 0
    assert shipped() == ["a", "b"]
    assert sqs.messages == []


def test_a_handler_may_be_an_attribute_of_something_in_the_module(sqs: FakeSqs) -> None:
    sqs.send("a")
    assert run("--stop-when-empty", handler="corner_shop:Nested.handlers") == 0
    assert shipped() == ["a"]


def test_the_current_directory_is_looked_into_once(sqs: FakeSqs, here: Path) -> None:
    run("--stop-when-empty")
    run("--stop-when-empty")
    assert sys.path.count(str(here)) == 1


def test_its_options_are_those_of_the_worker(
    sqs: FakeSqs, made: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    class Spied(Worker):
        def __init__(self, queue_url: str, handler: Any, **options: Any) -> None:
            given.append(options)
            super().__init__(queue_url, handler, **options)

    monkeypatch.setattr("onewrite.sqs.Worker", Spied)
    run("--stop-when-empty")
    options = ["--region", "eu-north-1", "--endpoint-url", "http://127.0.0.1:1", "--batch-size", "5", "--wait", "0"]
    run(*options, "--visibility-timeout", "60", "--drain-seconds", "2.5", "--stop-when-empty")
    assert made == [
        {"service": "sqs", "region_name": None, "endpoint_url": None},
        {"service": "sqs", "region_name": "eu-north-1", "endpoint_url": "http://127.0.0.1:1"},
    ]
    defaults = {"batch_size": 10, "wait": None, "visibility_timeout": None, "drain_seconds": 25, "stop_when_empty": True}
    chosen = {"batch_size": 5, "wait": 0, "visibility_timeout": 60, "drain_seconds": 2.5, "stop_when_empty": True}
    assert given == [{"client": sqs, **defaults}, {"client": sqs, **chosen}]


def test_the_line_of_a_batch_is_followed_by_its_failures() -> None:
    batch = logging.makeLogRecord({"msg": "ship: 2 records, 1 applied, 1 failed", "levelname": "WARNING"})
    batch.onewrite = {
        "failures": [{"record": "m1", "attempt": 2, "error": "KeyError", "reason": None, "where": "shop.py:7"}]
    }
    assert Lines("%(levelname)s %(message)s").format(batch) == (
        "WARNING ship: 2 records, 1 applied, 1 failed\n    record m1, attempt 2, error KeyError, where shop.py:7"
    )


def test_any_other_line_is_plain() -> None:
    assert Lines("%(message)s").format(logging.makeLogRecord({"msg": "hello"})) == "hello"


@pytest.mark.parametrize(
    ("handler", "complaint"),
    [
        ("corner_shop", "module:handler"),
        ("corner_shop:", "module:handler"),
        (":ship", "module:handler"),
        ("./corner_shop.py:ship", "module:handler"),
        (".corner_shop:ship", "module:handler"),
        ("corner_shop:ship()", "module:handler"),
        ("cornershop:ship", "no module 'cornershop'"),
        ("cornershop.handlers:ship", "no module 'cornershop'"),
        ("corner_shop.handlers:ship", "no module 'corner_shop.handlers'"),
        ("corner_shop:shap", "no 'shap'"),
        ("corner_shop:plain", "@sqs_handler"),
        ("corner_shop:shipped", "@sqs_handler"),
        ("corner_shop:stream", "Kinesis"),
    ],
)
def test_what_is_no_handler_returns_2_and_is_named(
    handler: str, complaint: str, sqs: FakeSqs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(handler=handler) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert printed.out == ""
    assert sqs.requests == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["corner_shop:ship"], "--queue-url"),
        (["--queue-url", URL], "MODULE:HANDLER"),
        (["--queue-url", "orders", "corner_shop:ship"], "no queue URL"),
        (["--queue-url", "", "corner_shop:ship"], "no queue URL"),
        (["--queue-url", URL, "corner_shop:ship", "--wait", "21"], "--wait"),
        (["--queue-url", URL, "corner_shop:ship", "--batch-size", "0"], "--batch-size"),
        (["--queue-url", URL, "corner_shop:ship", "--visibility-timeout", "0"], "--visibility-timeout"),
        (["--queue-url", URL, "corner_shop:ship", "--drain-seconds", "-1"], "--drain-seconds"),
        (["--queue-url", URL, "corner_shop:ship", "--drain-seconds", "nan"], "drain"),
    ],
)
def test_wrong_arguments_return_2_and_are_named(
    arguments: list[str], complaint: str, sqs: FakeSqs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["worker", *arguments]) == 2
    printed = capsys.readouterr()
    assert complaint in printed.err
    assert printed.out == ""


def test_a_queue_that_cannot_be_used_returns_2_with_the_remedy(sqs: FakeSqs, capsys: pytest.CaptureFixture[str]) -> None:
    def refuse(_: str) -> None:
        raise client_error("AWS.SimpleQueueService.NonExistentQueue")

    sqs.before = refuse
    assert run() == 2
    assert f"onewrite: The worker cannot use the queue {URL}" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--region", "eu west"], ["--region", "eu-west-1", "--endpoint-url", "nowhere"]])
def test_a_client_that_cannot_be_made_returns_2(
    options: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    assert run(*options) == 2
    assert "the region, the endpoint" in capsys.readouterr().err


def test_what_a_module_raises_when_it_is_imported_is_not_hidden(sqs: FakeSqs) -> None:
    with pytest.raises(ZeroDivisionError):
        run(handler="broken_shop:ship")
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        run(handler="needy_shop:ship")


@pytest.mark.parametrize(
    ("name", "importer"),
    [("typer", "onewrite.cli.app"), ("botocore.exceptions", "onewrite.sqs"), ("boto3", "nobody")],
)
def test_without_the_packages_of_the_worker_one_line_names_the_remedy(
    name: str, importer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in [module for module in sys.modules if module.startswith(importer)]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, name, None)
    assert run() == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert 'pip install "onewrite[cli,aws,mongodb]"' in printed.err
    assert name.partition(".")[0] in printed.err


def test_a_handler_that_does_not_end_in_time_ends_with_the_process(sqs: FakeSqs, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    monkeypatch.setattr(Worker, "run", lambda _: False)
    run()
    assert left == [1]
