"""The Terraform module's variables: what AWS would refuse, or what would do harm, is refused before anything is made.

The variables are in files of their own, so terraform checks them with no provider; and it checks all cases in one plan.
"""

from __future__ import annotations

import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.deployment import TERRAFORM
from tests.support.packages import ROOT
from tests.support.terraform import Terraform

pytestmark = pytest.mark.slow

FILES = sorted(TERRAFORM.glob("variables-*.tf"))
REQUIRED: dict[str, Any] = {"name": "shop", "package": "code.zip", "handler": "shop.handler"}
ACCOUNT = "123456789012"
STREAM = f"arn:aws:kinesis:eu-west-1:{ACCOUNT}:stream/readings"
TABLE_STREAM = f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/orders/stream/2026-03-02T12:00:00.000"
TABLE = f"arn:aws:dynamodb:eu-west-1:{ACCOUNT}:table/orders"
KEY = f"arn:aws:kms:eu-west-1:{ACCOUNT}:key/1b4e28ba-2fa1-41d2-883f-0016d3cca427"
TOPIC = f"arn:aws:sns:eu-west-1:{ACCOUNT}:shop"
RULE = f"arn:aws:events:eu-west-1:{ACCOUNT}:rule/bus/paid"
BUCKET = "arn:aws:s3:::shop-uploads"
SECRET = f"arn:aws:secretsmanager:eu-west-1:{ACCOUNT}:secret:mongodb-a1B2c3"
IMAGE = f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/shop:1"
LAYER = f"arn:aws:lambda:eu-west-1:{ACCOUNT}:layer:shared:"
NO_CODE = {"package": None, "handler": None}
FROM_STREAM = {"event_source": "stream", "stream_arn": STREAM}

