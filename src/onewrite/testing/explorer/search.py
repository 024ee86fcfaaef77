"""Which schedules an exploration runs: every one within the bounds, some that are drawn at random, or one that is replayed."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, pairwise
from random import Random
from typing import NamedTuple, TypeAlias, cast

from onewrite.testing.explorer.exploration import timeline
from onewrite.testing.explorer.judge import Judge, JudgedSchedule, WrongEnd
from onewrite.testing.explorer.memory import UnreadableMemory
from onewrite.testing.explorer.recall import comparable
from onewrite.testing.explorer.remarks import in_words
from onewrite.testing.explorer.schedule import Delivery, Fault, Progress, ScheduleStep, Steps, TakenStep, decode, independent
from onewrite.testing.explorer.trial import Trial, TrialFromMemory

# --- the shortest schedule --------------------------------------------------------------------------------------------
#
# Looks for the shortest schedule that shows what is wrong.
#
# First, the schedule that was found is cut down greedily. Then all schedules that are shorter than the result are tried, the
# shortest first. Both decide only the first steps of a schedule: after those, the open deliveries end without faults, and the
# unsettled messages are redelivered.

Cost: TypeAlias = tuple[int, ...]

_FEW_STEPS = 4  # a reader takes them in at a glance, so fewer steps are no easier to read
_MOST_TRIALS = 3000  # to look for a shorter schedule, which takes a second or two while the handler is recalled
_MOST_RUNS = 500  # the same, where the handler itself must run


class _Attempt(NamedTuple):
    steps: Steps
    schedule: JudgedSchedule
    last: TakenStep | None  # the last of the decided steps, if it was possible
    progress: Progress  # how far the decided steps have come


def run_again(judge: Judge, steps: Steps) -> JudgedSchedule:
    """Run these steps with the handler itself, except for those that are not possible, and let the schedule end."""
    return _try(judge, steps, recalled=False).schedule


def shortest(judge: Judge, schedule: JudgedSchedule) -> tuple[JudgedSchedule, str | None]:
    """The shortest schedule with a finding that can be made out of the one that was found, or that is tried beside it.

    The one that was found must have been run with the handler itself. It is never lost: whatever goes wrong here, the result
    is a schedule that ends wrongly, with a remark on why there may be a shorter one.
    """
    search = _Shortening(judge, schedule)
    remark: str | None = None
    try:
        search.run()
    except _SpentError:
        remark = f"There may be a shorter schedule that ends like this: {search.attempts} were tried."
    except Exception as error:
        remark = f"There may be a shorter schedule that ends like this: looking for it failed with {in_words(error)}."
    best: JudgedSchedule | None = None
    with suppress(Exception):
        best = confirm(judge, search.best)
    return best or schedule, remark


def confirm(judge: Judge, schedule: JudgedSchedule) -> JudgedSchedule | None:
    """The same schedule run with the handler itself, if it ends wrongly then too."""
    second_run = run_again(judge, schedule.steps) if judge.recalls else schedule
    return None if second_run.finding is None else second_run


class _SpentError(Exception):
    """As many schedules have been tried as may be."""


def _try(judge: Judge, steps: Steps, *, recalled: bool = True) -> _Attempt:
    def body(trial: Trial) -> _Attempt:
        last: TakenStep | None = None
        finding: WrongEnd | None = None
        for step in steps:
            last = trial.take(step) if finding is None and trial.allows(step) else None
            finding = finding or (None if last is None else judge.check(trial))
        progress = trial.progress
        finding = finding or judge.conclude(trial)
        return _Attempt(steps, JudgedSchedule(tuple(trial.steps), finding), last, progress)

    return judge.run(body, judge.recalled_trial if recalled and judge.recalls else judge.trial)


class _Shortening:
    """The search for a shorter schedule. `best` is the shortest so far."""

    def __init__(self, judge: Judge, schedule: JudgedSchedule) -> None:
        self.best = schedule
        self.attempts = 0
        self._judge = judge

    def run(self) -> None:
        while any(self._is_better(self._try(_renumber(steps)).schedule) for steps in _simpler(self.best.steps)):
            pass
        self._try_all_shorter()

    def _try_all_shorter(self) -> None:
        """Try all beginnings of schedules, longer by one step each time, while they cost less than the best schedule known."""
        beginnings = [self._try(())]
        while beginnings:
            longer = [attempt for attempt in self._extensions(beginnings) if not self._is_better(attempt.schedule)]
            beginnings = [
                attempt
                for attempt in longer
                if attempt.schedule.finding is None and _cost(attempt.steps) < _full_cost(self.best)
            ]

    def _is_better(self, schedule: JudgedSchedule) -> bool:
        if schedule.finding is None or _full_cost(schedule) >= _full_cost(self.best):
            return False
        self.best = schedule
        return True

    def _extensions(self, beginnings: list[_Attempt]) -> Iterator[_Attempt]:
        """Each beginning with each step that may follow it."""
        for steps, _, _, progress in beginnings:
            todo = [ScheduleStep(delivery) for delivery in progress.able()]
            while todo:
                attempt = self._try((*steps, todo.pop(0)))
                yield attempt
                alternatives = [] if attempt.last is None else attempt.last.alternatives
                todo = [*[step for step in alternatives if progress.allows(step)], *todo]

    def _try(self, steps: Steps) -> _Attempt:
        if self.attempts == (_MOST_TRIALS if self._judge.recalls else _MOST_RUNS):
            raise _SpentError
        self.attempts += 1
        return _try(self._judge, steps)


def _simpler(steps: Steps) -> Iterator[Steps]:
    """Without the last steps, without a delivery, without a step, without a fault, or with two steps in the other order."""
    for length in range(len(steps)):
        yield steps[:length]
    for delivery in dict.fromkeys(step.delivery for step in steps):
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
    """The deliveries of each message numbered in the order in which they start."""
    numbers: dict[int, dict[int, int]] = {}
    result: list[ScheduleStep] = []
    for step in steps:
        message, number = step.delivery
        own_numbers = numbers.setdefault(message, {})
        result.append(step._replace(delivery=Delivery(message, own_numbers.setdefault(number, len(own_numbers)))))
    return tuple(result)


def _full_cost(schedule: JudgedSchedule) -> Cost:
    """How hard a schedule is to read, together with the redeliveries that follow it."""
    steps = schedule.steps
    turns = sum(one.delivery != other.delivery for one, other in pairwise(steps))
    places = sum(step.delivery.message for step in steps), sum(step.request_index for step in steps)
    return *_cost(steps), turns, len(schedule.trial_steps), *places


def _cost(steps: Steps) -> Cost:
    """How hard steps are to read: by the number of steps beyond a few, then of faults, then of steps."""
    return max(len(steps) - _FEW_STEPS, 0), sum(bool(step.fault) for step in steps), len(steps)


# --- all schedules ----------------------------------------------------------------------------------------------------

_FAULTS = [fault for fault in Fault if fault]
_MANY_REQUESTS = 5040  # which of its pending requests a delivery sends is counted round: up to ten have the same chance
_FAULT_SHARE = 0.2  # of the steps of a random schedule, as long as the bounds allow faults
_DRAWN_AT_FIRST, _DRAWN_AT_MOST = 3, 30  # to check what the search has spared
_PLACES_FOR_A_DRAWN_ONE = 20
_PRUNED_SCHEDULE = JudgedSchedule((), None)  # a schedule that is given up


@dataclass(slots=True)
class _Node:
    """A place in the search: the steps that were followed from it, those that are still to follow, and those that sleep."""

    progress: Progress
    todo: list[ScheduleStep]  # the next one last
    memory: int = 0  # a number that stands for what the handler keeps
    # For each delivery, a number that stands for all that it has been through.
    histories: Mapping[Delivery, int] = field(default_factory=dict[Delivery, int])
    asleep: Mapping[ScheduleStep, TakenStep] = field(default_factory=dict[ScheduleStep, TakenStep])
    taken_steps: dict[ScheduleStep, TakenStep] = field(default_factory=dict[ScheduleStep, TakenStep])
    step: ScheduleStep | None = None  # the step that is being followed
    trial: TrialFromMemory | None = None  # one that stands here, where a trial can be left and gone on with

    def add_alternatives(self, taken_step: TakenStep) -> None:
        """Follow the faults that may befall the request of a step, and what else its delivery may send, now that these are known."""
        self.todo += [step for step in reversed(taken_step.alternatives) if self.progress.allows(step)]

    def asleep_after(self, taken_step: TakenStep) -> dict[ScheduleStep, TakenStep]:
        others = {**self.asleep, **self.taken_steps}
        return {step: other for step, other in others.items() if independent(self.progress, taken_step, other)}


class EverySchedule:
    """Runs every schedule within the bounds, but of several that cannot end differently only one.

    The search goes depth first, and gives a schedule up at a place where another has been. It comes to the next schedule in one of two
    ways:

    - *Recalled.* Where what the handler does follows from the answers that it has been given, a trial is forked at the place where the
      schedule leaves the one before it, and no handler runs but where it is not known yet what it does. A place is what the store holds,
      the answers of the deliveries that are under way, and what the bounds still allow. A delivery that has ended counts by what it
      has left in the store, and two deliveries of one message that have been given the same answers may take each other's part.
      That what the handler does follows from its answers is checked in each run of it that is made: those that show something new, those
      of the counterexample, and those that are run at the beginning and at the end to check it.
    - *Run.* Another handler cannot be put back to where it was. So the schedule is run from its start: first the steps that it shares
      with the one before it, then a step that was not yet taken there, and then any steps on to the end. A place is then more: the store
      with its open transactions and tokens, what the handler keeps in memory, and, of every delivery, the requests that it has sent, the faults
      that it has met, the answers that it has received and what it has found in memory, also of those that have ended. Where nobody can
      read what the handler keeps, no schedule is spared (`prune=False` spares none either). Reading may miss something, so at the end some
      schedules are drawn as well, and a legal end is checked before a schedule is given up, so `observe` may look at memory too.

    Why a place is not the same in both: reading misses what is kept outside of Python's objects, and this is how a handler comes to be run.
    Take one that notes in `os.environ` that it was throttled, and gives up the next message. After "1aB" (the process dies before the
    write) and after "1aT" (the write is throttled), the store, the memory that can be read and the bounds are the same. If a delivery that has
    ended counted only by those, the search would run 54 schedules instead of finding the lost message in the twelfth.

    Where a schedule is run, *sleep sets* spare schedules too. They would cost more than they spare where a step takes microseconds. If the steps a and b may be
    taken in either order with the same result, then the schedules that begin with b need not take a next, because those that begin
    with a have been through the same states. So once the search has followed a, it puts a to sleep while it follows b, for as long
    as the steps taken are independent of a. The function `independent` judges that at the place where both steps are possible: from the
    bounds and from what each step did to its delivery, and a step that has changed what the handler keeps in memory is independent of
    none. Sleep sets leave out steps between places but no place, so everything that is true of a place is seen, such as that it is
    a legal end with a certain content of the store. A step that slept at the earlier of two places that are the same and is awake at the
    later need not be followed there either, because the places that it leads to had been seen before it was put to sleep.
    """

    sampled = False
    shrinks = True  # a schedule that ends wrongly is to be shortened

    def __init__(self, judge: Judge, *, prune: bool = True) -> None:
        self.remark: str | None = None  # what the reader of the report should know
        self.pruned = 0  # the branches that were not followed
        self._judge = judge
        self._recalls = judge.recalls
        self._prune = prune or self._recalls
        self._path: list[_Node] = []
        self._numbers: dict[Hashable, int] = {}
        self._memory: tuple[Trial | None, int, int] = None, 0, 0  # what was read last, and where
        self._places: set[Hashable] = set()

    @property
    def most(self) -> int:
        """The schedules that are run unless the test says otherwise."""
        return 300_000 if self._recalls else 10_000

    def __iter__(self) -> Iterator[JudgedSchedule]:
        checks = [run_again(self._judge, steps) for steps in _repetitions(self._judge.requests)] if self._recalls else []
        checks += _draw(self._judge, 0, _DRAWN_AT_FIRST) if self._recalls else []
        schedules, right = 0, True
        while not schedules or self._go_back():
            schedule = self._judge.run(self._run, self._start)
            schedules += 1
            right = right and schedule.finding is None
            yield schedule
        if right and (self._recalls or self.pruned):
            # The more there was to spare, the more schedules are drawn.
            many = (len(self._places) if self._recalls else schedules) // _PLACES_FOR_A_DRAWN_ONE
            checks += _draw(self._judge, _DRAWN_AT_FIRST, min(many, _DRAWN_AT_MOST))
            self._judge.prove()
            yield from (schedule for schedule in checks if schedule.finding is not None)

    def _start(self) -> Trial:
        """A trial that stands where the next schedule leaves the one before it, or at the beginning."""
        if not self._recalls:
            return self._judge.trial()
        return cast("TrialFromMemory", self._path[-1].trial).fork() if self._path else self._judge.recalled_trial()

    def _run(self, trial: Trial) -> JudgedSchedule:
        """Take those steps of the path that are not taken yet, and then any steps until none is possible or nothing new can follow."""
        if not all(self._follow(node, trial) for node in (self._path[-1:] if self._recalls else self._path)):
            return JudgedSchedule(tuple(trial.steps), self._judge.conclude(trial))
        while True:
            place = trial.place if isinstance(trial, TrialFromMemory) else None
            if place in self._places:  # what is seen there, if the schedule may end there, was seen then
                self.pruned += 1
                return _PRUNED_SCHEDULE
            finding = self._judge.check(trial)
            node = self._node(trial)
            if not node.todo:
                finding = finding or self._judge.conclude(trial)
            elif place is None and self._prune:
                pending, histories = frozenset(trial.pending().items()), frozenset(node.histories.items())
                settled_parts = frozenset(trial.progress.settled_parts)
                place = trial.state, node.memory, histories, pending, trial.progress.open, settled_parts
                if place in self._places:
                    self.pruned += 1
                    return JudgedSchedule(tuple(trial.steps), finding)
            if place is not None:
                self._places.add(place)
            if node.todo:
                self._path.append(node)
            # What would follow a finding belongs to another schedule.
            if not node.todo or finding is not None or not self._choose(node):
                return JudgedSchedule(tuple(trial.steps), finding)
            self._follow(node, trial)

    def _go_back(self) -> bool:
        """Go back to the last place from which another step can be followed. False if there is none."""
        while self._path and not self._choose(self._path[-1]):
            self._path.pop()
        return bool(self._path)

    def _choose(self, node: _Node) -> bool:
        """Choose the next step that does not sleep. False if there is none."""
        while node.todo:
            node.step = node.todo.pop()
            sleeper = node.asleep.get(node.step) if node.asleep else None
            if sleeper is None:
                return True
            self.pruned += 1
            node.add_alternatives(sleeper)
        return False

    def _follow(self, node: _Node, trial: Trial) -> bool:
        """Take the node's step. False if it is no longer possible, because the handler has behaved differently this time."""
        step = cast("ScheduleStep", node.step)
        before = node.taken_steps.get(step)
        taken_step = trial.take(step) if self._recalls or trial.allows(step) else None
        if before is None and taken_step is not None:
            if not self._recalls and self._memory_of(trial) != node.memory:
                taken_step = taken_step._replace(reaches_others=True)
            node.taken_steps[step] = taken_step
            node.add_alternatives(taken_step)
        elif before is None or taken_step is None or before.key != taken_step.key:
            self._judge.differs(step.delivery, before, taken_step)
        return taken_step is not None

    def _node(self, trial: Trial) -> _Node:
        """The place to which the last step has led."""
        node = _Node(trial.progress, [ScheduleStep(delivery) for delivery in reversed(trial.able())], self._memory_of(trial))
        if isinstance(trial, TrialFromMemory):
            node.trial = trial.fork()
        elif self._path and self._prune:
            parent, last = self._path[-1], trial.steps[-1]
            delivery, fault, index = step = last.taken_step.step
            been_through = (parent.memory, parent.histories.get(delivery), last.taken_step.key, fault, index)
            node.histories = {**parent.histories, delivery: self._number((*been_through, *map(comparable, last.answers)))}
            node.asleep = parent.asleep_after(parent.taken_steps.get(step, last.taken_step))
        return node

    def _memory_of(self, trial: Trial) -> int:
        """A number that stands for what the handler keeps now. It is asked for twice at each new place."""
        if self._recalls or not self._prune:
            return 0
        last_trial, at, number = self._memory
        if last_trial is not trial or at != len(trial.steps):
            present, others = memory = trial.memory
            for form in (present, *[form for _, form in others]):
                if isinstance(form, UnreadableMemory):
                    self.remark = f"Nothing was pruned as long as the handler kept {form.culprit}, because nobody can tell whether that has changed."
            number = self._number(memory)
            self._memory = trial, len(trial.steps), number
        return number

    def _number(self, been_through: Hashable) -> int:
        return self._numbers.setdefault(been_through, len(self._numbers) + 1)


