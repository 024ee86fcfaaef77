"""Which steps a schedule may take within its bounds. Pure.

A schedule is a sequence of steps. In each step, one delivery sends its next request, and a fault may befall that request.
The first step of a delivery also starts it: what the handler does before its first request belongs to that step, and what
it does after a request belongs to the step of that request. Between two steps every delivery stands still.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal, NamedTuple, Self, TypeAlias

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.traffic import Request, commute, is_dynamodb
from onewrite.testing.taps.transactions import ABORT

Reorder: TypeAlias = Literal[True, False, "within_source"]

MOST_DELIVERIES = 26  # of a message: a replay code has one letter for each


class Fault(StrEnum):
    """What may befall a request. The values are the letters that replay codes use."""

    NONE = ""
    CRASH_BEFORE = "B"  # the process dies before it sends the request
    CRASH_AFTER = "A"  # the request takes effect, and then the process dies
    LOST = "L"  # the request takes effect, but its answer is lost, and the driver raises
    RETRIED = "R"  # the request takes effect, its answer is lost, and the driver sends it again

    @property
    def kills(self) -> bool:
        return self in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER)


class Delivery(NamedTuple):
    """One call of the handler: the number of the message, and which of its deliveries this is. Both count from 0."""

    message: int
    number: int


class Step(NamedTuple):
    """One delivery sends its next request, and the fault befalls it."""

    delivery: Delivery
    fault: Fault = Fault.NONE


Steps: TypeAlias = tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of the schedules: `explore` says what each of them means."""

    deliveries: int = 2
    crashes: int = 1
    reorder: Reorder = True
    concurrency: int = 2

    def __post_init__(self) -> None:
        check_count("deliveries", self.deliveries, 1)
        check_count("crashes", self.crashes, 0)
        check_count("concurrency", self.concurrency, 1)
        if self.deliveries > MOST_DELIVERIES:
            raise ConfigurationError(f"deliveries={self.deliveries}: a message has {MOST_DELIVERIES} deliveries at most.")
        if self.reorder is not True and self.reorder is not False and self.reorder != "within_source":
            raise ConfigurationError(f'reorder={self.reorder!r}: give True, False or "within_source".')

    def predecessors(self, sources: Sequence[object]) -> tuple[tuple[int, ...], ...]:
        """For each message, the messages that must be settled before it is first delivered."""
        if self.reorder is True:
            return tuple(() for _ in sources)
        everywhere = self.reorder is False
        return tuple(
            tuple(earlier for earlier in range(later) if everywhere or sources[earlier] == source)
            for later, source in enumerate(sources)
        )


class TakenStep(NamedTuple):
    """A step that was taken: the request that it sent, and how it left its delivery."""

    step: Step
    request: Request | None  # None: the delivery ended without a request
    key: Hashable  # equal for requests that are the same
    ended: bool
    settled: bool
    reaches_others: bool = (
        False  # it did more than its request says: it ended a transaction, or tokens were forgotten after it
    )


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a schedule has come: it decides which steps may come next."""

    bounds: Bounds
    predecessors: tuple[tuple[int, ...], ...]
    started: tuple[int, ...]  # for each message, how many of its deliveries have started
    settled: tuple[int, ...] = ()  # the messages that are settled, in the order in which they were
    open: tuple[Delivery, ...] = ()  # the deliveries that have started and not ended
    faults: int = 0

    @classmethod
    def at_start(cls, bounds: Bounds, sources: Sequence[object]) -> Self:
        """`sources` has the source of each message."""
        return cls(bounds, bounds.predecessors(sources), (0,) * len(sources))

    def able(self) -> list[Delivery]:
        """The deliveries that may take the next step, sorted by message."""
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

    def after(self, taken: TakenStep) -> Progress:
        """How far the schedule has come after this step."""
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
        """Is nothing under way and every message settled? Then a broker may have nothing left to deliver."""
        return not self.open and len(self.settled) == len(self.started)

    def _may_start(self, delivery: Delivery) -> bool:
        if len(self.open) >= self.bounds.concurrency:
            return False
        return delivery.number > 0 or set(self.predecessors[delivery.message]) <= set(self.settled)


def faults_for(request: Request | None) -> tuple[Fault, ...]:
    """The faults that make a difference to this request.

    A process that dies after a read, after a write that touches no entity, or before the commit of what it has written,
    leaves the same behind as one that dies before it. The handler sees a second answer only where the driver sends the request again without telling the server
    that it is the same request. botocore does that; the retryable writes of pymongo do not.
    """
    if request is None:
        return ()
    if request.method == ABORT:
        return (
            Fault.CRASH_BEFORE,
        )  # pymongo hides what comes of it, and the server aborts what a dead process has left open
    if not request.writes or request.keys == () or request.is_uncommitted:
        return (Fault.CRASH_BEFORE, Fault.LOST)
    every = (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST)
    return (*every, Fault.RETRIED) if is_dynamodb(request) else every


def independent(progress: Progress, one: TakenStep, other: TakenStep) -> bool:
    """May these two steps, both of which are possible now, be taken in either order with the same result?

    They may if they are of different deliveries, their requests commute, and neither makes the other impossible: the start
    of a delivery may use up the concurrency, and a fault may use up the faults. A delivery that ends without a request has
    decided by what the handler keeps in memory, and any other step may change that, so it is never independent.
    """
    if one.step.delivery == other.step.delivery or one.request is None or other.request is None:
        return False
    if one.reaches_others or other.reaches_others:
        return False
    if not (progress.after(one).allows(other.step) and progress.after(other).allows(one.step)):
        return False
    one_is_not_sent = Fault.CRASH_BEFORE in (one.step.fault, other.step.fault)
    return one_is_not_sent or commute(one.request, other.request)


def check_count(name: str, value: object, least: int) -> None:
    """Raise unless the value of this argument is an int that is large enough."""
    if type(value) is not int or value < least:
        raise ConfigurationError(f"{name}={value!r}: give an int from {least} upwards.")
