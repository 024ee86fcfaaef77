"""What became of a batch: as a value."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from onewrite.batch.source import Response
from onewrite.errors import OnewriteError
from onewrite.identity import Skip
from onewrite.message import Message
from onewrite.metrics import Reported
from onewrite.outcome import Answer, Begun, Busy, Uncertain

logger = logging.getLogger("onewrite")


class EveryRecordFailed(OnewriteError):
    """No record of the batch was settled."""


class NotSettled(OnewriteError):
    """A record was not settled, and its source learns of it only by this error: Lambda invokes the function again."""


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

    @property
    def settled(self) -> bool:
        """Whether the broker may forget it."""
        return self.error is None and all(outcome.settled for outcome in self.outcomes)

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
        return tuple(result for result in self.results if result.settled)

    @property
    def failed(self) -> tuple[Result, ...]:
        """What was processed and must come again."""
        return tuple(result for result in self.results if not result.settled)
