"""A handler that takes the messages of each source in order, in several threads at a time."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import Any

from onewrite import Applied, Deferred, Message, Outcome

SOURCES, MESSAGES = 10, 100


def shuffle(seed: int) -> list[str]:
    """The bodies of 1,000 messages of ten sources, in any order."""
    names = [f"{source}-{number}" for source in range(SOURCES) for number in range(1, MESSAGES + 1)]
    Random(seed).shuffle(names)
    return names


def identity(record: Any) -> Message:
    source, _, number = record["body"].partition("-")
    return Message(record["body"], source=source, sequence=int(number))


class InOrder:
    """Applies what comes next in its source, and defers the rest. `last` is how far each source has come."""

    def __init__(self) -> None:
        self.last: Counter[str] = Counter()
        self._lock = threading.Lock()

    def __call__(self, message: Message) -> Outcome:
        assert isinstance(message.sequence, int)
        with self._lock:
            if message.sequence != self.last[message.source] + 1:
                return Deferred(message, self.last[message.source] + 1)
            self.last[message.source] += 1
        return Applied(message)
