"""Runs a handler through every schedule of deliveries, crashes and lost answers that the bounds allow.

The handler gets its store from `build`, once a schedule, and lives as long: what it keeps in memory is kept from one delivery to
the next, as in one process, and is not lost in a crash. Whatever a test itself keeps beside the store, it makes anew in `build`
or `world`.
"""

from __future__ import annotations

import asyncio
import contextvars
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.exploration import Counterexample, Report, counterexample, timeline
from onewrite.testing.explorer.judge import Finding, Judge, Shown
from onewrite.testing.explorer.replay import decode, encode
from onewrite.testing.explorer.schedule import Bounds, Fault, Reorder, Step
from onewrite.testing.explorer.search import Search
from onewrite.testing.explorer.shrink import shortest, show
from onewrite.testing.explorer.trial import Handler, Stores, Subject, Trial

T = TypeVar("T")

_MOST_SCHEDULES = 10_000  # half a minute or so
_SILENCE = 5.0  # seconds that an exploration may take before it says how far it is
_FAULTS = [fault for fault in Fault if fault]
_FAULT_SHARE = 0.2  # of the steps of a random schedule, as long as its budget lasts


class Progress(NamedTuple):
    """How far an exploration is."""

    schedules: int
    pruned: int
    seconds: float

    def __str__(self) -> str:
        return f"exploring: {self.schedules} schedules run, {self.pruned} branches pruned, {self.seconds:.0f} s"


@dataclass(frozen=True, slots=True)
class Explorer:
    """`explore`, for a test whose name pytest knows as `nodeid`: it is in the command that replays a schedule."""

    nodeid: str | None = None

    def __call__(
        self,
        build: Callable[[Stores], Handler],
        messages: Sequence[Any],
        world: Callable[[], Stores],
        observe: Callable[[Stores], Any],
        *,
        invariant: Callable[[Stores], Any] | None = None,
        deliveries: int = 2,
        crashes: int = 1,
        reorder: Reorder = True,
        concurrency: int = 2,
        schedules: int = _MOST_SCHEDULES,
        replay: str | None = None,
        progress: Callable[[Progress], None] | None = None,
        timeout: float = 30.0,
    ) -> Report:
        """Run every schedule within the bounds, until one ends wrongly.

        `build(store)` gives the handler, `world()` the store, the same each time: a Table, a client, a collection, or a dict of such.
        `observe(store)` says what counts of a state, and is compared with what it gives after each message was processed once,
        one at a time. `invariant(store)` must hold at every end: it may return False or raise AssertionError.
        `deliveries` is of each message, `crashes` how many faults there may be, `concurrency` how many deliveries are under way
        at once; `reorder` is True for any order, "within_source" for that of each source, False for that of `messages`. `replay`
        is the token of a counterexample, to run nothing but that. `progress` is told how far a long exploration is; without it,
        that is written to stderr. `timeout` is for a handler that waits for ever.
        """
        wanted = Wanted(
            build, messages, world, observe, invariant, Bounds(deliveries, crashes, reorder, concurrency), timeout
        )
        return self._explore(wanted, _Systematic, schedules, replay, progress)

    def random(
        self,
        build: Callable[[Stores], Handler],
        messages: Sequence[Any],
        world: Callable[[], Stores],
        observe: Callable[[Stores], Any],
        *,
        seed: int = 0,
        invariant: Callable[[Stores], Any] | None = None,
        deliveries: int = 3,
        crashes: int = 2,
        reorder: Reorder = True,
        concurrency: int = 3,
        schedules: int = _MOST_SCHEDULES,
        replay: str | None = None,
        progress: Callable[[Progress], None] | None = None,
        timeout: float = 30.0,
    ) -> Report:
        """Run schedules drawn at random, the same ones for the same seed: for bounds within which there are too many."""
        wanted = Wanted(
            build, messages, world, observe, invariant, Bounds(deliveries, crashes, reorder, concurrency), timeout
        )
        return self._explore(wanted, partial(_Random, seed), schedules, replay, progress)

    def _explore(
        self,
        wanted: Wanted,
        plan: Callable[[Judge], Plan],
        schedules: int,
        replay: str | None,
        progress: Callable[[Progress], None] | None,
    ) -> Report:
        if type(schedules) is not int or schedules < 1:
            raise ConfigurationError(f"schedules={schedules!r}: give an int from 1 upwards.")
        plan = plan if replay is None else partial(_Replay, replay)
        return _outside_loops(lambda: _explored(wanted, plan, schedules, _Watch(progress or _tell), self.nodeid))


