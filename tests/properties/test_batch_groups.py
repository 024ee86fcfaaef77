"""For any batch, groups, failures, workers and deadline: calls break no order, the answer is right, and each record has one result."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from onewrite import Answer, Applied, Deferred, Message
from onewrite.aws_lambda import Report, sqs_handler
from onewrite.identity import Skip
from tests.support.batches import FIFO, Clock, by_name, identifiers, sqs_record
from tests.support.seams import measure_by

KEYS = "xyz"
FATES = ["fine", "fine", "fine", "fine", "raises", "defers", "once"]


@dataclass(frozen=True)
class Sent:
    """A message: what groups it, and what becomes of it."""

    name: str
    key: str
    fate: str


@dataclass(frozen=True)
class Record:
    """A record. `lane` is its message group; `sequence` the place of its only message in a source. Bad: its identity fails."""

    name: str
    lane: str
    messages: tuple[Sent, ...]
    sequence: int | None
    bad: bool

    @property
    def is_skipped(self) -> bool:
        return not self.bad and not self.messages


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    found = []
    for number in range(draw(st.integers(0, 14))):
        sent = st.tuples(st.sampled_from(KEYS), st.sampled_from(FATES))
        messages = tuple(
            Sent(f"{number}.{at}", key, fate) for at, (key, fate) in enumerate(draw(st.lists(sent, max_size=3)))
        )
        sequence = draw(st.none() | st.integers(1, 5))
        found.append(Record(str(number), draw(st.sampled_from("gh")), messages, sequence, draw(st.integers(0, 11)) == 0))
    return found


@dataclass
class Course:
    """A batch that is processed, and what the function and the hook have seen of it."""

    records: list[Record]
    fifo: bool
    workers: int
    deadline: float
    calls: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    told: list[tuple[str | None, Any]] = field(default_factory=list[tuple[str | None, Any]])
    busy: Counter[str] = field(default_factory=Counter[str])
    ended: dict[str, bool] = field(default_factory=dict[str, bool])  # whether its last call has settled a message
    raised: set[str] = field(default_factory=set[str])
    clock: Clock = field(default_factory=Clock)
    lock: Any = field(default_factory=threading.Lock)

    def identity(self, record: Any) -> Any:
        found = self.records[int(record["body"])]
        if found.bad:
            raise LookupError
        place = (found.lane, found.sequence) if len(found.messages) == 1 and not self.fifo else ("", None)
        return [Message(each.name, *place, body=each) for each in found.messages] or Skip("no messages")

    def each(self, messages: list[Message]) -> list[Answer]:
        [key] = {message.body.key for message in messages}
        with self.lock:
            assert self.fifo or not self.busy[key], "a group is in two calls at a time"
            self.busy[key] += 1
            self.calls.append(tuple(message.id for message in messages))
            self.clock.now += 1
            self.ended.update(dict.fromkeys([message.id for message in messages], False))
            try:
                answers = [self._answer(message) for message in messages]
                self.ended.update({answer.message.id: answer.settled for answer in answers})
                return answers
            finally:
                self.busy[key] -= 1

    def _answer(self, message: Message) -> Answer:
        fate = message.body.fate
        if fate == "raises" or (fate == "once" and message.id not in self.raised):
            self.raised.add(message.id)
            raise ValueError
        return Deferred(message, 1) if fate == "defers" else Applied(message)

    def tell(self, message: Message | None, outcome: object, _: float) -> None:
        self.told.append((None if message is None else message.id, outcome))

    def run(self) -> Report:
        decorate = sqs_handler(
            self.identity,
            group_by=lambda message: message.body.key,
            max_workers=self.workers,
            on_outcome=self.tell,
        )
        handler = measure_by(decorate(self.each), self.clock).handler
        arn = {"arn": FIFO} if self.fifo else {}
        event = {"Records": [sqs_record(each.name, group=each.lane, **arn) for each in self.records]}
        return handler.run(event, self.clock.until(self.deadline))


courses = st.builds(
    Course, records(), fifo=st.booleans(), workers=st.integers(1, 3), deadline=st.just(1e9) | st.integers(2, 12)
)


@given(courses)
def test_each_record_has_one_result_or_is_returned(course: Course) -> None:
    report = course.run()
    done = [result.record["body"] for result in report.results]
    returned = [record["body"] for record in report.returned]
    assert sorted([*done, *returned]) == sorted(each.name for each in course.records)
    settled = {result.record["body"] for result in report.settled}
    assert identifiers(report.response) == [f"id-{each.name}" for each in course.records if each.name not in settled]


@given(courses)
def test_settled_record_succeeded_for_all_its_messages(course: Course) -> None:
    report = course.run()
    for result in report.results:
        record = course.records[int(result.record["body"])]
        if record.bad or record.is_skipped:
            assert result.settled != record.bad
            continue
        assert result.settled == all(course.ended.get(each.name) for each in record.messages)
        assert not result.settled or len(result.outcomes) == len(record.messages)


@given(courses)
def test_calls_keep_the_order_of_their_lane(course: Course) -> None:
    """Of a FIFO group the calls have its messages in their order, no message is called behind one that failed, and none is left out."""
    if not course.fifo:
        course.fifo = True
    report = course.run()
    settled = {result.record["body"] for result in report.settled}
    for lane in "gh":
        members = [each for each in course.records if each.lane == lane]
        assert [each.name in settled for each in members] == sorted(
            [each.name in settled for each in members], reverse=True
        ), "what is settled is the front of the lane"
        expected = [sent for each in members for sent in each.messages]
        calls = [call for call in course.calls if call[0] in {sent.name for sent in expected}]
        first_calls = list(dict.fromkeys(name for call in calls for name in call))
        assert first_calls == [sent.name for sent in expected][: len(first_calls)]
        place = {sent.name: number for number, sent in enumerate(expected)}
        for call in calls:
            assert [place[name] for name in call] == list(range(place[call[0]], place[call[0]] + len(call)))
        failed = next((place[sent.name] for sent in expected if not course.ended.get(sent.name)), len(expected))
        assert all(place[call[0]] <= failed for call in calls)


@given(courses)
def test_standard_queue_keeps_order_of_records_and_sources(course: Course) -> None:
    course.fifo = False
    course.run()
    first = {name: number for number, name in enumerate(dict.fromkeys(name for call in course.calls for name in call))}
    for record in course.records:
        places = [first[each.name] for each in record.messages if each.name in first]
        assert places == sorted(places)
        assert (
            len(places) in {0, len(record.messages)}
            or course.deadline < 1e9
            or not all(course.ended.get(each.name) for each in record.messages)
        )
    for lane in "gh":
        of_source = [
            (each.sequence, number, first[each.messages[0].name])
            for number, each in enumerate(course.records)
            if each.lane == lane and not each.bad and len(each.messages) == 1 and each.sequence is not None
            if each.messages[0].name in first
        ]
        assert [place for _, _, place in sorted(of_source)] == sorted(place for _, _, place in of_source)


@given(courses)
def test_call_has_one_group_and_each_message_once(course: Course) -> None:
    course.run()
    told = Counter(name for name, _ in course.told if name is not None)
    assert set(told.values()) <= {1}
    called = {name for call in course.calls for name in call}
    assert set(told) <= called


@given(courses)
def test_unordered_messages_of_one_group_share_one_call(course: Course) -> None:
    """Each is the only message of its record, and nothing else gives it a place."""
    alone = [Record(str(number), each.lane, each.messages[:1], None, each.bad) for number, each in enumerate(course.records)]
    course = Course(alone, fifo=False, workers=course.workers, deadline=1e9)
    course.run()
    for key in KEYS:
        names = tuple(sent.name for each in alone if not each.bad for sent in each.messages if sent.key == key)
        assert not names or names in course.calls


@given(st.lists(st.sampled_from("abc"), max_size=12), st.data(), st.integers(1, 3), st.just(1e9) | st.integers(2, 12))
def test_front_of_each_lane_is_settled_without_group_by(
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
