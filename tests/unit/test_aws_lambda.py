"""A batch in, a partial batch response out, to the letter of what Lambda takes."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from onewrite import Applied, ConfigurationError, Deferred, Duplicate, InvalidMessage, Message, Outcome, Rejected, Stale
from onewrite.aws_lambda import (
    EveryRecordFailed,
    Handler,
    dynamodb_stream_handler,
    kafka_handler,
    kinesis_handler,
    sqs_handler,
)
from tests.support.batches import (
    FIFO,
    STANDARD,
    by_name,
    dynamodb,
    fifo,
    identifiers,
    kafka,
    kinesis,
    sqs,
    sqs_record,
)

DECORATORS: list[Any] = [sqs_handler, kinesis_handler, dynamodb_stream_handler, kafka_handler]
EVENTS: list[Any] = [sqs, kinesis, dynamodb, lambda names: kafka(p0=names)]
SOURCES = pytest.mark.parametrize(
    ("decorator", "event"), list(zip(DECORATORS, EVENTS, strict=True)), ids=["sqs", "kinesis", "dynamodb", "kafka"]
)


def applied(message: Message) -> Outcome:
    return Applied(message)


class Shop:
    """Remembers what it was given, and fails on names that end in `!`."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __call__(self, message: Message) -> Outcome:
        self.seen.append(message.id)
        if message.id.endswith("!"):
            raise ValueError(message.id)
        return Applied(message)


@pytest.fixture
def shop() -> Shop:
    return Shop()


# ---------------------------------------------------------------- the answer


@SOURCES
def test_a_batch_that_is_done_is_answered_with_an_empty_list(decorator: Any, event: Any) -> None:
    assert decorator(by_name)(applied)(event(["a", "b"]), None) == {"batchItemFailures": []}


@SOURCES
def test_a_batch_without_records_is_done(decorator: Any, event: Any) -> None:
    assert decorator(by_name)(applied)(event([]), None) == {"batchItemFailures": []}


def test_a_standard_queue_returns_what_failed_and_goes_on(shop: Shop) -> None:
    response = sqs_handler(by_name)(shop)(sqs(["a", "b!", "c", "d!"]), None)
    assert response == {"batchItemFailures": [{"itemIdentifier": "id-b!"}, {"itemIdentifier": "id-d!"}]}
    assert shop.seen == ["a", "b!", "c", "d!"]


def test_a_fifo_queue_returns_the_rest_of_the_group_unprocessed_and_in_order(shop: Shop) -> None:
    response = sqs_handler(by_name)(shop)(fifo("a1", "b1", "a2!", "b2", "a3", "b3", "a4"), None)
    assert identifiers(response) == ["id-a2!", "id-a3", "id-a4"]
    assert shop.seen == ["a1", "b1", "a2!", "b2", "b3"]


def test_a_group_on_a_standard_queue_is_for_fairness_only(shop: Shop) -> None:
    event = {"Records": [sqs_record(name, arn=STANDARD, group="g") for name in ("a!", "b")]}
    assert identifiers(sqs_handler(by_name)(shop)(event)) == ["id-a!"]
    assert shop.seen == ["a!", "b"]


def test_fifo_in_the_middle_of_an_arn_makes_no_fifo_queue(shop: Shop) -> None:
    event = {"Records": [sqs_record(name, arn=f"{STANDARD}.fifo-not", group="g") for name in ("a!", "b")]}
    assert identifiers(sqs_handler(by_name)(shop)(event)) == ["id-a!"]


@pytest.mark.parametrize("attributes", [{}, {"MessageGroupId": None}, {"MessageGroupId": 7}, None, "text"])
def test_fifo_records_whose_group_cannot_be_read_keep_their_order(shop: Shop, attributes: Any) -> None:
    event = {"Records": [sqs_record(name, arn=FIFO, attributes=attributes) for name in ("a!", "b")]}
    event["Records"].append(sqs_record("c", arn=FIFO, group="c"))
    assert identifiers(sqs_handler(by_name)(shop)(event)) == ["id-a!", "id-b"]
    assert shop.seen == ["a!", "c"]


@pytest.mark.parametrize(("decorator", "event"), [(kinesis_handler, kinesis), (dynamodb_stream_handler, dynamodb)])
def test_a_stream_stops_at_its_first_failure_and_restarts_there(shop: Shop, decorator: Any, event: Any) -> None:
    assert identifiers(decorator(by_name)(shop)(event(["a", "b!", "c", "d!"]))) == ["2", "3", "4"]
    assert shop.seen == ["a", "b!"]


