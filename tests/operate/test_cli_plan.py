"""`onewrite plan`: its options, its output, and what it says of bad ones."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from onewrite import Event, Message, Outbox, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.operate import main
from onewrite.operate import plan as command
from onewrite.testing.servers.engines import REGION
from onewrite.testing.standins.collection import StandInClient
from tests.support.browser import browser, watch

GIVEN = ("--messages", "10000/d", "--item-bytes", "300", "--entities", "1000")
TABLE = ("--messages", "10000/d", "--table", "orders")
COLLECTION = ("--messages", "1/s", "--collection", "mongodb://localhost/shop.orders")


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", "--json", *arguments]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def way(plan: dict[str, Any], name: str) -> dict[str, Any]:
    return next(each for each in plan["ways"] if each["name"].startswith(name))


# --- what it says -------------------------------------------------------------------------------------------------------


def test_it_compares_the_ledgers_and_the_alternatives_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, *GIVEN)
    assert plan["unit"] == "write units"
    ledgers = {"SeenIds, 14d", "SeenIds, forever", "HighWaterMark, InSequence"}
    alternatives = {"no guard: duplicates take effect", "processed table, in a transaction", "Powertools idempotency"}
    assert ledgers | alternatives <= {each["name"] for each in plan["ways"]}
    marks = way(plan, "HighWaterMark")
    assert (marks["fresh"]["mean"], marks["refused"]["mean"], marks["full_after"], marks["fits"]) == (1, 1, None, True)
    assert marks["a_month"] == pytest.approx(30 * 10_000 * 1.01)
    assert way(plan, "processed table")["fresh"]["mean"] == 4


def test_the_table_of_the_guide_is_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """An entity of 300 bytes gets 1,000 messages in 14 days."""
    plan = planned(capsys, "--messages", "1000/d", "--item-bytes", "300", "--entities", "14")
    spread = way(plan, "SeenIds, 14d")["fresh"]
    assert (spread["low"], spread["high"]) == (11, 16)


def test_an_index_that_projects_all_attributes_copies_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    alone, copied = planned(capsys, *GIVEN), planned(capsys, *GIVEN, "--index", "by-day=ALL")
    for name in ("SeenIds, 14d", "SeenIds, forever"):
        assert way(copied, name)["fresh"]["mean"] == 2 * way(alone, name)["fresh"]["mean"]
        assert way(copied, name)["refused"] == way(alone, name)["refused"]


@pytest.mark.parametrize(
    ("index", "more"),
    [("KEYS_ONLY", 0), ("KEYS_ONLY:moves", 2), ("INCLUDE:2000", 2), ("INCLUDE:2000:still", 0), ("ALL:still", 1)],
)
def test_an_index_costs_what_is_written_in_it(index: str, more: int, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, *GIVEN, "--index", index)
    assert way(plan, "HighWaterMark")["fresh"]["mean"] == 1 + more


def test_the_busiest_entity_is_counted_for_itself(capsys: pytest.CaptureFixture[str]) -> None:
    even, uneven = planned(capsys, *GIVEN), planned(capsys, *GIVEN, "--hottest", "20")
    assert way(uneven, "SeenIds, 14d")["ledger"]["high"] > 100 * way(even, "SeenIds, 14d")["ledger"]["high"]
    assert not way(uneven, "SeenIds, forever")["fits"]
    assert way(uneven, "SeenIds, forever")["dollars"] is None


def test_the_prices_are_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, *GIVEN, "--prices", "2,0")
    marks = way(plan, "HighWaterMark")
    assert marks["dollars"] == pytest.approx(2 * marks["a_month"] / 1e6)
    assert main(["plan", *GIVEN]) == 0
    assert "on-demand, us-east-1, since 2024-11-01" in capsys.readouterr().out


def test_of_mongodb_it_tells_bytes_of_documents_and_no_price(capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(capsys, *GIVEN, "--engine", "mongodb", "--sources", "2")
    assert plan["unit"] is None
    marks, ids = way(plan, "HighWaterMark"), way(plan, "SeenIds, 14d")
    assert marks["ledger"]["mean"] < ids["ledger"]["mean"]
    assert way(plan, "processed collection")["stored"] > ids["stored"]
    assert {marks[name] for name in ("fresh", "refused", "dollars", "burst", "sustained", "a_month")} == {None}


@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
@pytest.mark.parametrize(
    "arguments",
    [
        ("--messages", "0.000001/d", "--entities", "1"),
        ("--messages", "10000000/s", "--entities", "1"),
        ("--messages", "10/d", "--entities", "2", "--hottest", "99.9999999", "--age", "36525"),
        ("--messages", "10/d", "--entities", "1", "--age", "0.00002", "--retention", "1s", "--source-bytes", "0"),
    ],
)
@pytest.mark.few(6)
def test_what_is_out_of_the_ordinary_is_planned_too(
    engine: str, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(capsys, "--item-bytes", "300", "--engine", engine, *arguments)
    for each in plan["ways"]:
        assert (each["stored"] is None) is not each["fits"]
        if engine == "dynamodb":
            assert each["fresh"]["low"] <= each["fresh"]["high"]
            assert (each["a_month"] is None) is not each["fits"]


def test_the_commands_of_the_documentation_run(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    commands = [line.partition("#")[0].split() for line in page.splitlines() if line.startswith("onewrite plan")]
    without_store = [command for command in commands if not {"--table", "--collection"} & {*command}]
    assert without_store
    for _, *arguments in without_store:
        assert main(arguments) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        assert main(["plan", "--help"]) == 0
    offered = set(re.findall(r"--[a-z-]+", capsys.readouterr().out)) - {"--help", "--version"}
    assert offered == set(re.findall(r"--[a-z-]+", "".join(re.findall(r"^\| `--.*", page, re.MULTILINE))))


# --- a live store -------------------------------------------------------------------------------------------------------


@pytest.fixture
def orders() -> Any:
    with mock_aws():
        client = boto3.client("dynamodb", region_name=REGION)
        everything = {"Projection": {"ProjectionType": "ALL"}}
        keys: Any = {name: [{"AttributeName": name, "KeyType": "HASH"}] for name in ("id", "day")}
        by_day: Any = {"IndexName": "by-day", "KeySchema": keys["day"], **everything}
        unused: Any = {"IndexName": "unused", "KeySchema": keys["id"], **everything}
        client.create_table(
            TableName="orders",
            KeySchema=keys["id"],
            AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in ("id", "day")],
            GlobalSecondaryIndexes=[by_day, unused],
            BillingMode="PAY_PER_REQUEST",
        )
        yield GuardedTable(client, SeenIds(), table_name="orders")


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("AWS_DEFAULT_REGION", REGION), ("AWS_ACCESS_KEY_ID", "x"), ("AWS_SECRET_ACCESS_KEY", "x")):
        monkeypatch.setenv(name, value)


def test_a_live_table_fills_in_what_no_option_says(orders: GuardedTable, capsys: pytest.CaptureFixture[str]) -> None:
    for n in range(5):
        orders.put_item(Message(f"m{n}"), Item={"id": f"e{n}", "day": "monday", "text": "x" * 500})
    plan = planned(capsys, *TABLE, "--writes", "by-day=moves")
    assert plan["inputs"]["item_bytes"] == plan["sample"]["own"] == len("ide0daymondaytext") + 500
    assert plan["inputs"]["entities"] == 5
    does = {each["name"]: each["does"] for each in plan["inputs"]["indexes"]}
    assert does == {"by-day": "moves", "unused": "changes"}
    assert plan["sample"]["kept"] == {"ow_l: 14d": 5}
    assert main(["plan", *TABLE, "--item-bytes", "900", "--entities", "7"]) == 0
    out = capsys.readouterr().out
    assert "to 7 entities of 900 B" in out
    assert "Ledgers found: ow_l: 14d (in 5)." in out


def test_a_live_collection_fills_in_what_no_option_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    client = StandInClient()
    monkeypatch.setattr("onewrite.operate.stores._mongo_client", lambda _: client)
    GuardedCollection(client.shop.orders, SeenIds()).insert_one(Message("m"), {"_id": "e", "text": "x" * 500})
    plan = planned(capsys, *COLLECTION)
    assert (plan["sample"]["name"], plan["inputs"]["entities"], plan["unit"]) == ("shop.orders", 1, None)
    assert 500 < plan["inputs"]["item_bytes"] < 540


def test_the_retention_and_the_window_are_those_of_the_live_ledgers(
    orders: GuardedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    client = boto3.client("dynamodb", region_name=REGION)
    for n in range(3):
        store = GuardedTable(client, SeenIds(timedelta(days=3)), table_name="orders")
        store.put_item(Message("m"), Item={"id": f"e{n}", "day": "monday"})
    orders.put_item(Message("m"), Item={"id": "e9", "day": "monday"})
    plan = planned(capsys, *TABLE)
    assert (plan["inputs"]["retention"], plan["sample"]["retention"]) == (3, 3)
    assert way(plan, "SeenIds, 3d")
    assert planned(capsys, *TABLE, "--retention", "7d")["inputs"]["retention"] == 7
    assert (plan["inputs"]["window"], plan["sample"]["window"]) == (500, None)
    usual = planned(capsys, *GIVEN)["inputs"]
    assert (usual["retention"], usual["window"]) == (14, 500)


def test_events_are_counted_where_a_message_emits_some(orders: GuardedTable, capsys: pytest.CaptureFixture[str]) -> None:
    without, events = planned(capsys, *GIVEN), planned(capsys, *GIVEN, "--events", "1")
    # The write, a write that clears, and two of the index of the outbox; the item has 300 bytes, and an event 500.
    assert [way(each, "HighWaterMark")["fresh"]["mean"] for each in (without, events)] == [1, 4]
    assert way(without, "no guard") == way(events, "no guard")
    half = planned(capsys, *GIVEN, "--events", "0.5")
    assert way(half, "HighWaterMark")["fresh"]["mean"] == (1 + 4) / 2
    client = boto3.client("dynamodb", region_name=REGION)
    assert orders.get_item(Key={"id": "none"}) is None
    store = GuardedTable(client, SeenIds(), table_name="orders", outbox=Outbox("o"))
    store.put_item(Message("m"), Item={"id": "e", "day": "monday"}, emit=[Event("E", 1)])
    assert planned(capsys, *TABLE)["inputs"]["events"] == 1
    assert planned(capsys, *TABLE, "--events", "0")["inputs"]["events"] == 0


@pytest.mark.parametrize(("index", "units"), [("ALL:changes", 18), ("ALL:moves", 19), ("ALL:still", 18), ("KEYS_ONLY", 10)])
def test_events_are_written_to_each_index_of_all_attributes_and_cleared_there(
    index: str, units: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The item and the entry have 4 units each with an event; tests/engines/test_costs.py has an engine charge 18."""
    event = ("--events", "1", "--event-bytes", "3000")
    plan = planned(capsys, "--messages", "1/d", "--item-bytes", "100", "--entities", "10", "--index", index, *event)
    assert way(plan, "SeenIds, 14d")["fresh"]["mean"] == units


