"""The SAM template: it is clean, it deploys, the example runs through what it made, and its role may do just what it needs."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
import yaml  # type: ignore[import-untyped]  # it comes without types
from moto import mock_aws

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from order_history import OrderHistory, create_table, feed, handle
from order_history.__main__ import deliveries
from order_history.events import OrderApproved, OrderCreated
from tests.support import deployment as deployed
from tests.support.deployment import REGION, ROOT, SAM, TERRAFORM, Deployment, sdk

# moto's CloudFormation knows no alarms, and passes over them.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS..CloudWatch..Alarm:UserWarning")

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
PARAMETERS: dict[str, Any] = deployed.translated()["Parameters"]
RESOURCES: dict[str, Any] = deployed.translated()["Resources"]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deployed.make_package(tmp_path_factory.mktemp("package") / "order_history.zip")


@pytest.fixture
def aws(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws():
        deployed.upload(package)
        yield
    feed.history.cache_clear()


@pytest.fixture(params=["true", "false"], ids=["fifo", "standard"])
def stack(aws: None, request: pytest.FixtureRequest) -> Deployment:
    return deployed.deploy_stack("shop", Fifo=request.param)


# ---------------------------------------------------------------- the template


def test_cfn_lint_finds_nothing() -> None:
    cfn_lint = Path(sys.executable).with_name("cfn-lint")
    found = subprocess.run([cfn_lint, SAM], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


def test_the_table_is_the_one_that_the_example_creates(stack: Deployment) -> None:
    created = create_table(sdk.resource("dynamodb"), "by-hand")
    by_hand = Deployment(created.name, stack.queue_url, stack.dead_letters_url, stack.function_name)

    assert deployed.described(stack)["table"] == deployed.described(by_hand)["table"]
    assert deployed.table(stack)["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


def test_the_table_can_be_restored_and_has_a_ttl_and_outlives_the_stack() -> None:
    # On the template: moto's CloudFormation drops both in silence.
    table = RESOURCES["Table"]
    assert table["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["Properties"]["TimeToLiveSpecification"] == {"AttributeName": "expiresAt", "Enabled": True}
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_the_function_reports_what_failed_and_has_a_maximum_concurrency(aws: None) -> None:
    stack = deployed.deploy_stack("shop", MaximumConcurrency="7", BatchSize="4")

    mapping = deployed.event_source(stack)
    assert mapping["EventSourceArn"] == deployed.queue_attributes(stack.queue_url)["QueueArn"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 7}
    assert mapping["BatchSize"] == 4


@pytest.mark.parametrize("timeout", PARAMETERS["FunctionTimeout"]["AllowedValues"])
def test_a_message_is_hidden_for_six_times_the_functions_timeout(aws: None, timeout: str) -> None:
    stack = deployed.deploy_stack("shop", FunctionTimeout=timeout)

    hidden = int(deployed.queue_attributes(stack.queue_url)["VisibilityTimeout"])
    assert deployed.function(stack)["Timeout"] == int(timeout)
    assert hidden == 6 * int(timeout) <= 12 * 60 * 60


def test_both_queues_are_of_the_kind_that_was_asked_for(stack: Deployment, request: pytest.FixtureRequest) -> None:
    fifo = request.node.callspec.params["stack"] == "true"
    queues = [deployed.queue_attributes(url) for url in (stack.queue_url, stack.dead_letters_url)]
    assert [queue["QueueArn"].endswith(".fifo") for queue in queues] == [fifo, fifo]
    assert [queue.get("FifoQueue") for queue in queues] == ["true" if fifo else None] * 2


@pytest.mark.parametrize("queue", ["Queue", "DeadLetters"])
def test_a_standard_queue_says_nothing_of_fifo(queue: str) -> None:
    # SQS refuses FifoQueue=false; moto takes it.
    assert RESOURCES[queue]["Properties"]["FifoQueue"] == {"Fn::If": ["IsFifo", True, {"Ref": "AWS::NoValue"}]}


def test_dead_letters_are_kept_for_longer_than_messages(stack: Deployment) -> None:
    queue, dead_letters = (deployed.queue_attributes(url) for url in (stack.queue_url, stack.dead_letters_url))
    assert int(queue["MessageRetentionPeriod"]) < int(dead_letters["MessageRetentionPeriod"]) == 14 * 24 * 60 * 60
    assert json.loads(queue["RedrivePolicy"]) == {"deadLetterTargetArn": dead_letters["QueueArn"], "maxReceiveCount": 5}
    assert queue["SqsManagedSseEnabled"] == dead_letters["SqsManagedSseEnabled"] == "true"


def test_an_alarm_watches_dead_letters_age_errors_and_throttles_and_tells_the_topic() -> None:
    # On the template, since moto's CloudFormation makes no alarms.
    alarms = [found["Properties"] for found in RESOURCES.values() if found["Type"] == "AWS::CloudWatch::Alarm"]
    watched = {(alarm["MetricName"], alarm["Statistic"], json.dumps(alarm["Dimensions"])): alarm for alarm in alarms}

    def queue(name: str) -> str:
        return json.dumps([{"Name": "QueueName", "Value": {"Fn::GetAtt": [name, "QueueName"]}}])

    function = json.dumps([{"Name": "FunctionName", "Value": {"Ref": "Function"}}])
    oldest = {"Ref": "OldestMessageSeconds"}
    assert {key: (alarm["Namespace"], alarm["Threshold"]) for key, alarm in watched.items()} == {
        ("ApproximateNumberOfMessagesVisible", "Maximum", queue("DeadLetters")): ("AWS/SQS", 0),
        ("ApproximateAgeOfOldestMessage", "Maximum", queue("Queue")): ("AWS/SQS", oldest),
        ("Errors", "Sum", function): ("AWS/Lambda", 0),
        ("Throttles", "Sum", function): ("AWS/Lambda", 0),
    }
    told = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == told for alarm in alarms)
    assert {alarm["ComparisonOperator"] for alarm in alarms} == {"GreaterThanThreshold"}
    assert {alarm["TreatMissingData"] for alarm in alarms} == {"notBreaching"}


# ---------------------------------------------------------------- end to end


def test_the_example_runs_through_the_stacks_queue_and_table(stack: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed.run_the_example(stack, monkeypatch)


def test_what_fails_for_good_ends_among_the_dead_letters_and_holds_up_nothing(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = deployed.deploy_stack("shop", Fifo="false", MaxReceiveCount="3")
    handler = deployed.in_its_function(stack, monkeypatch)
    eaten = json.dumps({"type": "OrderEaten", "orderId": "o-1", "number": 2, "at": "2026-03-02T12:00:00Z"})
    early = deployed.as_json(OrderApproved("o-7", 2, NOON))  # its order is never created
    for body in ("no JSON", eaten, early, deployed.as_json(OrderCreated("o-1", 1, NOON, "c-1", "Ajanta", ()))):
        deployed.send(stack, body, group="any", deduplication=body)

    batches = []
    while size := deployed.poll(stack, handler):
        batches.append(size)

    assert batches == [4, 3, 3]
    assert deployed.left(stack.dead_letters_url) == sorted(["no JSON", eaten, early])
    assert feed.history().order("o-1") is not None
    assert feed.history().order("o-7") is None


# ---------------------------------------------------------------- least privilege


def test_the_role_may_call_what_the_library_calls_and_nothing_else(stack: Deployment) -> None:
    grants = deployed.described(stack)["grants"]
    calls = {f"dynamodb:{operation}" for operation in called(stack)}

    assert {action for action, _ in grants if action.startswith("dynamodb:")} == calls
    assert {resource for action, resource in grants if action in calls} == {"<table>", "<table>/index/*"}
    assert {action for action, resource in grants if resource == "<table>/index/*"} == {"dynamodb:Query"}


def test_the_role_may_take_from_the_queue_and_write_the_log_and_nothing_else(stack: Deployment) -> None:
    grants = deployed.described(stack)["grants"]

    assert {grant for grant in grants if not grant[0].startswith("dynamodb:")} == {
        ("sqs:ReceiveMessage", "<queue>"),
        ("sqs:DeleteMessage", "<queue>"),
        ("sqs:GetQueueAttributes", "<queue>"),  # Lambda does not poll a queue without it
        ("logs:CreateLogStream", "<log group>"),
        ("logs:PutLogEvents", "<log group>"),
    }


def test_terraform_grants_the_same_actions() -> None:
    # By its text: where the program is missing, nothing else looks at it.
    lists = re.findall(r"_actions\s*=\s*\[(.*?)\]", (TERRAFORM / "main.tf").read_text())
    policies = RESOURCES["Role"]["Properties"]["Policies"]
    statements = [statement for policy in policies for statement in policy["PolicyDocument"]["Statement"]]
    assert [re.findall(r'"(.*?)"', actions) for actions in lists] == [
        [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"] for statement in statements
    ]


def called(stack: Deployment) -> set[str]:
    """The operations that botocore is asked for when each method of the library and of the example is used."""
    table = sdk.resource("dynamodb").Table(stack.table_name)
    operations: set[str] = set()
    table.meta.client.meta.events.register("before-call.dynamodb", lambda model, **_: operations.add(model.name))
    for use in uses_of_the_library(table).values():
        use()
    history = OrderHistory(table)
    for event in deliveries():
        handle(history, event)
    history.orders_of("ajanta-fan")
    history.order("o-1")
    return operations


def uses_of_the_library(table: Any) -> dict[str, Callable[[], object]]:
    orders = GuardedTable(table, SeenIds())
    message, key = Message("m-1"), {"orderId": "any"}
    change: dict[str, Any] = {"UpdateExpression": "SET seats = :two", "ExpressionAttributeValues": {":two": 2}}
    return {
        "update_item": lambda: orders.update_item(message, Key=key, **change),
        "put_item": lambda: orders.put_item(message, Item={"orderId": "other"}),
        "record": lambda: orders.record(Message("m-2"), Key=key),
        "seen": lambda: orders.seen(message, Key=key),
        "get_item": lambda: orders.get_item(Key=key),
        "without_ledger": lambda: orders.without_ledger(key),
        "explain": lambda: orders.explain(message, Key=key, **change),
    }


def test_no_public_method_is_forgotten_among_the_uses_of_the_library(aws: None) -> None:
    table = create_table(sdk.resource("dynamodb"))
    assert set(uses_of_the_library(table)) == {name for name in vars(GuardedTable) if not name.startswith("_")}


# ---------------------------------------------------------------- the package


def test_the_package_holds_the_library_and_the_example_and_is_the_same_every_time(package: Path) -> None:
    again = deployed.make_package(package.with_name("again.zip"))

    names = ZipFile(package).namelist()
    assert {name.partition("/")[0] for name in names} == {"onewrite", "order_history"}
    assert {"onewrite/py.typed", "order_history/feed.py"} <= set(names)
    assert [name for name in names if "tests" in name or "__pycache__" in name] == []
    assert hashlib.sha256(again.read_bytes()).digest() == hashlib.sha256(package.read_bytes()).digest()


RUN = """
import importlib, json, sys
import boto3.session, jmespath  # what Lambda's Python has
known = set(sys.modules)
module, _, name = sys.argv[1].rpartition(".")
handler = getattr(importlib.import_module(module), name)
new = {module.partition(".")[0] for module in set(sys.modules) - known} - {"boto3", *sys.stdlib_module_names}

