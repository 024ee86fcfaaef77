"""A queue that delivers at least once and in no order, and that kills and freezes the workers to whom it delivers.

A message that is not settled is redelivered, one that a dead worker held too, and one that is settled may come again all the same.
A message that takes long is handed to a second worker while the first still has it. One loop does all of it, with one
random generator.
"""

from __future__ import annotations

import heapq
import itertools
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Self

from tests.chaos.child import Child
from tests.chaos.traffic import KINDS, Delivery, Traffic
from tests.chaos.worker import READY, Answer, Habits, Target, work

OUTCOMES = ("Applied", "Duplicate", "Stale", "Deferred", "Gone", "Busy", "TakenOver")
WORKERS = 10
_START_SECONDS = 60.0
_TURN = 0.05  # seconds that the loop waits at most, so new messages come one by one
_VISIBILITY = 1.0  # seconds after which a message is handed out again although somebody has it
_ATTACKS_A_SECOND = 1.5
# How often a message goes to two workers at once, and how often a settled one is redelivered.
_TWICE_AT_ONCE, _REDELIVERY_SHARE = 0.15, 0.15


class Worker(Child):
    """A process, and what it has in hand."""

    def __init__(self, target: Target, habits: Habits) -> None:
        super().__init__(work, target, habits)
        self.idle = False
        self.holds: tuple[int, Delivery] | None = None
        self.dies_before_it_answers = False