explore = Explorer()


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the explorer was asked for."""

    build: Callable[[Stores], Handler]
    messages: Sequence[Any]
    world: Callable[[], Stores]
    observe: Callable[[Stores], Any]
    invariant: Callable[[Stores], Any] | None
    bounds: Bounds
    timeout: float

    def __post_init__(self) -> None:
        for name in ("build", "world", "observe", *(["invariant"] if self.invariant is not None else [])):
            # A collection is callable too: any name that it does not know is a collection in it.
            if not callable(given := getattr(self, name)) or hasattr(given, "find_one_and_update"):
                raise ConfigurationError(f"{name}={given!r}: give a function.")
        _check_seconds(self.timeout)


def _check_seconds(timeout: object) -> None:
    if not isinstance(timeout, int | float) or not timeout > 0:
        raise ConfigurationError(f"timeout={timeout!r}: give a number of seconds.")


class Plan(Protocol):
    """Which schedules to run."""

    pruned: int
    sampled: bool  # not all schedules within the bounds are meant to be run
    remark: str | None

    def __iter__(self) -> Iterator[Shown]: ...


class _Systematic(Search):
    sampled = False
    remark: str | None = None


class _Random:
    pruned = 0
    sampled = True
    remark: str | None = "They were drawn at random."

    def __init__(self, seed: object, judge: Judge) -> None:
        self._seed = seed
        self._judge = judge

    def __iter__(self) -> Iterator[Shown]:
        return (walk(self._judge, f"{self._seed}/{number}") for number in count())


class _Replay:
    pruned = 0
    sampled = True

    def __init__(self, token: str, judge: Judge) -> None:
        self._steps = decode(token, judge.names)
        self._judge = judge
        self.remark: str | None = None

    def __iter__(self) -> Iterator[Shown]:
        shown = show(self._judge, self._steps)
        if shown.steps[: len(self._steps)] != self._steps:
            self.remark = (
                "The handler or the bounds have changed since the token was made: what was left of its steps was run."
            )
        if shown.finding is None:
            self.remark = "\n\n".join(filter(None, [self.remark, timeline(shown, self._judge.names)]))
        yield shown


def _explored(wanted: Wanted, plan: Callable[[Judge], Plan], limit: int, watch: _Watch, nodeid: str | None) -> Report:
    subject = Subject(wanted.build, wanted.messages, wanted.world, wanted.bounds, wanted.timeout)
    try:
        judge = Judge(subject, wanted.observe, wanted.invariant)
        judge.prepare()
        planned = plan(judge)
        found, schedules, exhausted = _searched(planned, limit, watch)
        if found is not None and not isinstance(planned, _Replay):
            found = shortest(judge, found)
        return Report(
            schedules,
            planned.pruned,
            watch.seconds,
            exhausted,
            wanted.bounds,
            None if found is None or found.finding is None else _counterexample(found, found.finding, judge, nodeid),
            judge.nondeterministic,
            planned.sampled,
            tuple(remark for remark in (planned.remark, *judge.remarks) if remark is not None),
        )
    finally:
        subject.close()


def _searched(plan: Plan, limit: int, watch: _Watch) -> tuple[Shown | None, int, bool]:
    """The first schedule that ends wrongly, how many were run, and whether these were all."""
    number = 0
    for number, shown in enumerate(plan, 1):
        if shown.finding is not None:
            return shown, number, False
        if number == limit:
            return None, number, False
        watch.see(number, plan.pruned)
    return None, number, not plan.sampled


def walk(judge: Judge, seed: str) -> Shown:
    """A schedule drawn at random."""

    def body(trial: Trial) -> Shown:
        draw = Random(seed)
        finding: Finding | None = None
        while finding is None and (able := trial.board.able()):
            fault = draw.choice(_FAULTS) if draw.random() < _FAULT_SHARE else Fault.NONE
            step = Step(draw.choice(able), fault)
            trial.take(step if trial.board.allows(step) else Step(step.delivery))
            finding = judge.check(trial)
        return Shown(tuple(trial.happenings), finding or judge.conclude(trial))

    return judge.run(body)


def _counterexample(shown: Shown, finding: Finding, judge: Judge, nodeid: str | None) -> Counterexample:
    token = encode(shown.steps, judge.names)
    command = (
        f'explore(..., replay="{token}")' if nodeid is None else f"pytest {shlex.quote(nodeid)} --onewrite-replay {token}"
    )
    return counterexample(shown, finding, judge.names, token, command)


class _Watch:
    """Says how far an exploration is, every now and then."""

    def __init__(self, tell: Callable[[Progress], None]) -> None:
        self._tell = tell
        self._start = self._told = time.perf_counter()

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def see(self, schedules: int, pruned: int) -> None:
        now = time.perf_counter()
        if now - self._told >= _SILENCE:
            self._told = now
            self._tell(Progress(schedules, pruned, now - self._start))


def _tell(progress: Progress) -> None:
    print(progress, file=sys.stderr, flush=True)  # noqa: T201  # this is where progress is read


def _outside_loops(function: Callable[[], T]) -> T:
    """Call it where no event loop runs, for it runs its own: in another thread if one runs here."""
    if not _in_a_loop():
        return function()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(contextvars.copy_context().run, function).result()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
