"""What may be taken next, and what goes back."""

from __future__ import annotations

import pytest

from onewrite import ConfigurationError
from onewrite.batch.order import Lanes


def taken(batch: Lanes) -> list[int]:
    """All that may be under way at a time."""
    positions: list[int] = []
    while (position := batch.take()) is not None:
        positions.append(position)
    return positions


def test_the_end_of_a_record_sets_the_next_of_its_lane_free() -> None:
    batch = Lanes(["a", "a", "b", "a"])
    assert taken(batch) == [0, 2]
    batch.end(0, is_done=True)
    assert taken(batch) == [1]
    batch.end(2, is_done=True)
    assert taken(batch) == []
    batch.end(1, is_done=True)
    assert taken(batch) == [3]


def test_after_a_failure_the_rest_of_its_lane_goes_back_and_other_lanes_go_on() -> None:
    batch = Lanes(["a", "b", "a", "b"])
    assert taken(batch) == [0, 1]
    batch.end(0, is_done=False)
    batch.end(1, is_done=True)
    assert taken(batch) == [3]
    batch.end(3, is_done=True)


def test_a_lane_that_has_failed_is_not_taken_up_again_by_a_record_that_comes_later() -> None:
    batch = Lanes(["a", None, "a"])
    assert batch.take() == 0
    batch.end(0, is_done=False)
    assert taken(batch) == [1]


def test_a_closed_batch_gives_nothing_more_and_what_is_under_way_may_end() -> None:
    batch = Lanes(["a", "a", None])
    assert batch.take() == 0
    batch.close()
    batch.end(0, is_done=True)
    assert batch.take() is None


def test_it_is_empty_once_every_record_was_taken_or_passed_over() -> None:
    batch = Lanes(["a", "a", "b", "b"])
    assert taken(batch) == [0, 2]
    assert batch.is_empty  # nothing can be taken now
    batch.end(0, is_done=True)
    assert not batch.is_empty
    batch.end(2, is_done=False)
    assert taken(batch) == [1]
    assert batch.is_empty


def test_its_width_is_how_many_may_be_under_way_at_a_time() -> None:
    assert Lanes([None, "a", "a", "", None]).width == 4


def test_only_what_is_under_way_can_end_and_it_ends_once() -> None:
    batch = Lanes([None, None])
    with pytest.raises(ConfigurationError, match="Record 0 is not under way"):
        batch.end(0, is_done=True)
    assert batch.take() == 0
    batch.end(0, is_done=True)
    with pytest.raises(ConfigurationError, match="Record 0 is not under way"):
        batch.end(0, is_done=False)


def test_records_are_taken_in_the_order_that_is_given() -> None:
    batch = Lanes([None, "a", "a"], [2, 0, 1])
    assert taken(batch) == [2, 0]
    batch.end(2, is_done=True)
    assert taken(batch) == [1]


def test_what_is_taken_again_comes_before_what_waits_in_its_lane() -> None:
    batch = Lanes(["a", "a", "a"], strict=False)
    assert batch.take() == 0
    batch.end(0, is_done=False)
    assert batch.take() == 1
    batch.take_again([0])
    assert batch.take() is None
    batch.end(1, is_done=True)
    assert batch.take() == 0
    batch.end(0, is_done=True)
    assert batch.take() == 2
    batch.end(2, is_done=True)


def test_those_that_are_taken_again_come_in_their_order_before_what_waits_in_their_lane() -> None:
    batch = Lanes(["a"] * 5, strict=False)
    for number in (0, 1):
        assert batch.take() == number
        batch.end(number, is_done=False)
    order = [batch.take()]
    assert batch.take() is None  # the others wait
    batch.take_again([0, 1])
    for _ in range(4):
        batch.end(order[-1] or 0, is_done=True)
        order.append(batch.take())
    assert order == [2, 0, 1, 3, 4]


def test_what_is_taken_again_makes_its_lane_busy_if_it_was_done() -> None:
    batch = Lanes(["a", "a"], strict=False)
    assert batch.take() == 0
    batch.end(0, is_done=False)
    assert batch.take() == 1
    batch.end(1, is_done=False)
    batch.take_again([1, 0])
    assert taken(batch) == [1]
    batch.end(1, is_done=True)
    assert taken(batch) == [0]
