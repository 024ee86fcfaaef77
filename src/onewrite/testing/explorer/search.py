"""Choose the schedules that an exploration runs: every schedule within the bounds, random schedules, or one replayed schedule."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise, product
from random import Random
from typing import TypeAlias, cast

from onewrite.testing.explorer.exploration import format_timeline, make_legend
from onewrite.testing.explorer.judge import Judge, JudgedSchedule, WrongEnd
from onewrite.testing.explorer.schedule import Delivery, Progress, ScheduleStep, Steps, TakenStep, decode, read
from onewrite.testing.explorer.trial import Trial, TrialFromMemory
from onewrite.testing.taps.fault import VARIANTS, Fault, list_variants

# --- a shorter schedule -----------------------------------------------------------------------------------------------
#
# Removes all unnecessary steps and faults from a schedule, to make the report easier to read.
_FEW_STEPS = 4  # These can be read at a glance, and fewer steps aren't easier to read.
_MAX_TRIALS = 500  # The search for a shorter schedule takes half a second, or some seconds if the handler itself must run.


def shorten(judge: Judge, schedule: JudgedSchedule) -> JudgedSchedule:
    """Return a schedule that still ends wrongly, without unnecessary steps and faults.

    The given schedule must have been run with the handler itself. If it can't be shortened, return it.
    """
    shorter = schedule
    trials = iter(range(_MAX_TRIALS))  # shared by all rounds, whose sum it limits
    # Whatever fails here, for example because the handler behaves differently this time, the found schedule must be reported.
    with suppress(Exception):
        while (simpler := _find_simpler(judge, shorter, trials)) is not None:
            shorter = simpler
    with suppress(Exception):
        return confirm(judge, shorter) or schedule
    return schedule


def confirm(judge: Judge, schedule: JudgedSchedule) -> JudgedSchedule | None:
    """Run the schedule with the handler itself. Return that run if it ends wrongly too, otherwise None."""
    second_run = run_again(judge, schedule.steps) if judge.mode.is_recalling else schedule
    return None if second_run.finding is None else second_run


def run_again(judge: Judge, steps: Steps, *, is_fast: bool = False) -> JudgedSchedule:
    """Run the possible ones of these steps, and then the schedule to its end. If `is_fast`, recall the handler if possible."""

    def body(trial: Trial) -> JudgedSchedule:
        for step in steps:
            if trial.progress.can_take(step):
                trial.take(step)
                if (finding := judge.find_mistake(trial)) is not None:
                    return JudgedSchedule(tuple(trial.steps), finding)
        finding = judge.conclude(trial)  # which takes more steps
        return JudgedSchedule(tuple(trial.steps), finding)

    return judge.run(body, judge.make_fast_trial if is_fast else judge.make_trial)


def _find_simpler(judge: Judge, schedule: JudgedSchedule, trials: Iterator[int]) -> JudgedSchedule | None:
    """Return the first simpler schedule that also ends wrongly and is easier to read."""
    for _, steps in zip(trials, _list_simpler(schedule.steps), strict=False):
        simpler = run_again(judge, _renumber(steps), is_fast=True)
        if simpler.finding is not None and _measure_cost(simpler) < _measure_cost(schedule):
            return simpler
    return None


def _list_simpler(steps: Steps) -> Iterator[Steps]:
    """Yield simpler variants of these steps.

    Each is empty, a beginning with any fault at its last step, two alternating deliveries of one message, or the steps without
    one delivery, step, fault, or switch between deliveries.
    """
    yield ()
    for place, step in enumerate(steps):
        for fault in Fault:
            yield (*steps[:place], step._replace(fault=fault))
    for delivery in dict.fromkeys(step.delivery for step in steps):
        other = Delivery(delivery.message, delivery.number + 1)
        own = [step._replace(fault=Fault.NONE) for step in steps if step.delivery == delivery]
        yield tuple(both for step in own for both in (step, step._replace(delivery=other)))
        yield tuple(step for step in steps if step.delivery != delivery)
    for place, step in enumerate(steps):
        before, after = steps[:place], steps[place + 1 :]
        yield (*before, *after)
        if step.fault:
            yield (*before, step._replace(fault=Fault.NONE), *after)
        if step.request_index:
            yield (*before, step._replace(request_index=0), *after)
        if after and after[0].delivery != step.delivery:
            yield (*before, after[0], step, *after[1:])


def _renumber(steps: Steps) -> Steps:
    """Return the steps, with the deliveries of each message numbered by their start."""
    new_numbers: dict[int, dict[int, int]] = {}  # by message, and by the delivery's number before
    renumbered: list[ScheduleStep] = []
    for step in steps:
        message, number = step.delivery
        own_numbers = new_numbers.setdefault(message, {})
        renumbered.append(step._replace(delivery=Delivery(message, own_numbers.setdefault(number, len(own_numbers)))))
    return tuple(renumbered)


def _measure_cost(schedule: JudgedSchedule) -> tuple[int, ...]:
    """Return how hard a schedule is to read. The steps beyond `_FEW_STEPS` count first, then the faults, then all steps."""
    steps = schedule.steps
    faults = sum(bool(step.fault) for step in steps)
    turns = sum(one.delivery != other.delivery for one, other in pairwise(steps))
    variants = sum(step.fault in others for step in steps for others in VARIANTS.values())
    places = variants, sum(step.delivery.message for step in steps), sum(step.request_index for step in steps)
    return max(len(steps) - _FEW_STEPS, 0), faults, len(steps), turns, len(schedule.trial_steps), *places


# --- all schedules ----------------------------------------------------------------------------------------------------

_FAULTS = [fault for fault in Fault if fault]
_MAX_RECALLED, _MAX_RUN = 300_000, 10_000  # schedules, by default
_MANY_REQUESTS = 5040  # a multiple of 1 to 10, so that each of up to ten pending requests is equally likely
_FALLS = 2  # how often the running delivery drops to the lowest priority: enough for bugs that need three ordered events
_FAULT_SHARE = 0.2  # the share of a random schedule's steps with a fault, while the bounds allow faults
_MIN_DRAWN, _MAX_DRAWN = 3, 30  # random schedules, to check the runs that the search skipped
_DRAWN_AFTER, _DRAWN_EARLY = 100, 100  # schedules of a long search, and the random schedules after them
_MAX_IF_NOT_DETERMINISTIC = 200  # schedules: the report already has a finding, and a counterexample usually comes early
_PLACES_FOR_A_DRAWN_ONE = 20
_PRUNED_SCHEDULE = JudgedSchedule((), None)  # an abandoned schedule


@dataclass(slots=True)
class _Node:
    """A place in the search: the steps already followed from it, and the steps still to follow."""

    progress: Progress
    todo: list[ScheduleStep]  # the next step is the last in the list
    trial: TrialFromMemory | None  # a trial at this place, if trials can be forked
    taken_steps: dict[ScheduleStep, TakenStep] = field(default_factory=dict[ScheduleStep, TakenStep])
    step: ScheduleStep | None = None  # the step that is being followed

    def add_alternatives(self, taken_step: TakenStep) -> None:
        """Add the faults of the step's request and the other requests of its delivery, which are known now that the step was taken."""
        self.todo += [step for step in reversed(taken_step.alternatives) if self.progress.can_take(step)]


