"""What a worker decides about the messages that it has at hand: pure, without a clock, a thread or a client. The time is an argument.

A message is received, perhaps waits, is under way in a slot, and ends. With `group_by` a slot has the messages of a group:

- settled: it waits to be deleted, together with others. It is never deleted before it is settled.
- failed: it is left alone, and is redelivered when its visibility timeout ends; with it comes the rest of its FIFO group.
- deferred, or busy with a step of another worker: it stays at hand without a slot, and is tried again: see `waiting`.
- superseded: another worker has its step, so it goes back for a moment. Only its next try can tell until when.
- uncertain: somebody must look up what became of its step's effect, so it goes back for longer each time.
- overdue, when it has taken longer than the timeout: it is given back to the queue, and its slot is lost while it goes on.
  If it is settled later all the same it is deleted: its effect is written, and another delivery would be a Duplicate.

All that is at hand stays hidden from other workers, for as long as SQS allows that. But where nothing has begun for `SILENCE`
seconds, because all slots are busy or the event loop stands still, what waits to begin is given back, and nothing is received until
something can begin again: another worker may have nothing to do.

The messages at hand take `LARGEST_AT_HAND` bytes at most, together with those that the requests under way are expected to bring; those that
are deferred, with what waits behind them, take half of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from math import ceil, inf
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

from onewrite.batch.order import MOST
from onewrite.batch.report import Result
from onewrite.outcome import Begun, Busy, Deferred, Superseded, Uncertain
from onewrite.sqs.waiting import MOST_MESSAGES, PATIENCE, Deferrals, Load, QueueMessage, SqsMessage, WaitingLines, size_of
from onewrite.sqs.watch import SILENCE

LONGEST_HIDDEN = 12 * 3600  # seconds that SQS hides a message after it was received, however often that is extended


def extension(visibility: int, since: float) -> int:
    """For how many seconds from now to hide a message that was received so many seconds ago. 0: SQS hides it no longer."""
    return max(0, min(visibility, int(LONGEST_HIDDEN - since)))


@dataclass(frozen=True, slots=True)
class Limits:
    """What is decided by the worker. A message that ends within `grace` seconds after its timeout costs no slot.

    `wait`: for how many seconds SQS waits for messages. `has_groups`: a slot takes the messages of a group at once. `backoff(tries)`: how many
    seconds something waits for its next try.
    """

    slots: int
    timeout: float
    grace: float
    wait: int
    most_deferred: int
    stop_when_empty: bool
    has_groups: bool
    backoff: Callable[[int], float]


Results: TypeAlias = Sequence[Result | None]
"""For each message of a load; None for one that was not processed."""


ReturnReason: TypeAlias = Literal[
    "failed", "deferred", "busy", "uncertain", "superseded", "untouched", "overdue", "behind", "lost", "stopping", "stalled"
]


class Return(NamedTuple):
    """A message that is at hand no more although it is not settled, and why. Behind: it stood in a FIFO group behind another one."""

    message: QueueMessage
    reason: ReturnReason


@dataclass(frozen=True, slots=True)
class Hide:
    """Messages of one queue, with the seconds from now for which to hide each."""

    queue: int
    messages: tuple[tuple[QueueMessage, int], ...]
    gives_back: bool


# --- when a queue is asked for messages, and for how many -------------------------------------------------------------


MOST_REQUESTS = 10  # for messages, of one queue at a time
_LEAST_PAUSE = 0.1  # seconds from one request to the next, if it fails, or brings nothing and does not wait for messages
_LONGEST_PAUSE = 20  # seconds between two requests that fail


@dataclass(frozen=True, slots=True)
class Receive:
    """A request for messages.

    `receipts`: how many requests had brought messages when it was made; None if something was at hand then. An answer without messages
    says that the queue is empty only if nothing was at hand, and no other request has brought messages since.
    """

    queue: int
    number: int
    receipts: int | None


@dataclass(slots=True)
class Queue:
    """The requests of one queue: those that receive, and those that delete.

    How many may be under way at a time follows the answers: one more after each that brought as many messages as it asked for, and a single
    one after an answer without messages. An empty queue is asked by one request that waits.
    """

    visibility: int
    is_fifo: bool
    most_requests: int = 1
    receive_requests: int = 0
    reserved_messages: int = 0  # that the requests under way may bring
    failures: int = 0
    resumes: float = 0.0  # when the pause after a failure ends
    is_empty: bool = False
    settled_messages: deque[SqsMessage] = field(default_factory=deque[SqsMessage])
    delete_at: float = inf
    delete_requests: int = 0

    def begin(self, number: int) -> None:
        self.receive_requests += 1
        self.reserved_messages += number

    def end(self, number: int) -> None:
        self.receive_requests -= 1
        self.reserved_messages -= number


# --- what is under way in the slots, and which slots are lost to what hangs -------------------------------------------


_PACE_WEIGHT = 0.1  # of the last message, in the mean of their durations
_MANY_LATE = 3  # different messages: one or two may be to blame themselves
_LATE_FOR = 2  # times the timeout


class Slots:
    """Each slot has a load: a message, or the messages of a group."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way: dict[Load, None] = {}  # in the order in which they began
        self._overdue: dict[Load, float] = {}  # and when they became so
        self.pace: float | None = None  # the mean seconds of a message
        self.messages = 0  # that are under way
        self._late_ids: set[str] = set()  # messages that were given up since one has last ended in time
        self._late_since = 0.0

    def __len__(self) -> int:
        """How many are busy, without those that are lost."""
        return len(self._under_way)

    @property
    def number(self) -> int:
        """Those that are not lost."""
        return self._limits.slots - len(self._overdue)

    @property
    def free(self) -> int:
        return max(0, self._limits.slots - len(self._overdue) - len(self._under_way))

    def begin(self, load: Load, now: float) -> None:
        load.began = now
        self._under_way[load] = None
        self.messages += len(load.members)
        for message in load.members:
            message.is_under_way = True

    def _leave(self, load: Load) -> None:
        del self._under_way[load]
        self.messages -= len(load.members)
        for message in load.members:
            message.is_under_way = False

    def end(self, load: Load, now: float) -> bool:
        """False: it was overdue, and its messages were given back before."""
        if self._overdue.pop(load, None) is not None:
            return False
        self._leave(load)
        self._late_ids.clear()
        seconds = (now - load.began) / len(load.members)
        self.pace = seconds if self.pace is None else self.pace + (seconds - self.pace) * _PACE_WEIGHT
        return True

    def to_give_up(self, now: float) -> list[Load]:
        """What has just become overdue."""
        late_loads = [*takewhile(lambda load: now >= load.began + self._limits.timeout, self._under_way)]
        for load in late_loads:
            self._leave(load)
            self._overdue[load] = now
            self._late_since = self._late_since if self._late_ids else now
            self._late_ids.update(message.content["MessageId"] for message in load.members)
        return late_loads

    def under_way(self) -> list[QueueMessage]:
        return [message for load in self._under_way for message in load.members]

    def count_anew(self, now: float) -> None:
        """The process itself stood still, so nothing could end."""
        for load in self._under_way:
            load.began = now
        self._overdue = dict.fromkeys(self._overdue, now)
        self._late_ids.clear()

    def lost_loads(self, now: float) -> list[Load]:
        """What has a slot that is lost."""
        return [load for load, since in self._overdue.items() if now >= since + self._limits.grace]

    def late_count(self, now: float) -> int:
        """Messages that did not end in time, one after the other, although what is given up costs no slot: maybe all wait for what is never
        free again. 0: they are too few, or it is too early to tell.
        """
        is_long = now >= self._late_since + _LATE_FOR * self._limits.timeout
        return len(self._late_ids) if is_long and len(self._late_ids) >= _MANY_LATE else 0

    def next_due(self, now: float) -> float:
        """When something becomes overdue, or a slot lost."""
        first_load = next(iter(self._under_way), None)
        timeout = inf if first_load is None else first_load.began + self._limits.timeout
        losses = [since + self._limits.grace for since in self._overdue.values()]
        return min([timeout, *(moment for moment in losses if moment > now)])