def _repetitions(requests: Sequence[int]) -> Iterator[Steps]:
    """Each message twice: one after the other, within each other, and after each way to fail.

    A handler that keeps something in memory does something else in one of them than when it was given the same answers at first, or
    `observe` sees something else in the same state of the store. `requests` says how many requests each message takes when nothing
    disturbs it.
    """
    for message, many in enumerate(requests):
        first_step, second_step = ScheduleStep(Delivery(message, 0)), ScheduleStep(Delivery(message, 1))
        yield (*(first_step,) * many, *(second_step,) * many)
        yield (first_step, *(second_step,) * many)
        for other, length in enumerate(requests):
            if other != message:
                yield (first_step, *(ScheduleStep(Delivery(other, 0)),) * length)
        for before in range(many):
            for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST):
                yield (*(first_step,) * before, ScheduleStep(first_step.delivery, fault))


class RandomSchedules:
    """Runs schedules whose steps are drawn at random. The same seed draws the same."""

    most = 10_000
    pruned = 0
    sampled = True  # it is not meant to run every schedule within the bounds
    shrinks = True
    remark: str | None = "They were drawn at random."

    def __init__(self, seed: object, judge: Judge) -> None:
        self._seed = seed
        self._judge = judge

    def __iter__(self) -> Iterator[JudgedSchedule]:
        return (_run_random(self._judge, f"{self._seed}/{number}") for number in count())


