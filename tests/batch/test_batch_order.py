"""Messages whose source keeps no order are taken by their sequence, and a failed one holds its source back."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from onewrite import (
    Applied,
    Deferred,
    Duplicate,
    HighWaterMark,
    InSequence,
    Message,
    Missing,
    Outcome,
)
from onewrite.aws_lambda import sqs_handler
from onewrite.batch.order import RecordState, find_order
from onewrite.mongodb import GuardedCollection
from onewrite.testing import mongomock_collection
from tests.support.batches import FIFO, Clock, Context, identifiers, sqs, sqs_record
from tests.support.seams import measure_by


def by_place(record: Any) -> Message:
    """The body is the source and the sequence, as `a3`; a body of letters only has no sequence."""
    body = record["body"]
    place = body[1:]
    return Message(body, body[0], int(place) if place.isdigit() else None)


def read(*places: tuple[str, int | str]) -> RecordState:
    """A record with a message at each place, as read by a handler."""
    messages = tuple([Message(f"{source}{number}", source, number) for source, number in places])
    return RecordState(None, 0, messages, None, messages, float)


class Counting:
    """Lets each source in from 1 on, as `InSequence` does."""

    def __init__(self) -> None:
        self.last: Counter[str] = Counter()
        self.calls: list[str] = []
        self._lock = threading.Lock()

    def __call__(self, message: Message) -> Outcome:
        with self._lock:
            self.calls.append(message.id)
            assert isinstance(message.sequence, int)
            if message.sequence <= self.last[message.source]:
                return Duplicate(message)
            if message.sequence > self.last[message.source] + 1:
                return Deferred(message, self.last[message.source] + 1)
            self.last[message.source] += 1
            return Applied(message)


# ---------------------------------------------------------------- who is taken first


def test_equal_sequences_keep_order_and_types_are_not_compared() -> None:
    sequences: list[int | str] = ["b", 5, "a", 5, 1]
    assert find_order([read(("s", sequence)) for sequence in sequences])[1] == [4, 1, 3, 2, 0]


def test_records_that_share_a_source_share_a_lane() -> None:
    lanes, order = find_order(
        [read(("s", 3)), read(("t", 1)), None, read(("s", 1), ("s", 2)), read(("u", 1), ("t", 2)), read()]
    )
    assert (lanes[0], lanes[1], lanes[2], lanes[5]) == (lanes[3], lanes[4], None, None)
    assert lanes[0] != lanes[1]
    assert order == [3, 1, 2, 0, 4, 5]


class Throttled:
    """An entity with a mark for each source, in which the write of one message fails at first."""

    def __init__(self, failing: str) -> None:
        self.collection, self.failing = mongomock_collection("c"), failing
        self.marks = GuardedCollection(self.collection, HighWaterMark())

    def __call__(self, message: Message) -> Outcome:
        if message.id == self.failing:
            raise TimeoutError
        return self.marks.update_one(message, {"_id": "e"}, {"$push": {"ids": message.id}}, upsert=True)

    @property
    def ids(self) -> list[str]:
        return (self.collection.find_one({"_id": "e"}) or {}).get("ids", [])


def in_batches(handle: Throttled, **options: Any) -> Any:
    return sqs_handler(by_place, **options)(handle)


def in_groups(handle: Throttled, **options: Any) -> Any:
    def each(messages: list[Message]) -> list[Outcome]:
        return [handle(message) for message in messages]

    return sqs_handler(by_place, group_by=lambda message: message.id > "b2", **options)(each)


def in_tasks(handle: Throttled, **options: Any) -> Any:
    async def each(message: Message) -> Outcome:
        return handle(message)

    return sqs_handler(by_place, **options)(each)


@pytest.mark.parametrize("make", [in_batches, in_groups, in_tasks], ids=lambda make: make.__name__)
@pytest.mark.parametrize("workers", [1, 4])
def test_failed_record_holds_its_source_back(make: Callable[..., Any], workers: int) -> None:
    """A later record would move the mark past the failed one, which would be Stale, and lost."""
    handle = Throttled("a2")
    batch = sqs(["a1", "a3", "b1", "a2", "b2", "b3"])
    handler = make(handle, max_workers=workers)
    assert sorted(identifiers(handler(batch))) == ["id-a2", "id-a3"]
    handle.failing = ""
    assert identifiers(handler(batch)) == []
    assert sorted(handle.ids) == ["a1", "a2", "a3", "b1", "b2", "b3"]


def test_order_of_a_fifo_queue_is_kept() -> None:
    counting = Counting()
    event = {"Records": [sqs_record(name, arn=FIFO, group="g") for name in ("a2", "a1")]}
    assert identifiers(sqs_handler(by_place)(counting)(event)) == ["id-a2", "id-a1"]
    assert counting.calls == ["a2"]


def test_slow_identity_reads_no_further_than_time_allows() -> None:
    clock, read = Clock(), list[str]()

    def slow(record: Any) -> Message:
        clock.now += 1.0
        read.append(record["body"])
        return by_place(record)

    report = measure_by(sqs_handler(slow, margin=1.0)(Counting()), clock).run(
        sqs([f"a{number}" for number in range(1, 10)]), Context(lambda: 4.5 - clock.now)
    )
    assert read == ["a1", "a2", "a3", "a4"]
    assert len(report.returned) == 9


# ---------------------------------------------------------------- who is tried again


def by_places(record: Any) -> list[Message]:
    return [by_place({"body": place}) for place in record["body"].split()]


def test_record_with_several_messages_is_sorted_by_all_its_sources() -> None:
    counting = Counting()
    assert identifiers(sqs_handler(by_places)(counting)(sqs(["a2", "a3", "b1 a1"]))) == []
    assert counting.calls == ["b1", "a1", "a2", "a3"]


def test_earlier_message_of_a_failed_source_is_not_held() -> None:
    """Each record has a message that fails until the other record's first one is in."""
    calls: list[str] = []

    def each(message: Message) -> Outcome:
        calls.append(message.id)
        return Missing(message) if message.sequence == 2 and f"{message.source}1" not in calls else Applied(message)

    handler = sqs_handler(by_places)(each)
    assert identifiers(handler(sqs(["a1 b2", "b1 a2", "b3"]))) == ["id-a1 b2", "id-b3"]
    assert calls == ["a1", "b2", "b1", "a2"]


# ---------------------------------------------------------------- over several deliveries


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sources", ["abcde", "abcdefghij"])
def test_displacement_of_ten_needs_at_most_three_deliveries(sources: str, seed: int) -> None:
    """A standard queue: what has failed is redelivered when its visibility timeout is over, behind ten others."""
    rng = random.Random(seed)
    places = [f"{source}{number}" for number in range(1, 100 // len(sources) + 1) for source in sources]
    waiting = [name for _, name in sorted((place + rng.uniform(0, 10), name) for place, name in enumerate(places))]
    received: Counter[str] = Counter()
    with mongomock_collection() as collection:
        orders = GuardedCollection(collection, InSequence())
        change: dict[str, Any] = {"$inc": {"n": 1}}
        handler = sqs_handler(by_place)(
            lambda message: orders.update_one(message, {"_id": message.source}, change, upsert=True)
        )
        while waiting:
            batch, waiting = waiting[:10], waiting[10:]
            received.update(batch)
            failed = {identifier.removeprefix("id-") for identifier in identifiers(handler(sqs(batch)))}
            waiting = waiting[:10] + [name for name in batch if name in failed] + waiting[10:]
        found = {each["_id"]: each["n"] for each in collection.find({})}
    assert found == dict.fromkeys(sources, 100 // len(sources))
    assert max(received.values()) <= 3