def test_kafka_names_what_failed_by_partition_and_offset_and_other_partitions_go_on(shop: Shop) -> None:
    response = kafka_handler(by_name)(shop)(kafka(p0=["a", "b!", "c"], p1=["x", "y"]))
    assert response == {
        "batchItemFailures": [
            {"itemIdentifier": {"partition": "orders-0", "offset": 1}},
            {"itemIdentifier": {"partition": "orders-0", "offset": 2}},
        ]
    }
    assert shop.seen == ["a", "b!", "x", "y"]


@pytest.mark.parametrize("broken", [{}, {"messageId": ""}, {"messageId": None}, {"messageId": 7}, "text", None, 3, ["list"]])
def test_a_record_that_fails_and_has_no_id_returns_the_whole_batch_by_an_empty_one(broken: Any) -> None:
    """To leave it out would say that it is done."""
    event = {"Records": [sqs_record("a"), broken, sqs_record("b")]}
    assert identifiers(sqs_handler(by_name)(applied)(event)) == [""]


def test_a_record_without_an_id_that_is_settled_returns_nothing() -> None:
    event = {"Records": [sqs_record("a", messageId="")]}
    assert identifiers(sqs_handler(by_name)(applied)(event)) == []


def test_a_message_that_came_twice_is_named_once(shop: Shop) -> None:
    assert identifiers(sqs_handler(by_name)(shop)(sqs(["a!", "b", "a!"]))) == ["id-a!"]
    assert shop.seen == ["a!", "b", "a!"]


def test_a_stream_record_that_cannot_be_named_returns_with_the_one_before_it(shop: Shop) -> None:
    event = kinesis(["a", "b!", "c", "d"])
    event["Records"][2] = "broken"
    assert identifiers(kinesis_handler(by_name)(shop)(event)) == ["2", "4"]


def test_a_stream_whose_first_failure_cannot_be_named_restarts_from_the_front(shop: Shop) -> None:
    event = kinesis(["a", "b", "c"])
    del event["Records"][1]["kinesis"]
    assert identifiers(kinesis_handler(by_name)(shop)(event)) == ["", "3"]


@pytest.mark.parametrize("field", ["topic", "partition", "offset"])
@pytest.mark.parametrize("value", [None, "", True, 1.5])
def test_a_kafka_record_that_cannot_be_named_returns_the_whole_batch(field: str, value: Any) -> None:
    event = kafka(p0=["a"])
    event["records"]["orders-0"][0][field] = value
    assert identifiers(kafka_handler(refuse)(applied)(event)) == [""]


# ---------------------------------------------------------------- what is no batch


OTHERS: list[Any] = [
    None,
    {},
    [],
    "text",
    {"Records": None},
    {"Records": {"a": 1}},
    {"records": [1]},
    {"records": {"orders-0": "text"}},
    {"httpMethod": "GET", "body": None},
    {"Records": [{"eventSource": "aws:s3", "s3": {}}]},
    {"Records": [{"EventSource": "aws:sns", "Sns": {}}]},
    {"Records": [{"eventSource": ["aws:sqs"]}]},
    {"records": {"orders-0": [{"topic": "orders"}]}, "eventSource": "aws:other"},
]


@SOURCES
@pytest.mark.parametrize("other", OTHERS, ids=repr)
def test_an_event_that_is_no_batch_of_the_source_is_refused(decorator: Any, event: Any, other: Any) -> None:
    """An empty answer would say that all is done."""
    with pytest.raises(ConfigurationError, match="This event is no batch of"):
        decorator(by_name)(applied)(other)


@SOURCES
@pytest.mark.parametrize("foreign", EVENTS)
def test_the_batch_of_another_source_is_refused(decorator: Any, event: Any, foreign: Any) -> None:
    if foreign is not event:
        with pytest.raises(ConfigurationError, match="This event is no batch of"):
            decorator(by_name)(applied)(foreign(["a"]))


def test_a_mix_of_sources_is_refused_before_anything_is_taken(shop: Shop) -> None:
    event = {"Records": [*sqs(["a"])["Records"], *kinesis(["b"])["Records"]]}
    with pytest.raises(ConfigurationError, match=r"no batch of SQS: it has a record of 'aws:kinesis'\. Nothing was taken"):
        sqs_handler(by_name)(shop)(event)
    assert shop.seen == []


