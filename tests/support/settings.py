"""Values for the variables of the Terraform modules in infra/: those that are taken, and those that are refused."""

from __future__ import annotations

from typing import Any

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
    {**NO_CODE, "function": False, "fifo": True, "max_receive_count": 3},
    {"package": None, "image_uri": IMAGE.replace(":1", "@sha256:" + 64 * "a")},
    {"message_retention_seconds": 86400, "dead_letter_retention_seconds": 172800, "oldest_message_seconds": 7200},
    {"fifo": True, "message_retention_seconds": 1209600, "dead_letter_retention_seconds": 86400},
    {"reserved_concurrency": 20, "maximum_concurrency": 20},
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
    {"fifo": True, "content_based_deduplication": True, "event_rule_arns": [RULE]},
    {"fifo": True, "sns_topic_arns": [f"{TOPIC}.fifo"]},
    {"sns_topic_arns": [TOPIC, f"{TOPIC}.fifo"], "event_rule_arns": [RULE], "s3_bucket_arns": [BUCKET]},
    {"maximum_concurrency": 1000, "max_receive_count": 1000, "reserved_concurrency": None},
    {"message_retention_seconds": 1209600, "fifo": True, "dead_letter_retention_seconds": 1209600},
    {"message_retention_seconds": 181, "dead_letter_retention_seconds": 86400, "oldest_message_seconds": 60},
    {"event_source": "stream", "stream_arn": TABLE_STREAM, "stream_starting_position": "LATEST", "batch_size": 100},
    {**FROM_STREAM, "stream_maximum_age_seconds": -1, "stream_maximum_retries": 0, "oldest_message_seconds": 86400},
    {**FROM_STREAM, "stream_maximum_age_seconds": 604800, "stream_maximum_retries": 10000, "stream_kms_key_arn": KEY},
    {**FROM_STREAM, "stream_bisect": False, "enabled": False, "tracing": True},
    {"alarm_topic_arns": [TOPIC], "log_retention_days": 0},
    {"log_retention_days": 3653, "alarms_left_out": ["unsettled", "errors"]},
]
# What is given, and what Terraform's refusal says. Its first word is the variable.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "name: letters"),
    ({"name": None}, "name: null"),
    ({"function": False, **FROM_STREAM, **NO_CODE}, "function: a stream needs one"),
    ({"function": False}, "package: set either package"),
    ({**NO_CODE, "function": False, "environment": {"SHOP": "x"}}, "function: with false"),
    ({"package": "missing.zip"}, "package: the file doesn't exist. `python"),
    ({"package": None, "image_uri": "docker.io/shop:1"}, "image_uri: an image in ECR"),
    ({"package": None, "image_uri": IMAGE, "runtime": "python3.12"}, "runtime: an image contains"),
    ({"handler": None}, "handler: module.name"),
    ({"runtime": "python3.10"}, "runtime: python3.11"),
    ({"architecture": "aarch64"}, "architecture: arm64"),
    ({"memory_size": 127}, "memory_size: Lambda allows"),
    ({"function_timeout": 0}, "function_timeout: Lambda allows"),
    ({"environment": {"1A": "x"}}, "environment: a name begins"),
    ({"environment": {"AWS_REGION": "eu-west-1"}}, "environment: Lambda itself sets"),
    ({"secret_arns": {"A-B": SECRET}}, "secret_arns: a key must"),
    ({"secret_arns": {"MONGODB": "mongodb-a1B2c3"}}, "secret_arns: the whole ARN"),
    ({"environment": {"LONG": "x" * 4096}, "secret_arns": {}}, "secret_arns: together with environment, they exceed the"),
    ({"table_arn": "orders"}, "table_arn: arn:aws:dynamodb"),
    ({"table_actions": []}, "table_actions: at least one"),
    ({"table_arn": TABLE, "index_actions": ["dynamodb:GetItem"]}, "index_actions: an index allows"),
    ({"index_actions": ["dynamodb:Query"]}, "index_actions: set table_arn too."),
    ({"policy": "sns:Publish"}, "policy: the JSON"),
    ({"permissions_boundary": "PowerUserAccess"}, "permissions_boundary: arn:aws:iam"),
    ({"layers": [LAYER.removesuffix(":")]}, "layers: arn:aws:lambda"),
    ({"layers": [f"{LAYER}{version}" for version in range(1, 7)]}, "layers: Lambda allows five"),
    ({"package": None, "image_uri": IMAGE, "layers": [f"{LAYER}1"]}, "layers: an image can't have"),
    ({**FROM_STREAM, "reserved_concurrency": 0}, "reserved_concurrency: 1 or more"),
    ({"reserved_concurrency": 9}, "reserved_concurrency: must be at"),
    ({"subnet_ids": ["arn:aws:ec2:eu-west-1:1:subnet/a"], "security_group_ids": ["sg-1"]}, "subnet_ids: subnet-"),
    ({"subnet_ids": ["subnet-1", "subnet-1"], "security_group_ids": ["sg-1"]}, "subnet_ids: Lambda allows 16"),
    ({"subnet_ids": ["subnet-1"]}, "subnet_ids: set both subnet_ids"),
    ({"subnet_ids": ["subnet-1"], "security_group_ids": ["default"]}, "security_group_ids: sg-"),
    ({"subnet_ids": ["subnet-1"], "security_group_ids": [f"sg-{n}" for n in range(6)]}, "security_group_ids: Lambda allows"),
    ({"kms_key_arn": "alias/shop"}, "kms_key_arn: arn:aws:kms"),
    ({"event_source": "topic"}, "event_source: queue or stream"),
    ({"batch_size": 0}, "batch_size: Lambda allows"),
    ({"batch_size": 11}, "batch_size: for more than 10 messages of a"),
    ({"batch_size": 11, "fifo": True}, "batch_size: a FIFO queue allows"),
    ({"batch_window_seconds": -1}, "batch_window_seconds: Lambda allows"),
    ({"batch_window_seconds": 1, "fifo": True}, "batch_window_seconds: a FIFO queue"),
    ({**FROM_STREAM, "fifo": True}, "fifo: a stream isn't a"),
    ({"content_based_deduplication": True}, "content_based_deduplication: only with"),
    ({"maximum_concurrency": 1}, "maximum_concurrency: Lambda allows"),
    ({"max_receive_count": 0}, "max_receive_count: SQS allows"),
    ({"message_retention_seconds": 1209601, "fifo": True}, "message_retention_seconds: SQS allows"),
    ({"message_retention_seconds": 180, "oldest_message_seconds": 60}, "message_retention_seconds: must be longer"),
    ({"dead_letter_retention_seconds": 1209601}, "dead_letter_retention_seconds: must be between"),
    ({"dead_letter_retention_seconds": 172800}, "dead_letter_retention_seconds: must be longer"),
    ({"max_receive_count": 6, **FROM_STREAM}, "max_receive_count: the source is a stream"),
    ({"maximum_concurrency": 20, **FROM_STREAM}, "maximum_concurrency: the source is a stream"),
    ({"message_retention_seconds": 86400, **FROM_STREAM}, "message_retention_seconds: the source is a stream"),
    ({"stream_starting_position": "LATEST"}, "stream_starting_position: the source is a queue"),
    ({"stream_maximum_age_seconds": 86400}, "stream_maximum_age_seconds: the source is a queue"),
    ({"stream_maximum_retries": 3}, "stream_maximum_retries: the source is a queue"),
    ({"stream_bisect": False}, "stream_bisect: the source is a queue"),
    ({"sns_topic_arns": ["shop"]}, "sns_topic_arns: arn:aws:sns"),
    ({"sns_topic_arns": [TOPIC], "fifo": True}, "sns_topic_arns: SNS delivers"),
    ({"sns_topic_arns": [TOPIC], **FROM_STREAM}, "sns_topic_arns: topics send to a queue,"),
    ({"event_rule_arns": ["paid"]}, "event_rule_arns: arn:aws:events"),
    ({"event_rule_arns": [RULE], "fifo": True}, "event_rule_arns: EventBridge doesn't set"),
    ({"event_rule_arns": [RULE], **FROM_STREAM}, "event_rule_arns: rules send to a queue,"),
    ({"s3_bucket_arns": [f"{BUCKET}/*"]}, "s3_bucket_arns: arn:aws:s3"),
    ({"s3_bucket_arns": [BUCKET], "fifo": True}, "s3_bucket_arns: S3 can't send to a"),
    ({"s3_bucket_arns": [BUCKET], **FROM_STREAM}, "s3_bucket_arns: buckets send to a queue,"),
    ({"event_source": "stream", "stream_arn": TABLE}, "stream_arn: arn:aws:kinesis"),
    ({"event_source": "stream", "stream_arn": None}, "stream_arn: set it exactly"),
    ({**FROM_STREAM, "stream_kms_key_arn": "alias/readings"}, "stream_kms_key_arn: arn:aws:kms"),
    ({"stream_kms_key_arn": KEY}, "stream_kms_key_arn: the source is a queue"),
    ({**FROM_STREAM, "stream_starting_position": "EARLIEST"}, "stream_starting_position: TRIM_HORIZON"),
    ({**FROM_STREAM, "stream_maximum_age_seconds": 59}, "stream_maximum_age_seconds: -1, or"),
    ({**FROM_STREAM, "stream_maximum_retries": -2}, "stream_maximum_retries: -1, or"),
    ({"oldest_message_seconds": -5}, "oldest_message_seconds: 60 or more"),
    ({"oldest_message_seconds": 345600}, "oldest_message_seconds: must be less"),
    ({"alarm_topic_arns": ["shop"]}, "alarm_topic_arns: arn:aws:sns"),
    ({"alarm_topic_arns": [f"{TOPIC}{n}" for n in range(6)]}, "alarm_topic_arns: CloudWatch allows"),
    ({"alarms_left_out": ["all"]}, "alarms_left_out: the alarms are"),
    ({"log_retention_days": 31}, "log_retention_days: CloudWatch allows"),
]

