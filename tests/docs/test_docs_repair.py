"""What docs/cli.md shows is what `inspect` prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import boto3
import pytest

from onewrite import Applied, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.operate import main
from onewrite.testing import moto_table
from onewrite.testing.servers.engines import REGION
from tests.support.seams import name_calls

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
INSPECT = PAGE.read_text().partition("## `inspect`")[2]
AT = 1_795_334_400.0  # 2026-11-22T08:00:00Z


def test_page_shows_the_output_of_inspect(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    command, shown = re.findall(r"^```(?:sh|text)\n(.*?)^```$", INSPECT, re.DOTALL | re.MULTILINE)[:2]
    monkeypatch.setattr("time.time", lambda: AT)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with moto_table("orders", "orderId"):
        client = boto3.client("dynamodb", region_name=REGION)
        orders = name_calls(GuardedTable(client, SeenIds(), table_name="orders", clock=lambda: AT), lambda: "a call")
        paid: dict[str, Any] = {"UpdateExpression": "SET cents = :c", "ExpressionAttributeValues": {":c": 1250}}
        assert isinstance(orders.update_item(Message("evt-42"), Key={"orderId": "o-1"}, **paid), Applied)
        name, *arguments = shlex.split(command)
        assert (name, main(arguments)) == ("onewrite", 0)
    assert capsys.readouterr().out == shown