GOOD: list[dict[str, Any]] = [
    {},
    {"name": "a" * 50},
    {**NO_CODE, "image_uri": IMAGE},
    {"package": None, "image_uri": IMAGE.replace(":1", "@sha256:" + 64 * "a")},
    {"runtime": "python3.11", "architecture": "x86_64", "memory_size": 10240, "function_timeout": 900},
    {"environment": {"TABLE": "orders"}, "secret_arns": {"MONGODB_SECRET_ARN": SECRET}},
    {"table_arn": TABLE, "table_actions": ["dynamodb:UpdateItem"], "index_actions": ["dynamodb:Query", "dynamodb:Scan"]},
    {"table_arn": TABLE.replace("arn:aws:", "arn:aws-cn:").replace("eu-west-1", "cn-north-1")},
    {"policy": '{"Statement": []}', "permissions_boundary": "arn:aws:iam::aws:policy/PowerUserAccess"},
    {"permissions_boundary": f"arn:aws:iam::{ACCOUNT}:policy/teams/bounds", "kms_key_arn": KEY},
    {"layers": [f"{LAYER}{version}" for version in range(1, 6)]},
    {"reserved_concurrency": 10},
    {"reserved_concurrency": 1, **FROM_STREAM},
    {"subnet_ids": ["subnet-1a", "subnet-2b"], "security_group_ids": ["sg-1a"]},
    {"batch_size": 10000, "batch_window_seconds": 300},
    {"batch_size": 10000, **FROM_STREAM},
    {"fifo": True, "fifo_high_throughput": True, "content_based_deduplication": True, "event_rule_arns": [RULE]},
    {"fifo": True, "sns_topic_arns": [f"{TOPIC}.fifo"]},
    {"sns_topic_arns": [TOPIC, f"{TOPIC}.fifo"], "event_rule_arns": [RULE], "s3_bucket_arns": [BUCKET]},
    {"maximum_concurrency": 1000, "max_receive_count": 1000, "reserved_concurrency": None},
    {"message_retention_seconds": 1209600, "fifo": True, "dead_letter_retention_seconds": 1209600},
    {"message_retention_seconds": 181, "dead_letter_retention_seconds": 182, "oldest_message_seconds": 60},
    {"event_source": "stream", "stream_arn": TABLE_STREAM, "stream_starting_position": "LATEST", "batch_size": 100},
    {**FROM_STREAM, "stream_starting_position": "AT_TIMESTAMP", "stream_starting_timestamp": "2026-03-02T12:00:00Z"},
    {**FROM_STREAM, "stream_maximum_age_seconds": -1, "stream_maximum_retries": 0, "oldest_message_seconds": 86400},
    {**FROM_STREAM, "stream_maximum_age_seconds": 604800, "stream_maximum_retries": 10000, "stream_kms_key_arn": KEY},
    {**FROM_STREAM, "stream_bisect": False, "stream_batches_per_shard": 10, "enabled": False, "tracing": True},
    {"alarm_topic_arns": [TOPIC], "log_retention_days": 0},
    {"log_retention_days": 3653},
]
# What is given, and what the refusal says. Its first word is the variable.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name: letters"),
    ({"name": "a" * 51}, "name: letters"),
    ({"name": "a b"}, "name: letters"),
    ({"name": None}, "name: null"),
    ({"package": None}, "package: give either"),
    ({"package": "code.zip", "image_uri": IMAGE}, "package: give either"),
    ({"package": "missing.zip"}, "package: there is no such file"),
    ({"package": None, "image_uri": "docker.io/shop:1"}, "image_uri: an image in ECR"),
    ({"package": None, "image_uri": IMAGE.removesuffix(":1")}, "image_uri: an image in ECR"),
    ({"handler": None}, "handler: module.name"),
    ({"handler": "handler"}, "handler: module.name"),
    ({"handler": "shop.feed:handler"}, "handler: module.name"),
    ({"handler": "shop/feed.handler"}, "handler: module.name"),
    ({"runtime": "python3.10"}, "runtime: python3.11"),
    ({"runtime": "nodejs22.x"}, "runtime: python3.11"),
    ({"architecture": "aarch64"}, "architecture: arm64"),
    ({"memory_size": 127}, "memory_size: Lambda allows"),
    ({"memory_size": 10241}, "memory_size: Lambda allows"),
    ({"memory_size": 512.5}, "memory_size: Lambda allows"),
    ({"function_timeout": 0}, "function_timeout: Lambda allows"),
    ({"function_timeout": 901}, "function_timeout: Lambda allows"),
    ({"function_timeout": 0.5}, "function_timeout: Lambda allows"),
    ({"environment": {"1A": "x"}}, "environment: a name begins"),
    ({"environment": {"A-B": "x"}}, "environment: a name begins"),
    ({"environment": {"AWS_REGION": "eu-west-1"}}, "environment: Lambda sets"),
    ({"secret_arns": {"A-B": SECRET}}, "secret_arns: the names"),
    ({"environment": {"MONGODB": "x"}, "secret_arns": {"MONGODB": SECRET}}, "secret_arns: the names"),
    ({"secret_arns": {"MONGODB": "mongodb-a1B2c3"}}, "secret_arns: the whole ARN"),
    ({"secret_arns": {"MONGODB": SECRET.removesuffix("-a1B2c3")}}, "secret_arns: the whole ARN"),
    ({"environment": {"LONG": "x" * 4096}, "secret_arns": {}}, "secret_arns: with environment they have more than"),
    ({"table_arn": "orders"}, "table_arn: arn:aws:dynamodb"),
    ({"table_arn": f"{TABLE}/index/by-date"}, "table_arn: arn:aws:dynamodb"),
    ({"table_arn": TABLE_STREAM}, "table_arn: arn:aws:dynamodb"),
    ({"table_actions": []}, "table_actions: at least one"),
    ({"table_actions": ["dynamodb:*"]}, "table_actions: at least one"),
    ({"table_actions": ["UpdateItem"]}, "table_actions: at least one"),
    ({"table_arn": TABLE, "index_actions": ["dynamodb:GetItem"]}, "index_actions: dynamodb:Query"),
    ({"index_actions": ["dynamodb:Query"]}, "index_actions: give a table_arn"),
    ({"policy": "sns:Publish"}, "policy: the JSON"),
    ({"policy": "{}"}, "policy: the JSON"),
    ({"permissions_boundary": "PowerUserAccess"}, "permissions_boundary: arn:aws:iam"),
    ({"permissions_boundary": f"arn:aws:iam::{ACCOUNT}:role/admin"}, "permissions_boundary: arn:aws:iam"),
    ({"layers": [LAYER.removesuffix(":")]}, "layers: arn:aws:lambda"),
    ({"layers": [f"{LAYER}{version}" for version in range(1, 7)]}, "layers: Lambda allows five"),
    ({"layers": [f"{LAYER}1", f"{LAYER}1"]}, "layers: Lambda allows five"),
    ({"package": None, "image_uri": IMAGE, "layers": [f"{LAYER}1"]}, "layers: an image takes none"),
    ({**FROM_STREAM, "reserved_concurrency": 0}, "reserved_concurrency: 1 or more"),
    ({**FROM_STREAM, "reserved_concurrency": 1.5}, "reserved_concurrency: 1 or more"),
    ({"reserved_concurrency": 9}, "reserved_concurrency: not less than"),
    ({"subnet_ids": ["arn:aws:ec2:eu-west-1:1:subnet/a"], "security_group_ids": ["sg-1"]}, "subnet_ids: subnet-"),
    ({"subnet_ids": ["subnet-1", "subnet-1"], "security_group_ids": ["sg-1"]}, "subnet_ids: Lambda allows 16"),
    ({"subnet_ids": ["subnet-1"]}, "subnet_ids: give subnet_ids and"),
    ({"subnet_ids": [], "security_group_ids": ["sg-1"]}, "subnet_ids: give subnet_ids and"),
    ({"subnet_ids": ["subnet-1"], "security_group_ids": ["default"]}, "security_group_ids: sg-"),
    ({"subnet_ids": ["subnet-1"], "security_group_ids": [f"sg-{n}" for n in range(6)]}, "security_group_ids: Lambda allows"),
    ({"kms_key_arn": "alias/shop"}, "kms_key_arn: arn:aws:kms"),
    ({"kms_key_arn": KEY.replace(":key/", ":alias/")}, "kms_key_arn: arn:aws:kms"),
    ({"event_source": "topic"}, "event_source: queue or stream"),
    ({"batch_size": 0}, "batch_size: Lambda allows"),
    ({"batch_size": 10001, "batch_window_seconds": 1}, "batch_size: Lambda allows"),
    ({"batch_size": 2.5}, "batch_size: Lambda allows"),
    ({"batch_size": 11}, "batch_size: for more than 10 of a queue"),
    ({"batch_size": 11, "fifo": True}, "batch_size: a FIFO queue gives"),
    ({"batch_window_seconds": -1}, "batch_window_seconds: Lambda allows"),
    ({"batch_window_seconds": 301}, "batch_window_seconds: Lambda allows"),
    ({"batch_window_seconds": 1, "fifo": True}, "batch_window_seconds: a FIFO queue"),
    ({**FROM_STREAM, "fifo": True}, "fifo: a stream is none"),
    ({"fifo_high_throughput": True}, "fifo_high_throughput: only with"),
    ({"content_based_deduplication": True}, "content_based_deduplication: only with"),
    ({"maximum_concurrency": 1}, "maximum_concurrency: Lambda allows"),
    ({"maximum_concurrency": 1001}, "maximum_concurrency: Lambda allows"),
    ({"max_receive_count": 0}, "max_receive_count: SQS allows"),
    ({"max_receive_count": 1001}, "max_receive_count: SQS allows"),
    ({"message_retention_seconds": 1209601, "fifo": True}, "message_retention_seconds: SQS allows"),
    ({"message_retention_seconds": 180, "oldest_message_seconds": 60}, "message_retention_seconds: longer than"),
    ({"dead_letter_retention_seconds": 1209601}, "dead_letter_retention_seconds: SQS allows"),
    ({"dead_letter_retention_seconds": 345600}, "dead_letter_retention_seconds: longer than"),
    ({"sns_topic_arns": ["shop"]}, "sns_topic_arns: arn:aws:sns"),
    ({"sns_topic_arns": [TOPIC], "fifo": True}, "sns_topic_arns: SNS delivers"),
    ({"sns_topic_arns": [TOPIC], **FROM_STREAM}, "sns_topic_arns: they send to a queue"),
    ({"event_rule_arns": ["paid"]}, "event_rule_arns: arn:aws:events"),
    ({"event_rule_arns": [RULE], "fifo": True}, "event_rule_arns: EventBridge gives no"),
    ({"event_rule_arns": [RULE], **FROM_STREAM}, "event_rule_arns: they send to a queue"),
    ({"s3_bucket_arns": [f"{BUCKET}/*"]}, "s3_bucket_arns: arn:aws:s3"),
    ({"s3_bucket_arns": [BUCKET], "fifo": True}, "s3_bucket_arns: S3 sends to no FIFO"),
    ({"s3_bucket_arns": [BUCKET], **FROM_STREAM}, "s3_bucket_arns: they send to a queue"),
    ({"event_source": "stream", "stream_arn": TABLE}, "stream_arn: arn:aws:kinesis"),
    ({"event_source": "stream", "stream_arn": f"{STREAM}/consumer/fast:1"}, "stream_arn: arn:aws:kinesis"),
    ({"event_source": "stream", "stream_arn": None}, "stream_arn: give it with"),
    ({"stream_arn": STREAM}, "stream_arn: give it with"),
    ({**FROM_STREAM, "stream_kms_key_arn": "alias/readings"}, "stream_kms_key_arn: arn:aws:kms"),
    ({"stream_kms_key_arn": KEY}, "stream_kms_key_arn: the source is a queue"),
    ({**FROM_STREAM, "stream_starting_position": "EARLIEST"}, "stream_starting_position: TRIM_HORIZON"),
    (
        {
            **FROM_STREAM,
            "stream_arn": TABLE_STREAM,
            "stream_starting_position": "AT_TIMESTAMP",
            "stream_starting_timestamp": "2026-03-02T12:00:00Z",
        },
        "stream_starting_position: AT_TIMESTAMP is for Kinesis",
    ),
    (
        {**FROM_STREAM, "stream_starting_position": "AT_TIMESTAMP", "stream_starting_timestamp": "yesterday"},
        "stream_starting_timestamp: as 2026",
    ),
    (
        {**FROM_STREAM, "stream_starting_position": "AT_TIMESTAMP", "stream_starting_timestamp": None},
        "stream_starting_timestamp: give it with",
    ),
    ({**FROM_STREAM, "stream_starting_timestamp": "2026-03-02T12:00:00Z"}, "stream_starting_timestamp: give it with"),
    ({**FROM_STREAM, "stream_maximum_age_seconds": 59}, "stream_maximum_age_seconds: -1, or"),
    ({**FROM_STREAM, "stream_maximum_age_seconds": 604801}, "stream_maximum_age_seconds: -1, or"),
    ({**FROM_STREAM, "stream_maximum_retries": -2}, "stream_maximum_retries: -1, or"),
    ({**FROM_STREAM, "stream_maximum_retries": 10001}, "stream_maximum_retries: -1, or"),
    ({**FROM_STREAM, "stream_batches_per_shard": 0}, "stream_batches_per_shard: Lambda allows"),
    ({**FROM_STREAM, "stream_batches_per_shard": 11}, "stream_batches_per_shard: Lambda allows"),
    ({"oldest_message_seconds": -5}, "oldest_message_seconds: 60 or more"),
    ({"oldest_message_seconds": 59}, "oldest_message_seconds: 60 or more"),
    ({"oldest_message_seconds": 345600}, "oldest_message_seconds: less than"),
    ({**FROM_STREAM, "oldest_message_seconds": 21600}, "oldest_message_seconds: less than"),
    ({"alarm_topic_arns": ["shop"]}, "alarm_topic_arns: arn:aws:sns"),
    ({"alarm_topic_arns": [f"{TOPIC}.fifo"]}, "alarm_topic_arns: arn:aws:sns"),
    ({"alarm_topic_arns": [f"{TOPIC}{n}" for n in range(6)]}, "alarm_topic_arns: CloudWatch allows"),
    ({"log_retention_days": 31}, "log_retention_days: CloudWatch allows"),
    ({"log_retention_days": -1}, "log_retention_days: CloudWatch allows"),
]

