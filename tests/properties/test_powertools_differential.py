"""Against the batch utility of Powertools: for the same batch and the same failures, the same answer.

Where both differ, on purpose:

- When every record fails, Powertools raises by default (a FIFO processor always does), and Lambda returns the whole batch
  without a word of which. Here each record is named; `raise_when_all_fail=True` is for who wants the error.
- A failure in a stream: Powertools goes on behind it, and Lambda brings what it did there once more. Here what stands
  behind is not taken. The lowest failure, from which Lambda restarts, is the same. So with a partition of Kafka.
- FIFO records without a group: Powertools goes on after a failure. Here they are one group.
- FIFO records behind a failure that their model does not fit: Powertools raises, and Lambda returns what was already done.
  Here they are returned like all others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, SqsFifoPartialProcessor
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError
from hypothesis import given
from hypothesis import strategies as st

from onewrite import Message
from onewrite.aws_lambda import dynamodb_stream_handler, kafka_handler, kinesis_handler, sqs_handler
from tests.support.batches import FIFO, by_name, dynamodb, fifo, identifiers, kafka, kinesis, sqs, sqs_record

WORKERS = st.sampled_from([1, 3])


class Poison(Exception):
    """What both fail on."""


def names(prefixes: str = "abc") -> st.SearchStrategy[list[str]]:
    """Each once, led by its group, and with a `!` where it is poisonous."""
    marked = st.tuples(st.sampled_from(prefixes), st.sampled_from(["", "", "!"]))
    return st.lists(marked, min_size=1, max_size=12).map(
        lambda drawn: [f"{group}{number}{mark}" for number, (group, mark) in enumerate(drawn)]
    )


def fail_on_poison(name: str) -> None:
    if name.endswith("!"):
        raise Poison(name)


def ours(decorator: Any, event: Any, workers: int = 1) -> tuple[list[Any], list[str]]:
    """What is returned, and what was processed."""
    seen: list[str] = []

    def each(message: Message) -> None:
        seen.append(message.id)
        fail_on_poison(message.id)

    return identifiers(decorator(by_name, max_workers=workers)(each)(event, None)), seen


def theirs(processor: Any, records: list[dict[str, Any]]) -> tuple[list[Any], list[str]]:
    seen: list[str] = []

    def each(record: Any) -> None:
        name = by_name(record.raw_event).id
        seen.append(name)
        fail_on_poison(name)

    with processor(records=records, handler=each) as batch:
        batch.process()
    return identifiers(processor.response()), seen


def powertools(kind: EventType, records: list[dict[str, Any]]) -> tuple[list[Any], list[str]]:
    return theirs(BatchProcessor(event_type=kind, raise_on_entire_batch_failure=False), records)


@given(names(), WORKERS)
def test_a_standard_queue_returns_the_same(drawn: list[str], workers: int) -> None:
    event = sqs(drawn)
    returned, seen = ours(sqs_handler, event, workers)
    their_returned, their_seen = powertools(EventType.SQS, event["Records"])
    assert returned == their_returned
    assert sorted(seen) == sorted(their_seen)


@given(names(), WORKERS)
def test_a_fifo_queue_returns_and_processes_the_same(drawn: list[str], workers: int) -> None:
    event = fifo(*drawn)
    returned, seen = ours(sqs_handler, event, workers)
    try:
        their_returned, their_seen = theirs(SqsFifoPartialProcessor(skip_group_on_error=True), event["Records"])
    except BatchProcessingError:
        assert returned == [record["messageId"] for record in event["Records"]]
    else:
        assert returned == their_returned
        assert sorted(seen) == sorted(their_seen)
    for group in "abc":  # whatever the number of workers
        members = [name for name in drawn if name[0] == group]
        assert [name for name in seen if name[0] == group] == members[: sum(name[0] == group for name in seen)]


@pytest.mark.parametrize(
    ("decorator", "make", "kind"),
    [
        (kinesis_handler, kinesis, EventType.KinesisDataStreams),
        (dynamodb_stream_handler, dynamodb, EventType.DynamoDBStreams),
    ],
)
@given(drawn=names())
def test_a_stream_restarts_from_the_same_record(
    decorator: Any, make: Callable[..., Any], kind: EventType, drawn: Any
) -> None:
    event = make(drawn)
    returned, seen = ours(decorator, event)
    their_returned, _ = powertools(kind, event["Records"])
    assert returned[:1] == their_returned[:1]
    assert set(returned) >= set(their_returned)
    assert len(seen) == len(drawn) - max(0, len(returned) - 1)  # and nothing behind it


@given(names(), names(), WORKERS)
def test_a_partition_of_kafka_restarts_from_the_same_record(p0: list[str], p1: list[str], workers: int) -> None:
    event = kafka(p0=p0, p1=p1)
    returned, _ = ours(partial(kafka_handler, provisioned_mode=True), event, workers)
    their_returned, _ = powertools(EventType.Kafka, [record for records in event["records"].values() for record in records])
    for partition in ("orders-0", "orders-1"):
        offsets, their_offsets = (
            [identifier["offset"] for identifier in found if identifier["partition"] == partition]
            for found in (returned, their_returned)
        )
        assert offsets[:1] == their_offsets[:1]
        assert set(offsets) >= set(their_offsets)


# ---------------------------------------------------------------- the differences, one by one


def test_when_every_fifo_record_fails_powertools_hides_which() -> None:
    event = fifo("a0!", "b1!")
    with pytest.raises(BatchProcessingError):
        theirs(SqsFifoPartialProcessor(skip_group_on_error=True), event["Records"])
    assert ours(sqs_handler, event)[0] == ["id-a0!", "id-b1!"]


def test_fifo_records_without_a_group_are_one_group_here() -> None:
    event = {"Records": [sqs_record(name, arn=FIFO) for name in ("a0", "a1!", "a2")]}
    assert theirs(SqsFifoPartialProcessor(skip_group_on_error=True), event["Records"])[0] == ["id-a1!"]
    assert ours(sqs_handler, event)[0] == ["id-a1!", "id-a2"]


def test_a_malformed_record_behind_a_failure_takes_no_batch_with_it_here() -> None:
    pytest.importorskip("pydantic")
    from aws_lambda_powertools.utilities.parser.models import SqsRecordModel  # noqa: PLC0415  # only where there is pydantic

    event = fifo("a0", "b1!", "b2")
    event["Records"][2]["attributes"] = {"MessageGroupId": "b"}  # of which the model asks for more
    processor = SqsFifoPartialProcessor(model=SqsRecordModel, skip_group_on_error=True)

    def each(record: Any) -> None:
        fail_on_poison(record.body)

    with pytest.raises(ValueError, match="validation error"), processor(records=event["Records"], handler=each) as batch:
        batch.process()
    assert ours(sqs_handler, event)[0] == ["id-b1!", "id-b2"]
