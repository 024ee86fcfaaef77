"""What infra/ deploys, as the tests see it: translated, read back, and driven as Lambda would drive it."""

from __future__ import annotations

import ast
import importlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import boto3
import pytest
from moto.sqs.models import Queue
from samtranslator.parser.parser import Parser  # type: ignore[import-untyped]  # these come without types
from samtranslator.translator.translator import Translator  # type: ignore[import-untyped]
from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]

from order_history import OrderHistory, feed
from order_history.__main__ import deliveries
from order_history.events import Event, message_of
from tests.support.packages import ROOT

SAM = ROOT / "infra" / "sam" / "template.yaml"
ORDER_HISTORY = ROOT / "infra" / "sam" / "order-history.yaml"
RELAY = ROOT / "infra" / "sam" / "relay.yaml"
TERRAFORM = ROOT / "infra" / "terraform"
REGION = "eu-west-1"
BUCKET = "code"
CODE = {"Bucket": BUCKET, "Key": "function.zip"}
NESTED_CODE = {"Bucket": BUCKET, "Key": "template.json"}

sdk: Any = boto3  # its types know two services


@dataclass(frozen=True, slots=True)
class Deployment:
    """What a deployment says of itself: its outputs. Fed by a stream it has no queue, and without a table of its own no table."""

    function_name: str
    dead_letters_url: str
    queue_url: str = ""
    table_name: str = ""
    topic_arn: str = ""

    @classmethod
    def of(cls, outputs: Mapping[str, str | None]) -> Deployment:
        """SAM's outputs are QueueUrl and so on; Terraform's are queue_url."""
        plain = {name.replace("_", "").lower(): value for name, value in outputs.items()}
        values = {field.name: plain.get(field.name.replace("_", "")) for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if value})


@cache
def translate() -> dict[str, Any]:
    """The SAM template as CloudFormation's service translates it; the code is in S3, where `sam deploy` puts it."""
    template = _translate(SAM, "Function", {"CodeUri": CODE})
    # CloudFormation makes a number of a text where one is wanted; moto would compare the text with a number.
    size = template["Parameters"]["BatchSize"]
    size |= {"Type": "Number", "Default": int(size["Default"])}
    return template


@cache
def translated_order_history() -> dict[str, Any]:
    """The same of the example, whose nested template is in S3 too."""
    location = f"https://s3.amazonaws.com/{NESTED_CODE['Bucket']}/{NESTED_CODE['Key']}"
    return _translate(ORDER_HISTORY, "Feed", {"Location": location})


@cache
def translated_relay() -> dict[str, Any]:
    """The same of the relay."""
    return _translate(RELAY, "Function", {"CodeUri": CODE})


def _translate(path: Path, name: str, locations: Mapping[str, Any]) -> dict[str, Any]:
    template = yaml_parse(path.read_text())
    template["Resources"][name]["Properties"].update(locations)
    no_managed_policies: dict[str, str] = {}  # the role is the template's own
    translator = Translator(no_managed_policies, Parser(), boto_session=boto3.Session(region_name=REGION))
    result: dict[str, Any] = translator.translate(template, parameter_values={})
    return result


def evaluate(expression: Any, parameters: Mapping[str, str]) -> Any:
    """A part of the translated template as CloudFormation reads it, for what moto passes over: rules and queue policies."""
    defaults = {name: str(parameter["Default"]) for name, parameter in translate()["Parameters"].items()}
    return _value_of(expression, {**defaults, **parameters})


