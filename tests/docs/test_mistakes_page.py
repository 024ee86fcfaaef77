"""Each pair of lines in docs/mistakes.md: the tool that the page names finds the first one, and not the second one."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

import pytest

from onewrite import Applied, HighWaterMark, Message, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.values import typed_values
from onewrite.identity import json_body, sqs_message_id
from onewrite.operate.doctor.checks import CHECKS, examine
from onewrite.operate.doctor.facts import EntitySample, EventSourceMapping, Facts, Module, ModuleStore, Queue
from onewrite.operate.dynamodb import make_image
from onewrite.testing import explore, moto_table, sqs_event
from several.processed_dynamodb import make_counter
from tests.support.pages import ROOT

PAGE = (ROOT / "docs" / "mistakes.md").read_text()
SECTION = re.compile(r"^## (\d+)\. .*?^```diff\n-(.*?)\n\+(.*?)\n```\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
SECTIONS = {int(number): (wrong, right, text) for number, wrong, right, text in SECTION.findall(PAGE)}
Kind = Literal["wrong", "right"]
KEY = {"orderId": "o-1"}
PAY, CREATE = Message("m-1", "s", sequence=1, body="pay"), Message("m-2", "s", sequence=2, body="create")


def line(number: int, kind: Kind) -> str:
    return SECTIONS[number][kind == "right"]


def add_paid(cents: int) -> dict[str, Any]:
    return {"UpdateExpression": "ADD paid :c", "ExpressionAttributeValues": {":c": cents}}


def set_paid(cents: int) -> dict[str, Any]:
    return {"UpdateExpression": "SET paid = :c", "ExpressionAttributeValues": {":c": cents}}


def set_status(status: str) -> dict[str, Any]:
    names, values = {"#s": "status"}, {":s": status}
    return {"UpdateExpression": "SET #s = :s", "ExpressionAttributeNames": names, "ExpressionAttributeValues": values}


IF_NEW = {
    **set_status("PAID"),
    "ConditionExpression": "#s = :new",
    "ExpressionAttributeValues": {":s": "PAID", ":new": "NEW"},
}
NAMES: dict[str, Any] = {
    "Applied": Applied,
    "GuardedTable": GuardedTable,
    "HighWaterMark": HighWaterMark,
    "KEY": KEY,
    "SeenIds": SeenIds,
    "add_paid": add_paid,
    "cents": 10,
    "json_body": json_body,
    "key": KEY,
    "note": "fragile",
    "paid": set_status("PAID"),
    "pay": {"Key": KEY, **add_paid(10), "ConditionExpression": "attribute_exists(orderId)"},
    "pay_if_new": {"Key": KEY, **IF_NEW},
    "set_paid": set_paid,
    "set_status": set_status,
    "sqs_handler": sqs_handler,
    "sqs_message_id": sqs_message_id,
    "terms": {"lease": timedelta(minutes=1), "key_valid_for": timedelta(hours=23)},
    "timedelta": timedelta,
}


class Provider:
    """Charges once per key, or whenever it's called without one."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def charge(self, cents: int, key: str | None = None) -> None:
        self._table.put_item(Item={"id": key or f"charge {self._table.scan()['Count']}", "cents": cents})


@dataclass(frozen=True)
class Explored:
    """`code`: the handler, with the line. `start`: the order at the beginning. `right`: the only right state, if an invariant checks it."""

    code: str
    messages: list[Any]
    start: dict[str, Any] = field(default_factory=dict[str, Any])
    right: dict[str, Any] | None = None
    accept: tuple[str, ...] = ()


UNLESS_PAY = (
    "def handle(message):\n if message.body != 'pay':\n  return orders.update_item(message, Key=KEY, **{other})\n {{line}}"
)
EXPLORED = {
    1: Explored(UNLESS_PAY.format(other="set_status('NEW')"), [CREATE, PAY]),
    2: Explored(
        UNLESS_PAY.format(other="set_status('NEW')"),
        [CREATE, PAY],
        {"status": "DRAFT"},
        right={"status": "PAID"},
    ),
    3: Explored(
        "{line}\ndef handle(message):\n return orders.update_item(message, Key=KEY, **add_paid(10))",
        [sqs_event({"eventId": "e-1"}, ids=[name]) for name in "ab"],
        right={"paid": 10},
        accept=("idle",),
    ),
    4: Explored(
        "{line}\ndef handle(message):\n return orders.update_item(message, Key=KEY, **add_paid(message.sequence))",
        [PAY, CREATE],
    ),
    5: Explored(
        "def handle(message):\n"
        " if message.body == 'pay':\n"
        "  return orders.update_item(message, Key=KEY, **add_paid(10))\n"
        " order = orders.get_item(Key=KEY)\n {line}",
        [PAY, Message("m-2", body="note")],
        {"paid": 0},
    ),
    6: Explored("def handle(message):\n {line}", [PAY, CREATE], {"paid": 0}),
    9: Explored("def handle(message):\n {line}", [PAY], {"status": "NEW"}),
}