from moto import mock_aws
from order_history import create_table
with mock_aws():
    table = create_table(boto3.resource("dynamodb"))
    answer = handler(json.load(sys.stdin), None)
    print(json.dumps([sorted(new), importlib.import_module("onewrite").__file__, answer, table.scan()["Count"]]))
"""


def test_the_packages_handler_runs_with_nothing_but_what_the_runtime_has(package: Path, tmp_path: Path) -> None:
    ZipFile(package).extractall(tmp_path)
    created = deployed.as_json(OrderCreated("o-1", 1, NOON, "c-1", "Ajanta", ()))
    event = {"Records": [{"messageId": "b-1", "body": created}, {"messageId": "b-2", "body": "no JSON"}]}
    environment = {
        "PYTHONPATH": str(tmp_path),
        "ORDERS_TABLE": "order-history",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "dummy",
        "AWS_SECRET_ACCESS_KEY": "dummy",
    }
    command = [sys.executable, "-c", RUN, RESOURCES["Function"]["Properties"]["Handler"]]
    ran = subprocess.run(
        command, input=json.dumps(event), env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )

    imported, library, answer, items = json.loads(ran.stdout)
    assert imported == ["onewrite", "order_history"]
    assert Path(library).is_relative_to(tmp_path)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "b-2"}]}
    assert items == 1


# ---------------------------------------------------------------- for laptops


def test_the_laptops_engines_are_reached_from_the_laptop_only() -> None:
    services = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text())["services"]
    ports = [port for service in services.values() for port in service["ports"]]
    assert ports == ["127.0.0.1:8000:8000", "127.0.0.1:27017:27017"]
    assert all("healthcheck" in service for service in services.values())
