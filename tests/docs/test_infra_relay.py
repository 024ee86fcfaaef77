"""The relay's stack: it deploys, what orders emit goes through it to the topic, and its role may do just what it needs."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.dynamodb.models import dynamodb_backends

from onewrite import Event, Message
from onewrite.testing import lambda_context
from tests.support import deployment as deployed
from tests.support.alarms import LONG, alarm_of
from tests.support.deployment import REGION, RELAY, Deployment, sdk
from tests.support.packages import ROOT

# moto's CloudFormation knows neither of these, and passes over them.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Tried to parse AWS..CloudWatch..Alarm:UserWarning"),
    pytest.mark.filterwarnings("ignore:Tried to parse AWS..Lambda..EventInvokeConfig:UserWarning"),
]

RESOURCES: dict[str, Any] = deployed.translated_relay()["Resources"]
ACCOUNT = "123456789012"
SCHEDULE = {"source": "aws.events", "detail-type": "Scheduled Event"}


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The operations that botocore is asked for by clients that are made from now on."""
    session, operations = boto3.Session(), set[str]()
    session.events.register(
        "before-call", lambda model, **_: operations.add(f"{model.service_model.service_name}:{model.name}")
    )
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", session)
    return operations


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    with mock_aws(), deployed.moto_tells_who_may_use_dead_letters():
        (tmp_path / "function.zip").write_bytes(b"any")
        deployed.upload(tmp_path / "function.zip")
        yield


@pytest.fixture(params=["true", "false"], ids=["fifo", "standard"])
def stack(aws: None, request: pytest.FixtureRequest) -> Deployment:
    return deployed.deploy_relay("orders-relay", Fifo=request.param)


