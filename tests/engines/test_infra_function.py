"""infra/function.yaml, deployed on moto: its queue, table, roles, and alarms do what they promise to the real handlers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from awslambdaric.lambda_runtime_log_utils import JsonFormatter  # type: ignore[import-untyped]
from moto import mock_aws

from onewrite import (
    Applied,
    Busy,
    Deferred,
    Duplicate,
    Gone,
    LedgerMismatch,
    Message,
    Missing,
    Rejected,
    SeenIds,
    Stale,
    Uncertain,
)
from onewrite.aws_lambda import sqs_handler
from onewrite.core.features.pending import BrokenOutbox
from onewrite.dynamodb import GuardedTable
from onewrite.identity import Skip, json_body
from onewrite.outbox import SweepReport
from onewrite.outbox.metrics import emf
from onewrite.testing import lambda_context, moto_table, sqs_event
from order_history import OrderHistory  # pyright: ignore[reportMissingImports]  # an example, which pyright does not look into
from order_history.__main__ import deliveries  # pyright: ignore[reportMissingImports]
from order_history.events import OrderCreated  # pyright: ignore[reportMissingImports]
from tests.support import deployment
from tests.support.alarms import LONG, UNSETTLED, Metric, alarms_that_ring, is_counted, measured_by_emf, metric
from tests.support.deployment import (
    ACCOUNT,
    CODE,
    FUNCTION,
    REGION,
    WORKER,
    Stack,
    bodies_left,
    operator,
    poll,
    running,
    send,
)

SHOP = "tests.support.shop_on_aws"
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event"}
# These are AWS's own calls, made with the function's role.
POLLING = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"}
LOGGING = {"logs:CreateLogStream", "logs:PutLogEvents"}


@pytest.fixture(scope="module", autouse=True)
def aws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        s3 = operator("s3")
        s3.create_bucket(Bucket=CODE["Bucket"], CreateBucketConfiguration={"LocationConstraint": REGION})
        s3.put_object(**CODE, Body=b"any")  # moto runs no code
        yield


@pytest.fixture(scope="module", params=["fifo", "standard"])
def history(request: pytest.FixtureRequest, aws: None) -> Stack:
    return Stack.deploy(f"history-{request.param}", FUNCTION, QueueType=request.param)


@pytest.fixture(scope="module")
def shop(aws: None) -> Stack:
    return Stack.deploy("shop", FUNCTION, QueueType="standard", Handler=f"{SHOP}.handler", RelayHandler=f"{SHOP}.relay")


@pytest.mark.slow
@pytest.mark.parametrize("template", [FUNCTION, WORKER], ids=lambda path: path.name)
def test_cfn_lint_finds_nothing(template: Path) -> None:
    cfn_lint = Path(sys.executable).with_name("cfn-lint")
    found = subprocess.run([cfn_lint, template], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


# ---------------------------------------------------------------- messages


def test_example_runs_through_the_stack(history: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    events = deliveries()
    is_fifo = history.outputs["QueueUrl"].endswith(".fifo")  # it delivers in order, if with repeats
    deployment.send_events(history, sorted(events, key=lambda event: event.number) if is_fifo else events)
    with running(history, monkeypatch) as (handler, _):
        while poll(history, handler):
            pass

    second, first = (
        OrderHistory(deployment.sdk.resource("dynamodb", REGION).Table(history.outputs["TableName"]))
        .orders_of("ajanta-fan")
        .orders
    )
    assert (second["orderId"], second["status"]) == ("o-2", "PENDING")
    assert (first["orderId"], first["status"], first["deliveryStatus"]) == ("o-1", "APPROVED", "DELIVERED")
    assert Counter(step["what"] for step in first["steps"]) == Counter(["CREATED", "APPROVED", "PICKED_UP", "DELIVERED"])
    assert bodies_left(history.outputs["QueueUrl"]) == bodies_left(history.outputs["DeadLettersUrl"]) == []


def test_message_that_always_fails_becomes_a_dead_letter(history: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    for body in ("no JSON", deployment.as_json(OrderCreated("o-9", 1, NOON, "c-1", "Ajanta", ()))):
        send(history, body, group=body)
    with running(history, monkeypatch) as (handler, _):
        batches = []
        while size := poll(history, handler):
            batches.append(size)
    assert batches == [2, 1, 1, 1, 1]
    assert bodies_left(history.outputs["DeadLettersUrl"]) == ["no JSON"]


def pay(order: str, cents: int, **more: Any) -> str:
    return json.dumps({"id": f"pay-{order}-{cents}", "order": order, "cents": cents, **more})


def test_redelivered_message_takes_effect_once(shop: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    send(shop, pay("o-1", 250))
    with running(shop, monkeypatch) as (handler, _):

        def lose_response(event: Any, context: Any) -> Any:
            assert handler(event, context) == {"batchItemFailures": []}
            return {"batchItemFailures": [{"itemIdentifier": record["messageId"]} for record in event["Records"]]}

        assert poll(shop, lose_response) == poll(shop, handler) == 1
    item = operator("dynamodb").get_item(TableName=shop.outputs["TableName"], Key={"orderId": {"S": "o-1"}})["Item"]
    assert item["cents"] == {"N": "250"}
    assert bodies_left(shop.outputs["QueueUrl"]) == []


def test_relay_publishes_each_event_once_on_schedule(
    shop: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (rule,) = operator("events").list_rules(NamePrefix="shop-")["Rules"]
    (target,) = operator("events").list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert (rule["ScheduleExpression"], target["Arn"]) == ("rate(1 minute)", shop.function("Relay")["FunctionArn"])

    subscriber = deployment.subscribe(shop.outputs["EventsTopicArn"])
    send(shop, pay("o-2", 100))
    with running(shop, monkeypatch) as (handler, _):
        poll(shop, handler)
    with running(shop, monkeypatch, "Relay") as (relay, wire):
        relay(SCHEDULE, lambda_context())
        relay(SCHEDULE, lambda_context())
    events = [json.loads(body) for body in bodies_left(subscriber)]
    assert [event["type"] for event in events if event["data"] == {"order": "o-2"}] == ["OrderPaid"]

    granted = deployment.grants_of(shop.resources["RelayRole"])
    assert {grant for grant in granted if grant[0] not in LOGGING} == wire.used
    assert {action for action, _ in granted} >= LOGGING

    # The alarms look for what the deployed relay has emitted.
    emitted = measured_by_emf(line for line in capsys.readouterr().out.splitlines() if line.startswith('{"_aws"'))
    assert {
        metric("onewrite", name, FunctionName=shop.resources["Relay"]) for name in ("OldestEvent", "EntitiesBroken")
    } <= {*emitted}


def test_role_allows_exactly_the_calls_that_are_made(history: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    send(history, deployment.as_json(OrderCreated("o-7", 1, NOON, "c-1", "Ajanta", ())))
    with running(history, monkeypatch) as (handler, wire):
        poll(history, handler)
    queue = history.queue()["QueueArn"]
    granted = deployment.grants_of(history.resources["Role"])
    assert {grant for grant in granted if grant[0] not in LOGGING} == wire.used | {(action, queue) for action in POLLING}
    assert {action for action, _ in granted} >= LOGGING


# ---------------------------------------------------------------- settings


def test_queue_and_function_fit_together(history: Stack) -> None:
    queue, letters, function, mapping = history.queue(), history.queue("DeadLettersUrl"), history.function(), history.mapping
    assert int(queue["VisibilityTimeout"]) == 6 * function["Timeout"]
    assert json.loads(queue["RedrivePolicy"]) == {"deadLetterTargetArn": letters["QueueArn"], "maxReceiveCount": 5}
    assert (
        int(queue["MessageRetentionPeriod"]) < int(letters["MessageRetentionPeriod"]) == timedelta(days=14).total_seconds()
    )
    assert (mapping["EventSourceArn"], mapping["FunctionResponseTypes"]) == (queue["QueueArn"], ["ReportBatchItemFailures"])
    assert mapping["FunctionArn"].split(":")[6] == function["FunctionName"]


@pytest.mark.parametrize("output", ["QueueUrl", "DeadLettersUrl"])
def test_queues_refuse_plain_http_and_foreign_senders(history: Stack, output: str) -> None:
    attributes = history.queue(output)
    denied, *allowed = json.loads(attributes["Policy"])["Statement"]
    assert (denied["Effect"], denied["Resource"], denied["Action"]) == ("Deny", attributes["QueueArn"], "sqs:*")
    assert denied["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    senders = {source for statement in allowed for source in statement["Condition"]["ArnLike"]["aws:SourceArn"]}
    own = {f"arn:aws:sns:*:{ACCOUNT}:*", f"arn:aws:events:*:{ACCOUNT}:rule/*"}
    assert senders == (own if output == "QueueUrl" else set())


@pytest.mark.parametrize("role", ["Role", "RelayRole"])
def test_role_trusts_only_its_own_account(shop: Stack, role: str) -> None:
    document = operator("iam").get_role(RoleName=shop.resources[role])["Role"]["AssumeRolePolicyDocument"]
    (trusted,) = document["Statement"]
    assert trusted["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


# ---------------------------------------------------------------- alarms


def measurements(stack: Stack, **changes: list[float | None]) -> dict[Metric, list[float | None]]:
    """Return what AWS measures of a stack when all is well, with changes by the metrics' names."""
    function, queue = stack.resources["Function"], stack.queue()["QueueArn"].rpartition(":")[2]
    letters = stack.queue("DeadLettersUrl")["QueueArn"].rpartition(":")[2]
    well: dict[Metric, list[float | None]] = {
        metric("AWS/SQS", "ApproximateNumberOfMessagesVisible", QueueName=letters): [0.0] * LONG,
        metric("AWS/SQS", "ApproximateAgeOfOldestMessage", QueueName=queue): [2.0] * LONG,
        metric("AWS/Lambda", "Errors", FunctionName=function): [0.0] * LONG,
        metric("AWS/Lambda", "Throttles", FunctionName=function): [0.0] * LONG,
        metric("onewrite", f"Unsettled-{stack.name}"): [None] * LONG,
    }
    return {key: changes.get(key[1].partition("-")[0], values) for key, values in well.items()}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"Errors": [None] * LONG, "Throttles": [None] * LONG}, set()),  # nothing arrives
        ({"ApproximateNumberOfMessagesVisible": [1.0] * LONG}, {"DeadLettersAlarm"}),
        ({"ApproximateAgeOfOldestMessage": [2000.0] * LONG}, {"OldestMessageAlarm"}),
        ({"Errors": [1.0] * LONG}, {"ErrorsAlarm"}),
        ({"Throttles": [1.0] * LONG}, {"ThrottlesAlarm"}),
        # A message is hidden for three minutes after each failure. A standard queue then moves it behind the others.
        ({"Unsettled": [1.0, None] * (LONG // 2)}, {"UnsettledAlarm"}),
        ({"Unsettled": [*[None] * (LONG - 1), 1.0]}, set()),  # one message fails once
    ],
)
def test_each_failure_triggers_only_its_own_alarm(history: Stack, changes: Any, expected: set[str]) -> None:
    assert alarms_that_ring(history.alarms(), measurements(history, **changes)) == expected


def test_every_alarm_notifies_the_topic(shop: Stack) -> None:
    alarms = shop.alarms()
    assert {"DeadLettersAlarm", "UnsettledAlarm", "OldestEventAlarm"} <= alarms.keys()
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == [deployment.ALARM_TOPIC] for alarm in alarms.values())


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ([SweepReport()], set()),
        ([SweepReport(pending=1, oldest=900.0)], set()),
        ([SweepReport(pending=1, oldest=900.1)], {"OldestEventAlarm"}),
        ([SweepReport(broken=[BrokenOutbox({"id": "o-1"}, LedgerMismatch("another writer"))])], {"BrokenAlarm"}),
        ([SweepReport(error=OSError("no route"), complete=False)], {"OldestEventAlarm"}),
        ([], {"OldestEventAlarm"}),  # it doesn't run
    ],
)
def test_relay_metrics_trigger_the_relay_alarms(shop: Stack, reports: list[SweepReport], expected: set[str]) -> None:
    lines: list[str] = []
    emit = emf(function=shop.resources["Relay"], write=lines.append)
    for report in reports:
        emit(report)
    assert alarms_that_ring(shop.alarms(), {**measurements(shop), **measured_by_emf(lines)}) == expected


