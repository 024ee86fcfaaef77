"""A record of any broker is processed by itself, or with those of its lane, and its result says when to deliver it again."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from onewrite import (
    Applied,
    BeginOutcome,
    Begun,
    Busy,
    ConfigurationError,
    Deferred,
    Duplicate,
    Gone,
    InvalidMessage,
    Message,
    Missing,
    Rejected,
    Stale,
    TakenOver,
    Uncertain,
)
from onewrite.brokers import MessageHandler, message_handler
from onewrite.identity import Skip, json_body

NOW = 1_700_000_000.0
A = Message("a")


def by_name(record: Any) -> Message | Skip:
    return Skip() if record == "skip" else Message(record)


@pytest.fixture(params=["sync", "async"])
def make_handler(request: pytest.FixtureRequest) -> Callable[..., MessageHandler[Any, Any]]:
    """Makes a handler of a function, which is as it is or asynchronous."""

    def make(function: Callable[..., Any], **options: Any) -> MessageHandler[Any, Any]:
        async def awaited(message: Any) -> Any:
            await asyncio.sleep(0)
            return function(message)

        each = function if request.param == "sync" else awaited
        decorate: Any = message_handler(options.pop("identity", by_name), clock=lambda: NOW, **options)
        return decorate(each)

    return make


@pytest.mark.parametrize(
    ("outcome", "least", "most"),
    [
        *[
            (outcome, None, None)
            for outcome in (
                None,
                Applied(A),
                Duplicate(A),
                Stale(A, 3),
                Gone(A),
                Rejected(A, settled=True),
                Missing(A, settled=True),
            )
        ],
        *[
            (outcome, 3, 4)
            for outcome in (
                Missing(A),
                Deferred(A, 2),
                Rejected(A),
                ValueError(),
                Begun(A, "k", "f", NOW, NOW),
            )
        ],
        (Uncertain(A, NOW, "f"), 3, 4),
        (TakenOver(A), 1, 1),
        (Busy(A, NOW + 40), 41, 41),
        (Busy(A, NOW - 40), 1, 1),
        (Busy(A, math.nan), 1, 1),
        (Busy(A, math.inf), 43_200, 43_200),
        ([Applied(A), Busy(A, NOW + 40), Missing(A)], 41, 41),
    ],
    ids=repr,
)
def test_retry_wait_matches_the_attempt(
    make_handler: Callable[..., MessageHandler[Any, Any]], outcome: Any, least: float | None, most: float | None
) -> None:
    def each(_: Message) -> BeginOutcome | list[BeginOutcome] | None:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    result = make_handler(each).process("a")
    seconds = result.retry_after(3)
    assert (seconds is None) is result.settled
    assert seconds is None if least is None or most is None else seconds is not None and least <= seconds <= most


def test_retry_wait_grows_up_to_five_minutes() -> None:
    result = message_handler(by_name)(lambda message: Missing(message, settled=False)).process("a")
    waits = [result.retry_after(attempt) or 0.0 for attempt in (-1, 0, 1, 2, 5, 10, 10**9)]
    assert waits[:4] == [1, 1, 1, 2]
    assert 12 <= waits[4] <= 16
    assert all(225 <= wait <= 300 for wait in waits[5:])


@pytest.mark.parametrize("attempt", [None, "1", 1.0, True])
def test_wrong_attempt_is_refused_if_the_record_is_settled(attempt: Any) -> None:
    result = message_handler(by_name)(lambda _: None).process("a")
    with pytest.raises(ConfigurationError, match="pass 1"):
        result.retry_after(attempt)


@dataclass
class Delivery:
    """A message of some broker's own class."""

    id: str


def test_record_can_be_any_object(make_handler: Callable[..., MessageHandler[Any, Any]]) -> None:
    seen: list[Message] = []
    handler = make_handler(seen.append, identity=lambda delivery: Message(delivery.id))
    assert handler.process(Delivery("a")).settled
    assert seen == [A]
    assert make_handler(seen.append).process("skip").skipped


@pytest.mark.parametrize("record", ["{}", b"{}", None, Delivery("a"), {}, {"body": None}, {"body": b"\xff"}, {"body": "{"}])
def test_record_without_a_key_is_unsettled(make_handler: Callable[..., MessageHandler[Any, Any]], record: Any) -> None:
    result = make_handler(lambda _: pytest.fail("it has no key"), identity=json_body(id="id")).process(record)
    assert isinstance(result.error, InvalidMessage)
    assert result.retry_after(1) == 1


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_body_can_be_any_buffer(
    make_handler: Callable[..., MessageHandler[Any, Any]], buffer: Callable[[bytes], Any]
) -> None:
    seen: list[Message] = []
    assert make_handler(seen.append, identity=json_body(id="id")).process({"body": buffer(b'{"id": "a"}')}).settled
    assert [message.id for message in seen] == ["a"]


def test_asynchronous_handler_works_inside_a_running_event_loop() -> None:
    async def each(message: Message) -> BeginOutcome:
        await asyncio.sleep(0)
        return Applied(message)

    handler = message_handler(by_name)(each)

    async def consumer() -> None:
        assert [result.settled for result in await asyncio.gather(*map(handler.aprocess, "abc"))] == [True] * 3
        with pytest.raises(ConfigurationError, match=r"handler\.aprocess\(record\)"):
            handler.process("a")

    asyncio.run(consumer())


@pytest.mark.parametrize("group_by", [None, lambda message: message.id[0]], ids=["alone", "grouped"])
def test_records_after_the_first_unsettled_one_are_not_processed(
    make_handler: Callable[..., MessageHandler[Any, Any]], group_by: Any
) -> None:
    calls: list[str] = []

    def outcome_of(message: Message) -> BeginOutcome:
        calls.append(message.id)
        return Missing(message) if message.id == "b1" else Applied(message)

    def each(messages: Any) -> Any:
        return outcome_of(messages) if group_by is None else [*map(outcome_of, messages)]

    handler = make_handler(each, group_by=group_by)
    results = handler.process_in_order(["a1", "a2", "skip", "b1", "c1"])
    assert [(result.record, result.settled) for result in results] == [
        ("a1", True),
        ("a2", True),
        ("skip", True),
        ("b1", False),
    ]
    assert calls == ["a1", "a2", "b1"]
    assert handler.process_in_order([]) == []


def test_each_call_logs_one_line(
    make_handler: Callable[..., MessageHandler[Any, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "onewrite")
    handler = make_handler(lambda message: Missing(message) if message.id == "b" else Applied(message))
    handler.process("a")
    handler.process_in_order("abc")
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert "1 record, 1 applied" in caplog.messages[0]
    assert "3 records, 1 applied, 1 failed, 1 returned; record (no id), message b: Missing" in caplog.messages[1]
