"""Powertools' idempotency around a plain increment, and the same increment through onewrite: what the explorer measures."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, TypeAlias

import boto3
import pytest
import time_machine
from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.testing import lambda_context
from tests.gallery.cases import NOW, balances, deposit

C1 = {"id": "c1"}
LEASE = 30_000  # milliseconds: what the Lambda function has left when its record is made
BETWEEN = 60  # seconds from one delivery to the next: by then the lease is over, and Lambda has ended the function


REPLAY_CODES = {  # of schedules in which the record is put, and the answer to the business write is lost in this way
    "the process dies": "1.072f.1a1aA.db78",
    "the handler raises": "1.072f.1a1aL1a.7805",
    "botocore sends it again": "1.072f.1a1aR1a.f67f",
}

Handler: TypeAlias = Callable[[Message], Any]


def add(message: Message) -> dict[str, Any]:
    values = {":n": message.body["amount"]}
    return {"Key": C1, "UpdateExpression": "ADD balance :n", "ExpressionAttributeValues": values}


def plainly(customers: Any) -> Handler:
    return lambda message: customers.update_item(**add(message))


def guarded(table: Any) -> Handler:
    customers = GuardedTable(table, SeenIds())
    return lambda message: customers.update_item(message, **add(message))


def with_powertools(work: Callable[[Any], Handler]) -> Callable[[Any], Handler]:
    """The work under Powertools' decorator; each delivery is a minute later than the one before."""

    def build(stores: Any) -> Handler:
        minutes = itertools.count(NOW, BETWEEN)
        handle_once = work(stores["customers"])
        records = DynamoDBPersistenceLayer("idempotency", boto3_client=stores["idempotency"])
        context: Any = lambda_context(remaining_ms=LEASE)
        config = IdempotencyConfig(lambda_context=context)

        @idempotent_function(  # type: ignore[untyped-decorator]  # Powertools does not say what it gives
            data_keyword_argument="message_id", persistence_store=records, config=config, key_prefix="deposits"
        )
        def book(message_id: str, message: Message) -> None:
            handle_once(message)

        def handle(message: Message) -> None:
            with time_machine.travel(next(minutes), tick=False):
                book(message_id=message.id, message=message)

        return handle

    return build


@pytest.fixture
def bounds(moto_table: Any) -> dict[str, Any]:
    """One delivery at a time: Lambda ends a function before the lease of its record is over."""

    def world() -> dict[str, Any]:
        moto_table("idempotency", key="id")
        return {"customers": moto_table("customers", key="id"), "idempotency": boto3.client("dynamodb")}

    return {
        "messages": [deposit(1)],
        "world": world,
        "observe": lambda stores: balances(stores["customers"]),
        "concurrency": 1,
    }


def test_powertools_doubles_the_effect_after_a_crash(explore: Any, bounds: dict[str, Any]) -> None:
    found = explore(with_powertools(plainly), **bounds).counterexample
    assert (found.expected, found.observed) == (({"c1": 10},), {"c1": 20})
    assert found.replay_code == REPLAY_CODES["the process dies"]


@pytest.mark.parametrize("replay_code", REPLAY_CODES.values(), ids=REPLAY_CODES)
def test_powertools_increment_is_doubled_if_replayed(explore: Any, bounds: dict[str, Any], replay_code: str) -> None:
    found = explore(with_powertools(plainly), **bounds, replay=replay_code).counterexample
    assert (found.expected, found.observed) == (({"c1": 10},), {"c1": 20})


def test_onewrite_applies_the_same_increment_once(explore: Any, bounds: dict[str, Any]) -> None:
    def build(stores: Any) -> Handler:
        return guarded(stores["customers"])

    for wider in ({}, {"messages": [deposit(1), deposit(2)], "concurrency": 2}):
        report = explore(build, **{**bounds, **wider})
        report.assert_effectively_once()
        assert report.exhausted


def test_powertools_and_onewrite_work_together(explore: Any, bounds: dict[str, Any]) -> None:
    report = explore(with_powertools(guarded), **bounds)
    report.assert_effectively_once()
    assert report.exhausted
