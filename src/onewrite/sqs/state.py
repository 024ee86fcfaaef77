"""The decisions of a worker about its messages. They are pure, without a clock, a thread, or a client. The time is an argument.

A received message can wait, and then occupies a slot while it is processed. With `group_by`, a slot has the messages of a group. The
message ends as:

- settled: it waits to be deleted, together with other messages. It is never deleted before it is settled.
- failed: it is redelivered when its visibility timeout ends, with the rest of its FIFO group.
- deferred, or busy with an effect of another worker: the worker keeps it without a slot, and retries it. See `waiting`.
- taken over: another worker has its effect. It returns to the queue briefly, and its next attempt finds out when the lease ends.
- uncertain: an operator must look up the result of its effect. Each return to the queue is longer than the one before.
- overdue: it took longer than the timeout. It returns to the queue, and its slot is lost until the call ends. If the call settles the
  message after all, the message is deleted, because its change is written and the next delivery would be a Duplicate.

The worker keeps all its messages hidden from other workers, for as long as SQS allows. They take at most `MAX_BYTES`, including the
messages that requests in progress can bring. Deferred messages and their followers in FIFO groups take at most half of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from math import ceil, inf
from typing import TypeAlias

from onewrite.batch.order import MAX_CALL_SIZE
from onewrite.batch.report import Result, compute_lease_wait
from onewrite.outcome import Begun, Busy, Deferred, TakenOver, Uncertain
from onewrite.sqs.waiting import MAX_BATCH, PATIENCE, Deferrals, Load, QueueMessage, SqsMessage, WaitingLines, measure_memory

MAX_HIDDEN = 12 * 3600  # seconds that SQS hides a received message in total, with all extensions


def compute_extension(visibility: int, since: float) -> int:
    """Return for how many seconds to hide a message that was received `since` seconds ago, or 0 if SQS no longer hides it."""
    return max(0, min(visibility, int(MAX_HIDDEN - since)))


@dataclass(frozen=True, slots=True)
class Limits:
    """The worker's options that the decisions need.

    - `grace`: seconds that an overdue message has to end before its slot is lost.
    - `wait`: seconds that SQS waits for messages.
    - `has_groups`: whether a slot takes the messages of a group at once.
    - `backoff(tries)`: seconds until the next attempt.
    """

    slots: int
    timeout: float
    grace: float
    wait: int
    stop_when_empty: bool
    has_groups: bool
    backoff: Callable[[int], float]


Results: TypeAlias = Sequence[Result | None]
"""The result of each message of a load, or None if the message was not processed."""


class Reason(Enum):
    """Why an unsettled message left the worker, in the words of the log. Their subject is the message."""

    FAILED = "is redelivered when its visibility timeout ends"
    DEFERRED = "goes back to the queue, because its predecessor hasn't arrived in time, or too many messages wait already"
    BUSY = "goes back to the queue until the effect's lease ends, because the lease is long, or too many messages wait"
    UNCERTAIN = "goes back to the queue for a while"
    TAKEN_OVER = "goes back to the queue for a moment"
    UNTOUCHED = "goes back to the queue unprocessed"
    OVERDUE = "went back to the queue, because it didn't finish in time"
    BEHIND = "goes back to the queue, because an earlier message of its group or source does"
    LOST = "is redelivered, because SQS no longer hides it"
    STOPPING = "goes back to the queue, because the worker is stopping"


@dataclass(frozen=True, slots=True)
class Hide:
    """A request to hide messages, each for its number of seconds from now.

    `is_return`: the worker returns the messages to the queue. Otherwise it keeps them, and extends their visibility timeouts.
    """

    messages: tuple[tuple[QueueMessage, int], ...]
    is_return: bool


@dataclass(frozen=True, slots=True)
class Receive:
    """A request for messages. `is_alone`: the worker had no message and no other request in progress when it made this one."""

    number: int
    is_alone: bool


# --- the loads in the slots, and the slots that are lost to loads that hang -------------------------------------------


_MEAN_WEIGHT = 0.1  # weight of the last message in the mean duration


class Slots:
    """The slots of a worker. Each slot has a load, which is a message or the messages of a group."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._under_way: dict[Load, None] = {}  # an ordered set, sorted by begin
        self._overdue: dict[Load, float] = {}  # each with the time since when it is overdue
        self.pace: float | None = None  # the mean seconds of a message
        self.messages = 0  # in progress

    @property
    def number(self) -> int:
        """Return the number of slots without an overdue load."""
        return self._limits.slots - len(self._overdue)

    @property
    def free(self) -> int:
        """Return the number of slots without a load."""
        return self.number - len(self._under_way)

    def begin(self, load: Load, now: float) -> None:
        load.began = now
        self._under_way[load] = None
        self.messages += len(load.members)

    def _leave(self, load: Load) -> None:
        del self._under_way[load]
        self.messages -= len(load.members)

    def end(self, load: Load, now: float) -> bool:
        """Free the slot of a load. Return False if the load was overdue, because its messages have already gone back."""
        if self._overdue.pop(load, None) is not None:
            return False
        self._leave(load)
        seconds = (now - load.began) / len(load.members)
        self.pace = seconds if self.pace is None else self.pace + (seconds - self.pace) * _MEAN_WEIGHT
        return True

    def take_overdue(self, now: float) -> list[Load]:
        """Return the loads that have just become overdue."""
        late_loads = [*takewhile(lambda load: now >= load.began + self._limits.timeout, self._under_way)]
        for load in late_loads:
            self._leave(load)
            self._overdue[load] = now
        return late_loads

    def list_messages(self) -> list[QueueMessage]:
        """Return the messages in progress. No lock is needed, because Python copies a dict in one step."""
        return [message for load in [*self._under_way] for message in load.members]

    def list_lost(self, now: float) -> list[Load]:
        """Return the loads whose slots are lost."""
        return [load for load, since in self._overdue.items() if now >= since + self._limits.grace]

    def find_next_due(self, now: float) -> float:
        """Return the next time at which a load becomes overdue, or a slot is lost."""
        first_load = next(iter(self._under_way), None)
        timeout = inf if first_load is None else first_load.began + self._limits.timeout
        losses = [since + self._limits.grace for since in self._overdue.values()]
        return min([timeout, *(moment for moment in losses if moment > now)])


