"""How the benchmarks count, judge and show: with numbers that are given here. They themselves are run by hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree as ET

import pytest

from onewrite import Applied, Duplicate, Message
from tests.benchmarks.measure import Plan
from tests.benchmarks.peers import libraries
from tests.benchmarks.peers.bills import Bill, asking_for_units, bill
from tests.benchmarks.peers.folds import FOLD, ONE_BY_ONE, TRANSACTION, Pair
from tests.benchmarks.peers.folds import tables as fold_tables
from tests.benchmarks.peers.plot import picture
from tests.benchmarks.peers.race import Costs, count_costs, line, race
from tests.benchmarks.peers.table import tables
from tests.benchmarks.peers.ways import INSTALL, Cost, Delivery, Engine, Line, Result, Unmeasured, Way
from tests.benchmarks.sections import PAGE, Section, replace, write

DOCS = Path(__file__).parents[2] / "docs"
SVG = "{http://www.w3.org/2000/svg}"
REFUSED = {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}
CANCELLED = {"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"}
UPDATE = {"TableName": "orders", "Key": {"id": {"S": "o-1"}}}
PUT = {"TableName": "processed", "Item": {"id": {"S": "m-1"}}}


def size(table: str, item: Any) -> int:
    """There is one order, of 4,097 bytes, and nothing else."""
    return 4_097 if (table, item) == ("orders", {"id": {"S": "o-1"}}) else 0


@pytest.mark.parametrize(
    ("operation", "request_", "answer", "expected"),
    [
        ("UpdateItem", UPDATE, {"ConsumedCapacity": {"CapacityUnits": 5.0}}, Bill(1, 5)),
        ("GetItem", UPDATE, {"ConsumedCapacity": {"CapacityUnits": 1.0}}, Bill(1, 0, 1)),
        ("TransactWriteItems", {}, {"ConsumedCapacity": [{"CapacityUnits": 10.0}, {"CapacityUnits": 2.0}]}, Bill(1, 12)),
        ("UpdateItem", UPDATE, REFUSED, Bill(1, 5)),
        ("PutItem", PUT, REFUSED, Bill(1, 1)),
        ("TransactWriteItems", {"TransactItems": [{"Put": PUT}, {"Update": UPDATE}]}, CANCELLED, Bill(1, 12)),
        ("UpdateItem", UPDATE, {"__type": "x#ThrottlingException"}, Bill(1)),
    ],
)
def test_a_request_costs_what_the_engine_tells_and_a_refused_one_what_is_there(
    operation: str, request_: dict[str, Any], answer: dict[str, Any], expected: Bill
) -> None:
    assert bill(operation, request_, answer, size) == expected


def test_bills_add_up_and_are_shared_among_messages() -> None:
    assert (Bill(1, 5) + Bill(2, 1, 4)) / 2 == Bill(1.5, 3, 2)


def test_a_request_that_asks_for_its_units_is_whole_and_else_the_same() -> None:
    sent = b'POST / HTTP/1.1\r\nHost: x\r\ncontent-length: 24\r\nX-Amz-Target: D.UpdateItem\r\n\r\n{"TableName": "orders"}\n'
    head, _, body = asking_for_units(sent).partition(b"\r\n\r\n")
    assert head.split(b"\r\n") == [
        b"POST / HTTP/1.1",
        b"Host: x",
        b"content-length: %d" % len(body),
        b"X-Amz-Target: D.UpdateItem",
    ]
    assert json.loads(body) == {"TableName": "orders", "ReturnConsumedCapacity": "TOTAL"}


# ---------------------------------------------------------------- the race


class Memory:
    """An engine without a server: it counts the effects of each entity, and a request for each delivery."""

    name, program, port = "Memory", "memory", 0

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.seen: set[str] = set()
        self.requests = 0

    def create(self, entities: Iterable[str], text: str = "") -> None:
        self.counts.update(dict.fromkeys(entities, 0))

    def effects(self, entities: Iterable[str]) -> int:
        return sum(self.counts[entity] for entity in entities)

    def take(self) -> Bill:
        found, self.requests = self.requests, 0
        return Bill(found)

    def plainly(self, messages: Sequence[Message], entity: str) -> None:
        self.requests += 1
        self.counts[entity] += len(messages)

    def once(self, messages: Sequence[Message], entity: str) -> object:
        outcomes = [Duplicate(each) if f"{entity} {each.id}" in self.seen else Applied(each) for each in messages]
        self.seen.update(f"{entity} {each.id}" for each in messages)
        self.requests += 1
        self.counts[entity] += sum(isinstance(each, Applied) for each in outcomes)
        return outcomes


def raced(memory: Memory, *ways: Way) -> dict[str, Any]:
    return race(cast("Engine", memory), ways, Plan(rounds=30, late=0))


def test_a_way_is_in_order_whose_effects_are_as_many_as_its_guard_lets_through() -> None:
    memory = Memory()
    found = raced(
        memory,
        Way("unguarded", memory.plainly, guarded=False),
        Way("once", memory.once),
        Way("ten at once", memory.once, batch=10),
    )
    assert {name: runner.error for name, runner in found.items()} == {"unguarded": "", "once": "", "ten at once": ""}
    assert {len(costs) for runner in found.values() for costs in runner.costs.values()} == {30}


def test_a_way_that_lets_duplicates_through_is_an_error_without_numbers() -> None:
    memory = Memory()
    runners = raced(memory, way := Way("guards nothing", memory.plainly))
    shown = line(way, runners, runners, {way.name: Costs({}, "")})
    assert shown == Unmeasured("guards nothing", "ERROR: 100 effects of 50 messages, where 50 are right")


def test_a_way_that_answers_wrongly_or_raises_is_out_and_the_others_go_on() -> None:
    memory = Memory()

    def refuse(messages: Sequence[Message], entity: str) -> object:
        raise ConnectionError("no")

    found = raced(
        memory,
        Way("once", memory.once),
        Way("refuses", refuse),
        Way("always applied", lambda messages, entity: Applied(messages[0])),
    )
    assert found["once"].error == ""
    assert found["refuses"].error == "ConnectionError: no"
    assert found["always applied"].error.startswith("WrongOutcomeError: Applied(")


def test_requests_are_counted_for_each_message_and_not_for_each_call() -> None:
    memory = Memory()
    ways: list[Way | Unmeasured] = [
        Way("once", memory.once),
        Way("ten at once", memory.once, batch=10),
        Unmeasured("other", "why"),
    ]
    found = count_costs(cast("Engine", memory), ways, cast("Any", memory), seed=1)
    assert {name: {each.requests for each in of.bills.values()} for name, of in found.items()} == {
        "once": {1},
        "ten at once": {0.1},
    }


@pytest.mark.parametrize("make", [libraries.idemkit_on_dynamodb, libraries.idemkit_on_mongodb])
def test_a_library_that_is_not_installed_is_told_with_how_to_get_it(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "idemkit", None)
    assert make("http://127.0.0.1:1", ExitStack(), print) == Unmeasured("idemkit around it", INSTALL)


# ---------------------------------------------------------------- what is shown


def delivery(ms: float, requests: float = 1, units: float = 1, reads: float = 0) -> Delivery:
    cost = Cost(ms / 1000, ms / 2000)
    far = Cost((ms + 4 * requests) / 1000, ms / 2000)
    return Delivery(cost, far, Bill(requests, units, reads), Bill(requests, units * 5, reads))


MEASURED: dict[str, list[Result]] = {
    "DynamoDB": [
        Line("unguarded", ours=False, fresh=delivery(1), again=delivery(1), effects=2),
        Line("ours & `yours`", ours=True, fresh=delivery(0.2, 0.1, 0.1), again=delivery(1.25), effects=1),
        Line("idem", ours=False, fresh=delivery(4, 3, 3), again=delivery(2, 2, 1, 1), effects=1),
        Unmeasured("broken", "ERROR: a | b\nc"),
    ],
    "MongoDB": [Line("unguarded", ours=False, fresh=delivery(2, 1, 0), again=delivery(2, 1, 0), effects=2)],
}


HEAD = "| a fresh message | time, on loopback | time, 4 ms away | processor time | requests | write units | write units, 4.5 KB |"


def test_a_table_sets_each_way_against_the_unguarded_one_of_its_engine() -> None:
    assert tables(MEASURED, "4 ms").splitlines() == [
        HEAD,
        "|---|---|---|---|---|---|---|",
        "| **DynamoDB** |  |  |  |  |  |  |",
        "| unguarded | 1.00 ms (1.00) | 5.00 ms (1.00) | 0.50 ms (1.00) | 1 | 1 | 5 |",
        "| **ours & `yours`** | 0.20 ms (0.20) | 0.60 ms (0.12) | 0.10 ms (0.20) | 0.1 | 0.1 | 0.5 |",
        "| idem | 4.00 ms (4.00) | 16.00 ms (3.20) | 2.00 ms (4.00) | 3 | 3 | 15 |",
        "| broken | ERROR: a / b c |  |  |  |  |  |",
        "| **MongoDB** |  |  |  |  |  |  |",
        "| unguarded | 2.00 ms (1.00) | 6.00 ms (1.00) | 1.00 ms (1.00) | 1 |  |  |",
        "",
        f"{HEAD.replace('fresh message', 'duplicate')} effects |",
        "|---|---|---|---|---|---|---|---|",
        "| **DynamoDB** |  |  |  |  |  |  |  |",
        "| unguarded | 1.00 ms (1.00) | 5.00 ms (1.00) | 0.50 ms (1.00) | 1 | 1 | 5 | 2 |",
        "| **ours & `yours`** | 1.25 ms (1.25) | 5.25 ms (1.05) | 0.62 ms (1.25) | 1 | 1 | 5 | 1 |",
        "| idem | 2.00 ms (2.00) | 10.00 ms (2.00) | 1.00 ms (2.00) | 2 | 1 and 1 to read | 5 and 1 to read | 1 |",
        "| broken | ERROR: a / b c |  |  |  |  |  |  |",
        "| **MongoDB** |  |  |  |  |  |  |  |",
        "| unguarded | 2.00 ms (1.00) | 6.00 ms (1.00) | 1.00 ms (1.00) | 1 |  |  | 2 |",
    ]


def test_the_bars_of_the_picture_are_as_long_as_the_ratios() -> None:
    drawn = ET.fromstring(picture(MEASURED, "4 ms"))  # noqa: S314  # it is our own
    texts = [each.text for each in drawn.iter(f"{SVG}text")]
    assert [text for text in texts if text in {"DynamoDB", "ours & yours", "idem", "MongoDB"}] == [
        "DynamoDB",
        "ours & yours",
        "idem",
        "MongoDB",
    ]
    bars = [float(each.attrib["width"]) for each in drawn.iter(f"{SVG}rect")][3:]  # the first three are the legend
    assert bars == [125, 125, 25, 15, 500, 400, 125, 125]
    assert float(drawn.attrib["viewBox"].split()[3]) > max(float(each.attrib["y"]) for each in drawn.iter(f"{SVG}rect"))


def test_what_a_fold_saves_is_shown_as_rates_and_as_units() -> None:
    pairs = [
        Pair("DynamoDB, SeenIds", (200, 1_500), (Bill(1, 9.5), Bill(0.1, 0.95))),
        Pair("MongoDB, SeenIds", (400, 2_400), (Bill(1), Bill(0.3))),
    ]
    hot = {"DynamoDB": {ONE_BY_ONE: 900.0, FOLD: 4_500.0, TRANSACTION: 700.0}}
    assert fold_tables(pairs, hot).splitlines()[2:] == [
        "| DynamoDB, SeenIds, messages a second | 200 | 1,500 | 7.5 |",
        "| DynamoDB, SeenIds, requests a message | 1 | 0.1 | 0.100 |",
        "| DynamoDB, SeenIds, write units a message | 9.5 | 0.95 | 0.100 |",
        "| MongoDB, SeenIds, messages a second | 400 | 2,400 | 6.0 |",
        "| MongoDB, SeenIds, requests a message | 1 | 0.3 | 0.300 |",
        "",
        "| messages a second, 8 writers of one entity | one by one | `fold` of 10 | transaction with processed messages |",
        "|---|---|---|---|",
        "| DynamoDB | 900 | 4,500 | 700 |",
    ]


def test_a_section_is_written_into_its_place_and_its_files_beside_the_page(tmp_path: Path) -> None:
    page = "before\n<!-- peers: made by the benchmark -->\nold\n<!-- end of peers -->\nafter\n"
    (tmp_path / PAGE).write_text(page)
    section = Section("peers", "new", {"peers.svg": "<svg/>"})
    write(section, tmp_path)
    write(section, tmp_path)
    assert (tmp_path / PAGE).read_text() == page.replace("old\n", "\nnew\n\n")
    assert (tmp_path / "peers.svg").read_text() == "<svg/>"


def test_a_page_without_a_place_for_a_section_is_told_what_it_lacks() -> None:
    with pytest.raises(ValueError, match="put these two lines where it belongs:\n<!-- peers: made by the benchmark -->"):
        replace("text", Section("peers", "new"))


@pytest.mark.parametrize("name", ["peers", "folds"])
def test_the_page_has_a_place_for_each_section(name: str) -> None:
    assert "put here by the test" in replace((DOCS / PAGE).read_text(), Section(name, "put here by the test"))
