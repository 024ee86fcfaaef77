"""The modes of an exploration, and the mode that follows each obstacle. Pure.

An exploration first runs the handler for each trial. It then continues in the fastest mode, which makes three assumptions. Deliveries
share one process and overlap. All deliveries of a message are alike. The handler's behavior depends only on the responses that it
received. If an assumption turns out to be wrong, a trial raises `WrongModeError`, and the search starts again in the mode that
`find_next` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto


class Handling(Enum):
    """What a schedule does with the handler."""

    RUN = auto()  # The handler runs.
    COMPARED = auto()  # The handler runs, and its behavior is compared with the recorded behavior.
    RECALLED = auto()  # The handler runs only if its behavior isn't recorded yet.


class Processes(Enum):
    """The processes in which deliveries run."""

    SHARED = auto()  # one process until a crash, in which deliveries overlap
    IN_TURN = auto()  # one process until a crash, in which deliveries don't overlap
    SEPARATE = auto()  # one process for each delivery


class Deliveries(Enum):
    """The differences between two deliveries of a message that a handler can notice."""

    ALIKE = auto()  # none
    NUMBERED = auto()  # the number of the delivery, for example by Lambda's request ID
    LATER = auto()  # the number of the delivery, and the time since the previous one


@dataclass(frozen=True, slots=True)
class Mode:
    """How the trials of an exploration run."""

    handling: Handling = Handling.RUN
    processes: Processes = Processes.SHARED
    deliveries: Deliveries = Deliveries.ALIKE
    has_new_worlds: bool = False  # each trial begins with a new `world()`, because `observe` reads data outside the stores

    @property
    def is_recording(self) -> bool:
        """Whether the handler's behavior is recorded, which requires that it depends only on the responses that the handler received."""
        return self.handling is not Handling.RUN

    @property
    def is_recalling(self) -> bool:
        return self.handling is Handling.RECALLED

    @property
    def has_own_processes(self) -> bool:
        """Whether each delivery runs in its own process."""
        return self.processes is Processes.SEPARATE

    def separate(self) -> Mode:
        """Return the mode with a process for each delivery. The handler's behavior can then be recalled again."""
        return replace(self, handling=Handling.RECALLED, processes=Processes.SEPARATE)


class Obstacle(Enum):
    """The reason why a trial can't continue in its mode."""

    MEMORY = auto()  # The handler behaved differently after the same responses.
    NAMED_DELIVERY = auto()  # A response depends on the delivery that sent the request, and not only on the store.
    LEASE = auto()  # A delivery encountered another delivery's lease, and the time of a redelivery matters.
    LOCK = auto()  # A delivery waits for a lock that a paused delivery holds.


class WrongModeError(Exception):
    """A trial can't continue in the mode of the exploration."""

    def __init__(self, obstacle: Obstacle) -> None:
        super().__init__(obstacle)
        self.obstacle = obstacle


def find_next(mode: Mode, obstacle: Obstacle, *, can_tell_deliveries_apart: bool) -> Mode | None:
    """Return the mode in which this obstacle doesn't matter, or None if there is none."""
    match obstacle:
        case Obstacle.MEMORY if can_tell_deliveries_apart and mode.deliveries is Deliveries.ALIKE:
            return replace(mode, deliveries=Deliveries.NUMBERED)
        case Obstacle.MEMORY:
            return replace(mode, handling=Handling.RUN)
        case Obstacle.NAMED_DELIVERY:
            return replace(mode, handling=Handling.COMPARED)
        case Obstacle.LEASE:
            return replace(mode, deliveries=Deliveries.LATER)
        case Obstacle.LOCK if mode.processes is Processes.SHARED:
            return replace(mode, handling=Handling.RECALLED, processes=Processes.IN_TURN)
        case Obstacle.LOCK:
            return None
