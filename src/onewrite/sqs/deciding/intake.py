"""When a queue is asked for messages, and for how many. One `Intake` a queue; it knows no clock, no thread and no address."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, inf

MOST_MESSAGES = 10  # the most that SQS gives in one request
MOST_REQUESTS = 10  # for messages, of one queue at a time
_FORGET = 1.02  # how fast the least is forgotten: it doubles within 35 answers, if the way has become longer
_WEIGHT = 0.1  # of the last answer, in the mean of them all
_LEAST_PAUSE = 0.1  # seconds from one request to the next, if it fails, or brings nothing and does not wait for messages
_LONGEST_PAUSE = 20  # seconds between two requests that fail


@dataclass(frozen=True, slots=True)
class Receive:
    """A request for messages. `alone`: nothing was at hand when it was made, so that an answer without messages says a lot."""

    queue: int
    number: int
    alone: bool


@dataclass(frozen=True, slots=True)
class Span:
    """When a request began and ended, and how many seconds of it the processor worked. The rest is the way to SQS and back."""

    began: float
    ended: float
    worked: float


class Intake:
    """How many requests for messages may be under way at a time follows the answers.

    One more after each that brought as many messages as it asked for, and a single one after an answer without messages: an
    empty queue is asked by one request that waits. Never are there more than keep one processor busy, because Python runs one
    thread at a time, and further ones would only be in its way.
    """

    __slots__ = ("_backoff", "_failures", "_least", "_under_way", "_worked", "allowed", "is_empty", "reserved", "resumes")

    def __init__(self, backoff: Callable[[int], float]) -> None:
        self._backoff = backoff
        self.allowed = 1
        self._under_way = 0
        self._failures = 0
        self._least = inf  # seconds that a request takes if no other thread is in its way
        self._worked = 0.0  # seconds of the processor in it
        self.reserved = 0  # messages that the requests under way may bring
        self.resumes = 0.0  # when the pause after a failure ends
        self.is_empty = False

    def may_ask(self, now: float) -> bool:
        return self._under_way < self.allowed and now >= self.resumes

    def ask(self, request: Receive) -> None:
        self._under_way += 1
        self.reserved += request.number

    def answered(self, request: Receive, messages: int, span: Span) -> None:
        self._end(request)
        self._failures = 0
        if not messages:
            self.allowed = 1
            self.is_empty = request.alone
            self.resumes = max(self.resumes, span.began + _LEAST_PAUSE)
        elif messages == request.number:
            self._least = min(span.ended - span.began, self._least * _FORGET)
            self._worked = span.worked if not self._worked else self._worked + (span.worked - self._worked) * _WEIGHT
            self.allowed = min(self.allowed + 1, self._most_useful())

    def _most_useful(self) -> int:
        """Each request for messages is followed by one that deletes them, and takes the processor for about as long."""
        if 2 * self._worked * MOST_REQUESTS <= self._least:
            return MOST_REQUESTS
        return max(1, ceil(self._least / (2 * self._worked)))

    def failed(self, request: Receive, now: float) -> None:
        self._end(request)
        self.allowed = 1
        self._failures += 1
        self.resumes = now + min(max(_LEAST_PAUSE, self._backoff(self._failures)), _LONGEST_PAUSE)

    def _end(self, request: Receive) -> None:
        self._under_way -= 1
        self.reserved -= request.number
