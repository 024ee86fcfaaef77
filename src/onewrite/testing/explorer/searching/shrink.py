"""Looks for the shortest schedule that shows what is wrong.

First, the schedule that was found is cut down greedily. Then all schedules that are shorter than the result are tried, the
shortest first. Both decide only the first steps of a schedule: after those, the open deliveries end without faults, and the
unsettled messages are redelivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from onewrite.testing.explorer.judging.judge import Finding, Judge, JudgedSchedule
from onewrite.testing.explorer.judging.remarks import in_words
from onewrite.testing.explorer.schedule import Delivery, Fault, Progress, Step, Steps, TakenStep
from onewrite.testing.explorer.trials.trial import Trial

Cost: TypeAlias = tuple[int, ...]

_FEW_STEPS = 4  # a reader takes them in at a glance, so that fewer steps are no easier to read
_MOST_TRIALS = 3000  # to look for a shorter schedule, which takes a second or two while the handler is recalled
_MOST_RUNS = 500  # the same, where the handler itself must run


class _Tried(NamedTuple):
    decided: Steps
    judged: JudgedSchedule
    last: TakenStep | None  # the last of the decided steps, if it was possible
    progress: Progress  # how far the decided steps have come


def run_again(judge: Judge, steps: Steps) -> JudgedSchedule:
    """Run these steps with the handler itself, except for those that are not possible, and let the schedule end."""
    return _try(judge, steps, recalled=False).judged


def shortest(judge: Judge, found: JudgedSchedule) -> tuple[JudgedSchedule, str | None]:
    """The shortest schedule with a finding that can be made out of the one that was found, or that is tried beside it.

    The one that was found must have been run with the handler itself. It is never lost: whatever goes wrong here, the result
    is a schedule that ends wrongly, with a remark on why there may be a shorter one.
    """
    search = _Shortening(judge, found)
    remark: str | None = None
    try:
        search.run()
    except _SpentError:
        remark = f"There may be a shorter schedule that ends like this: {search.tried} were tried."
    except Exception as error:
        remark = f"There may be a shorter schedule that ends like this: looking for it failed with {in_words(error)}."
    best: JudgedSchedule | None = None
    with suppress(Exception):
        best = confirmed(judge, search.best)
    return best or found, remark


def confirmed(judge: Judge, found: JudgedSchedule) -> JudgedSchedule | None:
    """The same schedule run with the handler itself, if it ends wrongly then too."""
    again = run_again(judge, found.steps) if judge.recalls else found
    return None if again.finding is None else again


class _SpentError(Exception):
    """As many schedules have been tried as may be."""


def _try(judge: Judge, steps: Steps, *, recalled: bool = True) -> _Tried:
    def body(trial: Trial) -> _Tried:
        last: TakenStep | None = None
        finding: Finding | None = None
        for step in steps:
            last = trial.take(step) if finding is None and trial.allows(step) else None
            finding = finding or (None if last is None else judge.check(trial))
        progress = trial.progress
        finding = finding or judge.conclude(trial)
        return _Tried(steps, JudgedSchedule(tuple(trial.steps), finding), last, progress)

    return judge.run(body, judge.recalled_trial if recalled and judge.recalls else judge.trial)


class _Shortening:
    """The search for a shorter schedule. `best` is the shortest so far."""

    def __init__(self, judge: Judge, found: JudgedSchedule) -> None:
        self.best = found
        self.tried = 0
        self._judge = judge

    def run(self) -> None:
        while self._cut_down():
            pass
        self._try_all_shorter()

    def _cut_down(self) -> bool:
        """Make it simpler. False if no change makes it simpler."""
        return any(self._is_better(self._try(_renumbered(steps)).judged) for steps in _simpler(self.best.steps))

    def _try_all_shorter(self) -> None:
        """Try all beginnings of schedules, longer by one step each time, while they cost less than the best schedule known."""
        beginnings = [self._try(())]
        while beginnings:
            longer = [tried for tried in self._extended(beginnings) if not self._is_better(tried.judged)]
            beginnings = [
                tried for tried in longer if tried.judged.finding is None and _cost(tried.decided) < _full_cost(self.best)
            ]

    def _is_better(self, judged: JudgedSchedule) -> bool:
        if judged.finding is None or _full_cost(judged) >= _full_cost(self.best):
            return False
        self.best = judged
        return True

    def _extended(self, beginnings: list[_Tried]) -> Iterator[_Tried]:
        """Each beginning with each step that may follow it."""
        for decided, _, _, progress in beginnings:
            todo = [Step(delivery) for delivery in progress.able()]
            while todo:
                tried = self._try((*decided, todo.pop(0)))
                yield tried
                alternatives = [] if tried.last is None else tried.last.alternatives
                todo = [*[step for step in alternatives if progress.allows(step)], *todo]

    def _try(self, steps: Steps) -> _Tried:
        if self.tried == (_MOST_TRIALS if self._judge.recalls else _MOST_RUNS):
            raise _SpentError
        self.tried += 1
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
        if step.which:
            yield (*before, step._replace(which=0), *after)
        if after and after[0].delivery != step.delivery:
            yield (*before, after[0], step, *after[1:])


def _renumbered(steps: Steps) -> Steps:
    """The deliveries of each message numbered in the order in which they start."""
    numbers: dict[int, dict[int, int]] = {}
    renumbered: list[Step] = []
    for step in steps:
        message, number = step.delivery
        known = numbers.setdefault(message, {})
        renumbered.append(step._replace(delivery=Delivery(message, known.setdefault(number, len(known)))))
    return tuple(renumbered)


def _full_cost(judged: JudgedSchedule) -> Cost:
    """How hard a schedule is to read, together with the redeliveries that follow it."""
    steps = judged.steps
    turns = sum(one.delivery != other.delivery for one, other in pairwise(steps))
    places = sum(step.delivery.message for step in steps), sum(step.which for step in steps)
    return *_cost(steps), turns, len(judged.trial_steps), *places


def _cost(steps: Steps) -> Cost:
    """How hard steps are to read: by the number of steps beyond a few, then of faults, then of steps."""
    return max(len(steps) - _FEW_STEPS, 0), sum(bool(step.fault) for step in steps), len(steps)
