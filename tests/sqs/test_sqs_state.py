"""What a worker decides about the messages at hand, at any time that a test chooses."""

from __future__ import annotations

import pytest

from onewrite import Applied, Message
from onewrite.batch.report import Result
from onewrite.sqs.state import MAX_BYTES, MAX_MESSAGE, Hide, Limits, WorkerState, compute_extension
from onewrite.sqs.waiting import Load


def worker_state(*, fifo: bool = False, slots: int = 20) -> WorkerState:
    """One queue with a visibility timeout of 30 seconds."""
    limits = Limits(
        slots, timeout=300.0, grace=5.0, wait=20, stop_when_empty=False, has_groups=False, backoff=lambda tries: 2.0**tries
    )
    return WorkerState(limits, visibility=30, is_fifo=fifo)


def bring(found: WorkerState, *names: str) -> None:
    request = found.to_receive(0.0)
    assert request is not None
    messages = [{"MessageId": name, "ReceiptHandle": name, "Attributes": {"MessageGroupId": "g"}} for name in names]
    found.take_in(request, messages, 0.0, 0.0)


def begun(found: WorkerState) -> Load:
    load = found.to_begin(0.0)
    assert load is not None
    return load


def names(hide: Hide | None) -> list[str]:
    assert hide is not None
    return [message.handle for message, _ in hide.messages]


def test_message_that_waited_too_long_does_not_begin() -> None:
    found = worker_state(fifo=True)
    bring(found, "a", "b")
    assert found.to_begin(30.0) is None
    assert names(found.to_hide(30.0)) == ["b"]


def test_lost_message_is_not_returned_to_the_queue() -> None:
    found = worker_state()
    bring(found, "a")
    load = begun(found)
    hide = found.to_hide(20.0)
    assert hide is not None
    found.end_hiding(hide, {"a": True}, 20.0)
    assert found.take_overdue(300.0) == [load]
    assert found.to_hide(300.0) is None
    assert found.count_messages()["under_way"] == 0


def test_messages_behind_a_lost_group_message_do_not_begin() -> None:
    found = worker_state(fifo=True)
    bring(found, "a", "b", "c")
    load = begun(found)
    hide = found.to_hide(20.0)
    assert hide is not None
    found.end_hiding(hide, {"b": True}, 20.0)
    found.end(load, [Result({}, "a", Message("a"), (Applied(Message("a")),), None, 0.0)], 21.0)
    assert found.to_begin(21.0) is None
    assert names(found.to_hide(21.0)) == ["c"]


def test_worker_receives_no_more_than_it_can_hold() -> None:
    found = worker_state(slots=10_000)
    body = "x" * MAX_MESSAGE
    while (request := found.to_receive(0.0)) is not None:
        messages = [{"MessageId": "m", "ReceiptHandle": "h", "Body": body} for _ in range(request.number)]
        found.take_in(request, messages, 0.0, 0.0)
    assert MAX_BYTES - 10 * MAX_MESSAGE < found.bytes_at_hand <= MAX_BYTES


@pytest.mark.parametrize(("size", "requests"), [(10, 2), (9, 1)])
def test_requests_become_more_after_a_full_response(size: int, requests: int) -> None:
    found = worker_state(slots=100)
    bring(found, *[f"m{number}" for number in range(size)])
    assert [found.to_receive(0.0) is not None for _ in range(3)] == [number < requests for number in range(3)]


# how long SQS hides a message


@pytest.mark.parametrize(("since", "seconds"), [(0, 30), (43_160, 30), (43_180.5, 19), (43_200, 0), (50_000, 0)])
def test_no_message_is_hidden_longer_than_sqs_allows(since: float, seconds: int) -> None:
    assert compute_extension(30, since) == seconds