def _value_of(expression: Any, parameters: Mapping[str, str]) -> Any:
    if isinstance(expression, list):
        values = [_value_of(part, parameters) for part in expression]
        return [value for value in values if value != "AWS::NoValue"]
    if not isinstance(expression, dict):
        return expression
    name, of = next(iter(expression.items()))
    if name == "Condition" and of is True:
        return True
    if name == "Condition" and isinstance(of, str):
        return _value_of(translate()["Conditions"][of], parameters)
    if name == "Fn::If":
        return _value_of(of[1] if _value_of({"Condition": of[0]}, parameters) else of[2], parameters)
    if name == "Ref":
        return parameters.get(of, of)
    if name == "Fn::FindInMap":
        table, first, second = _value_of(of, parameters)
        return translate()["Mappings"][table][first][second]
    if name.startswith("Fn::"):
        if name == "Fn::Sub" and isinstance(of, str):
            return re.sub(r"\$\{([\w:]+)\}", lambda match: parameters.get(match[1], match[1]), of)
        return _FUNCTIONS[name](*_value_of(of, parameters)) if name in _FUNCTIONS else of
    return {key: _value_of(value, parameters) for key, value in expression.items()}


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Fn::Equals": lambda one, other: one == other,
    "Fn::Not": lambda one: not one,
    "Fn::And": lambda *all_of: all(all_of),
    "Fn::Or": lambda *any_of: any(any_of),
    "Fn::Join": lambda between, parts: between.join(parts),
    "Fn::Contains": lambda values, one: one in values,
    "Fn::Split": lambda between, text: text.split(between),
    "Fn::Select": lambda place, values: values[place],
}


@contextmanager
def moto_tells_who_may_use_dead_letters() -> Iterator[None]:
    """moto keeps a queue's RedriveAllowPolicy and does not tell it, and Terraform would wait for it in vain."""
    moto_attributes: Any = vars(Queue)["attributes"]

    def attributes(queue: Any) -> dict[str, Any]:
        answer: dict[str, Any] = moto_attributes.fget(queue)
        policy = getattr(queue, "redrive_allow_policy", None)
        if policy is None:
            return answer
        return {**answer, "RedriveAllowPolicy": policy if isinstance(policy, str) else json.dumps(policy)}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queue, "attributes", property(attributes))
        yield


def upload(package: Path) -> None:
    s3 = sdk.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": REGION})
    s3.put_object(**CODE, Body=package.read_bytes())
    s3.put_object(**NESTED_CODE, Body=json.dumps(translate()))


def deploy_stack(name: str, **parameters: str) -> Deployment:
    """Creates the stack in CloudFormation. The code must be in its bucket."""
    return _deploy(name, translate(), parameters)


def deploy_order_history(name: str, **parameters: str) -> Deployment:
    """The example's stack, and in it the other one."""
    _create(name, translated_order_history(), parameters)
    cloudformation = sdk.client("cloudformation")
    (nested_stack,) = [
        description
        for description in cloudformation.describe_stacks()["Stacks"]
        if description["StackName"].startswith(f"{name}-Feed")
    ]
    resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
    table = {description["LogicalResourceId"]: description["PhysicalResourceId"] for description in resources}["Table"]
    # moto does not tell the outputs of a nested stack to the one around it.
    deployment = replace(Deployment.of(_outputs(nested_stack)), table_name=table)
    take_over(deployment)
    return deployment


def deploy_relay(name: str, **parameters: str) -> Deployment:
    """The relay's stack."""
    return _deploy(name, translated_relay(), parameters)


def _deploy(name: str, template: Mapping[str, Any], parameters: Mapping[str, str]) -> Deployment:
    _create(name, template, parameters)
    (stack,) = sdk.client("cloudformation").describe_stacks(StackName=name)["Stacks"]
    assert stack["StackStatus"] == "CREATE_COMPLETE", stack
    deployment = Deployment.of(_outputs(stack))
    take_over(deployment)
    return deployment


def _create(name: str, template: Mapping[str, Any], parameters: Mapping[str, str]) -> None:
    texts = [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]
    may = ["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"]
    sdk.client("cloudformation").create_stack(
        StackName=name, TemplateBody=json.dumps(template), Parameters=texts, Capabilities=may
    )


def _outputs(stack: Mapping[str, Any]) -> dict[str, str]:
    return {output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]}


def take_over(deployment: Deployment) -> None:
    """moto polls the queue by itself, and runs functions in Docker. Here `poll` does it."""
    sdk.client("lambda").update_event_source_mapping(UUID=event_source(deployment)["UUID"], Enabled=False)


# ---------------------------------------------------------------- read back


def queue_attributes(url: str) -> dict[str, str]:
    attributes: dict[str, str] = sdk.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return attributes


def event_source(deployment: Deployment) -> dict[str, Any]:
    answer = sdk.client("lambda").list_event_source_mappings(FunctionName=deployment.function_name)
    (mapping,) = answer["EventSourceMappings"]
    return {name: _number(value) for name, value in mapping.items()}


