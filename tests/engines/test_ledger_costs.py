"""The cost table of docs/ledgers.md: its cells follow from its formula, and DynamoDB bills what the formula says.

Dynoxide counts write units as AWS documents them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from onewrite import Applied, HighWaterMark, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.size import LARGEST_ITEM
from tests.support.pages import ROOT

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

PAGE = (ROOT / "docs" / "ledgers.md").read_text()
SECONDS_BETWEEN = {"1/day": 86_400, "10/day": 8_640, "100/day": 864, "1/minute": 60, "1/second": 1}
HEAD = f"| ledger | its bytes in the item | {' | '.join(SECONDS_BETWEEN)} |"
TABLE = PAGE.partition(f"\n{HEAD}\n|---|---|---|---|---|---|---|\n")[2].partition("\n\n")[0]
ROWS = {ledger: cells for ledger, *cells in [line.strip("| ").split(" | ") for line in TABLE.splitlines()]}
MARKS = "`HighWaterMark()`, `InSequence()`"
DAY = timedelta(days=1)
OWN_BYTES = 500
DEFAULT = timedelta(days=14)
RETENTIONS = {"`SeenIds(timedelta(hours=1))`": timedelta(hours=1)}  # where the row names one

# How long an id and an attempt are kept: from right after a clean-up to right before the next one.
IDS = (1, 22 / 14)  # retentions
ATTEMPTS = (timedelta(minutes=20), timedelta(minutes=35))


def formula_units(formula: str, counts: Mapping[str, float]) -> int:
    """Return the write units of an item with a ledger of that formula."""
    size = float(OWN_BYTES)
    for term in formula.split(" + "):
        number, _, name = term.partition(" per ")
        size += int(number) * (counts[name] if name else 1)
    return -int(-size // 1024) if size <= LARGEST_ITEM else 0


def unit_range(formula: str, between: float, retention: timedelta) -> list[int]:
    """Return the least and the most units of a message, or 0 for an item that is full."""
    return [
        formula_units(
            formula,
            {
                "id": retention.total_seconds() / between * IDS[end],
                "attempt": ATTEMPTS[end].total_seconds() / between,
            },
        )
        for end in (0, 1)
    ]


@pytest.mark.parametrize("ledger", ROWS)
def test_cost_table_follows_from_its_formula(ledger: str) -> None:
    formula, *cells = ROWS[ledger]
    for cell, between in zip(cells, SECONDS_BETWEEN.values(), strict=True):
        least, most = unit_range(formula, between, RETENTIONS.get(ledger, DEFAULT))
        assert cell == ("full" if most == 0 else f"{least}" if least == most else f"{least} to {most}")


@pytest.mark.parametrize(
    ("row", "ledger", "source", "between", "span"),
    [
        ("`SeenIds()`", SeenIds(DAY), "", timedelta(minutes=4), 2.5 * DAY),
        ("`SeenIds(readable=True)`", SeenIds(DAY, readable=True), "", timedelta(minutes=10), 2.5 * DAY),
        (MARKS, HighWaterMark(), "a source of 16 b", timedelta(seconds=4), timedelta(hours=1.2)),
    ],
)
def test_dynamodb_bills_the_units_of_the_formula(
    row: str, ledger: Any, source: str, between: timedelta, span: timedelta, dynamo: DynamoDBClient, table: str
) -> None:
    now = 1_790_000_000.0
    store = GuardedTable(dynamo, ledger, table_name=table, clock=lambda: now)
    note = {":note": "x" * (OWN_BYTES - len("ide" + "note"))}
    bills = list[float]()
    for n in range(span // between):
        now += between.total_seconds()
        outcome = store.update_item(
            Message(f"{n:036}", source=source, sequence=n),
            Key={"id": "e"},
            UpdateExpression="SET note = :note",
            ExpressionAttributeValues=note,
            ReturnConsumedCapacity="TOTAL",
        )
        assert isinstance(outcome, Applied)
        bills.append(outcome.response["ConsumedCapacity"]["CapacityUnits"])
    steady = bills[-len(bills) // 4 :]  # a whole cycle, in which the ledger loses as much as it gains
    assert [min(steady), max(steady)] == unit_range(ROWS[row][0], between.total_seconds(), DAY)
