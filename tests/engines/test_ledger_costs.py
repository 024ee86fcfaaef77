"""The cost table of docs/ledgers.md: its cells follow from its formula, and DynamoDB bills what the formula says.

Dynoxide counts write units as AWS documents them.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onewrite import Applied, HighWaterMark, InSequence, Message, SeenIds
from onewrite.core.ledgers.ring import make_window
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import MAX_ITEM_BYTES, measure_item, plain_values
from onewrite.testing.servers.engines import Dynoxide
from tests.engines.stores import billed
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PAGE = (ROOT / "docs" / "ledgers.md").read_text()
SECONDS_BETWEEN = {"1/day": 86_400, "10/day": 8_640, "100/day": 864, "1/minute": 60, "1/second": 1}
HEAD = f"| ledger | its bytes in the item | {' | '.join(SECONDS_BETWEEN)} |"
TABLE = PAGE.partition(f"\n{HEAD}\n|---|---|---|---|---|---|---|\n")[2].partition("\n\n")[0]
ROWS = {ledger: cells for ledger, *cells in [line.strip("| ").split(" | ") for line in TABLE.splitlines()]}
DAY = timedelta(days=1)
OWN_BYTES = 500
DEFAULT = timedelta(days=14)
RETENTIONS = {"`SeenIds(timedelta(hours=1))`": timedelta(hours=1)}  # where the row names one


def list_ages(retention: timedelta) -> list[float]:
    """Return the age of the oldest mark in seconds: right after a clean-up, and right before the next one."""
    window = make_window(retention, retention / 56)
    return [window.behind / 1e6, (window.behind + window.width) / 1e6]


def formula_units(formula: str, ids: float) -> int:
    """Return the write units of an item with a ledger of that formula."""
    fixed, _, per_id = formula.removesuffix(" per id").partition(" + ")
    size = OWN_BYTES + int(fixed) + int(per_id or 0) * ids
    return -int(-size // 1024) if size <= MAX_ITEM_BYTES else 0


def unit_range(formula: str, between: float, retention: timedelta) -> list[int]:
    """Return the least and the most units of a message, or 0 for an item that is full."""
    return [formula_units(formula, age / between) for age in list_ages(retention)]


@pytest.mark.parametrize("ledger", ROWS)
def test_cost_table_matches_its_formula(ledger: str) -> None:
    formula, *cells = ROWS[ledger]
    for cell, between in zip(cells, SECONDS_BETWEEN.values(), strict=True):
        least, most = unit_range(formula, between, RETENTIONS.get(ledger, DEFAULT))
        assert cell == ("full" if most == 0 else f"{least}" if least == most else f"{least} to {most}")


@pytest.mark.parametrize(
    ("row", "ledger", "source", "between", "span"),
    [
        ("`SeenIds()`", SeenIds(DAY), "", timedelta(minutes=4), 2.5 * DAY),
        ("`SeenIds(readable=True)`", SeenIds(DAY, readable=True), "", timedelta(minutes=10), 2.5 * DAY),
    ],
)
def test_dynamodb_bills_the_units_of_the_formula(
    row: str, ledger: Any, source: str, between: timedelta, span: timedelta, dynamo: DynamoDBClient, table: str
) -> None:
    now = 1_790_000_000.0
    store = GuardedTable(dynamo, ledger, table_name=table, clock=lambda: now)
    note = {":note": "x" * (OWN_BYTES - len("ide" + "note"))}
    update: Any = {"UpdateExpression": "SET note = :note", "ExpressionAttributeValues": note}
    with billed(dynamo, "UpdateItem") as bills:
        for n in range(span // between):
            now += between.total_seconds()
            message = Message(f"{n:036}", source=source, sequence=n)
            assert isinstance(store.update_item(message, Key={"id": "e"}, **update), Applied)
    steady = bills[-len(bills) // 4 :]  # a whole cycle, in which the ledger loses as much as it gains
    assert [min(steady), max(steady)] == unit_range(ROWS[row][0], between.total_seconds(), DAY)


@pytest.mark.parametrize("rate", [1, 10], ids="{} per second".format)
@pytest.mark.parametrize("ledger", [HighWaterMark(), InSequence(), SeenIds()], ids=lambda ledger: type(ledger).__name__)
def test_item_grows_only_by_its_marks_at_any_rate(ledger: Any, rate: int, dynoxide: Dynoxide, table: str) -> None:
    dynamo = dynoxide.client()  # a lean store refuses a client with event handlers of others
    now = 1_790_000_000.0
    store = GuardedTable(dynamo, ledger, table_name=table, lean=True, clock=lambda: now)
    sizes, units = list[int](), 0.0
    for n in range(1, 3001):
        now += 1 / rate
        outcome = store.update_item(
            Message(f"m{n}", source="s", sequence=n),
            Key={"id": "e"},
            UpdateExpression="SET note = :note",
            ExpressionAttributeValues={":note": "small"},
            ReturnConsumedCapacity="TOTAL",
        )
        assert isinstance(outcome, Applied)
        units = outcome.response["ConsumedCapacity"]["CapacityUnits"]
        if n in (1000, 3000):
            sizes.append(measure_item(plain_values(dynamo.get_item(TableName=table, Key={"id": {"S": "e"}})["Item"])))
    bytes_per_message = 11 if isinstance(ledger, SeenIds) else 0
    assert sizes[1] - sizes[0] == 2000 * bytes_per_message
    assert units == 1 + 3000 * bytes_per_message // 1024
