"""Slots that time uses in turn: until when a ring stays as it is, and which generation a slot has."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onewrite.core.ledgers.ring import SLOTS, Window, find_ring, find_span, make_window

GENERATIONS = range(2760, 2772)  # of today, where a generation is as long as by default
WINDOWS = [make_window(retention, retention / 56) for retention in (timedelta(seconds=1), timedelta(days=14))]


def turns(reach: Window, generation: int) -> list[int]:
    """When the present generation begins, when a reader first looks at it, and when one last looks at the one before it."""
    begin = generation * reach.width
    return [begin - reach.ahead, begin, begin + reach.behind]


@pytest.mark.parametrize("reach", WINDOWS)
@pytest.mark.parametrize("slot", SLOTS)
def test_span_of_a_slot_is_its_last_generations(reach: Window, slot: str) -> None:
    for moment in [turn + effect for generation in GENERATIONS for turn in turns(reach, generation) for effect in (-9, 9)]:
        span = find_span(reach, moment / 1e6, slot)
        begin, end = round(span.since * 1e6 / reach.width), round(span.until * 1e6 / reach.width)
        # A clock that is ahead of this one may show the newest generation already.
        newest = (moment + reach.ahead) // reach.width
        writers = [number for number in range(newest - 30, newest + 1) if present(reach, number) == slot]
        assert (begin, end) == (writers[-1], writers[-1] + 1)
        assert span.live is (slot in find_ring(reach, moment).live)


def present(reach: Window, generation: int) -> str:
    return find_ring(reach, generation * reach.width).present