# The same of the relay's stack, whose other variables are the module's.
RELAY = [ROOT / "infra" / "examples" / "relay" / "variables.tf"]
GOOD_RELAY: list[dict[str, Any]] = [{}, {"sweep_minutes": 5, "oldest_event_seconds": 301}, {"oldest_event_seconds": 61}]
BAD_RELAY: list[tuple[dict[str, Any], str]] = [
    ({"sweep_minutes": 0}, "sweep_minutes: 1 to 5"),
    ({"sweep_minutes": 6}, "sweep_minutes: 1 to 5"),
    ({"sweep_minutes": 1.5}, "sweep_minutes: 1 to 5"),
    ({"oldest_event_seconds": 60}, "oldest_event_seconds: longer than"),
    ({"sweep_minutes": 5, "oldest_event_seconds": 300}, "oldest_event_seconds: longer than"),
    ({"oldest_event_seconds": 900.5}, "oldest_event_seconds: longer than"),
]


def refusals(
    folder: Path, cases: list[dict[str, Any]], files: Sequence[Path] = FILES, required: Mapping[str, Any] = REQUIRED
) -> dict[int, set[str]]:
    """What terraform has against each case. The values come in a variable, since it stops at the first wrong literal."""
    terraform = Terraform.within(folder)
    for path in files:
        folder.joinpath("module").mkdir(exist_ok=True)
        shutil.copy(path, folder / "module")
    folder.joinpath("code.zip").touch()
    given = {f"case_{number}": {**required, **case} for number, case in enumerate(cases)}
    modules = {name: {"source": "./module", **_references(name, values)} for name, values in given.items()}
    folder.joinpath("main.tf.json").write_text(json.dumps({"variable": {"cases": {}}, "module": modules}, indent=1))
    folder.joinpath("cases.tfvars.json").write_text(json.dumps({"cases": given}))
    assert terraform("init", "-input=false").returncode == 0
    plan = terraform("plan", "-json", "-input=false", "-var-file=cases.tfvars.json")
    found: dict[int, set[str]] = defaultdict(set)
    for number, detail in _diagnostics(plan.stdout, folder / "main.tf.json"):
        found[number].add(detail)
    return found


