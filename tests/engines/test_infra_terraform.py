"""The Terraform module: the real program and the real AWS provider apply it, to moto, and get what the SAM template gives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws
from moto.server import ThreadedMotoServer

from order_history import feed
from tests.support import deployment as deployed
from tests.support.deployment import REGION, TERRAFORM, Deployment, sdk

# moto's CloudFormation knows no alarms, and passes over them.
pytestmark = pytest.mark.filterwarnings("ignore:Tried to parse AWS..CloudWatch..Alarm:UserWarning")

# Where a machine that does not reach the registry keeps providers, as `terraform providers mirror` writes them.
MIRROR = "ONEWRITE_TERRAFORM_MIRROR"
HOMES_OF_MIRRORS = (
    "/opt",
    "/usr/share",
    "/usr/local/share",
    "/usr/lib",
    "/usr/local/lib",
    "/var/lib",
    "~",
    "~/.terraform.d",
    "~/.local/share",
)
PROGRAM_MISSING = "terraform is not on PATH: https://developer.hashicorp.com/terraform/install"
PROVIDER_MISSING = (
    "terraform finds no AWS provider: let it reach registry.terraform.io, or set ONEWRITE_TERRAFORM_MIRROR to a folder "
    "that `terraform providers mirror` has filled. It said: "
)
TOPIC = f"arn:aws:sns:{REGION}:123456789012:alarms"
ROOT_MODULE = """
variable "package" {}
variable "concurrency" { default = 7 }
variable "batch_size" { default = 4 }
variable "function_timeout" { default = 60 }

module "shop" {
  source   = "./module"
  for_each = { fifo = true, standard = false }

  name                = "shop-${each.key}"
  fifo                = each.value
  package             = var.package
  maximum_concurrency = var.concurrency
  batch_size          = var.batch_size
  function_timeout    = var.function_timeout
  max_receive_count   = 3
  alarm_topic_arns    = ["TOPIC"]
}

output "shops" { value = module.shop }
"""


@dataclass(frozen=True, slots=True)
class Terraform:
    folder: Path
    environment: dict[str, str]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = ["terraform", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=False, timeout=300
        )


@pytest.fixture(scope="module")
def sam(package: Path) -> dict[str, dict[str, Any]]:
    """What the SAM template gives for the same parameters."""
    same = {"MaximumConcurrency": "7", "BatchSize": "4", "FunctionTimeout": "60", "MaxReceiveCount": "3"}
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        deployed.upload(package)
        kinds = {"fifo": "true", "standard": "false"}
        return {kind: deployed.described(deployed.deploy_stack(kind, Fifo=fifo, **same)) for kind, fifo in kinds.items()}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return deployed.make_package(tmp_path_factory.mktemp("package") / "order_history.zip")


@pytest.fixture(scope="module")
def aws(sam: object) -> Iterator[None]:
    """After the stacks: in one process moto has one state, and `mock_aws` clears it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        patch.setenv("AWS_DEFAULT_REGION", REGION)
        patch.setenv("AWS_ACCESS_KEY_ID", "dummy")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "dummy")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        yield
    server.stop()
    feed.history.cache_clear()


def mirrors() -> list[Path]:
    """Folders with the AWS provider in them: the one that is named, the cache of providers, and where packages put them."""
    named = [Path(os.environ[name]) for name in (MIRROR, "TF_PLUGIN_CACHE_DIR") if name in os.environ]
    homes = [Path(home).expanduser() for home in HOMES_OF_MIRRORS]
    found = [folder.parents[2] for home in homes for folder in sorted(home.glob("*/registry.terraform.io/hashicorp/aws"))]
    return [*named, *found]


def install_provider(terraform: Terraform) -> None:
    init = ("init", "-input=false", "-no-color")
    # First as the machine is configured. A mirror leaves nothing else to look into.
    for source in ([], *[[f"-plugin-dir={mirror}"] for mirror in mirrors()]):
        tried = terraform(*init, *source)
        if tried.returncode == 0:
            return
    pytest.skip(PROVIDER_MISSING + tried.stderr.strip())