@pytest.mark.parametrize("kind", ["wrong", "right"])
@pytest.mark.parametrize("number", EXPLORED)
def test_explorer_finds_the_wrong_line_only(number: int, kind: Kind) -> None:
    case = EXPLORED[number]
    code = compile(case.code.format(line=line(number, kind)), f"mistakes.md, {number}, {kind}", "exec")

    def build(stores: dict[str, Any]) -> Any:
        table = stores["orders"]
        names = {**NAMES, "table": table, "orders": GuardedTable(table, SeenIds()), "provider": Provider(stores["provider"])}
        exec(code, names)  # noqa: S102  # our own page
        return names["handle"]

    def make_stores() -> dict[str, Any]:
        stores = {"orders": moto_table("orders"), "provider": moto_table("provider", "id")}
        if case.start:
            stores["orders"].put_item(Item={**KEY, **case.start})
        return stores

    def read(stores: dict[str, Any]) -> dict[str, Any]:
        item = stores["orders"].get_item(Key=KEY, ConsistentRead=True).get("Item", {})
        return {name: value for name, value in item.items() if name not in KEY and not name.startswith("ow_")}

    def observe(stores: dict[str, Any]) -> Any:
        return read(stores), stores["provider"].scan()["Count"]

    invariant = None if case.right is None else lambda stores: read(stores) == case.right
    report = explore(build, case.messages, make_stores, observe, invariant=invariant)
    if kind == "right":
        report.assert_effectively_once(accept=case.accept)
        assert report.exhausted
    else:
        with pytest.raises(AssertionError, match="Not effectively once"):
            report.assert_effectively_once()
    assert "**Explorer:**" in SECTIONS[number][2]


# --- the doctor ---------------------------------------------------------------------------------------------------------

DAY = 86_400
QUEUE = Queue("orders", "arn:orders", fifo=False, retention=14 * DAY, dead_letters="arn:dead")
DEAD = Queue("dead", "arn:dead", fifo=False, retention=14 * DAY)


def make_ledger_facts(code: str) -> Facts:
    """Return the facts of a module with the store that the line makes."""
    with moto_table("orders") as table:
        names = {**NAMES, "table": table}
        exec(code, names)  # noqa: S102  # our own page
    stores = (ModuleStore("the table orders", names["orders"]._flows.ledger),)
    return Facts(queue=QUEUE, dead_letters=DEAD, module=Module("shop", stores))


def make_sample_facts(*items: dict[str, Any]) -> Facts:
    images = [make_image(typed_values(item), ("orderId",)) for item in items]
    return Facts(sample=EntitySample(tuple(images), 1_790_000_000.0))


def read_items(table: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = table.scan()["Items"]
    return items


def make_saved_facts(code: str) -> Facts:
    """Return the facts of a table in which the line has changed one of two orders."""
    with moto_table("orders") as table:
        orders = GuardedTable(table, SeenIds())
        for number in (1, 2):
            orders.update_item(Message("m"), Key={"orderId": f"o-{number}"}, **add_paid(10))
        exec(code, {**NAMES, "table": table, "order": orders.get_item(Key=KEY)})  # noqa: S102  # our own page
        return make_sample_facts(*read_items(table))


def make_hot_facts(code: str) -> Facts:
    """Return the facts of the total after some messages with long IDs, which the line adds."""
    with moto_table("orders") as table, moto_table("totals", "id") as totals, moto_table("processed", "id") as processed:
        names = {**NAMES, "orders": GuardedTable(table, SeenIds(readable=True)), "count": make_counter(totals, processed)}
        exec(f"def handle(message):\n {code}", names)  # noqa: S102  # our own page
        for number in range(15):
            names["handle"](Message(f"{number:01000}", body={"cents": 10}))
        items = read_items(table) or [{"orderId": item.pop("id"), **item} for item in read_items(totals)]
        return make_sample_facts(*items)


def make_mapping_facts(code: str) -> Facts:
    return Facts(feeds=(EventSourceMapping("arn:orders", reports_failures="ReportBatchItemFailures" in code),))


DOCTORED: dict[int, tuple[str, Any]] = {
    4: ("order", make_ledger_facts),
    5: ("erased-ledgers", make_saved_facts),
    7: ("ledger-size", make_hot_facts),
    8: ("ledger-retention", make_ledger_facts),
    10: ("partial-failures", make_mapping_facts),
}


@pytest.mark.parametrize("kind", ["wrong", "right"])
@pytest.mark.parametrize("number", DOCTORED)
def test_doctor_finds_the_wrong_line_only(number: int, kind: Kind) -> None:
    code, make_facts = DOCTORED[number]
    facts = make_facts(line(number, kind))
    result = next(each for each in examine(facts) if each.check.code == code)
    assert bool(result.findings) == (kind == "wrong"), result.text
    assert f"**Doctor:** `{code}`" in SECTIONS[number][2]


def test_page_names_a_tool_for_each_of_ten_lines() -> None:
    assert [*SECTIONS] == [*range(1, 11)]
    for number, (_, _, text) in SECTIONS.items():
        assert ("**Explorer:**" in text) == (number in EXPLORED)
        assert ("**Doctor:**" in text) == (number in DOCTORED)
    assert {code for code, _ in DOCTORED.values()} <= {check.code for check in CHECKS}
