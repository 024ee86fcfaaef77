"""What became of a batch: as a value, and as one line of the log for those who operate it."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast, get_args

from onewrite.batch.source import Response, Source
from onewrite.errors import InvalidMessage, OnewriteError
from onewrite.message import Message
from onewrite.metrics import NO_OUTCOME, kinds_of
from onewrite.outcome import Outcome

logger = logging.getLogger("onewrite")

# The first few failures show what is wrong. Ten thousand would make a line that no log accepts: CloudWatch's limit is 1 MiB.
_MOST_FAILURES = 20
_LONGEST_ID = 200
_OUTCOMES: tuple[type, ...] = get_args(Outcome)


class EveryRecordFailed(OnewriteError):
    """No record of the batch was settled."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one record that was processed. `message` is None if the identity failed."""

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
    """What became of a batch. Each record is in `results`, or in `returned` if it was not processed, in the batch's order."""

    response: Response
    results: tuple[Result, ...]
    returned: tuple[Any, ...]
    oldest_seconds: (
        float | None
    )  # the age of the oldest record when the batch began; None if no record says when it was sent
    requests: int  # how many the guarded stores sent
    seconds: float

    @property
    def failed(self) -> tuple[Result, ...]:
        """What was processed and must come again."""
        return tuple(result for result in self.results if not result.settled)


def log_batch(handler: str, source: Source, report: Report) -> None:
    """Log one line. This never raises: a failing log filter of the user's must not undo a batch that is done."""
    try:
        level = logging.WARNING if report.response["batchItemFailures"] else logging.INFO
        if logger.isEnabledFor(level):
            details = {"handler": handler, "source": source.name, **describe(report, source)}
            logger.log(level, "%s: %s", handler, _summary(details), extra={"onewrite": details})
    except Exception as error:
        message = f"onewrite: the log line of a batch is lost: {type(error).__name__}"
        print(message, file=sys.stderr)  # noqa: T201  # there is no other place left to say it


def describe(report: Report, source: Source) -> dict[str, Any]:
    """The report as JSON. It contains no body, and no text of an exception, because that may quote a body."""
    failed = report.failed
    return {
        "records": len(report.results) + len(report.returned),
        "outcomes": _counts(report.results),
        "failed": len(failed),
        "returned": len(report.returned),
        "oldest_seconds": _rounded(report.oldest_seconds),
        "requests": report.requests,
        "seconds": _rounded(report.seconds),
        "failures": [_failure(result, source) for result in failed[:_MOST_FAILURES]],
        "failures_left_out": max(0, len(failed) - _MOST_FAILURES),
    }


def line_that_raised(error: BaseException | None) -> str | None:
    """The file, the line and the function that raised the error."""
    trace = None if error is None else error.__traceback__
    if trace is None:
        return None
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return f"{PurePath(code.co_filename).name}:{trace.tb_lineno} {code.co_qualname}"


def _counts(results: Iterable[Result]) -> dict[str, int]:
    """How many outcomes of each kind there are. A record may have several; "none" counts the records that settled without."""
    ends = (result.outcomes if result.error is None else result.error for result in results)
    counter = Counter(kind for end in ends for kind, _ in kinds_of(end))
    return {**{kind.__name__.lower(): counter[kind.__name__] for kind in _OUTCOMES}, "none": counter[NO_OUTCOME]}


def _failure(result: Result, source: Source) -> dict[str, Any]:
    return {
        "record": _shortened(result.record_id),
        "message": None if result.message is None else _shortened(result.message.id),
        "attempt": source.attempt(result.record),
        "error": type(_unsettled(result)).__name__,
        "reason": _reason(result),
        "where": line_that_raised(result.error),
    }


def _unsettled(result: Result) -> BaseException | Outcome:
    """Why a record that failed must come again: its error, or the first of its outcomes that is not settled."""
    return result.error if result.error is not None else next(outcome for outcome in result.outcomes if not outcome.settled)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_ID else f"{text[:_LONGEST_ID]}..."


def _reason(result: Result) -> str | None:
    """What can be said about an error without quoting any content."""
    if isinstance(result.error, InvalidMessage) and result.message is None:
        return str(result.error)  # An identity's error names its expression, and never what it found.
    response = getattr(result.error, "response", None)  # as botocore's errors have
    details = cast("Mapping[str, Any]", response).get("Error") if isinstance(response, Mapping) else None
    code = cast("Mapping[str, Any]", details).get("Code") if isinstance(details, Mapping) else None
    return code if isinstance(code, str) else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _summary(details: Mapping[str, Any]) -> str:
    counts = {**details["outcomes"], "failed": details["failed"], "returned": details["returned"]}
    words = [f"{count} {name}" for name, count in counts.items() if count and name != "none"]
    records = details["records"]
    return ", ".join([f"{records} record{'' if records == 1 else 's'}", *words])
