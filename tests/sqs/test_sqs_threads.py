"""A system that refuses more threads slows a worker down, and doesn't end it."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from onewrite import Applied, Message
from onewrite.aws_lambda import sqs_handler
from onewrite.sqs import Worker, WorkerStuck
from onewrite.testing import sqs_event
from tests.support.fake_sqs import URL, FakeSqs
from tests.support.seams import worker_in


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The number of threads of each name that the system starts before it refuses more."""
    limits: dict[str, int] = {}
    start = threading.Thread.start

    def start_up_to_limit(thread: threading.Thread) -> None:
        name = thread.name
        if name in limits:
            limits[name] -= 1
            if limits[name] < 0:
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_up_to_limit)
    return limits


def by_body(record: Any) -> Message:
    return Message(str(record["body"]))


def applied(message: Message) -> Applied:
    return Applied(message)


async def applied_by_task(message: Message) -> Applied:
    return Applied(message)


def worker(sqs: FakeSqs, *, is_async: bool = False) -> Worker:
    handler = sqs_handler(by_body)(applied_by_task if is_async else applied)
    return worker_in(sqs.time, URL, handler, client=sqs, stop_when_empty=True, wait=0)


@pytest.mark.parametrize("is_async", [False, True])
def test_worker_continues_with_the_threads_that_it_has(
    is_async: bool, sqs: FakeSqs, refused: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    refused["onewrite-work"] = 1
    for number in range(30):
        sqs.send(f"m{number}")
    with caplog.at_level(logging.WARNING):
        assert worker(sqs, is_async=is_async).run() is True
    assert sqs.messages == []
    assert caplog.text.count("The system refused a thread: can't start new thread. The worker continues with 1 of") == 1
    assert "Raise the limit of processes" in caplog.text


def test_worker_that_can_start_no_thread_says_so(sqs: FakeSqs, refused: dict[str, int]) -> None:
    refused["onewrite-worker"] = 0
    with pytest.raises(WorkerStuck, match=r"can't start new thread\. Raise the limit of processes"):
        worker(sqs).run()


def test_batch_continues_with_the_threads_that_it_has(refused: dict[str, int], caplog: pytest.LogCaptureFixture) -> None:
    refused["onewrite"] = 1
    handler = sqs_handler(by_body, max_workers=5)(applied)
    assert handler(sqs_event(*[{"body": str(number)} for number in range(10)])) == {"batchItemFailures": []}
    assert "refused a thread (can't start new thread). 2 of 5 workers process the batch" in caplog.text
