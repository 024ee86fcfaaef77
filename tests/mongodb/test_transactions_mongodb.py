"""Handlers that misuse transactions of MongoDB, as the explorer sees them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from pymongo.errors import DuplicateKeyError, OperationFailure

from onewrite import ConfigurationError, Message
from onewrite.testing import explore
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.standins.stores import mongomock_collection
from tests.support.handlers import build_from

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


# ---------------------------------------------------------------- wrong


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


def test_write_skew_of_two_messages_is_found() -> None:
    report = explored(write_skew, DEPOSIT, OTHER, deliveries=1, faults=0)
    assert report.counterexample is not None


def test_callback_that_swallows_a_duplicate_is_never_committed() -> None:
    """The server has aborted the transaction, so `with_transaction` begins it again and again."""

    def handle(accounts: Any, message: Message) -> None:
        def body(session: Any) -> None:
            with suppress(DuplicateKeyError):
                note(accounts, message, session=session)
                deposit(accounts, message, session=session)

        with accounts.database.client.start_session() as session:
            session.with_transaction(body)

    report = explored(build_from(handle), faults=1, deliveries=1)
    assert report.counterexample is not None
    assert "m1 never settled" in report.counterexample.reason


def test_write_outside_its_own_transaction_makes_the_commit_fail() -> None:
    """As the transaction is never committed, what it writes is no part of what is expected."""

    def handle(accounts: Any, message: Message) -> None:
        with accounts.database.client.start_session() as session:
            session.start_transaction()
            accounts.update_one({"_id": "ann"}, {"$inc": {"balance": 1}}, session=session)
            accounts.update_one({"_id": "ann"}, {"$inc": {"balance": message.body}})
            with pytest.raises(OperationFailure, match="WriteConflict") as caught:
                session.commit_transaction()
            assert caught.value.code == 112

    report = explored(build_from(handle), faults=0)
    assert report.counterexample is not None
    assert (report.counterexample.expected, report.counterexample.observed) == (
        ({"ann": 10, "bob": 100},),
        {"ann": 20, "bob": 100},
    )


# ---------------------------------------------------------------- what a report says


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
def test_operation_unsupported_in_a_transaction_is_refused_by_name(what: str, ask: Callable[[Any, Any], Any]) -> None:
    def handle(accounts: Any, _: Message) -> None:
        with accounts.database.client.start_session() as session, session.start_transaction():
            ask(accounts, session)

    with pytest.raises(
        ConfigurationError, match=f"^{what} can't be part of a transaction, because MongoDB refuses it there"
    ):
        explored(build_from(handle))
