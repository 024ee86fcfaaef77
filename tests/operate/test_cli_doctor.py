"""The `doctor` verb: what it is told, what it prints, and its exit code."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import boto3
import botocore.client
import pytest
from botocore.exceptions import ClientError

from onewrite import Applied, Event, Message, Rejected, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.operate import main
from onewrite.operate.doctor import DoctorReport
from onewrite.operate.doctor.checks import examine
from onewrite.operate.doctor.facts import Facts, Queue, TableDescription
from onewrite.testing.servers.engines import REGION
from tests.engines.stores import create_table, create_table_with_outbox

DAY = 86_400
pytestmark = pytest.mark.usefixtures("amazon")


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


SHOP = """
from datetime import timedelta

import boto3
from onewrite import SeenIds
from onewrite.dynamodb import GuardedTable



def orders():
    print("orders is called")
    return GuardedTable(boto3.resource("dynamodb").Table("orders"), SeenIds(timedelta(days=2)))
"""


@pytest.fixture
def shop(folder: Path) -> str:
    """The name of a module that has a store, and makes another one in a function."""
    (folder / "shop_of_stores.py").write_text(SHOP)
    return "shop_of_stores"


def test_doctor_calls_the_named_function_for_the_store(shop: str, queue: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{shop}:orders", "--queue", queue, "--json"]) == 5
    printed = capsys.readouterr()
    assert printed.err == "orders is called\n"  # and not to where a program reads
    found = json.loads(printed.out)
    (check,) = [each for each in found["checks"] if each["state"] == "found"]
    assert check["code"] == "ledger-retention"
    assert check["findings"][0]["what"].startswith("SeenIds of the table orders remembers a message for 2 days")


def erase(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, dict[str, Any]]:
    """What is found beside a guarded item when a save() has replaced another one."""
    table().remember(Message("m"), Key={"id": "o"})
    items = boto3.resource("dynamodb").Table("orders")
    items.put_item(Item={"id": "o", "total": 1, **items.scan()["Items"][0]})
    items.put_item(Item={"id": "p", "total": 1})
    return asked(capsys, "--table", "orders", *options)


def test_erased_ledger_is_a_notice(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = erase(capsys)
    (check,) = [each for each in found["checks"] if each["state"] == "found"]
    (finding,) = check["findings"]
    assert (code, check["code"], finding["severity"]) == (0, "erased-ledgers", "notice")
    assert '{"id": "p"}' in finding["what"]


@pytest.mark.parametrize(("accepted", "code"), [((), 5), (("order",), 5), (("order", "erased-ledgers"), 0)])
def test_accepted_findings_do_not_count(accepted: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--strict", *(word for each in accepted for word in ("--accept", each))]
    ended, found = erase(capsys, *options)
    (check,) = [each for each in found["checks"] if each["findings"]]
    assert (ended, check["accepted"]) == (code, "erased-ledgers" in accepted)
    assert main(["doctor", "--table", "orders", *options]) == code
    assert ("erased-ledgers (accepted): " in capsys.readouterr().out) == (code == 0)


def test_unknown_accept_code_returns_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--table", "orders", "--accept", "index"]) == 2
    assert "argument --accept: invalid choice: 'index' (choose from 'layout', " in capsys.readouterr().err


def refuse(monkeypatch: pytest.MonkeyPatch, operation: str) -> None:
    """AWS refuses this operation."""
    clients: Any = botocore.client.BaseClient  # all requests go through its one method, which the stubs leave out
    send = clients._make_api_call

    def checked(self: Any, name: str, arguments: Any) -> Any:
        if name == operation:
            raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, name)
        return send(self, name, arguments)

    monkeypatch.setattr(clients, "_make_api_call", checked)


def test_missing_permission_counts_only_with_strict(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table().remember(Message("m"), Key={"id": "o"})
    refuse(monkeypatch, "DescribeTimeToLive")
    code, found = asked(capsys, "--table", "orders")
    assert code == 0
    (unread,) = found["unread"]
    assert (unread["permission"], unread["checks"]) == ("dynamodb:DescribeTimeToLive", ["tombstone-ttl"])
    lacking = [each["code"] for each in found["checks"] if each["permission"] == unread["permission"]]
    assert lacking == unread["checks"]
    assert asked(capsys, "--table", "orders", "--strict")[0] == 1


def test_exit_code_is_1_if_no_check_was_made(shop: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"{shop}:orders", "--json"]) == 1
    assert {*states(json.loads(capsys.readouterr().out)).values()} == {"not checked"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "Pass at least one of --queue"),
        (["--table", "t", "--collection", "mongodb://h/d.c"], "Pass either --table"),
        (["--queue", "orders"], "--queue orders: expected the URL of an SQS queue"),
        (["--collection", "mongodb://h"], "mongodb://HOST/DATABASE.COLLECTION"),
        (["json:nothing"], "has no 'nothing'"),
        (["json"], "json has no guarded store or handler. Name the store"),
        (["json:"], "expected module:name"),
    ],
)
def test_wrong_doctor_arguments_return_2(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "300")
    assert main(["doctor", *arguments]) == 2
    printed = capsys.readouterr()
    assert (complaint in printed.err, printed.out) == (True, "")


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
    return orders.remember(message, Key={{"id": "o"}})
"""


