"""What infra/ deploys, as the tests see it: read back, and driven as Lambda would drive it."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import boto3
import pytest
from moto.sqs.models import Queue

from onewrite.aws_lambda.sources import make_lambda_record
from order_history import OrderHistory, feed
from order_history.__main__ import deliveries
from order_history.events import Event, message_of
from tests.support.packages import ROOT

TERRAFORM = ROOT / "infra" / "terraform"
REGION = "eu-west-1"

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


@contextmanager
def moto_tells_who_may_use_dead_letters() -> Iterator[None]:
    """moto keeps a queue's RedriveAllowPolicy and does not tell it, and Terraform would wait for it in vain."""
    moto_attributes: Any = vars(Queue)["attributes"]

    def attributes(queue: Any) -> dict[str, Any]:
        answer: dict[str, Any] = moto_attributes.fget(queue)
        policy = getattr(queue, "redrive_allow_policy", None)
        return answer if policy is None else {**answer, "RedriveAllowPolicy": policy}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queue, "attributes", property(attributes))
        yield


def take_over(deployment: Deployment) -> None:
    """moto polls the queue by itself, and runs functions in Docker. Here `poll` does it."""
    sdk.client("lambda").update_event_source_mapping(UUID=event_source(deployment)["UUID"], Enabled=False)


# ---------------------------------------------------------------- read back


def queue_attributes(url: str) -> dict[str, str]:
    attributes: dict[str, str] = sdk.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return attributes


def event_source(deployment: Deployment) -> dict[str, Any]:
    """The mapping that feeds the function, or an alias of it."""
    mappings = sdk.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    (mapping,) = [each for each in mappings if each["FunctionArn"].split(":")[6] == deployment.function_name]
    return dict(mapping)


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
    return {
        (statement["Effect"], action, resource)
        for document in documents
        for statement in document["Statement"]
        for action in _list(statement["Action"])
        for resource in _list(statement["Resource"])
    }


def senders(policy: str | None) -> set[tuple[str, str, str]]:
    """Who may send to a queue by its policy, and on which conditions."""
    statements = [] if policy is None else json.loads(policy)["Statement"]
    statements = [statement for statement in statements if statement["Effect"] == "Allow"]
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


# ---------------------------------------------------------------- driven


def in_its_function(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The handler that the function names, in the environment that the function has."""
    configuration = function(deployment)
    for name, value in configuration["Environment"]["Variables"].items():
        monkeypatch.setenv(name, value)
    feed.history.cache_clear()
    module, _, name = configuration["Handler"].rpartition(".")
    return getattr(importlib.import_module(module), name)


def loaded(path: Path) -> ModuleType:
    """A module of an example, as Lambda has it: by itself, at the top of the package."""
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


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
    event = {"Records": [make_lambda_record(message, mapping["EventSourceArn"]) for message in messages]}
    answer = json.loads(json.dumps(handler(json.loads(json.dumps(event)), None)))
    failed_ids = {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    for message in messages:
        settle = {"QueueUrl": deployment.queue_url, "ReceiptHandle": message["ReceiptHandle"]}
        if message["MessageId"] in failed_ids:
            sqs.change_message_visibility(**settle, VisibilityTimeout=0)
        else:
            sqs.delete_message(**settle)
    return len(messages)


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
