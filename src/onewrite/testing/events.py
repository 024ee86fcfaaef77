"""Events in AWS's record formats, as Lambda passes them to a function.

The functions are deterministic: the same call returns the same event. An SQS record with the same body, or a stream record at the
same position, has the same ID in every event, so a second event with that ID is a redelivery.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from onewrite.aws_lambda.sources import make_lambda_record
from onewrite.errors import ConfigurationError
from onewrite.testing.errors import needed_by

# --- events -----------------------------------------------------------------------------------------------------------

Event: TypeAlias = dict[str, Any]
Record: TypeAlias = dict[str, Any]
Item: TypeAlias = Mapping[str, Any]

REGION = "eu-west-1"
ACCOUNT = "123456789012"
SENT_AT = 1_700_000_000  # 2023-11-14T22:13:20Z

# The first sequence number of each service, in its usual length.
_SQS_SEQUENCE = 18_849_496_460_467_696_128
_KINESIS_SEQUENCE = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
_STREAM_SEQUENCE = 100_000_000_000_000_000_000

_SQS_ATTRIBUTES = {
    "ApproximateReceiveCount": "1",
    "SentTimestamp": str(SENT_AT * 1000),
    "SenderId": "AIDAIENQZJOLO23YVJ4VO",
    "ApproximateFirstReceiveTimestamp": str(SENT_AT * 1000 + 10),
}


# ---------------------------------------------------------------- SQS


def sqs_event(
    *bodies: Any,
    queue: str = "orders",
    group: str | Sequence[str] = "group",
    ids: Sequence[str] | None = None,
    sequence: int = 1,
    attributes: Mapping[str, Any] | None = None,
    message_attributes: Mapping[str, str | float | bytes] | None = None,
) -> Event:
    """Return an event of SQS messages. A body that isn't a string is sent as JSON.

    The queue is a FIFO queue if its name ends in `.fifo`. `group` is one group for all messages, or a list with
    one for each. `sequence` is the position of the first message in the queue. Without `ids`, the same body always has the same
    message ID, so a second event with that body is a redelivery. Two equal bodies in one event are two messages. `attributes`
    override the system attributes that SQS sets, for example `{"ApproximateReceiveCount": 2}`.
    """
    texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
    message_ids = list(_make_sqs_ids(queue, texts)) if ids is None else _repeat_for_records(ids, texts, "ids")
    groups = _repeat_for_records(group, texts, "group")
    additions = {name: str(value) for name, value in (attributes or {}).items()}
    user_attributes = {name: _make_sqs_attribute(value) for name, value in (message_attributes or {}).items()}
    records: list[Record] = []
    for n, (text, message_id) in enumerate(zip(texts, message_ids, strict=True)):
        place = _make_fifo_attributes(message_id, groups[n], sequence + n) if queue.endswith(".fifo") else {}
        system = {**_SQS_ATTRIBUTES, **place, **additions}
        records.append(_make_sqs_record(queue, message_id, text, system, user_attributes))
    return {"Records": records}


def _make_sqs_ids(queue: str, texts: Sequence[str]) -> Iterator[str]:
    counts: dict[str, int] = {}
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
        yield str(uuid.UUID(bytes=_digest("sqs", queue, text, counts[text])[:16], version=4))


def _make_fifo_attributes(message_id: str, group: str, sequence: int) -> dict[str, str]:
    return {
        "SequenceNumber": str(_SQS_SEQUENCE + 256 * sequence),
        "MessageGroupId": group,
        "MessageDeduplicationId": _digest("deduplication", message_id).hex(),
    }


def _make_sqs_record(
    queue: str, message_id: str, text: str, system: dict[str, str], user_attributes: dict[str, Any]
) -> Record:
    receipt = _digest("receipt", message_id, system["ApproximateReceiveCount"])
    message = {
        "MessageId": message_id,
        "ReceiptHandle": "AQEB" + base64.b64encode(receipt * 4).decode(),
        "Body": text,
        "MD5OfBody": _md5(text.encode()),
        "Attributes": system,
        "MessageAttributes": user_attributes,
    }
    return make_lambda_record(message, f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}")


def _make_sqs_attribute(value: str | float | bytes) -> dict[str, Any]:
    if isinstance(value, bytes):
        return {"DataType": "Binary", "BinaryValue": value}
    return {"DataType": "String" if isinstance(value, str) else "Number", "StringValue": str(value)}


# ---------------------------------------------------------------- streams


def kinesis_event(
    *data: Any, stream: str = "orders", partition_key: str | Sequence[str] = "partition", shard: int = 0, sequence: int = 1
) -> Event:
    """Return an event of records of one Kinesis shard. `sequence` is the position of the first record in the shard.

    Data is bytes or a string. Anything else is sent as JSON.
    """
    arn = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{stream}"
    records: list[Record] = []
    for n, (content, key) in enumerate(zip(data, _repeat_for_records(partition_key, data, "partition_key"), strict=True)):
        number = str(_KINESIS_SEQUENCE + sequence + n)
        record: Record = {
            "kinesis": {
                "kinesisSchemaVersion": "1.0",
                "partitionKey": key,
                "sequenceNumber": number,
                "data": _base64(_bytes(content)),
                "approximateArrivalTimestamp": SENT_AT,
            },
            "eventSource": "aws:kinesis",
            "eventVersion": "1.0",
            "eventID": f"shardId-{shard:012}:{number}",
            "eventName": "aws:kinesis:record",
            "invokeIdentityArn": f"arn:aws:iam::{ACCOUNT}:role/lambda-role",
            "awsRegion": REGION,
            "eventSourceARN": arn,
        }
        records.append(record)
    return {"Records": records}


def dynamodb_stream_event(
    *changes: tuple[Item | None, Item | None], key: str | Sequence[str] = "orderId", table: str = "orders", sequence: int = 1
) -> Event:
    """Return an event of a DynamoDB stream. Each change is a pair of the old item and the new item, with plain Python values.

    `(None, item)` is an INSERT, and `(item, None)` is a REMOVE.

    `key` contains the names of the table's key attributes.
    """
    arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table}/stream/2023-11-14T22:13:20.000"
    names = [key] if isinstance(key, str) else key
    records: list[Record] = []
    for n, change in enumerate(changes):
        old, new = _check_change(change)
        number = str(_STREAM_SEQUENCE + sequence + n)
        images = {name: image for name, image in (("NewImage", new), ("OldImage", old)) if image is not None}
        record: Record = {
            "eventID": _md5(f"{arn}:{number}".encode()),
            "eventName": _choose_event_name(old, new),
            "eventVersion": "1.1",
            "eventSource": "aws:dynamodb",
            "awsRegion": REGION,
            "dynamodb": {
                "ApproximateCreationDateTime": SENT_AT,
                **_format_images({"Keys": _read_keys(names, old, new), **images}),
                "SequenceNumber": number,
                "StreamViewType": "NEW_AND_OLD_IMAGES",
            },
            "eventSourceARN": arn,
        }
        records.append(record)
    return {"Records": records}


def _check_change(change: object) -> tuple[Item | None, Item | None]:
    """Return the change, or raise `ConfigurationError` unless it is a pair of items."""
    if isinstance(change, tuple | list) and len(pair := cast("Sequence[Any]", change)) == 2:  # noqa: PLR2004  # a pair
        return pair[0], pair[1]
    raise ConfigurationError(
        f"dynamodb_stream_event(): expected pairs of the old and the new item, got {type(cast('Any', change)).__name__}. Pass (None, item) for an "
        "INSERT, (old, new) for a MODIFY, or (item, None) for a REMOVE."
    )


def _read_keys(names: Sequence[str], old: Item | None, new: Item | None) -> Item:
    images = [image for image in (old, new) if image is not None]
    for image in images:
        if missing := [name for name in names if name not in image]:
            raise ConfigurationError(f"The item {dict(image)!r} has no {missing[0]!r}: name the table's key with key=.")
    keys = [{name: image[name] for name in names} for image in images]
    if not keys or keys[0] != keys[-1]:
        raise ConfigurationError(
            f"The change from {old!r} to {new!r} isn't the change of one item. Pass the same item before, after, or both."
        )
    return keys[0]


def _choose_event_name(old: Item | None, new: Item | None) -> str:
    if old is None:
        return "INSERT"
    return "REMOVE" if new is None else "MODIFY"


def _format_images(images: Mapping[str, Item]) -> Record:
    with needed_by("dynamodb_stream_event", "dynamodb"):
        from onewrite.dynamodb.values import measure_item, plain_values, typed_values
    items = {name: typed_values(image) for name, image in images.items()}
    as_json = json.loads(json.dumps(items, default=_base64))  # with bytes as base64
    return {**as_json, "SizeBytes": sum(measure_item(plain_values(item)) for item in items.values())}


# ---------------------------------------------------------------- Kafka


def kafka_event(
    *values: Any,
    topic: str = "orders",
    partition: int | Sequence[int] = 0,
    offset: int = 0,
    key: Any = None,
    headers: Mapping[str, str | bytes] | None = None,
) -> Event:
    """Return an event of a Kafka topic. Values and keys are bytes or strings. Anything else is sent as JSON, and None is left out.

    `offset` is the offset of the first record in each partition. `partition` and `key` are one value for all records, or a list with
    one for each.
    """
    partitions, keys = _repeat_for_records(partition, values, "partition"), _repeat_for_records(key, values, "key")
    times = {"timestamp": SENT_AT * 1000, "timestampType": "CREATE_TIME"}
    records: dict[str, list[Record]] = {}
    for value, number, record_key in zip(values, partitions, keys, strict=True):
        earlier = records.setdefault(f"{topic}-{number}", [])
        place = {"topic": topic, "partition": number, "offset": offset + len(earlier)}
        contents = {"key": record_key, "value": value}
        members = {name: _base64(_bytes(content)) for name, content in contents.items() if content is not None}
        lists = [{name: list(_bytes(content))} for name, content in (headers or {}).items()]
        earlier.append({**place, **times, **members, "headers": lists})
    cluster = "demo/a1b2c3d4-5678-90ab-cdef-11111example-1"
    brokers = [f"b-{n}.demo.a1bcde.c1.kafka.{REGION}.amazonaws.com:9092" for n in (2, 1)]
    return {
        "eventSource": "aws:kafka",
        "eventSourceArn": f"arn:aws:kafka:{REGION}:{ACCOUNT}:cluster/{cluster}",
        "bootstrapServers": ",".join(brokers),
        "records": records,
    }


def _repeat_for_records(option: Any, records: Sequence[Any], name: str) -> list[Any]:
    """Return a list with one value for each record, given such a list or one value for all records."""
    if isinstance(option, str | bytes) or not isinstance(option, Sequence):
        return [option] * len(records)
    members = list(cast("Sequence[Any]", option))
    if len(members) != len(records):
        raise ConfigurationError(f"{name}= has {len(members)} members for {len(records)} records. Pass one for each.")
    return members


def _bytes(data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    return (data if isinstance(data, str) else json.dumps(data)).encode()


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()


# --- the context ------------------------------------------------------------------------------------------------------
#
# The context that Lambda passes to a function with the event.


def lambda_context(
    remaining_ms: int = 30_000, *, function_name: str = "orders", clock: Callable[[], float] | None = None
) -> Any:  # Powertools and other libraries define their own classes, and a handler can expect any of them
    """Return the context of an invocation that has `remaining_ms` left.

    Its time doesn't advance unless you pass a `clock`, a function that returns seconds, such as `time.monotonic`.
    """
    clock = clock or (lambda: 0.0)
    return LambdaContext(function_name, remaining_ms, clock, clock())


@dataclass(frozen=True, slots=True)
class LambdaContext:
    """The context object of Lambda's Python runtime, with the test's clock."""

    function_name: str
    remaining_ms: int
    clock: Callable[[], float]
    start: float
    aws_request_id: str = "00000000-0000-4000-8000-000000000001"
    memory_limit_in_mb: str = "128"  # a string, like in the runtime
    function_version: str = "$LATEST"
    identity: Any = None
    client_context: Any = None
    tenant_id: str | None = None
    log_stream_name: str = "2023/11/14/[$LATEST]00000000000000000000000000000001"
    lines: list[Any] = field(default_factory=list[Any])

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{self.function_name}"

    @property
    def log_group_name(self) -> str:
        return f"/aws/lambda/{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        """Return the remaining time. Like in the runtime, it's never negative."""
        return max(0, self.remaining_ms - round((self.clock() - self.start) * 1000))

    def w3c(self) -> dict[str, str]:
        """Return the trace context, which is empty here."""
        return {}

    def log(self, message: Any) -> None:
        """Append the line to `lines`."""
        self.lines.append(message)
