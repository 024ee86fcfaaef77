"""The results of a batch, their log line, and the description of each failure.

A batch writes one log line. A failure's description names the record, the error, and the line of the user's code, and quotes
no content.
"""

from __future__ import annotations

import logging
import math
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import filterfalse
from operator import attrgetter
from typing import Any, get_args

from onewrite.batch.function import Note, UnfinishedWrite, WrongReturn
from onewrite.batch.source import Response, Source
from onewrite.core.log import catch_log_errors, log, logger
from onewrite.core.values import format_nearest_moment
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.identity import Skip
from onewrite.message import Message, full_name, printable
from onewrite.metrics import NO_OUTCOME, SKIPPED, Reported, list_kinds, snake_case
from onewrite.outcome import BeginOutcome, Begun, Busy, Deferred, Missing, Rejected, TakenOver, Uncertain
from onewrite.process.failures import find_home, find_reason, find_user_line, format_line


class EveryRecordFailed(OnewriteError):
    """No record of the batch was settled. Find the failures in the log line of the batch."""


class NotSettled(OnewriteError):
    """Raised by a handler to request redelivery from a source that reads no response. Lambda invokes the function again."""


# SQS's longest visibility timeout, in seconds. A lease lasts minutes, but a function can return any `until`.
_MAX_WAIT = 12 * 3600
# Seconds from the end of a lease to the next attempt. A store whose clock is behind the worker's is asked this often.
_AFTER_LEASE = 1.0
_MAX_BACKOFF = 300  # seconds; the missing message itself can be hidden for a visibility timeout, 30 s by default


def backoff(tries: int, *, jitter: Callable[[], float] = random.random) -> int:
    """Return the seconds until a deferred message is retried: 1, 2, 4, and so on to 300, minus up to a quarter.

    Examples:
        >>> [backoff(count, jitter=lambda: 0.0) for count in (1, 2, 3, 9, 10)]
        [1, 2, 4, 256, 300]
    """
    doublings = max(0, min(tries, 20) - 1)  # far fewer than 20 reach the maximum
    seconds = min(1 << doublings, _MAX_BACKOFF)
    return math.ceil(seconds * (1 - jitter() / 4))


def compute_lease_wait(until: float, now: float) -> float:
    """Return the seconds until a message that waits for another worker's effect is retried. NaN as `until` means soon."""
    return min(max(_AFTER_LEASE, until + _AFTER_LEASE - now), _MAX_WAIT)  # `max` passes over NaN as a later argument


is_settled: Callable[[BeginOutcome | Result], bool] = attrgetter("settled")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one processed record. `message` is None if the identity found none.

    If it found several, `message` is the last one that the function was called with, and `outcomes` are those of all.
    """

    record: Any = field(repr=False)
    record_id: str
    message: Message | None
    outcomes: tuple[BeginOutcome, ...]
    error: BaseException | None
    seconds: float
    skipped: bool = False  # the identity returned `Skip`
    unreturned: tuple[Note, ...] = ()  # the ends of guarded calls that the function didn't return
    clock: Callable[[], float] = field(default=time.time, compare=False, repr=False)  # returns epoch seconds

    @property
    def settled(self) -> bool:
        """Whether the broker can forget the record."""
        return self.error is None and (not self.outcomes or all(map(is_settled, self.outcomes)))

    def retry_after(self, attempt: int) -> float | None:
        """Return None to acknowledge the record, or the seconds until it should be redelivered.

        `attempt` is the number of this delivery, 1 for the first. The seconds grow with it: 1, 2, 4, and so on to 300, minus
        up to a quarter. For `Busy` they end one second after the lease of the other worker's effect.
        """
        if type(attempt) is not int:
            raise ConfigurationError(
                f"attempt={attempt!r}: expected the number of this delivery as an int, 1 for the first. If the broker doesn't count "
                "deliveries, pass 1."
            )
        if self.settled:
            return None
        match self.unsettled if self.error is None else None:
            case Busy(until=until):
                return compute_lease_wait(until, self.clock())
            case TakenOver():
                return 1.0  # another worker holds the effect, and only the next attempt shows until when
            case _:
                return float(backoff(attempt))

    @property
    def unsettled(self) -> BeginOutcome | None:
        """The unsettled outcome that says most about when the record can be settled, or None."""
        return min((outcome for outcome in self.outcomes if not outcome.settled), key=_rank, default=None)

    @property
    def reported(self) -> Reported:
        """The value for hooks and counts."""
        return Skip() if self.skipped else unwrap_outcomes(self.outcomes, self.error)


def _rank(outcome: BeginOutcome) -> tuple[int, float]:
    """Return the sort key of an unsettled outcome.

    The outcomes that need a person come first, and then the one with the latest known time. The rest keep their order.
    """
    match outcome:
        case Begun():
            return 0, 0.0
        case Uncertain():
            return 1, 0.0
        case Busy(until=until):
            return 2, -until
        case _:
            return 3, 0.0


def unwrap_outcomes(outcomes: tuple[BeginOutcome, ...], error: BaseException | None) -> Reported:
    """Return the error, if there is one. Otherwise return the only outcome by itself, or None without outcomes, as functions return them."""
    if error is not None:
        return error
    if len(outcomes) > 1:
        return outcomes
    return outcomes[0] if outcomes else None


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a batch. Each record is in `results` or in `returned`, in the batch's order.

    Records in `returned` weren't processed. With `group_by`, they can also be processed in part, or follow a failure of the
    same call.
    """

    response: Response
    results: tuple[Result, ...]
    returned: tuple[Any, ...] = field(repr=False)
    oldest_seconds: float | None  # the age of the oldest record when the batch began, or None if no record has a time
    requests: int  # number of requests that the guarded stores sent
    seconds: float

    @property
    def size(self) -> int:
        """The number of records in the batch."""
        return len(self.results) + len(self.returned)

    @property
    def settled(self) -> tuple[Result, ...]:
        """The results that the broker can forget."""
        return tuple(filter(is_settled, self.results))

    @property
    def failed(self) -> tuple[Result, ...]:
        """The processed records that must be redelivered."""
        return tuple(filterfalse(is_settled, self.results))


