"""What the command line names in a module of the user's: a thing, or a function that makes it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from onewrite import SeenIds
from onewrite.batch.handler import find_handler
from onewrite.errors import ConfigurationError
from onewrite.operate.modules import RELAY, find, find_ledger
from onewrite.operate.report import OutsideFailure
from onewrite.outbox import Relay

SHOP = """
from functools import cache

import boto3

from onewrite import Outbox, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import sqs_message_id
from onewrite.outbox import Relay

calls = []


@cache
def orders():
    calls.append("orders")
    print("made")
    return GuardedTable(boto3.client("dynamodb", "eu-west-1"), SeenIds(), table_name="orders", outbox=Outbox("shop/orders"))


def relay(poll=1):
    return Relay(orders(), lambda events: None)


def bare_wrapper(*arguments, **options):
    calls.append("bare_wrapper")


async def later():
    calls.append("later")


def broken():
    raise KeyError("ORDERS_TABLE")


def leaves():
    raise SystemExit("no")


class Makers:
    @classmethod
    def ledger(cls):
        return SeenIds()


@sqs_handler(sqs_message_id())
def ship(message):
    return None


def handler():
    return ship


def __getattr__(name):
    if name == "at_once":
        raise KeyError("QUEUE_URL")
    raise AttributeError(name)
"""


@pytest.fixture(autouse=True)
def _module(folder: Path) -> None:
    (folder / "shop_of_makers.py").write_text(SHOP)


def test_function_without_arguments_is_called_for_its_result(capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(find("shop_of_makers:relay", RELAY), Relay)
    assert isinstance(find_ledger("shop_of_makers:orders"), SeenIds)
    assert isinstance(find_ledger("shop_of_makers:Makers.ledger"), SeenIds)
    assert sys.modules["shop_of_makers"].calls == ["orders"]
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "made\n")
    ship = find("shop_of_makers:ship")
    assert find_handler(ship) is not None
    assert find("shop_of_makers:handler") is ship


@pytest.mark.parametrize("name", ["bare_wrapper", "later", "Makers", "calls"])
def test_other_objects_are_not_called(name: str) -> None:
    named = find(f"shop_of_makers:{name}")
    assert named is getattr(sys.modules["shop_of_makers"], name)
    assert sys.modules["shop_of_makers"].calls == []
    with pytest.raises(ConfigurationError, match="expected a guarded store or a ledger"):
        find_ledger(f"shop_of_makers:{name}")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broken", r"shop_of_makers:broken\(\) fails: KeyError: 'ORDERS_TABLE'\. Nothing was read or written"),
        ("leaves", r"shop_of_makers:leaves\(\) fails: SystemExit: no\."),
        ("at_once", r"shop_of_makers:at_once can't be created: KeyError: 'QUEUE_URL'\."),
    ],
)
def test_users_error_is_shown_with_its_traceback(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OutsideFailure, match=text):
        find(f"shop_of_makers:{name}", quiet=False)
    assert "Traceback" in capsys.readouterr().err
