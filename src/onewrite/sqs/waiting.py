"""The messages that wait at hand: which of them begins next, and which are tried again. Nothing here has a clock, a thread, or a client.

- A message of a standard queue may begin at once. In a message group of a FIFO queue one message is in progress at a time, in the order in
  which they came; groups don't wait for one another.
- A group ends with its first failure: the rest of it leaves the lines together, and is redelivered from SQS in the same order.

If the handler takes the messages of a group at once, all messages at hand of a group of a standard queue begin together. In a message
group of a FIFO queue, the first neighbors of one group begin together.

A message that came too early, or while another worker had its step, stays at hand, and is tried again as soon as that may help:

- Each is tried again after a growing pause: another worker may have settled the message that it waits for.
- When a message of a source is settled, the deferred message of that source with the next sequence is tried at once. If it is settled
  too, the next one is tried: a gap of a thousand messages closes without another delivery. Messages without a sequence have no
  order, and are all tried. Without a source as well, messages have nothing in common.
- Many entities may share a source, so a settled message may be no help. Only a message's own outcome shows progress: it names another
  number to wait for. Until then no more of its attempts come early than come after a pause, plus one.
- A message whose outcome shows no progress for `PATIENCE` seconds may wait forever. It goes back to the queue, which
  counts its receives and moves it to its dead-letter queue in the end.
- A message that waits for another worker's step is tried again at the end of the step's lease.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from itertools import islice, takewhile
from math import inf
from operator import itemgetter
from typing import Any, TypeAlias, cast

from onewrite.batch.report import Failure
from onewrite.message import Message

SqsMessage: TypeAlias = Mapping[str, Any]
"""A message as ReceiveMessage returns it."""
MAX_BATCH = 10  # messages that SQS accepts or returns in one request
PATIENCE = 300.0  # seconds: the missing message may fail a few times, and wait for its visibility timeout after each failure
_MAX_SOURCES = 10_000  # whose last progress is remembered

Sequence: TypeAlias = int | str | None


def size_of(content: SqsMessage) -> int:
    """Return the bytes of memory that a message's body and attributes take."""
    attributes = content.get("MessageAttributes", {}).values()
    return sys.getsizeof(content.get("Body", "")) + sum(
        sys.getsizeof(value) for each in attributes for value in each.values()
    )


@dataclass(slots=True, eq=False)
class QueueMessage:
    """A message at hand.

    `since`: when the request for it began. SQS hides a message for 12 hours at most, from then on or from later. `hidden_until`
    counts from the response, because a request can wait for longer than a message is hidden.
    """

    content: SqsMessage
    group: str | None
    since: float
    hidden_until: float
    size: int  # bytes of memory that its body and its attributes take
    key: Hashable = None  # its group, if the handler has `group_by`
    progresses: int = 0  # settled messages of all sources when its attempt began
    tries: int = 0  # attempts that ended as deferred
    early_tries: int = 0  # attempts that began before their pause had ended
    expected: object = None  # the number for which it waits, if its last outcome has named one
    deferred_since: float = 0.0  # when the first attempt with that outcome ended
    held_bytes: int = 0  # of itself and of the messages that follow it in its group, while it is deferred
    source: str | None = None  # while it is deferred: a settled message of this source makes the worker try it again
    sequence: Sequence = None
    is_lost: bool = False  # SQS no longer takes it for received, so it is redelivered whether it is settled here or not
    messages: tuple[Message, ...] = ()  # that the identity has found in it, while it is in progress
    failure: Failure | None = None  # of its last attempt, which did not settle it
    is_returned: bool = False  # the log says that it is no longer at hand

    @property
    def handle(self) -> str:
        return self.content["ReceiptHandle"]  # type: ignore[no-any-return]  # the client has no types

    @property
    def receives(self) -> int:
        return int(self.content.get("Attributes", {}).get("ApproximateReceiveCount", 1))


@dataclass(slots=True, eq=False)
class Load:
    """The work of one slot: a message, or the messages of one group in the order of their line."""

    members: tuple[QueueMessage, ...]
    began: float = 0.0
    thread: int | None = None  # that processes it, unless a task does
    task: Any = None