# The first failures show the problem. Ten thousand would exceed every log's line limit; CloudWatch's is 256 KiB.
MAX_FAILURES = 20
_OUTCOMES: tuple[type, ...] = get_args(BeginOutcome)
_KINDS = [*[kind.__name__ for kind in _OUTCOMES], SKIPPED, NO_OUTCOME]


def log_batch(handler: str, source: Source, report: Report, as_failure: Callable[[Result], Failure]) -> None:
    """Log one line. Never raise, not even if the user's exceptions or log filters do, because the batch is done."""
    with catch_log_errors():
        level = logging.WARNING if report.failed or report.returned else logging.INFO
        if logger.isEnabledFor(level):
            failures = [*map(as_failure, report.failed[:MAX_FAILURES])]
            details = {"handler": handler, "source": source.name, **describe(report, failures)}
            log(level, "%s: %s", handler, _summarize(details, report, failures), details=details)


def describe(report: Report, failures: Sequence[Failure]) -> dict[str, Any]:
    """Return the report as JSON, without any body."""
    failed_results = report.failed
    counter = Counter(kind for result in report.results for kind, _ in list_kinds(result.reported))
    counts = {snake_case(kind.__name__): counter[kind.__name__] for kind in _OUTCOMES}
    return {
        "records": report.size,
        # Outcomes by kind. A record can have several; "no_outcome" counts the records that were settled without an outcome.
        "outcomes": {**counts, "skipped": counter[SKIPPED], snake_case(NO_OUTCOME): counter[NO_OUTCOME]},
        "failed": len(failed_results),
        "returned": len(report.returned),
        "oldest_seconds": _round(report.oldest_seconds),
        "requests": report.requests,
        "seconds": _round(report.seconds),
        "failures": [failure.as_json() for failure in failures],
        "failures_left_out": len(failed_results) - len(failures),
    }


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _summarize(details: Mapping[str, Any], report: Report, failures: Sequence[Failure]) -> str:
    """Return a summary with each failure in it, for logs that show only the text."""
    # A record with outcomes of several kinds counts once, as "applied and duplicate". One without an outcome is only part of the total.
    counter = Counter(tuple(dict.fromkeys([kind for kind, _ in list_kinds(result.reported)])) for result in report.settled)
    words = [
        f"{counter[kinds]} {' and '.join(snake_case(kind).replace('_', ' ') for kind in kinds)}"
        for kinds in sorted(counter, key=_rank_kinds)
        if NO_OUTCOME not in kinds
    ]
    words += [f"{details[name]} {name}" for name in ("failed", "returned") if details[name]]
    records, left_out = details["records"], details["failures_left_out"]
    remainder = [f"and {left_out} more failure{'' if left_out == 1 else 's'}"] if left_out else []
    summary = ", ".join([f"{records} record{'' if records == 1 else 's'}", *words])
    return "; ".join([summary, *map(str, failures), *remainder])


