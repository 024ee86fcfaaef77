"""What became of a batch: as a value."""

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
from types import FrameType
from typing import Any, cast, get_args

from onewrite.batch.function import WrongReturn, home_of, innermost, line_of
from onewrite.batch.source import Response, Source
from onewrite.core.event import LAST_MOMENT, moment
from onewrite.core.log import log, logger, logging_safely
from onewrite.core.unreturned import Note
from onewrite.errors import ConfigurationError, InvalidMessage, OnewriteError
from onewrite.identity import Skip
from onewrite.message import Message, full_name, printable
from onewrite.metrics import NO_OUTCOME, SKIPPED, Reported, kinds_of
from onewrite.outcome import Answer, Begun, Busy, Deferred, Missing, Rejected, Superseded, Uncertain


class EveryRecordFailed(OnewriteError):
    """No record of the batch was settled."""


class NotSettled(OnewriteError):
    """A record was not settled, and its source learns of it only by this error: Lambda invokes the function again."""


_LONGEST_WAIT = (
    12 * 3600
)  # seconds that SQS hides a message. A lease is minutes long, but a function may return any `until`.
_LONGEST_BACKOFF = 300  # seconds: the missing message may itself be waiting for a visibility timeout, which is 30 by default


def backoff(tries: int, *, jitter: Callable[[], float] = random.random) -> int:
    """Seconds until a deferred message is tried again: 1, 2, 4 and so on to 300, less up to a quarter.

    >>> [backoff(count, jitter=lambda: 0.0) for count in (1, 2, 3, 9, 10)]
    [1, 2, 4, 256, 300]
    """
    doublings = max(0, min(tries, 20) - 1)  # far fewer than 20 already reach the longest backoff
    longest = min(1 << doublings, _LONGEST_BACKOFF)
    return math.ceil(longest * (1 - jitter() / 4))


is_settled: Callable[[Answer | Result], bool] = attrgetter("settled")  # may the broker forget it?


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one record that was processed. `message` is None if the identity found none.

    If it found several messages, this is the last one that the function was called with, and `outcomes` are those of all.
    """

    record: Any
    record_id: str
    message: Message | None
    outcomes: tuple[Answer, ...]
    error: BaseException | None
    seconds: float
    skipped: bool = False  # the identity said that the record is not for the function
    unreturned: tuple[Note, ...] = ()  # those of the outcomes that the function got and did not return
    clock: Callable[[], float] = field(default=time.time, compare=False, repr=False)  # gives epoch seconds

    @property
    def settled(self) -> bool:
        """Whether the broker may forget it."""
        return self.error is None and (not self.outcomes or all(map(is_settled, self.outcomes)))

    def retry_after(self, attempt: int) -> float | None:
        """Return None if the broker can be told that the record is done, or the seconds until it should be delivered again.

        `attempt`: the number of this delivery, 1 for the first. The seconds grow with it: 1, 2, 4, and so on to 300, less up to a
        quarter. For `Busy` they end one second after the lease of the other worker's step.
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
                seconds = until + 1.0 - self.clock()
                return min(max(1.0, seconds), _LONGEST_WAIT) if seconds == seconds else 1.0  # noqa: PLR0124  # a function may return NaN
            case Superseded():
                return 1.0  # The worker that has the step is at work: only the next attempt can tell until when.
            case _:
                return float(backoff(attempt))

    @property
    def unsettled(self) -> Answer | None:
        """Of the outcomes that are not settled, the one that says most about when the record can be settled."""
        return min((answer for answer in self.outcomes if not answer.settled), key=_rank, default=None)

    @property
    def reported(self) -> Reported:
        """What hooks and counts are told of it."""
        return Skip() if self.skipped else as_returned(self.outcomes if self.error is None else self.error)


def _rank(answer: Answer) -> tuple[int, float]:
    """First what only a person can mend, then the latest time that is known. All others keep their order."""
    match answer:
        case Begun():
            return 0, 0.0
        case Uncertain():
            return 1, 0.0
        case Busy(until=until):
            return 2, -until
        case _:
            return 3, 0.0


