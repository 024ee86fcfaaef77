"""The reports of a worker to its operators, which are a log line for each failure, and a summary of the outcomes each minute.

Each message that goes back to the queue has a line of level INFO or higher, whose details contain its failure, or `returned`: the number
of messages that the line reports. The metric filter in infra/ counts these lines, like those of the handlers on Lambda.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from logging import DEBUG, ERROR, INFO, WARNING
from typing import Any

from onewrite.batch.handler import Handler
from onewrite.batch.report import Failure, Result
from onewrite.core.log import log, logger
from onewrite.message import full_name, printable
from onewrite.metrics import Hook, list_kinds
from onewrite.outcome import Missing
from onewrite.process.failures import describe_error
from onewrite.sqs.queue import SqsQueue
from onewrite.sqs.state import Reason
from onewrite.sqs.waiting import QueueMessage

SUMMARY = 60.0  # seconds between two summaries in the log
_MAX_NAMED = 20  # messages in one log line

_NOTABLE = (Reason.FAILED, Reason.DEFERRED, Reason.BUSY, Reason.UNCERTAIN, Reason.TAKEN_OVER)


def format_name(message: QueueMessage) -> str:
    """Return the SQS ID of a record, followed by the names of its messages if the identity has read them."""
    names = [full_name(processed_message) for processed_message in message.messages[:_MAX_NAMED]]
    return ", ".join([f"record {printable(message.content['MessageId'])}", *names])


def format_names(members: Sequence[QueueMessage]) -> str:
    """Return the names of several messages."""
    remainder = [f"and {len(members) - _MAX_NAMED} more"] if len(members) > _MAX_NAMED else []
    return "; ".join([*map(format_name, members[:_MAX_NAMED]), *remainder])


class Journal:
    """The log and the counts of a worker. It calls `hook` for each processed message, like a handler's `on_outcome`."""

    def __init__(self, handler: Handler[Any], queue: SqsQueue, hook: Hook | None, clock: Callable[[], float]) -> None:
        self._handler, self._name, self._queue = handler, handler.name, queue
        self._hook, self._clock = hook, clock
        self._summed_up = clock()
        self._logged_ends: Counter[str] = Counter()
        self._ends: Counter[str] = Counter()

    def count(self, results: Iterable[Result | None]) -> None:
        """Count the results, for the summaries. The caller holds the threads' lock."""
        for result in filter(None, results):
            for kind, _ in list_kinds(result.reported):
                self._ends[kind] += 1

    def log_results(self, members: Sequence[QueueMessage], results: Iterable[Result | None]) -> None:
        """Log the failures among the results, and call the hook. A result of None belongs to an unprocessed message."""
        for message, result in zip(members, results, strict=True):
            if result is not None:
                self._log_result(message, result)
            message.messages = ()

    def _log_result(self, message: QueueMessage, result: Result) -> None:
        """Log one result, and call the hook. Never raise an Exception, because a settled message stays settled even if the user's hook fails."""
        try:
            if not result.settled:
                message.failure = self._handler.failure(result)
                # After most other failures, a later attempt succeeds. If none does, `log_return` reports the last failure.
                needs_help = message.is_returned or isinstance(result.unsettled, Missing)
                self._log(WARNING if needs_help else DEBUG, str(message.failure), message.failure)
            if self._hook is not None:
                self._hook(result.message, result.reported, result.seconds)
        except Exception as error:
            text = "%s: on_outcome raised %s. The message is unaffected, but its metrics are incomplete"
            log(WARNING, text, self._name, describe_error(error, self._hook))

    def log_returns(self, returns: Iterable[tuple[QueueMessage, Reason]]) -> None:
        """Log that unsettled messages left the worker. So the log names each message that ends in a dead-letter queue.

        A message that was never processed is named by its SQS ID only. Messages without a failure share a line for each reason.
        """
        shared_lines: dict[Reason, list[QueueMessage]] = {}
        for message, reason in returns:
            message.is_returned = True  # a failure from now on is logged as a warning, because nothing else reports it
            if message.failure or self._is_last_delivery(message):
                self._log_return(message, reason)
            elif reason is not Reason.OVERDUE:  # `log_overdue` has reported it
                shared_lines.setdefault(reason, []).append(message)
        for reason, members in shared_lines.items():
            verb = f"each {reason.value}" if len(members) > 1 else f"it {reason.value}"
            self._log(INFO, f"{format_names(members)}; {verb}.", returned=len(members))

    def _log_return(self, message: QueueMessage, reason: Reason) -> None:
        """Log the return of one message: its failure, if it was processed, and whether this was its last delivery."""
        is_last = self._is_last_delivery(message)
        ending = ""
        if is_last:
            target = printable(self._queue.dead_letter_queue)
            limit = self._queue.max_receives
            ending = f" This was the last delivery, {message.receives} of {limit}: the queue moves the message to {target}."
        returned = {"returned": 1} if message.failure is None and reason is not Reason.OVERDUE else {}
        text = f"{message.failure or format_name(message)}; it {reason.value}.{ending}"
        level = WARNING if is_last or reason in _NOTABLE else INFO
        self._log(level, text, message.failure, last_delivery=is_last, **returned)

    def _is_last_delivery(self, message: QueueMessage) -> bool:
        limit = self._queue.max_receives
        return limit is not None and message.receives >= limit

    def log_overdue(self, members: Sequence[QueueMessage], timeout: float, place: str | None) -> None:
        """Log that a load hasn't ended in time."""
        text = f"not finished after {timeout:g} seconds, and returned to the queue, at {place}: {format_names(members)}"
        self._log(WARNING, text, returned=len(members))

    def log_unfinished(self, members: Sequence[QueueMessage]) -> None:
        """Log the messages that the worker still has when it ends."""
        text = f"the worker stopped before these messages finished, and they are redelivered: {format_names(members)}"
        self._log(ERROR, text, returned=len(members))

    def warn(self, text: str) -> None:
        self._log(WARNING, text)

    def _log(self, level: int, text: str, failure: Failure | None = None, **details: object) -> None:
        if logger.isEnabledFor(level):
            failures = {} if failure is None else {"failures": [failure.as_json()]}
            log(level, "%s: %s", self._name, text, details={"handler": self._name, **failures, **details})

    def sum_up(self, *, is_last: bool = False) -> None:
        """Log the outcomes since the last summary, once a minute."""
        now = self._clock()
        if not is_last and now < self._summed_up + SUMMARY:
            return
        self._summed_up = now
        ends = Counter(self._ends)
        new_ends, self._logged_ends = ends - self._logged_ends, ends
        if new_ends:
            words = ", ".join(f"{count} {kind}" for kind, count in sorted(new_ends.items()))
            log(INFO, "%s: %s", self._name, words, details={"handler": self._name, "outcomes": dict(new_ends)})