# --- the messages at hand ---------------------------------------------------------------------------------------------


MAX_REQUESTS = 10  # concurrent requests for messages
_MIN_PAUSE = 0.1  # seconds between two requests if the first is empty and doesn't wait for messages
_FAILURE_PAUSE = 5.0  # seconds after a failed request, in which botocore has already made several attempts
DELETED_WITHIN = 0.2  # seconds in which a quick handler processes ten messages. A crash in between redelivers them.
MAX_BYTES = 64 << 20  # bytes of received messages, an eighth of a container of 512 MiB
MAX_MESSAGE = 1 << 20  # bytes that SQS accepts in a message
_MAX_DEFERRED_BYTES = MAX_BYTES // 2  # the other half is for the messages that deferred messages wait for
# Messages. Keeping them hidden takes about 15 requests a second if their visibility timeout is 30 seconds.
MAX_DEFERRED = 2_000
_MIN_AHEAD = 20  # messages: ten can wait while a request for ten more is in progress
_SECONDS_AHEAD = 1.0  # seconds of work to receive in advance. More would keep messages from idle workers.
_MAX_SETTLED = 1_000  # messages that wait to be deleted. If deletes fail, processing more messages would be pointless.
_MAX_BUSY = 900.0  # seconds to wait for an effect's lease. Few leases are longer, because no Lambda function runs longer.
_SWEEPS_PER_TIMEOUT = 6  # searches for messages to hide longer. At an extension, a third of the timeout has passed.


