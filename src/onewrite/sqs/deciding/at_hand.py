"""The messages that a worker has at hand, and everything that is decided about them. The time is an argument.

A message is received, perhaps waits, is under way in a slot, and ends:

- settled: it waits to be deleted, together with others. It is never deleted before it is settled.
- failed: it is left alone, and comes again when its visibility timeout ends; with it comes the rest of its FIFO group.
- deferred, or busy with a step of another worker: it stays at hand without a slot, and is tried again: see `deferrals`.
- superseded: another worker has its step, so it goes back for a moment. Only its next try can tell until when.
- uncertain: somebody must look up what became of its step's effect, so it goes back for longer each time.
- overdue, when it has taken longer than the timeout: it is given back to the queue, and its slot is lost while it goes on.
  If it is settled later all the same it is deleted: its effect is written, and another delivery would be a Duplicate.

All that is at hand stays hidden from other workers, for as long as SQS allows that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from math import ceil, inf

from onewrite.sqs.deciding.deferrals import Deferrals
from onewrite.sqs.deciding.intake import MOST_MESSAGES, Intake, Receive, Span
from onewrite.sqs.deciding.lines import Held, WaitingLines
from onewrite.sqs.deciding.terms import Ending, Hide, Limits, QueueTerms
from onewrite.sqs.decisions import LONGEST_HIDDEN, extension
from onewrite.sqs_message import Received

DELETED_WITHIN = 0.2  # seconds: as long as ten messages of a quick handler take. What is deleted later may come again.
_LEAST_AHEAD = 20  # messages, so that one request for ten is under way while ten others wait
# Seconds of work that wait in advance at most. More would keep messages from other workers, which may have nothing to do.
_SECONDS_AHEAD = 1.0
_PACE_WEIGHT = 0.1  # of the last message, in the mean of their durations
_MOST_DONE = 1_000  # that wait to be deleted. If SQS deletes nothing, more would only be done in vain.
# Seconds that a message waits at hand for a step. It is as long as a Lambda function may work, so that hardly any lease is longer.
_LONGEST_BUSY = 900.0
# Seconds after the end of a lease, so that it has ended. A store whose clock is behind the worker's is asked this often.
_AFTER_LEASE = 1.0
_LARGEST_DEFERRED = 64 << 20  # characters of their bodies together: 64 MiB of memory and more
_SWEEPS_PER_TIMEOUT = 6  # looks at what must be hidden for longer. It is done with a third of the time gone.


class AtHand:
    """Each method that begins with `to_` takes out the next thing to do, if there is one."""

    def __init__(self, queues: Sequence[QueueTerms], limits: Limits, backoff: Callable[[int], float]) -> None:
        self._queues, self._limits, self._backoff = queues, limits, backoff
        self._lines = WaitingLines(len(queues))
        self._deferrals = Deferrals(backoff)
        self._deferred_size = 0
        self._intakes = tuple(Intake(backoff) for _ in queues)
        self._turn = 0
        self._kept: dict[Held, None] = {}  # what waits, is under way, or is deferred
        self._under_way: dict[Held, None] = {}  # in the order in which they began
        self._overdue: dict[Held, float] = {}  # and when they became so
        self._done = tuple(deque[Held]() for _ in queues)
        self._delete_at = [inf for _ in queues]
        self._back: deque[tuple[Held, int]] = deque()
        self._sweep: deque[Held] = deque()
        self._next_sweep = 0.0
        self._deleting = [0 for _ in queues]  # requests that delete, under way
        self._requests = 0  # that hide, under way
        self._pace: float | None = None
        self.stopping = False

    # ------------------------------------------------------------ receiving

    def to_receive(self, now: float) -> Receive | None:
        if self.stopping or not self._has_space():
            return None
        for _ in self._queues:
            self._turn = (self._turn + 1) % len(self._queues)
            intake = self._intakes[self._turn]
            if self._may_ask(intake, now) and (number := self._room(self._turn)):
                request = Receive(self._turn, number, self._is_alone())
                intake.ask(request)
                return request
        return None

    def has_request(self, now: float) -> bool:
        """Whether there may be something to delete or to receive."""
        for queue, intake in enumerate(self._intakes):  # after each message, so it is made for speed
            if self._is_due(queue, now):
                return True
            if self._may_ask(intake, now) and not self.stopping and self._has_space() and self._room(queue):
                return True
        return False

    def received(self, request: Receive, messages: Sequence[Received], span: Span) -> None:
        """When the worker is to stop, it gives them back at once."""
        self._intakes[request.queue].answered(request, len(messages), span)
        terms = self._queues[request.queue]
        for message in messages:
            group = message.get("Attributes", {}).get("MessageGroupId") if terms.fifo else None
            held = Held(message, request.queue, group, span.began, span.ended + terms.visibility)
            if self.stopping:
                self._give_back(held, 0)
            else:
                self._kept[held] = None
                self._lines.add(held)
        if messages:
            self._ask_all_again()

    def _ask_all_again(self) -> None:
        """Something has happened, and a queue that was empty may be so no longer."""
        for intake in self._intakes:
            intake.is_empty = False

    def not_received(self, request: Receive, now: float) -> None:
        self._intakes[request.queue].failed(request, now)

    def _is_due(self, queue: int, now: float) -> bool:
        done = len(self._done[queue])
        if self._deleting[queue] >= self._intakes[queue].allowed:
            return False
        return done >= MOST_MESSAGES or (done > 0 and (now >= self._delete_at[queue] or self.stopping))

    def _may_ask(self, intake: Intake, now: float) -> bool:
        return intake.may_ask(now) and not (self._limits.stop_when_empty and intake.is_empty)

    def _has_space(self) -> bool:
        waiting = len(self._kept) - len(self._under_way)  # Many may wait behind the first one of their group.
        most = MOST_MESSAGES * self._most + self._limits.most_deferred
        return sum(map(len, self._done)) <= _MOST_DONE and waiting <= most

    def _room(self, queue: int) -> int:
        """For how many messages to ask. Requests for few are made only while slots are idle: ten at a time cost less."""
        coming = sum(intake.reserved for intake in self._intakes)
        free = max(0, self.slots - len(self._under_way))
        room = min(MOST_MESSAGES, free + self._ahead() - self._lines.ready_of(queue) - self._intakes[queue].reserved)
        return room if room == MOST_MESSAGES or free > self._lines.ready + coming else 0

    def _ahead(self) -> int:
        """How many messages may wait in advance. None until it is known how long one takes."""
        if self._pace is None:
            return 0
        return int(min(self._most, self.slots * _SECONDS_AHEAD / max(self._pace, 1e-6)))

    @property
    def _most(self) -> int:
        return max(_LEAST_AHEAD, self._limits.slots)

    def _is_alone(self) -> bool:
        return not (self.is_busy or self._lines.ready)

    # ------------------------------------------------------------ beginning and ending

    @property
    def slots(self) -> int:
        """Those that are not lost."""
        return self._limits.slots - len(self._overdue)

    @property
    def has_ready(self) -> bool:
        return self._lines.ready > 0 and len(self._under_way) < self.slots

    def to_begin(self, now: float) -> Held | None:
        while self.has_ready:
            held = self._lines.take()
            if not held.lost and now < held.hidden_until:
                held.began, held.progresses = now, self._deferrals.progresses
                self._under_way[held] = None
                return held
            # Another worker may have it by now, so the rest of its group must not begin here.
            self._drop(held)
            self._give_back_all(self._lines.fail(held), 0)
        return None

    def end(self, held: Held, ending: Ending, now: float) -> None:
        if self._overdue.pop(held, None) is not None:
            if ending.kind == "settled":
                self._done_with(held, now + DELETED_WITHIN)
            return
        del self._under_way[held]
        self._ask_all_again()
        taken = now - held.began
        self._pace = taken if self._pace is None else self._pace + (taken - self._pace) * _PACE_WEIGHT
        if ending.kind == "settled":
            self._settle(held, ending, now)
        elif ending.kind == "failed":
            for each in [held, *self._lines.fail(held)]:
                self._drop(each)
        elif ending.kind in ("uncertain", "superseded"):
            self._let_go(held, tries=1 if ending.kind == "superseded" else held.receives)
        elif self.stopping:
            self._give_back_group(held, 0)
        elif ending.kind == "busy":
            self._wait_for_step(held, ending.wait + _AFTER_LEASE, now)
        else:
            self._defer(held, ending, now)

    def _settle(self, held: Held, ending: Ending, now: float) -> None:
        self._drop(held)
        group_has_ended = self._lines.settle(held)  # and SQS gives out the next of the group when these are deleted
        self._done_with(held, now if group_has_ended else now + DELETED_WITHIN)
        if ending.source is not None:
            self._try_again(self._deferrals.progress(ending.source, now))

    def to_give_up(self, now: float) -> list[Held]:
        """The messages that have just become overdue."""
        found: list[Held] = []
        for held in self._under_way:
            if now < held.began + self._limits.timeout:
                break
            found.append(held)
        for held in found:
            del self._under_way[held]
            self._overdue[held] = now
            self._give_back_group(held, 0)
        return found

    def lost(self, now: float) -> list[Held]:
        """The messages whose slots are lost."""
        return [held for held, since in self._overdue.items() if now >= since + self._limits.grace]

    def is_stuck(self, now: float) -> bool:
        """More than half of the slots are lost."""
        return 2 * len(self.lost(now)) > self._limits.slots

    # ------------------------------------------------------------ what is deferred

    def retry_due(self, now: float) -> None:
        again, hopeless = self._deferrals.due(now)
        self._try_again(again)
        for held in hopeless:
            self._deferred_size -= _size(held)
            self._let_go(held, tries=held.receives)

    def _defer(self, held: Held, ending: Ending, now: float) -> None:
        has_room = self._has_room(held)
        if not self._deferrals.add(held, ending.source or "", ending.sequence, now):
            self._lines.ready_again(held)
        elif has_room:
            self._deferred_size += _size(held)
        else:
            self._deferrals.remove(held)
            self._let_go(held, tries=held.receives)

    def _wait_for_step(self, held: Held, seconds: float, now: float) -> None:
        held.tries = 0  # If it is deferred after this, it has only begun to wait for its source.
        hidden_for = extension(ceil(seconds), now - held.since)
        if seconds <= min(_LONGEST_BUSY, hidden_for) and self._has_room(held):
            self._deferrals.wait(held, now + seconds)
            self._deferred_size += _size(held)
        else:
            self._give_back_group(held, hidden_for)

    def _has_room(self, held: Held) -> bool:
        size = self._deferred_size + _size(held)
        return len(self._deferrals) < self._limits.most_deferred and size <= _LARGEST_DEFERRED

    def _try_again(self, deferred: Iterable[Held]) -> None:
        for held in deferred:
            self._deferred_size -= _size(held)
            self._lines.ready_again(held)

    def _let_go(self, held: Held, *, tries: int) -> None:
        self._give_back_group(held, min(max(0, ceil(self._backoff(tries))), LONGEST_HIDDEN))

    # ------------------------------------------------------------ deleting and hiding

    def to_delete(self, now: float) -> tuple[int, list[Held]] | None:
        for queue, done in enumerate(self._done):
            if self._is_due(queue, now):
                batch = [done.popleft() for _ in range(min(len(done), MOST_MESSAGES))]
                if not done:
                    self._delete_at[queue] = inf
                self._deleting[queue] += 1
                return queue, batch
        return None

    def to_hide(self, now: float) -> Hide | None:
        """What goes back, and else what must be hidden for longer. Ask again only after this was `sent`, in order."""
        if self._back:
            queue = self._back[0][0].queue
            found: list[tuple[Held, int]] = []
            while self._back and len(found) < MOST_MESSAGES and self._back[0][0].queue == queue:
                found.append(self._back.popleft())
            self._requests += 1
            return Hide(queue, tuple(found), gives_back=True)
        if not self._sweep and now >= self._next_sweep:
            self._next_sweep = now + min(terms.visibility for terms in self._queues) / _SWEEPS_PER_TIMEOUT
            self._sweep.extend(sorted(filter(lambda held: self._is_short(held, now), self._kept), key=_queue))
        found = []
        while self._sweep and len(found) < MOST_MESSAGES and (not found or self._sweep[0].queue == found[0][0].queue):
            held = self._sweep.popleft()
            if held in self._kept and (seconds := self._longer(held, now)):
                found.append((held, seconds))
        self._requests += bool(found)
        return Hide(found[0][0].queue, tuple(found), gives_back=False) if found else None

    def sent(self) -> None:
        """A request that hides has ended."""
        self._requests -= 1

    def deleted(self, queue: int) -> None:
        """A request that deletes has ended."""
        self._deleting[queue] -= 1

    def hidden(self, hide: Hide, lost: Iterable[str], now: float) -> None:
        """`now` is the time before the request; `lost` are the handles that SQS no longer takes for received."""
        unknown = frozenset(lost)
        for held, seconds in hide.messages:
            held.hidden_until = now + seconds
            held.lost = held.handle in unknown

    def _is_short(self, held: Held, now: float) -> bool:
        visibility = self._queues[held.queue].visibility
        return not held.lost and held.hidden_until - now < visibility * (1 - 2 / _SWEEPS_PER_TIMEOUT) + 1e-9

    def _longer(self, held: Held, now: float) -> int:
        seconds = extension(self._queues[held.queue].visibility, now - held.since)
        held.lost = held.lost or not seconds
        return 0 if held.lost else seconds

    def _done_with(self, held: Held, at: float) -> None:
        self._done[held.queue].append(held)
        self._delete_at[held.queue] = min(self._delete_at[held.queue], at)

    def _give_back_group(self, held: Held, seconds: int) -> None:
        """The message, and the rest of its group."""
        self._give_back_all([held, *self._lines.fail(held)], seconds)

    def _give_back_all(self, messages: Iterable[Held], seconds: int) -> None:
        for held in messages:
            self._drop(held)
            self._give_back(held, seconds)

    def _give_back(self, held: Held, seconds: int) -> None:
        if not held.lost:
            self._back.append((held, seconds))

    def _drop(self, held: Held) -> None:
        self._kept.pop(held, None)

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """Nothing more is received or begun. What waits is given back; what is under way may end."""
        if not self.stopping:
            self.stopping = True
            self._give_back_all([*self._deferrals.clear(), *self._lines.clear()], 0)

    @property
    def is_busy(self) -> bool:
        """Whether something is under way, or done and not yet told to SQS."""
        return bool(self._under_way or self._back or self._requests or any(self._done) or any(self._deleting))

    @property
    def waits_for_messages(self) -> bool:
        return any(intake.reserved for intake in self._intakes)

    def has_nothing_to_do(self, now: float, soon: float) -> bool:
        """All queues are empty, nothing is at hand, and no deferred message is tried again within `soon` seconds."""
        empty = self._limits.stop_when_empty and all(intake.is_empty for intake in self._intakes)
        return empty and self._is_alone() and self._deferrals.next_due() > now + soon

    @property
    def gives_back(self) -> bool:
        return bool(self._back)

    @property
    def next_sweep(self) -> float:
        return self._next_sweep

    def next_due(self, now: float) -> float:
        """When there is something to do again, if nothing happens before."""
        first = next(iter(self._under_way), None)
        return min(
            self._deferrals.next_due(),
            inf if first is None else first.began + self._limits.timeout,
            min((moment for moment in self._delete_at if moment > now), default=inf),
            min((intake.resumes for intake in self._intakes if intake.resumes > now), default=inf),
            min(
                (late + self._limits.grace for late in self._overdue.values() if late + self._limits.grace > now),
                default=inf,
            ),
        )

    def counts(self) -> dict[str, int]:
        """How many messages there are of each kind, for those who watch."""
        return {
            "waiting": len(self._kept) - len(self._under_way) - len(self._deferrals),
            "under_way": len(self._under_way),
            "deferred": len(self._deferrals),
            "done": sum(map(len, self._done)),
            "lost_slots": len(self._overdue),
        }


def _size(held: Held) -> int:
    return len(held.message.get("Body", ""))


def _queue(held: Held) -> int:
    return held.queue
