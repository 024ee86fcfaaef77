"""One line of the log for each batch, for those who operate it."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from onewrite.batch.failures import Failure
from onewrite.batch.report import Report, Result, logger
from onewrite.batch.source import Source
from onewrite.metrics import NO_OUTCOME, SKIPPED, kinds_of
from onewrite.outcome import Answer

# The first few failures show what is wrong. Ten thousand would make a line that no log accepts: CloudWatch's limit is 256 KiB.
MOST_FAILURES = 20
_ANSWERS: tuple[type, ...] = get_args(Answer)


def log_batch(handler: str, source: Source, report: Report, failures: Sequence[Failure]) -> None:
    """Log one line. This never raises: a failing log filter of the user's must not undo a batch that is done."""
    try:
        level = logging.INFO if len(report.settled) == report.size else logging.WARNING
        if logger.isEnabledFor(level):
            details = {"handler": handler, "source": source.name, **describe(report, failures)}
            logger.log(level, "%s: %s", handler, _summary(details, failures), extra={"onewrite": details})
    except Exception as error:
        message = f"onewrite: the log line of a batch is lost: {type(error).__name__}"
        print(message, file=sys.stderr)  # noqa: T201  # there is no other place left to say it


def describe(report: Report, failures: Sequence[Failure]) -> dict[str, Any]:
    """The report as JSON. It contains no body."""
    failed = report.failed
    return {
        "records": report.size,
        "outcomes": _counts(report.results),
        "failed": len(failed),
        "returned": len(report.returned),
        "oldest_seconds": _rounded(report.oldest_seconds),
        "requests": report.requests,
        "seconds": _rounded(report.seconds),
        "failures": [failure.as_json() for failure in failures],
        "failures_left_out": len(failed) - len(failures),
    }


def _counts(results: Iterable[Result]) -> dict[str, int]:
    """How many outcomes of each kind there are. A record may have several; "none" counts the records that settled without."""
    counter = Counter(kind for result in results for kind, _ in kinds_of(result.reported))
    counts = {kind.__name__.lower(): counter[kind.__name__] for kind in _ANSWERS}
    return {**counts, "skipped": counter[SKIPPED], "none": counter[NO_OUTCOME]}


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _summary(details: Mapping[str, Any], failures: Sequence[Failure]) -> str:
    """The counts, and then each failure, so that it can be found in a log that shows nothing but the text."""
    counts = {**details["outcomes"], "failed": details["failed"], "returned": details["returned"]}
    words = [f"{count} {name}" for name, count in counts.items() if count and name != "none"]
    records, left_out = details["records"], details["failures_left_out"]
    more = [f"and {left_out} more failures"] if left_out else []
    summary = ", ".join([f"{records} record{'' if records == 1 else 's'}", *words])
    return "; ".join([summary, *map(str, failures), *more])