def _number(value: Any) -> Any:
    """moto's CloudFormation leaves numbers as texts, here and in what is in this."""
    if isinstance(value, dict):
        return {name: _number(part) for name, part in value.items()}
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,8}", value) else value


def function(deployment: Deployment) -> dict[str, Any]:
    return dict(sdk.client("lambda").get_function_configuration(FunctionName=deployment.function_name))


Grant: TypeAlias = tuple[str, str, str]


def grants(deployment: Deployment) -> set[Grant]:
    """Every (effect, action, resource) of the function's role."""
    return grants_of(function(deployment)["Role"].rpartition("/")[2])


def grants_of(role: str) -> set[Grant]:
    iam = sdk.client("iam")
    assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == []
    names = iam.list_role_policies(RoleName=role)["PolicyNames"]
    documents = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
    return {grant for document in documents for grant in _grants_in(document)}


def _grants_in(document: Any) -> Iterator[Grant]:
    # moto's CloudFormation keeps the text of a Python dict.
    policy = ast.literal_eval(document) if isinstance(document, str) else document
    # CloudFormation leaves out what is AWS::NoValue. moto makes it null.
    for statement in filter(None, policy["Statement"]):
        for action in _list(statement["Action"]):
            for resource in _list(statement["Resource"]):
                yield statement["Effect"], action, resource


def senders(policy: Any) -> set[tuple[str, str, str]]:
    """Who may send to a queue by its policy, and on which conditions."""
    statements = [] if policy is None else (json.loads(policy) if isinstance(policy, str) else policy)["Statement"]
    assert {(statement["Effect"], statement["Action"]) for statement in statements} <= {("Allow", "sqs:SendMessage")}
    return {
        (statement["Principal"]["Service"], f"{test} {name}", value)
        for statement in statements
        for test, condition in statement["Condition"].items()
        for name, values in condition.items()
        for value in _list(values)
    }


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def describe(deployment: Deployment) -> dict[str, Any]:
    """All that can be read back of it, with names that are the same for every deployment."""
    return {
        "queue": _queue(deployment.queue_url) if deployment.queue_url else None,
        "dead letters": _queue(deployment.dead_letters_url),
        "table": described_table(deployment.table_name) if deployment.table_name else None,
        "function": _function(deployment),
        "event source": {
            name: without_names(deployment, value) for name, value in _only(event_source(deployment), _MAPPING).items()
        },
        "grants": {(effect, action, without_names(deployment, resource)) for effect, action, resource in grants(deployment)},
    }


def without_names(deployment: Deployment, value: Any) -> Any:
    """The value without the names of this deployment."""
    text = json.dumps(value, default=str)
    for name, url in (("queue", deployment.queue_url), ("dead letters", deployment.dead_letters_url)):
        if url:
            text = text.replace(f'"{queue_attributes(url)["QueueArn"]}"', f'"<{name}>"')
    text = re.sub(
        r'"arn:aws:logs:[^"]*"', '"<log group>"', text
    )  # moto's CloudFormation leaves out the :* that AWS has at the end
    if deployment.table_name:
        text = text.replace(f":table/{deployment.table_name}", ":table/<table>")
        text = re.sub(r"(:table/<table>/stream/)[^\"]*", r"\1<label>", text)
    if deployment.topic_arn:
        text = text.replace(f'"{deployment.topic_arn}"', '"<topic>"')
    return json.loads(text)


def described_table(name: str) -> dict[str, Any]:
    table = sdk.client("dynamodb").describe_table(TableName=name)["Table"]
    return {**_only(table, _TABLE), "indexes": [_only(index, _INDEX) for index in table.get("GlobalSecondaryIndexes", [])]}


def _queue(url: str) -> dict[str, Any]:
    attributes = queue_attributes(url)
    names = ("RedrivePolicy", "RedriveAllowPolicy")
    policies: dict[str, dict[str, Any]] = {name: json.loads(attributes[name]) for name in names if name in attributes}
    for policy in policies.values():  # the other queue, by its name's end
        for key in {"deadLetterTargetArn", "sourceQueueArns"} & set(policy):
            policy[key] = [arn.rpartition("-")[2] for arn in _list(policy[key])]
    texts = {name: {key: str(value) for key, value in policy.items()} for name, policy in policies.items()}
    return {**_only(attributes, _QUEUE), **texts, "fifo": attributes["QueueArn"].endswith(".fifo")}


