"""Handlers that use transactions of MongoDB, right and wrong, as the explorer sees them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from pymongo.errors import DuplicateKeyError, OperationFailure, PyMongoError

from onewrite import ConfigurationError, Message, SeenIds
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.standins.stores import mongomock_collection

Handler: TypeAlias = Callable[[Message], Any]
Build: TypeAlias = Callable[[Any], Handler]

DEPOSIT = Message("m1", body=10)
OTHER = Message("m2", body=5)


def world() -> Any:
    accounts = mongomock_collection("accounts")
    accounts.insert_many([{"_id": "ann", "balance": 0}, {"_id": "bob", "balance": 100}])
    return accounts


def balances(accounts: Any) -> dict[str, int]:
    return {document["_id"]: document["balance"] for document in accounts.find({})}


def explored(build: Build, *messages: Message, **options: Any) -> Exploration:
    return explore(build, messages or [DEPOSIT], world, balances, **options)


def deposit(accounts: Any, message: Message, **session: Any) -> None:
    accounts.update_one({"_id": "ann"}, {"$inc": {"balance": message.body}}, **session)


def note(accounts: Any, message: Message, **session: Any) -> None:
    accounts.database.inbox.insert_one({"_id": message.id}, **session)


# ---------------------------------------------------------------- the inbox, right


def inbox_that_looks_first(accounts: Any) -> Handler:
    """Two deliveries may both find nothing. The second insert is then in conflict with the first."""

    def handle(message: Message) -> None:
        inbox = accounts.database.inbox

        def body(session: Any) -> None:
            if inbox.find_one({"_id": message.id}, session=session) is None:
                note(accounts, message, session=session)
                deposit(accounts, message, session=session)

        with accounts.database.client.start_session() as session:
            session.with_transaction(body)

    return handle


def test_inbox_that_looks_first_is_right_in_one_transaction() -> None:
    report = explored(inbox_that_looks_first)
    report.assert_effectively_once()
    assert report.exhausted
    assert report.remarks == ()


def test_a_guarded_collection_takes_part_in_a_transaction() -> None:
    def build(accounts: Any) -> Handler:
        guarded = GuardedCollection(accounts, SeenIds())

        def handle(message: Message) -> Any:
            def body(session: Any) -> Any:
                change = {"$inc": {"balance": message.body}}
                outcome = guarded.update_one(message, {"_id": "ann"}, change, session=session)
                accounts.update_one({"_id": "bob"}, {"$set": {"last": message.id}}, session=session)
                return outcome

            with accounts.database.client.start_session() as session:
                return session.with_transaction(body)

        return handle

    report = explored(build)
    report.assert_effectively_once()
    assert report.exhausted


# ---------------------------------------------------------------- wrong


def deposit_outside_of_the_transaction(accounts: Any) -> Handler:
    def handle(message: Message) -> None:
        with accounts.database.client.start_session() as session, suppress(DuplicateKeyError), session.start_transaction():
            note(accounts, message, session=session)
            deposit(accounts, message)

    return handle


def whole_again_when_unsure(accounts: Any) -> Handler:
    """Tries the whole again, without a mark, when it is not known whether the commit was done."""

    def handle(message: Message) -> None:
        with accounts.database.client.start_session() as session:
            while True:
                with suppress(PyMongoError), session.start_transaction():
                    deposit(accounts, message, session=session)
                    return session.commit_transaction()

    return handle


def write_skew(accounts: Any) -> Handler:
    """Looks in one document and writes another, which is no conflict."""

    def handle(message: Message) -> None:
        mine, other = ("ann", "bob") if message.id == "m1" else ("bob", "ann")

        def body(session: Any) -> None:
            if not (accounts.find_one({"_id": other}, session=session) or {}).get("on_call"):
                accounts.update_one({"_id": mine}, {"$set": {"on_call": True, "balance": 1}}, session=session)

        with accounts.database.client.start_session() as session:
            session.with_transaction(body)

    return handle


@pytest.mark.parametrize("build", [deposit_outside_of_the_transaction, whole_again_when_unsure])
def test_an_inbox_that_is_not_one_transaction_is_found(build: Build) -> None:
    report = explored(build)
    assert report.counterexample is not None
    assert report.counterexample.observed != report.counterexample.expected[0]


def test_write_skew_of_two_messages_is_found() -> None:
    report = explored(write_skew, DEPOSIT, OTHER, deliveries=1, faults=0)
    assert report.counterexample is not None


def test_a_callback_that_swallows_a_duplicate_never_gets_through() -> None:
    """The server has aborted the transaction, so `with_transaction` begins it again and again."""

    def build(accounts: Any) -> Handler:
        def handle(message: Message) -> None:
            def body(session: Any) -> None:
                with suppress(DuplicateKeyError):
                    note(accounts, message, session=session)
                    deposit(accounts, message, session=session)

            with accounts.database.client.start_session() as session:
                session.with_transaction(body)

        return handle

    report = explored(build, faults=1, deliveries=1)
    assert report.counterexample is not None
    assert "m1 never settled" in report.counterexample.reason


def test_write_beside_the_own_transaction_makes_its_commit_fail() -> None:
    """As the transaction is never committed, what it writes is no part of what is expected."""

    def build(accounts: Any) -> Handler:
        def handle(message: Message) -> None:
            with accounts.database.client.start_session() as session:
                session.start_transaction()
                accounts.update_one({"_id": "ann"}, {"$inc": {"balance": 1}}, session=session)
                accounts.update_one({"_id": "ann"}, {"$inc": {"balance": message.body}})
                with pytest.raises(OperationFailure, match="WriteConflict") as caught:
                    session.commit_transaction()
                assert caught.value.code == 112

        return handle

    report = explored(build, faults=0)
    assert report.counterexample is not None
    assert (report.counterexample.expected, report.counterexample.observed) == (
        ({"ann": 10, "bob": 100},),
        {"ann": 20, "bob": 100},
    )


# ---------------------------------------------------------------- what a report says


def test_report_shows_a_transaction_and_its_end() -> None:
    report = explored(deposit_outside_of_the_transaction)
    assert "insert_one inbox m1 in a transaction" in str(report)
    assert "commit_transaction inbox m1: committed" in str(report)


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("create_index", lambda accounts, session: accounts.create_index("n", session=session)),
        (
            "An aggregate that stores its result",
            lambda accounts, session: accounts.aggregate([{"$out": "a"}], session=session),
        ),
    ],
)
def test_what_mongodb_refuses_in_a_transaction_is_refused_by_name(what: str, ask: Callable[[Any, Any], Any]) -> None:
    def build(accounts: Any) -> Handler:
        def handle(_: Message) -> None:
            with accounts.database.client.start_session() as session, session.start_transaction():
                ask(accounts, session)

        return handle

    with pytest.raises(ConfigurationError, match=f"^{what} cannot be part of a transaction: MongoDB refuses it there"):
        explored(build)