# ---------------------------------------------------------------- the log that an alarm counts


def raising(error: Exception) -> Callable[[Message], Any]:
    def function(message: Message) -> Any:
        raise error

    return function


def leave_unreturned(message: Message) -> None:
    with moto_table("orders") as table:
        GuardedTable(table, SeenIds()).update_item(
            message,
            Key={"orderId": "nowhere"},
            UpdateExpression="SET n = :n",
            ConditionExpression="attribute_exists(orderId)",
            ExpressionAttributeValues={":n": 1},
        )


BY_ID = json_body(id="id")
elapsed = [0.0]


def exhaust_time(message: Message) -> Applied:
    elapsed[0] += 29.9  # the other messages of the batch are returned untried
    return Applied(message)


def test_batches_are_counted_by_the_tried_filter(shop: Stack) -> None:
    found = shop.filter()
    assert (found["filterPattern"], found["metricTransformations"][0]["metricValue"]) == (UNSETTLED, "1")


# By the error that the log line names first.
FAILURES: dict[str, Any] = {
    "ValueError": raising(ValueError("a body")),
    "LedgerMismatch": raising(LedgerMismatch("another ledger")),
    "Missing": Missing,
    "Missing, one of several": lambda message: [Applied(message), Missing(message)],
    "Missing, of an unreturned write": leave_unreturned,
    "Deferred": lambda message: Deferred(message, expected=1),
    "Rejected": Rejected,
    "Busy": lambda message: Busy(message, until=1e9),
    "Uncertain": lambda message: Uncertain(message, since=0.0, fence=""),
    "WrongReturn": lambda message: "done",
}
SETTLED: dict[str, Any] = {
    "Applied": Applied,
    "Duplicate": Duplicate,
    "Stale": lambda message: Stale(message, mark=2),
    "Gone": Gone,
    "missing_ok": lambda message: Missing(message, settled=True),
    "rejected_ok": lambda message: Rejected(message, settled=True),
    "None": lambda message: None,
}


