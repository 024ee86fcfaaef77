"""Handlers with `group_by`: which messages one call has, what becomes of their records, and what a group that fails does to its members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onewrite import Applied, BeginOutcome, ConfigurationError, Deferred, InSequence, Message, Outcome
from onewrite.aws_lambda import (
    documentdb_handler,
    dynamodb_stream_handler,
    eventbridge_handler,
    kafka_handler,
    kinesis_handler,
    s3_handler,
    sns_handler,
    sqs_handler,
)
from onewrite.batch import order
from onewrite.batch.function import WrongReturn
from onewrite.identity import Skip, dynamodb_stream_position, sqs_message_id
from onewrite.metrics import Reported
from onewrite.mongodb import GuardedCollection
from onewrite.testing import dynamodb_stream_event, mongomock_collection
from tests.support.batches import (
    FIFO,
    Clock,
    GroupShop,
    by_name,
    dynamodb,
    fifo,
    identifiers,
    kafka,
    kinesis,
    letter,
    sqs,
    sqs_record,
)
from tests.support.seams import measure_by


class Shop(GroupShop):
    """Raises an error if one of the messages ends in `!`, and defers those that end in `?`."""

    def apply(self, message: Message) -> BeginOutcome:
        if message.id.endswith("!"):
            raise ValueError(message.id)
        return Deferred(message, 1) if message.id.endswith("?") else super().apply(message)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# ---------------------------------------------------------------- which messages one call has


@pytest.mark.parametrize(
    ("decorator", "event"),
    [
        (kinesis_handler, kinesis(["a1", "a2", "b1", "a3"])),
        (dynamodb_stream_handler, dynamodb(["a1", "a2", "b1", "a3"])),
        (kafka_handler, kafka(p0=["a1", "a2", "b1", "a3"])),
        (sqs_handler, {"Records": [sqs_record(name, arn=FIFO, group="g") for name in ("a1", "a2", "b1", "a3")]}),
    ],
)
def test_call_has_only_adjacent_messages_if_source_keeps_order(decorator: Any, event: Any, shop: Shop) -> None:
    assert identifiers(decorator(by_name, group_by=letter)(shop)(event)) == []
    assert shop.calls == ["a1 a2", "b1", "a3"]


def several(record: Any) -> Sequence[Message] | Message | Skip:
    """The body names the messages of a record, separated by `+`. `skip` is for nobody."""
    if record["body"] == "skip":
        return Skip("not for us")
    return [Message(name) for name in record["body"].split("+") if name]


def test_ordered_call_spans_records_and_ends_with_its_group(shop: Shop) -> None:
    handler = kinesis_handler(lambda record: several({"body": by_name(record).id}), group_by=letter)(shop)
    assert identifiers(handler(kinesis(["a1+a2", "a3+b1", "skip", "b2", "skip", "d1+c1"]))) == []
    assert shop.calls == ["a1 a2 a3", "b1 b2", "d1", "c1"]


@pytest.mark.parametrize("event", [sqs, kinesis])
def test_call_has_at_most_100_messages(event: Any, shop: Shop) -> None:
    decorator: Any = sqs_handler if event is sqs else kinesis_handler
    names = [f"a{number}" for number in range(250)]
    assert identifiers(decorator(by_name, group_by=letter, max_workers=3)(shop)(event(names))) == []
    assert [len(call.split()) for call in shop.calls] == [order.MAX_CALL_SIZE, order.MAX_CALL_SIZE, 50]
    assert " ".join(shop.calls).split() == names


def test_function_receives_its_own_list() -> None:
    def each(messages: list[Message]) -> None:
        assert type(messages) is list
        messages.clear()

    report = sqs_handler(by_name, group_by=letter)(each).run(sqs(["a1", "a2"]))
    assert [result.settled for result in report.results] == [True, True]


# ---------------------------------------------------------------- what becomes of the records


@pytest.mark.parametrize(
    ("decorator", "event", "named"),
    [
        (kinesis_handler, kinesis(["a1", "a2?", "a3", "b1"]), ["2", "3", "4"]),
        (kafka_handler, kafka(p0=["a1", "a2?", "a3", "b1"], p1=["a4"]), [("orders-0", offset) for offset in (1, 2, 3)]),
        (sqs_handler, fifo("a1", "a2?", "a3", "b1"), ["id-a2?", "id-a3"]),
    ],
)
def test_ordered_messages_after_an_unsettled_one_are_redelivered(decorator: Any, event: Any, named: Any, shop: Shop) -> None:
    report = decorator(by_name, group_by=letter)(shop).run(event)
    found = identifiers(report.response)
    assert [(each["partition"], each["offset"]) if isinstance(each, dict) else each for each in found] == named
    assert shop.calls[0] == "a1 a2? a3"
    assert "b1" not in shop.calls or decorator is sqs_handler
    assert [result.message.id for result in report.failed] == ["a2?"]
    assert report.size == (len(event["Records"]) if "Records" in event else 5)


def other(message: Message) -> Outcome:
    return Applied(Message(f"other than {message.id}"))


@pytest.mark.parametrize(
    ("returned", "why"),
    [
        (lambda _: [], "0 outcomes for 3 messages"),
        (lambda messages: [Applied(message) for message in messages[:2]], "2 outcomes for 3 messages"),
        (lambda messages: Applied(messages[0]), "a Applied. With group_by"),
        (lambda messages: [Applied(message) for message in reversed(messages)], "in a different order"),
        (lambda messages: [Applied(messages[0])] * 3, "in a different order"),
        (lambda messages: {message.id: Applied(message) for message in messages}, "a dict"),
        (lambda messages: (Applied(message) for message in messages), "a generator"),
        (lambda messages: [None for _ in messages], "a list with a NoneType"),
        (lambda messages: [[Applied(message)] for message in messages], "a list with a list"),
    ],
)
def test_group_is_redelivered_unless_each_message_has_an_outcome(returned: Any, why: str) -> None:
    report = sqs_handler(by_name, group_by=letter)(returned).run(sqs(["a1", "a2", "a3"]))
    assert identifiers(report.response) == ["id-a1", "id-a2", "id-a3"]
    assert all(isinstance(result.error, WrongReturn) and why in str(result.error) for result in report.results)


@pytest.mark.parametrize(
    "each",
    [
        lambda messages: tuple(Applied(message) for message in messages),
        lambda messages: [Applied(message.part("stock")) for message in messages],
        lambda messages: [other(message) for message in messages],
    ],
    ids=["a tuple", "of a part", "of a message of the function's own"],
)
def test_outcome_of_a_derived_message_is_accepted(each: Any) -> None:
    assert identifiers(sqs_handler(by_name, group_by=letter)(each)(sqs(["a1", "a2"]))) == []


def test_batch_writes_once_per_group() -> None:
    """A batch of three sources that was shuffled, of which one has a gap; and then another one with copies that fills it."""

    def by_place(record: Any) -> Message:
        return Message(record["body"], source=record["body"][0], sequence=int(record["body"][1:]))

    with mongomock_collection() as collection:
        orders, asked = GuardedCollection(collection, InSequence()), list[Any]()

        def settle(messages: list[Message]) -> list[Outcome]:
            asked.extend([message.sequence for message in messages])
            entity = {"_id": messages[0].source}
            return orders.update_batch(
                messages, lambda fresh: {"filter": entity, "update": {"$inc": {"n": len(fresh)}}, "upsert": True}
            )

        handler = sqs_handler(by_place, group_by=lambda message: message.source)(settle)
        first = handler.run(sqs(["a3", "b2", "a1", "c1", "b4", "a2", "b1", "a3"]))
        assert identifiers(first.response) == ["id-b4"]
        assert first.requests == 3  # one for each entity
        assert asked == [1, 2, 3, 3, 1, 2, 4, 1]
        assert identifiers(handler(sqs(["b4", "b1", "b3", "a2"]))) == []
        assert {found["_id"]: found["n"] for found in collection.find({})} == {"a": 3, "b": 4, "c": 1}


# ---------------------------------------------------------------- a group that raises an error


def test_failing_message_does_not_fail_its_group(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    report = sqs_handler(by_name, group_by=letter)(shop).run(sqs(["a1", "a2!", "a3", "b1"]))
    assert identifiers(report.response) == ["id-a2!"]
    assert shop.calls == ["a1 a2! a3", "a1", "a2!", "a3", "b1"]
    assert [type(result.outcomes[0]).__name__ for result in report.results if result.settled] == [
        "Duplicate",
        "Applied",
        "Applied",
    ]
    assert "ValueError" in caplog.messages[0]
    assert "for a group of 3 messages. Calling it with each message alone" in caplog.messages[0]


NEW: Any = {"orderId": "o", "cents": 100}


def change(token: str) -> dict[str, Any]:
    return {"event": {"_id": {"_data": token}, "fullDocument": {**NEW}}}


def by_token(record: Any) -> Message:
    return Message(record["eventID"], body=record["event"])


@pytest.mark.parametrize(
    ("decorator", "identity", "event", "name"),
    [
        (dynamodb_stream_handler, dynamodb_stream_position(), dynamodb_stream_event((None, NEW), (None, NEW)), "NewImage"),
        (documentdb_handler, by_token, {"events": [change("a"), change("b")]}, "fullDocument"),
        (sqs_handler, sqs_message_id(), {"Records": [sqs_record(each, body={"new": {**NEW}}) for each in "ab"]}, "new"),
    ],
)
def test_message_tried_alone_has_its_body_object_unchanged(decorator: Any, identity: Any, event: Any, name: str) -> None:
    calls: list[int] = []

    def each(messages: list[Message]) -> None:
        calls.append(len(messages))
        for message in messages:
            del message.body[name]["cents"]
        if len(messages) > 1:
            raise TimeoutError

    assert identifiers(decorator(identity, group_by=lambda _: 0)(each)(event)) == []
    assert calls == [2, 1, 1]


def test_exit_ends_the_batch_without_single_retries() -> None:
    calls: list[int] = []

    def each(messages: list[Message]) -> None:
        calls.append(len(messages))
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        sqs_handler(by_name, group_by=letter)(each)(sqs(["a1", "a2", "b1"]))
    assert calls == [2]


# ---------------------------------------------------------------- group_by itself


def strange(message: Message) -> Any:
    if message.id == "a1!":
        raise LookupError
    if message.id == "a2!":
        return [message.id]
    if message.id == "a3!":
        return asyncio.sleep(0)
    return letter(message)


@pytest.mark.parametrize("bad", ["a1!", "a2!", "a3!"])
def test_message_without_a_readable_group_fails_alone(bad: str, shop: Shop) -> None:
    report = sqs_handler(by_name, group_by=strange)(shop).run(sqs(["a1", bad, "a2"]))
    assert identifiers(report.response) == [f"id-{bad}"]
    assert shop.calls == ["a1 a2"]
    assert report.results[1].message is None


async def aletter(message: Message) -> str:
    return letter(message)


@pytest.mark.parametrize("group_by", ["orderId", 5, aletter])
def test_group_by_other_than_a_plain_function_is_refused(group_by: Any, shop: Shop) -> None:
    with pytest.raises(ConfigurationError, match="expected a plain function of a Message"):
        sqs_handler(by_name, group_by=group_by)(shop)


@pytest.mark.parametrize("decorator", [sns_handler, eventbridge_handler, s3_handler])
def test_single_record_source_has_no_groups(decorator: Any) -> None:
    with pytest.raises(ConfigurationError, match="sends one record at a time"):
        decorator(by_name, group_by=letter)


# ---------------------------------------------------------------- the deadline


def slow(clock: Clock, calls: list[str], seconds: float) -> Callable[[list[Message]], None]:
    def each(messages: list[Message]) -> None:
        calls.append(" ".join(message.id for message in messages))
        clock.now += seconds
        if len(messages) > 1 and any(message.id.endswith("!") for message in messages):
            raise ValueError

    return each


def test_group_needs_one_and_a_half_times_the_slowest_call() -> None:
    clock, calls = Clock(), list[str]()
    handler = measure_by(sqs_handler(by_name, group_by=letter)(slow(clock, calls, 4.0)), clock)
    report = handler.run(sqs(["a1", "b1", "a2", "c1", "d1"]), clock.until(13.0))
    assert calls == ["a1 a2", "b1"]  # 5 seconds are left then, and 6 are wanted
    assert identifiers(report.response) == ["id-c1", "id-d1"]
    assert len(report.returned) == 2


def test_messages_of_a_failed_group_are_retried_within_the_deadline() -> None:
    clock, calls = Clock(), list[str]()
    handler = measure_by(sqs_handler(by_name, group_by=letter)(slow(clock, calls, 2.0)), clock)
    report = handler.run(sqs(["a1", "a2!", "a3", "a4"]), clock.until(8.0))
    assert calls == ["a1 a2! a3 a4", "a1", "a2!"]
    assert identifiers(report.response) == ["id-a3", "id-a4"]
    assert [type(result.error).__name__ for result in report.results] == ["NoneType", "NoneType", "ValueError", "ValueError"]


# ---------------------------------------------------------------- workers, second tries, hooks


def test_asynchronous_function_receives_groups() -> None:
    calls: list[str] = []

    async def each(messages: list[Message]) -> list[Outcome]:
        await asyncio.sleep(0)
        calls.append(" ".join(message.id for message in messages))
        if any(message.id == "a2" for message in messages):
            raise ValueError
        return [Applied(message) for message in messages]

    handler = sqs_handler(by_name, group_by=letter, max_workers=2)(each)
    assert identifiers(handler(sqs(["a1", "b1", "a2", "b2"]))) == ["id-a2"]
    assert sorted(calls) == ["a1", "a1 a2", "a2", "b1 b2"]
    assert asyncio.run(handler.function([Message("b")])) == [Applied(Message("b"))]


def test_hook_receives_each_message_with_its_share_of_seconds() -> None:
    clock, told = Clock(), list[tuple[str | None, str, float]]()

    def hook(message: Message | None, outcome: Reported, seconds: float) -> None:
        told.append((None if message is None else message.id, type(outcome).__name__, seconds))

    shop = Shop()

    def each(messages: list[Message]) -> list[BeginOutcome]:
        clock.now += 6.0
        return shop(messages)

    handler = measure_by(sqs_handler(several, group_by=letter, on_outcome=hook)(each), clock)
    report = handler.run(sqs(["a1", "a2?", "b1+a3", "skip"]))
    assert told == [
        ("a1", "Applied", 3.0),
        ("a2?", "Deferred", 3.0),
        ("b1", "Applied", 6.0),
        (None, "Skip", 0.0),
        ("a3", "Applied", 6.0),
    ]
    assert [result.seconds for result in report.results] == [3.0, 3.0, 12.0, 0.0]


def test_single_record_is_processed_in_its_groups() -> None:
    shop = Shop()
    handler = sqs_handler(several, group_by=letter)(shop)
    assert handler.process(sqs_record("a1+a2+b1")).settled
    assert not handler.process(sqs_record("a3?+b2")).settled
    assert handler.process(sqs_record("skip")).skipped
    assert shop.calls == ["a1 a2", "b1", "a3?"]

    async def each(messages: list[Message]) -> list[Outcome]:
        return [Applied(message) for message in messages]

    async def caller() -> bool:
        return (await sqs_handler(several, group_by=letter)(each).aprocess(sqs_record("a1+b1"))).settled

    assert asyncio.run(caller())
