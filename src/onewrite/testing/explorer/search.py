"""Which schedules an exploration runs: every one within the bounds, some that are drawn at random, or one that is replayed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise, product
from random import Random
from typing import TypeAlias, cast

from onewrite.testing.explorer.exploration import legend_of, timeline
from onewrite.testing.explorer.judge import Judge, JudgedSchedule, WrongEnd
from onewrite.testing.explorer.schedule import (
    VARIANTS,
    Delivery,
    Fault,
    Progress,
    ScheduleStep,
    Steps,
    TakenStep,
    decode,
    read,
    variants_of,
)
from onewrite.testing.explorer.trial import Trial, TrialFromMemory

# --- a shorter schedule -----------------------------------------------------------------------------------------------
#
# Leaves out of a schedule whatever can be left out, so a reader sees what matters.

_FEW_STEPS = 4  # a reader takes them in at a glance, so fewer steps are no easier to read
_MOST_TRIALS = 500  # to look for a shorter schedule: half a second or so, and some seconds where the handler itself must run


def shorten(judge: Judge, schedule: JudgedSchedule) -> JudgedSchedule:
    """Return a schedule that ends wrongly like this one, but without the steps and faults that don't matter.

    The given schedule must have been run with the handler itself. Whatever goes wrong here, the result is a schedule that ends wrongly.
    """
    shorter, trials = schedule, iter(range(_MOST_TRIALS))
    with suppress(Exception):
        while (found := _simpler_one(judge, shorter, trials)) is not None:
            shorter = found
    with suppress(Exception):
        return confirm(judge, shorter) or schedule
    return schedule


def confirm(judge: Judge, schedule: JudgedSchedule) -> JudgedSchedule | None:
    """Run the schedule with the handler itself, and return it if it ends wrongly then too."""
    second_run = run_again(judge, schedule.steps) if judge.recalls else schedule
    return None if second_run.finding is None else second_run


def run_again(judge: Judge, steps: Steps, *, recalled: bool = False) -> JudgedSchedule:
    """Run these steps, except for those that are not possible, and let the schedule end."""

    def body(trial: Trial) -> JudgedSchedule:
        for step in steps:
            if trial.progress.allows(step):
                trial.take(step)
                if (finding := judge.check(trial)) is not None:
                    return JudgedSchedule(tuple(trial.steps), finding)
        finding = judge.conclude(trial)  # which takes more steps
        return JudgedSchedule(tuple(trial.steps), finding)

    return judge.run(body, judge.recalled_trial if recalled else judge.trial)


def _simpler_one(judge: Judge, schedule: JudgedSchedule, trials: Iterator[int]) -> JudgedSchedule | None:
    """Return the first simpler schedule that also ends wrongly and is easier to read."""
    for _, steps in zip(trials, _simpler(schedule.steps), strict=False):
        simpler = run_again(judge, _renumber(steps), recalled=judge.recalls)
        if simpler.finding is not None and _cost(simpler) < _cost(schedule):
            return simpler
    return None


def _simpler(steps: Steps) -> Iterator[Steps]:
    """Yield the first steps with any fault at the last, two deliveries of a message next to each other, or all but a delivery, a step, a fault, or an order."""
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
    """Return the steps with the deliveries of each message numbered in the order in which they start."""
    numbers: dict[int, dict[int, int]] = {}
    result: list[ScheduleStep] = []
    for step in steps:
        message, number = step.delivery
        own_numbers = numbers.setdefault(message, {})
        result.append(step._replace(delivery=Delivery(message, own_numbers.setdefault(number, len(own_numbers)))))
    return tuple(result)


def _cost(schedule: JudgedSchedule) -> tuple[int, ...]:
    """Return how hard a schedule is to read: by its steps beyond a few, then its faults, then its steps."""
    steps = schedule.steps
    faults = sum(bool(step.fault) for step in steps)
    turns = sum(one.delivery != other.delivery for one, other in pairwise(steps))
    variants = sum(step.fault in others for step in steps for others in VARIANTS.values())
    places = variants, sum(step.delivery.message for step in steps), sum(step.request_index for step in steps)
    return max(len(steps) - _FEW_STEPS, 0), faults, len(steps), turns, len(schedule.trial_steps), *places


# --- all schedules ----------------------------------------------------------------------------------------------------

_FAULTS = [fault for fault in Fault if fault]
_MAX_RECALLED, _MAX_RUN = 300_000, 10_000  # schedules, unless the user says otherwise
_MANY_REQUESTS = 5040  # which of its pending requests a delivery sends is counted round: up to ten have the same chance
_FALLS = 2  # of the delivery that goes on, behind all others: enough for mistakes that take three orders
_FAULT_SHARE = 0.2  # of the steps of a random schedule, as long as the bounds allow faults
_DRAWN_AT_FIRST, _DRAWN_AT_MOST = 3, 30  # to check what the search has spared
_PLACES_FOR_A_DRAWN_ONE = 20
_PRUNED_SCHEDULE = JudgedSchedule((), None)  # a schedule that is given up


@dataclass(slots=True)
class _Node:
    """A place in the search: the steps that were followed from it, and those that are still to follow."""

    progress: Progress
    todo: list[ScheduleStep]  # the next one last
    trial: TrialFromMemory | None  # one that stands here, where a trial can be left and gone on with
    taken_steps: dict[ScheduleStep, TakenStep] = field(default_factory=dict[ScheduleStep, TakenStep])
    step: ScheduleStep | None = None  # the step that is being followed

    def add_alternatives(self, taken_step: TakenStep) -> None:
        """Follow the faults that may befall the request of a step, and what else its delivery may send, now that these are known."""
        self.todo += [step for step in reversed(taken_step.alternatives) if self.progress.allows(step)]


class EverySchedule:
    """Runs every schedule within the bounds, but of several that cannot end differently only one.

    The search goes depth first. Where what the handler does follows from the answers that it has been given, a schedule is given up at a
    place where another has been. A place is what the store holds, the answers of the deliveries in progress, and what the bounds still
    allow: see `Trial.place`. The search comes to the next schedule in one of two ways:

    - *Recalled.* A trial is forked at the place where the schedule leaves the one before it, and no handler runs, unless it is not known
      yet what it does. Two deliveries of one message that have been given the same answers may take each other's part.
    - *Run.* What comes of a request in a transaction of MongoDB, or of one with a token of DynamoDB, depends on more than what the store
      holds. So the schedule is run from its start: first the steps that it shares with the one before it, then a step that was not
      yet taken there, and then any steps on to the end. All that the handler does is compared with what is remembered.

    `recall` says how it is checked that what the handler does follows from its answers. Where it does not, every schedule is run from its
    start, and none is given up.
    """

    exhausted = False  # every schedule has been run, or cannot end differently from one that has
    remark: str | None = None  # what the reader of the report should know

    def __init__(self, judge: Judge, schedules: int | None = None) -> None:
        self.pruned = 0  # the branches that were not followed
        self._judge = judge
        self._schedules = schedules
        self._recalls = judge.recalls
        self._path: list[_Node] = []
        self._places: set[Hashable] = set()

    def __iter__(self) -> Iterator[JudgedSchedule]:
        overlaps = [schedule for schedule in _overlap(self._judge) if schedule.finding is not None]
        if not self._judge.remembers:  # of another handler, the search finds these itself
            yield from overlaps
        checks = [*_follow_variants(self._judge)]
        if self._judge.remembers:
            checks += _repeat(self._judge)
            checks += _draw(self._judge, 0, _DRAWN_AT_FIRST)
        right, most = True, self._schedules or (_MAX_RECALLED if self._recalls else _MAX_RUN)
        for number in count(1):
            schedule = self._judge.run(self._run, self._start)
            right = right and schedule.finding is None
            yield schedule
            if not self._go_back():
                break
            if number == most:
                return
        if right and self._judge.remembers:
            # The more there was to spare, the more schedules are drawn.
            many = len(self._places) // _PLACES_FOR_A_DRAWN_ONE
            checks += _draw(self._judge, _DRAWN_AT_FIRST, min(many, _DRAWN_AT_MOST))
            self._judge.prove()
        if right:
            yield from (schedule for schedule in checks if schedule.finding is not None)
        self.exhausted = True

    def _start(self) -> Trial:
        """Return a trial at the place where the next schedule leaves the previous one, or at the beginning."""
        if not self._recalls:
            return self._judge.trial()
        return cast("TrialFromMemory", self._path[-1].trial).fork() if self._path else self._judge.recalled_trial()

    def _run(self, trial: Trial) -> JudgedSchedule:
        """Take those steps of the path that are not taken yet, and then any steps until none is possible or nothing new can follow."""
        if not all(self._follow(node, trial) for node in (self._path[-1:] if self._recalls else self._path)):
            return JudgedSchedule(tuple(trial.steps), self._judge.conclude(trial))
        while True:
            place = trial.place
            if place in self._places:  # what is seen there, if the schedule may end there, was seen then
                self.pruned += 1
                return _PRUNED_SCHEDULE
            finding = self._judge.check(trial)
            node = self._node(trial)
            if not node.todo:
                finding = finding or self._judge.conclude(trial)
            if place is not None:
                self._places.add(place)
            if not node.todo:
                return JudgedSchedule(tuple(trial.steps), finding)
            self._path.append(node)
            if finding is not None:  # what would follow belongs to another schedule
                return JudgedSchedule(tuple(trial.steps), finding)
            node.step = node.todo.pop()
            self._follow(node, trial)

    def _node(self, trial: Trial) -> _Node:
        """Return the place to which the last step has led."""
        todo = [step for delivery in reversed(trial.able()) for step in reversed(trial.beginnings(delivery))]
        return _Node(trial.progress, todo, trial.fork() if isinstance(trial, TrialFromMemory) else None)

    def _go_back(self) -> bool:
        """Go back to the last place from which another step can be followed. False if there is none."""
        while self._path and not self._path[-1].todo:
            self._path.pop()
        if not self._path:
            return False
        self._path[-1].step = self._path[-1].todo.pop()
        return True

    def _follow(self, node: _Node, trial: Trial) -> bool:
        """Take the node's step. False if it is no longer possible, because the handler has behaved differently this time."""
        step = cast("ScheduleStep", node.step)
        before = node.taken_steps.get(step)
        taken_step = trial.take(step) if self._recalls or trial.progress.allows(step) else None
        if before is None and taken_step is not None:
            node.taken_steps[step] = taken_step
            node.add_alternatives(taken_step)
        elif before is None or taken_step is None or before.key != taken_step.key:
            self._judge.differs(step.delivery, before, taken_step)
        return taken_step is not None