def _rank_kinds(kinds: Sequence[str]) -> list[int]:
    """Return the places of a record's kinds of outcomes in the log line, as a sort key."""
    return [_KINDS.index(kind) if kind in _KINDS else len(_KINDS) for kind in kinds]  # a user's subclass has another name


_MAX_TRACEBACK = 8000  # characters from its end; twenty fit into CloudWatch's line of 256 KiB


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that must be redelivered. `str()` returns one line for a log, followed by the traceback if it was requested."""

    record: str
    message: str | None
    source: str | None
    sequence: int | str | None
    parts: tuple[str, ...]
    attempt: int | None
    error: str
    reason: str | None
    where: str | None
    named: str | None  # the message's full name, as `onewrite inspect` needs it
    traceback: str | None = None

    def __str__(self) -> str:
        message = "" if self.named is None else f", {self.named}"
        attempt = "" if self.attempt is None else f", attempt {self.attempt}"
        reason = "" if self.reason is None else f" ({self.reason})"
        line = "" if self.where is None else f" at {self.where}"
        trace = "" if self.traceback is None else f"\n{self.traceback}"
        return f"record {self.record}{message}{attempt}: {self.error}{reason}{line}{trace}"

    def as_json(self) -> dict[str, Any]:
        """Return the failure for the `extra` of the batch's log line."""
        values = {name: value for name, value in asdict(self).items() if name != "traceback" or value is not None}
        del values["named"]  # for the text only
        return values


def describe_failure(result: Result, function: object, attempt: int | None, *, with_traceback: bool) -> Failure:
    """Return the failure of an unsettled result. A traceback can quote a body in its exceptions' texts."""
    error, message = result.error, result.message
    cause = result.unsettled if error is None else error  # one of the two is set, because the result is unsettled
    note = next((note for note in result.unreturned if note.outcome is cause), None)
    line, reason = None if error is None else find_user_line(error, function), _describe_reason(result)
    if note is not None:
        if not isinstance(error, UnfinishedWrite | WrongReturn):
            kind = "not returned" if error is None else "caught by the function, and its write isn't settled"
            reason = kind if reason is None else f"{kind}; {reason}"
        if note.code is not None:
            line = format_line(note.code, note.line)
    if line is None and message is not None and (error is not None or note is not None):
        line = find_home(function)[1]  # no line of the user's is in the traceback, although the function was called
    trace = None
    if error is not None and with_traceback:
        trace = "".join(traceback.format_exception(error)).rstrip()
        trace = trace if len(trace) <= _MAX_TRACEBACK else f"...{trace[-_MAX_TRACEBACK:]}"
    sequence = None if message is None else message.sequence
    return Failure(
        record=printable(result.record_id),
        message=None if message is None else printable(message.id),
        source=None if message is None else printable(message.source),
        sequence=printable(sequence) if isinstance(sequence, str) else sequence,
        parts=() if message is None else tuple([printable(part) for part in message.parts]),
        attempt=attempt,
        error=printable(type(cause).__name__),
        reason=reason,
        where=line,
        named=None if message is None else full_name(message),
        traceback=trace,
    )


def _describe_reason(result: Result) -> str | None:
    """Return the reason of an error or an unsettled outcome, without any content, or None if it isn't known."""
    return _describe_unsettled(result.unsettled) if result.error is None else find_reason(result.error)


def _describe_unsettled(outcome: BeginOutcome | None) -> str | None:
    """Return why this outcome isn't settled, or None if there is no outcome or no reason to name."""
    match outcome:
        case Begun():
            return "the function began an effect and didn't finish it"
        case Busy(until=until):
            return f"another worker holds the effect until {format_nearest_moment(until)}; redelivered after that"
        case Uncertain(since=since, key=key):
            return (
                f"the effect was begun at {format_nearest_moment(since)} and its result is unknown; look up the key {printable(key)} at the "
                "provider"
            )
        case Missing():
            return (
                "the entity doesn't exist, and the message that creates it might still arrive; if it never does, pass "
                "missing_ok=True"
            )
        case TakenOver():
            return "another worker took over the effect before this one finished it"
        case Deferred(expected=number):
            return f"message {number} of its source is still missing"
        case Rejected(reason=reason):
            return reason
        case _:
            return None
