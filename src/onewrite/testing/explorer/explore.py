"""The functions that a test calls: `explore` and `explore.random`."""

from __future__ import annotations

import contextlib
import contextvars
import gc
import logging
import os
import shlex
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, replace
from datetime import timedelta
from typing import Any, TypeAlias, TypedDict, Unpack, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.calls import current_call, is_in_event_loop
from onewrite.testing.explorer.exploration import Counterexample, Exploration, make_counterexample, make_legend
from onewrite.testing.explorer.judge import Judge, JudgedSchedule
from onewrite.testing.explorer.modes import Handling
from onewrite.testing.explorer.remarks import NOTE, Remark
from onewrite.testing.explorer.schedule import Bounds, Reorder, check_count, encode
from onewrite.testing.explorer.search import EverySchedule, OneSchedule, RandomSchedules, Schedules, confirm, shorten
from onewrite.testing.explorer.subject import Handler, Stores, Subject
from onewrite.testing.model.databases import World
from onewrite.testing.standins.stores import closing_opened_tables
from onewrite.testing.taps.everywhere import current_listener, taps

# --- arguments --------------------------------------------------------------------------------------------------------
#
# The arguments of `explore`: the types of its options, and the checked values of all arguments, including the defaults.

Build: TypeAlias = Callable[[Stores], Handler]
Observe: TypeAlias = Callable[[Stores], Any]
Invariant: TypeAlias = Callable[[Stores], Any]

_DEFAULTS = Bounds()


class ExploreOptions(TypedDict, total=False):
    """The options of `explore` and `explore.random`. The docstring of `explore` documents each of them."""

    invariant: Invariant | None
    deliveries: int
    faults: int
    reorder: Reorder
    concurrency: int
    schedules: int | None
    replay: str | None
    redelivered_after: timedelta
    timeout: float


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of one call of `explore` or of `explore.random`."""

    build: Build
    messages: Sequence[Any]
    world: World
    observe: Observe
    _: KW_ONLY
    invariant: Invariant | None = None
    deliveries: int = _DEFAULTS.deliveries
    faults: int = _DEFAULTS.faults
    reorder: Reorder = _DEFAULTS.reorder
    concurrency: int = _DEFAULTS.concurrency
    schedules: int | None = None
    replay: str | None = None
    redelivered_after: timedelta = timedelta(minutes=2)
    timeout: float = 30.0
    at_random: bool = False
    seed: object = None

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.deliveries, self.faults, self.reorder, self.concurrency)

    def __post_init__(self) -> None:
        for name in ("build", "world", "observe", *(["invariant"] if self.invariant is not None else [])):
            # A collection is callable too, because it treats unknown attributes as collections inside it.
            argument = getattr(self, name)
            if not callable(argument) or hasattr(argument, "find_one_and_update"):
                raise ConfigurationError(f"{name}={argument!r}: expected a function.")
        if self.schedules is not None:
            check_count("schedules", self.schedules, 1)
        if not isinstance(cast("object", self.timeout), int | float) or not self.timeout > 0:
            raise ConfigurationError(f"timeout={self.timeout!r}: expected a number of seconds above 0.")
        after = cast("object", self.redelivered_after)
        if not isinstance(after, timedelta) or after < timedelta(0):
            raise ConfigurationError(f"redelivered_after={after!r}: expected a timedelta, for example timedelta(minutes=2).")


# --- the exploration --------------------------------------------------------------------------------------------------


class Explore:
    """The class of `explore` and of the pytest fixture's value."""

    def __init__(self, run: Callable[[Arguments], Exploration]) -> None:
        self._run = run

    def __call__(
        self, build: Build, messages: Sequence[Any], world: World, observe: Observe, **options: Unpack[ExploreOptions]
    ) -> Exploration:
        """Run a handler through every schedule within the bounds, until a schedule ends wrongly, and return the result.

        A schedule is an order in which deliveries of the messages send their requests, with the faults of these requests. A
        schedule ends correctly if `observe` returns a value that it also returns after processing each message once, one at
        a time, in some order.

        Args:
            build: `build(store)` returns the handler: a function of a message, or a coroutine function. It is called for
                each schedule, and for each process that takes over after a crash. The handler's memory lasts until the
                schedule ends or its process crashes.
            messages: The messages to deliver, each one or more times. A message can be a Lambda event from SQS, Kinesis,
                DynamoDB Streams, or Kafka. The handler is then a Lambda handler: it gets a context if it accepts one, and
                the records that its response reports as failed are redelivered.
            world: `world()` creates the store, with the same contents each time. The store is a boto3 Table or client, a
                pymongo or mongomock collection, or a dict of these.
            observe: `observe(store)` returns the part of the store's contents that the test compares.
            invariant: `invariant(store)` returns False or raises AssertionError if the invariant doesn't hold. It is checked
                at the end of each schedule.
            deliveries: The maximum number of deliveries of each message. The default is 2.
            faults: The maximum number of faults in one schedule. The default is 1.
            reorder: True, the default, allows any order of the messages. "within_source" keeps the messages of each source
                in the order passed, and False keeps all messages in that order.
            concurrency: The maximum number of deliveries in progress at once. The default is 2.
            schedules: The maximum number of schedules to run. The default, None, means 10,000 schedules, or 300,000 if the
                handler's behavior can be recalled instead of run.
            replay: The replay code of a counterexample. Only that schedule is run.
            redelivered_after: The time between two deliveries of a message, by the clock of guarded stores without their own
                `clock=`. The default is 2 minutes. The clock doesn't advance until a store returns `Busy`.
            timeout: The maximum number of seconds between two requests of a handler. The default is 30.
        """
        return self._run(Arguments(build, messages, world, observe, **options))

    def random(
        self,
        build: Build,
        messages: Sequence[Any],
        world: World,
        observe: Observe,
        *,
        seed: int = 0,
        **options: Unpack[ExploreOptions],
    ) -> Exploration:
        """Run randomly drawn schedules. Use it if there are too many schedules within the bounds to run all of them.

        The same seed draws the same schedules. The other arguments are the same as for `explore`. Three of them have wider
        defaults: deliveries=3, faults=2, and concurrency=3.
        """
        all_options: ExploreOptions = {"deliveries": 3, "faults": 2, "concurrency": 3, **options}
        return self._run(Arguments(build, messages, world, observe, at_random=True, seed=seed, **all_options))

    __doc__ = __call__.__doc__  # for explore.__doc__, because `explore` is used like a function