def _repeat(judge: Judge) -> Iterator[JudgedSchedule]:
    """Run each message twice: one delivery after the other, one within the other, and one after each way to fail.

    A handler that keeps something in memory does something else in one of them than when it was given the same answers at first, or
    `observe` sees something else in the same state of the store.
    """
    for message, many in enumerate(judge.requests):
        first_step, second_step = ScheduleStep(Delivery(message, 0)), ScheduleStep(Delivery(message, 1))
        yield run_again(judge, (*(first_step,) * many, *(second_step,) * many))
        yield run_again(judge, (first_step, *(second_step,) * many))
        for other, length in enumerate(judge.requests):
            if other != message:
                yield run_again(judge, (first_step, *(ScheduleStep(Delivery(other, 0)),) * length))
        for before in range(many):
            for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST):
                yield run_again(judge, (*(first_step,) * before, first_step._replace(fault=fault)))


def _overlap(judge: Judge) -> Iterator[JudgedSchedule]:
    """Run another delivery between the beginning of each message and its first request, which then fails or doesn't.

    A search lets a delivery begin with its first request. Only to a handler that keeps something in memory before that does it make a
    difference. Two deliveries of one message come first: another message may have to wait for a lock.
    """
    messages = range(len(judge.requests))
    for message, other in sorted(product(messages, messages), key=lambda pair: pair[0] != pair[1]):
        first, second = Delivery(message, 0), Delivery(other, int(other == message))
        for fault in (Fault.NONE, Fault.CRASH_BEFORE, Fault.THROTTLED):
            between = (ScheduleStep(second),) * judge.requests[other]
            yield run_again(judge, (ScheduleStep(first, Fault.BEGUN), *between, ScheduleStep(first, fault)))


