"""The order in which a worker's waiting messages begin, and the time of their retries. Without a clock, a thread, or a client.

- A message of a standard queue can begin at once. Of a FIFO message group, one message is in progress at a time, in the order of
  arrival. Groups don't wait for one another.
- The first failure ends a FIFO message group: its remaining messages go back together, and SQS redelivers them in the same order.

With `group_by`, all waiting messages of a group in a standard queue begin together. In a FIFO message group, the first adjacent messages
with the same group begin together.

The worker keeps a message that arrived too early, or whose effect another worker has, and retries it as soon as that might help:

- Each message is retried after a growing pause, because another worker might have settled its predecessor.
- When a message is settled, the deferred message of the same source with the next sequence is retried at once. After its success, the
  next message follows. A gap of a thousand messages then closes without a redelivery. Messages without a sequence have no order, and are
  all retried. Messages without a source and a sequence are unrelated.
- A settled message might not help, because many entities can share a source. A message has come closer only if its own outcome names a
  different missing number. Until then, its early retries can outnumber its retries after a pause by one at most.
- A message without such progress for `PATIENCE` seconds might wait forever. It goes back to the queue, which counts its receives and
  eventually moves it to the dead-letter queue.
- A message that waits for another worker's effect is retried when the effect's lease ends.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice, takewhile
from math import inf
from typing import Any, NamedTuple, TypeAlias

from onewrite.batch.report import Failure
from onewrite.message import Message

SqsMessage: TypeAlias = Mapping[str, Any]
"""A message as ReceiveMessage returns it."""
MAX_BATCH = 10  # messages that SQS accepts or returns in one request
PATIENCE = 300.0  # seconds, in which the missing message can fail a few times, each time with its visibility timeout
_MAX_SOURCES = 10_000  # sources whose last progress is remembered
_MAX_HEAP = 64  # entries of messages that have left, in addition to twice the number of deferred messages

Sequence: TypeAlias = int | str | None


def measure_memory(content: SqsMessage) -> int:
    """Return the bytes of memory that a message's body and attributes take."""
    attributes = content.get("MessageAttributes", {}).values()
    return sys.getsizeof(content.get("Body", "")) + sum(
        sys.getsizeof(value) for attribute in attributes for value in attribute.values()
    )


@dataclass(slots=True, eq=False)
class QueueMessage:
    """A received message that the worker keeps.

    `since`: the time at which the request for it began, a lower bound for the start of SQS's 12 hours. `hidden_until`
    counts from the response, because a long poll can last longer than the visibility timeout.
    """

    content: SqsMessage
    group: str | None
    since: float
    hidden_until: float
    size: int  # bytes of memory of its body and attributes
    key: Hashable = None  # the group from the handler's `group_by`
    progresses: int = 0  # settled messages of all sources when its attempt began
    tries: int = 0  # deferred attempts
    early_tries: int = 0  # attempts that began before their pause had ended
    expected: object = None  # the missing number in its last outcome, if any
    deferred_since: float = 0.0  # the time of the first outcome with this missing number
    held_bytes: int = 0  # while deferred: its own bytes, and the bytes of its followers in the FIFO group
    source: str | None = None  # while deferred: the source whose settled messages trigger a retry
    sequence: Sequence = None
    is_lost: bool = False  # SQS no longer hides it, and redelivers it even if it is settled here
    messages: tuple[Message, ...] = ()  # the identity's messages, while it is in progress
    failure: Failure | None = None  # the failure of its last attempt
    is_returned: bool = False  # logged as returned to the queue

    @property
    def handle(self) -> str:
        return self.content["ReceiptHandle"]  # type: ignore[no-any-return]  # the client has no types

    @property
    def receives(self) -> int:
        """Return how often SQS has delivered the message. A stand-in that doesn't count has delivered it once."""
        return int(self.content.get("Attributes", {}).get("ApproximateReceiveCount", 1))


@dataclass(slots=True, eq=False)
class Load:
    """The work of one slot, which is a message, or the messages of one group, in order."""

    members: tuple[QueueMessage, ...]
    began: float = 0.0
    thread: int | None = None  # the processing thread, unless a task processes it
    task: Any = None


