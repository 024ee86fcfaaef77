"""The messages that wait at hand: which of them is begun next, and which are tried again. Nothing here knows a clock, a thread or an address.

- The queues take turns, so a busy one holds up none of the others.
- A message of a standard queue may begin at once. Of a message group of a FIFO queue one message is under way at a time, in the order in
  which they came; groups do not wait for one another.
- A group ends with its first failure: the rest of it leaves the lines together, and is redelivered from SQS in the same order.

If the handler takes the messages of a group at once:

- On a standard queue all that is at hand of a group begins together. The first message of a group may wait for others for a
  while; the group begins before that if a call can have no more, and when one of its messages is to be tried again.
- Of a message group of a FIFO queue the first messages begin together that are neighbours and of one group. They wait for no
  others: SQS gives out no more of the message group while some of it is at hand.

What came too early, or while another worker had its step, stays at hand, and is tried again as soon as that may help:

- Each is tried again after a growing pause: another worker may have brought what it waits for.
- When a message of a source is settled, the deferred message of that source with the next sequence is tried at once. If it is settled
  too, the next one is tried: a gap of a thousand messages closes without another delivery. Messages without a sequence have no
  order, and are all tried. Without a source as well, messages have nothing in common.
- Many entities may share a source, so what is settled may be no help. Only a message's own answer shows progress: it names another
  number that it waits for. Until then no more of its tries come early than come after a pause, but for one.
- A message whose answer shows no progress for `PATIENCE` seconds waits for what may never come. It goes back to the queue, which
  counts its receives and moves it to its dead-letter queue in the end.
- What waits for another worker's step waits for no message: it is tried again at the end of the step's lease.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from itertools import count, islice, takewhile
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from onewrite.batch.order import MOST
from onewrite.batch.report import Failure
from onewrite.message import Message

SqsMessage: TypeAlias = Mapping[str, Any]
"""A message as ReceiveMessage returns it."""
MOST_MESSAGES = 10  # the most that SQS gives in one request
PATIENCE = 300.0  # seconds: the missing message may fail a few times, and wait for its visibility timeout after each failure
_MOST_SOURCES = 10_000  # of which the last progress is remembered
_UNORDERED = ""

Sequence: TypeAlias = int | str | None


@dataclass(slots=True, eq=False)
class QueueMessage:
    """A message at hand.

    `since` is when the request began that brought it: SQS has hidden it since then or since later, and hides it for 12 hours in
    all. `hidden_until` counts from the answer, because a request may wait for longer than a message is hidden.
    """

    content: SqsMessage
    queue: int
    group: str | None
    since: float
    hidden_until: float
    progresses: int = 0  # that all sources had made when it began
    tries: int = 0  # that ended as deferred
    early_tries: int = 0  # those of them, and of what is under way, that did not wait for their pause to end
    expected: object = None  # the number for which it waits, if its last answer has named one
    deferred_since: float = 0.0  # when the first try ended with that answer
    is_lost: bool = False  # SQS no longer takes it for received, so it is redelivered whatever becomes of it here
    is_under_way: bool = False
    messages: tuple[Message, ...] = ()  # what the identity has found in it, while it is under way
    failure: Failure | None = None  # what is said of its last try, which did not settle it
    end_is_logged: bool = False  # that it is at hand no more
    key: Hashable = None  # its group, if the handler has `group_by`
    record_state: Any = None  # what the handler has read of it, until it is first processed

    @property
    def handle(self) -> str:
        return self.content["ReceiptHandle"]  # type: ignore[no-any-return]  # the client has no types

    @property
    def receives(self) -> int:
        return int(self.content.get("Attributes", {}).get("ApproximateReceiveCount", 1))


@dataclass(slots=True, eq=False)
class Load:
    """What one slot works on: a message, or the messages of one group in the order of their line."""

    members: tuple[QueueMessage, ...]
    began: float = 0.0


class WaitingLines:
    """The messages that wait to begin."""

    __slots__ = ("_groups", "_ready_queues", "_turn", "ready_count")

    per_slot = 1  # messages that a slot takes at once

    def __init__(self, queues: int) -> None:
        self._ready_queues = tuple(deque[QueueMessage]() for _ in range(queues))
        # Of each group its messages at hand, in order. The first one is ready, under way or deferred.
        self._groups: dict[tuple[int, str], deque[QueueMessage]] = {}
        self._turn = 0
        self.ready_count = 0  # how many may begin at once

    def add(self, message: QueueMessage, now: float) -> None:
        del now  # It may begin at once.
        if message.group is not None:
            group = self._groups.setdefault((message.queue, message.group), deque())
            group.append(message)
            if len(group) > 1:
                return
        self.make_ready(message)

    @property
    def waiting_count(self) -> int:
        """How many messages will begin without waiting for another one."""
        return self.ready_count

    def waiting_of(self, queue: int) -> int:
        return len(self._ready_queues[queue])

    def take(self) -> Load:
        """The next one, of those that are ready."""
        return Load((self._next(),))

    def _next(self) -> QueueMessage:
        queues = len(self._ready_queues)
        self._turn = next(queue for step in range(queues) if self._ready_queues[queue := (self._turn + 1 + step) % queues])
        self.ready_count -= 1
        return self._ready_queues[self._turn].popleft()

    def end_gathering(self, now: float) -> None:
        """What has waited for others of its group for long enough may begin."""

    def next_due(self) -> float:
        """When the next group has waited for long enough."""
        return inf

    def make_ready(self, message: QueueMessage) -> None:
        """It may begin, for the first time or once more. It is the first of its group already."""
        self._ready_queues[message.queue].append(message)
        self.ready_count += 1

    def settle(self, message: QueueMessage, *, goes_on: bool) -> bool:
        """It is done, and its group goes on, unless more of it is in the same load. True: nothing of its group is left at hand."""
        if message.group is None:
            return False
        group = self._groups[message.queue, message.group]
        group.popleft()
        if group:
            if goes_on:
                self.make_ready(group[0])
            return False
        del self._groups[message.queue, message.group]
        return True

    def fail(self, message: QueueMessage) -> list[QueueMessage]:
        """It is redelivered, and with it the rest of its group, which is returned."""
        if message.group is None:
            return []
        _, *members = self._groups.pop((message.queue, message.group))
        return members

    def clear(self) -> list[QueueMessage]:
        """Nothing more begins. Returns all that waits; what is under way or deferred is not part of it."""
        messages = [message for queue in self._ready_queues for message in queue]
        for queue in self._ready_queues:
            queue.clear()
        self.ready_count = 0
        for group in self._groups.values():
            while len(group) > 1 and not group[-1].is_under_way:
                messages.append(group.pop())
        return messages


@dataclass(slots=True, eq=False)
class _Gathering:
    """The messages of one group of a standard queue that wait to begin."""

    due: float
    members: deque[QueueMessage] = field(default_factory=deque[QueueMessage])
    is_ready: bool = False


class GroupLines(WaitingLines):
    """The messages that wait to begin. `gather` is for how many seconds the first one of a group waits for others."""

    __slots__ = ("_gather", "_gathered_counts", "_gatherings", "_open_gatherings", "per_slot")

    def __init__(self, queues: int, gather: float) -> None:
        super().__init__(queues)
        self._gather = gather
        self._gatherings: dict[tuple[int, Hashable], _Gathering] = {}
        self._gathered_counts = [0] * queues  # how many messages these have
        self._open_gatherings: deque[_Gathering] = deque()  # by the time at which they are ready
        self.per_slot = MOST if gather else MOST_MESSAGES

    @property
    def waiting_count(self) -> int:
        return sum(map(self.waiting_of, range(len(self._ready_queues))))

    def waiting_of(self, queue: int) -> int:
        return self._gathered_counts[queue] or len(self._ready_queues[queue])  # A FIFO queue has no gatherings.

    def add(self, message: QueueMessage, now: float) -> None:
        if message.group is not None:
            super().add(message, now)
            return
        gathering = self._gathering_of(message, now + self._gather)
        if not self._gather or len(gathering.members) >= MOST:
            self._begin(gathering)

    def make_ready(self, message: QueueMessage) -> None:
        if message.group is not None:
            super().make_ready(message)
        else:
            self._begin(self._gathering_of(message, inf))

    def end_gathering(self, now: float) -> None:
        while self.next_due() <= now:
            self._begin(self._open_gatherings.popleft())

    def next_due(self) -> float:
        while self._open_gatherings and self._open_gatherings[0].is_ready:
            self._open_gatherings.popleft()
        return self._open_gatherings[0].due if self._open_gatherings else inf

    def take(self) -> Load:
        first = self._next()
        if first.group is not None:
            line = self._groups[first.queue, first.group]
            return Load(tuple(islice(takewhile(lambda message: message.key == first.key, line), MOST)))
        gathering = self._gatherings[first.queue, first.key]
        members = tuple(gathering.members.popleft() for _ in range(min(MOST, len(gathering.members))))
        self._gathered_counts[first.queue] -= len(members)
        if gathering.members:  # Some was redelivered while as many as may be in one call were waiting.
            self._call(gathering)
        else:
            del self._gatherings[first.queue, first.key]
        return Load(members)

    def clear(self) -> list[QueueMessage]:
        messages = [message for gathering in self._gatherings.values() for message in gathering.members]
        self._gatherings.clear()
        self._gathered_counts = [0] * len(self._gathered_counts)
        self._open_gatherings.clear()
        return messages + [message for message in super().clear() if message.group is not None]

    def _gathering_of(self, message: QueueMessage, due: float) -> _Gathering:
        """That of its group, with the message."""
        place = message.queue, message.key
        gathering = self._gatherings.get(place)
        if gathering is None:
            gathering = self._gatherings[place] = _Gathering(due)
            if due < inf:
                self._open_gatherings.append(gathering)
        gathering.members.append(message)
        self._gathered_counts[message.queue] += 1
        return gathering

    def _begin(self, gathering: _Gathering) -> None:
        if not gathering.is_ready:
            gathering.is_ready = True
            self._call(gathering)

    def _call(self, gathering: _Gathering) -> None:
        """Its first message stands for it among those that are ready."""
        first = gathering.members[0]
        self._ready_queues[first.queue].append(first)
        self.ready_count += 1


class _Place(NamedTuple):
    """Where a message stands among those of its source. What has no sequence stands before what has one."""

    kind: str  # of the sequence: numbers and texts cannot be compared
    sequence: int | str
    number: int  # of the deferral, so no two places are equal

    @classmethod
    def of(cls, sequence: Sequence, number: int) -> _Place:
        return cls(_UNORDERED, 0, number) if sequence is None else cls(type(sequence).__name__, sequence, number)


_ORDERED = _Place(_UNORDERED, 1, 0)  # before all that have a sequence


class _Entry(NamedTuple):
    source: str | None  # None: nothing that is settled makes it try again
    place: _Place
    due: float


class Deferrals:
    """`backoff(tries)` is how many seconds a message waits for its next try, if it is not tried early."""

    def __init__(self, backoff: Callable[[int], float]) -> None:
        self._backoff = backoff
        self._entries: dict[QueueMessage, _Entry] = {}
        self._sources: dict[str, list[tuple[_Place, QueueMessage]]] = {}  # each list in order
        self._due_heap: list[tuple[float, int, QueueMessage]] = []  # a heap; it may hold what has been tried since
        self._progress: OrderedDict[str, int] = OrderedDict()  # the number of the last message of each that was settled
        self._numbers = count()
        self.progresses = 0  # messages so far that were settled, of all sources

    def __len__(self) -> int:
        return len(self._entries)

    def note_try(self, message: QueueMessage, source: str | None, expected: object, now: float) -> bool:
        """A try of it has ended. True: try it at once, because one of its source was settled since this try began."""
        if message.expected != expected and message.early_tries:  # It was next, and may soon be so again.
            message.tries = message.early_tries = 0
        if message.expected != expected or not message.tries:
            message.expected, message.deferred_since = expected, now
        message.tries += 1
        is_outdated = source is not None and self._progress.get(source, 0) > message.progresses
        return is_outdated and self._grant_early_try(message)

    def _grant_early_try(self, message: QueueMessage) -> bool:
        """Whether it may be tried before its pause ends."""
        is_granted = 2 * message.early_tries <= message.tries
        message.early_tries += is_granted
        return is_granted

    def add(self, message: QueueMessage, source: str | None, sequence: Sequence, now: float) -> None:
        """Keep it at hand."""
        due = now + max(0.0, self._backoff(message.tries - message.early_tries))
        place = _Place.of(sequence, next(self._numbers))
        self._keep(message, _Entry(source, place, due))
        if source is not None:
            insort(self._sources.setdefault(source, []), (place, message))

    def wait(self, message: QueueMessage, until: float) -> None:
        """Keep it at hand until then, whatever its source does meanwhile. If it is deferred after this, it has only begun to wait for that."""
        message.tries = message.early_tries = 0
        self._keep(message, _Entry(None, _Place.of(None, next(self._numbers)), until))

    def _keep(self, message: QueueMessage, entry: _Entry) -> None:
        self._entries[message] = entry
        heapq.heappush(self._due_heap, (entry.due, entry.place.number, message))

    def progress(self, source: str, sequence: Sequence) -> list[QueueMessage]:
        """A message of the source is settled. Returns those to try at once."""
        self.progresses += 1
        self._progress[source] = self.progresses
        self._progress.move_to_end(source)
        if len(self._progress) > _MOST_SOURCES:
            self._progress.popitem(last=False)
        of_source = self._sources.get(source, [])
        ordered, settled = (
            bisect_left(of_source, place, key=itemgetter(0)) for place in (_ORDERED, _Place.of(sequence, -1))
        )
        following = max(ordered, settled)
        candidates = of_source[:ordered] + of_source[following : following + 1]
        messages = [message for _, message in candidates if self._grant_early_try(message)]
        for message in messages:
            self.remove(message)
        return messages

    def take_due(self, now: float) -> list[QueueMessage]:
        """Those whose next try is due. They are at hand no more."""
        messages: list[QueueMessage] = []
        while self.next_due() <= now:
            messages.append(heapq.heappop(self._due_heap)[-1])
            self.remove(messages[-1])
        return messages

    def next_due(self) -> float:
        while self._due_heap:
            due, number, message = self._due_heap[0]
            entry = self._entries.get(message)
            if entry is not None and entry.place.number == number:
                return due
            heapq.heappop(self._due_heap)
        return inf

    def remove(self, message: QueueMessage) -> None:
        """It is tried again, or goes back."""
        entry = self._entries.pop(message)
        if entry.source is None:
            return
        of_source = self._sources[entry.source]
        del of_source[bisect_left(of_source, entry.place, key=itemgetter(0))]
        if not of_source:
            del self._sources[entry.source]

    def clear(self) -> list[QueueMessage]:
        messages = [*self._entries]
        self._entries.clear()
        self._sources.clear()
        self._due_heap.clear()
        return messages
