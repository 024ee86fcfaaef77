"""The templates of infra/ as stacks on moto's CloudFormation, driven as AWS would drive them."""

from __future__ import annotations

import importlib
import json
import sys
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

import boto3
import pytest
from moto.cloudformation import parsing
from moto.core.common_models import CloudFormationModel
from samtranslator.parser.parser import Parser  # type: ignore[import-untyped]
from samtranslator.translator.translator import Translator  # type: ignore[import-untyped]
from samtranslator.yaml_helper import yaml_parse  # type: ignore[import-untyped]

from onewrite.aws_lambda.sources import make_lambda_record
from order_history.events import Event, message_of
from tests.support.packages import ROOT

FUNCTION = ROOT / "infra" / "function.yaml"
WORKER = ROOT / "infra" / "worker.yaml"
REGION, ACCOUNT = "eu-west-1", "123456789012"
ALARM_TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms"
IDS = {"LogicalResourceId", "PhysicalResourceId"}  # some of moto's models lack one of them
CODE = {"Bucket": "code", "Key": "function.zip"}

sdk: Any = boto3  # its types know two services


def operator(service: str) -> Any:
    """A client of the test's own, whose calls aren't those of the deployed code."""
    return _session().client(service)


@cache
def _session() -> Any:
    return sdk.Session(aws_access_key_id="dummy", aws_secret_access_key="dummy", region_name=REGION)


# ---------------------------------------------------------------- CloudFormation


