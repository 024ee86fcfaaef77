"""The Terraform module and the stacks that use it: the real program and the real AWS provider apply them, to moto."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from moto.dynamodb.models import dynamodb_backends
from moto.server import ThreadedMotoServer
from pymongo import MongoClient

from onewrite.core.pending import Broken
from onewrite.errors import LedgerMismatch
from onewrite.outbox import SweepReport
from onewrite.outbox.metrics import emf
from onewrite.testing import lambda_context
from onewrite.testing.schema import table_request
from onewrite.testing.servers.engines import Mongod
from onewrite.testing.servers.process import find_free_port
from order_history import feed  # pyright: ignore[reportMissingImports]  # an example, which pyright does not look into
from order_history.events import OrderCreated  # pyright: ignore[reportMissingImports]
from tests.support import deployment as deployed
from tests.support.alarms import FAILURES, UNSETTLED, alarm_of, counted_lines, measured_by_emf, measurements
from tests.support.deployment import REGION, TERRAFORM, Deployment, sdk
from tests.support.packages import ROOT, make_package
from tests.support.terraform import Terraform

pytestmark = pytest.mark.slow

ACCOUNT = "123456789012"
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
TOPIC = f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms"
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/orders"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1b4e28ba-2fa1-41d2-883f-0016d3cca427"
RULE = f"arn:aws:events:{REGION}:{ACCOUNT}:rule/paid"
BOUNDARY = "arn:aws:iam::aws:policy/PowerUserAccess"
LAYER = f"arn:aws:lambda:{REGION}:{ACCOUNT}:layer:shared:1"
STREAM = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/orders/stream/2026-03-02T12:00:00.000"
IMAGE = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/shop:1"
EXTRA = {"Statement": [{"Effect": "Allow", "Action": "sns:Publish", "Resource": TOPIC}]}
# The stacks of infra/examples, and two functions of the module with all that it can: a queue's and a stream's.
ROOT_MODULE = """
variable "package" {}
variable "vpc_id" {}
variable "stream_arn" {}
variable "cluster_arn" {}
variable "provider_url" {}
variable "security_group_id" {}
variable "subnet_ids" { type = list(string) }

module "orders" {
  source   = "./infra/examples/order-history"
  for_each = { fifo = true, standard = false }

  name             = "orders-${each.key}"
  fifo             = each.value
  package          = var.package
  alarm_topic_arns = ["TOPIC"]
}

module "mongodb" {
  source = "./infra/examples/mongodb"

  package      = var.package
  vpc_id       = var.vpc_id
  subnet_ids   = var.subnet_ids
  mongodb_cidr = "10.0.8.0/24"
}

module "stream" {
  source  = "./infra/examples/stream"
  package = var.package
}

module "relay" {
  source               = "./infra/examples/relay"
  package              = var.package
  sweep_minutes        = 2
  batch_window_seconds = 1
  alarm_topic_arns     = ["TOPIC"]
}

module "relay_to_queue" {
  source           = "./infra/examples/relay"
  name             = "to-queue"
  package          = var.package
  target           = "queue"
  target_queue_arn = module.plain.queue_arn
}

module "application" {
  source = "./infra/examples/application"

  package            = var.package
  image              = "IMAGE"
  provider_url       = var.provider_url
  cluster_arn        = var.cluster_arn
  subnet_ids         = var.subnet_ids
  security_group_ids = [var.security_group_id]

  deletion_protection = false
}

module "plain" {
  source           = "./infra/terraform"
  name             = "plain"
  function         = false
  alarm_topic_arns = ["TOPIC"]
}

module "queue" {
  source = "./infra/terraform"

  name                        = "queue"
  package                     = var.package
  handler                     = "shop.handler"
  function_timeout            = 60
  environment                 = { SHOP = "Ajanta" }
  table_arn                   = "TABLE"
  table_actions               = ["dynamodb:UpdateItem"]
  index_actions               = ["dynamodb:Query"]
  policy                      = jsonencode(EXTRA)
  permissions_boundary        = "BOUNDARY"
  layers                      = ["LAYER"]
  reserved_concurrency        = 20
  tracing                     = true
  kms_key_arn                 = "KEY"
  fifo                        = true
  content_based_deduplication = true
  event_rule_arns             = ["RULE"]
  sns_topic_arns              = ["TOPIC.fifo"]
  batch_size                  = 4
  maximum_concurrency         = 5
  max_receive_count           = 3
  message_retention_seconds   = 86400
  oldest_message_seconds      = 120
  log_retention_days          = 7
}