class WaitingLines:
    """The messages that wait to begin. `max_members`: the maximum number in a load; 1 if the handler has no groups."""

    def __init__(self, max_members: int) -> None:
        self._max_members = max_members
        self._ready = deque[QueueMessage]()  # the first message of each load that may begin
        # The messages at hand of each FIFO group, in order. The first one is ready, in progress, or deferred.
        self._groups: dict[str, deque[QueueMessage]] = {}
        self._together: dict[Hashable, deque[QueueMessage]] = {}  # the messages of a standard queue that begin together
        self.ready_messages = 0  # messages that wait for no other message

    @property
    def ready_count(self) -> int:
        """Return how many loads can begin."""
        return len(self._ready)

    def add(self, message: QueueMessage) -> None:
        """Take in a received message."""
        if message.group is not None:
            group = self._groups.setdefault(message.group, deque())
            group.append(message)
            if len(group) > 1:
                return
        self.make_ready(message)

    def make_ready(self, message: QueueMessage) -> None:
        """Make a message ready, for the first time or again. A message of a FIFO group must be the first one of its group."""
        self.ready_messages += 1
        if message.group is None and self._max_members > 1:
            together = self._together.setdefault(message.key, deque())
            together.append(message)
            if len(together) > 1:
                return
        self._ready.append(message)

    def take(self) -> Load:
        """Return the next load of those that are ready."""
        first = self._ready.popleft()
        self.ready_messages -= 1
        if self._max_members == 1:
            return Load((first,))
        if first.group is not None:
            line = self._groups[first.group]
            return Load(tuple(islice(takewhile(lambda message: message.key == first.key, line), self._max_members)))
        together = self._together[first.key]
        members = [together.popleft() for _ in range(min(self._max_members, len(together)))]
        self.ready_messages -= len(members) - 1
        if together:  # more messages than fit into one load
            self._ready.append(together[0])
        else:
            del self._together[first.key]
        return Load(tuple(members))

    def settle(self, message: QueueMessage, *, goes_on: bool) -> bool:
        """Remove a settled message from its group, whose next message becomes ready unless it is in the same load.

        Return whether no message of the group is left at hand.
        """
        if message.group is None:
            return False
        group = self._groups[message.group]
        group.popleft()
        if group:
            if goes_on:
                self.make_ready(group[0])
            return False
        del self._groups[message.group]
        return True

    def followers(self, message: QueueMessage) -> list[QueueMessage]:
        """Return the rest of the FIFO group of its first message."""
        return [] if message.group is None else [*islice(self._groups[message.group], 1, None)]

    def fail(self, message: QueueMessage) -> list[QueueMessage]:
        """Drop the FIFO group of a message that is redelivered, and return the rest of the group."""
        followers = self.followers(message)
        if message.group is not None:
            del self._groups[message.group]
        return followers

    def clear(self, kept: set[QueueMessage]) -> None:
        """Drop all messages but those that are kept, because they are in progress."""
        self._ready.clear()
        self._together.clear()
        self.ready_messages = 0
        for group in self._groups.values():
            while group and group[-1] not in kept:
                group.pop()


class Deferrals:
    """The deferred messages. `backoff(tries)`: the seconds until the next attempt, if it does not come early."""

    def __init__(self, backoff: Callable[[int], float]) -> None:
        self._backoff = backoff
        self._due: dict[QueueMessage, float] = {}
        self._progress: dict[str, int] = {}  # the number of the last settled message of each source
        self.progresses = 0  # settled messages of all sources so far
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._due)

    def note_try(self, message: QueueMessage, source: str | None, expected: object, now: float) -> bool:
        """Note the end of an attempt. Return whether to try again at once: a message of its source was settled since the attempt began."""
        if message.expected != expected and message.early_tries:  # The message has come nearer, and may soon do so again.
            message.tries = message.early_tries = 0
        if message.expected != expected or not message.tries:
            message.expected, message.deferred_since = expected, now
        message.tries += 1
        is_outdated = source is not None and self._progress.get(source, 0) > message.progresses
        return is_outdated and self._grant_early_try(message)

    def _grant_early_try(self, message: QueueMessage) -> bool:
        """Return whether the message may be tried before its pause ends, and count that attempt."""
        is_granted = 2 * message.early_tries <= message.tries
        message.early_tries += is_granted
        return is_granted

    def add(self, message: QueueMessage, source: str | None, sequence: Sequence, now: float) -> None:
        """Keep a message at hand until its pause ends or a message of its source is settled."""
        message.source, message.sequence = source, sequence
        self._keep(message, now + max(0.0, self._backoff(message.tries - message.early_tries)))

    def wait(self, message: QueueMessage, until: float) -> None:
        """Keep the message at hand until then, even if one of its source is settled. If it is deferred later, that counts from the start."""
        message.tries = message.early_tries = 0
        message.source = None
        self._keep(message, until)

    def _keep(self, message: QueueMessage, due: float) -> None:
        self._due[message] = due
        self.held_bytes += message.held_bytes

    def progress(self, source: str, sequence: Sequence) -> list[QueueMessage]:
        """Note that a message of the source is settled. Return the deferred messages to try at once."""
        self.progresses += 1
        if len(self._progress) >= _MAX_SOURCES:
            self._progress.clear()
        self._progress[source] = self.progresses
        messages = [message for message in self._due if message.source == source]
        # A settled message without a sequence can precede each of the others. Numbers and strings cannot be compared.
        following = [
            ((type(message.sequence).__name__, cast("Any", message.sequence)), message)
            for message in messages
            if message.sequence is not None
            and (sequence is None or (type(message.sequence) is type(sequence) and cast("Any", message.sequence) > sequence))
        ]
        candidates = [message for message in messages if message.sequence is None]
        candidates += [min(following, key=itemgetter(0))[1]] if following else []
        return self._take([message for message in candidates if self._grant_early_try(message)])

    def take_due(self, now: float) -> list[QueueMessage]:
        """Return the messages whose next attempt is due. They are no longer deferred."""
        return self._take(sorted((each for each, due in self._due.items() if due <= now), key=self._due.__getitem__))

    def next_due(self) -> float:
        return min(self._due.values(), default=inf)

    def _take(self, messages: list[QueueMessage]) -> list[QueueMessage]:
        for message in messages:
            del self._due[message]
            self.held_bytes -= message.held_bytes
        return messages

    def clear(self) -> None:
        """Drop all messages."""
        self._take([*self._due])
