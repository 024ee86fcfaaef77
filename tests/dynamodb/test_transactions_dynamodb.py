"""Handlers that use transactions of DynamoDB, right and wrong, as the explorer sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from botocore.exceptions import ClientError

from onewrite import Message
from onewrite.testing import Faults, explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.schedule import Bounds, Delivery, Fault, Progress, ScheduleStep, TakenStep, independent
from onewrite.testing.explorer.subject import Subject
from onewrite.testing.explorer.trial import Trial
from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import MakeTable, moto_tables
from onewrite.testing.taps.traffic import Request, commute

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
@pytest.mark.parametrize("messages", [(DEPOSIT,), (DEPOSIT, OTHER)], ids=["one message", "two messages"])
def test_an_inbox_in_one_transaction_is_right(build: Build, messages: tuple[Message, ...], world: Callable[[], Any]) -> None:
    report = explored(build, world, *messages)
    report.assert_effectively_once()
    assert report.exhausted


def test_each_delivery_may_make_a_token_of_its_own(world: Callable[[], Any]) -> None:
    def build(client: Any) -> Handler:
        numbers = iter(range(100))
        return sends(token=lambda message: f"{message.id}, {next(numbers)}")(client)

    report = explored(build, world, concurrency=1)
    assert report.counterexample is None


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


def test_a_transaction_without_its_mark_is_found(world: Callable[[], Any]) -> None:
    def build(client: Any) -> Handler:
        def handle(message: Message) -> None:
            client.transact_write_items(TransactItems=[deposit(message)])

        return handle

    report = explored(build, world)
    assert report.counterexample is not None
    assert report.counterexample.observed == 20


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
        assert machine.forget_tokens()
        assert not machine.forget_tokens()
        client.transact_write_items(TransactItems=[deposit(DEPOSIT)], ClientRequestToken="t")
        assert balance(client) == 20


def test_states_with_and_without_a_token_are_different(machine: Machine) -> None:
    client = machine.stores(machine.perform)
    client.transact_write_items(TransactItems=[deposit(DEPOSIT)], ClientRequestToken="t")
    with_token = machine.state
    machine.forget_tokens()
    assert machine.state != with_token
    machine.reset()
    client.transact_write_items(TransactItems=[deposit(DEPOSIT)])
    assert machine.state != with_token
    machine.reset()
    client.transact_write_items(TransactItems=[deposit(DEPOSIT)], ClientRequestToken="t")
    assert machine.state is with_token
    assert not machine.forget_tokens({"another"})
    assert machine.state is with_token


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


def sent_twice_by_the_driver(build: Build, world: Callable[[], Any]) -> int:
    """The balance after a delivery whose answer is lost, so botocore sends its request again."""
    subject = Subject(build, [DEPOSIT], world, Bounds(), 10)
    try:
        trial = Trial(subject)
        trial.take(ScheduleStep(Delivery(0, 0), Fault.RETRIED))
        (step,) = trial.steps
        assert len(step.answers) == 2
        assert step.answers[1].value is None or step.answers[1].value["ResponseMetadata"]["RetryAttempts"] == 1
        trial.abandon()
        return balance(subject.stores)
    finally:
        subject.close()


@pytest.mark.parametrize("token", [{}, {"ClientRequestToken": "t"}], ids=["botocore's token", "the handler's token"])
def test_what_the_driver_sends_again_takes_effect_once(token: Any, world: Callable[[], Any]) -> None:
    def build(client: Any) -> Handler:
        return lambda message: client.transact_write_items(TransactItems=[deposit(message)], **token)

    assert sent_twice_by_the_driver(build, world) == 10


def test_what_has_no_token_takes_effect_twice(world: Callable[[], Any]) -> None:
    def build(client: Any) -> Handler:
        return lambda message: client.update_item(**deposit(message)["Update"])

    assert sent_twice_by_the_driver(build, world) == 20


def test_a_lost_answer_by_plan_is_sent_again_with_the_token_that_botocore_made(world: Callable[[], Any]) -> None:
    client = world()
    faults = Faults(client)
    faults.lose_answer(1)
    answer = faults.store.transact_write_items(TransactItems=[deposit(DEPOSIT)])
    assert answer["ResponseMetadata"]["RetryAttempts"] == 1
    assert balance(client) == 10
    faults.assert_all_used()


def test_requests_with_one_token_do_not_commute() -> None:
    def request(name: str, token: str) -> Request:
        arguments = {"ClientRequestToken": token}
        return Request("s", "TransactWriteItems", arguments, (("t", name),), writes=True, tables=("t",))

    assert commute(request("a", "1"), request("b", "2"))
    assert not commute(request("a", "1"), request("b", "1"))


def test_a_step_after_which_tokens_were_forgotten_is_independent_of_none() -> None:
    def taken(message: int, *, reaches_others: bool) -> TakenStep:
        request = Request("s", "GetItem", {}, (("t", message),), writes=False, tables=("t",))
        return TakenStep(
            ScheduleStep(Delivery(message, 0)),
            request,
            message,
            has_ended=True,
            settled_parts=(message,),
            reaches_others=reaches_others,
        )

    start = Progress.at_start(Bounds(), [frozenset[object](), frozenset[object]()])
    assert independent(start, taken(0, reaches_others=False), taken(1, reaches_others=False))
    assert not independent(start, taken(0, reaches_others=True), taken(1, reaches_others=False))
    assert not independent(start, taken(0, reaches_others=False), taken(1, reaches_others=True))