# The same of the relay's stack, whose other variables are the module's.
QUEUE = f"arn:aws:sqs:eu-west-1:{ACCOUNT}:events"
GOOD_RELAY: list[dict[str, Any]] = [
    {"target": "queue", "target_queue_arn": QUEUE},
    {},
    {"sweep_minutes": 5, "oldest_event_seconds": 301},
    {"oldest_event_seconds": 61},
]
BAD_RELAY: list[tuple[dict[str, Any], str]] = [
    ({"name": "orders.relay"}, "name: letters"),
    ({"target": "bus"}, "target: topic or queue"),
    ({"target": "queue", "target_queue_arn": QUEUE, "fifo": False}, "target: with your own"),
    ({"target": "queue", "target_queue_arn": None}, "target_queue_arn: set it exactly"),
    ({"target": "queue", "target_queue_arn": "events"}, "target_queue_arn: arn:aws:sqs"),
    ({"sweep_minutes": 0}, "sweep_minutes: must be between"),
    ({"oldest_event_seconds": 60}, "oldest_event_seconds: must be longer"),
]

# The same of the module for containers.
CLUSTER = f"arn:aws:ecs:eu-west-1:{ACCOUNT}:cluster/shop"
SERVICE: dict[str, Any] = {
    "name": "billing",
    "image": IMAGE,
    "cluster_arn": CLUSTER,
    "subnet_ids": ["subnet-1a"],
    "security_group_ids": ["sg-1a"],
}
WORKER = {"worker": "billing:handler", "queue_arn": QUEUE}
RELAY = {"relay": "shop.relays:orders", "worker": None, "queue_arn": None}
GOOD_SERVICE: list[dict[str, Any]] = [
    {},
    {"queue_arn": f"{QUEUE}.fifo", "options": ["--in-flight", "20"], "tasks": 3, "cpu": 1024, "memory": 8192},
    {**RELAY, "oldest_event_seconds": 60, "tasks": 0, "log_retention_days": 0, "log_format": "text"},
    {"health_port": 65535, "drain_seconds": 115, "log_level": "WARNING", "alarm_topic_arns": [TOPIC]},
    {"drain_seconds": 0, "log_level": "DEBUG", "image": "docker.io/shop/billing:1", "environment": {"_A1": "x"}},
    *[
        {"cpu": cpu, "memory": memory}
        for cpu, most in {256: (512, 2048), 2048: (4096, 16384), 4096: (8192, 30720), 8192: (20480, 61440)}.items()
        for memory in most
    ],
    {
        "secret_arns": {"MONGODB": SECRET},
        "policy": '{"Statement": []}',
        "architecture": "x86_64",
        "cpu": 256,
        "memory": 1024,
    },
]
BAD_SERVICE: list[tuple[dict[str, Any], str]] = [
    ({"name": "a b"}, "name: letters"),
    ({"image": "shop"}, "image: with its tag"),
    ({"relay": "shop.relays:orders"}, "worker: set either worker"),
    ({"worker": "billing.handler"}, "worker: MODULE:HANDLER"),
    ({**RELAY, "relay": "relays.orders"}, "relay: MODULE:RELAY"),
    ({"queue_arn": "events"}, "queue_arn: arn:aws:sqs"),
    ({"queue_arn": None}, "queue_arn: set it for a"),
    ({"secret_arns": {"MONGODB": "mongodb"}}, "secret_arns: the whole ARN"),
    ({"policy": "sqs:SendMessage"}, "policy: the JSON"),
    ({"cluster_arn": "shop"}, "cluster_arn: arn:aws:ecs"),
    ({"subnet_ids": []}, "subnet_ids: 1 to 16"),
    ({"security_group_ids": []}, "security_group_ids: 1 to 5"),
    ({"architecture": "aarch64"}, "architecture: arm64"),
    ({"cpu": 300, "memory": 1024}, "cpu: Fargate allows"),
    *[
        ({"cpu": cpu, "memory": memory}, "memory: Fargate allows")
        for cpu, memory in [(256, 1536), (256, 4096), (256, 700), (1024, 1024), (4096, 32768), (8192, 17408), (16384, 36864)]
    ],
    *[
        ({"options": [option]}, "options: the stack depends on")
        for option in (
            "--health-port",
            "--drain-seconds=60",
            "--log-level",
            "--log-format=text",
            "--queue-url",
            "--health-host",
        )
    ],
    ({"options": ["--in-flight", "20", "--stop-when-empty"]}, "options: a service runs"),
    ({"health_port": 0}, "health_port: 1 to 65535"),
    ({**RELAY, "health_port": 9090}, "health_port: only a worker has"),
    ({"drain_seconds": 116}, "drain_seconds: 0 to 115"),
    ({"log_level": "ERROR"}, "log_level: DEBUG"),
    ({"log_format": "text"}, "log_format: must be json for"),
    ({**RELAY, "log_format": "yaml"}, "log_format: json or text"),
    ({"environment": {"A-B": "x"}}, "environment: a name begins"),
    ({**RELAY, "environment": {"AWS_LAMBDA_FUNCTION_NAME": "x"}}, "environment: the stack sets"),
    ({"environment": {"ONEWRITE_WORKER_STOP_WHEN_EMPTY": "1"}}, "environment: set the command's options"),
    ({"secret_arns": {"A-B": SECRET}}, "secret_arns: a key must"),
    ({"alarm_topic_arns": ["shop"]}, "alarm_topic_arns: arn:aws:sns"),
    ({"alarm_topic_arns": [f"{TOPIC}{n}" for n in range(6)]}, "alarm_topic_arns: CloudWatch allows"),
    ({"tasks": -1}, "tasks: 0 or more"),
    ({**RELAY, "oldest_event_seconds": 59}, "oldest_event_seconds: 60 or more"),
    ({"oldest_event_seconds": 60}, "oldest_event_seconds: only for a relay."),
    ({"log_retention_days": 31}, "log_retention_days: a number"),
]