@pytest.mark.parametrize(("engine", "largest"), [("dynamodb", 400 * 1024), ("mongodb", 16 * 1024**2)])
@pytest.mark.parametrize("events", ["0.001", "2"])
def test_an_entity_that_is_too_large_with_the_events_of_one_message_does_not_fit(
    engine: str, largest: int, events: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for room, fits in ((0, False), (20_000, True)):
        size = (largest - room) // max(1, int(float(events)))
        given = (*GIVEN, "--engine", engine, "--events", events, "--event-bytes", str(size))
        marks = way(planned(capsys, *given), "HighWaterMark")
        assert (marks["fits"], marks["full_after"]) == (fits, None if fits else 0)
        assert marks["entity"] > largest - room


@pytest.mark.parametrize(
    ("index", "name", "units"),
    [
        ("INCLUDE:200:changes", "HighWaterMark", 1.01),
        ("INCLUDE:200:changes:local", "HighWaterMark", 2.01),
        ("INCLUDE:200:changes:local", "processed table", 2 * 1.01 + 1),
        ("INCLUDE:5000:changes", "processed table", 5),
        ("INCLUDE:5000:changes", "no guard", 5 * 1.01),
    ],
)
def test_a_local_index_shares_the_partition_of_its_table(
    index: str, name: str, units: float, capsys: pytest.CaptureFixture[str]
) -> None:
    assert way(planned(capsys, *GIVEN, "--index", index), name)["burst"] == pytest.approx(1000 / units)


# --- how it says it -----------------------------------------------------------------------------------------------------


def test_on_a_terminal_it_is_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "is_plain", lambda *_: False)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["plan", *GIVEN, "--hottest", "20"]) == 0
    assert "HighWaterMark, InSequence" in capsys.readouterr().out


