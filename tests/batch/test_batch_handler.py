"""What the handler makes of a function: what it may return and raise, and which options are refused."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from onewrite import (
    Applied,
    Busy,
    ConfigurationError,
    Deferred,
    Duplicate,
    Gone,
    InvalidMessage,
    Message,
    Missing,
    Outcome,
    Rejected,
    Stale,
)
from onewrite.aws_lambda import EveryRecordFailed, kinesis_handler, sqs_handler
from onewrite.identity import Skip
from tests.support.batches import Shop, apply, by_name, fifo, identifiers, kinesis, sqs


@pytest.fixture
def shop() -> Shop:
    return Shop()


# ---------------------------------------------------------------- what a function may return


def message() -> Message:
    return Message("m", source="s", sequence=3)


SETTLED: list[Any] = [
    None,
    Applied(message()),
    [Applied(message()), Duplicate(message())],
    (Stale(message(), 7), Gone(message())),
    [],
]


@pytest.mark.parametrize("returned", SETTLED, ids=repr)
def test_settled_record_is_not_redelivered(returned: Any) -> None:
    assert identifiers(sqs_handler(by_name)(lambda _: returned)(sqs(["a"]))) == []


UNSETTLED: list[Any] = [
    Deferred(message(), 2),
    Rejected(message()),
    [Applied(message()), Deferred(message(), 2)],
    (Busy(message(), 9e9), Applied(message())),
]


@pytest.mark.parametrize("returned", UNSETTLED, ids=repr)
def test_record_is_settled_if_all_its_outcomes_are(returned: Any) -> None:
    report = sqs_handler(by_name)(lambda _: returned).run(sqs(["a"]))
    assert identifiers(report.response) == ["id-a"]
    assert report.results[0].error is None
    assert report.results[0].outcomes == (tuple(returned) if isinstance(returned, Sequence) else (returned,))


async def nothing() -> None: ...


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "a bool": (lambda: True, "a bool"),
    "a response": (lambda: {"batchItemFailures": []}, "a dict"),
    "a generator": (lambda: (None for _ in range(1)), "a generator"),
    "a message": (message, "a Message"),
    "a list with a None": (lambda: [Applied(message()), None], "a list with a NoneType"),
    "a coroutine": (nothing, "a coroutine"),
    "a list of coroutines": (lambda: [nothing(), nothing()], "a list with a coroutine"),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_invalid_return_value_fails_the_record(unfit: str) -> None:
    make, named = UNFIT[unfit]
    report = sqs_handler(by_name)(lambda message: make() if message.id == "a" else None).run(sqs(["a", "b"]))
    assert identifiers(report.response) == ["id-a"]
    assert isinstance(report.results[0].error, TypeError)
    assert f"The function returned {named}. Return an Outcome, a sequence of them, or None" in str(report.results[0].error)
    assert ("declare it with `async def`" in str(report.results[0].error)) == ("coroutine" in unfit)


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (Applied(cast("Any", None)), "a Applied whose message is a NoneType"),
        (Busy(message(), until=cast("Any", datetime(2030, 1, 1, tzinfo=UTC))), "a Busy whose until is a datetime"),
        (Missing(message(), settled=cast("Any", Applied(message()))), "a Missing whose settled is a Applied"),
    ],
)
@pytest.mark.parametrize("group_by", [None, lambda message: message.id])
def test_unusable_handmade_outcome_fails_its_record_alone(answer: Any, what: str, group_by: Any) -> None:
    def each(messages: Any) -> list[Any]:
        [given] = messages if group_by else [messages]
        return [answer if given.id == "b" else Applied(given)]

    report = cast("Any", sqs_handler)(by_name, group_by=group_by)(each).run(sqs(["a", "b", "c"]))
    assert identifiers(report.response) == ["id-b"]
    assert f"The function returned {what}. Return the outcome that the store returned" in str(report.failed[0].error)


# ---------------------------------------------------------------- poison


async def later() -> Message:
    return message()


@pytest.mark.parametrize(
    "identity", [lambda _: None, lambda _: "m1", lambda _: later()], ids=["nothing", "text", "coroutine"]
)
def test_identity_without_a_message_fails_its_record(shop: Shop, identity: Any) -> None:
    report = sqs_handler(identity)(shop).run(sqs(["a"]))
    assert "The identity returned a" in str(report.results[0].error)
    assert shop.names == []


def test_record_other_than_an_object_fails_before_the_identity() -> None:
    report = sqs_handler(lambda _: Message("m"))(apply).run({"Records": ["text"]})
    assert isinstance(report.results[0].error, InvalidMessage)
    assert report.results[0].record_id == "(no id)"


# ---------------------------------------------------------------- what is not for the function


def test_skipped_record_is_settled_and_does_not_block_others(shop: Shop) -> None:
    handler = kinesis_handler(lambda record: Skip() if by_name(record).id == "b" else by_name(record))(shop)
    report = handler.run(kinesis("abc"))
    assert identifiers(report.response) == []
    assert shop.names == ["a", "c"]
    assert [result.skipped for result in report.results] == [False, True, False]
    assert report.results[1].settled


# ---------------------------------------------------------------- several messages in one record


def parts(record: Any) -> list[Message]:
    return [Message(letter) for letter in record["body"].split()]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_record_stops_at_its_first_unsettled_message(asynchronous: bool) -> None:
    shop = Shop()

    def each(message: Message) -> Outcome:
        return Deferred(message, 1) if message.id == "d" else shop(message)

    async def aeach(message: Message) -> Outcome:
        return each(message)

    report = sqs_handler(parts)(aeach if asynchronous else each).run(sqs(["a b! c", "e d f", "g"]))
    assert shop.names == ["a", "b!", "e", "g"]
    assert identifiers(report.response) == ["id-a b! c", "id-e d f"]
    failed = report.results[0]
    assert (failed.message, len(failed.outcomes), type(failed.error)) == (Message("b!"), 1, ValueError)


@pytest.mark.parametrize("error", [ValueError(), MemoryError(), StopIteration()])
@pytest.mark.parametrize("workers", [1, 2])
def test_exception_of_the_function_fails_its_record_alone(error: Exception, workers: int) -> None:
    def each(message: Message) -> None:
        if message.id == "a":
            raise error

    report = sqs_handler(by_name, max_workers=workers)(each).run(sqs(["a", "b"]))
    assert identifiers(report.response) == ["id-a"]
    assert report.results[0].error is error


@pytest.mark.parametrize("event", [sqs(["a!", "b!"]), fifo("a1!", "a2")])
def test_handler_raises_if_configured_and_every_record_fails(shop: Shop, event: Any) -> None:
    handler = sqs_handler(by_name, raise_when_all_fail=True)(shop)
    with pytest.raises(EveryRecordFailed, match="Shop: none of 2 records was settled"):
        handler(event)
    assert len(identifiers(handler.run(event).response)) == 2  # a report hides nothing


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b!"]])
def test_handler_does_not_raise_if_a_record_succeeds(shop: Shop, names: list[str]) -> None:
    sqs_handler(by_name, raise_when_all_fail=True)(shop)(sqs(names))


# ---------------------------------------------------------------- the function


def test_handler_keeps_the_functions_name_and_docstring() -> None:
    @sqs_handler(by_name)
    def ship(message: Message) -> Outcome:
        """Ships it."""
        return Applied(message)

    assert inspect.isfunction(ship)
    assert (ship.__name__, ship.__doc__, ship.__module__) == ("ship", "Ships it.", __name__)
    assert list(inspect.signature(ship).parameters) == ["event", "context"]


@pytest.mark.parametrize(
    "options",
    [
        {"max_workers": 0},
        {"max_workers": True},
        {"margin": -1},
        {"margin": float("nan")},
        {"margin": "1"},
        {"on_outcome": 7},
        pytest.param({"on_outcome": nothing}, id="a function that takes nothing"),
        {"identity": "order.no"},
    ],
    ids=repr,
)
def test_wrong_option_is_refused_by_the_decorator(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        cast("Any", sqs_handler)(**{"identity": by_name, **options})(apply)


def test_decorated_handler_cannot_be_decorated_again() -> None:
    ship = sqs_handler(by_name)(apply)
    with pytest.raises(ConfigurationError, match="this function is already a handler"):
        cast("Any", sqs_handler(by_name))(ship)
