"""Lambda handlers under the explorer: which records an answer settles, and what is delivered again."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from onewrite import ConfigurationError, HighWaterMark, Message, SeenIds
from onewrite.aws_lambda import dynamodb_stream_handler, kafka_handler, kinesis_handler, sqs_handler
from onewrite.identity import json_body
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing import dynamodb_stream_event, explore, kafka_event, kinesis_event, sqs_event
from onewrite.testing.explorer.deliverables import list_names, make_deliverables
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.schedule import Bounds, Delivery, ScheduleStep, encode
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.fault import Fault
from tests.support.batches import by_name, dynamodb, fifo, kafka, kinesis, sqs
from tests.support.searches import REDUCED, How, search_schedules

Build = Callable[[Any], Callable[..., Any]]


def customers() -> Any:
    return mongomock_collection("customers")


def credit(collection: Any) -> Any:
    return (collection.find_one({"_id": "c1"}) or {}).get("credit", 0)


def explored(build: Build, messages: list[Any], **options: Any) -> Exploration:
    given: Any = {"messages": messages, "world": customers, "observe": credit, **options}
    return explore(build, **given)


def words(report: Exploration) -> list[str]:
    assert report.counterexample is not None
    return [str(step) for step in report.counterexample.steps]


C1 = {"_id": "c1"}
ADD = {name: {"$inc": {"credit": amount}} for name, amount in {"a": 1, "b": 10, "c": 100}.items()}


def guarded_by(ledger: Any) -> Callable[[Any], Callable[[Message], Any]]:
    def build(collection: Any) -> Callable[[Message], Any]:
        guarded = GuardedCollection(collection, ledger)
        return lambda message: guarded.update_one(message, C1, ADD[message.id], upsert=True)

    return build


def once(collection: Any) -> Callable[[Message], Any]:
    return guarded_by(SeenIds())(collection)


# --- a lost message, through each decorator -----------------------------------------------------------------------------


def at_its_place(record: Any) -> Message:
    message = by_name(record)
    return Message(message.id, "source", ord(message.id), body=message.body)


def item_event(name: str) -> Any:
    return dynamodb_stream_event((None, {"name": name}), key="name", sequence=ord(name))


SOURCES: dict[str, tuple[Any, Callable[[str], Any]]] = {
    "sqs": (sqs_handler, sqs_event),
    "kinesis": (kinesis_handler, lambda name: kinesis_event(name, sequence=ord(name))),
    "dynamodb stream": (dynamodb_stream_handler, item_event),
    "kafka": (kafka_handler, lambda name: kafka_event(name, offset=ord(name))),
}


@pytest.mark.parametrize("source", SOURCES)
def test_decorated_handler_loses_a_message_only_if_reordered(source: str) -> None:
    decorator, event = SOURCES[source]
    guard = guarded_by(HighWaterMark())
    build, events = lambda collection: decorator(at_its_place)(guard(collection)), [event("a"), event("b")]
    report = explored(build, events)
    assert report.counterexample is not None
    assert (report.counterexample.expected, report.counterexample.observed) == ((11,), 10)
    assert len(words(report)) <= 2
    in_order = explored(build, events, reorder=False)
    in_order.assert_effectively_once()
    assert in_order.exhausted


# --- what an answer settles ---------------------------------------------------------------------------------------------


def named(*identifiers: Any) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in identifiers]}


def at(offset: Any, partition: str = "orders-0") -> dict[str, Any]:
    return {"partition": partition, "offset": offset}


@pytest.mark.parametrize(
    ("event", "answer", "failed"),
    [
        (sqs("abc"), None, ""),
        (sqs("abc"), {"statusCode": 200}, ""),
        (sqs("abc"), {"batchItemFailures": []}, ""),
        (sqs("abc"), named("id-c", "id-a"), "02"),
        (fifo("a1", "a2", "b1"), named("id-a1"), "0"),
        (sqs("abc"), named("id-x"), "012"),
        (sqs("abc"), named("id-a", ""), "012"),
        (sqs("abc"), {"batchItemFailures": [{"messageId": "id-a"}]}, "012"),
        (kinesis("abc"), named("3", "2"), "12"),
        (dynamodb("abc"), named("3"), "2"),
        (dynamodb("abc"), named("e3"), "012"),
        (kafka(p0="abc", p1="xy"), named(at(0, "orders-1"), at(2)), "234"),
        (kafka(p0="abc", p1="xy"), named(at("1")), "01234"),
    ],
    ids=repr,
)
def test_lambda_redelivers_records_that_the_response_leaves_unsettled(event: Any, answer: Any, failed: str) -> None:
    (deliverable,) = make_deliverables([event])
    every = tuple(range(len(deliverable.lanes)))
    assert "".join(map(str, deliverable.failures(answer, every))) == failed


FIRST_ANSWER_LOST = encode((ScheduleStep(Delivery(0, 0), Fault.LOST),), ["id-a and 1 more"])


# --- events under the explorer ------------------------------------------------------------------------------------------


def test_report_names_records_by_position_and_body() -> None:
    """Their ids are UUIDs, which nobody can tell apart at a glance."""
    event = sqs_event({"id": "a"}, {"id": "b"})

    def build(collection: Any) -> Any:
        def handle(message: Message) -> None:
            collection.update_one(C1, {"$inc": {"credit": 1}}, upsert=True)
            if message.id == "b" and credit(collection) == 2:
                raise ValueError

        return sqs_handler(json_body(id="id"))(handle)

    counterexample = explored(build, [event], faults=0).counterexample
    assert counterexample is not None
    assert {step.delivery.partition(",")[0] for step in counterexample.steps} == {"batch 1"}
    failing = explored(build, [event], deliveries=1, observe=lambda _: 0, invariant=lambda c: credit(c) == 2)
    shown = " ".join(str(failing.counterexample).split())
    assert ', fails batch 1, record 2 ("{"id": "b"}")' in shown
    assert "batch 1, delivery 2 of batch 1, record 2" in shown
    replayed = explored(build, [event], faults=0, replay=counterexample.replay_code).counterexample
    assert replayed is not None
    assert replayed.steps == counterexample.steps


@pytest.mark.slow
@pytest.mark.measured
def test_only_failed_records_are_redelivered() -> None:
    seen: list[list[str]] = []

    def build(collection: Any) -> Any:
        seen.append(["built"])
        handler = sqs_handler(by_name)(once(collection))

        def handle(event: Any, context: Any) -> Any:
            seen.append([record["body"] for record in event["Records"]])
            return handler(event, context)

        return handle

    report = explored(build, [sqs("ab")], deliveries=3)
    report.assert_effectively_once()
    assert report.exhausted
    assert {tuple(bodies) for bodies in seen} == {("built",), ("a", "b"), ("a",), ("b",)}
    explore.random(build, [sqs("ab")], customers, credit, schedules=200).assert_effectively_once()
    after_failure = [other for one, other in pairwise(seen) if one == ["a"]]
    assert ["a", "b"] in after_failure  # a duplicate, once everything is settled, has all the records


def naming_failures(
    each: Callable[[Any], Any], name: Callable[[Any], Any] = lambda record: record["messageId"]
) -> Callable[[Any, Any], Any]:
    """A Lambda handler as people write it."""

    def handle(event: Any, context: Any) -> Any:
        assert context.get_remaining_time_in_millis() > 0
        failures = []
        for record in event["Records"]:
            try:
                each(record)
            except Exception:
                failures.append({"itemIdentifier": name(record)})
        return {"batchItemFailures": failures}

    return handle


def add(collection: Any) -> Callable[[Any], Any]:
    return lambda record: collection.update_one(C1, ADD[record["body"]], upsert=True)


def test_a_plain_lambda_handler_gets_events_and_a_context() -> None:
    explored(
        lambda collection: naming_failures(lambda record: once(collection)(by_name(record))), [sqs("ab")]
    ).assert_effectively_once()
    report = explored(lambda collection: naming_failures(add(collection)), [sqs("ab")], replay=FIRST_ANSWER_LOST)
    assert words(report) == [
        "id-a and 1 more, delivery 1: update_one customers c1: applied, but the response is lost",
        "id-a and 1 more, delivery 1: update_one customers c1: applied, fails id-a",
    ]
    assert "id-a and 1 more, delivery 2 of id-a: update_one customers c1: applied" in str(report)


KAFKA = kafka(p0="ab", p1="c")


@pytest.mark.parametrize("options", [{}, {"provisioned_mode": True}], ids=["raises", "answers"])
@pytest.mark.parametrize("wrapped", [False, True], ids=["as it is", "below a decorator"])
@pytest.mark.few(2)
def test_kafka_records_are_redelivered_if_handler_raises(options: Any, wrapped: bool) -> None:
    def build(collection: Any) -> Any:
        handler = kafka_handler(by_name, **options)(once(collection))
        if not wrapped:
            return handler

        @functools.wraps(handler)
        def outer(event: Any, context: Any) -> Any:
            return handler(event, context)

        return outer

    report = explored(build, [KAFKA], concurrency=1)
    report.assert_effectively_once()
    assert report.exhausted


def test_a_kafka_response_that_lambda_ignores_loses_records() -> None:
    """In provisioned mode it would be right. Lambda has another default, and a record that is lost is worse than an alarm."""

    def build(collection: Any) -> Any:
        each = once(collection)

        def handle(event: Any, context: Any) -> Any:
            failures: list[Any] = []
            for partition, found in event["records"].items():
                for record in found:
                    try:
                        each(by_name(record))
                    except Exception:
                        failures.append({"itemIdentifier": {"partition": partition, "offset": record["offset"]}})
                        break
            return {"batchItemFailures": failures}

        return handle

    report = explored(build, [KAFKA])
    assert report.counterexample is not None
    assert report.counterexample.expected == (111,)
    assert report.counterexample.observed < 111


def test_stream_handler_that_continues_after_a_failure_is_found() -> None:
    guard = guarded_by(HighWaterMark())

    def build(collection: Any) -> Any:
        each = guard(collection)
        return naming_failures(lambda record: each(at_its_place(record)), lambda record: record["kinesis"]["sequenceNumber"])

    report = explored(build, [kinesis("ab")])
    assert report.counterexample is not None
    assert report.counterexample.observed == 10
    ours = explored(lambda collection: kinesis_handler(at_its_place)(guard(collection)), [kinesis("ab")])
    ours.assert_effectively_once()


def test_fifo_handler_that_continues_after_a_failure_is_found() -> None:
    def build(collection: Any) -> Any:
        guarded = GuardedCollection(collection, SeenIds())
        return naming_failures(
            lambda record: guarded.update_one(by_name(record), C1, {"$set": {"credit": record["body"]}}, upsert=True)
        )

    report = explored(build, [fifo("a1", "a2")])
    assert report.counterexample is not None
    assert (report.counterexample.expected, report.counterexample.observed) == (("a2",), "a1")


def test_batch_fails_if_response_is_not_json() -> None:
    def build(collection: Any) -> Any:
        return lambda event, _: once(collection)(by_name(event["Records"][0]))

    with pytest.raises(
        ConfigurationError,
        match=r"id-a never settled: TypeError: Lambda can't convert the handler's result to JSON: .*Duplicate",
    ):
        explored(build, [sqs("a")])


@pytest.mark.parametrize(
    ("one", "other", "in_order"),
    [
        (sqs("a"), sqs("b"), False),
        (fifo("a1", "b1"), fifo("c1", "b2"), True),
        (fifo("a1"), fifo("b1"), False),
        (kinesis_event("a", shard=1), kinesis_event("b", shard=2, sequence=2), False),
        (kafka(p0="a"), {**kafka(p0="ab"), "records": {"orders-0": kafka(p0="ab")["records"]["orders-0"][1:]}}, True),
        (kafka(p0="a"), kafka(p1="b"), False),
    ],
)
def test_within_source_keeps_the_order_of_each_source(one: Any, other: Any, *, in_order: bool) -> None:
    sources = [deliverable.sources() for deliverable in make_deliverables([one, other])]
    assert Bounds(reorder="within_source").predecessors(sources) == ((), (0,) if in_order else ())


def test_within_source_explores_events_in_their_order() -> None:
    guard = guarded_by(HighWaterMark())
    events = [kinesis_event("a"), kinesis_event("b", sequence=2)]
    report = explored(lambda collection: kinesis_handler(at_its_place)(guard(collection)), events, reorder="within_source")
    report.assert_effectively_once()


def test_records_processed_in_threads_by_a_decorator_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="was sent by a thread that the handler started"):
        explored(lambda collection: sqs_handler(by_name, max_workers=2)(once(collection)), [sqs("abc")])


def test_records_processed_in_tasks_by_a_decorator_are_explored() -> None:
    def build(collection: Any) -> Any:
        guarded = AsyncGuardedCollection(collection, SeenIds())

        async def each(message: Message) -> Any:
            return await guarded.update_one(message, C1, ADD[message.id], upsert=True)

        return sqs_handler(by_name, max_workers=2)(each)

    async def awaited_credit(collection: Any) -> Any:
        return (await collection.find_one(C1) or {}).get("credit", 0)

    options = {"world": lambda: mongomock_collection("customers", asynchronous=True), "observe": awaited_credit}
    report = explored(build, [sqs("ab")], deliveries=1, **options)
    report.assert_effectively_once()
    assert report.exhausted


def test_record_in_two_events_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Two messages have the ID 'id-b'"):
        make_deliverables([sqs("ab"), sqs("bc")])


# --- nothing is left out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "identifier"), [(sqs, "messageId"), (kinesis, "sequenceNumber")], ids=["sqs", "kinesis"])
@pytest.mark.parametrize("bounds", [Bounds(deliveries=3, concurrency=1), Bounds(deliveries=2)], ids=["one", "two at once"])
@pytest.mark.few(2)
def test_pruning_keeps_every_end_state_of_a_partial_batch(make: Any, identifier: str, bounds: Bounds) -> None:
    def build(collection: Any) -> Any:
        return naming_failures(
            lambda record: collection.update_one({"_id": by_name(record).id}, {"$inc": {"credit": 1}}, upsert=True),
            lambda record: {**record, **record.get("kinesis", {})}[identifier],
        )

    def ends_of(how: How) -> set[str]:
        ends: set[str] = set()

        def observe(collection: Any) -> None:
            ends.add(repr(list(collection.find({}).sort("_id", 1))))

        search_schedules(build, [make("ab")], customers, bounds, observe, how)
        return ends

    every = ends_of("every schedule")
    assert [ends_of(how) for how in REDUCED] == [every, every]
    assert len(every) > 3


def test_exception_of_a_decorated_handler_is_shown_with_its_line() -> None:
    def build(_: Any) -> Any:
        def handle(message: Message) -> None:
            raise KeyError(message.id)

        return sqs_handler(by_name)(handle)

    with pytest.raises(ConfigurationError, match=rf"KeyError: 'a' at {Path(__file__).name}:\d+\. Fix"):
        explored(build, [sqs("a")])


def test_response_that_lists_successes_as_failures_is_shown() -> None:
    with pytest.raises(ConfigurationError, match=r"Its last result was \{'batchItemFailures': .*'id-a'"):
        explored(lambda _: lambda event: named(event["Records"][0]["messageId"]), [sqs("a")])


def test_within_source_is_refused_if_no_record_has_an_order() -> None:
    with pytest.raises(ConfigurationError, match="comes from a source that keeps no order, such as a standard queue"):
        explored(lambda _: lambda _: None, [sqs_event("1"), sqs_event("2")], reorder="within_source")


@pytest.mark.parametrize(("ids", "names"), [(("a", "b"), ("a", "b")), (("a", "a"), ("#1", "#2"))])
def test_dicts_are_named_by_their_ids_if_these_differ(ids: tuple[str, ...], names: tuple[str, ...]) -> None:
    assert list_names([{"id": each} for each in ids]) == names
