"""What the decisions about messages are told, and what they answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onewrite.sqs.deciding.lines import Held


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """What is decided by the queue."""

    visibility: int
    fifo: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """What is decided by the worker. A message that ends within `grace` seconds after its timeout costs no slot."""

    slots: int
    timeout: float
    grace: float
    most_deferred: int
    stop_when_empty: bool = False


@dataclass(frozen=True, slots=True)
class Ending:
    """How a message ended, and which message of which source it is. None if its identity failed."""

    kind: Literal["settled", "failed", "deferred"]
    source: str | None = None
    sequence: int | str | None = None


@dataclass(frozen=True, slots=True)
class Hide:
    """Messages of one queue, with the seconds from now for which to hide each."""

    queue: int
    messages: tuple[tuple[Held, int], ...]
    gives_back: bool