def as_returned(end: tuple[Answer, ...] | BaseException) -> Reported:
    """A single outcome by itself, and none as None, as functions return them."""
    if isinstance(end, BaseException) or len(end) > 1:
        return end
    return end[0] if end else None


@dataclass(frozen=True, slots=True)
class Report:
    """What became of a batch. Each record is in `results`, or in `returned`, in the batch's order.

    Those in `returned` were not processed; or, with `group_by`, only a part of them was, or they stand behind a failure that was in
    the same call.
    """

    response: Response
    results: tuple[Result, ...]
    returned: tuple[Any, ...]
    oldest_seconds: (
        float | None
    )  # the age of the oldest record when the batch began; None if no record says when it was sent
    requests: int  # how many the guarded stores sent
    seconds: float

    @property
    def size(self) -> int:
        """How many records the batch had."""
        return len(self.results) + len(self.returned)

    @property
    def settled(self) -> tuple[Result, ...]:
        """What the broker may forget."""
        return tuple(filter(is_settled, self.results))

    @property
    def failed(self) -> tuple[Result, ...]:
        """What was processed and must be redelivered."""
        return tuple(filterfalse(is_settled, self.results))


# --- one line of the log ---------------------------------------------------------------------------------------------
#
# One line of the log for each batch, for those who operate it.


# The first few failures show what is wrong. Ten thousand would make a line that no log accepts: CloudWatch's limit is 256 KiB.
MOST_FAILURES = 20
_ANSWERS: tuple[type, ...] = get_args(Answer)
_KINDS = [*[kind.__name__ for kind in _ANSWERS], SKIPPED, NO_OUTCOME]


def log_batch(handler: str, source: Source, report: Report, as_failure: Callable[[Result], Failure]) -> None:
    """Log one line. This never raises, whatever the user's errors and log filters do: it must not undo a batch that is done."""
    with logging_safely():
        level = logging.WARNING if report.failed or report.returned else logging.INFO
        if logger.isEnabledFor(level):
            failures = [*map(as_failure, report.failed[:MOST_FAILURES])]
            details = {"handler": handler, "source": source.name, **describe(report, failures)}
            log(level, "%s: %s", handler, _summary(details, report, failures), details=details)


