"""The Terraform module and the stacks that use it: the real program and the real AWS provider apply them, to moto, and get
what the SAM templates give."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from moto.server import ThreadedMotoServer

from order_history import feed
from tests.support import deployment as deployed
from tests.support.deployment import REGION, ROOT, Deployment, sdk
from tests.support.terraform import Terraform

# moto's CloudFormation knows neither of these, and passes over them.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Tried to parse AWS..CloudWatch..Alarm:UserWarning", "ignore:Tried to parse AWS..SQS..QueuePolicy:UserWarning"
)

ACCOUNT = "123456789012"
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
  fifo_high_throughput        = true
  content_based_deduplication = true
  event_rule_arns             = ["RULE"]
  sns_topic_arns              = ["TOPIC.fifo"]
  batch_size                  = 4
  maximum_concurrency         = 7
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

output "deployed" {
  value = {
    fifo     = merge(module.orders["fifo"].feed, { table_name = module.orders["fifo"].table_name })
    standard = merge(module.orders["standard"].feed, { table_name = module.orders["standard"].table_name })
    mongodb  = module.mongodb.stock
    stream   = module.stream.meters
    queue    = module.queue
    batches  = module.standard
  }
}

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
}
KINDS = ["fifo", "standard", "mongodb", "stream", "queue", "batches"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("package") / "function.zip"
    deployed.make_package("--output", target)
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
    return {"vpc_id": vpc, "subnet_ids": json.dumps([subnet])}


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


@pytest.fixture(scope="module")
def descriptions(stacks: dict[str, Deployment]) -> dict[str, dict[str, Any]]:
    return {name: comparable(deployed.described(stack)) for name, stack in stacks.items()}


@pytest.fixture(scope="module")
def sam(package: Path, stacks: object, descriptions: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What the SAM templates give for the same. In the same moto: in one process it has one state."""
    deployed.upload(package)
    parameters = parameters_of(descriptions)
    made = {name: deployed.deploy_stack(f"sam-{name}", **given) for name, given in parameters.items()}
    for kind, fifo in {"fifo": "true", "standard": "false"}.items():
        made[kind] = deployed.deploy_order_history(f"sam-{kind}", Fifo=fifo)
    return {name: comparable(deployed.described(stack)) for name, stack in made.items()}


def parameters_of(descriptions: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    subnets, groups = descriptions["mongodb"]["function"]["network"]
    (secret,) = [resource for _, action, resource in descriptions["mongodb"]["grants"] if action.startswith("secrets")]
    source = descriptions["stream"]["event source"]["EventSourceArn"]
    stream_table = sdk.client("dynamodb").describe_table(TableName="meters")["Table"]["TableArn"]
    return {
        "mongodb": {"Handler": "stock.handler", "SecretArn": secret, "SubnetIds": subnets[0], "SecurityGroupIds": groups[0]},
        "stream": {"Handler": "meters.handler", "StreamArn": source, "TableArn": stream_table, "BatchSize": "100"},
        "queue": {
            "Handler": "shop.handler",
            "FunctionTimeout": "60",
            "TableArn": TABLE,
            "TableActions": "dynamodb:UpdateItem",
            "IndexActions": "dynamodb:Query",
            "PermissionsBoundary": BOUNDARY,
            "Layers": LAYER,
            "ReservedConcurrency": "20",
            "Tracing": "true",
            "KmsKeyArn": KEY,
            "Fifo": "true",
            "FifoHighThroughput": "true",
            "ContentBasedDeduplication": "true",
            "BatchSize": "4",
            "MaximumConcurrency": "7",
            "MaxReceiveCount": "3",
            "MessageRetentionSeconds": "86400",
        },
        "batches": {
            "Handler": "shop.handler",
            "BatchSize": "1000",
            "BatchWindowSeconds": "300",
            "DeadLetterRetentionSeconds": "604800",
        },
    }


def comparable(description: dict[str, Any]) -> dict[str, Any]:
    """Without what a template takes as no parameter: the environment, and further rights."""
    description["function"].pop("environment")
    description["grants"] = {grant for grant in description["grants"] if grant[1] != "sns:Publish"}
    return description


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_module_and_the_stacks_are_formatted_and_valid(terraform: Terraform) -> None:
    formatted = terraform("fmt", "-check", "-recursive", "-diff", str(ROOT / "infra"))
    assert (formatted.stdout, formatted.returncode) == ("", 0)
    validated = json.loads(terraform("validate", "-json").stdout)
    assert (validated["valid"], validated["diagnostics"]) == (True, [])


def test_it_deploys_what_the_template_deploys(
    descriptions: dict[str, dict[str, Any]], sam: dict[str, dict[str, Any]], kind: str
) -> None:
    assert descriptions[kind] == sam[kind]