class EverySchedule:
    """Runs every schedule within the bounds, but only one of several schedules that can't end differently.

    The search is depth first. If the handler's behavior depends only on its responses, a schedule is abandoned at a place that
    another schedule has reached. A place consists of the store's contents, the responses of the deliveries in progress, and the
    remaining bounds: see `Trial.place`. The search reaches the next schedule in one of two ways:

    - *Recalled.* A trial is forked at the place where the schedule leaves the previous one. The handler runs only if its behavior
      isn't recorded yet. Two deliveries of one message that received the same responses are interchangeable.
    - *Run.* The result of a request in a MongoDB transaction, or with a DynamoDB token, depends on more than the store's contents.
      The schedule is therefore run from its start: first the steps that it shares with the previous schedule, then a new step, and
      then any steps to the end. The handler's behavior is compared with the recorded behavior.

    The module `recall` explains how the explorer checks that the handler's behavior depends only on its responses. If it doesn't,
    every schedule is run from its start, and none is abandoned.
    """

    exhausted = False  # every schedule has been run, or can't end differently from one that was run
    remark: str | None = None  # a note for the report

    def __init__(self, judge: Judge, schedules: int | None = None) -> None:
        self.pruned = 0  # the number of branches that weren't followed
        self._judge = judge
        self._is_recalling = judge.mode.is_recalling
        self.limit = schedules or (_MAX_RECALLED if self._is_recalling else _MAX_RUN)
        self._path: list[_Node] = []
        self._places: set[Hashable] = set()

    def __iter__(self) -> Iterator[JudgedSchedule]:
        overlaps = [schedule for schedule in _overlap(self._judge) if schedule.finding is not None]
        if not self._judge.mode.is_recording:  # if the handler is recalled, the search finds these itself
            yield from overlaps
        checks = [*_follow_variants(self._judge)]
        if self._judge.mode.is_recording:
            checks += _repeat(self._judge)
            checks += _draw(self._judge, 0, _MIN_DRAWN)
        all_end_correctly = True
        for number in count(1):
            schedule = self._judge.run(self._run, self._start)
            all_end_correctly = all_end_correctly and schedule.finding is None
            yield schedule
            if not self._go_back():
                break
            if number == self.limit or (number >= _MAX_IF_NOT_DETERMINISTIC and self._judge.nondeterministic is not None):
                return
            if number == _DRAWN_AFTER:
                yield from (schedule for schedule in self._draw_early() if schedule.finding is not None)
        if all_end_correctly and self._judge.mode.is_recording:
            # The more runs the search skipped, the more schedules are drawn.
            drawn_count = min(len(self._places) // _PLACES_FOR_A_DRAWN_ONE, _MAX_DRAWN)
            checks += _draw(self._judge, _MIN_DRAWN, drawn_count)
            self._judge.prove()
        if all_end_correctly:
            yield from (schedule for schedule in checks if schedule.finding is not None)
        self.exhausted = True

    def _draw_early(self) -> Iterator[JudgedSchedule]:
        """Run random schedules, because a depth-first search reaches some mistakes only after all schedules with the same beginning."""
        for number in range(_DRAWN_EARLY):
            yield _run_random(self._judge, f"early/{number}", self._judge.make_fast_trial)

    def _start(self) -> Trial:
        """Return a trial at the place where the next schedule leaves the previous one, or at the beginning."""
        forkable = self._path[-1].trial if self._path else None
        return self._judge.make_fast_trial() if forkable is None else forkable.fork()

    def _run(self, trial: Trial) -> JudgedSchedule:
        """Take the remaining steps of the path, and then further steps until none is possible or none can lead to a new place."""
        # A recalled trial is already at the path's last node. Another trial begins at the start.
        if not all(self._follow(node, trial) for node in (self._path[-1:] if self._is_recalling else self._path)):
            return JudgedSchedule(tuple(trial.steps), self._judge.conclude(trial))
        while True:
            place = trial.place
            if place in self._places:  # its end, if possible here, has already been checked
                self.pruned += 1
                return _PRUNED_SCHEDULE
            finding = self._judge.find_mistake(trial)
            node = self._make_node(trial)
            if node.todo:
                self._path.append(node)
            else:
                finding = finding or self._judge.conclude(trial)
            if place is not None:
                self._places.add(place)
            if finding is not None or not node.todo:  # after a finding, the next steps belong to other schedules
                return JudgedSchedule(tuple(trial.steps), finding)
            node.step = node.todo.pop()
            self._follow(node, trial)

    def _make_node(self, trial: Trial) -> _Node:
        """Return a node for the place that the last step reached."""
        todo = [step for delivery in reversed(trial.list_able()) for step in reversed(trial.list_next_steps(delivery))]
        return _Node(trial.progress, todo, trial.fork() if isinstance(trial, TrialFromMemory) else None)

    def _go_back(self) -> bool:
        """Go back to the last place with another step to follow. Return False if there is none."""
        while self._path and not self._path[-1].todo:
            self._path.pop()
        if not self._path:
            return False
        self._path[-1].step = self._path[-1].todo.pop()
        return True

    def _follow(self, node: _Node, trial: Trial) -> bool:
        """Take the node's step. Return False if it is no longer possible, because the handler behaved differently this time."""
        step = cast("ScheduleStep", node.step)
        before = node.taken_steps.get(step)
        taken_step = trial.take(step) if self._is_recalling or trial.progress.can_take(step) else None
        if before is None and taken_step is not None:
            node.taken_steps[step] = taken_step
            node.add_alternatives(taken_step)
        elif before is None or taken_step is None or before.key != taken_step.key:
            self._judge.note_difference(step.delivery, before, taken_step)
        return taken_step is not None


def _repeat(judge: Judge) -> Iterator[JudgedSchedule]:
    """Run each message twice: one delivery after the other, one within the other, and one after each kind of failure.

    If the handler keeps data in memory, it behaves differently in one of these runs although it receives the same responses, or
    `observe` returns a different value for the same store state.
    """
    for message, request_count in enumerate(judge.request_counts):
        first_step, second_step = ScheduleStep(Delivery(message, 0)), ScheduleStep(Delivery(message, 1))
        yield run_again(judge, (*(first_step,) * request_count, *(second_step,) * request_count))
        yield run_again(judge, (first_step, *(second_step,) * request_count))
        for other, other_count in enumerate(judge.request_counts):
            if other != message:
                yield run_again(judge, (first_step, *(ScheduleStep(Delivery(other, 0)),) * other_count))
        for before in range(request_count):
            for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST):
                yield run_again(judge, (*(first_step,) * before, first_step._replace(fault=fault)))


