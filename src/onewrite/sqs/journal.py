"""What a worker tells those who operate it: a line for each failure, and counts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from onewrite.batch.handler import Handler
from onewrite.batch.report import Result
from onewrite.metrics import Hook, kinds_of
from onewrite.outcome import Begun, Missing, Superseded, Uncertain

logger = logging.getLogger("onewrite")

SUMMARY = 60.0  # seconds between two lines that sum up


class Journal:
    """`hooks` are called for each message that was processed, like a handler's `on_outcome`."""

    def __init__(self, handler: Handler[Any], hooks: tuple[Hook, ...], clock: Callable[[], float]) -> None:
        self._handler, self._name = handler, handler.name
        self._hooks, self._clock = hooks, clock
        self._summed_up = clock()
        self._said: Counter[str] = Counter()
        self.ends: Counter[str] = Counter()
        self.seconds = 0.0
        self.received = 0
        self.timeouts = 0

    def count(self, results: Iterable[Result | None]) -> None:
        """For the pages and the sums. The crew's lock is held."""
        for result in filter(None, results):
            self.seconds += result.seconds
            for kind, _ in kinds_of(result.reported):
                self.ends[kind] += 1

    def tell(self, results: Iterable[Result | None]) -> None:
        for result in filter(None, results):
            self._tell(result)

    def _tell(self, result: Result) -> None:
        """This never raises: what is done stays done, also if a hook or a log filter of the user's fails."""
        try:
            # Of the others that are not settled, most are in the middle of a row of tries that ends well.
            if result.error is not None or isinstance(result.unsettled, Begun | Missing | Uncertain | Superseded):
                failure = self._handler.failure(result)
                details = {"handler": self._name, "failures": [failure.as_json()]}
                logger.warning("%s: %s", self._name, failure, extra={"onewrite": details})
            for hook in self._hooks:
                hook(result.message, result.reported, result.seconds)
        except BaseException as error:
            logger.warning("%s: a hook or a log filter raised %s", self._name, type(error).__name__)

    def overdue(self, messages: Sequence[str], timeout: float, where: str | None) -> None:
        """All of them are of one call."""
        self.timeouts += len(messages)
        others = f", with {len(messages) - 1} others of its group," if len(messages) > 1 else ""
        logger.warning(
            "%s: message %s%s has not ended %g seconds after it began, and is given back; it stands at %s",
            self._name,
            messages[0],
            others,
            timeout,
            where,
        )

    def sum_up(self, *, last: bool = False) -> None:
        """One line for what has ended since the last one, now and then."""
        now = self._clock()
        if not last and now < self._summed_up + SUMMARY:
            return
        self._summed_up = now
        ends = Counter(self.ends)
        found, self._said = ends - self._said, ends
        if found:
            words = ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))
            logger.info("%s: %s", self._name, words, extra={"onewrite": {"handler": self._name, "outcomes": dict(found)}})