def log_line(caplog: pytest.LogCaptureFixture, function: Any, *bodies: Any, identity: Any = BY_ID) -> str:
    """Return the line of a batch as Lambda's runtime writes it."""
    with caplog.at_level("INFO", "onewrite"):
        handler = sqs_handler(identity)(partial(function))  # an outcome's class isn't a function
        handler(sqs_event(*bodies), lambda_context(30_000, clock=lambda: elapsed[0]))
    (record,) = [record for record in caplog.records if hasattr(record, "onewrite")]
    return str(JsonFormatter().format(record))


@pytest.mark.parametrize("failure", FAILURES)
def test_unsettled_filter_counts_each_failure(failure: str, caplog: pytest.LogCaptureFixture) -> None:
    line = log_line(caplog, FAILURES[failure], {"id": "m"})
    assert json.loads(line)["onewrite"]["failures"][0]["error"] == failure.partition(",")[0]
    assert is_counted(UNSETTLED, line)


def test_unsettled_filter_counts_messages_returned_for_lack_of_time(caplog: pytest.LogCaptureFixture) -> None:
    line = log_line(caplog, exhaust_time, *[{"id": str(n)} for n in range(10)])
    assert (json.loads(line)["onewrite"]["failed"], json.loads(line)["onewrite"]["returned"]) == (0, 9)
    assert is_counted(UNSETTLED, line)