class OurLambda:
    """Answers for a function and a mapping as infra/function.yaml makes them."""

    def list_event_source_mappings(self, **_: Any) -> Any:
        arn = f"arn:aws:sqs:{REGION}:123456789012:orders"
        return {"EventSourceMappings": [{"EventSourceArn": arn, "FunctionResponseTypes": ["ReportBatchItemFailures"]}]}


@pytest.mark.parametrize("ledger", ["SeenIds()", "InSequence(first=1)", "SeenIds(None)"])
def test_default_setup_has_no_finding(
    ledger: str, queue: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As README, docs/ledgers.md and infra make it: queues of 4 and 14 days, five deliveries, six timeouts, TTL and the outbox's index."""
    monkeypatch.setattr("onewrite.operate.doctor.make_function_client", lambda *_: OurLambda())
    client = boto3.client("dynamodb")
    create_table_with_outbox(client, "orders")
    setting: Any = {"Enabled": True, "AttributeName": "expiresAt"}
    client.update_time_to_live(TableName="orders", TimeToLiveSpecification=setting)
    imports = sorted({"Outbox", "Tombstones", ledger.partition("(")[0]})
    (folder / "our_shop.py").write_text(OURS.format(imports=", ".join(imports), ledger=ledger))
    monkeypatch.syspath_prepend(str(folder))
    shop: Any = importlib.import_module("our_shop")
    for n in (1, 2):
        outcome = shop.orders.remember(Message(f"m{n}", source="s", sequence=n), Key={"id": "o"}, emit=[Event("E", 1)])
        assert isinstance(outcome, Applied | Rejected)
    shop.orders.delete_item(Message("m3", source="s", sequence=3), Key={"id": "p"})
    code, found = asked(capsys, "our_shop", "--queue", queue, "--function", "ship", "--table", "orders")
    assert [each for each in found["checks"] if each["state"] == "found"] == []
    assert code == 0
    passed = {name for name, state in states(found).items() if state == "passed"}
    assert {"partial-failures", "tombstone-ttl", "outbox-index"} <= passed


# --- what is printed --------------------------------------------------------------------------------------------------

QUEUE = Queue("orders\n\x1b[31m", "arn:orders", fifo=False, retention=4 * DAY)


def test_foreign_names_cannot_control_the_terminal() -> None:
    facts = Facts(queue=QUEUE, table=TableDescription("orders", ("id",)), module=None)
    assert "\x1b" not in "\n".join(DoctorReport(examine(facts), facts.list_unread(), strict=False).list_lines())