def describe(report: Report, failures: Sequence[Failure]) -> dict[str, Any]:
    """The report as JSON. It contains no body."""
    failed_results = report.failed
    counter = Counter(kind for result in report.results for kind, _ in kinds_of(result.reported))
    counts = {kind.__name__.lower(): counter[kind.__name__] for kind in _ANSWERS}
    return {
        "records": report.size,
        # How many outcomes of each kind there are. A record may have several; "none" counts the records that settled without.
        "outcomes": {**counts, "skipped": counter[SKIPPED], "none": counter[NO_OUTCOME]},
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


def _summary(details: Mapping[str, Any], report: Report, failures: Sequence[Failure]) -> str:
    """Each record once, and then each failure, so it can be found in a log that shows nothing but the text."""
    counter = Counter(tuple(dict.fromkeys([kind for kind, _ in kinds_of(each.reported)])) for each in report.settled)
    words = [
        f"{counter[kinds]} {' and '.join(kinds).lower()}"
        for kinds in sorted(counter, key=_places)
        if NO_OUTCOME not in kinds
    ]
    words += [f"{details[name]} {name}" for name in ("failed", "returned") if details[name]]
    records, left_out = details["records"], details["failures_left_out"]
    remainder = [f"and {left_out} more failures"] if left_out else []
    summary = ", ".join([f"{records} record{'' if records == 1 else 's'}", *words])
    return "; ".join([summary, *map(str, failures), *remainder])


def _places(kinds: Sequence[str]) -> list[int]:
    """In the order in which outcomes are always named."""
    return [
        _KINDS.index(kind) if kind in _KINDS else len(_KINDS) for kind in kinds
    ]  # a subclass of the user's has a name of its own


# --- what is said of a failure ---------------------------------------------------------------------------------------
#
# What is said of a record that failed: whose it is, what happened, and where in the user's code. Nothing of its content.


_LONGEST_REASON = 500
_LONGEST_TRACEBACK = 8000  # characters of its end; twenty of them fit into one line of CloudWatch, which takes 256 KiB


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that must be redelivered. `str()` gives one line for a log, with the traceback below it where that was asked for."""

    record: str
    message: str | None
    source: str | None
    sequence: int | str | None
    parts: tuple[str, ...]
    attempt: int | None
    error: str
    reason: str | None
    where: str | None
    named: str | None  # the message with all that tells it from others, as `onewrite inspect` needs it
    traceback: str | None = None

    def __str__(self) -> str:
        message = "" if self.named is None else f", {self.named}"
        attempt = "" if self.attempt is None else f", attempt {self.attempt}"
        reason = "" if self.reason is None else f" ({self.reason})"
        line = "" if self.where is None else f" at {self.where}"
        trace = "" if self.traceback is None else f"\n{self.traceback}"
        return f"record {self.record}{message}{attempt}: {self.error}{reason}{line}{trace}"

    def as_json(self) -> dict[str, Any]:
        """As the line of a batch carries it in its `extra`."""
        values = {name: value for name, value in asdict(self).items() if name != "traceback" or value is not None}
        del values["named"]  # it is for people
        return values


def failure_of(result: Result, function: object, attempt: int | None, *, with_traceback: bool) -> Failure:
    """What is said of a result that is not settled. A traceback may quote a body in the texts of its exceptions."""
    error, message = result.error, result.message
    cause = result.unsettled if error is None else error  # it must be redelivered
    note = next((note for note in result.unreturned if note.outcome is cause), None)
    line = None if error is None else line_in(error, function)
    if note is not None and note.code is not None:
        line = line_of(note.code, note.line)
    if line is None and message is not None and not (error is None and note is None):
        line = home_of(function)[1]  # No line of the user's is known, although the function was called.
    text = None
    if error is not None and with_traceback:
        text = "".join(traceback.format_exception(error)).rstrip()
        text = text if len(text) <= _LONGEST_TRACEBACK else f"...{text[-_LONGEST_TRACEBACK:]}"
    sequence = None if message is None else message.sequence
    return Failure(
        record=printable(result.record_id),
        message=None if message is None else printable(message.id),
        source=None if message is None else printable(message.source),
        sequence=printable(sequence) if isinstance(sequence, str) else sequence,
        parts=() if message is None else tuple([printable(part) for part in message.parts]),
        attempt=attempt,
        error=printable(type(cause).__name__),
        reason=_reason(result) if note is None else "; ".join(filter(None, ["not returned", _of_step(note.outcome)])),
        where=line,
        named=None if message is None else full_name(message),
        traceback=text,
    )


def line_in(error: BaseException, function: object) -> str | None:
    """The innermost line of the user's own code in the traceback: the file, the line and the function."""
    places: list[tuple[FrameType, int]] = []
    trace = error.__traceback__
    while trace is not None:
        places.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    return innermost(places, function)


def _reason(result: Result) -> str | None:
    """What can be said about an error, or about a step, without quoting any content."""
    error = result.error
    if error is None:
        return _of_step(result.unsettled)
    if (isinstance(error, InvalidMessage) and result.message is None) or isinstance(error, WrongReturn):
        return printable(str(error), _LONGEST_REASON)  # It names an expression or a type, and never what was found.
    try:
        code = cast("Any", error).response["Error"]["Code"]  # as botocore's errors have it
    except Exception:  # Others have none, or something else of that name, which may raise whatever it likes.
        return None
    return printable(code) if isinstance(code, str) else None


def _of_step(answer: Answer | None) -> str | None:
    match answer:
        case Begun():
            return "the function did not finish the step that it began"
        case Busy(until=until):
            return f"another worker has a step open until {_time(until)}"
        case Uncertain(since=since, key=key):
            return f"look up what became of the effect that was begun at {_time(since)} with the key {printable(key)}"
        case Missing():
            return "there is no such entity, and the message that creates it may still come. Where that is an answer, say missing_ok=True"
        case Superseded():
            return "the step was no longer this worker's when it was to be finished"
        case Deferred(expected=number):
            return f"number {number} of its source has not come yet"
        case Rejected():
            return "the write's own condition refused it, and its ledger has nowhere to remember that"
        case _:
            return None


def _time(seconds: float) -> str:
    return moment(min(max(0.0, seconds), LAST_MOMENT))
