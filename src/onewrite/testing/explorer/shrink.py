"""The shortest schedule that shows what is wrong.

First the schedule that was found is cut down greedily. Then all that are shorter than what is left are tried, the shortest
first. Both run a schedule as far as they decide it: what is open then ends undisturbed, and what is left is delivered.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, pairwise
from typing import NamedTuple, TypeAlias

from onewrite.testing.explorer.judge import Finding, Judge, Shown
from onewrite.testing.explorer.schedule import Board, Delivery, Step, Steps, Taken, faults_for
from onewrite.testing.explorer.trial import Trial

Cost: TypeAlias = tuple[int, ...]

_AT_A_GLANCE = 4
_MOST_TRIALS = 3000  # to look for a shorter one: some seconds


class _Tried(NamedTuple):
    decided: Steps
    shown: Shown
    last: Taken | None  # the last step that was decided
    board: Board  # where that led to


def show(judge: Judge, steps: Steps) -> Shown:
    """Run these steps, without those that are not possible, to the end."""
    return _try(judge, steps).shown


def shortest(judge: Judge, shown: Shown) -> Shown:
    return _shorter(judge, _shrunk(judge, shown))


def _try(judge: Judge, steps: Steps) -> _Tried:
    def body(trial: Trial) -> _Tried:
        last: Taken | None = None
        finding: Finding | None = None
        for step in steps:
            if finding is None and trial.board.allows(step):
                last = trial.take(step)
                finding = judge.check(trial)
        board = trial.board
        finding = finding or judge.conclude(trial)
        return _Tried(steps, Shown(tuple(trial.happenings), finding), last, board)

    return judge.run(body)


def _shrunk(judge: Judge, best: Shown) -> Shown:
    """Leave out whatever can be left out, until nothing can."""
    while True:
        for steps in _less(best.steps):
            shown = show(judge, _renumbered(steps))
            if shown.finding is not None and _full_cost(shown) < _full_cost(best):
                best = shown
                break
        else:
            return best


def _less(steps: Steps) -> Iterator[Steps]:
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
    """With the deliveries of each message numbered as they come."""
    numbers: dict[int, dict[int, int]] = {}
    renumbered: list[Step] = []
    for (message, number), fault in steps:
        known = numbers.setdefault(message, {})
        renumbered.append(Step(Delivery(message, known.setdefault(number, len(known))), fault))
    return tuple(renumbered)


def _shorter(judge: Judge, best: Shown) -> Shown:
    """Try all beginnings, one step longer each time, while they cost less than what is known."""
    beginnings = [_try(judge, ())]
    left = _MOST_TRIALS
    while beginnings:
        longer: list[_Tried] = []
        for tried in islice(_extended(judge, beginnings), left):
            left -= 1
            if tried.shown.finding is None:
                longer.append(tried)
            elif _full_cost(tried.shown) < _full_cost(best):
                best = tried.shown
        beginnings = [tried for tried in longer if _cost(tried.decided) < _full_cost(best)]
    return best


def _full_cost(shown: Shown) -> Cost:
    steps = shown.steps
    turns = sum(one.delivery != other.delivery for one, other in pairwise(steps))
    return *_cost(steps), turns, len(shown.happenings), sum(step.delivery.message for step in steps)


def _cost(steps: Steps) -> Cost:
    """What makes a schedule hard to read: more steps than are seen at a glance, then faults, then steps."""
    return max(len(steps) - _AT_A_GLANCE, 0), sum(bool(step.fault) for step in steps), len(steps)


def _extended(judge: Judge, beginnings: list[_Tried]) -> Iterator[_Tried]:
    for decided, _, _, board in beginnings:
        for delivery in board.able():
            tried = _try(judge, (*decided, Step(delivery)))
            yield tried
            request = None if tried.last is None else tried.last.request
            for step in (Step(delivery, fault) for fault in faults_for(request)):
                if board.allows(step):
                    yield _try(judge, (*decided, step))
