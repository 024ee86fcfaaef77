"""The `migrate` verb: what it says, what it writes, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from moto import mock_aws

from onewrite import Applied, Duplicate, HighWaterMark, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.operate import main, migrate, report
from onewrite.testing.servers.engines import REGION
from tests.engines.stores import create_table

ORDERS = ("migrate", "--table", "orders")
IDS = (*ORDERS, "--ids", "messageIDs", "--to", "14d", "--no-source")
DOCUMENTS = ("migrate", "--collection", "mongodb://host/shop.orders")
VERSION = (*ORDERS, "--version-in", "version", "--source", "orders/{id}")


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {"DEFAULT_REGION": REGION, "ACCESS_KEY_ID": "dummy", "SECRET_ACCESS_KEY": "dummy"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    with mock_aws():
        create_table(boto3.client("dynamodb"), "orders")
        yield boto3.resource("dynamodb").Table("orders")


def told(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def item(orders: Any, key: str = "o-1") -> dict[str, Any]:
    found: dict[str, Any] = orders.get_item(Key={"id": key})["Item"]
    return found


def test_a_set_under_the_ledgers_own_name_becomes_a_ledger_that_needs_no_look_into_it(
    orders: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Item={"id": "o-1", "messageIDs": {"m1", "m2"}})
    orders.put_item(Item={"id": "o-2"})
    found = told(capsys, *IDS)
    assert (found["states"]["to carry"], found["marks"], found["written"]["carried"]) == (1, 2, 0)
    assert found["next"] == ["Nothing was written. Give --yes to write."]
    assert item(orders) == {"id": "o-1", "messageIDs": {"m1", "m2"}}
    assert told(capsys, *IDS, "--yes")["next"] == ["Run it again, until it finds nothing to carry and nothing changed."]
    assert "messageIDs" in item(orders)
    assert "run it with --drop" in told(capsys, *IDS, "--yes")["next"][0]
    assert told(capsys, *IDS, "--drop")["written"]["dropped"] == 0
    found = told(capsys, *IDS, "--drop", "--yes")
    assert found["written"]["dropped"] == 1
    assert found["next"] == ["No entity has the old attribute any more. Consumers can do without a look into it."]
    store = GuardedTable(orders, SeenIds())
    assert isinstance(store.update_item(Message("m2"), Key={"id": "o-1"}), Duplicate)
    assert isinstance(store.update_item(Message("m3"), Key={"id": "o-1"}), Applied)


@pytest.mark.parametrize("arguments", [IDS, VERSION, (*ORDERS, "--version-in", "v*", "--source", "{*}")])
def test_a_name_that_no_entity_has_is_nothing_to_do_and_may_be_misspelt(
    arguments: tuple[str, ...], orders: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Item={"id": "o-1", "messageIds": {"m1"}, "Version": 7})
    assert told(capsys, *arguments, "--yes", code=4)["next"] == [
        "No entity has an attribute of this name now. That is also what a misspelt name looks like."
    ]


def test_what_is_added_after_a_carry_is_told_and_keeps_the_set_from_being_dropped(
    orders: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Item={"id": "o-1", "messageIDs": {"m1"}})
    told(capsys, *IDS, "--yes")
    orders.update_item(Key={"id": "o-1"}, UpdateExpression="ADD messageIDs :m", ExpressionAttributeValues={":m": {"m2"}})
    found = told(capsys, *IDS, "--yes", "--drop", code=1)
    assert (found["states"]["changed"], found["written"]) == (1, {"carried": 1, "dropped": 0, "tried in vain": 0})
    assert found["next"][0].startswith("Changed: 1. Somebody still writes")
    assert told(capsys, *IDS, "--yes", "--drop")["written"]["dropped"] == 1


def test_the_number_of_the_last_message_becomes_a_mark(orders: Any, capsys: pytest.CaptureFixture[str]) -> None:
    orders.put_item(Item={"id": "o-1", "version": 7})
    orders.put_item(Item={"id": "o-2", "version": "v-07"})
    assert told(capsys, *VERSION, "--yes")["written"]["carried"] == 2
    assert item(orders)["ow_@orders/o-1"] == 7
    assert item(orders, "o-2")["ow_@orders/o-2"] == "v-07"
    orders.update_item(Key={"id": "o-1"}, UpdateExpression="ADD version :n", ExpressionAttributeValues={":n": 1})
    assert told(capsys, *VERSION, "--yes", "--drop", code=1)["states"]["changed"] == 1
    assert told(capsys, *VERSION, "--yes", "--drop")["written"]["dropped"] == 1
    assert "version" not in item(orders)
    store = GuardedTable(orders, HighWaterMark())
    assert isinstance(store.update_item(Message("m8", source="orders/o-1", sequence=8), Key={"id": "o-1"}), Duplicate)


def test_an_attribute_for_each_source_becomes_a_mark_for_each(orders: Any, capsys: pytest.CaptureFixture[str]) -> None:
    orders.put_item(Item={"id": "o-1", "events.Order1": "0001-a", "events.Delivery2": "0002-b", "events": "mine"})
    many = (*ORDERS, "--version-in", "events.*", "--source", "{*}")
    found = told(capsys, *many, "--yes")
    assert (found["marks"], found["written"]["carried"]) == (2, 1)
    assert item(orders)["ow_@Delivery2"] == "0002-b"
    assert told(capsys, *many, "--yes", "--drop")["written"]["dropped"] == 1
    assert [name for name in item(orders) if name.startswith("events.")] == []


@pytest.mark.parametrize("pattern", ["i*", "o*"])
def test_a_pattern_means_neither_the_key_nor_what_is_onewrites(
    pattern: str, orders: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Item={"id": "o-1", "i.a": 7, "o.a": 7})
    many = (*ORDERS, "--version-in", pattern, "--source", "{*}", "--yes")
    assert told(capsys, *many)["marks"] == 1
    assert told(capsys, *many, "--drop")["written"]["dropped"] == 1
    kept = {"id", "i.a", "o.a"} - {f"{pattern[0]}.a"}
    assert {name for name in item(orders) if not name.startswith("ow_")} == kept


@pytest.mark.parametrize(
    ("arguments", "held", "why"),
    [
        (IDS, {"messageIDs": {1, 2}}, "Where a set of ids, as text, is expected"),
        (IDS, {"messageIDs": {"m1"}, "ow_l": "ow1 7d"}, "The ledger in 'ow_l' of this entity is kept as '7d'"),
        (IDS, {"messageIDs": {"m1"}, "ow_l": "ow1 14d", **{f"ow_r{n}": "x" for n in range(6)}}, "something else"),
        (VERSION, {"version": Decimal("1.5")}, "a mark is an integer or text"),
        (VERSION, {"version": 7, "ow_@orders/o-1": "v"}, "do not compare"),
        (VERSION, {"version": 7, "ow_l": "ow1 14d"}, "kept as '14d'"),
        ((*ORDERS, "--version-in", "id", "--source", "x"), {}, "is part of the key"),
    ],
)
def test_an_entity_that_is_not_as_expected_is_named_and_left_alone(
    arguments: tuple[str, ...], held: dict[str, Any], why: str, orders: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Item={"id": "o-1", **held})
    before = item(orders)
    (example,) = told(capsys, *arguments, "--yes", code=1)["examples"]
    assert (example["state"], example["entity"]) == ("refused", "id=S:o-1")
    assert why in example["why"]
    assert item(orders) == before


def test_a_source_that_the_entity_does_not_give_is_refused(orders: Any, capsys: pytest.CaptureFixture[str]) -> None:
    orders.put_item(Item={"id": "o-1", "version": 7, "half": Decimal("1.5"), "whole": 3})
    for name in ("half", "missing"):
        (example,) = told(capsys, *VERSION[:-1], f"{{{name}}}", code=1)["examples"]
        assert "no text and no integer" in example["why"]
    assert told(capsys, *VERSION[:-1], "s{whole}", "--yes")["written"]["carried"] == 1
    assert item(orders)["ow_@s3"] == 7


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (ORDERS, "Give one of --ids"),
        ((*ORDERS, "--ids", "a", "--to", "14d"), "Give --source or --no-source"),
        ((*ORDERS, "--ids", "a", "--no-source"), "Give --to"),
        ((*ORDERS, "--ids", "a", "--no-source", "--to", "fortnight"), "give 14d, 36h"),
        ((*ORDERS, "--ids", "ow_ids", "--no-source", "--to", "14d"), "does not begin with ow_"),
        ((*ORDERS, "--ids", "a", "--to", "14d", "--source", "o/{id"), "stands in braces"),
        ((*IDS, "--resume", "/no/such/folder/bookmark"), "There is no folder"),
        ((*VERSION, "--to", "14d"), "--to goes with --ids"),
        ((*ORDERS, "--version-in", "v*", "--source", "x"), "go together"),
        ((*IDS[:-1], "--source", "o/{*}"), "go together"),
        ((*ORDERS, "--version-in", "ow_l", "--source", "x"), "no attribute of your own"),
        ((*ORDERS, "--version-in", "ow_*", "--source", "{*}"), "no attribute of your own"),
        ((*DOCUMENTS, "--version-in", "events.*", "--source", "{*}"), "cannot stand at the top of an entity"),
        ((*DOCUMENTS, "--version-in", "_id", "--source", "x"), "cannot stand at the top of an entity"),
        (("migrate", "--ids", "a", "--to", "14d", "--no-source"), "Give --table NAME"),
    ],
)
def test_what_cannot_be_asked_for_has_exit_code_2(
    orders: Any, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str
) -> None:
    del orders
    assert main(arguments) == 2
    assert why in capsys.readouterr().err


def test_text_for_a_person_shows_no_control_character(orders: Any, capsys: pytest.CaptureFixture[str]) -> None:
    orders.put_item(Item={"id": "o-1", "messageIDs": {"m1", "m2"}})
    orders.put_item(Item={"id": "o-\x1b", "messageIDs": {1}})
    assert main([*IDS, "--yes"]) == 1
    out = capsys.readouterr().out
    assert "2 read: 1 to carry, 1 refused" in out
    assert "written: 1 carried, 0 rid of the old attribute" in out
    assert "  to carry  id=S:o-1  marks: 2; bytes: " in out
    assert "\x1b" not in out
    assert "Refused: 1, for the reason that is given with each" in out


def test_elsewhere_a_line_says_how_far_it_has_come(
    orders: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Item={"id": "o-1", "messageIDs": {"m1"}})
    monkeypatch.setattr(report, "_BETWEEN_LINES", 0.0)
    assert main([*IDS, "--yes"]) == 0
    assert "onewrite: 1 of about 1 read, 1 carried, 0 dropped\n" in capsys.readouterr().err


def test_no_more_entities_are_written_in_a_second_than_asked_for(
    orders: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for n in range(3):
        orders.put_item(Item={"id": f"o-{n}", "messageIDs": {"m1"}})
    waits: list[float] = []
    # This module's own: other threads sleep too.
    monkeypatch.setattr(migrate, "time", SimpleNamespace(time=time.time, monotonic=time.monotonic, sleep=waits.append))
    told(capsys, *IDS, "--yes", "--rate", "0.01")
    assert [round(wait, -1) for wait in waits] == [100, 200, 300]


HANDLERS = """
from onewrite.aws_lambda import sqs_handler
from onewrite.identity import json_body