@pytest.fixture
def relay(stack: Deployment, called: set[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    module = loaded(stack, monkeypatch)
    called.clear()
    return module


def loaded(stack: Deployment, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's module, in the environment that the function has."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", stack.function_name)
    for name, value in deployed.function(stack)["Environment"]["Variables"].items():
        monkeypatch.setenv(name, value)
    # moto would run the function in Docker at each write, also with a mapping that is switched off. Here the tests hand it the records.
    dynamodb_backends[ACCOUNT][REGION].tables[stack.table_name].lambda_event_source_mappings.clear()
    found = importlib.util.spec_from_file_location("relay", ROOT / "infra" / "examples" / "relay" / "relay.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def subscriber(stack: Deployment) -> str:
    """A queue that gets what the topic is told."""
    sqs, fifo = sdk.client("sqs"), stack.topic_arn.endswith(".fifo")
    name, attributes = ("told.fifo", {"FifoQueue": "true"}) if fifo else ("told", {})
    url = str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])
    arn = deployed.queue_attributes(url)["QueueArn"]
    raw = {"RawMessageDelivery": "true"}
    sdk.client("sns").subscribe(TopicArn=stack.topic_arn, Protocol="sqs", Endpoint=arn, Attributes=raw)
    return url


def emit(relay: Any, order: str, event: str) -> None:
    relay.orders.update_item(
        Message(f"{order} {event}"),
        Key={"orderId": order},
        UpdateExpression="SET stage = :stage",
        ExpressionAttributeValues={":stage": event},
        emit=[Event(event, {"order": order})],
    )


def records(stack: Deployment) -> dict[str, Any]:
    """All that the table's stream has to tell, as Lambda hands it to the function."""
    streams, arn = sdk.client("dynamodbstreams"), deployed.event_source(stack)["EventSourceArn"]
    (shard,) = streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]
    start = {"StreamArn": arn, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
    found = streams.get_records(ShardIterator=streams.get_shard_iterator(**start)["ShardIterator"])["Records"]
    return {"Records": found}


def told(url: str) -> list[tuple[str, int]]:
    return sorted((event["type"], int(event["sequence"])) for event in map(json.loads, deployed.bodies_left(url)))


# ---------------------------------------------------------------- the template


@pytest.mark.slow
def test_cfn_lint_finds_nothing() -> None:
    cfn_lint = Path(sys.executable).with_name("cfn-lint")
    found = subprocess.run([cfn_lint, RELAY], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


@pytest.mark.parametrize(("minutes", "rate"), [("1", "rate(1 minute)"), ("5", "rate(5 minutes)")])
def test_a_schedule_invokes_the_function(aws: None, minutes: str, rate: str) -> None:
    stack = deployed.deploy_relay("orders-relay", SweepMinutes=minutes)
    events, function = sdk.client("events"), deployed.function(stack)["FunctionArn"]
    (rule,) = events.list_rules()["Rules"]
    assert (rule["ScheduleExpression"], rule["State"]) == (rate, "ENABLED")
    assert [target["Arn"] for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]] == [function]
    (permission,) = [found for found in RESOURCES.values() if found["Type"] == "AWS::Lambda::Permission"]
    assert permission["Properties"]["Principal"] == "events.amazonaws.com"
    assert permission["Properties"]["SourceArn"] == {"Fn::GetAtt": ["FunctionSweep", "Arn"]}


def test_a_sweep_that_failed_is_not_tried_again() -> None:
    # On the template, as below: moto's CloudFormation makes no such thing.
    (config,) = [found["Properties"] for found in RESOURCES.values() if found["Type"] == "AWS::Lambda::EventInvokeConfig"]
    assert (config["MaximumEventAgeInSeconds"], config["MaximumRetryAttempts"]) == (60, 0)


def test_the_alarms_metrics_are_those_that_the_relay_emits(relay: Any, capsys: pytest.CaptureFixture[str]) -> None:
    relay.handler(SCHEDULE, lambda_context())
    line = json.loads(capsys.readouterr().out)
    for alarm in (RESOURCES[name]["Properties"] for name in ("OldestEventAlarm", "BrokenAlarm")):
        assert line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == alarm["Namespace"]
        assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [[each["Name"] for each in alarm["Dimensions"]]]
        assert alarm["MetricName"] in line


@pytest.mark.parametrize(
    ("queue", "fifo", "broken"),
    [("", "false", False), ("arn:aws:sqs:eu-west-1:1:q", "true", False), ("arn:aws:sqs:eu-west-1:1:q", "false", True)],
)
def test_an_option_that_would_have_no_effect_is_refused(queue: str, fifo: str, broken: bool) -> None:
    rule = deployed.translated_relay()["Rules"]["ToQueue"]
    given = {"TargetQueueArn": queue, "Fifo": fifo}
    (assertion,) = rule["Assertions"]
    asked = deployed.evaluate(rule["RuleCondition"], given) and not deployed.evaluate(assertion["Assert"], given)
    assert asked is broken


# What is measured of the relay in ten minutes: all of it when all is well, and what differs when something is not.
WELL: dict[str, float | None] = {"OldestEvent": 2.0, "IteratorAge": 500.0}
WELL |= dict.fromkeys(("EntitiesBroken", "ApproximateNumberOfMessagesVisible", "Errors", "Throttles"), 0.0)


@pytest.mark.parametrize(
    ("failure", "differs", "rings"),
    [
        ("all is well", {}, set()),
        ("nothing sweeps", {"OldestEvent": None}, {"OldestEvent"}),
        ("the broker refuses an event", {"OldestEvent": 1000.0}, {"OldestEvent"}),
        ("an outbox cannot be read", {"EntitiesBroken": 1.0}, {"Broken"}),
        ("the table cannot be reached", {"OldestEvent": None, "Errors": 3.0}, {"OldestEvent", "Errors"}),
        ("a record is given up", {"ApproximateNumberOfMessagesVisible": 1.0}, {"DeadLetters"}),
        ("the stream is read too slowly", {"IteratorAge": 1_000_000.0}, {"OldestRecord"}),
        ("the account has no room", {"Throttles": 1.0}, {"Throttles"}),
    ],
)
def test_each_way_to_fail_rings_its_alarm_and_no_other(
    failure: str, differs: dict[str, float | None], rings: set[str]
) -> None:
    template = {name: found["Properties"] for name, found in RESOURCES.items() if found["Type"] == "AWS::CloudWatch::Alarm"}
    resolved = {
        name: {**of, "Threshold": 900 if name == "OldestEventAlarm" else of["Threshold"]} for name, of in template.items()
    }
    alarms = {name.removesuffix("Alarm"): alarm_of(properties) for name, properties in resolved.items()}
    metrics = {name: next(iter(alarm.metrics.values()))[:2] for name, alarm in alarms.items()}
    measured = {metric: [{**WELL, **differs}[metric[0]]] * LONG for metric in metrics.values()}
    assert {name for name, alarm in alarms.items() if alarm.rings(measured, {})} == rings, failure
    assert [alarm.description for alarm in alarms.values() if "redrive them" in alarm.description] == []


# ---------------------------------------------------------------- end to end


def test_what_is_emitted_goes_from_the_stream_to_the_topic_and_a_sweep_finds_what_the_stream_does_not_tell(
    stack: Deployment, relay: Any, subscriber: str
) -> None:
    emit(relay, "o-1", "OrderPaid")
    emit(relay, "o-1", "OrderShipped")
    assert relay.handler(records(stack), lambda_context()) == {"batchItemFailures": []}
    assert told(subscriber) == [("OrderPaid", 1), ("OrderShipped", 2)]

    emit(relay, "o-2", "OrderPaid")
    relay.handler(SCHEDULE, lambda_context())
    relay.handler(records(stack), lambda_context())
    assert sorted(json.loads(body)["sequence"] for body in deployed.bodies_left(subscriber)) == ["1"]


def test_a_queue_can_take_the_place_of_the_topic(aws: None, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = str(sdk.client("sqs").create_queue(QueueName="told")["QueueUrl"])
    arn = deployed.queue_attributes(queue)["QueueArn"]
    stack = deployed.deploy_relay("orders-relay", TargetQueueArn=arn)
    relay = loaded(stack, monkeypatch)
    emit(relay, "o-1", "OrderPaid")
    relay.handler(SCHEDULE, lambda_context())

    assert told(queue) == [("OrderPaid", 1)]
    assert sdk.client("sns").list_topics()["Topics"] == []
    grants = {grant for grant in deployed.grants(stack) if grant[1].startswith(("sns:", "sqs:"))}
    assert grants == {
        ("Allow", "sqs:SendMessage", each) for each in (arn, deployed.queue_attributes(stack.dead_letters_url)["QueueArn"])
    }


# ---------------------------------------------------------------- least privilege


def test_the_role_may_call_what_the_relay_calls_and_nothing_else(
    stack: Deployment, relay: Any, called: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for order in ("o-1", "o-2"):
        emit(relay, order, "OrderPaid")
    event = records(stack)
    event["Records"].pop()
    called.clear()
    relay.handler(event, lambda_context())
    relay.handler(SCHEDULE, lambda_context())
    operations = {name.replace("PublishBatch", "Publish") for name in called}

    table = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/<table>"
    grants = deployed.describe(stack)["grants"]
    of_the_code = {
        ("Allow", "dynamodb:GetItem", table),
        ("Allow", "dynamodb:UpdateItem", table),
        ("Allow", "dynamodb:Scan", f"{table}/index/pending"),
        ("Allow", "sns:Publish", "<topic>"),  # which PublishBatch needs
    }
    assert {action for _, action, _ in of_the_code} == operations
    letters = deployed.queue_attributes(stack.dead_letters_url)["QueueArn"]
    assert grants - of_the_code == {
        ("Allow", "logs:CreateLogStream", "<log group>"),
        ("Allow", "logs:PutLogEvents", "<log group>"),
        ("Allow", "dynamodb:DescribeStream", f"{table}/stream/<label>"),
        ("Allow", "dynamodb:GetRecords", f"{table}/stream/<label>"),
        ("Allow", "dynamodb:GetShardIterator", f"{table}/stream/<label>"),
        ("Allow", "dynamodb:ListStreams", "*"),
        ("Allow", "sqs:SendMessage", letters if letters in str(grants) else "<dead letters>"),
    }
