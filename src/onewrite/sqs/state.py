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
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import ceil, inf
from operator import attrgetter
from types import NoneType
from typing import Any, Literal, NamedTuple, TypeAlias

from onewrite.batch.report import Result
from onewrite.outcome import Begun, Busy, Deferred, Superseded, Uncertain
from onewrite.sqs.waiting import MOST_MESSAGES, PATIENCE, Deferrals, GroupLines, Load, QueueMessage, SqsMessage, WaitingLines

LONGEST_HIDDEN = 12 * 3600  # seconds that SQS hides a message after it was received, however often that is extended

Kind: TypeAlias = Literal["settled", "failed", "deferred", "busy", "uncertain", "superseded", "untouched"]


BEAT = 10.0  # seconds after which the worker shows at the latest that it is alive
# Seconds. A worker does its rounds at every beat, so it is no accident of a busy machine if whatever does the work has not
# stirred for as long as this. Then its health page says so, and what cannot begin goes back to the queue.
SILENCE = 30.0


def extension(visibility: int, since: float) -> int:
    """For how many seconds from now to hide a message that was received so many seconds ago. 0: SQS hides it no longer."""
    return max(0, min(visibility, int(LONGEST_HIDDEN - since)))


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """What is decided by the queue."""

    visibility: int
    fifo: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """What is decided by the worker. A message that ends within `grace` seconds after its timeout costs no slot.

    `wait`: for how many seconds SQS waits for messages. `gather`: for how many seconds the first message of a group waits for others;
    None if the handler has no groups. `backoff(tries)`: how many seconds something waits for its next try.
    """

    slots: int
    timeout: float
    grace: float
    wait: int
    most_deferred: int
    stop_when_empty: bool
    gather: float | None
    backoff: Callable[[int], float]


Results: TypeAlias = Sequence[Result | None]
"""For each message of a load; None for one that was not processed."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a message ended, and which message of which source it is. None if it has neither a source nor a sequence.

    `wait`: the seconds until the step is free that the message is busy with. `expected`: the number for which it waits. Untouched: it was
    not processed.
    """

    kind: Kind
    source: str | None = None
    sequence: int | str | None = None
    wait: float = 0.0
    expected: object = None


_KINDS: dict[type, Kind] = {
    NoneType: "settled",
    Begun: "failed",
    Busy: "busy",
    Superseded: "superseded",
    Uncertain: "uncertain",
}  # by what is not settled


def ending_of(result: Result | None, clock: Callable[[], float]) -> Ending:
    """`clock` gives epoch seconds. None: the message was not processed."""
    if result is None:
        return Ending("untouched")
    unsettled_answer, message = result.unsettled, result.message
    # A function may return any number, also one that is none: then the message is tried again soon.
    wait = min(max(0.0, unsettled_answer.until - clock()), LONGEST_HIDDEN) if isinstance(unsettled_answer, Busy) else 0.0
    source, sequence = (None, None) if message is None else (message.source, message.sequence)
    if not source and sequence is None:  # Such messages have nothing in common, though all have the source "".
        source = None
    kind = "failed" if result.error is not None else _KINDS.get(type(result.unsettled), "deferred")
    expected = unsettled_answer.expected if isinstance(unsettled_answer, Deferred) else None
    return Ending(kind, source, sequence, wait, expected)


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


class Intake:
    """How many requests for messages may be under way at a time follows the answers.

    One more after each that brought as many messages as it asked for, and a single one after an answer without messages: an
    empty queue is asked by one request that waits.
    """

    __slots__ = (
        "_backoff",
        "_failures",
        "_under_way",
        "is_empty",
        "most_requests",
        "reserved_messages",
        "resumes",
    )

    def __init__(self, backoff: Callable[[int], float]) -> None:
        self._backoff = backoff
        self.most_requests = 1
        self._under_way = 0
        self._failures = 0
        self.reserved_messages = 0  # messages that the requests under way may bring
        self.resumes = 0.0  # when the pause after a failure ends
        self.is_empty = False

    def may_ask(self, now: float) -> bool:
        return self._under_way < self.most_requests and now >= self.resumes

    def ask(self, request: Receive) -> None:
        self._under_way += 1
        self.reserved_messages += request.number

    def end(self, request: Receive, messages: int, began: float, *, is_empty: bool) -> None:
        self._release(request)
        self._failures = 0
        if not messages:
            self.most_requests = 1
            self.is_empty = is_empty
            self.resumes = max(self.resumes, began + _LEAST_PAUSE)
        elif messages == request.number:
            self.most_requests = min(self.most_requests + 1, MOST_REQUESTS)

    def fail(self, request: Receive, now: float) -> None:
        self._release(request)
        self.most_requests = 1
        self._failures += 1
        self.resumes = now + min(max(_LEAST_PAUSE, self._backoff(self._failures)), _LONGEST_PAUSE)

    def _release(self, request: Receive) -> None:
        self._under_way -= 1
        self.reserved_messages -= request.number


