"""The worker with a handler that has `group_by`: what it gathers for one call, and what becomes of each message."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable
from typing import Any

import pytest

from onewrite import Answer, Applied, Busy, Deferred, Duplicate, Message
from onewrite.aws_lambda import sqs_handler
from onewrite.batch.report import Result
from onewrite.identity import Skip
from onewrite.sqs import Worker, WorkerStuck
from onewrite.sqs.state import WorkerState
from onewrite.sqs.waiting import Load
from tests.support.fake_sqs import URL, FakeSqs, VirtualTime
from tests.support.seams import measure_by, worker_in
from tests.support.worker_limits import limits

EPOCH = 1_790_000_000.0  # of the handler's clock


def by_place(record: Any) -> Any:
    """`a3` is the third message of the source `a`; `skip` is for nobody, and what begins with `+` has two messages."""
    body = record["body"]
    if body == "skip":
        return Skip("not for us")
    if body.startswith("+"):
        return [Message(f"{letter}{body}") for letter in body[1:]]
    return Message(body, body[0], int(body[1:]) if body[1:].isdigit() else None, body={"name": body})


def letter(message: Message) -> str:
    return message.id[0]


class Shop:
    """Notes each call and when it was, and gives these answers; what it has no answer for is Applied, or a Duplicate."""

    def __init__(self, time: VirtualTime, **answers: Callable[[Message], Answer]) -> None:
        self._time, self.answers = time, answers
        self.calls: list[tuple[float, str]] = []
        self.seen: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, messages: list[Message]) -> list[Answer]:
        with self._lock:
            self.calls.append((self._time.now, " ".join(message.id for message in messages)))
            return [self._one(message) for message in messages]

    def _one(self, message: Message) -> Answer:
        if (answer := self.answers.get(message.id)) is not None:
            return answer(message)
        outcome = Duplicate(message) if message.id in self.seen else Applied(message)
        self.seen.add(message.id)
        return outcome

    @property
    def names(self) -> list[str]:
        return [names for _, names in self.calls]


def worker(sqs: FakeSqs, each: Any, **options: Any) -> Worker:
    """With one slot, until the queue is empty."""
    handler = measure_by(sqs_handler(by_place, group_by=letter, clock=lambda: EPOCH + sqs.time.now)(each), sqs.time)
    return worker_in(sqs.time, URL, handler, client=sqs, **{"in_flight": 1, "stop_when_empty": True, **options})


def send(sqs: FakeSqs, *bodies: str) -> None:
    """The group of a FIFO queue is the first letter."""
    for body in bodies:
        if sqs.fifo:
            sqs.send(body, group=body[0])
        else:
            sqs.send(body)


def raises(_: Message) -> Answer:
    raise ValueError


def early(message: Message) -> Answer:
    return Deferred(message, 1)


# ---------------------------------------------------------------- what one call has


def test_what_is_at_hand_of_one_group_is_one_call(sqs: FakeSqs, time: VirtualTime) -> None:
    send(sqs, "a1", "b1", "a2", "a3", "b2", "c1")
    shop = Shop(time)
    assert worker(sqs, shop).run() is True
    assert shop.names == ["a1 a2 a3", "b1 b2", "c1"]
    assert sqs.messages == []
    assert [len(request["Entries"]) for request in sqs.requests_of("delete_message_batch")] == [6]


def test_the_messages_of_a_source_are_given_in_their_order(sqs: FakeSqs, time: VirtualTime) -> None:
    send(sqs, "a3", "a1", "a2")
    shop = Shop(time)
    worker(sqs, shop).run()
    assert shop.names == ["a1 a2 a3"]


def test_neighbors_of_a_fifo_group_are_one_call(fifo: FakeSqs, time: VirtualTime) -> None:
    for body in ("a1", "a2", "b1", "a3"):
        fifo.send(body, group="g")
    fifo.send("a4", group="h")
    shop = Shop(time)
    worker(fifo, shop, in_flight=2).run()
    assert [names for names in shop.names if names != "a4"] == ["a1 a2", "b1", "a3"]
    assert "a4" in shop.names
    assert fifo.messages == []


def test_the_groups_of_two_queues_are_not_mixed(sqs: FakeSqs, time: VirtualTime) -> None:
    """Each of them is asked for ten messages at a time, though there is one slot."""
    send(sqs, *[f"a{number}" for number in range(1, 8)])
    worker(sqs, Shop(time)).run()
    assert sqs.requests_of("receive_message")[0]["MaxNumberOfMessages"] == 10


def test_a_skipped_message_is_left_out_of_a_call(sqs: FakeSqs, time: VirtualTime) -> None:
    send(sqs, "a1", "skip", "", "a2")
    shop = Shop(time)
    worker(sqs, shop, wait=0).run()
    assert shop.names == ["a1 a2"]
    assert [stored.body for stored in sqs.messages] == [""]


def test_a_record_belongs_to_the_group_of_its_first_message(sqs: FakeSqs, time: VirtualTime) -> None:
    send(sqs, "+ab", "a1", "b1")
    shop = Shop(time)
    worker(sqs, shop).run()
    assert shop.names == ["a+ab a1", "b+ab", "b1"]
    assert sqs.messages == []


def test_groups_run_in_as_many_slots_as_there_are(sqs: FakeSqs) -> None:
    barrier = threading.Barrier(2, timeout=20)

    def each(messages: list[Message]) -> list[Answer]:
        barrier.wait()
        return [Applied(message) for message in messages]

    send(sqs, "a1", "b1", "a2", "b2")
    assert worker(sqs, each, in_flight=2).run() is True
    assert sqs.messages == []


def test_an_asynchronous_function_has_groups_too(sqs: FakeSqs, time: VirtualTime) -> None:
    shop = Shop(time, a2=raises)

    async def each(messages: list[Message]) -> list[Answer]:
        await asyncio.sleep(0)
        return shop(messages)

    send(sqs, "a1", "a2", "b1")
    worker(sqs, each, wait=0).run()
    assert sorted(shop.names) == ["a1", "a1 a2", "a2", "b1"]
    assert [stored.body for stored in sqs.messages] == ["a2"]


# ---------------------------------------------------------------- what becomes of each message


def test_only_the_failing_messages_of_a_group_come_again(sqs: FakeSqs, time: VirtualTime) -> None:
    send(sqs, "a1", "a2", "a3", "b1")
    shop = Shop(time, a2=raises)
    worker(sqs, shop, wait=0).run()
    assert shop.names == ["a1 a2 a3", "a1", "a2", "a3", "b1"]
    assert [stored.body for stored in sqs.messages] == ["a2"]


def test_messages_behind_a_failure_of_a_fifo_group_come_again(fifo: FakeSqs, time: VirtualTime) -> None:
    for body in ("a1", "a2", "a3", "b1"):
        fifo.send(body, group="g")
    shop = Shop(time, a2=raises)
    worker(fifo, shop, wait=0).run()
    assert shop.names == ["a1 a2 a3", "a1", "a2"]
    assert [stored.body for stored in fifo.messages] == ["a2", "a3", "b1"]


def test_deferred_messages_of_a_group_are_tried_again_together(sqs: FakeSqs) -> None:
    tries: list[int] = []

    def each(messages: list[Message]) -> list[Answer]:
        tries.append(len(messages))
        return [Applied(each) if len(tries) > 1 or each.id == "a1" else early(each) for each in messages]

    send(sqs, "a1", "a2", "a3", "a4")
    stored = list(sqs.messages)
    worker(sqs, each).run()
    assert tries == [4, 3]
    assert sqs.messages == []
    assert {each.receives for each in stored} == {1}


def test_a_deferred_message_holds_back_its_fifo_group_only(fifo: FakeSqs, time: VirtualTime) -> None:
    answers = [early]
    shop = Shop(time, a2=lambda message: answers.pop()(message) if answers else Applied(message))
    for body in ("a1", "a2", "a3"):
        fifo.send(body, group="g")
    fifo.send("c1", group="h")
    worker(fifo, shop, backoff=lambda _: 10.0, wait=20).run()
    assert shop.calls == [(0, "a1 a2 a3"), (0, "c1"), (0, "a2 a3")]
    assert fifo.messages == []


def test_a_busy_message_does_not_hold_back_its_group(sqs: FakeSqs, time: VirtualTime) -> None:
    answers: list[Callable[[Message], Answer]] = [lambda message: Busy(message, EPOCH + time.now + 60)]
    shop = Shop(time, a2=lambda message: answers.pop()(message) if answers else Applied(message))
    send(sqs, "a1", "a2", "a3")
    patient = worker(sqs, shop, stop_when_empty=False)
    sqs.after = lambda method: patient.stop() if method == "delete_message_batch" and not sqs.messages else None
    patient.run()
    assert shop.calls == [(0, "a1 a2 a3"), (61, "a2")]


def test_a_record_is_read_again_for_another_attempt(sqs: FakeSqs) -> None:
    found: list[str] = []

    def each(messages: list[Message]) -> list[Answer]:
        found.extend(message.body.pop("name") for message in messages)
        return [Applied(message) if len(found) > 1 else Deferred(message, 1) for message in messages]

    send(sqs, "a1")
    worker(sqs, each).run()
    assert found == ["a1", "a1"]


def test_an_overdue_group_is_given_back_as_a_whole(
    sqs: FakeSqs, time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    send(sqs, "a1", "a2", "a3")
    with caplog.at_level(logging.WARNING), pytest.raises(WorkerStuck, match="1 of 1 slots"):
        worker(sqs, lambda _: time.sleep(400), timeout=12).run()
    assert re.search("not ended 12 seconds .* message a1 .* message a2 .* message a3", caplog.text)
    assert {stored.visible_at <= time.now for stored in sqs.messages} == {True}
    assert len(sqs.messages) == 3


def test_an_overdue_fifo_group_is_given_back_with_its_followers(fifo: FakeSqs, time: VirtualTime) -> None:
    for body in ("a1", "a2", "b1"):
        fifo.send(body, group="g")
    with pytest.raises(WorkerStuck):
        worker(fifo, lambda _: time.sleep(400), timeout=12).run()
    given_back = [
        entry["ReceiptHandle"]
        for request in fifo.requests_of("change_message_visibility_batch")
        for entry in request["Entries"]
        if entry["VisibilityTimeout"] == 0
    ]
    assert len(given_back) == len(set(given_back)) == 3


def test_a_failed_group_is_tried_singly_until_its_timeout(sqs: FakeSqs, time: VirtualTime) -> None:
    def each(messages: list[Message]) -> None:
        time.sleep(4)
        if len(messages) > 1:
            raise ValueError

    names: list[int] = []

    def counted(messages: list[Message]) -> None:
        names.append(len(messages))
        each(messages)

    send(sqs, "a1", "a2", "a3", "a4")
    once = worker(sqs, counted, timeout=12, stop_when_empty=False, visibility_timeout=300)
    sqs.after = lambda method: once.stop() if method == "delete_message_batch" else None
    once.run()
    assert names == [4, 1]  # After these 8 seconds another call of 4 seconds, and a half more, might not end in time.
    assert [stored.body for stored in sqs.messages] == ["a2", "a3", "a4"]


def test_a_stopping_worker_tries_no_more_messages_singly(sqs: FakeSqs, time: VirtualTime) -> None:
    shop = Shop(time, a3=raises)

    def each(messages: list[Message]) -> list[Answer]:
        if len(shop.calls) == 1:
            stopped.stop()
        return shop(messages)

    send(sqs, "a1", "a2", "a3")
    stopped = worker(sqs, each, stop_when_empty=False)
    assert stopped.run() is True
    assert shop.names == ["a1 a2 a3", "a1"]
    assert [stored.body for stored in sqs.messages] == ["a2", "a3"]


def test_each_message_is_counted_and_told_once(sqs: FakeSqs, time: VirtualTime, caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[str, str]] = []
    hook: Any = lambda message, outcome, _: told.append((message.id, type(outcome).__name__))  # noqa: E731  # it is one line
    send(sqs, "a1", "a2", "b1")
    with caplog.at_level(logging.INFO):
        worker(sqs, Shop(time, a2=raises), wait=0, on_outcome=hook).run()
    assert told == [("a1", "Duplicate"), ("a2", "ValueError"), ("b1", "Applied")]
    assert "1 Applied, 1 Duplicate, 1 Failed" in caplog.text


# ---------------------------------------------------------------- at any time that a test chooses


def worker_state(*, fifo: bool = False) -> WorkerState:
    return WorkerState(limits(slots=2, has_groups=True), visibility=30, is_fifo=fifo)


MESSAGE = Message("m")


def ended(*outcomes: Answer) -> Result:
    return Result({}, "r", MESSAGE, outcomes, None, 0.0)


def bring(found: WorkerState, *names: str, now: float = 0.0) -> None:
    """The first letter is the group; all are of one message group."""
    request = found.to_receive(now)
    assert request is not None
    messages = [{"MessageId": name, "ReceiptHandle": name, "Attributes": {"MessageGroupId": "g"}} for name in names]
    found.take_in(request, messages, now, now, [name[0] for name in names])


def handles(load: Load | None) -> list[str]:
    return [] if load is None else [message.handle for message in load.members]


def lose(found: WorkerState, name: str) -> None:
    """SQS says at a sweep that it knows the message no longer."""
    hide = found.to_hide(11.0)
    assert hide is not None
    found.end_hiding(hide, {name: True}, 11.0)


def test_a_lost_message_is_left_out_of_its_group() -> None:
    found = worker_state()
    bring(found, "a1", "a2", "a3")
    lose(found, "a2")
    assert handles(found.to_begin(12.0)) == ["a1", "a3"]
    assert found.counts()["waiting"] == 0


def test_nothing_begins_behind_a_lost_message_of_a_fifo_group() -> None:
    found = worker_state(fifo=True)
    bring(found, "a1", "a2", "a3")
    lose(found, "a2")
    load = found.to_begin(12.0)
    assert load is not None
    assert handles(load) == ["a1"]
    found.end(load, [ended()], 13.0)
    assert found.to_begin(13.0) is None
    back = found.to_hide(13.0)
    assert back is not None
    assert [message.handle for message, _ in back.messages] == ["a3"]


@pytest.mark.parametrize("fifo", [False, True])
def test_unprocessed_messages_of_a_group_go_back_at_once(fifo: bool) -> None:
    found = worker_state(fifo=fifo)
    bring(found, "a1", "a2", "a3")
    load = found.to_begin(0.0)
    assert load is not None
    found.end(load, [ended(), None, None], 1.0)
    back = found.to_hide(1.0)
    assert back is not None
    assert [(message.handle, seconds) for message, seconds in back.messages] == [("a2", 0), ("a3", 0)]
    assert found.counts() == {
        "waiting": 0,
        "under_way": 0,
        "deferred": 0,
        "done": 1,
        "lost_slots": 0,
        "bytes_at_hand": found.bytes_at_hand,
    }


def test_a_stopping_worker_gives_back_waiting_messages_of_fifo_groups() -> None:
    found = worker_state(fifo=True)
    bring(found, "a1", "a2", "b1", "b2")
    load = found.to_begin(0.0)
    assert load is not None
    found.stop()
    back = found.to_hide(0.0)
    assert back is not None
    assert sorted(message.handle for message, _ in back.messages) == ["b1", "b2"]
    found.end_hiding(back, {}, 0.0)
    found.end(load, [ended(), ended(Deferred(MESSAGE, 1))], 1.0)
    back = found.to_hide(1.0)
    assert back is not None
    assert [message.handle for message, _ in back.messages] == ["a2"]