def run(arguments: Arguments, nodeid: str | None = None, show: Callable[[str], None] | None = None) -> Exploration:
    """Run the exploration. `nodeid` is pytest's name of the test, for the command that replays a counterexample.

    `show` shows the progress of a long exploration, on a terminal.
    """
    context = contextvars.copy_context()
    if not is_in_event_loop():
        exploration = context.run(_explore_with_taps, arguments, nodeid, show)
    else:
        with ThreadPoolExecutor(1) as pool:  # an exploration runs its own event loops
            exploration = pool.submit(context.run, _explore_with_taps, arguments, nodeid, show).result()
    if "PYTEST_CURRENT_TEST" in os.environ:
        _explorations_of_test.append(exploration)
    return exploration


explore = Explore(run)
_explorations_of_test: list[Exploration] = []  # Pytest reports their findings if the present test hasn't checked them.


def take_unread() -> list[Exploration]:
    """Return this test's explorations with a finding that the test hasn't checked, and forget all of them."""
    unread = [exploration for exploration in _explorations_of_test if exploration.is_unread]
    _explorations_of_test.clear()
    return unread


def _explore_with_taps(arguments: Arguments, nodeid: str | None, show: Callable[[str], None] | None) -> Exploration:
    # The handler of one exploration can start another exploration.
    current_listener.set(None)
    current_call.set(None)
    with taps.on(), _own_log_silenced(), _garbage_collected_rarely(), closing_opened_tables():
        start = time.perf_counter()
        subject = Subject(
            arguments.build,
            arguments.messages,
            arguments.world,
            arguments.bounds,
            arguments.timeout,
            redelivered_after=arguments.redelivered_after,
        )
        try:
            judge = Judge(subject, arguments.observe, arguments.invariant)
            judge.run_in_mode(judge.prepare)
            judge.switch(replace(judge.mode, handling=Handling.RECALLED))
            search = _search(judge, arguments, show)
            # Two processes share no memory, and might do wrongly what one process does correctly.
            if search.schedule is None and arguments.replay is None and judge.may_share_memory:
                judge.switch(judge.mode.separate())
                search = search.then(_search(judge, arguments, show))
            exploration = _make_exploration(arguments, judge, search, start, nodeid)
            if exploration.passes:
                subject.check()
            return exploration
        finally:
            subject.close()


@dataclass(frozen=True, slots=True)
class _Search:
    """The result of a search. `schedule` is the first schedule with a wrong end, or None."""

    schedule: JudgedSchedule | None
    schedules: int  # the number of schedules that were run
    pruned: int
    exhausted: bool
    remark: str | None

    def then(self, other: _Search) -> _Search:
        """Return the result of both searches, of which this one has found nothing."""
        return replace(
            other,
            schedules=self.schedules + other.schedules,
            pruned=self.pruned + other.pruned,
            exhausted=self.exhausted and other.exhausted,
        )