class WorkerState:
    """The messages of one queue. Each method that begins with `to_` takes out the next job of a kind, or returns None.

    The number of concurrent requests for messages grows by one after each full response, and falls to one after an empty response.
    An empty queue is therefore polled by a single long request.
    """

    def __init__(self, limits: Limits, *, visibility: int, is_fifo: bool) -> None:
        self._limits, self._visibility, self._is_fifo = limits, visibility, is_fifo
        self._lines = WaitingLines(MAX_CALL_SIZE if limits.has_groups else 1)
        self._max_ahead = max(_MIN_AHEAD, limits.slots)
        self.slots = Slots(limits)
        self._deferrals = Deferrals(limits.backoff)
        self._max_requests = 1
        self._receive_requests = 0
        self.reserved_messages = 0  # messages that the requests in progress can bring
        self._resumes = 0.0  # the end of the pause after a failure
        self._is_empty = False
        self._settled_messages: deque[SqsMessage] = deque()
        self._delete_at = inf
        self._delete_requests = 0
        self._messages: dict[QueueMessage, None] = {}  # messages that wait, are in progress, or are deferred
        self.bytes_at_hand = 0
        self._to_return: deque[tuple[QueueMessage, int]] = deque()
        self._returns: list[tuple[QueueMessage, Reason]] = []
        self._sweep: deque[QueueMessage] = deque()
        self.next_sweep = 0.0
        self._is_hiding = False  # a request that hides messages is in progress
        self.is_silent = False  # the event loop is blocked, and a received message would not begin
        self.is_stopping = False

    # ------------------------------------------------------------ receiving

    def to_receive(self, now: float) -> Receive | None:
        """Reserve space for the messages of the next request, and return the request."""
        number = self._choose_request_size(now)
        if not number:
            return None
        request = Receive(number, is_alone=self._has_no_message() and not self._receive_requests)
        self._receive_requests += 1
        self.reserved_messages += number
        return request

    def has_request(self, now: float) -> bool:
        """Whether there is something to delete or to receive."""
        return self._can_delete(now) or self._choose_request_size(now) > 0

    def _can_delete(self, now: float) -> bool:
        """Whether to send a delete request now. It must be full, or its oldest message has waited long enough, or the worker stops."""
        count = len(self._settled_messages)
        if not count or self._delete_requests >= self._max_requests:
            return False
        return count >= MAX_BATCH or now >= self._delete_at or self.is_stopping

    def _has_space(self) -> bool:
        """Whether there is space for ten more messages of maximum size. Many messages can wait for the first message of their group."""
        waiting_count = len(self._messages) - self.slots.messages
        return (
            self.bytes_at_hand + MAX_MESSAGE * (self.reserved_messages + MAX_BATCH) <= MAX_BYTES
            and waiting_count <= MAX_BATCH * self._max_ahead + MAX_DEFERRED
            and len(self._settled_messages) <= _MAX_SETTLED
        )

    def _choose_request_size(self, now: float) -> int:
        """Return for how many messages to ask. Ask for fewer than ten only while slots are idle, because full requests cost less."""
        if self.is_stopping or self.is_silent or now < self._resumes or self._receive_requests >= self._max_requests:
            return 0
        if self._limits.stop_when_empty and self._is_empty:
            return 0
        demand = self.slots.free * (MAX_BATCH if self._limits.has_groups else 1)
        pace = self.slots.pace  # None before the first message has ended. Receive nothing in advance then.
        ahead = 0 if pace is None else int(min(self._max_ahead, self.slots.number * _SECONDS_AHEAD / max(pace, 1e-6)))
        expected = self._lines.ready_messages + self.reserved_messages
        size = min(MAX_BATCH, demand + ahead - expected)
        is_worth_it = size == MAX_BATCH or (size > 0 and demand > expected)
        return size if is_worth_it and self._has_space() else 0

    def take_in(
        self,
        request: Receive,
        messages: Sequence[SqsMessage],
        began: float,
        now: float,
        keys: Sequence[Hashable] | None = None,
    ) -> None:
        """Take in the messages of a request that began at `began`, with their groups. A stopping worker returns them to the queue."""
        self._end_request(request)
        if not messages:
            self._max_requests = 1
            self._is_empty = request.is_alone
            self._resumes = max(self._resumes, began + _MIN_PAUSE)
            return
        if len(messages) == request.number:
            self._max_requests = min(self._max_requests + 1, MAX_REQUESTS)
        for number, content in enumerate(messages):
            # A stand-in without group IDs has a single group.
            group = content.get("Attributes", {}).get("MessageGroupId", "") if self._is_fifo else None
            key = None if keys is None else keys[number]
            message = QueueMessage(content, group, began, now + self._visibility, size=measure_memory(content), key=key)
            self._messages[message] = None
            self.bytes_at_hand += message.size
            if self.is_stopping:
                self._leave(message, Reason.STOPPING, 0)
            else:
                self._lines.add(message)
        self._is_empty = False

    def note_failure(self, request: Receive, now: float) -> None:
        """Pause after a failed request."""
        self._end_request(request)
        self._max_requests = 1
        self._resumes = now + _FAILURE_PAUSE

    def _end_request(self, request: Receive) -> None:
        self._receive_requests -= 1
        self.reserved_messages -= request.number

    # ------------------------------------------------------------ beginning and ending

    @property
    def ready_count(self) -> int:
        """Return the number of loads that can begin now."""
        return min(self._lines.ready_count, self.slots.free)

    def to_begin(self, now: float) -> Load | None:
        """Begin the next ready load that SQS still hides, and return it."""
        while self.ready_count:
            load = self._drop_lost(self._lines.take(), now)
            if load.members:
                for message in load.members:
                    message.progresses = self._deferrals.progresses
                self.slots.begin(load, now)
                return load
        return None

    def _drop_lost(self, load: Load, now: float) -> Load:
        """Drop messages that another worker might have received since, and the later messages of their FIFO groups."""
        kept_messages: list[QueueMessage] = []
        for message in load.members:
            message.is_lost = message.is_lost or now >= message.hidden_until
            if not message.is_lost:
                kept_messages.append(message)
            elif message.group is None:
                self._leave(message, Reason.LOST)
            else:
                if not kept_messages:
                    self._leave_with_group(message, Reason.LOST, 0)
                break  # Behind other messages of the load, drop the lost message later, when it is the first of its group.
        return Load(tuple(kept_messages))

    def end(self, load: Load, results: Results, now: float) -> None:
        """Settle, defer, or return each message of a load."""
        is_in_time = self.slots.end(load, now)
        self._is_empty = self._is_empty and not is_in_time  # the queue might have messages again
        has_failure = False
        for message, result in zip(load.members, results, strict=True):
            if result is not None and result.settled:
                self._settle(message, result, now, is_in_time=is_in_time, is_end_of_load=message is load.members[-1])
            elif is_in_time:
                self._keep_or_return(message, result, now, is_behind=has_failure)
                has_failure = True
                if message.group is not None:
                    break  # the rest of the group waits for this message, or has left with it

    def _settle(self, message: QueueMessage, result: Result, now: float, *, is_in_time: bool, is_end_of_load: bool) -> None:
        """Have the message deleted, at once if it is the last of its FIFO group, because only then does SQS return the group's next message."""
        is_last = False
        if is_in_time:
            self._forget(message)
            is_last = self._lines.settle(message, is_end_of_load=is_end_of_load)
        self._settled_messages.append({"ReceiptHandle": message.handle})
        self._delete_at = min(self._delete_at, now if is_last else now + DELETED_WITHIN)
        source, sequence = _read_source_and_sequence(result)
        if is_in_time and source is not None:
            for deferred_message in self._deferrals.note_progress(source, sequence):
                self._lines.make_ready(deferred_message)

    def _keep_or_return(self, message: QueueMessage, result: Result | None, now: float, *, is_behind: bool) -> None:
        """Keep an unsettled message for a retry, or return it to the queue. A result of None means that it wasn't processed.

        `is_behind`: an earlier message of its load isn't settled. An unprocessed message must not come back before that one.
        """
        if result is None and is_behind and not self.is_stopping:
            self._leave_with_group(message, Reason.BEHIND)
            return
        if result is None:
            self._leave_with_group(message, Reason.STOPPING if self.is_stopping else Reason.UNTOUCHED, 0)
            return
        if result.error is not None or isinstance(result.unsettled, Begun):
            self._leave_with_group(message, Reason.FAILED)
            return
        match result.unsettled:
            case Uncertain():
                self._leave_with_group(message, Reason.UNCERTAIN, self._pause(message.receives))
            case TakenOver():
                self._leave_with_group(message, Reason.TAKEN_OVER, self._pause(1))
            case _ if self.is_stopping:  # a stopping worker keeps no message, but still delays the two outcomes above
                self._leave_with_group(message, Reason.STOPPING, 0)
            case Busy(until=until):
                seconds = compute_lease_wait(until, result.clock())
                hidden_for = compute_extension(ceil(seconds), now - message.since)
                if seconds <= min(_MAX_BUSY, hidden_for) and self._reserve_room(message):
                    self._deferrals.wait(message, now + seconds)
                else:
                    self._leave_with_group(message, Reason.BUSY, hidden_for)
            case outcome:
                expected = outcome.expected if isinstance(outcome, Deferred) else None
                source, sequence = _read_source_and_sequence(result)
                if self._deferrals.note_try(message, source, expected, now):
                    self._lines.make_ready(message)
                elif now < message.deferred_since + PATIENCE and self._reserve_room(message):
                    self._deferrals.add(message, source, sequence, now)
                else:
                    self._leave_with_group(message, Reason.DEFERRED, self._pause(message.receives))

    def take_overdue(self, now: float) -> list[Load]:
        """Return newly overdue loads, after returning their messages to the queue."""
        late_loads = self.slots.take_overdue(now)
        for load in late_loads:
            for message in load.members:
                self._leave_with_group(message, Reason.OVERDUE, 0)
                if message.group is not None:
                    break  # the rest of the load belongs to the same group
        return late_loads

    # ------------------------------------------------------------ deferred messages

    def retry_due(self, now: float) -> None:
        """Make deferred messages ready if their pause has ended."""
        for message in self._deferrals.take_due(now):
            self._lines.make_ready(message)

    def _reserve_room(self, message: QueueMessage) -> bool:
        """Note how many bytes the message and the rest of its group hold, and return whether there is room to keep them."""
        message.held_bytes = message.size + sum([follower.size for follower in self._lines.list_followers(message)])
        held_bytes = self._deferrals.held_bytes + message.held_bytes
        return len(self._deferrals) < MAX_DEFERRED and held_bytes <= _MAX_DEFERRED_BYTES

    def _pause(self, tries: int) -> int:
        """Return the user's backoff in whole seconds, within SQS's limit."""
        return min(max(0, ceil(self._limits.backoff(tries))), MAX_HIDDEN)

    # ------------------------------------------------------------ deleting and hiding

    def to_delete(self, now: float) -> list[SqsMessage] | None:
        """Take the next settled messages that must be deleted now."""
        if not self._can_delete(now):
            return None
        batch = [self._settled_messages.popleft() for _ in range(min(len(self._settled_messages), MAX_BATCH))]
        if not self._settled_messages:
            self._delete_at = inf
        self._delete_requests += 1
        return batch

    def has_hide(self, now: float) -> bool:
        """Whether there might be something to hide.

        Only one such request is in progress at a time. Otherwise, an extension could arrive after a message went back, and hide it for long.
        """
        return not self._is_hiding and bool(self._to_return or self._sweep or (self._messages and now >= self.next_sweep))

    def to_hide(self, now: float) -> Hide | None:
        """Take the messages that go back to the queue. If there are none, take the messages that must be hidden for longer."""
        if not self.has_hide(now):
            return None
        if self._to_return:
            self._is_hiding = True
            returns = [self._to_return.popleft() for _ in range(min(len(self._to_return), MAX_BATCH))]
            return Hide(tuple(returns), is_return=True)
        if not self._sweep:
            self.next_sweep = now + self._visibility / _SWEEPS_PER_TIMEOUT
            # Extend before two more sweeps are due. The tiny addition compensates for rounding errors.
            min_left = self._visibility * (1 - 2 / _SWEEPS_PER_TIMEOUT) + 1e-9
            self._sweep.extend([kept for kept in self._messages if not kept.is_lost and kept.hidden_until - now < min_left])
        batch: list[tuple[QueueMessage, int]] = []
        while self._sweep and len(batch) < MAX_BATCH:
            message = self._sweep.popleft()
            if message in self._messages and not message.is_lost:
                seconds = compute_extension(self._visibility, now - message.since)
                if seconds:
                    batch.append((message, seconds))
                message.is_lost = not seconds
        self._is_hiding = bool(batch)
        return Hide(tuple(batch), is_return=False) if batch else None

    def end_deleting(self) -> None:
        """Record the end of a delete request."""
        self._delete_requests -= 1

    def end_hiding(self, hide: Hide, failures: Mapping[str, bool], began: float) -> None:
        """Record the end of a request that hides messages. `failures` maps each failed handle to whether the receive has expired."""
        self._is_hiding = False
        for message, seconds in hide.messages:
            if message.handle in failures:
                message.is_lost = failures[message.handle]
            elif not hide.is_return:
                message.hidden_until = began + seconds

    def _leave_with_group(self, message: QueueMessage, reason: Reason, seconds: int | None = None) -> None:
        """Release the message and the rest of its FIFO group."""
        self._leave(message, reason, seconds)
        for member in self._lines.fail(message):
            self._leave(member, Reason.BEHIND, seconds)

    def _leave(self, message: QueueMessage, reason: Reason, seconds: int | None = None) -> None:
        """Release the message. SQS redelivers it after `seconds`, or, if that is None, when its visibility timeout ends."""
        self._forget(message)
        self._returns.append((message, reason))
        if seconds is not None and not message.is_lost:
            self._to_return.append((message, seconds))

    def _forget(self, message: QueueMessage) -> None:
        del self._messages[message]
        self.bytes_at_hand -= message.size

    def to_log(self) -> list[tuple[QueueMessage, Reason]]:
        """Return the unsettled messages that left the worker since the last call."""
        returns, self._returns = self._returns, []
        return returns

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """Stop receiving and beginning messages. Return all messages to the queue except those in progress."""
        if not self.is_stopping:
            self.is_stopping = True
            kept = {*self.slots.list_messages()}
            self._lines.clear(kept)
            self._deferrals.clear()
            for message in [message for message in self._messages if message not in kept]:
                self._leave(message, Reason.STOPPING, 0)

    @property
    def is_busy(self) -> bool:
        """Whether a message is in progress, or a delete or a return has not reached SQS yet."""
        has_news_for_sqs = self._settled_messages or self._delete_requests or self._to_return or self._is_hiding
        return bool(self.slots.messages or has_news_for_sqs)

    def _has_no_message(self) -> bool:
        """Whether no message is ready, in progress, or on its way back to SQS. Deferred messages don't count."""
        return not self.is_busy and not self._lines.ready_messages

    def has_nothing_to_do(self, now: float) -> bool:
        """Whether the queue is empty, no message waits or is in progress, and no deferred message is due within one more long poll.

        An empty response proves nothing while a second request is in flight, which might have received all messages.
        """
        is_empty = self._limits.stop_when_empty and self._is_empty and not self.reserved_messages
        return is_empty and self._has_no_message() and self._deferrals.find_next_due() > now + self._limits.wait

    def find_next_due(self, now: float) -> float:
        """Return the time of the next job, if nothing happens before."""
        moments = [self._delete_at, self._resumes, *([self.next_sweep] if self._messages else [])]
        later = [moment for moment in moments if moment > now]  # a job that is due already waits for a request in progress
        return min([self._deferrals.find_next_due(), self.slots.find_next_due(now), *later])

    def list_messages(self) -> list[QueueMessage]:
        """Return all messages that the worker has, those in progress first. No lock is needed, because Python copies a dict in one step."""
        return [*dict.fromkeys([*self.slots.list_messages(), *self._messages])]

    def count_messages(self) -> dict[str, int]:
        """Return the gauges of the health page, which are messages by state, lost slots, and bytes of messages."""
        return {
            "waiting": len(self._messages) - self.slots.messages - len(self._deferrals),
            "under_way": self.slots.messages,
            "deferred": len(self._deferrals),
            "done": len(self._settled_messages),
            "lost_slots": self._limits.slots - self.slots.number,
            "bytes_at_hand": self.bytes_at_hand,
        }


def _read_source_and_sequence(result: Result) -> tuple[str | None, int | str | None]:
    """Return a message's source and sequence. Return None for both if it has neither, because an empty source relates no messages."""
    message = result.message
    if message is None or (not message.source and message.sequence is None):
        return None, None
    return message.source, message.sequence