def _follow_variants(judge: Judge) -> Iterator[JudgedSchedule]:
    """Run each variant of a fault at each request of each message.

    If the handler does something else than after the fault of which it is a variant, the search follows the variant too.
    """
    for message, many in enumerate(judge.requests):
        step = ScheduleStep(Delivery(message, 0))
        for place in range(many):
            for fault in VARIANTS:
                first = run_again(judge, (*(step,) * place, step._replace(fault=fault)))
                request = first.trial_steps[place].taken_step.request if len(first.steps) > place else None
                if request is None or first.steps[place].fault is not fault:
                    continue  # this fault makes no difference to the request
                for variant in variants_of(fault, request):
                    other = run_again(judge, (*(step,) * place, step._replace(fault=variant)))
                    if other.behavior != first.behavior:
                        judge.subject.variants.add(variant)
                    yield other


class RandomSchedules:
    """Runs schedules whose steps are drawn at random. The same seed draws the same.

    Uniform draws seldom let one delivery stand still for long while others run, which rare mistakes need. So each delivery draws a
    priority, and the one with the highest goes on, except that at a few places it falls behind all others: this is "A Randomized Scheduler
    with Probabilistic Guarantees of Finding Bugs" (ASPLOS 2010). Every second schedule is drawn uniformly.
    """

    exhausted = False
    pruned = 0
    remark: str | None = "They were drawn at random."

    def __init__(self, seed: object, judge: Judge, schedules: int | None) -> None:
        self._schedules = schedules or 10_000
        self._seed = seed
        self._judge = judge

    def __iter__(self) -> Iterator[JudgedSchedule]:
        judge = self._judge
        steps = sum(judge.requests) * judge.subject.bounds.deliveries
        if judge.remembers:
            yield from [schedule for schedule in _repeat(judge) if schedule.finding is not None]
        for number in range(self._schedules):
            seed = f"{self._seed}/{number}"
            draw = _Priorities(Random(f"{seed}/order"), steps) if number % 2 else None
            yield _run_random(judge, seed, judge.recalled_trial if judge.recalls else judge.trial, draw)
        judge.prove()