def _search(judge: Judge, arguments: Arguments, show: Callable[[str], None] | None) -> _Search:
    """Search as fast as the handler allows: recall its behavior, run it and compare, or run it for every schedule."""

    def search() -> _Search:
        judge.check_separation()
        return _run_until_wrong(_choose_schedules(judge, arguments), judge, show)

    return judge.run_in_mode(search)


def _choose_schedules(judge: Judge, arguments: Arguments) -> Schedules:
    if arguments.replay is not None:
        return OneSchedule(arguments.replay, judge)
    if arguments.at_random:
        return RandomSchedules(arguments.seed, judge, arguments.schedules)
    return EverySchedule(judge, arguments.schedules)


_is_exploring: contextvars.ContextVar[bool] = contextvars.ContextVar("onewrite.testing.exploring", default=False)


@contextlib.contextmanager
def _own_log_silenced() -> Generator[None]:
    """Silence onewrite's own log, because thousands of deliveries fail on purpose, and would bury the counterexample.

    Log records of the handler are kept, and so are onewrite's records from other threads and tasks.
    """
    names = [name for name in logging.root.manager.loggerDict if name.startswith("onewrite.")]
    for name in ("onewrite", *names):
        logging.getLogger(name).addFilter(_is_elsewhere)  # has no effect if already added
    token = _is_exploring.set(True)
    try:
        yield
    finally:
        _is_exploring.reset(token)


_ALLOCATIONS = 50_000  # allocations between two collections of garbage, instead of 700


@contextlib.contextmanager
def _garbage_collected_rarely() -> Generator[None]:
    """Collect garbage less often, because an exploration keeps most objects that it makes. Searching them takes a quarter of the time."""
    thresholds = gc.get_threshold()
    if thresholds[0]:  # 0 means never
        gc.set_threshold(max(thresholds[0], _ALLOCATIONS), *thresholds[1:])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _is_elsewhere(_: logging.LogRecord) -> bool:
    return not _is_exploring.get()


def _make_exploration(arguments: Arguments, judge: Judge, search: _Search, start: float, nodeid: str | None) -> Exploration:
    remarks = [] if search.remark is None else [Remark(NOTE, search.remark)]
    bounds = arguments.bounds
    if search.exhausted and search.schedules == 1 and not search.pruned and bounds.deliveries == 1 and not bounds.faults:
        remarks.append(_UNTRIED)
    counterexample: Counterexample | None = None
    schedule = search.schedule
    if schedule is not None and schedule.finding is not None:
        code = encode(schedule.steps, judge.subject.names, own_processes=judge.mode.has_own_processes)
        replay = (
            f'explore(..., replay="{code}")' if nodeid is None else f"pytest {shlex.quote(nodeid)} --onewrite-replay {code}"
        )
        counterexample = make_counterexample(schedule, schedule.finding, make_legend(judge.subject), code, replay)
    passes = counterexample is None
    remarks += judge.run_in_mode(lambda: [*judge.find_remarks(passes=passes)])
    return Exploration(
        search.schedules,
        search.pruned,
        seconds=time.perf_counter() - start,
        exhausted=search.exhausted,
        bounds=bounds,
        found=counterexample,
        nondeterministic=judge.nondeterministic,
        sampled=arguments.at_random or arguments.replay is not None,
        remarks=tuple(remarks),
    )


_SECONDS_SILENT, _SECONDS_SHOWN = 2.0, 0.5  # the time before the progress is first shown, and the time between two lines
_UNTRIED = Remark(
    "untried",
    "These bounds allow only one schedule, without faults or redeliveries. Any handler would pass. Omit deliveries=1 or faults=0.",
)


def _run_until_wrong(schedules: Schedules, judge: Judge, show: Callable[[str], None] | None) -> _Search:
    """Run schedules until one ends wrongly, and return the result of the search.

    A wrong schedule is confirmed by the handler itself, and shortened. A replay shows exactly the schedule that it names.
    """
    number, wrong, start = 0, None, time.monotonic()
    shown = start + _SECONDS_SILENT
    for schedule in schedules:
        number += 1
        if show is not None and (now := time.monotonic()) > shown:
            left = (schedules.limit - number) * (now - start) / number
            show(
                f"onewrite: {number:,} schedules run, {len(schedule.steps)} steps deep, at most {timedelta(seconds=round(left))} left to the "
                f"limit of {schedules.limit:,}"
            )
            shown = now + _SECONDS_SHOWN
        if schedule.finding is not None:
            wrong = schedule if isinstance(schedules, OneSchedule) else shorten(judge, confirm(judge, schedule) or schedule)
            break
    return _Search(wrong, number, schedules.pruned, schedules.exhausted, schedules.remark)
