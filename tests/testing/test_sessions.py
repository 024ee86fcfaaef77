"""The sessions of a tap go through the states that pymongo's go through, and raise what pymongo's raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo.asynchronous.client_session import AsyncClientSession
from pymongo.client_session import ClientSession
from pymongo.errors import AutoReconnect, DuplicateKeyError, InvalidOperation, NetworkTimeout, OperationFailure

from onewrite import ConfigurationError
from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.failures import lost_answer_error, server_error
from onewrite.testing.taps.tap import tap
from onewrite.testing.taps.traffic import Owner, Request, TransactionKey, current_owner

TRANSIENT, UNKNOWN = "TransientTransactionError", "UnknownTransactionCommitResult"


class Server:
    """A machine behind a gate that writes down the requests, and raises what it is told to, once each."""

    def __init__(self) -> None:
        self.machine = Machine(mongomock_collection)
        self.requests: list[Request] = []
        self.failures: dict[str, list[Exception]] = {}
        self.things = self.machine.stores(self.gate)
        self.client = self.things.database.client

    def gate(self, request: Request) -> Any:
        self.requests.append(request)
        if self.failures.get(request.method):
            raise self.failures[request.method].pop(0)
        return self.machine.perform(request)

    @property
    def sent(self) -> list[str]:
        return [request.method for request in self.requests]

    def ids(self) -> list[Any]:
        return [document["_id"] for document in self.things.find({})]


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def session(server: Server) -> Iterator[Any]:
    with server.client.start_session() as session:
        yield session


def insert(server: Server, session: Any, number: int = 1) -> None:
    server.things.insert_one({"_id": number}, session=session)


# ---------------------------------------------------------------- states


def test_a_session_is_taken_for_one_of_pymongos(server: Server, session: Any) -> None:
    assert session.client == server.client == server.things.database.client
    assert isinstance(session, ClientSession)


def test_requests_carry_the_transaction_and_name_it_after_its_owner(server: Server, session: Any) -> None:
    insert(server, session, 1)
    token = current_owner.set(Owner("m1, delivery 1"))
    try:
        for number in (2, 3):
            with session.start_transaction():
                insert(server, session, number)
    finally:
        current_owner.reset(token)
    one, other = TransactionKey("m1, delivery 1", 1), TransactionKey("m1, delivery 1", 2)
    assert [(request.transaction, request.starts) for request in server.requests] == [
        (None, False), (one, True), (one, False), (other, True), (other, False),
    ]  # fmt: skip
    assert server.requests[2].keys == (("orders", 2),)
    assert [request.is_uncommitted for request in server.requests] == [False, True, False, True, False]


def test_only_the_transaction_sees_what_it_has_written_until_it_is_committed(server: Server, session: Any) -> None:
    session.start_transaction()
    insert(server, session)
    assert server.ids() == []
    assert [document["_id"] for document in server.things.find({}, session=session)] == [1]
    for _ in range(2):
        session.commit_transaction()
        assert server.ids() == [1]


def test_what_is_aborted_was_never_there(server: Server, session: Any) -> None:
    session.start_transaction()
    insert(server, session)
    session.abort_transaction()

    def fail() -> None:
        with session.start_transaction():
            insert(server, session, 2)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    session.start_transaction()
    insert(server, session, 3)
    session.end_session()
    assert server.sent.count("abort_transaction") == 3
    assert server.ids() == []


def test_a_transaction_without_an_operation_sends_nothing(server: Server, session: Any) -> None:
    with session.start_transaction():
        pass
    session.commit_transaction()
    session.start_transaction()
    session.abort_transaction()
    assert session.with_transaction(lambda _: "nothing") == "nothing"
    assert server.sent == []


def started(session: Any) -> None:
    session.start_transaction()


def empty_commit(session: Any) -> None:
    session.start_transaction()
    session.commit_transaction()


def aborted(session: Any) -> None:
    session.start_transaction()
    session.abort_transaction()


def ended(session: Any) -> None:
    session.end_session()


@pytest.mark.parametrize(
    ("before", "call", "text"),
    [
        (print, "commit_transaction", "No transaction started"),
        (started, "start_transaction", "Transaction already in progress"),
        (aborted, "commit_transaction", "Cannot call commitTransaction after calling abortTransaction"),
        (aborted, "abort_transaction", "Cannot call abortTransaction twice"),
        (empty_commit, "abort_transaction", "Cannot call abortTransaction after calling commitTransaction"),
        (ended, "start_transaction", "Cannot use ended session"),
    ],
)
def test_what_pymongo_refuses_is_refused(session: Any, before: Callable[[Any], Any], call: str, text: str) -> None:
    before(session)
    with pytest.raises(InvalidOperation, match=text):
        getattr(session, call)()


def test_an_operation_after_a_commit_is_no_part_of_a_transaction(server: Server, session: Any) -> None:
    with session.start_transaction():
        insert(server, session)
    insert(server, session, 2)
    assert server.requests[-1].transaction is None
    with pytest.raises(InvalidOperation, match="No transaction started"):
        session.commit_transaction()


def test_what_needs_a_server_is_refused_by_name(server: Server, session: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^session_id of a session cannot be tapped"):
        _ = session.session_id
    with pytest.raises(ConfigurationError, match="snapshot=True cannot be tapped"):
        server.client.start_session(snapshot=True)


# ---------------------------------------------------------------- failures


def test_an_error_of_the_server_ends_the_transaction(server: Server, session: Any) -> None:
    insert(server, None)
    session.start_transaction()
    insert(server, session, 2)
    with pytest.raises(DuplicateKeyError):
        insert(server, session)
    for call in (lambda: insert(server, session, 3), session.commit_transaction):
        with pytest.raises(OperationFailure) as caught:
            call()
        assert caught.value.code == 251
        assert caught.value.has_error_label(TRANSIENT)
    assert server.ids() == [1]


def test_an_error_of_the_driver_leaves_the_transaction_open(server: Server, session: Any) -> None:
    session.start_transaction()
    insert(server, session)
    with pytest.raises(ValueError, match="only works with"):
        server.things.update_one({"_id": 1}, {"n": 1}, session=session)
    session.commit_transaction()
    assert server.ids() == [1]


def test_who_writes_second_is_in_conflict(server: Server, session: Any) -> None:
    with server.client.start_session() as other:
        session.start_transaction()
        other.start_transaction()
        insert(server, session)
        server.things.find_one({}, session=other)
        with pytest.raises(OperationFailure, match="WriteConflict") as caught:
            insert(server, other)
        assert (caught.value.code, caught.value.has_error_label(TRANSIENT)) == (112, True)
        other.abort_transaction()
        assert "abort_transaction" not in server.sent, "the server has aborted it already"
    session.commit_transaction()
    assert server.ids() == [1]


def test_who_writes_what_was_changed_since_the_transaction_began_is_in_conflict(server: Server, session: Any) -> None:
    session.start_transaction()
    server.things.find_one({}, session=session)
    insert(server, None)
    with pytest.raises(OperationFailure, match="WriteConflict"):
        insert(server, session)


def test_who_begins_again_while_the_other_cannot_end_takes_its_place(server: Server, session: Any) -> None:
    """The explorer sends this request only if the other waits for this delivery too."""
    with server.client.start_session() as other:
        session.start_transaction()
        insert(server, session)
        other.start_transaction()
        with pytest.raises(OperationFailure, match="WriteConflict"):
            insert(server, other)
        other.abort_transaction()
        other.start_transaction()
        insert(server, other)
        other.commit_transaction()
    with pytest.raises(OperationFailure, match="has been aborted"):
        session.commit_transaction()


def test_a_plain_write_waits_for_who_has_written_before(server: Server, session: Any) -> None:
    plain = Request("orders", "insert_one", {"document": {"_id": 1}}, (("orders", 1),), writes=True, tables=("orders",))
    index = Request("orders", "create_index", {"keys": "n"}, None, writes=True, tables=("orders",))
    session.start_transaction()
    insert(server, session)
    assert {owner for owner, _ in server.machine.blockers(plain) & server.machine.blockers(index)} == {""}
    elsewhere = Request("orders", "create_index", {"keys": "n"}, None, writes=True, tables=("archive",))
    assert server.machine.blockers(elsewhere) == set()
    insert(server, None)
    assert server.ids() == [1]
    with pytest.raises(OperationFailure, match="has been aborted"):
        session.commit_transaction()


def test_values_of_a_unique_index_are_kept_for_who_wrote_them_first() -> None:
    def world() -> Any:
        things = mongomock_collection()
        things.create_index([("label.sku", 1)], unique=True, sparse=True)
        return things

    machine = Machine(world)
    things = machine.stores(machine.perform)
    client = things.database.client
    with client.start_session() as one, client.start_session() as other:
        one.start_transaction()
        other.start_transaction()
        things.insert_one({"_id": 1, "label": {"sku": "b"}}, session=one)
        things.insert_one({"_id": 2, "label": {"sku": "c"}}, session=other)
        for number, session in enumerate((one, other)):
            things.insert_one({"_id": 3 + number}, session=session)  # neither of them is in the index
        with pytest.raises(OperationFailure, match="WriteConflict"):
            things.insert_one({"_id": 5, "label": {"sku": "b"}}, session=other)


def test_a_commit_whose_answer_is_lost_has_the_label_that_pymongo_gives_it(server: Server, session: Any) -> None:
    session.start_transaction()
    insert(server, session)
    commit = Request("s", "commit_transaction", {}, (), writes=True)
    server.failures["commit_transaction"] = [lost_answer_error(server.things, commit)]
    with pytest.raises(AutoReconnect) as caught:
        session.commit_transaction()
    assert caught.value.has_error_label(UNKNOWN)
    assert not caught.value.has_error_label(TRANSIENT)
    session.commit_transaction()
    assert server.ids() == [1]


def test_a_new_transaction_takes_the_place_of_one_whose_commit_has_failed(server: Server, session: Any) -> None:
    session.start_transaction()
    insert(server, session)
    server.failures["commit_transaction"] = [AutoReconnect("connection closed")]
    with pytest.raises(AutoReconnect):
        session.commit_transaction()
    with session.start_transaction():
        insert(server, session)  # otherwise it would be in conflict with the one before
    assert server.ids() == [1]


def test_a_failed_abort_is_hidden_as_pymongo_hides_it(server: Server, session: Any) -> None:
    session.start_transaction()
    insert(server, session)
    server.failures["abort_transaction"] = [AutoReconnect("connection closed")]
    session.abort_transaction()
    with session.start_transaction():
        insert(server, session)
    assert server.ids() == [1]


# ---------------------------------------------------------------- with_transaction


def test_a_callback_is_called_again_after_a_transient_error(server: Server, session: Any) -> None:
    server.failures["find_one"] = [server_error(112, "WriteConflict", "conflict", [TRANSIENT]), AutoReconnect("closed")]
    server.failures["find_one"][1]._add_error_label(TRANSIENT)  # type: ignore[attr-defined]  # as pymongo does it

    def body(inside: Any) -> str:
        insert(server, inside)
        server.things.find_one({}, session=inside)
        return "done"

    assert session.with_transaction(body) == "done"
    assert server.sent.count("insert_one") == 3
    assert server.sent.count("abort_transaction") == 1, "after the first error there was nothing left to abort"
    assert server.ids() == [1]


def test_a_commit_is_sent_again_until_its_result_is_known(server: Server, session: Any) -> None:
    server.failures["commit_transaction"] = [AutoReconnect("closed"), AutoReconnect("closed")]
    session.with_transaction(lambda inside: insert(server, inside))
    assert server.sent == ["insert_one", *["commit_transaction"] * 3]


def test_a_callback_may_end_the_transaction_itself(server: Server, session: Any) -> None:
    def body(inside: Any) -> None:
        insert(server, inside)
        inside.abort_transaction()

    session.with_transaction(body)
    assert server.ids() == []


def test_another_error_of_the_callback_goes_out_and_the_transaction_is_aborted(server: Server, session: Any) -> None:
    def body(inside: Any) -> None:
        insert(server, inside)
        raise KeyError

    with pytest.raises(KeyError):
        session.with_transaction(body)
    assert server.sent == ["insert_one", "abort_transaction"]


def test_a_callback_that_never_gets_through_is_given_up(server: Server, session: Any) -> None:
    insert(server, None)

    def body(inside: Any) -> None:
        with pytest.raises(DuplicateKeyError):
            insert(server, inside)

    with pytest.raises(NetworkTimeout, match="has been aborted") as caught:
        session.with_transaction(body)
    assert caught.value.has_error_label(TRANSIENT)


# ---------------------------------------------------------------- asynchronous sessions


def test_an_asynchronous_session_does_the_same() -> None:
    machine = Machine(lambda: mongomock_collection(asynchronous=True))
    failing = [AutoReconnect("closed")]

    async def gate(request: Request) -> Any:
        if request.method == "commit_transaction" and failing:
            raise failing.pop()
        return await machine.aperform(request)

    async def insert_in_a_block(things: Any, session: Any, number: int) -> None:
        async with await session.start_transaction():
            await things.insert_one({"_id": number}, session=session)

    async def use(things: Any) -> list[Any]:
        client = things.database.client
        async with client.start_session() as session:
            assert isinstance(session, AsyncClientSession)
            await session.with_transaction(lambda inside: things.insert_one({"_id": 1}, session=inside))
            await insert_in_a_block(things, session, 2)
            with pytest.raises(DuplicateKeyError):
                await insert_in_a_block(things, session, 2)
        blocked = Request("orders", "insert_one", {"document": {"_id": 9}}, None, writes=True, tables=("orders",))
        async with client.start_session() as session:
            await session.start_transaction()
            await things.insert_one({"_id": 9}, session=session)
            assert {owner for owner, _ in await machine.blockers(blocked)} == {""}
        return [document["_id"] for document in await things.find({}).to_list()]

    assert asyncio.run(use(machine.stores(gate))) == [1, 2]


# ---------------------------------------------------------------- the client


def test_the_client_hands_out_the_tapped_database() -> None:
    orders, sent = mongomock_collection(), list[Request]()
    client, raw = tap(orders, sent.append, is_explored=True).database.client, orders.database.client
    assert client == raw
    for database in (client.test, client["test"], client.get_database(), client.get_database("test")):
        database.orders.insert_one({"_id": 1})
    assert len(sent) == 4


def test_what_a_client_would_send_unseen_is_refused_by_name(server: Server) -> None:
    with pytest.raises(ConfigurationError, match=r"^drop_database of a client cannot be tapped"):
        _ = server.client.drop_database
    with pytest.raises(ConfigurationError, match="The database 'other' cannot be reached"):
        _ = server.client.other