def test_in_a_pipe_it_is_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *GIVEN, "--hottest", "20", "--index", "ALL"]) == 0
    out = capsys.readouterr().out
    assert "\nSeenIds, forever  (does not fit)\n" in out
    assert "Index index 1: an entry has 300 B without a ledger; your own write changes it, and copies the ledger" in out


# --- what cannot be run -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--messages is missing"),
        (("--messages", "10/d"), "--item-bytes and --entities are missing: give them, or name a live store"),
        (("--messages", "0/d"), "give a number above 0"),
        ((*GIVEN, "--item-bytes", "0"), "The bytes of an item must be from 1 to 409,600, and 0 was given."),
        ((*GIVEN, "--hottest", "-1"), "--hottest -1: give percent, from 0 to 100."),
        ((*GIVEN, "--hottest", "0.01"), "The hottest of 1,000 entities gets at least 0.1000% of the messages"),
        ((*GIVEN, "--age", "inf"), "The age of an entity in days must be from"),
        ((*GIVEN, "--retention", "two weeks"), "--retention two weeks: give a number with d, h, m or s behind it"),
        ((*GIVEN, "--retention", "0d"), "an id is kept for a second at least"),
        ((*GIVEN, "--prices", "cheap"), "--prices cheap: give dollars"),
        ((*GIVEN, "--index", "SOME"), "--index SOME: write [NAME=]ALL"),
        ((*GIVEN, "--index", "INCLUDE"), "say how many bytes the index projects"),
        ((*GIVEN, "--index", "ALL", "--engine", "mongodb"), "Indexes are counted for DynamoDB only"),
        ((*GIVEN, "--writes", "by-day=moves"), "--writes is for the indexes of a live table"),
        ((*GIVEN, "--html", "/nowhere/at/all.html"), "The page cannot be written"),
    ],
)
def test_what_cannot_be_planned_is_said_in_a_sentence(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--engine", "mongodb"), "--engine mongodb contradicts the store that is named, which is dynamodb."),
        (("--index", "ALL"), "--index is for tables that are not there yet"),
        (("--writes", "by-day"), "--writes by-day: write NAME=still"),
        (("--writes", "by-week=still"), "no item that was looked at is in an index of that name"),
    ],
)
def test_options_that_contradict_a_live_table_are_refused(
    arguments: tuple[str, ...], said: str, orders: GuardedTable, capsys: pytest.CaptureFixture[str]
) -> None:
    orders.put_item(Message("m"), Item={"id": "e", "day": "monday"})
    assert main(["plan", *TABLE, *arguments]) == 2
    assert said in capsys.readouterr().err


# --- the page -----------------------------------------------------------------------------------------------------------


def test_the_page_has_the_numbers_and_needs_nothing_else(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.html"
    assert main(["plan", *GIVEN, "--hottest", "20", "--html", str(path)]) == 0
    page = path.read_text()
    assert "HighWaterMark, InSequence" in page
    assert "The dotted line is your busiest entity, with 83.3/h." in page
    assert "<script" not in page
    assert path.stat().st_size < 500_000
    assert "<link" not in page
    assert "10,000 messages a day" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_browser_shows_the_page_on_a_desk_and_in_a_hand(scheme: Any, tmp_path: Path) -> None:
    path = tmp_path / "plan.html"
    assert main(["plan", *GIVEN, "--hottest", "5", "--index", "by-day=ALL", "--html", str(path)]) == 0
    with browser() as chromium:
        for width in (1280, 400):
            with watch(chromium, scheme=scheme, width=width) as shown:
                shown.page.goto(path.as_uri())
                assert shown.page.locator(".bars .bar").count() == 8
                assert shown.page.locator("svg").nth(0).locator("polyline").count() == 8
                assert shown.page.locator("svg").nth(1).locator("polyline").count() == 5
                assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
