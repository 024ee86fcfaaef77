"""Handlers that use transactions of DynamoDB, right and wrong, as the explorer sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from botocore.exceptions import ClientError

from onewrite import Message
from onewrite.testing import Faults, explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import MakeTable, moto_tables

Handler: TypeAlias = Callable[[Message], Any]
Build: TypeAlias = Callable[[Any], Handler]

DEPOSIT = Message("m1", body=10)
OTHER = Message("m2", body=5)


@pytest.fixture
def make() -> Iterator[MakeTable]:
    with moto_tables() as made:
        yield made


@pytest.fixture
def world(make: MakeTable) -> Callable[[], Any]:
    """The client of a table of accounts and one of messages."""

    def world() -> Any:
        make("inbox", "id")
        accounts = make("accounts", "id")
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


def is_duplicate(error: ClientError) -> bool:
    reasons: Any = error.response.get("CancellationReasons", [{}])
    return bool(reasons[0].get("Code") == "ConditionalCheckFailed")


def sends(token: Callable[[Message], str] | None = None) -> Build:
    """An inbox in one transaction, with this `ClientRequestToken` of a message, or without any."""

    def build(client: Any) -> Handler:
        def handle(message: Message) -> None:
            given = {} if token is None else {"ClientRequestToken": token(message)}
            try:
                client.transact_write_items(TransactItems=[note(message), deposit(message)], **given)
            except ClientError as error:
                if not is_duplicate(error):
                    raise

        return handle

    return build


def sends_alone(token: Callable[[Message], str]) -> Build:
    """Nothing but a token keeps a deposit from being made twice."""

    def build(client: Any) -> Handler:
        def handle(message: Message) -> None:
            client.transact_write_items(TransactItems=[deposit(message)], ClientRequestToken=token(message))

        return handle

    return build


def explored(build: Build, world: Callable[[], Any], *messages: Message, **options: Any) -> Exploration:
    return explore(build, messages or [DEPOSIT], world, balance, **options)


# ---------------------------------------------------------------- right


@pytest.mark.parametrize("build", [sends(), sends(token=lambda message: message.id)], ids=["no token", "the id for a token"])
def test_an_inbox_in_one_transaction_is_right(build: Build, world: Callable[[], Any]) -> None:
    report = explored(build, world, DEPOSIT, OTHER)
    report.assert_effectively_once()
    assert report.exhausted


# ---------------------------------------------------------------- wrong


def test_a_token_alone_is_forgotten_before_the_last_redelivery(world: Callable[[], Any]) -> None:
    report = explored(sends_alone(lambda message: message.id), world)
    assert report.counterexample is not None
    assert (report.counterexample.expected, report.counterexample.observed) == ((10,), 20)


def test_a_token_that_is_the_same_for_two_messages_loses_one(world: Callable[[], Any]) -> None:
    twin = Message("m3", body=10)
    report = explored(sends_alone(lambda message: f"{message.body}"), world, DEPOSIT, twin, deliveries=1, faults=0)
    assert report.counterexample is not None
    assert (report.counterexample.expected, report.counterexample.observed) == ((20,), 10)


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


def test_a_token_with_other_parameters_is_refused_as_the_client_refuses_it(machine: Machine) -> None:
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
def test_a_lost_answer_by_plan_is_sent_again_with_the_same_token(token: Any, world: Callable[[], Any]) -> None:
    client = world()
    faults = Faults(client)
    faults.lose_answer(1)
    answer = faults.store.transact_write_items(TransactItems=[deposit(DEPOSIT)], **token)
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1
    assert balance(client) == 10
    faults.assert_all_used()