def test_records_written_by_hand_need_not_say_where_they_are_from() -> None:
    event = {"Records": [{"messageId": "id-a", "body": "a"}]}
    assert identifiers(sqs_handler(by_name)(applied)(event)) == []


def test_a_self_managed_kafka_is_kafka() -> None:
    event = {**kafka(p0=["a"]), "eventSource": "SelfManagedKafka"}
    assert identifiers(kafka_handler(by_name)(applied)(event)) == []


# ---------------------------------------------------------------- what a function may return


def message() -> Message:
    return Message("m", source="s", sequence=3)


SETTLED: list[Any] = [
    None,
    Applied(message()),
    Duplicate(message()),
    Stale(message(), 7),
    Rejected(message()),
    [Applied(message()), Duplicate(message())],
    (Stale(message(), 7), Rejected(message())),
    [],
    (),
]


@pytest.mark.parametrize("returned", SETTLED, ids=repr)
def test_all_but_a_deferred_outcome_settles(returned: Any) -> None:
    assert identifiers(sqs_handler(by_name)(lambda _: returned)(sqs(["a"]))) == []


@pytest.mark.parametrize(
    "returned", [Deferred(message(), 2), [Applied(message()), Deferred(message(), 2)], (Deferred(message(), 1),)], ids=repr
)
def test_a_record_is_settled_when_all_its_outcomes_are(returned: Any) -> None:
    report = sqs_handler(by_name)(lambda _: returned).run(sqs(["a"]))
    assert identifiers(report.response) == ["id-a"]
    assert report.results[0].error is None
    assert report.results[0].outcomes == (tuple(returned) if isinstance(returned, Sequence) else (returned,))


async def nothing() -> None: ...


async def some() -> Any:
    yield 1


UNFIT: dict[str, tuple[Callable[[], Any], str]] = {
    "a bool": (lambda: True, "a bool"),
    "a dict": (dict, "a dict"),
    "a response": (lambda: {"batchItemFailures": []}, "a dict"),
    "an empty text": (str, "a str"),
    "empty bytes": (bytes, "a bytes"),
    "a set": (lambda: {1}, "a set"),
    "a generator": (lambda: (None for _ in range(1)), "a generator"),
    "an async generator": (some, "a async_generator"),
    "a message": (message, "a Message"),
    "a class": (lambda: Applied, "a type"),
    "a list with a None": (lambda: [Applied(message()), None], "a list with a NoneType"),
    "a list of lists": (lambda: [[Applied(message())]], "a list with a list"),
    "a coroutine": (nothing, "a coroutine"),
    "a list of coroutines": (lambda: [nothing(), nothing()], "a list with a coroutine"),
}


@pytest.mark.parametrize("unfit", UNFIT)
def test_any_other_return_is_a_type_error_of_the_record(unfit: str) -> None:
    make, named = UNFIT[unfit]
    report = sqs_handler(by_name)(lambda message: make() if message.id == "a" else None).run(sqs(["a", "b"]))
    assert identifiers(report.response) == ["id-a"]
    assert isinstance(report.results[0].error, TypeError)
    assert f"The function returned {named}: return an Outcome, a sequence of them, or None" in str(report.results[0].error)
    assert ("declare an asynchronous function" in str(report.results[0].error)) == ("coroutine" in unfit)


# ---------------------------------------------------------------- poison


def refuse(record: Any) -> Message:
    raise InvalidMessage("no key")


def test_an_identity_that_fails_fails_its_record_alone(shop: Shop) -> None:
    report = sqs_handler(lambda record: refuse(record) if record["body"] == "b" else by_name(record))(shop).run(
        sqs(["a", "b", "c"])
    )
    assert identifiers(report.response) == ["id-b"]
    assert shop.seen == ["a", "c"]
    assert report.results[1].message is None


@pytest.mark.parametrize("found", [None, "m1", {"id": "m1"}])
def test_an_identity_that_gives_no_message_fails_its_record(shop: Shop, found: Any) -> None:
    report = sqs_handler(lambda _: found)(shop).run(sqs(["a"]))
    assert "The identity returned a" in str(report.results[0].error)
    assert shop.seen == []


def test_an_asynchronous_identity_fails_its_record(shop: Shop) -> None:
    async def identity(record: Any) -> Message:
        return by_name(record)

    report = sqs_handler(identity)(shop).run(sqs(["a"]))  # type: ignore[arg-type]  # what is tested
    assert "The identity returned a coroutine, not a Message" in str(report.results[0].error)


