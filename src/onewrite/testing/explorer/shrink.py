"""Looks for the shortest schedule that shows what is wrong.

First, the schedule that was found is cut down greedily. Then all schedules that are shorter than the result are tried, the
shortest first. Both decide only the first steps of a schedule: after those, the open deliveries end without faults, and the
unsettled messages are redelivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple, TypeAlias

from onewrite.testing.explorer.judge import Finding, Judge, JudgedSchedule
from onewrite.testing.explorer.schedule import Delivery, Progress, Step, Steps, TakenStep, faults_for
from onewrite.testing.explorer.trial import Trial

Cost: TypeAlias = tuple[int, ...]

_FEW_STEPS = 4  # a reader takes them in at a glance, so that fewer steps are no easier to read
_MOST_TRIALS = 3000  # to look for a shorter schedule, which takes some seconds


class _Tried(NamedTuple):
    decided: Steps
    judged: JudgedSchedule
    last: TakenStep | None  # the last of the decided steps
    progress: Progress  # how far the decided steps have come


def run_again(judge: Judge, steps: Steps) -> JudgedSchedule:
    """Run these steps, except for those that are not possible, and let the schedule end."""
    return _try(judge, steps).judged


def shortest(judge: Judge, found: JudgedSchedule) -> JudgedSchedule:
    """The shortest schedule with a finding that can be made out of the one that was found, or that is tried beside it."""
    return _shorter(judge, _cut_down(judge, found))


def _try(judge: Judge, steps: Steps) -> _Tried:
    def body(trial: Trial) -> _Tried:
        last: TakenStep | None = None
        finding: Finding | None = None
        for step in steps:
            if finding is None and trial.allows(step):
                last = trial.take(step)
                finding = judge.check(trial)
        progress = trial.progress
        finding = finding or judge.conclude(trial)
        return _Tried(steps, JudgedSchedule(tuple(trial.steps), finding), last, progress)

    return judge.run(body)


def _cut_down(judge: Judge, best: JudgedSchedule) -> JudgedSchedule:
    """Make it simpler until no change makes it simpler."""
    while True:
        for steps in _simpler(best.steps):
            tried = run_again(judge, _renumbered(steps))
            if tried.finding is not None and _full_cost(tried) < _full_cost(best):
                best = tried
                break
        else:
            return best


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
            yield (*before, Step(step.delivery), *after)
        if after and after[0].delivery != step.delivery:
            yield (*before, after[0], step, *after[1:])


def _renumbered(steps: Steps) -> Steps:
    """The deliveries of each message numbered in the order in which they start."""
    numbers: dict[int, dict[int, int]] = {}
    renumbered: list[Step] = []
    for (message, number), fault in steps:
        known = numbers.setdefault(message, {})
        renumbered.append(Step(Delivery(message, known.setdefault(number, len(known))), fault))
    return tuple(renumbered)


def _shorter(judge: Judge, best: JudgedSchedule) -> JudgedSchedule:
    """Try all beginnings of schedules, longer by one step each time, while they cost less than the best schedule known."""
    beginnings = [_try(judge, ())]
    left = _MOST_TRIALS
    while beginnings:
        longer: list[_Tried] = []
        for tried in islice(_extended(judge, beginnings), left):
            left -= 1
            if tried.judged.finding is None:
                longer.append(tried)
            elif _full_cost(tried.judged) < _full_cost(best):
                best = tried.judged
        beginnings = [tried for tried in longer if _cost(tried.decided) < _full_cost(best)]
    return best


def _full_cost(judged: JudgedSchedule) -> Cost:
    """How hard a schedule is to read, together with the redeliveries that follow it."""
    steps = judged.steps
    turns = sum(one.delivery != other.delivery for one, other in pairwise(steps))
    return *_cost(steps), turns, len(judged.trial_steps), sum(step.delivery.message for step in steps)


def _cost(steps: Steps) -> Cost:
    """How hard steps are to read: by the number of steps beyond a few, then of faults, then of steps."""
    return max(len(steps) - _FEW_STEPS, 0), sum(bool(step.fault) for step in steps), len(steps)


def _extended(judge: Judge, beginnings: list[_Tried]) -> Iterator[_Tried]:
    """Each beginning with each step that may follow it."""
    for decided, _, _, progress in beginnings:
        for delivery in progress.able():
            tried = _try(judge, (*decided, Step(delivery)))
            yield tried
            request = None if tried.last is None else tried.last.request
            for step in (Step(delivery, fault) for fault in faults_for(request)):
                if progress.allows(step):
                    yield _try(judge, (*decided, step))
