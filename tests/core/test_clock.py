"""Whatever takes a clock refuses one that shows no time of the calendar, before it sends or stores anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from onewrite import ConfigurationError, Event, Message, Outbox, SeenIds, Tombstones, metrics
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import sqs_message_id
from onewrite.outbox import Relay, SweepReport
from onewrite.outbox import metrics as relay_metrics
from onewrite.testing import moto_table, sqs_event

NOW = 1_790_000_000.0
WRONG: dict[str, Callable[[], Any]] = {
    "milliseconds": lambda: NOW * 1000,
    "since the machine started": time.monotonic,
    "a datetime": lambda: datetime.now(UTC),
    "isn't a number": lambda: float("nan"),
}
wrong = pytest.mark.parametrize("clock", WRONG.values(), ids=WRONG)
ADD: Any = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}


def refused() -> pytest.RaisesExc[ConfigurationError]:
    return pytest.raises(ConfigurationError, match="seconds since 1970")


@wrong
def test_relay_does_nothing_under_a_wrong_clock(clock: Callable[[], Any]) -> None:
    with moto_table("orders", key="id") as orders:
        outbox, tombstones = Outbox("shop"), Tombstones(timedelta(days=1))
        store = GuardedTable(orders, SeenIds(), outbox=outbox, tombstones=tombstones)
        store.update_item(Message("m1"), Key={"id": "a"}, emit=[Event("A", 1)], **ADD)
        store.delete_item(Message("m2"), Key={"id": "a"}, emit=[Event("B", 2)])
        before, published = orders.scan()["Items"], list[Any]()
        relay = Relay(store, published.extend, clock=clock)
        for act in (relay.sweep, relay.pending, lambda: relay.notify([{"id": "a"}]), lambda: relay.flush(Key={"id": "a"})):
            with refused():
                act()
        assert (published, orders.scan()["Items"]) == ([], before)


@wrong
def test_handler_processes_no_records_under_a_wrong_clock(clock: Callable[[], Any]) -> None:
    processed = list[Message]()
    handler = sqs_handler(sqs_message_id(), clock=clock)(processed.append)
    with refused():
        handler(sqs_event("a"), None)
    assert processed == []


@wrong
@pytest.mark.parametrize("emf", [metrics.emf, relay_metrics.emf], ids=["of messages", "of passes"])
def test_metrics_are_not_written_under_a_wrong_clock(clock: Callable[[], Any], emf: Any) -> None:
    written = list[str]()
    hook = emf(clock=clock, write=written.append)
    with refused():
        hook(*((None, None, 0.1) if emf is metrics.emf else (SweepReport(),)))
    assert written == []
