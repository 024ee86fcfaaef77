"""The reports of a worker to its operators: a line of the log for each failure, and a summary of the outcomes each minute."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from logging import DEBUG, INFO, WARNING
from typing import Any

from onewrite.batch.handler import Handler
from onewrite.batch.report import Failure, Result
from onewrite.core.log import log, logger
from onewrite.message import full_name, printable
from onewrite.metrics import Hook, list_kinds
from onewrite.outcome import Missing
from onewrite.sqs.queue import SqsQueue
from onewrite.sqs.state import Reason
from onewrite.sqs.waiting import QueueMessage

SUMMARY = 60.0  # seconds between two summaries in the log
_MAX_NAMED = 20  # messages in one log line

_NOTABLE = (Reason.FAILED, Reason.DEFERRED, Reason.BUSY, Reason.UNCERTAIN, Reason.SUPERSEDED)


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
        """Log one result, and call the hook. Never raise an Exception: a settled message stays settled, even if the user's hook fails."""
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
            log(WARNING, text, self._name, type(error).__name__)

    def log_return(self, message: QueueMessage, reason: Reason) -> None:
        """Log that an unsettled message left the worker, so that the log names each message that ends in a dead-letter queue.

        A message that was never processed is named by its SQS ID only.
        """
        message.is_returned = True  # a failure from now on is logged as a warning, because nothing else reports it
        ending = ""
        receives = message.receives
        limit = self._queue.max_receives
        if limit is not None and receives >= limit:
            target = printable(self._queue.dead_letter_queue)
            ending = f" This was the last delivery, {receives} of {limit}: the queue moves the message to {target}."
        level = INFO if message.failure else DEBUG
        if ending or reason in _NOTABLE:
            level = WARNING
        text = f"{message.failure or format_name(message)}; {reason.value}.{ending}"
        self._log(level, text, message.failure, last_delivery=bool(ending))

    def log_overdue(self, members: Sequence[QueueMessage], timeout: float, place: str | None) -> None:
        """Log that a load hasn't ended in time."""
        self.warn(f"not finished after {timeout:g} seconds, and returned to the queue, at {place}: {format_names(members)}")

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