class Broker:
    """`counts` is where it counts what it did; `claims` counts how often each effect was said to be applied."""

    def __init__(self, target: Target, traffic: Traffic, choice: random.Random, counts: Counter[str], clock: float) -> None:
        self._target, self._traffic, self._random, self._counts = target, traffic, choice, counts
        self._clock_offset = clock
        self._workers: dict[Connection, Worker] = {}
        self._queue: list[Delivery] = []
        self._timers: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = itertools.count()
        self._hostile = False
        self._next_attack = 0.0
        self.claims: Counter[str] = Counter()

    def __enter__(self) -> Self:
        try:
            for _ in range(WORKERS):
                self._hire()
            self._wait_for_the_workers()
        except BaseException:
            self._dismiss()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._dismiss()

    def _wait_for_the_workers(self) -> None:
        while not all(worker.idle for worker in self._workers.values()):
            if not (speaking := self._speaking(_START_SECONDS)):
                raise RuntimeError(f"a worker is not ready after {_START_SECONDS:.0f} s")
            for pipe in speaking:
                self._hear(pipe)

    def deliver(self, seconds: float, check: Callable[[], object]) -> None:
        """New messages and old ones for so long, while workers are killed and frozen. `check` is called now and then."""
        began = time.monotonic()
        self._hostile = True
        while (seconds_past := time.monotonic() - began) < seconds:
            # A fast setup must not run out of new messages before it is attacked.
            self._turn(began + seconds, fresh=self._traffic.messages < self._traffic.most * seconds_past / seconds)
            check()
        self._hostile = False
        for worker in self._workers.values():
            worker.signal(signal.SIGCONT)

    def drain(self, patience: float) -> bool:
        """Deliver what is left until all of it is settled, and nobody has anything in hand."""
        until = time.monotonic() + patience
        while self._traffic.unsettled_count or self._queue or self._timers or any(w.holds for w in self._workers.values()):
            if time.monotonic() > until:
                return False
            self._turn(until, fresh=False)
        return True

    def deliver_everything_again(self, patience: float) -> bool:
        self._queue.extend(self._traffic.all_deliveries())
        return self.drain(patience)

    def _turn(self, until: float, *, fresh: bool) -> None:
        """Do what is due, hand out what there is, and hear who has something to say."""
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2]()
        for worker in [worker for worker in self._workers.values() if worker.idle]:
            if (delivery := self._next(fresh=fresh)) is None:
                break
            self._give(worker, delivery)
        end = min(until, self._timers[0][0]) if self._timers else until
        for pipe in self._speaking(max(0.0, min(end - time.monotonic(), _TURN))):
            self._hear(pipe)

    def _speaking(self, seconds: float) -> list[Connection]:
        """The pipes of the workers that have something to say, or are dead."""
        return [pipe for pipe in wait([*self._workers], seconds) if isinstance(pipe, Connection)]

    def _next(self, *, fresh: bool) -> Delivery | None:
        delivery = self._traffic.fresh(self._random) if fresh and (not self._queue or self._random.random() < 0.5) else None
        if delivery is not None or not self._queue:
            return delivery
        at = self._random.randrange(len(self._queue))
        self._queue[at], self._queue[-1] = self._queue[-1], self._queue[at]
        return self._queue.pop()

    def _give(self, worker: Worker, delivery: Delivery) -> None:
        number = next(self._numbers)
        self._counts["deliveries"] += 1
        worker.idle, worker.holds = False, (number, delivery)
        try:
            worker.pipe.send((number, delivery))
        except (BrokenPipeError, ConnectionResetError):
            return  # its end will be heard
        self._do_later(_VISIBILITY, lambda: self._is_late(worker, number, delivery))
        if self._hostile:
            if self._random.random() < _TWICE_AT_ONCE:
                self._queue.append(delivery)
            self._attack(worker)

    def _is_late(self, worker: Worker, number: int, delivery: Delivery) -> None:
        if worker.holds == (number, delivery) and not self._traffic.is_settled(delivery):
            self._queue.append(delivery)

    def _attack(self, worker: Worker) -> None:
        """Now and then kill the worker at any moment, kill it between its write and its answer, or freeze it until others overtake it."""
        now = time.monotonic()
        if now < self._next_attack:
            return
        self._next_attack = now + self._random.expovariate(_ATTACKS_A_SECOND)
        match self._random.choice(("kill", "kill before the answer", "freeze")):
            case "kill":
                self._do_later(self._random.uniform(0, 0.02), lambda: worker.signal(signal.SIGKILL))
            case "kill before the answer":
                worker.dies_before_it_answers = True
            case _:
                self._counts["workers frozen"] += 1
                self._do_later(self._random.uniform(0, 0.01), lambda: worker.signal(signal.SIGSTOP))
                self._do_later(self._random.uniform(0.2, 2), lambda: worker.signal(signal.SIGCONT))

    def _hear(self, pipe: Connection) -> None:
        worker = self._workers[pipe]
        try:
            word = pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(worker)
            return
        if word == READY:
            worker.idle = True
        elif worker.dies_before_it_answers:
            worker.signal(signal.SIGKILL)
        elif worker.holds is not None:
            self._note(word, worker.holds[1])
            worker.idle, worker.holds = True, None

    def _note(self, answer: Answer, delivery: Delivery) -> None:
        self._counts[answer.outcome if answer.outcome in OUTCOMES else "failed calls"] += 1
        self.claims.update(answer.effects)
        if answer.settled:
            self._traffic.settle(delivery)
            if self._hostile and self._random.random() < _REDELIVERY_SHARE:
                self._do_later(self._random.uniform(0, 3), lambda: self._queue.append(delivery))
        elif not (self._hostile and self._traffic.is_settled(delivery)):
            self._do_later(self._random.uniform(0.01, 0.2), lambda: self._queue.append(delivery))

    def _bury(self, worker: Worker) -> None:
        del self._workers[worker.pipe]
        worker.end()
        if not worker.is_killed:
            raise RuntimeError(f"a worker ended by itself, with {worker.holds}: its last words are above")
        self._counts["workers killed"] += 1
        if worker.holds is not None:
            self._queue.append(worker.holds[1])
        self._hire()

    def _hire(self) -> None:
        skew = KINDS["SeenIds"].ledger.skew
        assert skew is not None
        off = self._random.uniform(-1, 1) * skew.total_seconds()
        habits = Habits(self._random.random() < 0.5, self._random.random() < 0.5, self._clock_offset + off)
        worker = Worker(self._target, habits)
        self._workers[worker.pipe] = worker

    def _dismiss(self) -> None:
        for worker in self._workers.values():
            worker.end()
        self._workers.clear()

    def _do_later(self, seconds: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), act))
