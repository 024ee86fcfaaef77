"""For any batch, lanes, failures, interleaving and deadline: every record is settled or goes back, and no lane's order is broken."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from onewrite.batch.lanes import Lanes

LANES = st.lists(st.sampled_from([None, "", "a", "b", "c"]), max_size=25)


@dataclass
class Course:
    """What happened to a batch."""

    lanes: list[str | None]
    taken: list[int]
    settled: list[int]
    failed: list[int]
    most_under_way: int
    returned: tuple[int, ...]


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """Some workers that end their records in any order, and a deadline at any time."""
    lanes = draw(LANES)
    batch = Lanes(lanes)
    poisonous = draw(st.sets(st.sampled_from(range(len(lanes))))) if lanes else set[int]()
    deadline = draw(st.none() | st.integers(0, len(lanes)))
    workers = draw(st.integers(1, 5))
    course = Course(lanes, [], [], [], 0, ())
    under_way: list[int] = []
    while True:
        if len(course.taken) == deadline:
            batch.close()
        position = batch.take() if len(under_way) < workers else None
        if position is not None:
            course.taken.append(position)
            under_way.append(position)
            course.most_under_way = max(course.most_under_way, len(under_way))
        elif under_way:
            ended = under_way.pop(draw(st.integers(0, len(under_way) - 1)))
            (course.failed if ended in poisonous else course.settled).append(ended)
            (batch.fail if ended in poisonous else batch.settle)(ended)
        else:
            break
    course.returned = batch.remaining
    assert deadline is None or len(course.taken) <= deadline
    assert deadline is not None or set(course.taken) >= {at for at, lane in enumerate(lanes) if lane is None}
    return course


@given(courses())
def test_every_record_is_settled_or_goes_back_never_both_never_neither(course: Course) -> None:
    assert sorted([*course.settled, *course.returned]) == list(range(len(course.lanes)))


@given(courses())
def test_what_goes_back_failed_or_was_never_taken(course: Course) -> None:
    untaken = set(range(len(course.lanes))) - set(course.taken)
    assert set(course.returned) == set(course.failed) | untaken
    assert list(course.returned) == sorted(course.returned)


@given(courses())
def test_no_record_is_taken_twice(course: Course) -> None:
    assert len(set(course.taken)) == len(course.taken)


@given(courses())
def test_a_lane_is_settled_from_its_front_without_a_gap(course: Course) -> None:
    members: dict[str, list[int]] = defaultdict(list)
    for position, lane in enumerate(course.lanes):
        if lane is not None:
            members[lane].append(position)
    for positions in members.values():
        settled = [position for position in course.settled if position in positions]
        assert settled == positions[: len(settled)]
        taken = [position for position in course.taken if position in positions]
        assert taken == positions[: len(taken)]
        assert len(taken) - len(settled) in {0, 1}


@given(courses())
def test_no_more_are_under_way_than_the_width(course: Course) -> None:
    assert course.most_under_way <= Lanes(course.lanes).width


@given(LANES, st.integers(1, 5), st.data())
def test_a_worker_may_leave_when_there_is_nothing_to_take(
    lanes: list[str | None], workers: int, data: st.DataObject
) -> None:
    """Those that stay take all the rest: no record is left behind, however few workers there are in the end."""
    batch = Lanes(lanes)
    holding: list[int | None] = [batch.take() for _ in range(workers)]
    while at_work := [worker for worker, position in enumerate(holding) if position is not None]:
        worker = data.draw(st.sampled_from(at_work))
        batch.settle(holding[worker] or 0)
        holding[worker] = batch.take()
    assert batch.remaining == ()
