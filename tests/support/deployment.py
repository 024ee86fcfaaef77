"""What infra/ deploys, as the tests see it: translated, read back, and driven as Lambda would drive it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml  # type: ignore[import-untyped]  # these come without types
from samtranslator.parser.parser import Parser  # type: ignore[import-untyped]
from samtranslator.translator.translator import Translator  # type: ignore[import-untyped]
from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]

from order_history import OrderHistory, feed
from order_history.__main__ import deliveries
from order_history.events import Event, message_of

ROOT = Path(__file__).parents[2]
SAM = ROOT / "infra" / "sam" / "template.yaml"
TERRAFORM = ROOT / "infra" / "terraform"
REGION = "eu-west-1"
CODE = {"Bucket": "code", "Key": "order_history.zip"}

sdk: Any = boto3  # its types know two services


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a deployment says of itself: its outputs."""

    table_name: str
    queue_url: str
    dead_letters_url: str
    function_name: str

    @classmethod
    def of(cls, outputs: Mapping[str, str]) -> Deployment:
        """SAM's outputs are TableName and so on; Terraform's are table_name."""
        plain = {name.replace("_", "").lower(): value for name, value in outputs.items()}
        return cls(plain["tablename"], plain["queueurl"], plain["deadlettersurl"], plain["functionname"])


@cache
def translated() -> dict[str, Any]:
    """The SAM template as CloudFormation's service translates it; the code is in S3, where `sam deploy` puts it."""
    template = yaml_parse(SAM.read_text())
    template["Resources"]["Function"]["Properties"]["CodeUri"] = CODE
    no_managed_policies: dict[str, str] = {}  # the role is the template's own
    translator = Translator(no_managed_policies, Parser(), boto_session=boto3.Session(region_name=REGION))
    result: dict[str, Any] = translator.translate(template, parameter_values={})
    return result


def make_package(*arguments: str | Path, python: str | Path = sys.executable) -> None:
    """Packs what the arguments say, with the Python of the runtime that it is for."""
    # Without our PYTHONPATH: another version of Python must not find this one's packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, ROOT / "infra" / "package.py", *arguments]
    subprocess.run(command, check=True, capture_output=True, env=environment)