def translate(path: Any, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return the template as CloudFormation's service has it after its transform. The code is in S3, where `sam deploy` puts it."""
    template: dict[str, Any] = yaml_parse(path.read_text())
    if "Transform" in template:
        template["Globals"]["Function"]["CodeUri"] = CODE
        translator = Translator({}, Parser(), boto_session=boto3.Session(region_name=REGION))
        template = translator.translate(template, parameter_values=dict(parameters))
    return template


def _put_alarm(name: str, properties: dict[str, Any]) -> str:
    operator("cloudwatch").put_metric_alarm(AlarmName=name, **properties)
    return name


def _put_filter(name: str, properties: dict[str, Any]) -> str:
    made = [{key[0].lower() + key[1:]: value for key, value in each.items()} for each in properties["MetricTransformations"]]
    native = {"logGroupName": properties["LogGroupName"], "filterPattern": properties["FilterPattern"]}
    operator("logs").put_metric_filter(filterName=name, metricTransformations=made, **native)
    return name


def _set_policy(name: str, properties: dict[str, Any]) -> str:
    for url in properties["Queues"]:
        policy = json.dumps(properties["PolicyDocument"])
        operator("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    return name


def _configure_invokes(name: str, properties: dict[str, Any]) -> str:
    operator("lambda").put_function_event_invoke_config(**properties)
    return name


# The types of the templates that moto's CloudFormation doesn't have, made by the same request that CloudFormation would send.
MISSING_IN_MOTO: dict[str, Callable[[str, dict[str, Any]], str]] = {
    "AWS::CloudWatch::Alarm": _put_alarm,
    "AWS::Logs::MetricFilter": _put_filter,
    "AWS::SQS::QueuePolicy": _set_policy,
    "AWS::Lambda::EventInvokeConfig": _configure_invokes,
}


def _make_model(kind: str, make: Callable[[str, dict[str, Any]], str]) -> type[Any]:
    class Model(CloudFormationModel):
        def __init__(self, physical_resource_id: str) -> None:
            self._id = physical_resource_id

        @property
        def physical_resource_id(self) -> str:
            return self._id

        @staticmethod
        def cloudformation_name_type() -> str:
            return ""

        @staticmethod
        def cloudformation_type() -> str:
            return kind

        @classmethod
        def create_from_cloudformation_json(
            cls, resource_name: str, cloudformation_json: Any, account_id: str, region_name: str, **kwargs: Any
        ) -> Any:
            stack = kwargs["StackId"].split("/")[1]
            return cls(make(f"{stack}-{kwargs['LogicalId']}", cloudformation_json["Properties"]))

    return Model


@contextmanager
def whole_cloudformation() -> Iterator[None]:
    """Add the missing types to moto, and leave out `AWS::NoValue` from lists, as CloudFormation does."""
    clean = parsing.clean_json

    def clean_json(value: Any, resources: Any) -> Any:
        cleaned = clean(value, resources)
        return [each for each in cleaned if each is not None] if isinstance(cleaned, list) else cleaned

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "clean_json", clean_json)
        for kind, make in MISSING_IN_MOTO.items():
            patch.setitem(parsing.get_model_map(), kind, _make_model(kind, make))
        yield


@dataclass(frozen=True, slots=True)
class Stack:
    name: str
    outputs: dict[str, str]
    resources: dict[str, str]  # physical IDs by logical ID

    @classmethod
    def deploy(cls, name: str, path: Any, **parameters: str) -> Stack:
        parameters = {"AlarmTopicArn": ALARM_TOPIC, **parameters}
        cloudformation = operator("cloudformation")
        with whole_cloudformation():
            cloudformation.create_stack(
                StackName=name,
                TemplateBody=json.dumps(translate(path, parameters)),
                Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
                Capabilities=["CAPABILITY_IAM"],
            )
        (made,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        assert made["StackStatus"] == "CREATE_COMPLETE", made
        resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
        for mapping in operator("lambda").list_event_source_mappings()["EventSourceMappings"]:
            # moto would poll the queue, and run functions in Docker. Here `poll` does it.
            operator("lambda").update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
        return cls(
            name,
            {output["OutputKey"]: output["OutputValue"] for output in made.get("Outputs", [])},
            {
                each["LogicalResourceId"]: each["PhysicalResourceId"]
                for each in resources
                if len(each.keys() & IDS) == len(IDS)
            },
        )

    def queue(self, output: str = "QueueUrl") -> dict[str, str]:
        url = self.outputs[output]
        return dict(operator("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"])

    def function(self, logical_id: str = "Function") -> dict[str, Any]:
        return dict(operator("lambda").get_function_configuration(FunctionName=self.resources[logical_id]))

    @property
    def mapping(self) -> dict[str, Any]:
        mappings = operator("lambda").list_event_source_mappings()["EventSourceMappings"]
        (mapping,) = [each for each in mappings if self.resources["Function"] in each["FunctionArn"]]
        return dict(mapping)

    @property
    def container(self) -> dict[str, Any]:
        arn = self.resources["TaskDefinition"]
        definition = operator("ecs").describe_task_definition(taskDefinition=arn)["taskDefinition"]
        (container,) = definition["containerDefinitions"]
        return dict(container)

    def alarms(self) -> dict[str, dict[str, Any]]:
        found = operator("cloudwatch").describe_alarms(AlarmNamePrefix=f"{self.name}-")["MetricAlarms"]
        return {alarm["AlarmName"].removeprefix(f"{self.name}-"): alarm for alarm in found}

    def filter(self) -> dict[str, Any]:
        (found,) = operator("logs").describe_metric_filters(filterNamePrefix=f"{self.name}-Unsettled")["metricFilters"]
        return dict(found)


# ---------------------------------------------------------------- permissions

Grant: TypeAlias = tuple[str, str]  # an action and a resource


def grants_of(role: str) -> set[Grant]:
    """Return what a role's policies allow."""
    iam = operator("iam")
    assert iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"] == []
    names = iam.list_role_policies(RoleName=role)["PolicyNames"]
    # As moto's CloudFormation stores them: the text of a Python value.
    documents = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
    statements = [statement for document in documents for statement in literal_eval(document)["Statement"]]
    assert {statement["Effect"] for statement in statements} == {"Allow"}
    return {
        (action, resource)
        for statement in statements
        for action in _list(statement["Action"])
        for resource in _list(statement["Resource"])
    }


def _list(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


@dataclass(slots=True)
class Wire:
    """The calls of the deployed code, as the grants that they need."""

    used: set[Grant] = field(default_factory=set)

    def note(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        service = model.service_model.service_name
        self.used.add((f"{service}:{model.name.removesuffix('Batch')}", _find_resource(service, params)))


def _find_resource(service: str, params: Mapping[str, Any]) -> str:
    match service:
        case "dynamodb":
            index = f"/index/{params['IndexName']}" if "IndexName" in params else ""
            return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{params['TableName']}{index}"
        case "sqs":
            return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{params['QueueUrl'].rpartition('/')[2]}"
        case "sns":
            return str(params["TopicArn"])
        case _:
            return "unknown"


@contextmanager
def recorded(environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """Record the calls of code that gets its clients from boto3's default session, in the environment of its deployment."""
    wire = Wire()
    session = boto3.Session(region_name=REGION)
    session.events.register("provide-client-params", wire.note)
    with monkeypatch.context() as patch:
        patch.setattr(boto3, "DEFAULT_SESSION", session)
        for name, value in environment.items():
            patch.setenv(name, value)
        yield wire


@contextmanager
def running(stack: Stack, monkeypatch: pytest.MonkeyPatch, logical_id: str = "Function") -> Iterator[tuple[Any, Wire]]:
    """Import the handler that a function names, as Lambda would, in its environment."""
    function = stack.function(logical_id)
    module, _, name = function["Handler"].rpartition(".")
    environment = {**function["Environment"]["Variables"], "AWS_LAMBDA_FUNCTION_NAME": function["FunctionName"]}
    with recorded(environment, monkeypatch) as wire:
        sys.modules.pop(module, None)  # a cold start
        yield getattr(importlib.import_module(module), name), wire
        sys.modules.pop(module, None)


# ---------------------------------------------------------------- driven


def send(stack: Stack, body: str, *, group: str = "any", deduplication: str = "") -> None:
    url = stack.outputs["QueueUrl"]
    fifo = {"MessageGroupId": group, "MessageDeduplicationId": deduplication or body}
    operator("sqs").send_message(QueueUrl=url, MessageBody=body, **(fifo if url.endswith(".fifo") else {}))


def poll(stack: Stack, handler: Any, context: Any = None) -> int:
    """Do one turn of what Lambda does with a queue: receive a batch, invoke, and delete what the response doesn't return.

    Failed messages are redelivered at once, rather than when their visibility timeout ends. Return the number of messages.
    """
    sqs, mapping, url = operator("sqs"), stack.mapping, stack.outputs["QueueUrl"]
    wanted = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=mapping["BatchSize"], **wanted).get("Messages", [])
    if not messages:
        return 0
    event = {"Records": [make_lambda_record(message, mapping["EventSourceArn"]) for message in messages]}
    answer = json.loads(json.dumps(handler(json.loads(json.dumps(event)), context)))
    failed_ids = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    for message in messages:
        settle = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
        if message["MessageId"] in failed_ids:
            sqs.change_message_visibility(**settle, VisibilityTimeout=0)
        else:
            sqs.delete_message(**settle)
    return len(messages)


def bodies_left(url: str) -> list[str]:
    messages = operator("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
    return sorted(message["Body"] for message in messages)


def subscribe(topic_arn: str) -> str:
    """Return the URL of a FIFO queue that gets what is published to the topic."""
    sqs = operator("sqs")
    url = str(sqs.create_queue(QueueName="subscriber.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"])
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    raw = {"RawMessageDelivery": "true"}
    operator("sns").subscribe(TopicArn=topic_arn, Protocol="sqs", Endpoint=arn, Attributes=raw)
    return url


def send_events(stack: Stack, events: list[Event]) -> None:
    """Send each delivery as its own message, like a producer's retry that comes too late for SQS to notice."""
    for position, event in enumerate(events):
        send(stack, as_json(event), group=message_of(event).source, deduplication=str(position))


def as_json(event: Event) -> str:
    """Return the event as the two services publish it."""
    return json.dumps({"type": type(event).__name__, **dict(_camel(asdict(event)))})


def _camel(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        start, *words = name.split("_")
        yield start + "".join(map(str.title, words)), value.isoformat() if isinstance(value, datetime) else value
