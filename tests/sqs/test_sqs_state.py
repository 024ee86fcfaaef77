"""What a worker decides about the messages at hand, at any time that a test chooses."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import Any

import pytest

from onewrite.batch.function import where_thread_stands
from onewrite.sqs import waiting
from onewrite.sqs.state import (
    MOST_REQUESTS,
    Ending,
    Hide,
    Intake,
    QueueTerms,
    Receive,
    RequestSpan,
    WorkerState,
    backoff,
    extension,
)
from onewrite.sqs.tasks import Tasks
from onewrite.sqs.threads import ThreadPool
from onewrite.sqs.waiting import Deferrals, Load, QueueMessage
from tests.support.worker_limits import limits

SETTLED, DEFERRED = Ending("settled"), Ending("deferred", "source", 2)


def worker_state(*, fifo: bool = False) -> WorkerState:
    """One queue with a visibility timeout of 30 seconds, and 20 slots."""
    return WorkerState([QueueTerms(30, fifo)], limits(slots=20))


def bring(found: WorkerState, *names: str, group: str = "g") -> None:
    request = found.to_receive(0.0)
    assert request is not None
    messages = [{"MessageId": name, "ReceiptHandle": name, "Attributes": {"MessageGroupId": group}} for name in names]
    found.take_in(request, messages, RequestSpan(0.0, 0.0, 0.0))


def begun(found: WorkerState, now: float = 0.0) -> Load:
    load = found.to_begin(now)
    assert load is not None
    return load


def names(hide: Hide | None) -> list[str]:
    assert hide is not None
    return [message.handle for message, _ in hide.messages]


def test_a_message_that_has_waited_for_longer_than_it_was_hidden_is_not_begun_and_neither_is_its_group() -> None:
    found = worker_state(fifo=True)
    bring(found, "a", "b")
    assert found.to_begin(30.0) is None
    back = found.to_hide(30.0)
    assert names(back) == ["b"]
    assert back is not None
    assert back.gives_back


def test_a_message_that_ends_without_a_source_is_deleted_like_any_other() -> None:
    found = worker_state()
    bring(found, "a")
    load = begun(found)
    found.end(load, [SETTLED], 1.0)
    assert found.to_delete(2.0) == (0, [*load.members])


def test_what_is_deferred_while_the_worker_stops_goes_back_at_once() -> None:
    found = worker_state()
    bring(found, "a")
    load = begun(found)
    found.stop()
    found.end(load, [DEFERRED], 1.0)
    back = found.to_hide(1.0)
    assert back is not None
    assert back.messages == ((load.members[0], 0),)


def test_what_has_ended_since_the_look_is_not_hidden_for_longer() -> None:
    found = worker_state()
    bring(found, *"abcdefghijk")
    loads = [begun(found) for _ in range(11)]
    assert len(names(found.to_hide(20.0))) == 10
    found.end(loads[-1], [SETTLED], 20.0)
    assert found.to_hide(20.0) is None


def test_what_sqs_has_let_go_is_not_given_back() -> None:
    found = worker_state()
    bring(found, "a")
    load = begun(found)
    hide = found.to_hide(20.0)
    assert hide is not None
    found.note_hidden(hide, ["a"], 20.0)
    found.end_hiding()
    assert found.to_give_up(300.0) == [load]
    assert found.to_hide(300.0) is None
    assert found.counts()["under_way"] == 0


def test_the_progress_of_so_many_sources_is_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_MOST_SOURCES", 1)
    found = Deferrals(lambda tries: 1.0)
    message = QueueMessage({"MessageId": "a", "ReceiptHandle": "a"}, 0, None, 0.0, 30.0)
    found.progress("one", 0.0)
    assert not found.add(message, "one", 2, 0.0), "its source has made progress since its try began"
    found.progress("other", 0.0)
    assert found.add(message, "one", 2, 0.0)


def test_a_queue_that_is_far_away_is_asked_by_many_requests_at_a_time() -> None:
    intake = Intake(lambda tries: 2.0**tries)
    request = Receive(0, 10, is_alone=False)
    for _ in range(2 * MOST_REQUESTS):
        intake.ask(request)
        intake.end(request, 10, RequestSpan(0.0, 1.0, work_seconds=0.001))
    assert intake.most_requests == MOST_REQUESTS


def test_no_more_threads_are_started_than_there_may_be() -> None:
    ended = threading.Event()
    threads = ThreadPool("any", threading.Lock(), threading.Condition, 1, ended.set)
    assert threads.may_come
    threads.wake()
    assert ended.wait(10)
    assert not threads.may_come


def test_a_task_that_has_ended_is_not_cancelled_and_stands_nowhere() -> None:
    loads: Any = None
    tasks, load = Tasks(loads, print), Load((QueueMessage({}, 0, None, 0.0, 0.0),))
    tasks.cancel(load)
    assert tasks.place_of(load) is None
    assert where_thread_stands(None, print) is None


def test_a_worker_that_stops_gives_back_all_of_a_group_but_what_is_under_way() -> None:
    found = worker_state(fifo=True)
    bring(found, "a", "b", "c")
    begun(found)
    found.stop()
    assert sorted(names(found.to_hide(0.0))) == ["b", "c"]


# how long something waits, and how long SQS hides a message


@pytest.mark.parametrize("jitter", [0.0, 0.5, 0.999])
def test_the_backoff_grows_with_each_receive_up_to_its_longest(jitter: float) -> None:
    pauses = [backoff(count, jitter=lambda: jitter) for count in range(1, 12)]
    assert pauses[0] == 1
    assert all(later > sooner for sooner, later in pairwise(pauses[:9]))
    assert max(pauses) <= 300
    assert 225 <= backoff(10**9, jitter=lambda: jitter) <= 300


def test_a_receive_count_that_makes_no_sense_waits_the_shortest() -> None:
    assert backoff(0) == backoff(-1) == 1


@pytest.mark.parametrize(("since", "seconds"), [(0, 30), (43_160, 30), (43_180.5, 19), (43_200, 0), (50_000, 0)])
def test_no_message_is_hidden_longer_than_sqs_allows(since: float, seconds: int) -> None:
    assert extension(30, since) == seconds
