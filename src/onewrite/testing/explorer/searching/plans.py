"""Which schedules an exploration runs: all within the bounds, some that are drawn at random, or one that is replayed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Protocol

from onewrite.testing.explorer.arguments import Arguments
from onewrite.testing.explorer.exploration import timeline
from onewrite.testing.explorer.judging.judge import Judge, JudgedSchedule
from onewrite.testing.explorer.replay_code import decode
from onewrite.testing.explorer.searching.draw import drawn
from onewrite.testing.explorer.searching.every_place import PlaceSearch
from onewrite.testing.explorer.searching.every_schedule import Search
from onewrite.testing.explorer.searching.shrink import run_again


class Plan(Protocol):
    """Iterates over schedules as they are run."""

    pruned: int
    most: int  # schedules that are run unless the test says otherwise
    sampled: bool  # it is not meant to run every schedule within the bounds
    shrinks: bool  # a schedule that ends wrongly is to be shortened
    remark: str | None  # what the reader of the report should know

    def __iter__(self) -> Iterator[JudgedSchedule]: ...


def plan_for(arguments: Arguments, judge: Judge) -> Plan:
    if arguments.replay is not None:
        return _OneSchedule(arguments.replay, judge)
    if arguments.at_random:
        return _RandomSchedules(arguments.seed, judge)
    return _EveryPlace(judge) if judge.recalls else _EverySchedule(judge)


class _EveryPlace(PlaceSearch):
    most = 300_000
    sampled = False
    shrinks = True
    remark: str | None = None


class _EverySchedule(Search):
    most = 10_000
    sampled = False
    shrinks = True
    remark: str | None = None


class _RandomSchedules:
    most = 10_000
    pruned = 0
    sampled = True
    shrinks = True
    remark: str | None = "They were drawn at random."

    def __init__(self, seed: object, judge: Judge) -> None:
        self._seed = seed
        self._judge = judge

    def __iter__(self) -> Iterator[JudgedSchedule]:
        return (drawn(self._judge, f"{self._seed}/{number}") for number in count())


class _OneSchedule:
    most = 1
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
