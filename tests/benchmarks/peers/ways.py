"""What the comparison is made of: ways to handle messages that come at least once, and what was measured of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from onewrite import Message
from tests.benchmarks.peers.bills import Bill

BATCH_SIZE = 10
"""How many messages a batch is given at once."""
INSTALL = "not installed: pip install --group benchmarks"

Deliver = Callable[[Sequence[Message], str], object]
"""Handles these messages, all of them of the entity of this name. Outcomes that it returns are checked."""


class DeliveryFailedError(Exception):
    """A way did not settle its message."""


@dataclass(frozen=True, slots=True)
class Way:
    """Without a guard, a message has an effect each time it is delivered. `batch` is how many messages it takes at once."""

    name: str
    deliver: Deliver
    ours: bool = False
    guarded: bool = True
    batch: int = 1


@dataclass(frozen=True, slots=True)
class Unmeasured:
    """A way without numbers: it cannot be tried here, or it went wrong."""

    name: str
    why: str


class Proxy(Protocol):
    port: int

    def take(self) -> Bill: ...


class Engine(Protocol):
    """A server, and what is done on it."""

    name: str
    program: str
    port: int

    def ways(self, port: int, stack: ExitStack) -> list[Way | Unmeasured]:
        """All that compete, the unguarded one first. What they open on this port, the stack closes."""
        ...

    def create(self, entities: Iterable[str], text: str = "") -> None: ...

    def effects(self, entities: Iterable[str]) -> int:
        """How often the business write has happened to them."""
        ...

    def proxy(self, stack: ExitStack) -> Proxy: ...


class Cost(NamedTuple):
    """Of one message, in seconds: of the clock, and of this process's processor time."""

    seconds: float
    cpu: float


@dataclass(frozen=True, slots=True)
class Delivery:
    """What one delivery costs: on loopback and further away, and for a small and for a large entity."""

    near: Cost
    far: Cost
    small: Bill
    large: Bill


@dataclass(frozen=True, slots=True)
class Line:
    """What was measured of one way."""

    name: str
    ours: bool
    fresh: Delivery
    again: Delivery
    effects: float  # of a message that was delivered twice


Result = Line | Unmeasured