def _overlap(judge: Judge) -> Iterator[JudgedSchedule]:
    """Run a second delivery between the beginning of each delivery and its first request, with and without a fault of that request.

    In the search, a delivery begins with its first request. An earlier beginning makes a difference only if the handler stores data
    in memory before that request. Two deliveries of one message are run first, because another message might wait for a lock.
    """
    counts = judge.request_counts
    messages = range(len(counts))
    for message, other in sorted(product(messages, messages), key=lambda pair: pair[0] != pair[1]):
        first, second = Delivery(message, 0), Delivery(other, int(other == message))
        for fault in (Fault.NONE, Fault.CRASH_BEFORE, Fault.THROTTLED):
            between = (ScheduleStep(second),) * counts[other]
            yield run_again(judge, (ScheduleStep(first, Fault.BEGUN), *between, ScheduleStep(first, fault)))


def _follow_variants(judge: Judge) -> Iterator[JudgedSchedule]:
    """Run each variant of a fault at each request of each message.

    If the handler reacts differently to the variant than to the fault itself, the search follows the variant too.
    """
    for message, request_count in enumerate(judge.request_counts):
        step = ScheduleStep(Delivery(message, 0))
        for place in range(request_count):
            for fault in VARIANTS:
                first = run_again(judge, (*(step,) * place, step._replace(fault=fault)))
                request = first.trial_steps[place].taken_step.request if len(first.steps) > place else None
                if request is None or first.steps[place].fault is not fault:
                    continue  # this fault doesn't affect the request
                for variant in list_variants(fault, request):
                    other = run_again(judge, (*(step,) * place, step._replace(fault=variant)))
                    # Every loop over unprocessed items reacts, and ten more requests in each schedule would find nothing else.
                    if other.behavior != first.behavior and not variant.is_partial:
                        judge.subject.traits.variants.add(variant)
                    yield other