module "standard" {
  source = "./infra/terraform"

  name                          = "standard"
  package                       = var.package
  handler                       = "shop.handler"
  batch_size                    = 1000
  batch_window_seconds          = 300
  s3_bucket_arns                = ["arn:aws:s3:::uploads"]
  dead_letter_retention_seconds = 604800
  enabled                       = false
}

module "changes" {
  source = "./infra/terraform"

  name                       = "changes"
  package                    = var.package
  handler                    = "shop.handler"
  event_source               = "stream"
  stream_arn                 = var.stream_arn
  stream_kms_key_arn         = "KEY"
  stream_starting_position   = "LATEST"
  stream_maximum_age_seconds = 14400
  stream_maximum_retries     = 5
  stream_bisect              = false
}

output "deployed" {
  value = {
    fifo     = merge(module.orders["fifo"].feed, { table_name = module.orders["fifo"].table_name })
    standard = merge(module.orders["standard"].feed, { table_name = module.orders["standard"].table_name })
    mongodb  = module.mongodb.stock
    stream   = module.stream.meters
    relay    = merge(module.relay.relay, { table_name = module.relay.table_name, topic_arn = module.relay.topic_arn })
    queue    = module.queue
    batches  = module.standard
    changes  = module.changes
  }
}

output "application" { value = module.application }
output "secret_arn" { value = module.mongodb.secret_arn }
output "stream_name" { value = module.stream.stream_name }
"""
WORDS = {
    "TOPIC": TOPIC,
    "TABLE": TABLE,
    "EXTRA": json.dumps(EXTRA),
    "BOUNDARY": BOUNDARY,
    "LAYER": LAYER,
    "KEY": KEY,
    "RULE": RULE,
    "IMAGE": IMAGE,
}
APPLICATION = ROOT / "infra" / "examples" / "application"
RELAY = ROOT / "infra" / "examples" / "relay" / "relay.py"
TAKING = ("ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes")
PROVIDER = find_free_port()
# What Lambda's poller needs, in the function's name.
POLLING = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")
READING_KINESIS = ("DescribeStream", "DescribeStreamSummary", "GetRecords", "GetShardIterator", "ListShards")
READING_A_TABLE = ("DescribeStream", "GetRecords", "GetShardIterator")
JOINING_A_NETWORK = (
    "CreateNetworkInterface",
    "DescribeNetworkInterfaces",
    "DescribeSubnets",
    "DeleteNetworkInterface",
    "AssignPrivateIpAddresses",
    "UnassignPrivateIpAddresses",
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("package") / "function.zip"
    make_package("--output", target)
    return target


@pytest.fixture(scope="module")
def server() -> Iterator[dict[str, str]]:
    """moto's server, and in it what is there before the stacks are made."""
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch, deployed.moto_tells_who_may_use_dead_letters():
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_ACCESS_KEY_ID", "dummy")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "dummy")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield there_before()
    moto.stop()
    feed.history.cache_clear()


def there_before() -> dict[str, str]:
    ec2 = sdk.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.1.0/24")["Subnet"]["SubnetId"]
    sdk.client("lambda").publish_layer_version(LayerName="shared", Content={"ZipFile": b"any"})
    stream = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    request = table_request("changing", "id", StreamSpecification=stream)
    table = sdk.client("dynamodb").create_table(**request)["TableDescription"]
    (group,) = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    cluster = sdk.client("ecs").create_cluster(clusterName="shop")["cluster"]["clusterArn"]
    containers = {
        "cluster_arn": cluster,
        "security_group_id": group["GroupId"],
        "provider_url": f"http://127.0.0.1:{PROVIDER}",
    }
    return {**containers, "vpc_id": vpc, "subnet_ids": json.dumps([subnet]), "stream_arn": table["LatestStreamArn"]}