# --- the messages at hand ---------------------------------------------------------------------------------------------


DELETED_WITHIN = 0.2  # seconds: as long as ten messages of a quick handler take. What is deleted later may come again.
LARGEST_AT_HAND = 64 << 20  # bytes of messages: an eighth of a container of 512 MiB, and 64 messages of the largest kind
_LARGEST_DEFERRED = LARGEST_AT_HAND // 2  # bytes, so what is deferred leaves room for what it waits for
_LEAST_AHEAD = 20  # messages, so one request for ten is under way while ten others wait
# Seconds of work that wait in advance at most. More would keep messages from other workers, which may have nothing to do.
_SECONDS_AHEAD = 1.0
_MOST_DONE = 1_000  # that wait to be deleted. If SQS deletes nothing, more would only be done in vain.
# Seconds that a message waits at hand for a step. It is as long as a Lambda function may work, so hardly any lease is longer.
_LONGEST_BUSY = 900.0
# Seconds after the end of a lease, so it has ended. A store whose clock is behind the worker's is asked this often.
_AFTER_LEASE = 1.0
_SWEEPS_PER_TIMEOUT = 6  # looks at what must be hidden for longer. It is done with a third of the time gone.


class WorkerState:
    """Each method that begins with `to_` takes out the next thing to do, if there is one."""

    def __init__(self, queues: Sequence[Queue], limits: Limits) -> None:
        self._queues, self._limits = queues, limits
        self._lines = WaitingLines(len(queues), MOST if limits.has_groups else 1)
        self._most_ahead = max(_LEAST_AHEAD, limits.slots)
        self.slots = Slots(limits)
        self._deferrals = Deferrals(limits.backoff)
        self._turn = 0
        self._receipts = 0  # requests that have brought messages
        self._messages: dict[QueueMessage, None] = {}  # what waits, is under way, or is deferred
        self.bytes_at_hand = 0
        self._mean_size = 0.0  # bytes of a message
        self._to_give_back: deque[tuple[QueueMessage, int]] = deque()
        self._returns: list[Return] = []
        self._begun_at = -inf  # when something last began
        self.is_silent = False  # the event loop stands still, so nothing would begin whatever is free
        self._sweep: deque[QueueMessage] = deque()
        self.next_sweep = 0.0
        self._is_hiding = False  # a request that hides is under way
        self.is_stopping = False

    # ------------------------------------------------------------ receiving

    def to_receive(self, now: float) -> Receive | None:
        if self.is_stopping or not self._has_space() or not self._can_begin(now):
            return None
        for _ in self._queues:
            self._turn = (self._turn + 1) % len(self._queues)
            if number := self._room(self._turn, now):
                self._queues[self._turn].begin(number)
                return Receive(self._turn, number, self._receipts if self._is_alone() else None)
        return None

    def has_request(self, now: float) -> bool:
        """Whether there may be something to delete or to receive."""
        for number, queue in enumerate(self._queues):  # after each message, so it is made for speed
            if self._is_due(queue, now):
                return True
            if not self.is_stopping and self._room(number, now) and self._has_space():
                return self._can_begin(now)
        return False

    def _can_begin(self, now: float) -> bool:
        """Whether what is received now will begin before long."""
        return not self.is_silent and (now < self._begun_at + SILENCE or self.slots.free > 0)

    def _is_due(self, queue: Queue, now: float) -> bool:
        count = len(queue.settled_messages)
        if not count or queue.delete_requests >= queue.most_requests:
            return False
        return count >= MOST_MESSAGES or now >= queue.delete_at or self.is_stopping

    def _has_space(self) -> bool:
        """Many may wait behind the first one of their group, and none has a size before it has come."""
        waiting_count = len(self._messages) - self.slots.messages
        reserved_bytes = self._mean_size * sum([queue.reserved_messages for queue in self._queues])
        return (
            self.bytes_at_hand + reserved_bytes <= LARGEST_AT_HAND
            and waiting_count <= MOST_MESSAGES * self._most_ahead + self._limits.most_deferred
            and sum([len(queue.settled_messages) for queue in self._queues]) <= _MOST_DONE
        )

    def _room(self, number: int, now: float) -> int:
        """For how many messages to ask. Requests for few are made only while slots are idle: ten at a time cost less."""
        queue = self._queues[number]
        if queue.receive_requests >= queue.most_requests or now < queue.resumes:
            return 0
        if self._limits.stop_when_empty and queue.is_empty:
            return 0
        demand = self.slots.free * (MOST_MESSAGES if self._limits.has_groups else 1)
        pace = self.slots.pace  # How many may wait in advance is not known before it is known how long one takes.
        ahead = 0 if pace is None else int(min(self._most_ahead, self.slots.number * _SECONDS_AHEAD / max(pace, 1e-6)))
        waiting = self._lines.waiting_counts
        room = min(MOST_MESSAGES, demand + ahead - waiting[number] - queue.reserved_messages)
        expected = sum(waiting) + sum([each.reserved_messages for each in self._queues])
        return room if room == MOST_MESSAGES or (room > 0 and demand > expected) else 0

    def take_in(
        self,
        request: Receive,
        messages: Sequence[SqsMessage],
        began: float,
        now: float,
        keys: Sequence[Hashable] | None = None,
    ) -> None:
        """Take in the messages of a request that began at `began`, with their groups. A worker that stops gives all back at once."""
        queue = self._queues[request.queue]
        queue.end(request.number)
        queue.failures = 0
        if not messages:
            queue.most_requests = 1
            queue.is_empty = request.receipts == self._receipts
            queue.resumes = max(queue.resumes, began + _LEAST_PAUSE)
            return
        self._receipts += 1
        if len(messages) == request.number:
            queue.most_requests = min(queue.most_requests + 1, MOST_REQUESTS)
        for number, content in enumerate(messages):
            # Those whose group a stand-in does not say might be of the same group.
            group = content.get("Attributes", {}).get("MessageGroupId", "") if queue.is_fifo else None
            key = None if keys is None else keys[number]
            hidden_until = now + queue.visibility
            message = QueueMessage(content, request.queue, group, began, hidden_until, size_of(content), key)
            self._messages[message] = None
            self.bytes_at_hand += message.size
            self._mean_size += (message.size - self._mean_size) * _PACE_WEIGHT
            if self.is_stopping:
                self._leave(message, "stopping", 0)
            else:
                self._lines.add(message)
        self._ask_all_again()

    def _ask_all_again(self) -> None:
        """Something has happened, and a queue that was empty may be so no longer."""
        for queue in self._queues:
            queue.is_empty = False

    def note_failure(self, request: Receive, now: float) -> None:
        queue = self._queues[request.queue]
        queue.end(request.number)
        queue.most_requests = 1
        queue.failures += 1
        queue.resumes = now + min(max(_LEAST_PAUSE, self._limits.backoff(queue.failures)), _LONGEST_PAUSE)

    # ------------------------------------------------------------ beginning and ending

    @property
    def ready_count(self) -> int:
        """How many loads may begin now."""
        return min(self._lines.ready_count, self.slots.free)

    def to_begin(self, now: float) -> Load | None:
        while self.ready_count:
            load = self._without_lost(self._lines.take(), now)
            if load.members:
                for message in load.members:
                    message.progresses = self._deferrals.progresses
                self.slots.begin(load, now)
                self._begun_at = now
                return load
        return None

    def give_back_what_cannot_begin(self, now: float) -> None:
        """To be called every few seconds."""
        while self._lines.ready_count and not self._can_begin(now):
            members = self._lines.take().members
            for message in members if members[0].group is None else members[:1]:
                self._leave_with_group(message, "stalled", 0)

    def _without_lost(self, load: Load, now: float) -> Load:
        """Another worker may have a message by now, so the rest of its FIFO group must not begin here."""
        lost_messages = [message for message in load.members if message.is_lost or now >= message.hidden_until]
        if not lost_messages:
            return load
        first = lost_messages[0]
        if first.group is None:
            for message in lost_messages:
                self._leave(message, "lost")
            return Load(tuple(message for message in load.members if message not in lost_messages))
        if first is load.members[0]:
            self._leave(first, "lost")
            for message in self._lines.fail(first):
                self._leave(message, "behind", 0)
        return Load(tuple(takewhile(lambda message: message is not first, load.members)))

    def end(self, load: Load, results: Results, now: float, clock: Callable[[], float]) -> None:
        """`clock` gives epoch seconds."""
        is_in_time = self.slots.end(load, now)
        if is_in_time:
            self._ask_all_again()
        for message, result in zip(load.members, results, strict=True):
            if result is not None and result.settled:
                self._settle(message, result, now, is_in_time=is_in_time, goes_on=message is load.members[-1])
            elif is_in_time:
                self._let_go_or_defer(message, result, now, clock)
                if message.group is not None:
                    break  # The rest of its group waits behind it, or has left the lines with it.

    def _settle(self, message: QueueMessage, result: Result, now: float, *, is_in_time: bool, goes_on: bool) -> None:
        """The last one of a FIFO group is deleted at once: then SQS gives out the next of the group."""
        is_last = False
        if is_in_time:
            self._forget(message)
            is_last = self._lines.settle(message, goes_on=goes_on)
        queue = self._queues[message.queue]
        queue.settled_messages.append({"ReceiptHandle": message.handle})
        queue.delete_at = min(queue.delete_at, now if is_last else now + DELETED_WITHIN)
        source, sequence = _place_of(result)
        if is_in_time and source is not None:
            for each in self._deferrals.progress(source, sequence):
                self._lines.make_ready(each)

    def _let_go_or_defer(self, message: QueueMessage, result: Result | None, now: float, clock: Callable[[], float]) -> None:
        if result is None:
            self._leave_with_group(message, "stopping" if self.is_stopping else "untouched", 0)
            return
        if result.error is not None or isinstance(result.unsettled, Begun):
            self._leave_with_group(message, "failed")
            return
        match result.unsettled:
            case Uncertain():
                self._leave_with_group(message, "uncertain", self._pause(message.receives))
            case Superseded():
                self._leave_with_group(message, "superseded", self._pause(1))
            case _ if self.is_stopping:
                self._leave_with_group(message, "stopping", 0)
            case Busy(until=until):
                # A function may return any number, also one that is none: then the message is tried again soon.
                self._wait_for_step(message, min(max(0.0, until - clock()), LONGEST_HIDDEN) + _AFTER_LEASE, now)
            case answer:
                self._defer(message, result, answer.expected if isinstance(answer, Deferred) else None, now)

    def to_give_up(self, now: float) -> list[Load]:
        """What has just become overdue."""
        late_loads = self.slots.to_give_up(now)
        for load in late_loads:
            for message in load.members:
                self._leave_with_group(message, "overdue", 0)
                if message.group is not None:
                    break  # The rest of the load is of its group.
        return late_loads

    # ------------------------------------------------------------ what is deferred

    def retry_due(self, now: float) -> None:
        for message in self._deferrals.take_due(now):
            self._lines.make_ready(message)

    def _defer(self, message: QueueMessage, result: Result, expected: object, now: float) -> None:
        source, sequence = _place_of(result)
        if self._deferrals.note_try(message, source, expected, now):
            self._lines.make_ready(message)
        elif now < message.deferred_since + PATIENCE and self._has_room(message):
            self._deferrals.add(message, source, sequence, now)
        else:
            self._leave_with_group(message, "deferred", self._pause(message.receives))

    def _wait_for_step(self, message: QueueMessage, seconds: float, now: float) -> None:
        hidden_for = extension(ceil(seconds), now - message.since)
        if seconds <= min(_LONGEST_BUSY, hidden_for) and self._has_room(message):
            self._deferrals.wait(message, now + seconds)
        else:
            self._leave_with_group(message, "busy", hidden_for)

    def _has_room(self, message: QueueMessage) -> bool:
        """Whether it may be held, with what waits behind it."""
        message.held_bytes = message.size + sum([each.size for each in self._lines.behind(message)])
        held_bytes = self._deferrals.held_bytes + message.held_bytes
        return len(self._deferrals) < self._limits.most_deferred and held_bytes <= _LARGEST_DEFERRED

    def _pause(self, tries: int) -> int:
        return min(max(0, ceil(self._limits.backoff(tries))), LONGEST_HIDDEN)

    # ------------------------------------------------------------ deleting and hiding

    def to_delete(self, now: float) -> tuple[int, list[SqsMessage]] | None:
        for number, queue in enumerate(self._queues):
            if self._is_due(queue, now):
                messages = queue.settled_messages
                batch = [messages.popleft() for _ in range(min(len(messages), MOST_MESSAGES))]
                if not messages:
                    queue.delete_at = inf
                queue.delete_requests += 1
                return number, batch
        return None

    def has_hide(self, now: float) -> bool:
        """Whether there may be something to hide. One request does so at a time, so no extension is on its way when a message is given
        back. It might hide the message for long that is to come again soon.
        """
        return not self._is_hiding and bool(self._to_give_back or self._sweep or (self._messages and now >= self.next_sweep))

    def to_hide(self, now: float) -> Hide | None:
        """What goes back, and else what must be hidden for longer."""
        batch: list[tuple[QueueMessage, int]] = []
        if not self.has_hide(now):
            return None
        if gives_back := bool(self._to_give_back):
            while self._to_give_back and _fits(self._to_give_back[0][0], batch):
                batch.append(self._to_give_back.popleft())
        elif not self._sweep and now >= self.next_sweep:
            self.next_sweep = now + min(queue.visibility for queue in self._queues) / _SWEEPS_PER_TIMEOUT
            for message in sorted(self._messages, key=attrgetter("queue")):
                visibility = self._queues[message.queue].visibility
                if not message.is_lost and message.hidden_until - now < visibility * (1 - 2 / _SWEEPS_PER_TIMEOUT) + 1e-9:
                    self._sweep.append(message)
        while not gives_back and self._sweep and _fits(self._sweep[0], batch):
            message = self._sweep.popleft()
            if message in self._messages and not message.is_lost:
                seconds = extension(self._queues[message.queue].visibility, now - message.since)
                message.is_lost = not seconds
                batch += [(message, seconds)] if seconds else []
        self._is_hiding = bool(batch)
        return Hide(batch[0][0].queue, tuple(batch), gives_back) if batch else None

    def end_deleting(self, queue: int) -> None:
        """A request that deletes has ended."""
        self._queues[queue].delete_requests -= 1

    def end_hiding(self, hide: Hide, failures: Mapping[str, bool], began: float) -> None:
        """A request that hides has ended. `failures` are the handles it did not hide, and whether SQS no longer takes each for received."""
        self._is_hiding = False
        for message, seconds in hide.messages:
            if message.handle in failures:
                message.is_lost = failures[message.handle]
            elif not hide.gives_back:
                message.hidden_until = began + seconds

    def _leave_with_group(self, message: QueueMessage, reason: ReturnReason, seconds: int | None = None) -> None:
        """The message, and the rest of its group."""
        self._leave(message, reason, seconds)
        for member in self._lines.fail(message):
            self._leave(member, "behind", seconds)

    def _leave(self, message: QueueMessage, reason: ReturnReason, seconds: int | None = None) -> None:
        """It is at hand no more, and comes again after these seconds; None: when its visibility timeout ends."""
        self._forget(message)
        self._returns.append(Return(message, reason))
        if seconds is not None and not message.is_lost:
            self._to_give_back.append((message, seconds))

    def _forget(self, message: QueueMessage) -> None:
        del self._messages[message]
        self.bytes_at_hand -= message.size

    def to_log(self) -> list[Return]:
        """What is at hand no more although it is not settled."""
        returns, self._returns = self._returns, []
        return returns

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """Nothing more is received or begun. What waits is given back; what is under way may end."""
        if not self.is_stopping:
            self.is_stopping = True
            for message in [*self._deferrals.clear(), *self._lines.clear()]:
                self._leave(message, "stopping", 0)

    @property
    def is_busy(self) -> bool:
        """Whether something is under way, or done and not yet told to SQS."""
        tells = any(queue.settled_messages or queue.delete_requests for queue in self._queues)
        return bool(len(self.slots) or self._to_give_back or self._is_hiding or tells)

    @property
    def waits_for_messages(self) -> bool:
        return any(queue.reserved_messages for queue in self._queues)

    def _is_alone(self) -> bool:
        return not self.is_busy and not sum(self._lines.waiting_counts)

    def has_nothing_to_do(self, now: float) -> bool:
        """Whether all queues are empty, nothing is at hand, and no deferred message is due before a queue has been asked once more.

        An empty response says nothing while another request is in flight: that one may have taken all the messages there were.
        """
        is_last = self._limits.stop_when_empty and not self.waits_for_messages
        empty = is_last and all(queue.is_empty for queue in self._queues)
        return empty and self._is_alone() and self._deferrals.next_due() > now + self._limits.wait

    def next_due(self, now: float) -> float:
        """When there is something to do again, if nothing happens before."""
        moments = [moment for queue in self._queues for moment in (queue.delete_at, queue.resumes)]
        moments += [self.next_sweep] if self._messages else []
        later = [moment for moment in moments if moment > now]  # What is due already waits for a request that is under way.
        return min([self._deferrals.next_due(), self.slots.next_due(now), *later])

    def counts(self) -> dict[str, int]:
        """How many messages there are of each kind, for those who watch."""
        return {
            "waiting": len(self._messages) - self.slots.messages - len(self._deferrals),
            "under_way": self.slots.messages,
            "deferred": len(self._deferrals),
            "done": sum(len(queue.settled_messages) for queue in self._queues),
            "lost_slots": self._limits.slots - self.slots.number,
            "bytes_at_hand": self.bytes_at_hand,
        }


def _place_of(result: Result) -> tuple[str | None, int | str | None]:
    """The source of a message and its sequence. Without either, messages have nothing in common, though all have the source ""."""
    message = result.message
    if message is None or (not message.source and message.sequence is None):
        return None, None
    return message.source, message.sequence


def _fits(message: QueueMessage, batch: Sequence[tuple[QueueMessage, int]]) -> bool:
    """Whether it may be in one request with the others."""
    return not batch or (len(batch) < MOST_MESSAGES and message.queue == batch[0][0].queue)