@sqs_handler(json_body(id="id"))
def ship(message):
    return None

@sqs_handler(json_body(id="id", source="order"))
def other(message):
    return None

@sqs_handler(json_body(id="id", source="order", sequence="n"))
def numbered(message):
    return None
"""
PAGE = Path(__file__).parents[2] / "docs" / "migrating.md"
COMMANDS = re.findall(r"^onewrite (migrate .*)$", PAGE.read_text(), re.MULTILINE)


def test_every_command_of_the_page_can_be_run_in_the_order_shown(
    orders: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    orders.put_item(Item={"id": "o-1", "orderId": "o-1", "handled": {"m1"}})
    orders.put_item(Item={"id": "o-2", "orderId": "o-2", "version": 7, "events.Order1": "0001-a"})
    assert len(COMMANDS) == 6
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "handlers.py").write_text(HANDLERS)
    (tmp_path / "records.json").write_text(json.dumps({"Records": [{"messageId": "1", "body": '{"id": "m1"}'}]}))
    monkeypatch.syspath_prepend(str(tmp_path))
    codes = [main(shlex.split(command)) for command in COMMANDS]
    assert codes == [0, 0, 0, 0, 0, 4], capsys.readouterr().err  # the third has dropped what the last looks for
    assert "handled" not in item(orders)
    assert isinstance(GuardedTable(orders, SeenIds()).seen(Message("m1"), Key={"id": "o-1"}), Duplicate)
    assert item(orders, "o-2")["ow_@orders/o-2"] == 7
    assert item(orders, "o-2")["ow_@Order1"] == "0001-a"


# --- what is carried, in words -------------------------------------------------------------------------------------------------


def test_the_dry_run_shows_the_sources_and_the_marks_that_it_would_write(
    orders: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Item={"id": "o-1", "messageIDs": {"m1", "m2", "m3", "m4"}, "version": 7})
    (example,) = told(capsys, *IDS[:-1], "--source", "orders/{id}")["examples"]
    mark = SeenIds().look(Message("m1", source="orders/o-1"), 0).mark
    assert len(example["carries"]) == 3
    assert isinstance(mark, bytes)
    assert example["carries"][0] == {"id": "m1", "source": "orders/o-1", "parts": [], "mark": mark.hex()}
    assert main(VERSION) == 0
    assert "    the last message of source orders/o-1: mark 7\n" in capsys.readouterr().out
    assert main(IDS) == 0
    assert "    message m1 of no source: mark " in capsys.readouterr().out


PATTERN = (*ORDERS, "--version-in", "v.*", "--source", "{*}")


def test_of_a_refused_entity_it_is_told_whether_something_was_written_there(
    orders: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Item={"id": "o-1", "v.a": 7, "v.b": {"no": "mark"}})
    orders.put_item(Item={"id": "o-2", "v.a": {"no": "mark"}})
    assert "Nothing was written there." in told(capsys, *PATTERN, code=1)["next"][0]
    found = told(capsys, *PATTERN, "--yes", code=1)
    assert item(orders)["ow_@a"] == 7
    assert [each["written"] for each in sorted(found["examples"], key=lambda each: each["entity"])] == [True, False]
    assert "In 1 of them what could be carried" in found["next"][0]


@pytest.mark.parametrize(
    ("handler", "records", "options", "code", "said"),
    [
        ("ship", [{"id": "m1"}], (*IDS,), 0, "Give --yes"),
        ("other", [{"id": "m1", "order": "o"}], (*IDS,), 1, "message m1 would be carried, and the new consumers call it message m1 of source o"),
        ("other", [{"id": "m1", "order": "o-1"}], (*IDS[:-1], "--source", "{id}"), 0, "Give --yes"),
        ("numbered", [{"id": "m1", "order": "orders/o-1", "n": 9}], VERSION, 0, "Give --yes"),
        ("numbered", [{"id": "m1", "order": "orders/o-1", "n": "0009"}], VERSION, 1, "the two do not compare"),
        ("numbered", [{"id": "m1", "order": "o-1", "n": 9}], VERSION, 1, "marks are carried for 'orders/o-1'"),
    ],
)  # fmt: skip
def test_what_would_be_carried_is_compared_with_what_the_new_consumers_make_of_some_messages(
    handler: str,
    records: Any,
    options: tuple[str, ...],
    code: int,
    said: str,
    orders: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "new_handlers", raising=False)
    (tmp_path / "new_handlers.py").write_text(HANDLERS)
    bodies = [{"messageId": str(n), "body": json.dumps(each)} for n, each in enumerate(records)]
    (tmp_path / "records.json").write_text(json.dumps(bodies))
    orders.put_item(Item={"id": "o-1", "messageIDs": {"m1", "m2"}, "version": 7})
    compared = ("--identity", f"new_handlers:{handler}", "--records", "records.json")
    found = told(capsys, *options, *compared, code=code)
    assert said in json.dumps(found)
    if "would be carried" in said:
        told(capsys, *options, *compared, "--yes", code=1)
        assert set(item(orders)) == {"id", "messageIDs", "version"}


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (("--identity", "json:loads"), "[]", "go together"),
        (("--identity", "json:loads", "--records", "r.json"), "no json", "no JSON can be read there"),
        (("--identity", "json:dumps", "--records", "r.json"), "[]", "makes no message"),
        (("--identity", "json:dumps", "--records", "r.json"), '{"Records": null}', "give an event, a list of records"),
        (("--identity", "onewrite.identity:sqs_message_id", "--records", "r.json"), "[5]", "the raw record"),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused(
    arguments: tuple[str, ...],
    text: str,
    said: str,
    orders: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.json").write_text(text)
    assert main([*IDS, *arguments]) == 2
    assert said in capsys.readouterr().err


# --- bookmarks ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "[]", '{"of": "another", "position": null}'])
def test_a_file_that_is_no_bookmark_of_this_migration_is_refused(
    orders: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str
) -> None:
    del orders
    path = tmp_path / "bookmark"
    path.write_text(text)
    assert main([*IDS, "--resume", str(path)]) == 2
    assert "Give another file" in capsys.readouterr().err
    assert path.read_text() == text


def interrupt(orders: Any, keys: list[Any], monkeypatch: pytest.MonkeyPatch, *resume: str) -> None:
    """Begin a migration of more than a page, and end it there."""
    for key in keys:
        orders.put_item(Item={"id": key, "messageIDs": {"m1"}, "text": "x" * 390_000})
    visits = iter(range(3))

    def killing(*_: Any) -> float:
        if next(visits, None) is None:
            raise KeyboardInterrupt
        return 0.0

    with monkeypatch.context() as patched:
        patched.setattr(migrate, "pause", killing)
        assert main([*IDS, "--yes", *resume]) == 130


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_DEFAULT_REGION", "eu-west-3"),
        ("AWS_ENDPOINT_URL", f"http://dynamodb.{REGION}.amazonaws.com"),
        ("MOTO_ACCOUNT_ID", "210987654321"),
    ],
)
def test_a_bookmark_is_refused_for_a_table_of_that_name_elsewhere(
    name: str,
    value: str,
    orders: Any,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    resume = ("--resume", str(tmp_path / "bookmark"))
    interrupt(orders, [f"o-{n}" for n in range(4)], monkeypatch, *resume)
    monkeypatch.setenv(name, value)
    client = boto3.client("dynamodb")
    if not client.list_tables()["TableNames"]:
        create_table(client, "orders")
    assert main([*IDS, "--yes", *resume]) == 2
    assert "is of another migration: " in capsys.readouterr().err


def test_a_bookmark_keeps_binary_keys(
    orders: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.delete()
    boto3.client("dynamodb").create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "B"}],
        BillingMode="PAY_PER_REQUEST",
    )
    resume = ("--resume", str(tmp_path / "bookmark"))
    interrupt(orders, [bytes([n]) for n in range(4)], monkeypatch, *resume)
    capsys.readouterr()
    assert 0 < told(capsys, *IDS, "--yes", *resume)["read"] < 4
    assert told(capsys, *IDS)["states"]["carried"] == 4
