"""What the worker decides: how a message looks to a handler, what becomes of it after a batch, and when to try again."""

from __future__ import annotations

import base64
import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil, inf
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004  # botocore's

from onewrite.batch.report import Report, Result

Received: TypeAlias = Mapping[str, Any]
"""A message as ReceiveMessage gives it."""
Entry: TypeAlias = Mapping[str, Any]
"""What a batch request says about one message."""

LONGEST_HIDDEN = 12 * 3600  # seconds that SQS hides a message after it was received, however often that is extended
_LONGEST_BACKOFF = 300  # seconds: the missing message may itself be waiting for a visibility timeout, 30 by default
_OVERLOAD = ("Throttl", "OverLimit", "RequestLimitExceeded", "SlowDown", "TooManyRequests")
_LEFT = inf


def lambda_record(received: Received, queue_arn: str) -> dict[str, Any]:
    """A received message as Lambda hands it over."""
    record: dict[str, Any] = {
        "messageId": received["MessageId"],
        "receiptHandle": received["ReceiptHandle"],
        "body": received.get("Body", ""),
        "attributes": _attributes(received),
        "messageAttributes": {
            name: _message_attribute(value) for name, value in received.get("MessageAttributes", {}).items()
        },
        "md5OfBody": received.get("MD5OfBody", ""),
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": queue_arn.split(":")[3],
    }
    if "MD5OfMessageAttributes" in received:
        record["md5OfMessageAttributes"] = received["MD5OfMessageAttributes"]
    return record


def backoff(receive_count: int, *, jitter: Callable[[], float] = random.random) -> int:
    """Seconds until a deferred message comes again: 1, 2, 4 and so on to 300, less up to a quarter.

    >>> [backoff(count, jitter=lambda: 0.0) for count in (1, 2, 3, 9, 10)]
    [1, 2, 4, 256, 300]
    """
    doublings = max(0, min(receive_count, 20) - 1)  # a few of them are beyond the longest already
    longest = min(1 << doublings, _LONGEST_BACKOFF)
    return ceil(longest * (1 - jitter() / 4))


@dataclass(frozen=True, slots=True)
class Settlement:
    """What SQS is told about a batch. A message in neither field is left to its visibility timeout."""

    done: tuple[Received, ...]
    again: tuple[tuple[Received, int], ...]
    """Each with the seconds until it may come again."""


def settlement(
    received: Sequence[Received], report: Report, *, fifo: bool, backoff: Callable[[int], float] = backoff
) -> Settlement:
    """What succeeded is done. What is deferred comes again after its backoff, and what was not begun, at once.

    The messages of a FIFO group come again together, when the slowest of them does. SQS gives out none of a group while one
    of it is hidden: so none overtakes another, and none waits for nothing.
    """
    returned = {failure["itemIdentifier"] for failure in report.response["batchItemFailures"]}
    results = {result.record["receiptHandle"]: result for result in report.results}
    groups: dict[Hashable, list[tuple[Received, float]]] = defaultdict(list)
    for message in received:
        if message["MessageId"] in returned:
            handle = message["ReceiptHandle"]
            group = _attributes(message).get("MessageGroupId") if fifo else handle
            groups[group].append((message, _pause(message, results.get(handle), backoff)))
    done = tuple(message for message in received if message["MessageId"] not in returned)
    return Settlement(done, tuple(told for group in groups.values() for told in _together(group)))


def extension(visibility: int, held: float) -> int:
    """For how long to hide a message from now, that has been held for so many seconds. 0: SQS hides it no longer."""
    return max(0, min(visibility, int(LONGEST_HIDDEN - held)))


def unsettled(entries: Sequence[Entry], answer: Mapping[str, Any]) -> tuple[list[Entry], list[Entry]]:
    """The entries of a batch request that are worth another try, and those that SQS will never take."""
    failed = {failure["Id"]: bool(failure.get("SenderFault")) for failure in answer.get("Failed", ())}
    left = [entry for entry in entries if entry["Id"] in failed]
    return [entry for entry in left if not failed[entry["Id"]]], [entry for entry in left if failed[entry["Id"]]]


def is_passing(error: BotoCoreError | ClientError) -> bool:
    """Does it pass by itself, as throttling and a lost connection do? What else SQS refuses, it refuses every time."""
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        overload = any(word in code for word in _OVERLOAD) or status == HTTPStatus.TOO_MANY_REQUESTS
        return overload or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, ConnectionError | HTTPClientError)


def _attributes(received: Received) -> dict[str, str]:
    return dict(received.get("Attributes", {}))


def _message_attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    attribute: dict[str, Any] = {"stringListValues": [], "binaryListValues": [], "dataType": value["DataType"]}
    if "StringValue" in value:
        attribute["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        attribute["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
    return attribute


def _pause(message: Received, result: Result | None, backoff: Callable[[int], float]) -> float:
    """Seconds until it may come again."""
    if result is None:
        return 0
    if any(not outcome.settled for outcome in result.outcomes):
        count = int(_attributes(message).get("ApproximateReceiveCount", 1))
        return min(max(0, backoff(count)), LONGEST_HIDDEN)
    return _LEFT


def _together(group: Sequence[tuple[Received, float]]) -> list[tuple[Received, int]]:
    slowest = max(pause for _, pause in group)
    return [] if slowest == _LEFT else [(message, ceil(slowest)) for message, _ in group]
