"""The rules of a plan, without an engine. tests/engines/test_costs.py compares them with the engines."""

from __future__ import annotations

from typing import Any

import bson
import pytest

from onewrite import HighWaterMark, SeenIds
from onewrite.core.ledgers import Ledger
from onewrite.operate.plan.dynamodb import ItemLedger, OnDynamoDB, SecondaryIndex
from onewrite.operate.plan.inputs import BIRTH, DAY, SECOND, Inputs, MessageStream, Texts, stream_of
from onewrite.operate.plan.mongodb import Repeated, document_size
from onewrite.operate.plan.ways import full_after, highest, sizes, sustained_rate
from tests.support.write_units import bill

BY_A = SecondaryIndex("by a", ("a",), ("id",), ())
WIDE = SecondaryIndex("wide", ("a",), ("id",), None)
SOME = SecondaryIndex("some", ("a",), ("id",), ("b",))
BIG = "x" * 2000
TEXTS = Texts(36, 16, 1)


@pytest.mark.parametrize(
    ("before", "after", "table", "indexes"),
    [
        (None, {"id": "1"}, 1, {}),
        ({"id": "1"}, {"id": "1", "a": "k"}, 1, {"by a": 1, "wide": 1, "some": 1}),
        ({"id": "1", "a": "k"}, {"id": "1", "a": "k", "c": BIG}, 2, {"wide": 2}),
        ({"id": "1", "a": "k"}, {"id": "1", "a": "k", "b": "v"}, 1, {"wide": 1, "some": 1}),
        ({"id": "1", "a": "k", "b": BIG}, {"id": "1", "a": "l", "b": "v"}, 2, {"by a": 2, "wide": 3, "some": 3}),
        ({"id": "1", "a": "k"}, {"id": "1", "a": "k"}, 1, {}),
    ],
)
def test_a_write_is_charged_for_the_table_and_for_each_index_in_which_something_changes(
    before: dict[str, Any] | None, after: dict[str, Any], table: int, indexes: dict[str, int]
) -> None:
    assert bill(before, after, [BY_A, WIDE, SOME]) == (table, indexes)


@pytest.mark.parametrize("count", [0, 1, 10, 11, 12_345])
@pytest.mark.parametrize("mark", [b"0123456789", "an id", 7])
def test_many_marks_have_the_size_that_bson_gives_them(count: int, mark: Any) -> None:
    held = {"label": "ow1 all", "ids": {"r1": Repeated(mark, count)}}
    assert document_size(held) == len(bson.encode({"label": "ow1 all", "ids": {"r1": [mark] * count}}))


@pytest.mark.parametrize("ledger", [SeenIds(), SeenIds(readable=True)], ids=str)
@pytest.mark.few(1)
def test_a_ledger_is_never_larger_or_smaller_than_its_extremes(ledger: Ledger) -> None:
    sized, stream = ItemLedger(ledger, TEXTS), stream_of(1 / 3600)
    found = sizes(sized, stream, 100 * DAY)
    assert found.high == highest(sized, stream, 100 * DAY)
    every = [
        sum(part.size(stream, BIRTH + hour * 3600 * SECOND) for part in sized.parts) for hour in range(80 * 24, 100 * 24)
    ]
    assert found.low <= min(every) <= max(every) <= found.high
    assert found.high <= max(every) + 20  # at no hour is everything at its largest, but nearly


def test_an_entity_is_full_with_the_message_that_is_one_too_many() -> None:
    sized, stream = ItemLedger(SeenIds(None), TEXTS), MessageStream(DAY)
    room = sum(part.size(stream, BIRTH + 30 * DAY) for part in sized.parts)
    full = full_after(sized, sized.limit - room, stream)
    assert full is not None
    assert 30 < full <= 31 + 1e-6
    assert full_after(sized, 300, MessageStream(100 * 365 * DAY)) is None


def test_a_bounded_ledger_is_full_before_it_forgets_or_never() -> None:
    sized = ItemLedger(SeenIds(), TEXTS)
    assert full_after(sized, 300, stream_of(1500 / 86_400)) is None
    full = full_after(sized, 300, stream_of(2200 / 86_400))
    assert full is not None
    assert 14 < full < 22


def test_at_the_most_messages_that_it_takes_for_ever_an_entity_is_neither_full_nor_throttled() -> None:
    inputs = Inputs(engine="dynamodb", item_bytes=300, per_day=10, entities=1)
    engine = OnDynamoDB(inputs)
    for ledger in (SeenIds(), HighWaterMark()):
        most = sustained_rate(ledger, inputs, engine)
        assert most is not None
        for rate, bears in ((most, True), (most * 1.01, False)):
            size = highest(engine.sized_ledger(ledger), stream_of(rate), inputs.lifetime)
            assert (300 + size <= engine.limit and rate * engine.load(ledger, size) <= 1000) is bears