@pytest.fixture(scope="module")
def terraform(aws: None, package: Path, tmp_path_factory: pytest.TempPathFactory) -> Terraform:
    if shutil.which("terraform") is None:
        pytest.skip(PROGRAM_MISSING)
    folder = tmp_path_factory.mktemp("terraform")
    shutil.copytree(TERRAFORM, folder / "module", ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    (folder / "main.tf").write_text(ROOT_MODULE.replace("TOPIC", TOPIC))
    terraform = Terraform(folder, {**os.environ, "TF_VAR_package": str(package), "CHECKPOINT_DISABLE": "1"})
    install_provider(terraform)
    return terraform


@pytest.fixture(scope="module")
def shops(terraform: Terraform) -> dict[str, Deployment]:
    applied = terraform("apply", "-auto-approve", "-input=false", "-no-color")
    assert applied.returncode == 0, applied.stdout + applied.stderr
    outputs = json.loads(terraform("output", "-json", "shops").stdout)
    found = {kind: Deployment.of(output) for kind, output in outputs.items()}
    for shop in found.values():
        deployed.take_over(shop)
    return found


@pytest.fixture(params=["fifo", "standard"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_module_is_formatted_and_valid(terraform: Terraform) -> None:
    formatted = terraform("fmt", "-check", "-recursive", "-diff", str(TERRAFORM))
    assert (formatted.stdout, formatted.returncode) == ("", 0)
    validated = json.loads(terraform("validate", "-json").stdout)
    assert (validated["valid"], validated["diagnostics"]) == (True, [])


def test_it_deploys_what_the_template_deploys(
    shops: dict[str, Deployment], sam: dict[str, dict[str, Any]], kind: str
) -> None:
    assert deployed.described(shops[kind]) == sam[kind]


def test_its_table_can_be_restored_and_has_a_ttl_and_cannot_be_deleted_by_accident(
    shops: dict[str, Deployment], kind: str
) -> None:
    dynamodb, name = sdk.client("dynamodb"), shops[kind].table_name
    backups = dynamodb.describe_continuous_backups(TableName=name)["ContinuousBackupsDescription"]
    ttl = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
    assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expiresAt"}
    assert deployed.table(shops[kind])["DeletionProtectionEnabled"]


def test_its_alarms_watch_dead_letters_age_errors_and_throttles_and_tell_the_topic(
    shops: dict[str, Deployment], kind: str
) -> None:
    shop = shops[kind]
    queue, dead_letters = (url.rpartition("/")[2] for url in (shop.queue_url, shop.dead_letters_url))
    alarms = sdk.client("cloudwatch").describe_alarms(AlarmNamePrefix=f"shop-{kind}-")["MetricAlarms"]
    watched = {(alarm["MetricName"], *alarm["Dimensions"][0].values(), alarm["Threshold"]) for alarm in alarms}
    assert watched == {
        ("ApproximateNumberOfMessagesVisible", "QueueName", dead_letters, 0.0),
        ("ApproximateAgeOfOldestMessage", "QueueName", queue, 900.0),
        ("Errors", "FunctionName", shop.function_name, 0.0),
        ("Throttles", "FunctionName", shop.function_name, 0.0),
    }
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == [TOPIC] for alarm in alarms)


def test_the_example_runs_through_its_queue_and_table(
    shops: dict[str, Deployment], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployed.run_the_example(shops[kind], monkeypatch)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("concurrency", "1", "2 to 1000"),
        ("batch_size", "11", "1 to 10"),
        ("function_timeout", "901", "1 to 900 seconds"),
    ],
)
def test_what_aws_would_refuse_is_refused_before_anything_is_made(
    terraform: Terraform, variable: str, value: str, message: str
) -> None:
    plan = terraform("plan", "-input=false", "-no-color", "-refresh=false", f"-var={variable}={value}")
    assert plan.returncode == 1
    assert message in plan.stderr