def _references(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    return {variable: f"${{var.cases.{name}.{variable}}}" for variable in values}


def _diagnostics(stdout: str, main: Path) -> Iterator[tuple[int, str]]:
    lines = main.read_text().splitlines()
    for line in map(json.loads, stdout.splitlines()):
        if diagnostic := line.get("diagnostic"):
            at = diagnostic["range"]["start"]["line"]
            number = re.search(r"case_(\d+)", lines[at - 1])
            assert number is not None, diagnostic
            null = re.search(r"module\.case_\d+\.var\.(\w+) .* set to null", diagnostic["detail"].replace("\n", " "))
            yield int(number[1]), f"{null[1]}: null" if null else diagnostic["detail"]


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> dict[int, set[str]]:
    return refusals(tmp_path_factory.mktemp("bad"), [case for case, _ in BAD])


def test_what_aws_takes_is_taken(tmp_path: Path) -> None:
    found = refusals(tmp_path, GOOD)
    assert {number: (GOOD[number], details) for number, details in found.items()} == {}


@pytest.mark.parametrize("number", range(len(BAD)), ids=[says for _, says in BAD])
def test_what_would_not_work_is_refused_with_the_reason(refused: dict[int, set[str]], number: int) -> None:
    (refusal,) = refused[number]
    assert refusal.startswith(BAD[number][1])


def test_so_it_is_with_the_relay_s(tmp_path: Path) -> None:
    cases = [*GOOD_RELAY, *(case for case, _ in BAD_RELAY)]
    found = refusals(tmp_path, cases, RELAY, {"name": "relay"})
    assert set(found) == set(range(len(GOOD_RELAY), len(cases)))
    for number, (_, says) in enumerate(BAD_RELAY, len(GOOD_RELAY)):
        (refusal,) = found[number]
        assert refusal.startswith(says)


def test_every_variable_but_a_yes_or_no_is_validated_and_tried() -> None:
    text = "".join(path.read_text() for path in FILES)
    blocks = re.findall(r'^variable "(\w+)" {\n(.*?)^}', text, re.DOTALL | re.MULTILINE)
    tried = {says.partition(":")[0] for _, says in BAD}
    validated = {name for name, block in blocks if "validation {" in block}
    assert {name for name, block in blocks if re.search(r"type += bool", block) is None} - validated == set()
    assert validated - tried == set()
