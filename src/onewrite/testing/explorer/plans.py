"""Which schedules an exploration runs: all within the bounds, some that are drawn at random, or one that is replayed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Protocol

from onewrite.testing.explorer.arguments import Arguments
from onewrite.testing.explorer.exploration import timeline
from onewrite.testing.explorer.judge import Finding, Judge, JudgedSchedule
from onewrite.testing.explorer.replay_code import decode
from onewrite.testing.explorer.schedule import Fault, Step
from onewrite.testing.explorer.search import Search
from onewrite.testing.explorer.shrink import run_again
from onewrite.testing.explorer.trial import Trial

_FAULTS = [fault for fault in Fault if fault]
_FAULT_SHARE = 0.2  # of the steps of a random schedule, as long as the bounds allow faults


class Plan(Protocol):
    """Iterates over schedules as they are run."""

    pruned: int
    sampled: bool  # it is not meant to run every schedule within the bounds
    shrinks: bool  # a schedule that ends wrongly is to be shortened
    remark: str | None  # what the reader of the report should know

    def __iter__(self) -> Iterator[JudgedSchedule]: ...


def plan_for(arguments: Arguments, judge: Judge) -> Plan:
    if arguments.replay is not None:
        return _OneSchedule(arguments.replay, judge)
    return _RandomSchedules(arguments.seed, judge) if arguments.at_random else _EverySchedule(judge)


class _EverySchedule(Search):
    sampled = False
    shrinks = True
    remark: str | None = None


class _RandomSchedules:
    pruned = 0
    sampled = True
    shrinks = True
    remark: str | None = "They were drawn at random."

    def __init__(self, seed: object, judge: Judge) -> None:
        self._seed = seed
        self._judge = judge

    def __iter__(self) -> Iterator[JudgedSchedule]:
        return (_drawn(self._judge, f"{self._seed}/{number}") for number in count())


class _OneSchedule:
    pruned = 0
    sampled = True
    shrinks = False

    def __init__(self, replay_code: str, judge: Judge) -> None:
        self._steps = decode(replay_code, judge.names)
        self._judge = judge
        self.remark: str | None = None

    def __iter__(self) -> Iterator[JudgedSchedule]:
        judged = run_again(self._judge, self._steps)
        if judged.steps[: len(self._steps)] != self._steps:
            self.remark = (
                "The handler or the bounds have changed since the replay code was made: only those of its steps were run "
                "that are still possible."
            )
        if judged.finding is None:
            self.remark = "\n\n".join(filter(None, [self.remark, timeline(judged, self._judge.names)]))
        yield judged


def _drawn(judge: Judge, seed: str) -> JudgedSchedule:
    """Run a schedule whose steps are drawn at random."""

    def body(trial: Trial) -> JudgedSchedule:
        draw = Random(seed)
        finding: Finding | None = None
        while finding is None and (able := trial.able()):
            fault = draw.choice(_FAULTS) if draw.random() < _FAULT_SHARE else Fault.NONE
            step = Step(draw.choice(able), fault)
            trial.take(step if trial.allows(step) else Step(step.delivery))
            finding = judge.check(trial)
        return JudgedSchedule(tuple(trial.steps), finding or judge.conclude(trial))

    return judge.run(body)
