"""Schedules that are run with the handler itself, to see that what is recalled of it is what it does.

A handler that keeps something in memory does something else in one of them than when it was given the same answers at first, or
`observe` sees something else in the same state of the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onewrite.testing.explorer.judging.judge import Judge, JudgedSchedule
from onewrite.testing.explorer.schedule import Delivery, Fault, Step, Steps
from onewrite.testing.explorer.searching.draw import drawn
from onewrite.testing.explorer.searching.shrink import run_again

_DRAWN_AT_FIRST, _DRAWN_AT_MOST = 3, 30
_PLACES_FOR_A_DRAWN_ONE = 20


def first_checks(judge: Judge) -> list[JudgedSchedule]:
    schedules = [run_again(judge, steps) for steps in _repetitions(judge.requests)]
    return [*schedules, *_draw(judge, 0, _DRAWN_AT_FIRST)]


def last_checks(judge: Judge, places: int) -> list[JudgedSchedule]:
    """The more places there are, the more schedules are drawn."""
    return [*_draw(judge, _DRAWN_AT_FIRST, min(places // _PLACES_FOR_A_DRAWN_ONE, _DRAWN_AT_MOST))]


def _draw(judge: Judge, start: int, stop: int) -> Iterator[JudgedSchedule]:
    return (drawn(judge, f"check/{number}") for number in range(start, stop))


def _repetitions(requests: Sequence[int]) -> Iterator[Steps]:
    """Each message twice: one after the other, within each other, and after each way to fail.

    `requests` says how many requests each message takes when nothing disturbs it.
    """
    for message, count in enumerate(requests):
        one, two = Step(Delivery(message, 0)), Step(Delivery(message, 1))
        yield (*(one,) * count, *(two,) * count)
        yield (one, *(two,) * count)
        for other, length in enumerate(requests):
            if other != message:
                yield (one, *(Step(Delivery(other, 0)),) * length)
        for before in range(count):
            for fault in (Fault.CRASH_BEFORE, Fault.CRASH_AFTER, Fault.LOST):
                yield (*(one,) * before, Step(one.delivery, fault))
