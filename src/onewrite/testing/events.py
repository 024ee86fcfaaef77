"""Events as Lambda hands them to a function, true to AWS's record formats.

Nothing here is random and nothing asks for the time: the same call makes the same event. A record with the same body, or at the
same place in its stream, has the same id in every event, and so is a redelivery.
"""

from __future__ import annotations

import base64
import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.errors import needed_by

Event: TypeAlias = dict[str, Any]
Record: TypeAlias = dict[str, Any]
Item: TypeAlias = Mapping[str, Any]

REGION = "eu-west-1"
ACCOUNT = "123456789012"
SENT_AT = 1_700_000_000.0  # 14 November 2023, 22:13:20 UTC

_VIEWS = {
    "NEW_AND_OLD_IMAGES": ("NewImage", "OldImage"),
    "NEW_IMAGE": ("NewImage",),
    "OLD_IMAGE": ("OldImage",),
    "KEYS_ONLY": (),
}

# The order of magnitude that each service gives; the numbers behind it go up by one a record.
_SQS_SEQUENCE = 18_849_496_460_467_696_128
_KINESIS_SEQUENCE = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898
_STREAM_SEQUENCE = 100_000_000_000_000_000_000


# ---------------------------------------------------------------- SQS


def sqs_event(
    *bodies: Any,
    queue: str = "orders",
    fifo: bool = False,
    group: str | Sequence[str] = "group",
    ids: Sequence[str] | None = None,
    sequence: int = 1,
    receive_count: int = 1,
    sent_at: float = SENT_AT,
    attributes: Mapping[str, Any] | None = None,
    message_attributes: Mapping[str, str | float | bytes] | None = None,
) -> Event:
    """An event of SQS messages; a body that is no text is sent as JSON.

    A queue is FIFO if `fifo` says so or its name ends in `.fifo`; `group` is for all messages or one for each, and `sequence` is
    the place of the first in the queue. Without `ids` a body always has the same message id, so that sending it again is a
    redelivery; two equal bodies in one event are two messages. `attributes` go over SQS's own.
    """
    fifo = fifo or queue.endswith(".fifo")
    queue = queue if queue.endswith(".fifo") or not fifo else f"{queue}.fifo"
    texts = [body if isinstance(body, str) else json.dumps(body) for body in bodies]
    found = list(_sqs_ids(queue, texts)) if ids is None else _one_each(ids, texts, "ids")
    groups = _one_each(group, texts, "group")
    records: list[Record] = []
    for n, (text, message_id) in enumerate(zip(texts, found, strict=True)):
        system = _sqs_attributes(sent_at, receive_count)
        if fifo:
            system |= _fifo_attributes(message_id, groups[n], sequence + n)
        system |= {name: str(value) for name, value in (attributes or {}).items()}
        records.append(_sqs_record(queue, message_id, text, system, _sqs_typed(message_attributes or {})))
    return {"Records": records}


def _sqs_ids(queue: str, texts: Sequence[str]) -> Iterator[str]:
    seen: dict[str, int] = {}
    for text in texts:
        seen[text] = seen.get(text, 0) + 1
        yield str(uuid.UUID(bytes=_digest("sqs", queue, text, seen[text])[:16], version=4))


def _sqs_attributes(sent_at: float, receive_count: int) -> dict[str, str]:
    sent = int(sent_at * 1000)
    return {
        "ApproximateReceiveCount": str(receive_count),
        "SentTimestamp": str(sent),
        "SenderId": "AIDAIENQZJOLO23YVJ4VO",
        "ApproximateFirstReceiveTimestamp": str(sent + 10),
    }


def _fifo_attributes(message_id: str, group: str, sequence: int) -> dict[str, str]:
    return {
        "SequenceNumber": str(_SQS_SEQUENCE + 256 * sequence),
        "MessageGroupId": group,
        "MessageDeduplicationId": _digest("deduplication", message_id).hex(),
    }


def _sqs_record(queue: str, message_id: str, text: str, system: dict[str, str], typed: dict[str, Any]) -> Record:
    receipt = _digest("receipt", message_id, system["ApproximateReceiveCount"])
    record = {
        "messageId": message_id,
        "receiptHandle": "AQEB" + base64.b64encode(receipt * 4).decode(),
        "body": text,
        "attributes": system,
        "messageAttributes": typed,
        "md5OfBody": _md5(text.encode()),
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}",
        "awsRegion": REGION,
    }
    return record | {"md5OfMessageAttributes": _md5(_sqs_packed(typed))} if typed else record


