"""The `doctor` verb: what it is told, what it prints, and its exit code."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import boto3
import botocore.client
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from onewrite import Applied, Event, Message, Rejected, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.operate import main
from onewrite.operate.doctor import DoctorReport
from onewrite.operate.doctor.checks import CHECKS, examine
from onewrite.operate.doctor.facts import Facts, Module, ModuleStore, Queue, TableDescription, Unread
from onewrite.testing.servers.engines import REGION
from order_history import create_table as create_order_history
from order_history import feed, handle
from order_history.__main__ import deliveries
from tests.engines.stores import create_table, create_table_with_outbox

DAY = 86_400
DENIED = Unread("the table orders", "An error occurred", "dynamodb:DescribeTable")


@pytest.fixture(autouse=True)
def _amazon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        yield


@pytest.fixture
def queue() -> str:
    """The URL of a standard queue that keeps messages for four days, as dead letters for fourteen."""
    sqs = boto3.client("sqs")
    dead = sqs.create_queue(QueueName="orders-dead", Attributes={"MessageRetentionPeriod": str(14 * DAY)})["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 5})
    return sqs.create_queue(QueueName="orders", Attributes={"RedrivePolicy": policy})["QueueUrl"]


def table() -> GuardedTable:
    client = boto3.client("dynamodb", region_name=REGION)
    create_table(client, "orders")
    return GuardedTable(client, SeenIds(), table_name="orders")


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["doctor", *arguments, "--json"])
    printed = capsys.readouterr()
    assert printed.err == ""
    return code, json.loads(printed.out)


def states(found: dict[str, Any]) -> dict[str, str]:
    return {each["code"]: each["state"] for each in found["checks"]}


def test_nothing_found_is_exit_code_0(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert isinstance(table().record(Message("m"), Key={"id": "o"}), Applied)
    code, found = asked(capsys, "--queue", queue, "--table", "orders")
    assert code == 0
    assert [*states(found)] == [check.code for check in CHECKS]
    assert "found" not in states(found).values()
    assert states(found)["ledger-retention"] == "passed"
    assert found["unread"] == []


LAZY = """
import os
from datetime import timedelta
from functools import cache, lru_cache

import boto3
from onewrite import SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import sqs_message_id

calls = []


{decorator}
def orders():
    print("orders is called")
    return GuardedTable(boto3.resource("dynamodb").Table(os.environ["ORDERS_TABLE"]), SeenIds(timedelta(days=2)))


@cache
def unused():
    calls.append("unused")


def act():
    calls.append("act")


@sqs_handler(sqs_message_id())
def ship(message):
    unused()
    return orders().record(message, Key={{"id": "o"}})


def handler():
    return ship
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """Writes a module, and says its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def make(text: str) -> str:
        (tmp_path / "lazy_shop.py").write_text(text)
        importlib.invalidate_caches()
        return "lazy_shop"

    yield make
    sys.modules.pop("lazy_shop", None)


@pytest.fixture
def lazy(module: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Writes a module that makes its store in a function, with this decorator, and says its name."""
    monkeypatch.setenv("ORDERS_TABLE", "orders")
    return lambda decorator: module(LAZY.format(decorator=decorator))


def told_of_retention(found: dict[str, Any]) -> list[str]:
    (check,) = [each for each in found["checks"] if each["state"] == "found"]
    assert check["code"] == "ledger-retention"
    return [finding["what"] for finding in check["findings"] if finding["severity"] == "error"]


