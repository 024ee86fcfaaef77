"""The messages that a worker has at hand, and everything that is decided about them. The time is an argument.

A message is received, perhaps waits, is under way in a slot, and ends. With `group_by` a slot has the messages of a group:

- settled: it waits to be deleted, together with others. It is never deleted before it is settled.
- failed: it is left alone, and comes again when its visibility timeout ends; with it comes the rest of its FIFO group.
- deferred, or busy with a step of another worker: it stays at hand without a slot, and is tried again: see `deferrals`.
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
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import takewhile
from math import ceil, inf
from typing import Any

from onewrite.sqs.deciding.deferrals import Deferrals
from onewrite.sqs.deciding.group_lines import GroupLines
from onewrite.sqs.deciding.intake import MOST_MESSAGES, Intake, Receive, Span
from onewrite.sqs.deciding.lines import Held, Load, WaitingLines
from onewrite.sqs.deciding.slots import Slots
from onewrite.sqs.deciding.terms import SILENCE, Ending, Hide, Limits, QueueTerms, Return, Why
from onewrite.sqs.decisions import LONGEST_HIDDEN, extension
from onewrite.sqs_message import Received

DELETED_WITHIN = 0.2  # seconds: as long as ten messages of a quick handler take. What is deleted later may come again.
_LEAST_AHEAD = 20  # messages, so that one request for ten is under way while ten others wait
# Seconds of work that wait in advance at most. More would keep messages from other workers, which may have nothing to do.
_SECONDS_AHEAD = 1.0
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
        self._lines = WaitingLines(len(queues)) if limits.gather is None else GroupLines(len(queues), limits.gather)
        self.slots = Slots(limits)
        self._deferrals = Deferrals(backoff)
        self._deferred_size = 0
        self._intakes = tuple(Intake(backoff) for _ in queues)
        self._turn = 0
        self._kept: dict[Held, None] = {}  # what waits, is under way, or is deferred
        self._done = tuple(deque[Held]() for _ in queues)
        self._delete_at = [inf for _ in queues]
        self._back: deque[tuple[Held, int]] = deque()
        self._returns: list[Return] = []
        self._begun_at = -inf  # when something last began
        self.is_silent = False  # the event loop stands still, so nothing would begin whatever is free
        self._sweep: deque[Held] = deque()
        self._next_sweep = 0.0
        self._deleting = [0 for _ in queues]  # requests that delete, under way
        self._requests = 0  # that hide, under way
        self.stopping = False

    # ------------------------------------------------------------ receiving

    def to_receive(self, now: float) -> Receive | None:
        if self.stopping or not self._has_space() or not self._can_begin(now):
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
                return self._can_begin(now)
        return False

    def _can_begin(self, now: float) -> bool:
        """Whether what is received now will begin before long."""
        return not self.is_silent and (now < self._begun_at + SILENCE or self.slots.free > 0)

    def received(
        self, request: Receive, messages: Sequence[Received], span: Span, read: Sequence[tuple[Hashable, Any]] | None = None
    ) -> None:
        """`read` are the groups of the messages, each with what the handler has read. A worker that stops gives all back at once."""
        self._intakes[request.queue].answered(request, len(messages), span)
        terms = self._queues[request.queue]
        for number, message in enumerate(messages):
            group = message.get("Attributes", {}).get("MessageGroupId") if terms.fifo else None
            held = Held(message, request.queue, group, span.began, span.ended + terms.visibility)
            if read is not None:
                held.key, held.read = read[number]
            if self.stopping:
                self._give_back(held, 0, "stopping")
            else:
                self._kept[held] = None
                self._lines.add(held, span.ended)
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
        waiting = len(self._kept) - self.slots.messages  # Many may wait behind the first one of their group.
        most = MOST_MESSAGES * self._most + self._limits.most_deferred
        return sum(map(len, self._done)) <= _MOST_DONE and waiting <= most

    def _room(self, queue: int) -> int:
        """For how many messages to ask. Requests for few are made only while slots are idle: ten at a time cost less."""
        coming = sum(intake.reserved for intake in self._intakes)
        wanted = self.slots.free * self._lines.per_slot
        room = min(MOST_MESSAGES, wanted + self._ahead() - self._lines.waiting_of(queue) - self._intakes[queue].reserved)
        return room if room == MOST_MESSAGES or wanted > self._lines.waiting + coming else 0

    def _ahead(self) -> int:
        """How many messages may wait in advance. None until it is known how long one takes."""
        pace = self.slots.pace
        return 0 if pace is None else int(min(self._most, self.slots.number * _SECONDS_AHEAD / max(pace, 1e-6)))

    @property
    def _most(self) -> int:
        return max(_LEAST_AHEAD, self._limits.slots)

    def _is_alone(self) -> bool:
        return not (self.is_busy or self._lines.waiting)

    # ------------------------------------------------------------ beginning and ending

    @property
    def has_ready(self) -> bool:
        return self._lines.ready > 0 and self.slots.free > 0

    def to_begin(self, now: float) -> Load | None:
        while self.has_ready:
            load = self._without_lost(self._lines.take(), now)
            if load.members:
                for held in load.members:
                    held.progresses = self._deferrals.progresses
                self.slots.begin(load, now)
                self._begun_at = now
                return load
        return None

    def give_back_what_cannot_begin(self, now: float) -> None:
        """To be called every few seconds."""
        while self._lines.ready and not self._can_begin(now):
            members = self._lines.take().members
            for held in members if members[0].group is None else members[:1]:
                self._give_back_group(held, 0, "stalled")

    def _without_lost(self, load: Load, now: float) -> Load:
        """Another worker may have a message by now, so the rest of its FIFO group must not begin here."""
        lost = [held for held in load.members if held.lost or now >= held.hidden_until]
        if not lost:
            return load
        if lost[0].group is not None and lost[0] is not load.members[0]:
            return Load(tuple(takewhile(lambda held: held is not lost[0], load.members)))
        for held in lost if lost[0].group is None else lost[:1]:
            self._drop(held, "lost")
            self._give_back_all(self._lines.fail(held), 0, "behind")
        return Load(() if lost[0].group is not None else tuple(held for held in load.members if held not in lost))

    def end(self, load: Load, endings: Sequence[Ending], now: float) -> None:
        if not self.slots.end(load, now):
            for held, ending in zip(load.members, endings, strict=True):
                if ending.kind == "settled":
                    self._done_with(held, now + DELETED_WITHIN)
            return
        self._ask_all_again()
        for held, ending in zip(load.members, endings, strict=True):
            if ending.kind == "settled":
                self._settle(held, ending, now, goes_on=held is load.members[-1])
                continue
            self._unsettled(held, ending, now)
            if held.group is not None:
                break  # The rest of its group waits behind it, or has left the lines with it.

    def _unsettled(self, held: Held, ending: Ending, now: float) -> None:
        if ending.kind == "failed":
            self._drop(held, "failed")
            for each in self._lines.fail(held):
                self._drop(each, "behind")
        elif ending.kind in ("uncertain", "superseded"):
            self._let_go(held, ending.kind, tries=1 if ending.kind == "superseded" else held.receives)
        elif self.stopping or ending.kind == "untouched":
            self._give_back_group(held, 0, "stopping" if self.stopping else "untouched")
        elif ending.kind == "busy":
            self._wait_for_step(held, ending.wait + _AFTER_LEASE, now)
        else:
            self._defer(held, ending, now)

    def _settle(self, held: Held, ending: Ending, now: float, *, goes_on: bool) -> None:
        self._drop(held)
        group_has_ended = self._lines.settle(
            held, goes_on=goes_on
        )  # and SQS gives out the next of the group when these are deleted
        self._done_with(held, now if group_has_ended else now + DELETED_WITHIN)
        if ending.source is not None:
            self._try_again(self._deferrals.progress(ending.source, now))

    def to_give_up(self, now: float) -> list[Load]:
        """What has just become overdue."""
        found = self.slots.to_give_up(now)
        for load in found:
            for held in load.members:
                self._give_back_group(held, 0, "overdue")
                if held.group is not None:
                    break  # The rest of the load is of its group.
        return found

    # ------------------------------------------------------------ what is deferred

    def retry_due(self, now: float) -> None:
        self._lines.gathered(now)
        again, hopeless = self._deferrals.due(now)
        self._try_again(again)
        for held in hopeless:
            self._deferred_size -= _size(held)
            self._let_go(held, "deferred", tries=held.receives)

    def _defer(self, held: Held, ending: Ending, now: float) -> None:
        has_room = self._has_room(held)
        if not self._deferrals.add(held, ending.source or "", ending.sequence, now):
            self._lines.ready_again(held)
        elif has_room:
            self._deferred_size += _size(held)
        else:
            self._deferrals.remove(held)
            self._let_go(held, "deferred", tries=held.receives)

    def _wait_for_step(self, held: Held, seconds: float, now: float) -> None:
        held.tries = 0  # If it is deferred after this, it has only begun to wait for its source.
        hidden_for = extension(ceil(seconds), now - held.since)
        if seconds <= min(_LONGEST_BUSY, hidden_for) and self._has_room(held):
            self._deferrals.wait(held, now + seconds)
            self._deferred_size += _size(held)
        else:
            self._give_back_group(held, hidden_for, "busy")

    def _has_room(self, held: Held) -> bool:
        size = self._deferred_size + _size(held)
        return len(self._deferrals) < self._limits.most_deferred and size <= _LARGEST_DEFERRED

    def _try_again(self, deferred: Iterable[Held]) -> None:
        for held in deferred:
            self._deferred_size -= _size(held)
            self._lines.ready_again(held)

    def _let_go(self, held: Held, why: Why, *, tries: int) -> None:
        self._give_back_group(held, min(max(0, ceil(self._backoff(tries))), LONGEST_HIDDEN), why)

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

    def _give_back_group(self, held: Held, seconds: int, why: Why) -> None:
        """The message, and the rest of its group."""
        self._give_back_all([held], seconds, why)
        self._give_back_all(self._lines.fail(held), seconds, "behind")

    def _give_back_all(self, messages: Iterable[Held], seconds: int, why: Why) -> None:
        for held in messages:
            self._drop(held)
            self._give_back(held, seconds, why)

    def _give_back(self, held: Held, seconds: int, why: Why) -> None:
        self._returns.append(Return(held, why))
        if not held.lost:
            self._back.append((held, seconds))

    def _drop(self, held: Held, why: Why | None = None) -> None:
        self._kept.pop(held, None)
        if why is not None:
            self._returns.append(Return(held, why))

    def to_tell(self) -> list[Return]:
        """What is at hand no more although it is not settled."""
        returns, self._returns = self._returns, []
        return returns

    # ------------------------------------------------------------ the end

    def stop(self) -> None:
        """Nothing more is received or begun. What waits is given back; what is under way may end."""
        if not self.stopping:
            self.stopping = True
            self._give_back_all([*self._deferrals.clear(), *self._lines.clear()], 0, "stopping")

    @property
    def is_busy(self) -> bool:
        """Whether something is under way, or done and not yet told to SQS."""
        return bool(len(self.slots) or self._back or self._requests or any(self._done) or any(self._deleting))

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
        return min(self._lines.ready, self.slots.free)

    def counts(self) -> dict[str, int]:
        """How many messages there are of each kind, for those who watch."""
        return {
            "waiting": len(self._kept) - self.slots.messages - len(self._deferrals),
            "under_way": self.slots.messages,
            "deferred": len(self._deferrals),
            "done": sum(map(len, self._done)),
            "lost_slots": self.slots.overdue,
        }


def _size(held: Held) -> int:
    return len(held.message.get("Body", ""))


def _queue(held: Held) -> int:
    return held.queue