def _function(deployment: Deployment) -> dict[str, Any]:
    configuration = function(deployment)
    network = configuration.get("VpcConfig") or {}
    return {
        **_only(configuration, _FUNCTION),
        "environment": [*configuration.get("Environment", {}).get("Variables", {})],
        "layers": [layer["Arn"] for layer in configuration.get("Layers", [])],
        "network": [network.get("SubnetIds", []), network.get("SecurityGroupIds", [])],
        "tracing": configuration.get("TracingConfig", {}).get("Mode", "PassThrough"),
        "boundary": boundary(deployment),
    }


def boundary(deployment: Deployment) -> str | None:
    role = function(deployment)["Role"].rpartition("/")[2]
    permissions = sdk.client("iam").get_role(RoleName=role)["Role"].get("PermissionsBoundary", {})
    return permissions.get("PermissionsBoundaryArn")


_QUEUE = (
    "VisibilityTimeout",
    "MessageRetentionPeriod",
    "SqsManagedSseEnabled",
    "KmsMasterKeyId",
    "FifoQueue",
    "ContentBasedDeduplication",
    "DeduplicationScope",
    "FifoThroughputLimit",
)
_TABLE = ("KeySchema", "AttributeDefinitions", "BillingModeSummary", "StreamSpecification")
_INDEX = ("IndexName", "KeySchema", "Projection")
_FUNCTION = ("Handler", "Runtime", "Timeout", "MemorySize", "Architectures", "CodeSha256", "KMSKeyArn")
_MAPPING = (
    "EventSourceArn",
    "BatchSize",
    "MaximumBatchingWindowInSeconds",
    "FunctionResponseTypes",
    "ScalingConfig",
    "StartingPosition",
    "MaximumRecordAgeInSeconds",
    "MaximumRetryAttempts",
    "BisectBatchOnFunctionError",
    "ParallelizationFactor",
    "DestinationConfig",
)


def _only(description: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    values = {key: description.get(key) for key in keys}
    if definitions := values.get("AttributeDefinitions"):  # a set, in whatever order
        values["AttributeDefinitions"] = sorted(definitions, key=lambda definition: definition["AttributeName"])
    projection = values.get("Projection") or {}
    if included := projection.get("NonKeyAttributes"):  # as these are
        values["Projection"] = {**projection, "NonKeyAttributes": sorted(included)}
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

    What is returned is redelivered at once, rather than when its visibility timeout ends.
    """
    sqs, mapping = sdk.client("sqs"), event_source(deployment)
    messages = sqs.receive_message(
        QueueUrl=deployment.queue_url,
        MaxNumberOfMessages=mapping["BatchSize"],
        AttributeNames=["All"],
        MessageAttributeNames=["All"],
    ).get("Messages", [])
    if not messages:
        return 0
    event = {"Records": [_record(message, mapping["EventSourceArn"]) for message in messages]}
    answer = json.loads(json.dumps(handler(json.loads(json.dumps(event)), None)))
    failed_ids = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    for message in messages:
        settle = {"QueueUrl": deployment.queue_url, "ReceiptHandle": message["ReceiptHandle"]}
        if message["MessageId"] in failed_ids:
            sqs.change_message_visibility(**settle, VisibilityTimeout=0)
        else:
            sqs.delete_message(**settle)
    return len(messages)


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

    second_order, first_order = (
        OrderHistory(sdk.resource("dynamodb").Table(deployment.table_name)).orders_of("ajanta-fan").orders
    )
    assert (second_order["orderId"], second_order["status"]) == ("o-2", "PENDING")
    assert (first_order["orderId"], first_order["status"], first_order["deliveryStatus"]) == ("o-1", "APPROVED", "DELIVERED")
    assert Counter(step["what"] for step in first_order["steps"]) == Counter(
        ["CREATED", "APPROVED", "PICKED_UP", "DELIVERED"]
    )
    assert bodies_left(deployment.queue_url) == bodies_left(deployment.dead_letters_url) == []


def bodies_left(url: str) -> list[str]:
    messages = sdk.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return sorted(message["Body"] for message in messages)


def _camel(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        start, *words = name.split("_")
        yield start + "".join(map(str.title, words)), value.isoformat() if isinstance(value, datetime) else value
