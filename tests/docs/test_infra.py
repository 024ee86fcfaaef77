"""The SAM template: it is clean and deploys, and the example runs through its stack. And what infra/ holds for laptops and for the docs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from awslambdaric.lambda_runtime_log_utils import JsonFormatter  # type: ignore[import-untyped]
from moto import mock_aws
from samtranslator.parser.parser import Parser  # type: ignore[import-untyped]
from samtranslator.translator.translator import Translator  # type: ignore[import-untyped]
from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]

from onewrite import Applied, Deferred, Message, Rejected
from onewrite.aws_lambda import sqs_handler
from onewrite.testing import lambda_context, sqs_event
from order_history import feed  # pyright: ignore[reportMissingImports]
from tests.support import deployment as deployed
from tests.support.alarms import UNSETTLED, counted_lines
from tests.support.deployment import REGION, Deployment, sdk
from tests.support.packages import ROOT, make_package

SAM = ROOT / "infra" / "sam" / "template.yaml"
CODE = {"Bucket": "code", "Key": "function.zip"}
TOPIC = f"arn:aws:sns:{REGION}:123456789012:alarms"


def translated() -> dict[str, Any]:
    """The template as CloudFormation's service translates it; the code is in S3, where `sam deploy` puts it."""
    template = yaml_parse(SAM.read_text())
    template["Resources"]["Function"]["Properties"]["CodeUri"] = CODE
    no_managed_policies: dict[str, str] = {}  # the role is the template's own
    translator = Translator(no_managed_policies, Parser(), boto_session=boto3.Session(region_name=REGION))
    result: dict[str, Any] = translator.translate(template, parameter_values={})
    return result


RESOURCES: dict[str, Any] = translated()["Resources"]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Deployment]:
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    make_package("--output", tmp_path / "function.zip")
    with mock_aws():
        yield deploy("shop", tmp_path / "function.zip")
    feed.history.cache_clear()


def deploy(name: str, package: Path) -> Deployment:
    s3 = sdk.client("s3")
    s3.create_bucket(Bucket=CODE["Bucket"], CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(**CODE, Body=package.read_bytes())
    cloudformation = sdk.client("cloudformation")
    cloudformation.create_stack(
        StackName=name,
        TemplateBody=json.dumps(translated()),
        Parameters=[{"ParameterKey": "AlarmTopicArn", "ParameterValue": TOPIC}],
        Capabilities=["CAPABILITY_IAM"],
    )
    (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack
    deployment = Deployment.of({output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]})
    deployed.take_over(deployment)
    return deployment


# ---------------------------------------------------------------- the SAM template


@pytest.mark.slow
def test_cfn_lint_finds_nothing() -> None:
    cfn_lint = Path(sys.executable).with_name("cfn-lint")
    found = subprocess.run([cfn_lint, SAM], capture_output=True, text=True, check=False)
    assert (found.stdout, found.returncode) == ("", 0)


# moto's CloudFormation knows none of these, and passes over them.
@pytest.mark.filterwarnings("ignore:Tried to parse AWS..SQS..QueuePolicy:UserWarning")
@pytest.mark.filterwarnings("ignore:Tried to parse AWS..CloudWatch..Alarm:UserWarning")
@pytest.mark.filterwarnings("ignore:Tried to parse AWS..Logs..MetricFilter:UserWarning")
def test_example_runs_through_the_stack(stack: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    deployed.run_the_example(stack, monkeypatch)


def test_queue_hides_messages_for_six_timeouts() -> None:
    assert RESOURCES["Queue"]["Properties"]["VisibilityTimeout"] == 6 * RESOURCES["Function"]["Properties"]["Timeout"]


def test_dead_letters_are_kept_longer_than_messages() -> None:
    queue, dead_letters = (RESOURCES[name]["Properties"] for name in ("Queue", "DeadLetters"))
    assert queue["MessageRetentionPeriod"] < dead_letters["MessageRetentionPeriod"] == 14 * 24 * 60 * 60
    assert queue["RedrivePolicy"]["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetters", "Arn"]}


def test_mapping_reports_failed_messages() -> None:
    (mapping,) = [found["Properties"] for found in RESOURCES.values() if found["Type"] == "AWS::Lambda::EventSourceMapping"]
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["EventSourceArn"] == {"Fn::GetAtt": ["Queue", "Arn"]}


def test_role_has_exactly_the_needed_permissions() -> None:
    assert [name for name, found in RESOURCES.items() if found["Type"] == "AWS::IAM::Role"] == ["Role"]
    (policy,) = RESOURCES["Role"]["Properties"]["Policies"]
    allowed = {tuple(each["Resource"]["Fn::GetAtt"]): set(each["Action"]) for each in policy["PolicyDocument"]["Statement"]}
    assert allowed == {
        ("Table", "Arn"): {"dynamodb:UpdateItem", "dynamodb:GetItem"},
        ("Queue", "Arn"): {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"},
        ("LogGroup", "Arn"): {"logs:CreateLogStream", "logs:PutLogEvents"},
    }


def test_every_template_counts_unsettled_messages_with_the_same_filter() -> None:
    properties = RESOURCES["Unsettled"]["Properties"]
    (made,) = properties["MetricTransformations"]
    assert (properties["FilterPattern"], made["MetricValue"]) == UNSETTLED
    for folder in ("terraform", "service"):
        text = "".join(path.read_text() for path in (ROOT / "infra" / folder).glob("*.tf"))
        (pattern,) = re.findall(r'pattern += "({.*})"', text)
        assert pattern.replace('\\"', '"') == UNSETTLED[0]


# ---------------------------------------------------------------- the log that alarms count


def applying(message: Message) -> Applied:
    return Applied(message)


def refusing(message: Message) -> Rejected:
    return Rejected(message)


elapsed = [0.0]


def slow(message: Message) -> Applied:
    elapsed[0] += 29.9
    return Applied(message)


def failing(message: Message) -> Applied:
    raise ValueError(message.id)


@pytest.mark.parametrize(
    ("function", "counted"),
    [
        (applying, False),
        (refusing, False),
        (failing, True),
        (lambda message: Deferred(message, expected=1), True),
        (slow, True),  # one message fits, and the others are returned untried
    ],
)
def test_filter_counts_batches_with_unsettled_messages(
    function: Callable[[Message], Any], counted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", "onewrite"):
        handler = sqs_handler(lambda record: Message(record["messageId"]))(function)
        handler(sqs_event(*[{}] * 10), lambda_context(30_000, clock=lambda: elapsed[0]))
    (record,) = caplog.records
    line: str = JsonFormatter().format(record)
    assert counted_lines(UNSETTLED[0], [line]) == counted
    if function is slow:
        known = json.loads(line)["onewrite"]
        assert (known["returned"], known["failed"]) == (9, 0)


# ---------------------------------------------------------------- the modules' pages


def test_readme_tables_match_the_terraform_files() -> None:
    check = [sys.executable, str(ROOT / "infra" / "tables.py"), "--check"]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (checked.stdout, checked.returncode) == ("", 0)
