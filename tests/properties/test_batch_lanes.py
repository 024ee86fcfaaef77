"""For any batch, lanes, failures, interleaving and deadline: every record is settled or goes back, and no lane's order is broken."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from onewrite import Message
from onewrite.aws_lambda import sqs_handler
from onewrite.batch.order import Lanes
from tests.support.batches import FIFO, Clock, by_name, identifiers, sqs_record
from tests.support.seams import measure_by

LANES = st.lists(st.sampled_from([None, "", "a", "b", "c"]), max_size=25)


@dataclass
class Course:
    """What happened to a batch."""

    lanes: list[str | None]
    taken: list[int]
    settled: list[int]
    failed: list[int]
    most_under_way: int


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """Some workers that end their records in any order, and a deadline at any time."""
    lanes = draw(LANES)
    batch = Lanes(lanes)
    poisonous = draw(st.sets(st.sampled_from(range(len(lanes))))) if lanes else set[int]()
    deadline = draw(st.none() | st.integers(0, len(lanes)))
    workers = draw(st.integers(1, 5))
    course = Course(lanes, [], [], [], 0)
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
            batch.end(ended, is_done=ended not in poisonous)
        else:
            break
    assert deadline is None or len(course.taken) <= deadline
    assert deadline is not None or set(course.taken) >= {at for at, lane in enumerate(lanes) if lane is None}
    return course


@given(st.lists(st.sampled_from("abc"), max_size=12), st.data(), st.integers(1, 3), st.just(1e9) | st.integers(2, 12))
def test_every_record_is_settled_or_goes_back_and_of_each_group_the_front_is_settled(
    groups: list[str], data: st.DataObject, workers: int, deadline: float
) -> None:
    clock, done = Clock(), list[str]()
    names = [f"{group}{number}" for number, group in enumerate(groups)]
    poisonous = data.draw(st.sets(st.sampled_from(names))) if names else set[str]()

    def each(message: Message) -> None:
        clock.now += 1
        if message.id in poisonous:
            raise ValueError
        done.append(message.id)

    handler = measure_by(sqs_handler(by_name, max_workers=workers)(each), clock)
    event = {"Records": [sqs_record(name, arn=FIFO, group=name[0]) for name in names]}
    report = handler.run(event, clock.until(deadline))
    assert identifiers(report.response) == [f"id-{name}" for name in names if name not in done]
    assert sorted(result.record["body"] for result in report.settled) == sorted(done)
    assert len(report.results) + len(report.returned) == len(names)
    for group in "abc":
        members = [name for name in names if name[0] == group]
        settled = [name for name in done if name[0] == group]
        assert settled == members[: len(settled)]
        assert poisonous.isdisjoint(settled)


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
    ended: list[int] = []
    holding: list[int | None] = [batch.take() for _ in range(workers)]
    while at_work := [worker for worker, position in enumerate(holding) if position is not None]:
        worker = data.draw(st.sampled_from(at_work))
        ended.append(holding[worker] or 0)
        batch.end(ended[-1], is_done=True)
        holding[worker] = batch.take()
    assert sorted(ended) == [*range(len(lanes))]