def _sqs_typed(attributes: Mapping[str, str | float | bytes]) -> dict[str, Any]:
    return {
        name: {**_sqs_value(value), "stringListValues": [], "binaryListValues": []} for name, value in attributes.items()
    }


def _sqs_value(value: str | float | bytes) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"binaryValue": _base64(value), "dataType": "Binary"}
    return {"stringValue": str(value), "dataType": "String" if isinstance(value, str) else "Number"}


def _sqs_packed(typed: Mapping[str, Mapping[str, Any]]) -> bytes:
    """What SQS digests: names, types and values in the order of the names, each behind its length."""
    packed = b""
    for name, value in sorted(typed.items()):
        binary = "binaryValue" in value
        held = base64.b64decode(value["binaryValue"]) if binary else value["stringValue"].encode()
        parts = _measured(name.encode()), _measured(value["dataType"].encode()), bytes([1 + binary]), _measured(held)
        packed += b"".join(parts)
    return packed


def _measured(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


# ---------------------------------------------------------------- streams


def kinesis_event(
    *data: Any,
    stream: str = "orders",
    partition_key: str | Sequence[str] = "partition",
    shard: int = 0,
    sequence: int = 1,
    arrived_at: float = SENT_AT,
) -> Event:
    """An event of records of one Kinesis shard; `sequence` is the place of the first in it. Data is bytes, text or becomes JSON."""
    arn = f"arn:aws:kinesis:{REGION}:{ACCOUNT}:stream/{stream}"
    records: list[Record] = []
    for n, (it, key) in enumerate(zip(data, _one_each(partition_key, data, "partition_key"), strict=True)):
        held: Record = {
            "kinesisSchemaVersion": "1.0",
            "partitionKey": key,
            "sequenceNumber": str(_KINESIS_SEQUENCE + sequence + n),
            "data": _base64(_bytes(it)),
            "approximateArrivalTimestamp": arrived_at,
        }
        records.append(_kinesis_record(arn, f"shardId-{shard:012}", held))
    return {"Records": records}


def _kinesis_record(arn: str, shard: str, held: Record) -> Record:
    return {
        "kinesis": held,
        "eventSource": "aws:kinesis",
        "eventVersion": "1.0",
        "eventID": f"{shard}:{held['sequenceNumber']}",
        "eventName": "aws:kinesis:record",
        "invokeIdentityArn": f"arn:aws:iam::{ACCOUNT}:role/lambda-role",
        "awsRegion": REGION,
        "eventSourceARN": arn,
    }


def dynamodb_stream_event(
    *changes: tuple[Item | None, Item | None],
    key: str | Sequence[str] = "orderId",
    table: str = "orders",
    view: str = "NEW_AND_OLD_IMAGES",
    sequence: int = 1,
    created_at: float = SENT_AT,
) -> Event:
    """An event of a DynamoDB stream. A change is the item before and after it, in plain Python: `(None, item)` is an INSERT.

    `key` names the attributes of the table's key.
    """
    if view not in _VIEWS:
        raise ConfigurationError(f"view={view!r} is none of {', '.join(_VIEWS)}.")
    created = datetime.fromtimestamp(SENT_AT, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")
    arn = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{table}/stream/{created}"
    names = [key] if isinstance(key, str) else key
    records: list[Record] = []
    for n, (old, new) in enumerate(changes):
        number = str(_STREAM_SEQUENCE + sequence + n)
        held = {"Keys": _keys(names, old, new), **_images(view, old, new)}
        change = {"ApproximateCreationDateTime": created_at, **_typed_images(held), "SequenceNumber": number}
        records.append(_stream_record(arn, _event_name(old, new), {**change, "StreamViewType": view}))
    return {"Records": records}


def _keys(names: Sequence[str], old: Item | None, new: Item | None) -> Item:
    images = [image for image in (old, new) if image is not None]
    for image in images:
        if missing := [name for name in names if name not in image]:
            raise ConfigurationError(f"The item {dict(image)!r} has no {missing[0]!r}: name the table's key with key=.")
    keys = [{name: image[name] for name in names} for image in images]
    if not keys or keys[0] != keys[-1]:
        raise ConfigurationError(
            f"The change from {old!r} to {new!r} is of no one item: give one item before, after, or both."
        )
    return keys[0]


def _images(view: str, old: Item | None, new: Item | None) -> dict[str, Item]:
    images = {"NewImage": new, "OldImage": old}
    return {name: image for name, image in images.items() if image is not None and name in _VIEWS[view]}


def _event_name(old: Item | None, new: Item | None) -> str:
    if old is None:
        return "INSERT"
    return "REMOVE" if new is None else "MODIFY"


def _typed_images(images: Mapping[str, Item]) -> Record:
    with needed_by("dynamodb_stream_event", "dynamodb"):
        from onewrite.dynamodb.values import typed  # noqa: PLC0415  # who tests without DynamoDB may lack boto3
        from onewrite.testing.standins.moto_values import size  # noqa: PLC0415  # the same
    held = {name: typed(image) for name, image in images.items()}
    shown = {name: {field: _in_json(value) for field, value in image.items()} for name, image in held.items()}
    return {**shown, "SizeBytes": sum(size(image) for image in held.values())}


def _in_json(value: Mapping[str, Any]) -> dict[str, Any]:
    """A typed value, binary ones as text, and sets in one order."""
    ((kind, held),) = value.items()
    match kind:
        case "B":
            return {kind: _base64(held)}
        case "BS":
            return {kind: sorted(_base64(member) for member in held)}
        case "SS" | "NS":
            return {kind: sorted(held)}
        case "M":
            return {kind: {name: _in_json(member) for name, member in held.items()}}
        case "L":
            return {kind: [_in_json(member) for member in held]}
        case _:
            return {kind: held}


def _stream_record(arn: str, name: str, change: Record) -> Record:
    return {
        "eventID": _md5(f"{arn}:{change['SequenceNumber']}".encode()),
        "eventName": name,
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": REGION,
        "dynamodb": change,
        "eventSourceARN": arn,
    }


# ---------------------------------------------------------------- Kafka


def kafka_event(
    *values: Any,
    topic: str = "orders",
    partition: int | Sequence[int] = 0,
    offset: int = 0,
    key: Any = None,
    keys: Sequence[Any] | None = None,
    headers: Mapping[str, str | bytes] | None = None,
    sent_at: float = SENT_AT,
    self_managed: bool = False,
) -> Event:
    """An event of a Kafka topic, of MSK or of one's own. Values and keys are bytes, text or what becomes JSON; None is left out.

    `offset` is that of the first record in each partition; `key` is for all records, `keys` has one for each.
    """
    partitions = _one_each(partition, values, "partition")
    found = [key] * len(values) if keys is None else _one_each(keys, values, "keys")
    records: dict[str, list[Record]] = {}
    for value, number, name in zip(values, partitions, found, strict=True):
        behind = records.setdefault(f"{topic}-{number}", [])
        place = {"topic": topic, "partition": number, "offset": offset + len(behind)}
        times = {"timestamp": int(sent_at * 1000), "timestampType": "CREATE_TIME"}
        texts = {part: _base64(_bytes(it)) for part, it in (("key", name), ("value", value)) if it is not None}
        behind.append(
            {**place, **times, **texts, "headers": [{it: list(_bytes(text))} for it, text in (headers or {}).items()]}
        )
    return {**_kafka_source(self_managed=self_managed), "records": records}


def _kafka_source(*, self_managed: bool) -> dict[str, str]:
    if self_managed:
        return {"eventSource": "SelfManagedKafka", "bootstrapServers": "kafka-1.example.com:9092,kafka-2.example.com:9092"}
    cluster = "demo/a1b2c3d4-5678-90ab-cdef-11111example-1"
    brokers = [f"b-{n}.demo.a1bcde.c1.kafka.{REGION}.amazonaws.com:9092" for n in (2, 1)]
    return {
        "eventSource": "aws:kafka",
        "eventSourceArn": f"arn:aws:kafka:{REGION}:{ACCOUNT}:cluster/{cluster}",
        "bootstrapServers": ",".join(brokers),
    }


def _one_each(given: Any, records: Sequence[Any], name: str) -> list[Any]:
    """What is given for all records, or for each."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        return [given] * len(records)
    members = list(cast("Sequence[Any]", given))
    if len(members) != len(records):
        raise ConfigurationError(f"{name}= has {len(members)} members for {len(records)} records: give one for each.")
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