class RandomSchedules:
    """Runs schedules whose steps are drawn at random. The same seed draws the same schedules.

    Some rare bugs need one delivery to pause for long while others run, which uniform draws seldom produce. Each delivery therefore
    draws a priority, and the delivery with the highest priority continues, except that its priority drops below all others at a few
    steps. See "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs" (ASPLOS 2010). Every second schedule is drawn
    uniformly.
    """

    exhausted = False
    pruned = 0
    remark: str | None = "They were drawn at random."

    def __init__(self, seed: object, judge: Judge, schedules: int | None) -> None:
        self.limit = schedules or _MAX_RUN
        self._seed = seed
        self._judge = judge

    def __iter__(self) -> Iterator[JudgedSchedule]:
        judge = self._judge
        steps = sum(judge.request_counts) * judge.subject.bounds.deliveries
        if judge.mode.is_recording:
            yield from [schedule for schedule in _repeat(judge) if schedule.finding is not None]
        for number in range(self.limit):
            seed = f"{self._seed}/{number}"
            draw = _Priorities(Random(f"{seed}/order"), steps) if number % 2 else None
            yield _run_random(judge, seed, judge.make_fast_trial, draw)
            if number >= _MAX_IF_NOT_DETERMINISTIC and judge.nondeterministic is not None:
                return
        judge.prove()


