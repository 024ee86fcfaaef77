"""What the decisions about messages are told, and what they answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from onewrite.batch.report import Result
from onewrite.outcome import Begun, Busy, Superseded, Uncertain
from onewrite.sqs.deciding.lines import Held
from onewrite.sqs.decisions import LONGEST_HIDDEN

Kind: TypeAlias = Literal["settled", "failed", "deferred", "busy", "uncertain", "superseded", "untouched"]


BEAT = 10.0  # seconds after which the worker shows at the latest that it is alive
# Seconds. A worker does its rounds at every beat, so that it is no accident of a busy machine if whatever does the work has not
# stirred for as long as this. Then its health page says so, and what cannot begin goes back to the queue.
SILENCE = 30.0


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """What is decided by the queue."""

    visibility: int
    fifo: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """What is decided by the worker. A message that ends within `grace` seconds after its timeout costs no slot.

    `gather`: for how many seconds the first message of a group waits for others. None: the handler has no groups.
    """

    slots: int
    timeout: float
    grace: float
    most_deferred: int
    stop_when_empty: bool = False
    gather: float | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a message ended, and which message of which source it is. None if its identity failed.

    `wait`: the seconds until the step is free that the message is busy with. Untouched: it was not processed.
    """

    kind: Kind
    source: str | None = None
    sequence: int | str | None = None
    wait: float = 0.0


def ending_of(result: Result | None, clock: Callable[[], float]) -> Ending:
    """`clock` gives epoch seconds. None: the message was not processed."""
    if result is None:
        return Ending("untouched")
    busy, message = result.unsettled, result.message
    # A function may return any number, also one that is none: then the message is tried again soon.
    wait = min(max(0.0, busy.until - clock()), LONGEST_HIDDEN) if isinstance(busy, Busy) else 0.0
    source, sequence = (None, None) if message is None else (message.source, message.sequence)
    return Ending(_kind(result), source, sequence, wait)


def _kind(result: Result) -> Kind:
    if result.error is not None:
        return "failed"
    match result.unsettled:
        case None:
            return "settled"
        case Busy():
            return "busy"
        case Uncertain():
            return "uncertain"
        case Superseded():
            return "superseded"
        case Begun():
            return "failed"
        case _:
            return "deferred"


Why: TypeAlias = Literal[
    "failed", "deferred", "busy", "uncertain", "superseded", "untouched", "overdue", "behind", "lost", "stopping", "stalled"
]


class Return(NamedTuple):
    """A message that is at hand no more although it is not settled, and why. Behind: it stood in a FIFO group behind another one."""

    held: Held
    why: Why


@dataclass(frozen=True, slots=True)
class Hide:
    """Messages of one queue, with the seconds from now for which to hide each."""

    queue: int
    messages: tuple[tuple[Held, int], ...]
    gives_back: bool