@pytest.mark.parametrize("body", ["no JSON", {}, {"id": ""}, {"id": None}])
def test_unsettled_filter_counts_invalid_messages(body: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert is_counted(UNSETTLED, log_line(caplog, Applied, {"id": "m"}, body))


@pytest.mark.parametrize("outcome", SETTLED)
def test_unsettled_filter_passes_over_settled_batches(outcome: str, caplog: pytest.LogCaptureFixture) -> None:
    assert not is_counted(UNSETTLED, log_line(caplog, SETTLED[outcome], {"id": "m"}))


def test_unsettled_filter_passes_over_skipped_records(caplog: pytest.LogCaptureFixture) -> None:
    line = log_line(caplog, Applied, {"id": "m"}, identity=lambda record: Skip())
    assert not is_counted(UNSETTLED, line)


@pytest.mark.parametrize(
    ("pattern", "line", "expected"),
    [
        ('{ $.a[0].b = "*" }', '{"a": [{"b": ""}]}', True),
        ('{ $.a[0].b = "*" }', '{"a": [{"b": 1}]}', False),
        ('{ $.a[0].b = "*" }', '{"a": []}', False),
        ('{ $.a = "x*z" }', '{"a": "xyz"}', True),
        ("{ $.n > 0 }", '{"n": 1}', True),
        ("{ $.n > 0 }", '{"n": "1"}', False),
        ("{ $.n > 0 && $.m <= 2 }", '{"n": 1, "m": 3}', False),
        ("{ $.n > 0 }", "n > 0", False),
    ],
)
def test_filter_patterns_are_read_as_cloudwatch_documents(pattern: str, line: str, expected: bool) -> None:
    assert is_counted(pattern, line) == expected