def test_a_record_that_is_no_object_never_reaches_the_identity() -> None:
    report = sqs_handler(lambda _: Message("m"))(applied).run({"Records": ["text"]})
    assert isinstance(report.results[0].error, InvalidMessage)
    assert report.results[0].record_id == "(no id)"


class Panic(BaseException):
    """No Exception, and no exit."""


@pytest.mark.parametrize(
    "error", [Panic(), MemoryError(), asyncio.CancelledError(), BaseExceptionGroup("", [Panic()]), StopIteration()]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_whatever_a_function_raises_fails_its_record_alone(error: BaseException, workers: int) -> None:
    def each(message: Message) -> None:
        if message.id == "a":
            raise error

    report = sqs_handler(by_name, max_workers=workers)(each).run(sqs(["a", "b"]))
    assert identifiers(report.response) == ["id-a"]
    assert report.results[0].error is error


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), BaseExceptionGroup("", [ValueError(), KeyboardInterrupt()])],
    ids=repr,
)
def test_an_exit_leaves_the_handler(error: BaseException) -> None:
    seen = []

    def each(message: Message) -> None:
        seen.append(message.id)
        raise error

    with pytest.raises(type(error)) as caught:
        sqs_handler(by_name)(each)(sqs(["a", "b"]))
    assert caught.value is error
    assert seen == ["a"]


def test_when_every_record_fails_each_is_returned(shop: Shop) -> None:
    """A raised error would hide which."""
    assert identifiers(sqs_handler(by_name)(shop)(sqs(["a!", "b!"]))) == ["id-a!", "id-b!"]


@pytest.mark.parametrize("event", [sqs(["a!", "b!"]), fifo("a1!", "a2")])
def test_when_every_record_fails_the_handler_raises_if_told_to(shop: Shop, event: Any) -> None:
    handler = sqs_handler(by_name, raise_when_all_fail=True)(shop)
    with pytest.raises(EveryRecordFailed, match="Shop: none of 2 records was settled"):
        handler(event)
    assert len(identifiers(handler.run(event).response)) == 2  # a report hides nothing


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b!"]])
def test_when_not_every_record_fails_the_handler_never_raises(shop: Shop, names: list[str]) -> None:
    sqs_handler(by_name, raise_when_all_fail=True)(shop)(sqs(names))


# ---------------------------------------------------------------- the function


def test_the_function_can_be_called_with_a_message() -> None:
    assert sqs_handler(by_name)(applied).each(message()) == Applied(message())


def test_the_handler_keeps_the_functions_name_and_docstring() -> None:
    @sqs_handler(by_name)
    def ship(message: Message) -> Outcome:
        """Ships it."""
        return Applied(message)

    assert isinstance(ship, Handler)
    assert (ship.__name__, ship.__doc__, ship.__module__) == ("ship", "Ships it.", __name__)
    assert inspect.unwrap(ship) is ship.each


def test_the_attributes_of_a_callable_object_do_not_hide_the_handlers() -> None:
    class Ship:
        run = each = "mine"

        def __init__(self) -> None:
            self.run = self.each = "mine"

        def __call__(self, message: Message) -> None: ...

    assert identifiers(sqs_handler(by_name)(Ship()).run(sqs(["a"])).response) == []


def test_a_partial_and_a_method_are_functions(shop: Shop) -> None:
    def each(found: list[str], message: Message) -> None:
        found.append(message.id)

    found: list[str] = []
    sqs_handler(by_name)(functools.partial(each, found))(sqs(["a"]))
    sqs_handler(by_name)(shop.__call__)(sqs(["b"]))
    assert (found, shop.seen) == (["a"], ["b"])


@pytest.mark.parametrize(
    "options",
    [
        {"max_workers": 0},
        {"max_workers": True},
        {"max_workers": 2.0},
        {"max_workers": None},
        {"margin": -1},
        {"margin": float("inf")},
        {"margin": float("nan")},
        {"margin": True},
        {"margin": "1"},
        {"on_outcome": 7},
        pytest.param({"on_outcome": nothing}, id="a function that takes nothing"),
        {"identity": None},
        {"identity": "order.no"},
    ],
    ids=repr,
)
def test_a_wrong_option_is_refused_where_it_is_written(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=next(iter(options))):
        sqs_handler(**{"identity": by_name, **options})(applied)


def test_what_is_no_function_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="A dict is no function of a message"):
        sqs_handler(by_name)({})  # type: ignore[arg-type]  # what is tested
