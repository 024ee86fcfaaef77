"""What the worker decides without asking anybody: what becomes of a message after its batch, and when to try again."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from math import ceil
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004  # botocore's

from onewrite.batch.report import Report, Result
from onewrite.sqs_message import Received

RequestEntry: TypeAlias = Mapping[str, Any]
"""What a batch request to SQS says about one message."""

LONGEST_HIDDEN = 12 * 3600  # seconds that SQS hides a message after it was received, however often that is extended
_LONGEST_BACKOFF = 300  # seconds: the missing message may itself be waiting for a visibility timeout, which is 30 by default
_OVERLOAD = ("Throttl", "OverLimit", "RequestLimitExceeded", "SlowDown", "TooManyRequests")  # parts of error codes


def backoff(receive_count: int, *, jitter: Callable[[], float] = random.random) -> int:
    """Seconds until a deferred message comes again: 1, 2, 4 and so on to 300, less up to a quarter.

    >>> [backoff(count, jitter=lambda: 0.0) for count in (1, 2, 3, 9, 10)]
    [1, 2, 4, 256, 300]
    """
    doublings = max(0, min(receive_count, 20) - 1)  # far fewer than 20 already reach the longest backoff
    longest = min(1 << doublings, _LONGEST_BACKOFF)
    return ceil(longest * (1 - jitter() / 4))


@dataclass(frozen=True, slots=True)
class Settlement:
    """What SQS is told about a batch. A message in neither field comes again when its visibility timeout ends."""

    done: tuple[Received, ...]
    again: tuple[tuple[Received, int], ...]
    """Messages with the number of seconds until each may come again."""


def settlement(
    received: Sequence[Received], report: Report, *, fifo: bool, backoff: Callable[[int], float] = backoff
) -> Settlement:
    """A settled message is done. A deferred one comes again after its backoff, and one that was not begun comes at once.

    The messages of a FIFO group come again together, when the last of them may. While SQS hides one message of a group it
    hands out none of the others, so no message overtakes another, and none is hidden for longer than that.
    """
    returned = {failure["itemIdentifier"] for failure in report.response["batchItemFailures"]}
    results = {result.record["receiptHandle"]: result for result in report.results}
    groups: dict[Hashable, list[tuple[Received, float | None]]] = defaultdict(list)
    for message in received:
        if message["MessageId"] in returned:
            handle = message["ReceiptHandle"]
            group = message.get("Attributes", {}).get("MessageGroupId") if fifo else handle
            groups[group].append((message, _seconds_until_again(message, results.get(handle), backoff)))
    done = tuple(message for message in received if message["MessageId"] not in returned)
    return Settlement(done, tuple(each for group in groups.values() for each in _at_the_same_time(group)))


def extension(visibility: int, held: float) -> int:
    """For how many seconds from now to hide a message that has been held for `held` seconds. 0: SQS hides it no longer."""
    return max(0, min(visibility, int(LONGEST_HIDDEN - held)))


def unsettled(entries: Sequence[RequestEntry], answer: Mapping[str, Any]) -> tuple[list[RequestEntry], list[RequestEntry]]:
    """The entries of a batch request that are worth another try, and those that SQS will never accept."""
    failed = {failure["Id"]: bool(failure.get("SenderFault")) for failure in answer.get("Failed", ())}
    left = [entry for entry in entries if entry["Id"] in failed]
    return [entry for entry in left if not failed[entry["Id"]]], [entry for entry in left if failed[entry["Id"]]]


def is_passing(error: BotoCoreError | ClientError) -> bool:
    """Whether the error may be gone at the next try, like throttling or a lost connection. All others come back every time."""
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        overload = any(word in code for word in _OVERLOAD) or status == HTTPStatus.TOO_MANY_REQUESTS
        return overload or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, ConnectionError | HTTPClientError)


def _seconds_until_again(message: Received, result: Result | None, backoff: Callable[[int], float]) -> float | None:
    """None: when its visibility timeout ends, as after every failure."""
    if result is None:
        return 0
    if all(outcome.settled for outcome in result.outcomes):
        return None
    count = int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1))
    return min(max(0, backoff(count)), LONGEST_HIDDEN)


def _at_the_same_time(group: Sequence[tuple[Received, float | None]]) -> list[tuple[Received, int]]:
    """The messages of a group, each with the longest time of them all; none if one waits for its visibility timeout."""
    longest = 0.0
    for _, seconds in group:
        if seconds is None:
            return []
        longest = max(longest, seconds)
    return [(message, ceil(longest)) for message, _ in group]
