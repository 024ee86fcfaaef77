"""What became of a batch: as a value, as the answer to Lambda, and as one line for those who operate it."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

from onewrite.batch.source import Response
from onewrite.errors import InvalidMessage, OnewriteError
from onewrite.message import Message
from onewrite.outcome import Applied, Deferred, Duplicate, Outcome, Rejected, Stale

logger = logging.getLogger("onewrite")

# The first few tell what is wrong; ten thousand would be a line that no log takes (CloudWatch: 1 MiB).
_MOST_FAILURES = 20
_LONGEST_ID = 200


class EveryRecordFailed(OnewriteError):
    """No record of the batch was settled."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one record that was processed. `message` is None where its identity failed."""

    record: Any
    record_id: str
    message: Message | None
    outcomes: tuple[Outcome, ...]
    error: BaseException | None
    seconds: float

    @property
    def settled(self) -> bool:
        """Whether the broker may forget it."""
        return self.error is None and all(outcome.settled for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a batch. Each record is in `results`, or was `returned` unprocessed; both in the batch's order."""

    response: Response
    results: tuple[Result, ...]
    returned: tuple[Any, ...]
    oldest_seconds: float | None  # the age of the oldest record when the batch began; None where no record tells
    requests: int  # of guarded stores
    seconds: float

    @property
    def failed(self) -> tuple[Result, ...]:
        """What was processed and must come again."""
        return tuple(result for result in self.results if not result.settled)


def log(name: str, source: str, report: Report) -> None:
    """One line. It must not fail: what was done is done, whatever a filter of the user's makes of the line."""
    try:
        level = logging.WARNING if report.response["batchItemFailures"] else logging.INFO
        if logger.isEnabledFor(level):
            details = {"handler": name, "source": source, **describe(report)}
            logger.log(level, "%s: %s", name, _in_words(details), extra={"onewrite": details})
    except Exception as error:
        print(f"onewrite: the log line of a batch is lost: {type(error).__name__}", file=sys.stderr)  # noqa: T201  # the last resort


def describe(report: Report) -> dict[str, Any]:
    """The batch as JSON. No body is in it, and so no text of an exception: a KeyError's is a piece of a body."""
    failed = report.failed
    return {
        "records": len(report.results) + len(report.returned),
        "outcomes": _counts(report.results),
        "failed": len(failed),
        "returned": len(report.returned),
        "oldest_seconds": _rounded(report.oldest_seconds),
        "requests": report.requests,
        "seconds": _rounded(report.seconds),
        "failures": [_failure(result) for result in failed[:_MOST_FAILURES]],
        "failures_left_out": max(0, len(failed) - _MOST_FAILURES),
    }


def _counts(results: Iterable[Result]) -> dict[str, int]:
    """Of outcomes, not of records: a record may have several. "none" counts the records that were settled without one."""
    found = Counter[type](type(outcome) for result in results for outcome in result.outcomes)
    counts = {kind.__name__.lower(): found[kind] for kind in (Applied, Duplicate, Stale, Deferred, Rejected)}
    return {**counts, "none": sum(1 for result in results if result.error is None and not result.outcomes)}


def _failure(result: Result) -> dict[str, Any]:
    return {
        "record": _short(result.record_id),
        "message": None if result.message is None else _short(result.message.id),
        "attempt": _attempt(result.record),
        "error": "Deferred" if result.error is None else type(result.error).__name__,
        "reason": _reason(result),
        "where": where(result.error),
    }


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_ID else f"{text[:_LONGEST_ID]}..."


def _reason(result: Result) -> str | None:
    """What can be said of an error without its text."""
    if isinstance(result.error, InvalidMessage) and result.message is None:
        return str(result.error)  # an identity names its expression, never what it found
    response = getattr(result.error, "response", None)
    found = cast("Mapping[str, Any]", response).get("Error") if isinstance(response, Mapping) else None
    code = cast("Mapping[str, Any]", found).get("Code") if isinstance(found, Mapping) else None
    return code if isinstance(code, str) else None  # of an error of botocore's


def where(error: BaseException | None) -> str | None:
    """The line that raised it."""
    trace = None if error is None else error.__traceback__
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{PurePath(code.co_filename).name}:{trace.tb_lineno} {code.co_qualname}"


def _attempt(record: Any) -> int | None:
    """SQS counts how often a message was received; streams and Kafka do not."""
    try:
        return int(record["attributes"]["ApproximateReceiveCount"])
    except (KeyError, TypeError, ValueError):
        return None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _in_words(details: Mapping[str, Any]) -> str:
    counts = {**details["outcomes"], "failed": details["failed"], "returned": details["returned"]}
    words = [f"{count} {name}" for name, count in counts.items() if count and name != "none"]
    records = details["records"]
    return ", ".join([f"{records} record{'' if records == 1 else 's'}", *words])