@pytest.mark.parametrize("decorator", ["@cache", "@lru_cache(maxsize=1)"])
@pytest.mark.parametrize("name", [":ship", ":orders", ":handler", ""])
def test_a_store_that_is_made_once_by_a_cached_function_is_judged(
    name: str, decorator: str, lazy: Callable[[str], str], queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = lazy(decorator)
    assert main(["doctor", f"{module}{name}", "--queue", queue, "--json"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "orders is called\n"  # once, and not to where a program reads
    (told,) = told_of_retention(json.loads(printed.out))
    assert "SeenIds of the table orders remembers a message for 2 days" in told
    assert sys.modules[module].calls == []


@pytest.mark.parametrize("name", [":ship", ""])
def test_where_stores_are_made_by_each_call_the_function_is_to_be_named(
    name: str, lazy: Callable[[str], str], queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    module = lazy("")
    code, found = asked(capsys, f"{module}{name}", "--queue", queue)
    assert code == 1
    assert "act" not in sys.modules[module].calls
    (unread,) = found["unread"]
    advice = f"The module makes its stores only when called: name the function, as in {module}:orders."
    assert (unread["what"], unread["error"]) == (f"a guarded store of {module}{name}", advice)
    assert "ledger-retention" in unread["checks"]
    assert main(["doctor", f"{module}:orders", "--queue", queue, "--json"]) == 1
    assert len(told_of_retention(json.loads(capsys.readouterr().out))) == 1


WAYS = {
    "a class attribute": "Shop.orders.record(message, Key=key)",
    "a class attribute of its own": "Bound().ship(message)",
    "a base class": "Branch.orders.record(message, Key=key)",
    "an object with slots": "slotted.orders.record(message, Key=key)",
    "a subclass of GuardedTable": "own.record(message, Key=key)",
    "a default argument": "by_default(message)",
    "a keyword's default argument": "by_keyword(message)",
    "a property": "Property().orders.record(message, Key=key)",
    "a set": "[store.record(message, Key=key) for store in several]",
    "a namespace": "space.orders.record(message, Key=key)",
    "a module of a package": "package.stores.orders.record(message, Key=key)",
}
REACHED = """
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType, SimpleNamespace

import boto3
from onewrite import SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import sqs_message_id


class Orders(GuardedTable):
    pass


def table(name, days, kind=GuardedTable):
    return kind(boto3.resource("dynamodb").Table(name), SeenIds(timedelta(days=days)))


def made_late():
    return GuardedTable(boto3.resource("dynamodb").Table("orders"), SeenIds(timedelta(days=2)))


key, stock = {{"id": "o"}}, table("stock", 14)


class Shop:
    orders = {class_store}


class Branch(Shop):
    pass


class Bound:
    orders = {class_store}

    def ship(self, message):
        return self.orders.record(message, Key=key)


@dataclass(slots=True)
class Slotted:
    orders: GuardedTable


class Property:
    @property
    def orders(self):
        return Shop.orders


def by_default(message, orders={class_store}):
    return orders.record(message, Key=key)


def by_keyword(message, *, orders={class_store}):
    return orders.record(message, Key=key)


slotted, own, several, space = Slotted({class_store}), table("orders", 2, Orders), {{{class_store}}}, SimpleNamespace(orders={class_store})
package = ModuleType("package")
package.stores = ModuleType("package.stores")
package.stores.orders = {class_store}


@sqs_handler(sqs_message_id())
def ship(message):
    stock.seen(message, Key=key)
    return {way}
"""


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_store_is_judged_however_the_handler_reaches_it_and_although_it_has_another_one(
    way: str, module: Callable[[str], str], queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module(REACHED.format(way=way, class_store='table("orders", 2)'))
    code, found = asked(capsys, name, "--queue", queue)
    assert code == 1
    assert told_of_retention(found)[0].startswith("SeenIds of the table orders remembers a message for 2 days")


def test_beside_a_store_that_is_made_only_when_it_is_needed_another_one_is_not_enough(
    module: Callable[[str], str], queue: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = module(REACHED.format(way="made_late().record(message, Key=key)", class_store="None"))
    code, found = asked(capsys, name, "--queue", queue)
    assert (code, states(found)["ledger-retention"]) == (1, "not checked")
    (unread,) = found["unread"]
    assert unread["what"] == f"each guarded store of {name}"
    assert unread["error"].endswith(f"name the function, as in {name}:made_late.")
    assert "ledger-retention" in unread["checks"]
    assert told_of_retention(asked(capsys, f"{name}:made_late", "--queue", queue)[1])


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"ow_l": "hello"}, "damaged-ledgers"),
        ({"ow_l": 5}, "damaged-ledgers"),
        ({"ow_l": True}, "damaged-ledgers"),
        ({"ow_other:l": None}, "damaged-ledgers"),
        ({"ow_l": "ow1 14d", "ow_r0": "text"}, "damaged-ledgers"),
        ({"ow_tombstone": "text"}, "damaged-ledgers"),
        ({"ow_o": "hello"}, "damaged-ledgers"),
        ({"ow_events": "hello"}, "damaged-ledgers"),
        ({"ow_step_eA": "hello", "ow_steps": {b"x"}}, "damaged-ledgers"),
        ({"ow_r0": "text", "ow_l": "ow1 14 fortnights"}, "later-format"),
        ({"ow_l": "ow1 numbers 0"}, "later-format"),
        ({"ow_l": "ow1 9999999999999d"}, "later-format"),
        ({"ow_l": "ow2 14d"}, "later-format"),
        ({"ow_o": "ow2 outbox"}, "later-format"),
    ],
)
def test_an_entity_that_no_store_can_read_is_found(
    fields: dict[str, Any], found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert isinstance(table().record(Message("m"), Key={"id": "o"}), Applied)
    boto3.resource("dynamodb").Table("orders").put_item(Item={"id": "p", "total": 1, **fields})
    code, document = asked(capsys, "--table", "orders")
    (check,) = [each for each in document["checks"] if each["state"] == "found"]
    assert (code, check["code"]) == (1, found)
    (what,) = [finding["what"] for finding in check["findings"]]
    assert "id=S:p" in what
    assert [*fields][-1] in what


def test_a_module_without_any_store_is_told_what_to_name(queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = asked(capsys, "json", "--queue", queue)
    assert code == 1
    assert found["unread"][0]["error"].startswith("Name the store, or a function without arguments that makes it")


def refuse(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """AWS refuses this operation."""
    clients: Any = botocore.client.BaseClient  # all requests go through its one method, which the stubs leave out
    send = clients._make_api_call

    def checked(self: Any, name: str, arguments: Any) -> Any:
        if name == operation:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, name)
        return send(self, name, arguments)

    monkeypatch.setattr(clients, "_make_api_call", checked)


def test_a_missing_permission_is_told_and_counts_only_if_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table()
    refuse(monkeypatch, "Scan")
    code, found = asked(capsys, "--table", "orders")
    assert code == 0
    (unread,) = found["unread"]
    assert unread["permission"] == "dynamodb:Scan"
    assert {"ledger-share", "erased-ledgers", "damaged-ledgers"} <= {*unread["checks"]}
    lacking = [each["code"] for each in found["checks"] if each["permission"] == "dynamodb:Scan"]
    assert lacking == unread["checks"]
    assert asked(capsys, "--table", "orders", "--strict")[0] == 1


def test_where_no_check_can_be_made_the_exit_code_is_1(
    lazy: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", f"{lazy('@cache')}:orders", "--json"]) == 1
    assert {*states(json.loads(capsys.readouterr().out)).values()} == {"not checked"}


def test_where_nothing_may_be_read_the_exit_code_is_1(
    queue: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refuse(monkeypatch, "GetQueueAttributes")
    assert asked(capsys, "--queue", queue)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Say what to look at"),
        (["--table", "t", "--collection", "mongodb://h/d.c"], "not both"),
        (["--queue", "orders"], "--queue orders: give the URL of an SQS queue"),
        (["--collection", "mongodb://h"], "mongodb://HOST/DATABASE.COLLECTION"),
        (["not a module"], "is no name of a module"),
        (["json:nothing"], "has no 'nothing'"),
        (["json:"], "'json:' is not of the form module:name"),
    ],
)
def test_what_cannot_be_run_as_it_was_asked_for_is_exit_code_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["doctor", *arguments]) == 2
    printed = capsys.readouterr()
    assert (complaint in printed.err, printed.out) == (True, "")


def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in [name for name in sys.modules if name.startswith("onewrite.operate.doctor.amazon")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "boto3", None)
    assert main(["doctor", "--table", "orders"]) == 2
    assert capsys.readouterr().err.endswith('pip install "onewrite[cli,aws,mongodb]"\n')


# --- our own defaults ---------------------------------------------------------------------------------------------------

OURS = """
import boto3
from datetime import timedelta
from onewrite import {imports}
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import json_body

orders = GuardedTable(
    boto3.resource("dynamodb").Table("orders"), {ledger}, outbox=Outbox("shop/orders", index="pending"), tombstones=Tombstones(timedelta(days=14))
)


@sqs_handler(json_body(id="id"))
def ship(message):
    return orders.record(message, Key={{"id": "o"}})
"""


class OurLambda:
    """Answers for a function and a mapping as infra/terraform makes them."""

    def get_function_configuration(self, **_: Any) -> Any:
        return {"FunctionName": "ship", "Timeout": 30}

    def list_event_source_mappings(self, **_: Any) -> Any:
        arn = f"arn:aws:sqs:{REGION}:123456789012:orders"
        return {"EventSourceMappings": [{"EventSourceArn": arn, "FunctionResponseTypes": ["ReportBatchItemFailures"]}]}


@pytest.mark.parametrize("ledger", ["SeenIds()", "InSequence(first=1)", "SeenIds(None)"])
def test_a_set_up_of_our_own_defaults_has_no_finding(
    ledger: str, queue: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As README, docs/ledgers.md and infra make it: queues of 4 and 14 days, five deliveries, six timeouts, TTL and the outbox's index."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "our_shop", raising=False)
    monkeypatch.setattr("onewrite.operate.doctor.function_client", lambda *_: OurLambda())
    boto3.client("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "180"})
    client = boto3.client("dynamodb")
    create_table_with_outbox(client, "orders")
    setting: Any = {"Enabled": True, "AttributeName": "expiresAt"}
    client.update_time_to_live(TableName="orders", TimeToLiveSpecification=setting)
    imports = sorted({"Outbox", "Tombstones", ledger.partition("(")[0]})
    (tmp_path / "our_shop.py").write_text(OURS.format(imports=", ".join(imports), ledger=ledger))
    monkeypatch.syspath_prepend(str(tmp_path))
    shop: Any = importlib.import_module("our_shop")
    for n in (1, 2):
        outcome = shop.orders.record(Message(f"m{n}", source="s", sequence=n), Key={"id": "o"}, emit=[Event("E", 1)])
        assert isinstance(outcome, Applied | Rejected)
    shop.orders.delete_item(Message("m3", source="s", sequence=3), Key={"id": "p"})
    code, found = asked(capsys, "our_shop", "--queue", queue, "--function", "ship", "--table", "orders")
    assert [each for each in found["checks"] if each["state"] == "found"] == []
    assert code == 0
    passed = {name for name, state in states(found).items() if state == "passed"}
    assert {"mapping", "dead-letters", "tombstone-ttl", "outbox-index", "later-format", "visibility-timeout"} <= passed


def test_the_order_history_has_no_finding_on_the_queue_that_its_infrastructure_makes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its table is the one of infra, before the first order and after it; and its queue is FIFO, of 4 and 14 days."""
    sqs, names = boto3.client("sqs"), ("feed-dead.fifo", "feed.fifo")
    policy = {"deadLetterTargetArn": f"arn:aws:sqs:{REGION}:123456789012:{names[0]}", "maxReceiveCount": 5}
    fourteen: Any = {"FifoQueue": "true", "MessageRetentionPeriod": str(14 * DAY)}
    sqs.create_queue(QueueName=names[0], Attributes=fourteen)
    url = sqs.create_queue(QueueName=names[1], Attributes={"FifoQueue": "true", "RedrivePolicy": json.dumps(policy)})[
        "QueueUrl"
    ]
    table = create_order_history(boto3.resource("dynamodb"))
    monkeypatch.setenv("ORDERS_TABLE", table.name)
    feed.history.cache_clear()
    for _ in range(2):
        code, found = asked(capsys, "order_history.feed", "--queue", url, "--table", table.name)
        assert (code, [each for each in found["checks"] if each["state"] == "found"]) == (0, [])
        assert states(found)["indexes"] == "passed"
        for event in deliveries():
            handle(feed.history(), event)
    feed.history.cache_clear()


# --- what is printed --------------------------------------------------------------------------------------------------

QUEUE = Queue("orders\n\x1b[31m", "arn:orders", fifo=False, retention=4 * DAY, visibility=30)


def report(facts: Facts, *, strict: bool = False) -> DoctorReport:
    return DoctorReport(examine(facts), facts.unread(), strict=strict)


def test_a_person_reads_errors_first_then_warnings_then_the_rest() -> None:
    stores = (
        ModuleStore("the table orders", SeenIds(timedelta(days=2)), "dynamodb"),
        ModuleStore("the collection c", None, "mongodb", None, None, 2),
    )
    table = TableDescription("orders", ("id",), replicas=("eu-west-2",))
    lines = [*report(Facts(queue=QUEUE, table=table, sample=DENIED, module=Module("shop", stores))).lines()]
    assert lines[0] == "Errors: a message may be lost, or take effect twice"
    headings = [line for line in lines if line in ("Warnings", "Not read", "Passed", "Not checked")]
    assert headings == ["Warnings", "Not read", "Passed", "Not checked"]
    assert lines[1].startswith("  ledger-retention: SeenIds of the table orders remembers a message for 2 days")
    text = " ".join(" ".join(lines).split())
    assert "Why: A message that is delivered after the ledger has forgotten it takes effect again." in text
    assert "the permission dynamodb:DescribeTable is missing. An error occurred Checks that need it: ttl," not in text
    assert "Checks that need it: ledger-share, erased-ledgers, damaged-ledgers" in text


def test_names_that_are_not_ours_cannot_write_to_the_terminal() -> None:
    text = "\n".join(report(Facts(queue=QUEUE, table=TableDescription("orders", ("id",)), module=None)).lines())
    assert "\x1b" not in text


# --- the page ---------------------------------------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "doctor.md"


@pytest.mark.usefixtures("queue")
def test_the_page_shows_what_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (module,) = re.findall(r"```python\n# (shop\.py)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / module[0]).write_text(module[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    make_shop_table()
    (shown,) = re.findall(r"```console\n\$ onewrite (doctor .*?[^\\])\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert main(shown[0].replace("\\\n", " ").split()) == 1
    found = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    expected = shown[1].splitlines()
    end = expected.index("...")
    assert found[:end] == expected[:end]
    assert found[-1:] == expected[end + 1 :]
    sys.modules.pop("shop")


def make_shop_table() -> None:
    """The table of the page, and its items: one has lost its ledger, or never had one."""
    dynamodb = boto3.client("dynamodb")
    by_status = [{"AttributeName": "status", "KeyType": "HASH"}]
    index: Any = {"IndexName": "by-status", "KeySchema": by_status, "Projection": {"ProjectionType": "ALL"}}
    dynamodb.create_table(
        TableName="orders",
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("id", "status")],
        BillingMode="PAY_PER_REQUEST",
        GlobalSecondaryIndexes=[index],
    )
    store = GuardedTable(dynamodb, SeenIds(timedelta(days=7)), table_name="orders")
    for n in range(3):
        dynamodb.put_item(TableName="orders", Item={"id": {"S": f"o{n}"}, "status": {"S": "NEW"}})
        if n:
            assert isinstance(store.record(Message("m"), Key={"id": f"o{n}"}), Applied)
