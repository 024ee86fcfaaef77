"""The SAM templates: they are clean and deploy, the example runs through what they made, and its role may do just what it needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it comes without types
from awslambdaric.lambda_runtime_log_utils import JsonFormatter  # type: ignore[import-untyped]
from moto import mock_aws

from onewrite import Begun, Deferred, Message, Rejected, SeenIds, Tombstones
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable, transact
from onewrite.testing import lambda_context, sqs_event
from order_history import OrderHistory, create_table, feed, handle
from order_history.__main__ import deliveries
from order_history.events import OrderApproved, OrderCreated
from tests.support import deployment as deployed
from tests.support.alarms import FAILURES, alarm_of, measurements
from tests.support.deployment import ORDER_HISTORY, REGION, SAM, TERRAFORM, Deployment, sdk
from tests.support.packages import ROOT, make_package
from tests.support.settings import BAD, GOOD

# moto's CloudFormation knows neither of these, and passes over them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Tried to parse AWS..CloudWatch..Alarm:UserWarning"),
    pytest.mark.filterwarnings("ignore:Tried to parse AWS..Logs..MetricFilter:UserWarning"),
]

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
PARAMETERS: dict[str, Any] = deployed.translate()["Parameters"]
RESOURCES: dict[str, Any] = deployed.translate()["Resources"]
TABLE: dict[str, Any] = deployed.translated_order_history()["Resources"]["Table"]
# What each of Terraform's variables is called as a parameter of the template, where that is not the same in capitals. The topics of
# sns_topic_arns are two parameters, because a rule cannot look into a text.
OTHER_NAMES = {"SecretArns": "SecretArn", "AlarmTopicArns": "AlarmTopicArn"}
# What a template takes as no parameter: the lines to change are marked in it.
LINES = {
    "Name",
    "Package",
    "ImageUri",
    "Runtime",
    "Architecture",
    "MemorySize",
    "Environment",
    "Policy",
    "Enabled",
    "EventSource",
    "Function",
    "AlarmsLeftOut",
}
# CloudFormation's event source mapping takes the time as a number of seconds, and Terraform as text.
NOT_IN_SAM = {"StreamStartingTimestamp"}


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("package") / "function.zip"
    make_package("--output", target)
    return target


@pytest.fixture
def aws(package: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws(), deployed.moto_tells_who_may_use_dead_letters():
        deployed.upload(package)
        yield
    feed.history.cache_clear()


@pytest.fixture(params=["true", "false"], ids=["fifo", "standard"])
def stack(aws: None, request: pytest.FixtureRequest) -> Deployment:
    return deployed.deploy_order_history("shop", Fifo=request.param)


# ---------------------------------------------------------------- the template


@pytest.mark.slow
def test_cfn_lint_finds_nothing() -> None:
    cfn_lint = Path(sys.executable).with_name("cfn-lint")
    found = subprocess.run([cfn_lint, SAM, ORDER_HISTORY], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


def test_the_template_takes_what_the_terraform_module_takes() -> None:
    variables = re.findall(r'^variable "(\w+)"', "".join(path.read_text() for path in TERRAFORM.glob("*.tf")), re.MULTILINE)
    names = {"".join(map(str.title, name.split("_"))) for name in variables}
    assert {OTHER_NAMES.get(name, name) for name in names} - LINES - NOT_IN_SAM == set(PARAMETERS) - {"SnsFifoTopicArns"}


def test_the_table_is_the_one_that_the_example_creates(stack: Deployment) -> None:
    created = create_table(sdk.resource("dynamodb"), "by-hand")

    assert deployed.described_table(stack.table_name) == deployed.described_table(created.name)
    assert deployed.described_table(stack.table_name)["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"


def test_the_table_can_be_restored_and_has_a_ttl_and_outlives_the_stack() -> None:
    # On the template: moto's CloudFormation drops both in silence.
    assert TABLE["Properties"]["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert TABLE["Properties"]["TimeToLiveSpecification"] == {"AttributeName": "expiresAt", "Enabled": True}
    assert (TABLE["DeletionPolicy"], TABLE["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_the_function_reports_what_failed_and_has_a_maximum_concurrency(aws: None) -> None:
    stack = deployed.deploy_stack("shop", MaximumConcurrency="5", BatchSize="4")

    mapping = deployed.event_source(stack)
    assert mapping["EventSourceArn"] == deployed.queue_attributes(stack.queue_url)["QueueArn"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 5}
    assert mapping["BatchSize"] == 4


def test_who_may_send_to_the_queue_is_named() -> None:
    # On the template: moto's CloudFormation knows no queue policies.
    arns = [f"arn:aws:sns:{REGION}:123456789012:{name}" for name in "ab"]
    given = {
        "SnsTopicArns": arns[0],
        "SnsFifoTopicArns": f"{arns[1]}.fifo",
        "S3BucketArns": "arn:aws:s3:::uploads",
        "AWS::AccountId": "123456789012",
    }
    policy = deployed.evaluate(RESOURCES["Senders"]["Properties"]["PolicyDocument"], given)

    assert deployed.senders(policy) == {
        ("sns.amazonaws.com", "ArnEquals aws:SourceArn", arns[0]),
        ("sns.amazonaws.com", "ArnEquals aws:SourceArn", f"{arns[1]}.fifo"),
        ("s3.amazonaws.com", "ArnEquals aws:SourceArn", "arn:aws:s3:::uploads"),
        ("s3.amazonaws.com", "StringEquals aws:SourceAccount", "123456789012"),
    }
    assert {statement["Resource"][0] for statement in policy["Statement"]} == {"Queue"}
    assert deployed.evaluate({"Condition": RESOURCES["Senders"]["Condition"]}, given) is True
    assert deployed.evaluate({"Condition": RESOURCES["Senders"]["Condition"]}, {}) is False


def test_dead_letters_come_from_the_queue_alone(aws: None) -> None:
    stack = deployed.deploy_stack("shop")
    allowed = json.loads(deployed.queue_attributes(stack.dead_letters_url)["RedriveAllowPolicy"])
    queue = deployed.queue_attributes(stack.queue_url)["QueueArn"]
    assert allowed == {"redrivePermission": "byQueue", "sourceQueueArns": [queue]}


@pytest.mark.parametrize("timeout", PARAMETERS["FunctionTimeout"]["AllowedValues"])
def test_a_message_is_hidden_for_six_times_the_functions_timeout(aws: None, timeout: str) -> None:
    stack = deployed.deploy_stack("shop", FunctionTimeout=timeout)

    hidden = int(deployed.queue_attributes(stack.queue_url)["VisibilityTimeout"])
    assert deployed.function(stack)["Timeout"] == int(timeout)
    assert hidden == 6 * int(timeout) <= 12 * 60 * 60


@pytest.mark.parametrize("timeout", PARAMETERS["FunctionTimeout"]["AllowedValues"])
def test_a_batch_window_is_added_to_it(aws: None, timeout: str) -> None:
    stack = deployed.deploy_stack("shop", FunctionTimeout=timeout, BatchWindowSeconds="300", BatchSize="100")

    assert int(deployed.queue_attributes(stack.queue_url)["VisibilityTimeout"]) == 6 * int(timeout) + 300
    assert deployed.event_source(stack)["MaximumBatchingWindowInSeconds"] == 300


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


def test_every_alarm_tells_the_topic_both_ways() -> None:
    # On the template, since moto's CloudFormation makes no alarms.
    told = {"Fn::If": ["HasAlarmTopic", [{"Ref": "AlarmTopicArn"}], {"Ref": "AWS::NoValue"}]}
    for alarm in (found["Properties"] for found in RESOURCES.values() if found["Type"] == "AWS::CloudWatch::Alarm"):
        assert alarm["AlarmActions"] == alarm["OKActions"] == told
        assert (alarm["ComparisonOperator"], alarm["TreatMissingData"]) == ("GreaterThanThreshold", "notBreaching")


SOURCES = {
    "queue": {},
    "table": {"StreamArn": "arn:aws:dynamodb:eu-west-1:123456789012:table/orders/stream/2026-03-02T12:00:00.000"},
    "kinesis": {"StreamArn": "arn:aws:kinesis:eu-west-1:123456789012:stream/readings"},
}


@pytest.mark.parametrize(
    ("source", "failure", "rings"), [(s, f, r) for s, failures in FAILURES.items() for f, r in failures.items()]
)
def test_each_way_to_fail_rings_its_alarm_and_no_other(source: str, failure: str, rings: set[str]) -> None:
    given = {**SOURCES[source], "AWS::StackName": "shop"}
    alarms = {
        name.removesuffix("Alarm"): alarm_of(deployed.evaluate(found["Properties"], given))
        for name, found in RESOURCES.items()
        if found["Type"] == "AWS::CloudWatch::Alarm"
        and deployed.evaluate({"Condition": found.get("Condition", True)}, given)
    }
    names = {"Function": "shop", "Queue": "shop-events", "DeadLetters": "shop-dead-letters"}
    measured = measurements(failure, names["Function"])
    assert {name for name, alarm in alarms.items() if alarm.rings(measured, names)} == rings
    for name in rings:
        text = str(alarms[name].description)
        assert ("redrive them" in text) == (name == "DeadLetters" and source == "queue")


def test_what_the_filter_of_the_log_counts_is_what_a_handler_logs(caplog: pytest.LogCaptureFixture) -> None:
    properties = RESOURCES["Unsettled"]["Properties"]
    (made,) = properties["MetricTransformations"]
    assert (properties["FilterPattern"], made["MetricValue"]) == ("{ $.onewrite.failed > 0 }", "$.onewrite.failed")
    assert logged_failures(caplog, lambda message: Deferred(message, expected=1)) == 2
    assert logged_failures(caplog, refusing) == 0
    assert logged_failures(caplog, failing) == 2


def refusing(message: Message) -> Rejected:
    return Rejected(message)


def failing(message: Message) -> Rejected:
    raise ValueError(message.id)


def logged_failures(caplog: pytest.LogCaptureFixture, function: Callable[[Message], Any]) -> int:
    """What Lambda's own formatter makes of a batch's line: `$.onewrite.failed` of it."""
    caplog.clear()
    with caplog.at_level("INFO", "onewrite"):
        sqs_handler(lambda record: Message(record["messageId"]))(function)(sqs_event({}, {}), lambda_context())
    (record,) = caplog.records
    return int(json.loads(JsonFormatter().format(record))["onewrite"]["failed"])


def in_sam(case: dict[str, Any]) -> dict[str, str] | None:
    """The same as parameters of the template; None where it says something of what is a line of the template."""
    values = {name: value for name, value in case.items() if value is not None}
    source = values.pop("event_source", "queue")
    topics = values.pop("sns_topic_arns", [])
    given = {_parameter(name): _text(value) for name, value in values.items()}
    for name, is_fifo in {"SnsTopicArns": False, "SnsFifoTopicArns": True}.items():
        if arns := [arn for arn in topics if arn.endswith(".fifo") == is_fifo]:
            given[name] = _text(arns)
    known = given.keys() <= PARAMETERS.keys() and None not in case.values()
    return given if known and source == ("stream" if "StreamArn" in given else "queue") else None


def _parameter(variable: str) -> str:
    name = "".join(map(str.title, variable.split("_")))
    return OTHER_NAMES.get(name, name)


def _text(value: Any) -> str:
    if isinstance(value, (list, dict)):
        return ",".join(value.values() if isinstance(value, dict) else value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def refusals(parameters: dict[str, str]) -> set[str]:
    """The parameters that CloudFormation would refuse, by our own reading of patterns and rules, which moto ignores."""
    values = {name: str(parameters.get(name, found["Default"])) for name, found in PARAMETERS.items()}
    refused = {
        name for name, value in values.items() if not re.fullmatch(PARAMETERS[name].get("AllowedPattern", ".*"), value)
    }
    refused |= {
        name for name, value in values.items() if value not in map(str, PARAMETERS[name].get("AllowedValues", [value]))
    }
    rules = deployed.translate()["Rules"].values()
    held = [rule for rule in rules if deployed.evaluate(rule.get("RuleCondition", True), parameters)]
    asserted = [each for rule in held for each in rule["Assertions"]]
    broken = [each["AssertDescription"] for each in asserted if not deployed.evaluate(each["Assert"], parameters)]
    return refused | {description.partition(":")[0] for description in broken}


@pytest.mark.parametrize(("case", "says"), BAD, ids=[says for _, says in BAD])
def test_what_terraform_refuses_the_template_refuses(case: dict[str, Any], says: str) -> None:
    parameters = in_sam(case)
    if parameters is None or says == "secret_arns: the names":
        return  # a line of the template
    assert _parameter(says.partition(":")[0]) in refusals(parameters)


@pytest.mark.parametrize("case", GOOD, ids=str)
def test_what_terraform_takes_the_template_takes_if_it_has_that_value(case: dict[str, Any]) -> None:
    parameters = in_sam(case)
    listed = {name: found["AllowedValues"] for name, found in PARAMETERS.items() if "AllowedValues" in found}
    if parameters is not None and all(parameters[name] in listed[name] for name in parameters.keys() & listed.keys()):
        assert refusals(parameters) == set()


def test_most_cases_are_those_of_both() -> None:
    assert sum(in_sam(case) is not None for case, _ in BAD) > len(BAD) / 2
    assert {name for case, says in BAD if (name := _parameter(says.partition(":")[0])) in PARAMETERS} == {
        name for name in PARAMETERS if PARAMETERS[name].get("AllowedValues") != ["true", "false"]
    } - {"SnsFifoTopicArns"} | {"Fifo", "FifoHighThroughput", "ContentBasedDeduplication", "StreamBisect"}


# ---------------------------------------------------------------- end to end


def test_the_example_runs_through_the_stacks_queue_and_table(stack: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed.run_the_example(stack, monkeypatch)


def test_what_fails_for_good_ends_among_the_dead_letters_and_holds_up_nothing(
    aws: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(sdk.resource("dynamodb"))
    stack = deployed.deploy_stack("shop", TableArn=table.table_arn, MaxReceiveCount="3")
    handler = deployed.in_its_function(stack, monkeypatch)
    eaten = json.dumps({"type": "OrderEaten", "orderId": "o-1", "number": 2, "at": "2026-03-02T12:00:00Z"})
    early = deployed.as_json(OrderApproved("o-7", 2, NOON))  # its order is never created
    for body in ("no JSON", eaten, early, deployed.as_json(OrderCreated("o-1", 1, NOON, "c-1", "Ajanta", ()))):
        deployed.send(stack, body, group="any", deduplication=body)

    batches = []
    while size := deployed.poll(stack, handler):
        batches.append(size)

    assert batches == [4, 3, 3]
    assert deployed.bodies_left(stack.dead_letters_url) == sorted(["no JSON", eaten, early])
    assert feed.history().order("o-1") is not None
    assert feed.history().order("o-7") is None


# ---------------------------------------------------------------- least privilege


def test_the_role_may_call_what_the_example_calls_and_nothing_else(stack: Deployment) -> None:
    grants = {(action, resource) for _, action, resource in deployed.describe(stack)["grants"]}
    resource = sdk.resource("dynamodb").Table(stack.table_name)
    history = OrderHistory(resource)
    calls = called(
        resource,
        *(partial(handle, history, event) for event in deliveries()),
        lambda: history.orders_of("ajanta-fan"),
        lambda: history.order("o-1"),
    )
    table = f"arn:aws:dynamodb:{REGION}:123456789012:table/<table>"

    assert {action for action, _ in grants if action.startswith("dynamodb:")} == calls
    assert {resource for action, resource in grants if action in calls} == {table, f"{table}/index/*"}
    assert {action for action, resource in grants if resource == f"{table}/index/*"} == {"dynamodb:Query"}


def test_by_default_the_role_may_do_what_guarded_writes_and_reads_do_and_create_nothing(stack: Deployment) -> None:
    table = sdk.resource("dynamodb").Table(stack.table_name)
    uses = uses_of_the_library(table)
    creating = [uses.pop(name) for name in ("put_item", "putting")]

    assert called(table, *creating) == {"dynamodb:PutItem"}
    assert called(table, *uses.values()) == set(PARAMETERS["TableActions"]["Default"].split(","))


def test_the_role_may_take_from_the_queue_and_write_the_log_and_nothing_else(stack: Deployment) -> None:
    grants = deployed.describe(stack)["grants"]

    assert {grant for grant in grants if not grant[1].startswith("dynamodb:")} == {
        ("Allow", "sqs:ReceiveMessage", "<queue>"),
        ("Allow", "sqs:DeleteMessage", "<queue>"),
        ("Allow", "sqs:GetQueueAttributes", "<queue>"),  # Lambda does not poll a queue without it
        ("Allow", "logs:CreateLogStream", "<log group>"),
        ("Allow", "logs:PutLogEvents", "<log group>"),
    }


def called(table: Any, *uses: Callable[[], object]) -> set[str]:
    """The actions that botocore is asked for."""
    operations: set[str] = set()

    def note(model: Any, **_: Any) -> None:
        operations.add(f"dynamodb:{model.name}")

    table.meta.client.meta.events.register("before-call.dynamodb", note)
    for use in uses:
        use()
    table.meta.client.meta.events.unregister("before-call.dynamodb", note)
    return operations


def uses_of_the_library(table: Any) -> dict[str, Callable[[], object]]:
    orders = GuardedTable(table, SeenIds(), tombstones=Tombstones(timedelta(days=14)))
    message, key = Message("m-1"), {"orderId": "any"}
    change: dict[str, Any] = {"UpdateExpression": "SET seats = :two", "ExpressionAttributeValues": {":two": 2}}
    asked: dict[str, Any] = {"Key": key, "lease": timedelta(minutes=1), "safe_for": timedelta(hours=23)}
    return {
        "update_item": lambda: orders.update_item(message, Key=key, **change),
        "put_item": lambda: orders.put_item(message, Item={"orderId": "another"}),
        "record": lambda: orders.record(Message("m-2"), Key=key),
        "fold": lambda: orders.fold([Message("m-9"), Message("m-10")], lambda _: {"Key": key, **change}),
        "seen": lambda: orders.seen(message, Key=key),
        "get_item": lambda: orders.get_item(Key=key),
        "without_ledger": lambda: orders.without_ledger(key),
        "explain": lambda: orders.explain(lambda store: store.update_item(message, Key=key, **change)),
        "begin": lambda: orders.begin(Message("m-4"), "charge", **asked),
        "perform": lambda: orders.perform(Message("m-5"), "charge", lambda _: None, then=lambda _: change, **asked),
        "release": lambda: orders.release(started(orders, asked), sent=False),
        "open_steps": lambda: orders.open_steps(Key=key),
        "updating": lambda: transact(Message("m-7"), [orders.updating(Key=key, **change)]),
        "putting": lambda: orders.putting(Item={"orderId": "third"}),
        "recording": lambda: orders.recording(Key=key),
        "delete_item": lambda: orders.delete_item(Message("m-8"), Key={"orderId": "other"}),
    }


def started(orders: GuardedTable, asked: dict[str, Any]) -> Begun:
    step = orders.begin(Message("m-6"), "charge", **asked)
    assert isinstance(step, Begun)
    return step


def test_no_public_method_is_forgotten_among_the_uses_of_the_library(aws: None) -> None:
    table = create_table(sdk.resource("dynamodb"))
    methods = {name for name in dir(GuardedTable) if callable(getattr(GuardedTable, name)) and not name.startswith("_")}
    assert set(uses_of_the_library(table)) == methods


# ---------------------------------------------------------------- the page of the application


def test_the_page_of_the_application_shows_its_code() -> None:
    page = (ROOT / "docs" / "application.md").read_text()
    folder = ROOT / "infra" / "examples" / "application"
    shown = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert shown[:2] == [(folder / name).read_text() for name in ("orders.py", "billing.py")]


# ---------------------------------------------------------------- for laptops


def test_the_laptops_engines_are_reached_from_the_laptop_only() -> None:
    services = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text())["services"]
    ports = [port for service in services.values() for port in service["ports"]]
    assert ports == ["127.0.0.1:8000:8000", "127.0.0.1:27017:27017"]
    assert all("healthcheck" in service for service in services.values())
