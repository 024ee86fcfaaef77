"""infra/worker.yaml, deployed on moto: the containers' commands run as the task definitions have them, with the roles of their tasks."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from moto import mock_aws

from onewrite import LedgerMismatch
from onewrite.core.features.pending import BrokenOutbox
from onewrite.operate import main
from onewrite.outbox import SweepReport
from onewrite.outbox.metrics import emf
from onewrite.testing.servers.process import find_free_port
from tests.engines.stores import create_table_with_outbox
from tests.support import deployment
from tests.support.alarms import LONG, UNSETTLED, Metric, alarms_that_ring, measured_by_emf, metric
from tests.support.deployment import ACCOUNT, FUNCTION, REGION, WORKER, Stack, Wire, bodies_left, operator, recorded, send

SHOP = "tests.support.shop_on_aws"
# One message at a time, because moto's conditional writes aren't atomic.
UNTIL_EMPTY = ("--stop-when-empty", "--wait", "0", "--in-flight", "1")
LOGGING = {"logs:CreateLogStream", "logs:PutLogEvents"}
FROM_REGISTRY = {
    *("ecr:GetAuthorizationToken", "ecr:BatchCheckLayerAvailability", "ecr:GetDownloadUrlForLayer", "ecr:BatchGetImage")
}
SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:mongodb-AbCdEf"


@pytest.fixture(scope="module", autouse=True)
def aws() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        create_table_with_outbox(operator("dynamodb"), "orders", key="orderId")
        operator("ecs").create_cluster(clusterName="services")
        yield


def deploy(name: str, **parameters: str) -> Stack:
    network = {"Cluster": "services", "SubnetIds": "subnet-1,subnet-2", "SecurityGroupIds": "sg-1"}
    return Stack.deploy(name, WORKER, Image="shop:1", **network, **parameters)


@pytest.fixture(scope="module")
def queue(aws: None) -> Stack:
    return Stack.deploy("payments", FUNCTION, QueueType="standard", Handler="")


@pytest.fixture(scope="module")
def worker(queue: Stack) -> Stack:
    return deploy("worker", Module=f"{SHOP}:handler", TableName="orders", QueueArn=queue.outputs["QueueArn"])


@pytest.fixture(scope="module")
def relay(aws: None) -> Stack:
    return deploy("relay", Module=f"{SHOP}:make_relay", TableName="orders")


@contextmanager
def in_container(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], Wire]]:
    """Yield the command of the container in its environment, and the record of its calls."""
    container = stack.container
    assert container["entryPoint"] == ["onewrite"]
    environment = {variable["name"]: variable["value"] for variable in container["environment"]}
    port = str(find_free_port())  # other tests may have a worker
    command = [port if argument == "8080" else argument for argument in container["command"]]
    with recorded(environment, monkeypatch) as wire:
        sys.modules.pop(SHOP, None)
        yield command, wire
        sys.modules.pop(SHOP, None)


def test_worker_of_the_task_definition_processes_the_queue(
    queue: Stack, worker: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid = json.dumps({"id": "pay-1", "order": "o-1", "cents": 250})
    for body in (paid, paid, "no JSON", json.dumps({"id": "pay-2", "unclear": True})):
        send(queue, body)
    with in_container(worker, monkeypatch) as (command, wire):
        assert main([*command, *UNTIL_EMPTY]) == 0
    item = operator("dynamodb").get_item(TableName="orders", Key={"orderId": {"S": "o-1"}})["Item"]
    assert item["cents"] == {"N": "250"}
    assert wire.used == deployment.grants_of(worker.resources["Role"])


def test_relay_of_the_task_definition_publishes_pending_events(
    queue: Stack, worker: Stack, relay: Stack, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    subscriber = deployment.subscribe(relay.outputs["EventsTopicArn"])
    send(queue, json.dumps({"id": "pay-3", "order": "o-3", "cents": 100}))
    with in_container(worker, monkeypatch) as (command, _):
        assert main([*command, *UNTIL_EMPTY]) == 0
    capsys.readouterr()
    with in_container(relay, monkeypatch) as (command, wire):
        assert main([*command, "--once"]) == 0
    events = [json.loads(body) for body in bodies_left(subscriber)]
    assert [event["type"] for event in events if event["data"] == {"order": "o-3"}] == ["OrderPaid"]
    assert wire.used == deployment.grants_of(relay.resources["Role"])

    # The alarms look for what the container has emitted.
    emitted = measured_by_emf(line for line in capsys.readouterr().out.splitlines() if line.startswith('{"_aws"'))
    assert {metric("onewrite", name, FunctionName="relay") for name in ("OldestEvent", "EntitiesBroken")} <= {*emitted}


def test_queue_of_a_worker_has_no_function(queue: Stack) -> None:
    assert queue.alarms().keys() == {"DeadLettersAlarm", "OldestMessageAlarm"}
    assert {"Function", "Role", "Relay"} & queue.resources.keys() == set()


def test_health_check_asks_the_port_of_the_command(worker: Stack) -> None:
    container = worker.container
    port = container["command"][container["command"].index("--health-port") + 1]
    assert f":{port}/health" in container["healthCheck"]["command"][-1]
    drain_seconds = container["command"][container["command"].index("--drain-seconds") + 1]
    assert container["stopTimeout"] > float(drain_seconds)


def test_secret_is_read_by_ecs_and_not_by_the_task(aws: None) -> None:
    stack = deploy("mongodb", Module="shop:handler", SecretArn=SECRET, QueueArn=f"arn:aws:sqs:{REGION}:{ACCOUNT}:stock")
    assert stack.container["secrets"] == [{"name": "MONGODB_URI", "valueFrom": SECRET}]
    start = deployment.grants_of(stack.resources["StartRole"])
    assert {action for action, _ in start} == {*FROM_REGISTRY, *LOGGING, "secretsmanager:GetSecretValue"}
    assert {action.partition(":")[0] for action, _ in deployment.grants_of(stack.resources["Role"])} == {"sqs"}


@pytest.mark.parametrize("role", ["Role", "StartRole"])
def test_role_trusts_only_its_own_account(worker: Stack, role: str) -> None:
    (trusted,) = operator("iam").get_role(RoleName=worker.resources[role])["Role"]["AssumeRolePolicyDocument"]["Statement"]
    assert trusted["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


# ---------------------------------------------------------------- alarms


def measurements(stack: Stack, **changes: list[float | None]) -> dict[Metric, list[float | None]]:
    """Return what AWS measures of a service when all is well, with changes by the metrics' names."""
    service = {"ClusterName": "services", "ServiceName": stack.resources["Service"].rpartition("/")[2]}
    well: dict[Metric, list[float | None]] = {
        metric("AWS/ECS", "CPUUtilization", **service): [1.0] * LONG,
        metric("onewrite", f"Unsettled-{stack.name}"): [None] * LONG,
    }
    return {key: changes.get(key[1].partition("-")[0], values) for key, values in well.items()}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, set()),
        ({"CPUUtilization": [None] * LONG}, {"StoppedAlarm"}),
        ({"Unsettled": [1.0, None] * (LONG // 2)}, {"UnsettledAlarm"}),
        ({"Unsettled": [*[None] * (LONG - 1), 1.0]}, set()),
    ],
)
def test_each_failure_of_a_worker_triggers_only_its_own_alarm(worker: Stack, changes: Any, expected: set[str]) -> None:
    assert alarms_that_ring(worker.alarms(), measurements(worker, **changes)) == expected


def test_worker_lines_are_counted_by_the_tried_filter(worker: Stack) -> None:
    assert worker.filter()["filterPattern"] == UNSETTLED  # tests/sqs tries it on the worker's log lines


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (SweepReport(), set()),
        (SweepReport(pending=1, oldest=900.1), {"OldestEventAlarm"}),
        (SweepReport(broken=[BrokenOutbox({"id": "o-1"}, LedgerMismatch("another writer"))]), {"BrokenAlarm"}),
        (None, {"OldestEventAlarm"}),  # it doesn't run
    ],
)
def test_relay_metrics_trigger_the_relay_alarms(relay: Stack, report: SweepReport | None, expected: set[str]) -> None:
    lines: list[str] = []
    if report is not None:
        emf(function="relay", write=lines.append)(report)
    assert alarms_that_ring(relay.alarms(), {**measurements(relay), **measured_by_emf(lines)}) == expected