# --- what is under way in the slots, and which slots are lost to what hangs -------------------------------------------


_PACE_WEIGHT = 0.1  # of the last message, in the mean of their durations
_MANY_LATE = 3  # different messages: one or two may be to blame themselves
_LATE_FOR = 2  # times the timeout


class Slots:
    """Each slot has a load: a message, or the messages of a group."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way: dict[Load, None] = {}  # in the order in which they began
        self._overdue_loads: dict[Load, float] = {}  # and when they became so
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
        return self._limits.slots - len(self._overdue_loads)

    @property
    def free(self) -> int:
        return max(0, self._limits.slots - len(self._overdue_loads) - len(self._under_way))

    @property
    def overdue_count(self) -> int:
        return len(self._overdue_loads)

    def begin(self, load: Load, now: float) -> None:
        load.began = now
        self._under_way[load] = None
        self.messages += len(load.members)
        for message in load.members:
            message.is_under_way = True

    def end(self, load: Load, now: float) -> bool:
        """False: it was overdue, and its messages were given back before."""
        if self._overdue_loads.pop(load, None) is not None:
            return False
        self._leave(load)
        if self._late_ids:
            self._late_ids.clear()
        seconds = (now - load.began) / len(load.members)
        self.pace = seconds if self.pace is None else self.pace + (seconds - self.pace) * _PACE_WEIGHT
        return True

    def to_give_up(self, now: float) -> list[Load]:
        """What has just become overdue."""
        late_loads: list[Load] = []
        for load in self._under_way:
            if now < load.began + self._limits.timeout:
                break
            late_loads.append(load)
        for load in late_loads:
            self._leave(load)
            self._overdue_loads[load] = now
            self._late_since = self._late_since if self._late_ids else now
            self._late_ids.update(message.content["MessageId"] for message in load.members)
        return late_loads

    def under_way(self) -> list[QueueMessage]:
        return [message for load in self._under_way for message in load.members]

    def count_anew(self, now: float) -> None:
        """The process itself stood still, so nothing could end."""
        for load in self._under_way:
            load.began = now
        self._overdue_loads = dict.fromkeys(self._overdue_loads, now)
        self._late_ids.clear()

    @property
    def late_count(self) -> int:
        """Messages that did not end in time, one after the other."""
        return len(self._late_ids)

    def is_starved(self, now: float) -> bool:
        """Nothing ends in time any more, although what is given up costs no slot: maybe all wait for what is never free again."""
        return len(self._late_ids) >= _MANY_LATE and now >= self._late_since + _LATE_FOR * self._limits.timeout

    def _leave(self, load: Load) -> None:
        del self._under_way[load]
        self.messages -= len(load.members)
        for message in load.members:
            message.is_under_way = False

    def lost_loads(self, now: float) -> list[Load]:
        """What has a slot that is lost."""
        return [load for load, since in self._overdue_loads.items() if now >= since + self._limits.grace]

    def is_stuck(self, now: float) -> bool:
        """More than half of the slots are lost."""
        return 2 * len(self.lost_loads(now)) > self._limits.slots

    def next_due(self, now: float) -> float:
        """When something becomes overdue, or a slot lost."""
        first_load = next(iter(self._under_way), None)
        loss_times = [since + self._limits.grace for since in self._overdue_loads.values()]
        timeout = inf if first_load is None else first_load.began + self._limits.timeout
        return min([timeout, *(moment for moment in loss_times if moment > now)])


# --- the messages at hand ---------------------------------------------------------------------------------------------


DELETED_WITHIN = 0.2  # seconds: as long as ten messages of a quick handler take. What is deleted later may come again.
_LEAST_AHEAD = 20  # messages, so one request for ten is under way while ten others wait
# Seconds of work that wait in advance at most. More would keep messages from other workers, which may have nothing to do.
_SECONDS_AHEAD = 1.0
_MOST_DONE = 1_000  # that wait to be deleted. If SQS deletes nothing, more would only be done in vain.
# Seconds that a message waits at hand for a step. It is as long as a Lambda function may work, so hardly any lease is longer.
_LONGEST_BUSY = 900.0
# Seconds after the end of a lease, so it has ended. A store whose clock is behind the worker's is asked this often.
_AFTER_LEASE = 1.0
_LARGEST_DEFERRED = 64 << 20  # characters of their bodies together: 64 MiB of memory and more
_SWEEPS_PER_TIMEOUT = 6  # looks at what must be hidden for longer. It is done with a third of the time gone.


class WorkerState:
    """Each method that begins with `to_` takes out the next thing to do, if there is one."""

    def __init__(self, queues: Sequence[QueueTerms], limits: Limits) -> None:
        self._queues, self._limits, self._backoff = queues, limits, limits.backoff
        self._lines = WaitingLines(len(queues)) if limits.gather is None else GroupLines(len(queues), limits.gather)
        self.slots = Slots(limits)
        self._deferrals = Deferrals(limits.backoff)
        self._deferred_size = 0
        self._intakes = tuple(Intake(limits.backoff) for _ in queues)
        self._turn = 0
        self._receipts = 0  # requests that have brought messages
        self._messages: dict[QueueMessage, None] = {}  # what waits, is under way, or is deferred
        self._settled_messages = tuple(deque[QueueMessage]() for _ in queues)
        self._delete_at = [inf for _ in queues]
        self._to_give_back: deque[tuple[QueueMessage, int]] = deque()
        self._returns: list[Return] = []
        self._begun_at = -inf  # when something last began
        self.is_silent = False  # the event loop stands still, so nothing would begin whatever is free
        self._sweep: deque[QueueMessage] = deque()
        self.next_sweep = 0.0
        self._delete_requests = [0 for _ in queues]  # requests that delete, under way
        self._hide_requests = 0  # that hide, under way
        self.is_stopping = False

    # ------------------------------------------------------------ receiving

    def to_receive(self, now: float) -> Receive | None:
        if self.is_stopping or not self._has_space() or not self._can_begin(now):
            return None
        for _ in self._queues:
            self._turn = (self._turn + 1) % len(self._queues)
            intake = self._intakes[self._turn]
            if self._may_ask(intake, now) and (number := self._room(self._turn)):
                request = Receive(self._turn, number, self._receipts if self._is_alone() else None)
                intake.ask(request)
                return request
        return None

    def has_request(self, now: float) -> bool:
        """Whether there may be something to delete or to receive."""
        for queue, intake in enumerate(self._intakes):  # after each message, so it is made for speed
            if self._is_due(queue, now):
                return True
            if self._may_ask(intake, now) and not self.is_stopping and self._has_space() and self._room(queue):
                return self._can_begin(now)
        return False

    def _can_begin(self, now: float) -> bool:
        """Whether what is received now will begin before long."""
        return not self.is_silent and (now < self._begun_at + SILENCE or self.slots.free > 0)

    def take_in(
        self,
        request: Receive,
        messages: Sequence[SqsMessage],
        began: float,
        now: float,
        states: Sequence[tuple[Hashable, Any]] | None = None,
    ) -> None:
        """Take in the messages of a request that began at `began`. A worker that stops gives all back at once.

        `states` are the groups of the messages, each with what the handler has read.
        """
        self._receipts += bool(messages)
        self._intakes[request.queue].end(request, len(messages), began, is_empty=request.receipts == self._receipts)
        terms = self._queues[request.queue]
        for number, content in enumerate(messages):
            # Those whose group a stand-in does not say might be of the same group.
            group = content.get("Attributes", {}).get("MessageGroupId", "") if terms.fifo else None
            message = QueueMessage(content, request.queue, group, began, now + terms.visibility)
            if states is not None:
                message.key, message.record_state = states[number]
            if self.is_stopping:
                self._give_back(message, 0, "stopping")
            else:
                self._messages[message] = None
                self._lines.add(message, now)
        if messages:
            self._ask_all_again()

    def _ask_all_again(self) -> None:
        """Something has happened, and a queue that was empty may be so no longer."""
        for intake in self._intakes:
            intake.is_empty = False

    def note_failure(self, request: Receive, now: float) -> None:
        self._intakes[request.queue].fail(request, now)

    def _is_due(self, queue: int, now: float) -> bool:
        count = len(self._settled_messages[queue])
        if self._delete_requests[queue] >= self._intakes[queue].most_requests:
            return False
        return count >= MOST_MESSAGES or (count > 0 and (now >= self._delete_at[queue] or self.is_stopping))

    def _may_ask(self, intake: Intake, now: float) -> bool:
        return intake.may_ask(now) and not (self._limits.stop_when_empty and intake.is_empty)

    def _has_space(self) -> bool:
        waiting_count = len(self._messages) - self.slots.messages  # Many may wait behind the first one of their group.
        most_waiting = MOST_MESSAGES * self._most_ahead + self._limits.most_deferred
        return sum(map(len, self._settled_messages)) <= _MOST_DONE and waiting_count <= most_waiting

    def _room(self, queue: int) -> int:
        """For how many messages to ask. Requests for few are made only while slots are idle: ten at a time cost less."""
        reserved_messages = sum(intake.reserved_messages for intake in self._intakes)
        demand = self.slots.free * self._lines.per_slot
        pace = self.slots.pace  # How many may wait in advance is not known before it is known how long one takes.
        ahead = 0 if pace is None else int(min(self._most_ahead, self.slots.number * _SECONDS_AHEAD / max(pace, 1e-6)))
        room = min(MOST_MESSAGES, demand + ahead - self._lines.waiting_of(queue) - self._intakes[queue].reserved_messages)
        return room if room == MOST_MESSAGES or demand > self._lines.waiting_count + reserved_messages else 0

    @property
    def _most_ahead(self) -> int:
        return max(_LEAST_AHEAD, self._limits.slots)

    def _is_alone(self) -> bool:
        return not (self.is_busy or self._lines.waiting_count)

    # ------------------------------------------------------------ beginning and ending

    @property
    def has_ready(self) -> bool:
        return self._lines.ready_count > 0 and self.slots.free > 0

    def to_begin(self, now: float) -> Load | None:
        while self.has_ready:
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
                self._give_back_group(message, 0, "stalled")

    def _without_lost(self, load: Load, now: float) -> Load:
        """Another worker may have a message by now, so the rest of its FIFO group must not begin here."""
        lost_messages = [message for message in load.members if message.is_lost or now >= message.hidden_until]
        if not lost_messages:
            return load
        first = lost_messages[0]
        if first.group is None:
            for message in lost_messages:
                self._drop(message, "lost")
            return Load(tuple(message for message in load.members if message not in lost_messages))
        if first is load.members[0]:
            self._drop(first, "lost")
            self._give_back_all(self._lines.fail(first), 0, "behind")
        return Load(tuple(takewhile(lambda message: message is not first, load.members)))

    def end(self, load: Load, endings: Sequence[Ending], now: float) -> None:
        if not self.slots.end(load, now):
            for message, ending in zip(load.members, endings, strict=True):
                if ending.kind == "settled":
                    self._done_with(message, now + DELETED_WITHIN)
            return
        self._ask_all_again()
        for message, ending in zip(load.members, endings, strict=True):
            if ending.kind == "settled":
                self._settle(message, ending, now, goes_on=message is load.members[-1])
                continue
            self._let_go_or_defer(message, ending, now)
            if message.group is not None:
                break  # The rest of its group waits behind it, or has left the lines with it.

    def _let_go_or_defer(self, message: QueueMessage, ending: Ending, now: float) -> None:
        if ending.kind == "failed":
            self._drop(message, "failed")
            for member in self._lines.fail(message):
                self._drop(member, "behind")
        elif ending.kind in ("uncertain", "superseded"):
            self._let_go(message, ending.kind, tries=1 if ending.kind == "superseded" else message.receives)
        elif self.is_stopping or ending.kind == "untouched":
            self._give_back_group(message, 0, "stopping" if self.is_stopping else "untouched")
        elif ending.kind == "busy":
            self._wait_for_step(message, ending.wait + _AFTER_LEASE, now)
        else:
            self._defer(message, ending, now)

    def _settle(self, message: QueueMessage, ending: Ending, now: float, *, goes_on: bool) -> None:
        self._drop(message)
        group_has_ended = self._lines.settle(
            message, goes_on=goes_on
        )  # and SQS gives out the next of the group when these are deleted
        self._done_with(message, now if group_has_ended else now + DELETED_WITHIN)
        if ending.source is not None:
            self._try_again(self._deferrals.progress(ending.source, ending.sequence))

    def to_give_up(self, now: float) -> list[Load]:
        """What has just become overdue."""
        late_loads = self.slots.to_give_up(now)
        for load in late_loads:
            for message in load.members:
                self._give_back_group(message, 0, "overdue")
                if message.group is not None:
                    break  # The rest of the load is of its group.
        return late_loads

    # ------------------------------------------------------------ what is deferred

    def retry_due(self, now: float) -> None:
        self._lines.end_gathering(now)
        self._try_again(self._deferrals.take_due(now))

    def _defer(self, message: QueueMessage, ending: Ending, now: float) -> None:
        if self._deferrals.note_try(message, ending.source, ending.expected, now):
            self._lines.make_ready(message)
        elif now < message.deferred_since + PATIENCE and self._has_room(message):
            self._deferrals.add(message, ending.source, ending.sequence, now)
            self._deferred_size += _size(message)
        else:
            self._let_go(message, "deferred", tries=message.receives)

    def _wait_for_step(self, message: QueueMessage, seconds: float, now: float) -> None:
        hidden_for = extension(ceil(seconds), now - message.since)
        if seconds <= min(_LONGEST_BUSY, hidden_for) and self._has_room(message):
            self._deferrals.wait(message, now + seconds)
            self._deferred_size += _size(message)
        else:
            self._give_back_group(message, hidden_for, "busy")

    def _has_room(self, message: QueueMessage) -> bool:
        size = self._deferred_size + _size(message)
        return len(self._deferrals) < self._limits.most_deferred and size <= _LARGEST_DEFERRED

    def _try_again(self, messages: Iterable[QueueMessage]) -> None:
        for message in messages:
            self._deferred_size -= _size(message)
            self._lines.make_ready(message)

    def _let_go(self, message: QueueMessage, reason: ReturnReason, *, tries: int) -> None:
        self._give_back_group(message, min(max(0, ceil(self._backoff(tries))), LONGEST_HIDDEN), reason)

    # ------------------------------------------------------------ deleting and hiding

    def to_delete(self, now: float) -> tuple[int, list[QueueMessage]] | None:
        for queue, messages in enumerate(self._settled_messages):
            if self._is_due(queue, now):
                batch = [messages.popleft() for _ in range(min(len(messages), MOST_MESSAGES))]
                if not messages:
                    self._delete_at[queue] = inf
                self._delete_requests[queue] += 1
                return queue, batch
        return None

    def to_hide(self, now: float) -> Hide | None:
        """What goes back, and else what must be hidden for longer. Ask again only after `end_hiding`, in order."""
        if self._to_give_back:
            queue = self._to_give_back[0][0].queue
            batch: list[tuple[QueueMessage, int]] = []
            while self._to_give_back and len(batch) < MOST_MESSAGES and self._to_give_back[0][0].queue == queue:
                batch.append(self._to_give_back.popleft())
            self._hide_requests += 1
            return Hide(queue, tuple(batch), gives_back=True)
        if not self._sweep and now >= self.next_sweep:
            self.next_sweep = now + min(terms.visibility for terms in self._queues) / _SWEEPS_PER_TIMEOUT
            for message in sorted(self._messages, key=attrgetter("queue")):
                visibility = self._queues[message.queue].visibility
                if not message.is_lost and message.hidden_until - now < visibility * (1 - 2 / _SWEEPS_PER_TIMEOUT) + 1e-9:
                    self._sweep.append(message)
        batch = []
        while self._sweep and len(batch) < MOST_MESSAGES and (not batch or self._sweep[0].queue == batch[0][0].queue):
            message = self._sweep.popleft()
            if message not in self._messages or message.is_lost:
                continue
            seconds = extension(self._queues[message.queue].visibility, now - message.since)
            message.is_lost = not seconds
            if seconds:
                batch.append((message, seconds))
        self._hide_requests += bool(batch)
        return Hide(batch[0][0].queue, tuple(batch), gives_back=False) if batch else None

    def end_hiding(self) -> None:
        """A request that hides has ended."""
        self._hide_requests -= 1

    def end_deleting(self, queue: int) -> None:
        """A request that deletes has ended."""
        self._delete_requests[queue] -= 1

    def note_hidden(self, hide: Hide, failures: Mapping[str, bool], now: float) -> None:
        """`now` is the time before the request; `failures` are the handles it did not hide, and whether SQS no longer takes each for received."""
        for message, seconds in hide.messages:
            if message.handle in failures:
                message.is_lost = failures[message.handle]
            else:
                message.hidden_until = now + seconds

    def _done_with(self, message: QueueMessage, at: float) -> None:
        self._settled_messages[message.queue].append(message)
        self._delete_at[message.queue] = min(self._delete_at[message.queue], at)

    def _give_back_group(self, message: QueueMessage, seconds: int, reason: ReturnReason) -> None:
        """The message, and the rest of its group."""
        self._give_back_all([message], seconds, reason)
        self._give_back_all(self._lines.fail(message), seconds, "behind")

    def _give_back_all(self, messages: Iterable[QueueMessage], seconds: int, reason: ReturnReason) -> None:
        for message in messages:
            self._drop(message)
            self._give_back(message, seconds, reason)

    def _give_back(self, message: QueueMessage, seconds: int, reason: ReturnReason) -> None:
        self._returns.append(Return(message, reason))
        if not message.is_lost:
            self._to_give_back.append((message, seconds))

    def _drop(self, message: QueueMessage, reason: ReturnReason | None = None) -> None:
        self._messages.pop(message, None)
        if reason is not None:
            self._returns.append(Return(message, reason))

    def to_log(self) -> list[Return]:
        """What is at hand no more although it is not settled."""
        returns, self._returns = self._returns, []
        return returns

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """Nothing more is received or begun. What waits is given back; what is under way may end."""
        if not self.is_stopping:
            self.is_stopping = True
            self._give_back_all([*self._deferrals.clear(), *self._lines.clear()], 0, "stopping")

    @property
    def is_busy(self) -> bool:
        """Whether something is under way, or done and not yet told to SQS."""
        return bool(
            len(self.slots)
            or self._to_give_back
            or self._hide_requests
            or any(self._settled_messages)
            or any(self._delete_requests)
        )

    @property
    def waits_for_messages(self) -> bool:
        return any(intake.reserved_messages for intake in self._intakes)

    def has_nothing_to_do(self, now: float) -> bool:
        """Whether all queues are empty, nothing is at hand, and no deferred message is due before a queue has been asked once more.

        An empty response says nothing while another request is in flight: that one may have taken all the messages there were.
        """
        is_last = self._limits.stop_when_empty and not self.waits_for_messages
        empty = is_last and all(intake.is_empty for intake in self._intakes)
        return empty and self._is_alone() and self._deferrals.next_due() > now + self._limits.wait

    @property
    def gives_back(self) -> bool:
        return bool(self._to_give_back)

    def next_due(self, now: float) -> float:
        """When there is something to do again, if nothing happens before."""
        return min(
            self._deferrals.next_due(),
            self._lines.next_due(),
            self.slots.next_due(now),
            min((moment for moment in self._delete_at if moment > now), default=inf),
            min((intake.resumes for intake in self._intakes if intake.resumes > now), default=inf),
        )

    @property
    def ready_to_begin(self) -> int:
        """How many loads may begin now."""
        return min(self._lines.ready_count, self.slots.free)

    def counts(self) -> dict[str, int]:
        """How many messages there are of each kind, for those who watch."""
        return {
            "waiting": len(self._messages) - self.slots.messages - len(self._deferrals),
            "under_way": self.slots.messages,
            "deferred": len(self._deferrals),
            "done": sum(map(len, self._settled_messages)),
            "lost_slots": self.slots.overdue_count,
        }


def _size(message: QueueMessage) -> int:
    return len(message.content.get("Body", ""))