class WaitingLines:
    """The messages that wait to begin. `max_members` is the maximum number of messages in a load, 1 if the handler has no groups."""

    def __init__(self, max_members: int) -> None:
        self._max_members = max_members
        self._ready = deque[QueueMessage]()  # the first message of each load that can begin
        # The worker's messages of each FIFO group, in order. The first message is ready, in progress, or deferred.
        self._groups: dict[str, deque[QueueMessage]] = {}
        # With groups, the ready messages of a standard queue by group, which begin together.
        self._together: dict[Hashable, deque[QueueMessage]] = {}
        self.ready_messages = 0  # messages that don't wait for another message

    @property
    def ready_count(self) -> int:
        """Return how many loads can begin."""
        return len(self._ready)

    def add(self, message: QueueMessage) -> None:
        """Add a received message."""
        if message.group is not None:
            group = self._groups.setdefault(message.group, deque())
            group.append(message)
            if len(group) > 1:
                return
        self.make_ready(message)

    def make_ready(self, message: QueueMessage) -> None:
        """Make a message ready, for the first time or again. A message of a FIFO group must be the first of its group."""
        self.ready_messages += 1
        if message.group is None and self._max_members > 1:
            together = self._together.setdefault(message.key, deque())
            together.append(message)
            if len(together) > 1:
                return
        self._ready.append(message)

    def take(self) -> Load:
        """Return the next ready load."""
        first = self._ready.popleft()
        self.ready_messages -= 1
        if self._max_members == 1:
            return Load((first,))
        if first.group is not None:
            line = self._groups[first.group]
            return Load(tuple(islice(takewhile(lambda message: message.key == first.key, line), self._max_members)))
        together = self._together[first.key]  # begins with `first`
        members = [together.popleft() for _ in range(min(self._max_members, len(together)))]
        self.ready_messages -= len(members) - 1
        if together:  # more messages than fit into one load
            self._ready.append(together[0])
        else:
            del self._together[first.key]
        return Load(tuple(members))

    def settle(self, message: QueueMessage, *, is_end_of_load: bool) -> bool:
        """Remove a settled message from its group. The next message becomes ready, unless it is in the same load.

        Return whether the message was the worker's last message of a FIFO group.
        """
        if message.group is None:
            return False
        group = self._groups[message.group]
        group.popleft()
        if group:
            if is_end_of_load:
                self.make_ready(group[0])
            return False
        del self._groups[message.group]
        return True

    def list_followers(self, message: QueueMessage) -> list[QueueMessage]:
        """Return the messages of a FIFO group after its first one."""
        return [] if message.group is None else [*islice(self._groups[message.group], 1, None)]

    def fail(self, message: QueueMessage) -> list[QueueMessage]:
        """Drop the FIFO group of a message that is redelivered, and return the rest of the group."""
        followers = self.list_followers(message)
        if message.group is not None:
            del self._groups[message.group]
        return followers

    def clear(self, kept: set[QueueMessage]) -> None:
        """Drop all messages except the kept ones, which are in progress."""
        self._ready.clear()
        self._together.clear()
        self.ready_messages = 0
        for group in self._groups.values():
            while group and group[-1] not in kept:
                group.pop()


class _SourceMessages:
    """The deferred messages of one source. Those with a sequence are sorted by its type and value, and then by arrival."""

    def __init__(self) -> None:
        self.unnumbered: dict[QueueMessage, None] = {}  # an ordered set
        self._numbered: list[tuple[str, Any, int, QueueMessage]] = []

    def add(self, message: QueueMessage, arrival: int) -> None:
        if message.sequence is None:
            self.unnumbered[message] = None
        else:
            insort(self._numbered, (type(message.sequence).__name__, message.sequence, arrival, message))

    def remove(self, message: QueueMessage, arrival: int) -> bool:
        """Remove a message, and return whether it was the last one."""
        if message.sequence is None:
            del self.unnumbered[message]
        else:
            del self._numbered[bisect_left(self._numbered, (type(message.sequence).__name__, message.sequence, arrival))]
        return not (self.unnumbered or self._numbered)

    def find_next(self, settled: Sequence) -> QueueMessage | None:
        """Return the first message that can follow the settled sequence. If that is None, it can precede every numbered message.

        A number and a string don't compare.
        """
        kind = type(settled).__name__
        place = 0 if settled is None else bisect_right(self._numbered, (kind, settled, inf))
        if place == len(self._numbered):
            return None
        entry = self._numbered[place]
        return entry[3] if settled is None or entry[0] == kind else None


