"""Which of the messages at hand is begun next. Nothing here knows a clock, a thread or an address.

- The queues take turns, so that a busy one holds up none of the others.
- A message of a standard queue may begin at once; `group_lines` is for handlers with `group_by`. Of a message group of a FIFO queue one message is under way at a time, in
  the order in which they came; groups do not wait for one another.
- A group ends with its first failure: the rest of it leaves the lines together, and comes again from SQS in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf
from typing import Any

from onewrite.batch.report import Failure
from onewrite.message import Message
from onewrite.sqs_message import Received


@dataclass(slots=True, eq=False)
class Held:
    """A message at hand.

    `since` is when the request began that brought it: SQS has hidden it since then or since later, and hides it for 12 hours in
    all. `hidden_until` counts from the answer, because a request may wait for longer than a message is hidden.
    """

    message: Received
    queue: int
    group: str | None
    since: float
    hidden_until: float
    progresses: int = 0  # that all sources had made when it began
    tries: int = 0  # that ended as deferred, since its source last made progress
    deferred_since: float = 0.0  # when the first of these tries ended
    lost: bool = False  # SQS no longer takes it for received, so it comes again whatever becomes of it here
    under_way: bool = False
    messages: tuple[Message, ...] = ()  # what the identity has found in it, while it is under way
    failure: Failure | None = None  # what is said of its last try, which did not settle it
    key: Hashable = None  # its group, if the handler has `group_by`
    read: Any = None  # what the handler has read of it, until it is first processed

    @property
    def handle(self) -> str:
        return self.message["ReceiptHandle"]  # type: ignore[no-any-return]  # the client has no types

    @property
    def receives(self) -> int:
        return int(self.message.get("Attributes", {}).get("ApproximateReceiveCount", 1))


@dataclass(slots=True, eq=False)
class Load:
    """What one slot works on: a message, or the messages of one group in the order of their line."""

    members: tuple[Held, ...]
    began: float = 0.0


class WaitingLines:
    """The messages that wait to begin."""

    __slots__ = ("_groups", "_ready", "_turn", "ready")

    per_slot = 1  # messages that a slot takes at once

    def __init__(self, queues: int) -> None:
        self._ready = tuple(deque[Held]() for _ in range(queues))
        # Of each group its messages at hand, in order. The first one is ready, under way or deferred.
        self._groups: dict[tuple[int, str], deque[Held]] = {}
        self._turn = 0
        self.ready = 0  # how many may begin at once

    def add(self, held: Held, now: float) -> None:
        del now  # It may begin at once.
        if held.group is not None:
            group = self._groups.setdefault((held.queue, held.group), deque())
            group.append(held)
            if len(group) > 1:
                return
        self.ready_again(held)

    @property
    def waiting(self) -> int:
        """How many messages will begin without waiting for another one."""
        return self.ready

    def waiting_of(self, queue: int) -> int:
        return len(self._ready[queue])

    def take(self) -> Load:
        """The next one, of those that are ready."""
        return Load((self._next(),))

    def _next(self) -> Held:
        queues = len(self._ready)
        self._turn = next(queue for step in range(queues) if self._ready[queue := (self._turn + 1 + step) % queues])
        self.ready -= 1
        return self._ready[self._turn].popleft()

    def gathered(self, now: float) -> None:
        """What has waited for others of its group for long enough may begin."""

    def next_due(self) -> float:
        """When the next group has waited for long enough."""
        return inf

    def ready_again(self, held: Held) -> None:
        """It may begin, for the first time or once more. It is the first of its group already."""
        self._ready[held.queue].append(held)
        self.ready += 1

    def settle(self, held: Held, *, goes_on: bool) -> bool:
        """It is done, and its group goes on, unless more of it is in the same load. True: nothing of its group is left at hand."""
        if held.group is None:
            return False
        group = self._groups[held.queue, held.group]
        group.popleft()
        if group:
            if goes_on:
                self.ready_again(group[0])
            return False
        del self._groups[held.queue, held.group]
        return True

    def fail(self, held: Held) -> list[Held]:
        """It comes again, and with it the rest of its group, which is returned."""
        if held.group is None:
            return []
        _, *rest = self._groups.pop((held.queue, held.group))
        return rest

    def clear(self) -> list[Held]:
        """Nothing more begins. Returns all that waits; what is under way or deferred is not part of it."""
        waiting = [held for ready in self._ready for held in ready]
        for ready in self._ready:
            ready.clear()
        self.ready = 0
        for group in self._groups.values():
            while len(group) > 1 and not group[-1].under_way:
                waiting.append(group.pop())
        return waiting