def _draw(judge: Judge, start: int, stop: int) -> list[JudgedSchedule]:
    """Schedules that check what the search has spared: the handler itself runs."""
    return [_run_random(judge, f"check/{number}") for number in range(start, stop)]


def _run_random(judge: Judge, seed: str) -> JudgedSchedule:
    def body(trial: Trial) -> JudgedSchedule:
        draw, draw_index = Random(seed), Random(f"{seed}/which")
        finding: WrongEnd | None = None
        while finding is None and (able := trial.able()):
            fault = draw.choice(_FAULTS) if draw.random() < _FAULT_SHARE else Fault.NONE
            step = ScheduleStep(draw.choice(able), fault, draw_index.randrange(_MANY_REQUESTS))
            trial.take(step if trial.allows(step) else step._replace(fault=Fault.NONE))
            finding = judge.check(trial)
        return JudgedSchedule(tuple(trial.steps), finding or judge.conclude(trial))

    return judge.run(body, judge.trial)


class OneSchedule:
    """Runs the schedule of a replay code."""

    most = 1
    pruned = 0
    sampled = True
    shrinks = False

    def __init__(self, replay_code: str, judge: Judge) -> None:
        self._steps = decode(replay_code, judge.names)
        self._judge = judge
        self.remark: str | None = None

    def __iter__(self) -> Iterator[JudgedSchedule]:
        schedule = run_again(self._judge, self._steps)
        if schedule.steps[: len(self._steps)] != self._steps:
            self.remark = (
                "The handler or the bounds have changed since the replay code was made: only those of its steps were run "
                "that are still possible."
            )
        if schedule.finding is None:
            self.remark = "\n\n".join(filter(None, [self.remark, timeline(schedule, self._judge.titles)]))
        yield schedule


Schedules: TypeAlias = EverySchedule | RandomSchedules | OneSchedule
