"""What may happen next, within the bounds. Pure.

A schedule is a sequence of steps. In a step one delivery sends its next request, which may meet a fault. A delivery starts with
its first step: what it does before its first request belongs to that step, and what it does after a request to the step of
that request. Between two steps every delivery stands still.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, NamedTuple, Self, TypeAlias

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.traffic import Request, commute

Reorder: TypeAlias = Literal[True, False, "within_source"]

MOST_DELIVERIES = 26  # of a message: a token has a letter for each


class Fault(StrEnum):
    """What a request may meet. The letters stand in tokens."""

    NONE = ""
    CRASH_BEFORE = "B"  # the process dies, and the request was not sent
    CRASH_AFTER = "A"  # the process dies, and the request has taken effect
    LOST = "L"  # the request has taken effect, but the driver raises
    RETRIED = "R"  # the answer is lost, and the driver sends the request again

    @property
    def kills(self) -> bool:
        return self in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)


class Delivery(NamedTuple):
    """One call of the handler: which message, and which delivery of it, both from 0."""

    message: int
    number: int


class Step(NamedTuple):
    """One delivery sends its next request."""

    delivery: Delivery
    fault: Fault = Fault.NONE


Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which schedules there are."""

    deliveries: int = 2
    crashes: int = 1
    reorder: Reorder = True
    concurrency: int = 2

    def __post_init__(self) -> None:
        _check_count("deliveries", self.deliveries, 1)
        _check_count("crashes", self.crashes, 0)
        _check_count("concurrency", self.concurrency, 1)
        if self.deliveries > MOST_DELIVERIES:
            raise ConfigurationError(f"deliveries={self.deliveries}: {MOST_DELIVERIES} of a message are the most.")
        if self.reorder is not True and self.reorder is not False and self.reorder != "within_source":
            raise ConfigurationError(f'reorder={self.reorder!r}: give True, False or "within_source".')

    def predecessors(self, sources: Sequence[object]) -> tuple[tuple[int, ...], ...]:
        """For each message those that must have been settled before it is delivered at all: that is what order means."""
        if self.reorder is True:
            return tuple(() for _ in sources)
        everywhere = self.reorder is False
        return tuple(
            tuple(earlier for earlier in range(later) if everywhere or sources[earlier] == source)
            for later, source in enumerate(sources)
        )


class Taken(NamedTuple):
    """What a step was: its request (None: the delivery ended without any), and how it left its delivery."""

    step: Step
    request: Request | None
    key: Hashable  # equal for requests that are the same
    ended: bool
    settled: bool


@dataclass(frozen=True, slots=True)
class Board:
    """Where a schedule stands: how many deliveries of each message have started, which are open, what is settled, in order."""

    bounds: Bounds
    predecessors: tuple[tuple[int, ...], ...]
    started: tuple[int, ...]
    settled: tuple[int, ...] = ()
    open: tuple[Delivery, ...] = ()
    faults: int = 0

    @classmethod
    def of(cls, bounds: Bounds, sources: Sequence[object]) -> Self:
        return cls(bounds, bounds.predecessors(sources), (0,) * len(sources))

    def able(self) -> list[Delivery]:
        """The deliveries that may take the next step, those of the first message first."""
        starting = [
            delivery
            for message, number in enumerate(self.started)
            if number < self.bounds.deliveries and self._may_start(delivery := Delivery(message, number))
        ]
        return sorted([*self.open, *starting])

    def allows(self, step: Step) -> bool:
        if step.fault and self.faults >= self.bounds.crashes:
            return False
        message, number = step.delivery
        if step.delivery in self.open:
            return True
        return number == self.started[message] < self.bounds.deliveries and self._may_start(step.delivery)

    def after(self, taken: Taken) -> Board:
        delivery, fault = taken.step
        still_open = [other for other in self.open if other != delivery]
        started = self.started
        if delivery not in self.open:
            started = (*started[: delivery.message], delivery.number + 1, *started[delivery.message + 1 :])
        newly_settled = taken.settled and delivery.message not in self.settled
        return replace(
            self,
            started=started,
            settled=(*self.settled, delivery.message) if newly_settled else self.settled,
            open=tuple(still_open if taken.ended else [*still_open, delivery]),
            faults=self.faults + bool(fault),
        )

    @property
    def is_legal_end(self) -> bool:
        """Nothing is under way and every message has been settled: a broker may have nothing left to deliver."""
        return not self.open and len(self.settled) == len(self.started)

    def _may_start(self, delivery: Delivery) -> bool:
        if len(self.open) >= self.bounds.concurrency:
            return False
        return delivery.number > 0 or set(self.predecessors[delivery.message]) <= set(self.settled)


def faults_for(request: Request | None) -> tuple[Fault, ...]:
    """The faults that can make a difference.

    A process that dies after a read, or a write of no entity, leaves what one leaves that dies before it. A second answer is
    seen where the driver itself sends again without asking the server to tell the two apart: botocore does, pymongo's
    retryable writes do not.
    """
    if request is None:
        return ()
    if not request.writes or request.keys == ():
        return (Fault.CRASH_BEFORE, Fault.LOST)
    every = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST)
    return (*every, Fault.RETRIED) if is_dynamodb(request) else every


def is_dynamodb(request: Request) -> bool:
    return request.method[:1].isupper()  # an API's operation; pymongo's methods are in small letters


def independent(board: Board, one: Taken, other: Taken) -> bool:
    """May the two, both possible now, be taken in either order with the same result?

    They are of different deliveries, their requests commute, and neither takes the other's turn away: a start may use up the
    last free place, a fault the last of the budget. A delivery that made no request decided from what the handler keeps in
    memory, which any step may have changed.
    """
    if one.step.delivery == other.step.delivery or one.request is None or other.request is None:
        return False
    if not (board.after(one).allows(other.step) and board.after(other).allows(one.step)):
        return False
    unsent = Fault.CRASH_BEFORE in (one.step.fault, other.step.fault)
    return unsent or commute(one.request, other.request)


def _check_count(name: str, value: object, least: int) -> None:
    if type(value) is not int or value < least:
        raise ConfigurationError(f"{name}={value!r}: give an int from {least} upwards.")