class _Priorities:
    """The priorities that determine the next delivery."""

    def __init__(self, draw: Random, steps: int) -> None:
        self._draw = draw
        self._priorities: dict[Delivery, float] = {}
        self._falls = {draw.randrange(max(steps, 1)): -place for place in range(1, _FALLS + 1)}
        self._numbers = count()

    def choose(self, able: Sequence[Delivery]) -> Delivery:
        """Return the delivery with the highest priority. If its priority drops at this step, choose again."""
        for delivery in able:
            if delivery not in self._priorities:
                self._priorities[delivery] = self._draw.random()
        first = max(able, key=self._priorities.__getitem__)
        fall = self._falls.get(next(self._numbers))
        if fall is not None:
            self._priorities[first] = fall
            return self.choose(able)
        return first


def _draw(judge: Judge, start: int, stop: int) -> list[JudgedSchedule]:
    """Return random schedules that run the handler itself, to check the runs that the search has skipped."""
    return [_run_random(judge, f"check/{number}", judge.make_trial) for number in range(start, stop)]


def _run_random(
    judge: Judge, seed: str, begin: Callable[[], Trial], priorities: _Priorities | None = None
) -> JudgedSchedule:
    """Run one schedule, whose steps are drawn from this seed, to its end or to the first mistake."""

    def body(trial: Trial) -> JudgedSchedule:
        draw, draw_index = Random(seed), Random(f"{seed}/which")
        finding: WrongEnd | None = None
        while finding is None and (able := trial.list_able()):
            fault = draw.choice(_FAULTS) if draw.random() < _FAULT_SHARE else Fault.NONE
            delivery = draw.choice(able) if priorities is None else priorities.choose(able)
            batch = draw_index.choice(trial.list_next_steps(delivery)).batch
            step = ScheduleStep(delivery, fault, draw_index.randrange(_MANY_REQUESTS), batch)
            trial.take(step if trial.progress.can_take(step) else step._replace(fault=Fault.NONE))
            finding = judge.find_mistake(trial)
        return JudgedSchedule(tuple(trial.steps), finding or judge.conclude(trial))

    return judge.run(body, begin)


class OneSchedule:
    """Runs the schedule of a replay code."""

    exhausted = False
    pruned = 0
    limit = 1

    def __init__(self, replay_code: str, judge: Judge) -> None:
        self._steps = decode(replay_code, judge.subject.names)
        self._judge = judge
        if read(replay_code)[2]:
            judge.switch(judge.mode.separate())
        self.remark: str | None = None

    def __iter__(self) -> Iterator[JudgedSchedule]:
        judge = self._judge
        schedule = run_again(judge, self._steps)
        if schedule.steps[: len(self._steps)] != self._steps:
            self.remark = (
                "The handler or the bounds have changed since the replay code was created. Only the steps that are still possible "
                "were run."
            )
        if schedule.finding is None:
            self.remark = "\n\n".join(filter(None, [self.remark, format_timeline(schedule, make_legend(judge.subject))]))
        yield schedule


Schedules: TypeAlias = EverySchedule | RandomSchedules | OneSchedule
