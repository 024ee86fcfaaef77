"""What the worker decides about single requests: when to try again, and what a refusal means."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from math import ceil
from typing import Any, TypeAlias

from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004  # botocore's

RequestEntry: TypeAlias = Mapping[str, Any]
"""What a batch request to SQS says about one message."""

LONGEST_HIDDEN = 12 * 3600  # seconds that SQS hides a message after it was received, however often that is extended
_LONGEST_BACKOFF = 300  # seconds: the missing message may itself be waiting for a visibility timeout, which is 30 by default
_OVERLOAD = ("Throttl", "OverLimit", "RequestLimitExceeded", "SlowDown", "TooManyRequests")  # parts of error codes


def backoff(tries: int, *, jitter: Callable[[], float] = random.random) -> int:
    """Seconds until a deferred message is tried again: 1, 2, 4 and so on to 300, less up to a quarter.

    >>> [backoff(count, jitter=lambda: 0.0) for count in (1, 2, 3, 9, 10)]
    [1, 2, 4, 256, 300]
    """
    doublings = max(0, min(tries, 20) - 1)  # far fewer than 20 already reach the longest backoff
    longest = min(1 << doublings, _LONGEST_BACKOFF)
    return ceil(longest * (1 - jitter() / 4))


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
