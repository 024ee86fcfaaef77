"""Handlers that use transactions of DynamoDB, right and wrong, as the explorer sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from onewrite import Message
from onewrite.testing import Faults
from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import MakeTable

DEPOSIT = Message("m1", body=10)
OTHER = Message("m2", body=5)


@pytest.fixture
def world(moto_table: MakeTable) -> Callable[[], Any]:
    """The client of a table of accounts and one of messages."""

    def world() -> Any:
        moto_table("inbox", "id")
        accounts = moto_table("accounts", "id")
        accounts.put_item(Item={"id": "ann", "balance": 0})
        return accounts.meta.client

    return world


def balance(client: Any) -> int:
    return int(client.get_item(TableName="accounts", Key={"id": "ann"}, ConsistentRead=True)["Item"]["balance"])


def note(message: Message) -> Any:
    return {"Put": {"TableName": "inbox", "Item": {"id": message.id}, "ConditionExpression": "attribute_not_exists(id)"}}


def deposit(message: Message) -> Any:
    update = {"UpdateExpression": "ADD balance :n", "ExpressionAttributeValues": {":n": message.body}}
    return {"Update": {"TableName": "accounts", "Key": {"id": "ann"}, **update}}


# ---------------------------------------------------------------- tokens


@pytest.fixture
def machine(world: Callable[[], Any]) -> Machine:
    return Machine(world)


def test_a_token_is_remembered_at_its_state_and_not_before(machine: Machine) -> None:
    client = machine.stores(machine.perform)
    for _ in range(3):
        machine.reset()
        for _ in range(2):
            answer = client.transact_write_items(TransactItems=[deposit(DEPOSIT)], ClientRequestToken="t")
            assert answer["ResponseMetadata"]["HTTPStatusCode"] == 200
            assert balance(client) == 10
        machine.forget_tokens()
        client.transact_write_items(TransactItems=[deposit(DEPOSIT)], ClientRequestToken="t")
        assert balance(client) == 20


def test_token_with_other_parameters_is_refused(machine: Machine) -> None:
    client = machine.stores(machine.perform)
    client.transact_write_items(TransactItems=[deposit(DEPOSIT)], ClientRequestToken="t")
    client.transact_write_items(
        TransactItems=[deposit(DEPOSIT)], ClientRequestToken="t", ReturnConsumedCapacity="TOTAL"
    )  # what is asked about the answer may differ
    with pytest.raises(client.exceptions.IdempotentParameterMismatchException):
        client.transact_write_items(TransactItems=[deposit(OTHER)], ClientRequestToken="t")
    assert balance(client) == 10


def test_the_token_of_a_cancelled_transaction_is_not_remembered(machine: Machine) -> None:
    client = machine.stores(machine.perform)
    client.put_item(TableName="inbox", Item={"id": "m1"})
    arguments = {"TransactItems": [note(DEPOSIT), deposit(DEPOSIT)], "ClientRequestToken": "t"}
    with pytest.raises(client.exceptions.TransactionCanceledException):
        client.transact_write_items(**arguments)
    client.delete_item(TableName="inbox", Key={"id": "m1"})
    client.transact_write_items(**arguments)
    assert balance(client) == 10


@pytest.mark.parametrize("token", [{}, {"ClientRequestToken": "t"}], ids=["botocore's token", "the handler's token"])
def test_request_is_retried_with_its_token_after_lost_response(token: Any, world: Callable[[], Any]) -> None:
    client = world()
    faults = Faults(client)
    faults.lose_answer(1)
    answer = faults.store.transact_write_items(TransactItems=[deposit(DEPOSIT)], **token)
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1
    assert balance(client) == 10
    faults.assert_all_used()
