"""A handler that folds its batch into one write, as the explorer sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onewrite import HighWaterMark, Message, Outcome, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.testing import explore
from onewrite.testing.events import sqs_event
from onewrite.testing.standins.stores import MakeTable, moto_tables

KEY = {"id": "ann"}


@pytest.fixture
def make() -> Iterator[MakeTable]:
    with moto_tables() as made:
        yield made


def answered(outcomes: list[Outcome]) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": each.message.id} for each in outcomes if not each.settled]}


def added(fresh: list[Message]) -> dict[str, Any]:
    amount = sum([int(message.body) for message in fresh])
    return {"Key": KEY, "UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": amount}}


def folding(table: Any) -> Callable[[Any], dict[str, Any]]:
    accounts = GuardedTable(table, SeenIds())

    def handle(event: Any) -> dict[str, Any]:
        batch = [Message(record["messageId"], body=record["body"]) for record in event["Records"]]
        return answered(accounts.fold(batch, added))

    return handle


def number(table: Any) -> int:
    return int(table.get_item(Key=KEY).get("Item", {}).get("n", 0))


def test_a_batch_takes_effect_once_whatever_is_lost_and_comes_again(make: MakeTable) -> None:
    report = explore(folding, [sqs_event(1, 2)], lambda: make("accounts", "id"), number)
    report.assert_effectively_once()
    assert report.exhausted


def test_a_message_that_a_fold_keeps_out_for_good_is_missed_though_the_handler_returns_nothing(make: MakeTable) -> None:
    def handler(table: Any) -> Callable[[Message], None]:
        accounts = GuardedTable(table, HighWaterMark())

        def handle(message: Message) -> None:
            accounts.fold([message], added)

        return handle

    given = [Message(f"m{n}", source="s", sequence=n, body=n) for n in (1, 2)]
    report = explore(handler, given, lambda: make("accounts", "id"), number, faults=0)
    with pytest.raises(AssertionError, match="expected  3"):  # as where it is written alone: Stale is no end that counts
        report.assert_effectively_once()