class _Priorities:
    """The priorities by which the next delivery is chosen."""

    def __init__(self, draw: Random, steps: int) -> None:
        self._draw = draw
        self._priorities: dict[Delivery, float] = {}
        self._falls = {draw.randrange(max(steps, 1)): -place for place in range(1, _FALLS + 1)}
        self._numbers = count()

    def choose(self, able: Sequence[Delivery]) -> Delivery:
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
    return [_run_random(judge, f"check/{number}", judge.trial) for number in range(start, stop)]


def _run_random(
    judge: Judge, seed: str, begin: Callable[[], Trial], priorities: _Priorities | None = None
) -> JudgedSchedule:
    def body(trial: Trial) -> JudgedSchedule:
        draw, draw_index = Random(seed), Random(f"{seed}/which")
        finding: WrongEnd | None = None
        while finding is None and (able := trial.able()):
            fault = draw.choice(_FAULTS) if draw.random() < _FAULT_SHARE else Fault.NONE
            delivery = draw.choice(able) if priorities is None else priorities.choose(able)
            company = draw_index.choice(trial.beginnings(delivery)).company
            step = ScheduleStep(delivery, fault, draw_index.randrange(_MANY_REQUESTS), company)
            trial.take(step if trial.progress.allows(step) else step._replace(fault=Fault.NONE))
            finding = judge.check(trial)
        return JudgedSchedule(tuple(trial.steps), finding or judge.conclude(trial))

    return judge.run(body, begin)


class OneSchedule:
    """Runs the schedule of a replay code."""

    exhausted = False
    pruned = 0

    def __init__(self, replay_code: str, judge: Judge) -> None:
        self._steps = decode(replay_code, judge.subject.names)
        self._judge = judge
        if read(replay_code)[2]:
            judge.separate()
        self.remark: str | None = None

    def __iter__(self) -> Iterator[JudgedSchedule]:
        judge = self._judge
        schedule = run_again(judge, self._steps)
        if schedule.steps[: len(self._steps)] != self._steps:
            self.remark = (
                "The handler or the bounds have changed since the replay code was made: only those of its steps were run "
                "that are still possible."
            )
        if schedule.finding is None:
            self.remark = "\n\n".join(filter(None, [self.remark, timeline(schedule, legend_of(judge.subject))]))
        yield schedule


Schedules: TypeAlias = EverySchedule | RandomSchedules | OneSchedule