def upload(package: Path) -> None:
    s3 = sdk.client("s3")
    s3.create_bucket(Bucket=CODE["Bucket"], CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(**CODE, Body=package.read_bytes())


def deploy_stack(name: str, **parameters: str) -> Deployment:
    """Creates the stack in CloudFormation. The code must be in its bucket."""
    cloudformation = sdk.client("cloudformation")
    given = [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]
    cloudformation.create_stack(
        StackName=name, TemplateBody=json.dumps(translated()), Parameters=given, Capabilities=["CAPABILITY_IAM"]
    )
    (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack
    deployment = Deployment.of({output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]})
    take_over(deployment)
    return deployment


def take_over(deployment: Deployment) -> None:
    """moto polls the queue by itself, and runs functions in Docker. Here `poll` does it."""
    sdk.client("lambda").update_event_source_mapping(UUID=event_source(deployment)["UUID"], Enabled=False)


# ---------------------------------------------------------------- read back


def queue_attributes(url: str) -> dict[str, str]:
    found: dict[str, str] = sdk.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return found


def event_source(deployment: Deployment) -> dict[str, Any]:
    found = sdk.client("lambda").list_event_source_mappings(FunctionName=deployment.function_name)
    (mapping,) = found["EventSourceMappings"]
    return dict(mapping)


def function(deployment: Deployment) -> dict[str, Any]:
    return dict(sdk.client("lambda").get_function_configuration(FunctionName=deployment.function_name))


def table(deployment: Deployment) -> dict[str, Any]:
    return dict(sdk.client("dynamodb").describe_table(TableName=deployment.table_name)["Table"])


def grants(deployment: Deployment) -> set[tuple[str, str]]:
    """Every (action, resource) that the function's role allows."""
    iam = sdk.client("iam")
    role = function(deployment)["Role"].rpartition("/")[2]
    assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == []
    names = iam.list_role_policies(RoleName=role)["PolicyNames"]
    found = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
    # moto's CloudFormation keeps the text of a Python dict, which is YAML if not JSON.
    documents = [yaml.safe_load(document) if isinstance(document, str) else document for document in found]
    statements = [statement for document in documents for statement in document["Statement"]]
    assert {statement["Effect"] for statement in statements} == {"Allow"}
    return {
        (action, resource)
        for statement in statements
        for action in _list(statement["Action"])
        for resource in _list(statement["Resource"])
    }


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def described(deployment: Deployment) -> dict[str, Any]:
    """All that can be read back of it, with names that are the same for every deployment."""
    queue, dead_letters = queue_attributes(deployment.queue_url), queue_attributes(deployment.dead_letters_url)
    configuration, mapping, entities = function(deployment), event_source(deployment), table(deployment)
    names = {entities["TableArn"]: "<table>", queue["QueueArn"]: "<queue>", dead_letters["QueueArn"]: "<dead letters>"}

    def named(arn: str) -> str:
        if ":logs:" in arn:  # moto's CloudFormation leaves out the :* that AWS has at the end
            return "<log group>"
        return next((arn.replace(own, name) for own, name in names.items() if arn.startswith(own)), arn)

    redrive = json.loads(queue["RedrivePolicy"])
    return {
        "queue": {**_only(queue, _QUEUE), "fifo": queue["QueueArn"].endswith(".fifo")},
        "redrive": {**redrive, "deadLetterTargetArn": named(redrive["deadLetterTargetArn"])},
        "dead letters": {**_only(dead_letters, _QUEUE), "fifo": dead_letters["QueueArn"].endswith(".fifo")},
        "table": {
            **_only(entities, _TABLE),
            "indexes": [_only(index, _INDEX) for index in entities["GlobalSecondaryIndexes"]],
        },
        "function": {**_only(configuration, _FUNCTION), "environment": [*configuration["Environment"]["Variables"]]},
        "event source": {**_only(mapping, _MAPPING), "of": named(mapping["EventSourceArn"])},
        "grants": {(action, named(resource)) for action, resource in grants(deployment)},
    }


_QUEUE = (
    "VisibilityTimeout",
    "MessageRetentionPeriod",
    "SqsManagedSseEnabled",
    "FifoQueue",
    "ContentBasedDeduplication",
)
_TABLE = ("KeySchema", "AttributeDefinitions", "BillingModeSummary")
_INDEX = ("IndexName", "KeySchema", "Projection")
_FUNCTION = ("Handler", "Runtime", "Timeout", "MemorySize", "CodeSha256")
_MAPPING = ("BatchSize", "FunctionResponseTypes", "ScalingConfig")


def _only(found: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    values = {key: found.get(key) for key in keys}
    if definitions := values.get("AttributeDefinitions"):  # a set, in whatever order
        values["AttributeDefinitions"] = sorted(definitions, key=lambda definition: definition["AttributeName"])
    return values


# ---------------------------------------------------------------- driven


def in_its_function(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The handler that the function names, in the environment that the function has."""
    configuration = function(deployment)
    for name, value in configuration["Environment"]["Variables"].items():
        monkeypatch.setenv(name, value)
    feed.history.cache_clear()
    module, _, name = configuration["Handler"].rpartition(".")
    return getattr(importlib.import_module(module), name)


def poll(deployment: Deployment, handler: Any) -> int:
    """One turn of what Lambda does with a queue: receive a batch, invoke, delete what the answer does not return.

    What is returned comes again at once, rather than when its visibility timeout ends.
    """
    sqs, mapping = sdk.client("sqs"), event_source(deployment)
    received = sqs.receive_message(
        QueueUrl=deployment.queue_url,
        MaxNumberOfMessages=mapping["BatchSize"],
        AttributeNames=["All"],
        MessageAttributeNames=["All"],
    ).get("Messages", [])
    if not received:
        return 0
    event = {"Records": [_record(message, mapping["EventSourceArn"]) for message in received]}
    answer = json.loads(json.dumps(handler(json.loads(json.dumps(event)), None)))
    failed = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    for message in received:
        settle = {"QueueUrl": deployment.queue_url, "ReceiptHandle": message["ReceiptHandle"]}
        if message["MessageId"] in failed:
            sqs.change_message_visibility(**settle, VisibilityTimeout=0)
        else:
            sqs.delete_message(**settle)
    return len(received)


def _record(message: Mapping[str, Any], arn: str) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message["Attributes"],
        "messageAttributes": {},
        "md5OfBody": message["MD5OfBody"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": REGION,
    }


def send(deployment: Deployment, body: str, *, group: str, deduplication: str) -> None:
    fifo = {"MessageGroupId": group, "MessageDeduplicationId": deduplication}
    extra = fifo if deployment.queue_url.endswith(".fifo") else {}
    sdk.client("sqs").send_message(QueueUrl=deployment.queue_url, MessageBody=body, **extra)


def send_events(deployment: Deployment, events: list[Event]) -> None:
    """Each delivery is a message of its own, as after a producer's retry that came too late for SQS to notice."""
    for position, event in enumerate(events):
        send(deployment, as_json(event), group=message_of(event).source, deduplication=str(position))


def as_json(event: Event) -> str:
    """As the two services publish it."""
    return json.dumps({"type": type(event).__name__, **dict(_camel(asdict(event)))})


def run_the_example(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the example's events, through the queue into the table, and nothing left over."""
    handler = in_its_function(deployment, monkeypatch)
    events = deliveries()
    # A FIFO queue delivers in order, if with repeats; a standard queue as it likes.
    fifo = deployment.queue_url.endswith(".fifo")
    send_events(deployment, sorted(events, key=lambda event: event.number) if fifo else events)
    while poll(deployment, handler):
        pass

    second, first = OrderHistory(sdk.resource("dynamodb").Table(deployment.table_name)).orders_of("ajanta-fan").orders
    assert (second["orderId"], second["status"]) == ("o-2", "PENDING")
    assert (first["orderId"], first["status"], first["deliveryStatus"]) == ("o-1", "APPROVED", "DELIVERED")
    assert Counter(step["what"] for step in first["steps"]) == Counter(["CREATED", "APPROVED", "PICKED_UP", "DELIVERED"])
    assert left(deployment.queue_url) == left(deployment.dead_letters_url) == []


def left(url: str) -> list[str]:
    found = sdk.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return sorted(message["Body"] for message in found)


def _camel(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        first, *rest = name.split("_")
        yield first + "".join(map(str.title, rest)), value.isoformat() if isinstance(value, datetime) else value