@pytest.fixture(scope="module")
def terraform(server: dict[str, str], package: Path, tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    folder = tmp_path_factory.mktemp("terraform")
    terraform = Terraform.within(folder)
    shutil.copytree(ROOT / "infra", folder / "infra", ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    folder.joinpath("main.tf").write_text(re.sub("|".join(WORDS), lambda word: WORDS[word[0]], ROOT_MODULE))
    variables = {**server, "package": str(package)}
    terraform.environment.update({f"TF_VAR_{name}": value for name, value in variables.items()})
    terraform.install_provider()
    return terraform


@pytest.fixture(scope="module")
def outputs(terraform: Terraform) -> dict[str, Any]:
    applied = terraform("apply", "-auto-approve", "-input=false", "-no-color", "-parallelism=20")
    assert applied.returncode == 0, applied.stderr
    return {name: output["value"] for name, output in json.loads(terraform("output", "-json").stdout).items()}


@pytest.fixture(scope="module")
def stacks(outputs: dict[str, Any]) -> dict[str, Deployment]:
    found = {name: Deployment.of(output) for name, output in outputs["deployed"].items()}
    for stack in found.values():
        deployed.take_over(stack)
    return found


def test_terraform_files_are_formatted_and_valid(terraform: Terraform) -> None:
    formatted = terraform("fmt", "-check", "-recursive", "-diff", str(ROOT / "infra"))
    assert (formatted.stdout, formatted.returncode) == ("", 0)
    validated = json.loads(terraform("validate", "-json").stdout)
    assert (validated["valid"], validated["diagnostics"]) == (True, [])


# ---------------------------------------------------------------- queues


@pytest.mark.parametrize(("kind", "seconds"), [("fifo", 6 * 30), ("queue", 6 * 60), ("batches", 6 * 30 + 300)])
def test_visibility_timeout_is_six_function_timeouts_plus_the_window(
    stacks: dict[str, Deployment], kind: str, seconds: int
) -> None:
    assert deployed.queue_attributes(stacks[kind].queue_url)["VisibilityTimeout"] == str(seconds)


# ---------------------------------------------------------------- functions


def test_every_mapping_reports_failed_messages(stacks: dict[str, Deployment]) -> None:
    for stack in stacks.values():
        assert deployed.event_source(stack)["FunctionResponseTypes"] == ["ReportBatchItemFailures"]


# ---------------------------------------------------------------- least privilege


def allow(service: str, actions: Iterable[str], *resources: str) -> set[deployed.Grant]:
    return {("Allow", f"{service}:{action}", resource) for action in actions for resource in resources}


def needed_grants(kind: str, outputs: Mapping[str, Any], stack: Deployment) -> set[deployed.Grant]:
    """What the function of this kind needs beside its log."""
    made = outputs["deployed"][kind]
    table = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{stack.table_name}"
    polling = allow("sqs", POLLING, made["queue_arn"])
    letters = allow("sqs", ["SendMessage"], made["dead_letters_arn"])
    stream = deployed.event_source(stack)["EventSourceArn"]
    reading = allow("dynamodb", READING_A_TABLE, stream) | allow("dynamodb", ["ListStreams"], "*")
    match kind:
        case "fifo" | "standard":
            index = allow("dynamodb", ["Query"], table, f"{table}/index/*")
            return polling | allow("dynamodb", ["UpdateItem", "GetItem"], table) | index
        case "mongodb":
            network = allow("ec2", JOINING_A_NETWORK, "*")
            denied = {("Deny", action, resource) for _, action, resource in network}
            return polling | network | denied | allow("secretsmanager", ["GetSecretValue"], outputs["secret_arn"])
        case "stream":
            meters = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/meters"
            return letters | allow("kinesis", READING_KINESIS, stream) | allow("dynamodb", ["UpdateItem"], meters)
        case "relay":
            writing = allow("dynamodb", ["GetItem", "UpdateItem"], table)
            sweeping = allow("dynamodb", ["Scan"], f"{table}/index/pending")
            return letters | reading | writing | sweeping | allow("sns", ["Publish"], stack.topic_arn)
        case "queue":
            writing = allow("dynamodb", ["UpdateItem"], TABLE) | allow("dynamodb", ["Query"], TABLE, f"{TABLE}/index/*")
            traces = allow("xray", ["PutTraceSegments", "PutTelemetryRecords"], "*")
            key = allow("kms", ["Decrypt", "GenerateDataKey"], KEY)
            return polling | writing | traces | key | allow("sns", ["Publish"], TOPIC)
        case "changes":
            return letters | reading | allow("kms", ["Decrypt"], KEY)
        case _:
            return polling


@pytest.mark.parametrize("kind", ["fifo", "standard", "mongodb", "stream", "relay", "queue", "batches", "changes"])
def test_role_has_exactly_the_needed_permissions(stacks: dict[str, Deployment], outputs: dict[str, Any], kind: str) -> None:
    log = f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:/aws/lambda/{stacks[kind].function_name}:*"
    writing_the_log = allow("logs", ["CreateLogStream", "PutLogEvents"], log)
    assert deployed.grants(stacks[kind]) == needed_grants(kind, outputs, stacks[kind]) | writing_the_log


# ---------------------------------------------------------------- the table and the alarms


@pytest.mark.parametrize(
    ("name", "source", "written"),
    [("orders-standard", "queue", ""), ("changes", "stream", "changing"), ("meters", "stream", "meters-readings")],
)
def test_each_failure_triggers_only_its_own_alarm(
    stacks: dict[str, Deployment], name: str, source: str, written: str
) -> None:
    alarms = {found["AlarmName"].removeprefix(f"{name}-"): found for found in alarms_of(name)}
    assert alarms.keys() == {alarm for rings in FAILURES[source].values() for alarm in rings}
    for failure, rings in FAILURES[source].items():
        measured = measurements(failure, name, written)
        assert {each for each, alarm in alarms.items() if alarm_of(alarm).rings(measured)} == rings
    assert ("redrive them" in alarms["dead-letters"]["AlarmDescription"]) == (source == "queue")


@pytest.mark.parametrize("name", ["orders-relay", "shop-billing-relay"])
@pytest.mark.parametrize(
    ("reports", "rings"),
    [
        ([SweepReport()], set()),
        ([SweepReport(pending=1, oldest=900.0)], set()),
        ([SweepReport(pending=1, oldest=900.1)], {"oldest-event"}),
        ([SweepReport(broken=[Broken({"id": "o-1"}, LedgerMismatch("another writer"))])], {"broken"}),
        ([SweepReport(error=OSError("no route"), complete=False)], {"oldest-event"}),
        ([], {"oldest-event"}),  # it does not run
    ],
)
def test_relay_metrics_trigger_the_relay_alarms(
    outputs: object, name: str, reports: list[SweepReport], rings: set[str]
) -> None:
    lines: list[str] = []
    emit = emf(function=name, write=lines.append)
    for report in reports:
        emit(report)
    measured = measured_by_emf(lines)
    alarms = {found["AlarmName"].removeprefix(f"{name}-"): found for found in alarms_of(name)}
    own = {each: alarm for each, alarm in alarms.items() if alarm.get("Namespace") == "onewrite"}
    assert own.keys() == {"oldest-event", "broken"}
    assert {each for each, alarm in own.items() if alarm_of(alarm).rings(measured)} == rings
    assert all(alarm["AlarmActions"] == alarm["OKActions"] for alarm in own.values())


def alarms_of(name: str) -> list[dict[str, Any]]:
    return list(sdk.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"{name}-")["MetricAlarms"])


def resources(module: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from module.get("resources", [])
    for child in module.get("child_modules", []):
        yield from resources(child)


def test_queue_policy_allows_only_the_named_senders(stacks: dict[str, Deployment]) -> None:
    def senders(kind: str) -> set[tuple[str, str, str]]:
        return deployed.senders(deployed.queue_attributes(stacks[kind].queue_url).get("Policy"))

    assert senders("queue") == {
        ("events.amazonaws.com", "ArnEquals aws:SourceArn", RULE),
        ("sns.amazonaws.com", "ArnEquals aws:SourceArn", f"{TOPIC}.fifo"),
    }
    assert senders("batches") == {
        ("s3.amazonaws.com", "ArnEquals aws:SourceArn", "arn:aws:s3:::uploads"),
        ("s3.amazonaws.com", "StringEquals aws:SourceAccount", ACCOUNT),
    }
    assert senders("standard") == set()


def test_queues_refuse_plain_http(stacks: dict[str, Deployment], outputs: dict[str, Any]) -> None:
    stack, stream = stacks["standard"], outputs["deployed"]["stream"]
    for url in (stack.queue_url, stack.dead_letters_url, stream["dead_letters_url"]):
        attributes = deployed.queue_attributes(url)
        (denied,) = [each for each in json.loads(attributes["Policy"])["Statement"] if each["Effect"] == "Deny"]
        assert (denied["Action"], denied["Resource"]) == ("sqs:*", attributes["QueueArn"])
        assert (denied["Principal"], denied["Condition"]) == ("*", {"Bool": {"aws:SecureTransport": "false"}})


def test_roles_trust_only_their_own_account(outputs: dict[str, Any]) -> None:
    names = [output["role_name"] for output in (outputs["deployed"]["queue"], outputs["application"]["billing"])]
    starting = [role["RoleName"] for role in sdk.client("iam").list_roles()["Roles"] if "-start-" in role["RoleName"]]
    assert len(starting) == 2
    for name in (*names, *starting):
        (trusted,) = sdk.client("iam").get_role(RoleName=name)["Role"]["AssumeRolePolicyDocument"]["Statement"]
        assert trusted["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


def test_the_example_runs_through_its_queue_and_table(
    stacks: dict[str, Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind in ("fifo", "standard"):
        deployed.run_the_example(stacks[kind], monkeypatch)


def test_message_that_always_fails_becomes_a_dead_letter(
    stacks: dict[str, Deployment], monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = stacks["standard"]
    handler = deployed.in_its_function(stack, monkeypatch)
    for body in ("no JSON", deployed.as_json(OrderCreated("o-9", 1, NOON, "c-1", "Ajanta", ()))):
        deployed.send(stack, body, group="any", deduplication=body)

    batches = []
    while size := deployed.poll(stack, handler):
        batches.append(size)

    assert batches == [2, 1, 1, 1, 1]
    assert deployed.bodies_left(stack.dead_letters_url) == ["no JSON"]
    assert feed.history().order("o-9") is not None
    sdk.client("sqs").purge_queue(QueueUrl=stack.dead_letters_url)


# ---------------------------------------------------------------- two services, end to end


@dataclass(frozen=True, slots=True)
class Application:
    """What the stack has made, driven as AWS would drive it; the containers' commands are run as they stand in the task definitions."""

    outputs: dict[str, Any]
    uri: str
    folder: Path

    def place(self, order: str, *, id: str) -> None:
        event: dict[str, Any] = {"specversion": "1.0", "id": id, "source": "web", "type": "PlaceOrder"}
        event["data"] = {"orderId": order, "customer": "Ann", "cents": 1250}
        sdk.client("sqs").send_message(QueueUrl=self.outputs["orders"]["queue_url"], MessageBody=json.dumps(event))

    def all_takes_place(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """Everything that waits anywhere, until nothing does. What the relay of the containers prints."""
        printed = ""
        for _ in range(2):
            self.functions(monkeypatch)
            self.work()
            printed += self._container("billing_relay", "--once").stdout
        return printed

    def _poll(self, name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        handler = self._function(name, path, monkeypatch)
        while deployed.poll(Deployment.of(self.outputs[name]), handler):
            pass

    def _function(self, name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
        configuration = deployed.function(Deployment.of(self.outputs[name]))
        for variable, value in configuration["Environment"]["Variables"].items():
            monkeypatch.setenv(variable, value)
        module, _, handler = configuration["Handler"].rpartition(".")
        assert module == path.stem
        return getattr(deployed.loaded(path), handler)

    def container(self, name: str) -> dict[str, Any]:
        arn = self.outputs[name]["task_definition_arn"]
        (found,) = sdk.client("ecs").describe_task_definition(taskDefinition=arn)["taskDefinition"]["containerDefinitions"]
        return dict(found)

    def functions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._poll("orders", APPLICATION / "orders.py", monkeypatch)
        relay = self._function("relay", RELAY, monkeypatch)
        relay({"source": "aws.events"}, lambda_context())
        self._poll("customers", APPLICATION / "customers.py", monkeypatch)

    def work(self) -> str:
        """One run of the worker until its queue has nothing more to give. Its log."""
        return self._container("billing", "--stop-when-empty", "--wait", "0", "--health-port", str(find_free_port())).stderr

    def _container(self, name: str, *more: str) -> subprocess.CompletedProcess[str]:
        container = self.container(name)
        assert container["entryPoint"] == ["onewrite"]
        given = {each["name"]: each["value"] for each in container["environment"]}
        path = os.pathsep.join([str(ROOT / "src"), str(APPLICATION)])
        command = [sys.executable, "-m", "onewrite", *container["command"], *more]
        ran = subprocess.run(
            command,
            env={**os.environ, "PYTHONPATH": path, **given},
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran


@pytest.fixture
def provider() -> Iterator[dict[str, int]]:
    """A provider of payments: which keys it has charged, and how much."""
    charges: dict[str, int] = {}

    class Charging(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            key = str(self.headers["Idempotency-Key"])
            charges.setdefault(key, body["cents"])
            self.send_response(201)
            self.end_headers()
            self.wfile.write(json.dumps({"chargeId": f"ch-{[*charges].index(key)}"}).encode())

        def log_message(self, format: str, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", PROVIDER), Charging) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield charges
        server.shutdown()
        thread.join()


@pytest.fixture
def application(outputs: dict[str, Any], mongod: Mongod, tmp_path: Path) -> Application:
    found: dict[str, Any] = outputs["application"]
    sdk.client("secretsmanager").put_secret_value(SecretId=found["secret_arn"], SecretString=mongod.uri)
    for name in ("orders", "customers", "relay"):
        deployed.take_over(Deployment.of(found[name]))
    # moto would run the relay in Docker at each write, also with a mapping that is switched off.
    dynamodb_backends[ACCOUNT][REGION].tables["shop-orders"].lambda_event_source_mappings.clear()
    return Application(found, mongod.uri, tmp_path)


def test_two_services_pay_an_order_once(
    application: Application, provider: dict[str, int], mongo: MongoClient[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    mongo.billing.bills.drop()
    for _ in range(2):  # the second time all is delivered again
        application.place("o-1", id="p-1")
        application.place("o-1", id="p-1")
        printed = application.all_takes_place(monkeypatch)

        order = sdk.resource("dynamodb").Table("shop-orders").get_item(Key={"orderId": "o-1"})["Item"]
        customer = sdk.resource("dynamodb").Table("shop-customers").get_item(Key={"customer": "Ann"})["Item"]
        bill = mongo.billing.bills.find_one({"_id": "o-1"})
        assert (order["status"], order["chargeId"]) == ("PAID", "ch-0")
        assert (customer["orders"], customer["cents"]) == (1, 1250)
        assert bill is not None
        assert bill["chargeId"] == "ch-0"
        assert [*provider.values()] == [1250]
        for name in ("orders", "customers", "billing_queue"):
            assert deployed.bodies_left(application.outputs[name]["queue_url"]) == []
            assert deployed.bodies_left(application.outputs[name]["dead_letters_url"]) == []
        assert '"FunctionName":"shop-billing-relay"' in printed  # the dimension of the relay's alarms
    assert "ow_due_1" in mongo.billing.bills.index_information()


def test_failed_provider_is_logged_in_the_form_the_alarm_counts(
    application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    (counted,) = sdk.client("logs").describe_metric_filters(logGroupName="/ecs/shop-billing")["metricFilters"]
    (made,) = counted["metricTransformations"]
    assert (counted["filterPattern"], made["metricValue"]) == UNSETTLED
    (alarm,) = [each for each in alarms_of("shop-billing") if each["AlarmName"] == "shop-billing-unsettled"]
    assert alarm["MetricName"] == made["metricName"]

    application.place("o-2", id="p-2")
    application.functions(monkeypatch)
    assert counted_lines(UNSETTLED[0], application.work().splitlines()) > 0  # nobody answers at the provider's address

    queue = application.outputs["billing_queue"]["queue_url"]
    assert deployed.queue_attributes(queue)["ApproximateNumberOfMessagesNotVisible"] == "1"
    sdk.client("sqs").purge_queue(QueueUrl=queue)


def test_containers_have_needed_permissions_and_health_checks(application: Application) -> None:
    queue, secret = application.outputs["billing_queue"]["queue_arn"], application.outputs["secret_arn"]
    takes = {("Allow", f"sqs:{action}", queue) for action in TAKING}
    reads = ("Allow", "secretsmanager:GetSecretValue", secret)
    assert deployed.grants_of(application.outputs["billing"]["role_name"]) == {*takes, reads}
    sends = ("Allow", "sqs:SendMessage", application.outputs["orders"]["queue_arn"])
    assert deployed.grants_of(application.outputs["billing_relay"]["role_name"]) == {sends, reads}
    containers = [application.container(name) for name in ("billing", "billing_relay")]
    assert [(each["stopTimeout"], "healthCheck" in each) for each in containers] == [(30, True), (30, False)]
    (stopped,) = [each for each in alarms_of("shop-billing") if each["AlarmName"] == "shop-billing-stopped"]
    assert (stopped["MetricName"], stopped["TreatMissingData"]) == ("CPUUtilization", "breaching")
    assert {each["MetricName"] for each in alarms_of("shop-billing-relay")} == {
        "CPUUtilization",
        "OldestEvent",
        "EntitiesBroken",
    }


PLANNED = """
module "image" {
  source = "./module"

  name         = "image"
  image_uri    = "IMAGE"
  handler      = "shop.handler"
  event_source = "stream"
  stream_arn   = "STREAM"
}

module "unknown" {
  source = "./module"

  name               = "unknown"
  package            = "code.zip"
  handler            = "shop.handler"
  event_source       = "stream"
  stream_arn         = terraform_data.later.output.arn
  stream_kms_key_arn = terraform_data.later.output.arn
  table_arn          = terraform_data.later.output.arn
  kms_key_arn        = terraform_data.later.output.arn
  policy             = jsonencode({ Statement = [terraform_data.later.output.arn] })
  subnet_ids         = [terraform_data.later.output.arn]
  security_group_ids = [terraform_data.later.output.arn]
  secret_arns        = { SECRET = terraform_data.later.output.arn }
  alarm_topic_arns   = [terraform_data.later.output.arn]
}

module "unknown_senders" {
  source = "./module"

  name            = "senders"
  package         = "code.zip"
  handler         = "shop.handler"
  sns_topic_arns  = [terraform_data.later.output.arn]
  event_rule_arns = [terraform_data.later.output.arn]
  s3_bucket_arns  = [terraform_data.later.output.arn]
}

resource "terraform_data" "later" {
  input = { arn = timestamp() }
}
"""


def test_plan_succeeds_if_image_does_not_exist_yet(server: object, tmp_path: Path) -> None:
    # The plan alone: moto asks for the image itself, which is nowhere.
    terraform = Terraform.within(tmp_path)
    shutil.copytree(TERRAFORM, tmp_path / "module", ignore=shutil.ignore_patterns(".terraform*"))
    tmp_path.joinpath("main.tf").write_text(PLANNED.replace("IMAGE", IMAGE).replace("STREAM", STREAM))
    tmp_path.joinpath("code.zip").write_bytes(b"any")
    terraform.install_provider()
    planned = terraform("plan", "-input=false", "-no-color", "-out=plan")
    assert planned.returncode == 0, planned.stderr

    shown = json.loads(terraform("show", "-json", "plan").stdout)["planned_values"]["root_module"]
    found = {each["address"]: each.get("values", {}) for each in resources(shown)}
    function = found["module.image.aws_lambda_function.this[0]"]
    assert (function["package_type"], function["image_uri"], function["image_config"][0]["command"]) == (
        "Image",
        IMAGE,
        ["shop.handler"],
    )
    assert (function["handler"], function["runtime"]) == (None, None)


def test_stacks_can_be_applied_again_after_a_destroy(terraform: Terraform, outputs: dict[str, Any], stacks: object) -> None:
    targets = ["-target=module.mongodb", "-target=module.application"]
    for act in ("destroy", "apply"):
        done = terraform(act, "-auto-approve", "-input=false", "-no-color", "-parallelism=20", *targets)
        assert done.returncode == 0, done.stderr
    secrets = sdk.client("secretsmanager").list_secrets(IncludePlannedDeletion=True)["SecretList"]
    assert len({secret["ARN"] for secret in secrets}) == 4  # the old ones can still be had back
