"""Requests to AWS services other than DynamoDB: a message that is sent, an object that is put, a secret that is read. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from onewrite.testing.taps.traffic import Request

_READS = ("Get", "List", "Describe", "Head")
# The arguments that name what a request goes to. An ARN and a URL end with the name.
_NAMES = (
    *("QueueUrl", "QueueName", "TopicArn", "TargetArn", "EventBusName", "StreamName", "StreamARN", "DeliveryStreamName"),
    *("Bucket", "FunctionName", "stateMachineArn"),
)


def request_of(store: str, method: str, arguments: Mapping[str, Any]) -> Request:
    """An API call as a request. Queues, topics, buckets and the like take the place of tables, and have no keys."""
    targets = tuple(dict.fromkeys(_targets(method, arguments)))
    return Request(store, method, arguments, None, not method.startswith(_READS), targets)


def _targets(method: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    for name in _NAMES:
        if isinstance(arguments.get(name), str):
            yield _last_part(arguments[name])
    if method == "PutEvents":
        entries: object = arguments.get("Entries")
        for entry in cast("list[object]", entries) if isinstance(entries, list) else ():
            if isinstance(entry, Mapping):
                yield _last_part(str(cast("Mapping[str, Any]", entry).get("EventBusName", "default")))


def _last_part(name: str) -> str:
    """The name at the end of an ARN or a URL."""
    last = name.rstrip("/").rpartition("/")[2]
    return last.rpartition(":")[2] if name.startswith("arn:") else last