class _Deferral(NamedTuple):
    due: float
    arrival: int  # counts all deferrals


class Deferrals:
    """The deferred messages. `backoff(tries)` returns the seconds until the next attempt, unless an early attempt happens first."""

    def __init__(self, backoff: Callable[[int], float]) -> None:
        self._backoff = backoff
        self._deferrals: dict[QueueMessage, _Deferral] = {}
        # Sorted as a heap. A message that has left remains here until its entry is due or `_heap` has become too long.
        self._heap: list[tuple[float, int, QueueMessage]] = []
        self._by_source: dict[str, _SourceMessages] = {}
        self._arrivals = 0
        self._progress: dict[str, int] = {}  # the value of `progresses` at the last settled message of each source
        self.progresses = 0  # settled messages of all sources so far
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._deferrals)

    def note_try(self, message: QueueMessage, source: str | None, expected: object, now: float) -> bool:
        """Record the end of an attempt. Return whether to retry at once, because a message of its source was settled meanwhile."""
        if message.expected != expected and message.early_tries:  # reset the pauses of a message that has come closer
            message.tries = message.early_tries = 0
        if message.expected != expected or not message.tries:
            message.expected, message.deferred_since = expected, now
        message.tries += 1
        is_outdated = source is not None and self._progress.get(source, 0) > message.progresses
        return is_outdated and self._grant_early_try(message)

    def _grant_early_try(self, message: QueueMessage) -> bool:
        """Return whether to allow an attempt before the message's pause ends, and count the attempt."""
        is_granted = 2 * message.early_tries <= message.tries
        message.early_tries += is_granted
        return is_granted

    def add(self, message: QueueMessage, source: str | None, sequence: Sequence, now: float) -> None:
        """Keep a message until its pause ends or a message of its source is settled."""
        message.source, message.sequence = source, sequence
        self._keep(message, now + max(0.0, self._backoff(message.tries - message.early_tries)))

    def wait(self, message: QueueMessage, until: float) -> None:
        """Keep the message until this time, even if a message of its source is settled. A later deferral starts counting from zero."""
        message.tries = message.early_tries = 0
        message.source = None
        self._keep(message, until)

    def _keep(self, message: QueueMessage, due: float) -> None:
        self._arrivals += 1
        self._deferrals[message] = _Deferral(due, self._arrivals)
        heappush(self._heap, (due, self._arrivals, message))
        if len(self._heap) > _MAX_HEAP + 2 * len(self._deferrals):
            self._heap = [(due, arrival, kept) for kept, (due, arrival) in self._deferrals.items()]
            heapify(self._heap)
        if message.source is not None:
            self._by_source.setdefault(message.source, _SourceMessages()).add(message, self._arrivals)
        self.held_bytes += message.held_bytes

    def note_progress(self, source: str, sequence: Sequence) -> list[QueueMessage]:
        """Record that a message of the source is settled. Return the deferred messages to retry at once."""
        self.progresses += 1
        if len(self._progress) >= _MAX_SOURCES:
            self._progress.clear()  # a message whose attempt is in progress is then retried after its pause, instead of at once
        self._progress[source] = self.progresses
        related = self._by_source.get(source)
        if related is None:
            return []
        following = related.find_next(sequence)
        candidates = [*related.unnumbered, *([] if following is None else [following])]
        return self._take([*filter(self._grant_early_try, candidates)])

    def take_due(self, now: float) -> list[QueueMessage]:
        """Remove and return the messages whose next attempt is due."""
        due_messages: list[QueueMessage] = []
        while self.find_next_due() <= now:
            due_messages += self._take([self._heap[0][2]])
        return due_messages

    def find_next_due(self) -> float:
        """Return the earliest due time, after dropping the entries before it whose messages have left."""
        while self._heap:
            due, arrival, message = self._heap[0]
            if self._deferrals.get(message) == (due, arrival):
                return due
            heappop(self._heap)
        return inf

    def _take(self, messages: list[QueueMessage]) -> list[QueueMessage]:
        """Remove the messages, and return them."""
        for message in messages:
            deferral = self._deferrals.pop(message)
            if message.source is not None and self._by_source[message.source].remove(message, deferral.arrival):
                del self._by_source[message.source]
            self.held_bytes -= message.held_bytes
        return messages

    def clear(self) -> None:
        """Drop all messages."""
        self._take([*self._deferrals])
