"""What is said of a record that failed: whose it is, what happened, and where in the user's code. Nothing of its content."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, cast

from onewrite.batch.function import WrongReturn, home_of
from onewrite.batch.report import Result
from onewrite.batch.users_code import innermost
from onewrite.errors import InvalidMessage
from onewrite.event import moment
from onewrite.message import named, printable
from onewrite.outcome import Answer, Begun, Busy, Deferred, Missing, Rejected, Superseded, Uncertain

_LONGEST_REASON = 500
_LAST_MOMENT = 253_402_300_799.0  # the end of the year 9999, after which Python has no dates
_LONGEST_TRACEBACK = 8000  # characters of its end; twenty of them fit into one line of CloudWatch, which takes 256 KiB


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that must come again. `str()` gives one line for a log, with the traceback below it where that was asked for."""

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
        where = "" if self.where is None else f" at {self.where}"
        below = "" if self.traceback is None else f"\n{self.traceback}"
        return f"record {self.record}{message}{attempt}: {self.error}{reason}{where}{below}"

    def as_json(self) -> dict[str, Any]:
        """As the line of a batch carries it in its `extra`."""
        found = {name: value for name, value in asdict(self).items() if name != "traceback" or value is not None}
        del found["named"]  # it is for people
        return found


def failure_of(result: Result, each: object, attempt: int | None, *, with_traceback: bool) -> Failure:
    """What is said of a result that is not settled. A traceback may quote a body in the texts of its exceptions."""
    error, message = result.error, result.message
    sequence = None if message is None else message.sequence
    return Failure(
        record=printable(result.record_id),
        message=None if message is None else printable(message.id),
        source=None if message is None else printable(message.source),
        sequence=printable(sequence) if isinstance(sequence, str) else sequence,
        parts=() if message is None else tuple([printable(part) for part in message.parts]),
        attempt=attempt,
        error=printable(type(_unsettled(result)).__name__),
        reason=_reason(result),
        where=None if error is None else _where(error, each, in_function=message is not None),
        named=None if message is None else named(message),
        traceback=_formatted(error) if error is not None and with_traceback else None,
    )


def line_in(error: BaseException, each: object) -> str | None:
    """The innermost line of the user's own code in the traceback: the file, the line and the function."""
    return innermost(((trace.tb_frame, trace.tb_lineno) for trace in _traces(error.__traceback__)), each)


def _where(error: BaseException, each: object, *, in_function: bool) -> str | None:
    """If the traceback has no line of the user's, the function itself is named, unless it was not called."""
    found = line_in(error, each)
    return found if found is not None or not in_function else home_of(each)[1]


def _traces(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _unsettled(result: Result) -> BaseException | Answer | None:
    """Why a record that failed must come again: its error, or one of its outcomes that is not settled."""
    return result.error if result.error is not None else result.unsettled


def _reason(result: Result) -> str | None:
    """What can be said about an error, or about a step, without quoting any content."""
    error = result.error
    if error is None:
        return _of_step(result.unsettled)
    if (isinstance(error, InvalidMessage) and result.message is None) or isinstance(error, WrongReturn):
        return printable(str(error), _LONGEST_REASON)  # It names an expression or a type, and never what was found.
    response = getattr(error, "response", None)  # as botocore's errors have
    details = cast("Mapping[str, Any]", response).get("Error") if isinstance(response, Mapping) else None
    code = cast("Mapping[str, Any]", details).get("Code") if isinstance(details, Mapping) else None
    return printable(code) if isinstance(code, str) else None


def _of_step(answer: Answer | None) -> str | None:
    match answer:
        case Begun():
            return "the function returned it, and did not finish the step that it began"
        case Busy(until=until):
            return f"another worker has a step open until {_time(until)}"
        case Uncertain(since=since, key=key):
            return f"look up what became of the effect that was begun at {_time(since)} with the key {printable(key)}"
        case Missing():
            return "there is no such entity, and the message that creates it may still come. Where that is an answer, say missing_ok=True"
        case Superseded():
            return "the step was no longer this worker's when it was to be finished"
        case Deferred(expected=expected):
            return f"number {expected} of its source has not come yet"
        case Rejected():
            return "the write's own condition refused it, and its ledger has nowhere to remember that"
        case _:
            return None


def _time(seconds: float) -> str:
    return moment(min(max(0.0, seconds), _LAST_MOMENT))


def _formatted(error: BaseException) -> str:
    text = "".join(traceback.format_exception(error)).rstrip()
    return text if len(text) <= _LONGEST_TRACEBACK else f"...{text[-_LONGEST_TRACEBACK:]}"
