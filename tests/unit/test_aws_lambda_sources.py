"""Each source's batch in, and the partial batch response out that Lambda accepts for this source."""

from __future__ import annotations

from typing import Any

import pytest

from onewrite import ConfigurationError
from onewrite.aws_lambda import dynamodb_stream_handler, kafka_handler, kinesis_handler, sqs_handler
from tests.support.batches import (
    FIFO,
    STANDARD,
    Shop,
    applied,
    by_name,
    dynamodb,
    fifo,
    identifiers,
    kafka,
    kinesis,
    refuse,
    sqs,
    sqs_record,
)

DECORATORS: list[Any] = [sqs_handler, kinesis_handler, dynamodb_stream_handler, kafka_handler]
EVENTS: list[Any] = [sqs, kinesis, dynamodb, lambda names: kafka(p0=names)]
SOURCES = pytest.mark.parametrize(
    ("decorator", "event"), list(zip(DECORATORS, EVENTS, strict=True)), ids=["sqs", "kinesis", "dynamodb", "kafka"]
)


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
    """Leaving it out would mean that it is done."""
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
    """An empty answer would mean that all is done."""
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
