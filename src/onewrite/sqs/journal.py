"""What a worker tells those who operate it: a line for each failure, and counts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from onewrite.batch.handler import Handler
from onewrite.batch.report import Failure, Result
from onewrite.message import named, printable
from onewrite.metrics import Hook, kinds_of
from onewrite.outcome import Begun, Missing, Superseded, Uncertain
from onewrite.sqs.deciding.lines import Held
from onewrite.sqs.deciding.terms import Why

logger = logging.getLogger("onewrite")

SUMMARY = 60.0  # seconds between two lines that sum up
_MOST_NAMED = 20  # messages in one line

_NOTABLE: tuple[Why, ...] = ("deferred", "busy")  # of which nothing else is said
_WHY: dict[Why, str] = {
    "failed": "it comes again when its visibility timeout ends",
    "deferred": "it goes back to the queue, because its source makes no progress or too many wait already",
    "busy": "it goes back to the queue until the step's lease is over, because that is long or too many wait already",
    "uncertain": "it goes back to the queue for a while",
    "superseded": "it goes back to the queue for a moment",
    "untouched": "it goes back to the queue without having been processed",
    "overdue": "it has gone back to the queue, because it did not end in time",
    "behind": "it goes back to the queue, because it stands in a group behind a message that does",
    "lost": "SQS has let it go, and it comes again",
    "stopping": "it goes back to the queue, because the worker stops",
    "stalled": "it goes back to the queue, because no message can begin here",
}


def name_of(held: Held) -> str:
    """A message at hand. Its own name is known only once its identity has been read."""
    found = [named(each) for each in held.messages[:_MOST_NAMED]]
    return ", ".join([f"record {printable(held.message['MessageId'])}", *found])


def names_of(members: Sequence[Held]) -> str:
    """Several of them."""
    more = [f"and {len(members) - _MOST_NAMED} more"] if len(members) > _MOST_NAMED else []
    return "; ".join([*map(name_of, members[:_MOST_NAMED]), *more])


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

    def tell(self, members: Sequence[Held], results: Iterable[Result | None]) -> None:
        """What became of each of them. None was not processed."""
        for held, result in zip(members, results, strict=True):
            if result is not None:
                self._tell(held, result)
            held.messages = ()

    def _tell(self, held: Held, result: Result) -> None:
        """This never raises: what is done stays done, also if a hook or a log filter of the user's fails."""
        try:
            if not result.settled:
                held.failure = self._handler.failure(result)
                # Of the others, most are in the middle of a row of tries that ends well. If it does not, `returned` tells of it.
                needs_help = result.error is not None or isinstance(
                    result.unsettled, Begun | Missing | Uncertain | Superseded
                )
                self._log(logging.WARNING if needs_help else logging.DEBUG, str(held.failure), held.failure)
            for hook in self._hooks:
                hook(result.message, result.reported, result.seconds)
        except BaseException as error:
            logger.warning("%s: a hook or a log filter raised %s", self._name, type(error).__name__)

    def returned(self, held: Held, why: Why, most: int | None, dead_letter_queue: str) -> None:
        """It is at hand no more, and not settled. `most`: how often the queue delivers a message, if that is known.

        So each message that ends in a dead-letter queue has a line that names it. What was never processed has no name but SQS's own.
        """
        last = most is not None and held.receives >= most
        level = logging.WARNING if last or why in _NOTABLE else logging.INFO if held.failure else logging.DEBUG
        end = (
            f" This was delivery {held.receives} of {most}, the last one: the queue moves it to {printable(dead_letter_queue)}."
            if last
            else ""
        )
        self._log(level, f"{held.failure or name_of(held)}; {_WHY[why]}.{end}", held.failure, last_delivery=last)

    def overdue(self, members: Sequence[Held], timeout: float, where: str | None) -> None:
        """All of them are of one call."""
        self.timeouts += len(members)
        if len(members) == 1:
            text = f"{name_of(members[0])} has not ended {timeout:g} seconds after it began, and is given back; it stands at {where}"
        else:
            text = (
                f"a group of {len(members)} messages has not ended {timeout:g} seconds after it began, and is given back; it stands at {where}: "
                f"{names_of(members)}"
            )
        self._log(logging.WARNING, text)

    def warn(self, text: str) -> None:
        self._log(logging.WARNING, text)

    def _log(self, level: int, text: str, failure: Failure | None = None, **more: object) -> None:
        if logger.isEnabledFor(level):
            failures = {} if failure is None else {"failures": [failure.as_json()]}
            logger.log(level, "%s: %s", self._name, text, extra={"onewrite": {"handler": self._name, **failures, **more}})

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
