"""A transaction on MongoDB step by step: a session and collections that answer with the next of a list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Self

import mongomock
import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.errors import DuplicateKeyError, OperationFailure

from onewrite import Applied, ConfigurationError, Duplicate, Inbox, InvalidUpdate, LedgerMismatch, Message, Rejected, SeenIds
from onewrite.mongodb import GuardedCollection, transact
from onewrite.testing import mongomock_collection
from tests.support.driven import reply
from tests.support.seams import name_calls

NOW = 1_790_000_000.0
M5 = Message("m5", source="s", sequence=5)
HASH = bytes.fromhex("e2925dfad35a3323aea4")  # of the source "s" and the id "m5"
SEEN: dict[str, Any] = {"_id": "a", "ow_l": "ow1 14d", "ow_r": {"r1": [HASH]}}
FREE: dict[str, Any] = {"_id": "a", "n": 1}
MATCHED, MISSED = reply(1), reply()
DAYS = timedelta(days=14)


class Session:
    """Remembers what is asked of it. `commits`: what the next commits raise, None for nothing."""

    def __init__(self, *commits: Exception | None) -> None:
        self.commits = list(commits)
        self.log: list[str] = []
        self.options: dict[str, Any] = {}
        self.in_transaction = False

    def start_transaction(self, **options: Any) -> None:
        self.options, self.in_transaction = options, True
        self.log.append("start")

    def commit_transaction(self) -> None:
        self.in_transaction = False
        self.log.append("commit")
        error = self.commits.pop(0) if self.commits else None
        if error is not None:
            raise error

    def abort_transaction(self) -> None:
        self.in_transaction = False
        self.log.append("abort")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append("end")


class Documents:
    """A collection that answers each operation with the next of a list."""

    write_concern = WriteConcern()

    def __init__(self, *answers: Any, session: Session | None = None, name: str = "orders") -> None:
        self.name, self.full_name = name, f"shop.{name}"
        self.answers = list(answers)
        self.session = session or Session()
        self.sent: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        client = SimpleNamespace(start_session=lambda: self.session)
        self.database = SimpleNamespace(client=client)

    def with_options(self, **options: Any) -> Documents:
        self.write_concern = options.get("write_concern", self.write_concern)
        return self

    def beside(self, name: str) -> Documents:
        """Another collection of the same client, whose answers are in the same list."""
        other = Documents(session=self.session, name=name)
        other.answers, other.sent, other.database = self.answers, self.sent, self.database
        return other

    def update_one(self, *args: Any, **options: Any) -> Any:
        return self._answer("update_one", args, options)

    def insert_one(self, *args: Any, **options: Any) -> Any:
        return self._answer("insert_one", args, options)

    def find_one(self, *args: Any, **options: Any) -> Any:
        return self._answer("find_one", args, options)

    def index_information(self) -> Any:
        return {"_id_": {"key": [("_id", 1)]}}

    def _answer(self, method: str, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.sent.append((method, args, options))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def methods(self) -> list[str]:
        return [method for method, _, _ in self.sent]


def guarded(documents: Any, ledger: Any = None, **options: Any) -> GuardedCollection:
    return name_calls(GuardedCollection(documents, ledger or SeenIds(), clock=lambda: NOW, **options), lambda: "try")


def writes(documents: Any) -> list[Any]:
    """Two writes, of documents a and b."""
    store = guarded(documents)
    return [store.updating({"_id": key}, {"$inc": {"n": 1}}) for key in "ab"]


def made(documents: Documents, participants: Any = None, **options: Any) -> Any:
    return transact(M5, participants or writes(documents), **options)


def met(keys: Mapping[str, int] | None = None) -> DuplicateKeyError:
    return DuplicateKeyError("E11000", 11000, {"keyPattern": keys or {"_id": 1}})


# --- what is made ------------------------------------------------------------------------------------------------------


def test_transaction_sends_only_its_writes_and_a_commit() -> None:
    documents = Documents(MATCHED, MATCHED)
    assert made(documents) == Applied(M5)
    assert documents.methods == ["update_one", "update_one"]
    assert documents.session.log == ["start", "commit", "end"]
    for _, (query, _), options in documents.sent:
        assert query["_id"] in "ab"
        assert options == {"upsert": False, "session": documents.session}
    concerns = documents.session.options
    assert concerns["read_concern"].level == "snapshot"
    assert concerns["write_concern"].document["w"] == "majority"
    assert concerns["read_preference"].mode == 0


def test_transaction_is_as_durable_as_its_most_durable_store() -> None:
    documents = Documents(MATCHED, MATCHED, MATCHED, MATCHED)
    documents.write_concern = WriteConcern(w=1)
    weak = guarded(documents, durability="acknowledged")
    made(documents, [weak.updating({"_id": key}, {"$inc": {"n": 1}}) for key in "ab"])
    assert documents.session.options["write_concern"].document["w"] == 1
    strong = guarded(documents.beside("strong"))
    made(documents, [weak.recording({"_id": "a"}), strong.recording({"_id": "a"})])
    assert documents.session.options["write_concern"].document["w"] == "majority"


# --- what a refusal means ----------------------------------------------------------------------------------------------


def test_refusal_counts_if_a_majority_holds_it() -> None:
    looks = [FREE, None, FREE]  # at a, whether its condition holds by now, and at b
    documents = Documents(MISSED, *looks, MISSED, MISSED, SEEN)
    outcome = made(documents, conditional(documents))
    assert isinstance(outcome, Duplicate)
    assert documents.methods == ["update_one", *["find_one"] * 3, "update_one", "update_one", "find_one"]
    documents = Documents(MISSED, *looks, MISSED, MISSED, *looks)
    assert made(documents, conditional(documents)) == Rejected(M5, FREE, participant=0)


def conditional(documents: Any) -> list[Any]:
    store = guarded(documents)
    return [store.updating({"_id": key, "n": {"$lt": 5}}, {"$inc": {"n": 1}}) for key in "ab"]


def test_duplicate_key_in_the_callers_index_is_raised() -> None:
    error = met({"email": 1})
    for inserts in (True, False):
        documents = Documents(error)
        store = guarded(documents)
        write = store.inserting({"_id": "a"}) if inserts else store.updating({"_id": "a"}, {"$set": {"x": 1}})
        with pytest.raises(DuplicateKeyError) as raised:
            made(documents, [write, *writes(documents)[1:]])
        assert raised.value is error
        assert documents.session.log == ["start", "abort", "end"]


# --- failures ----------------------------------------------------------------------------------------------------------


def test_other_failure_is_raised_unless_the_ledger_explains_it() -> None:
    error = OperationFailure("not authorized", 13)
    documents = Documents(error)
    with pytest.raises(OperationFailure) as raised:
        made(documents)
    assert raised.value is error
    documents = Documents(error)
    with pytest.raises(OperationFailure) as raised:
        made(documents, [guarded(documents).inserting({"_id": "a"}), *writes(documents)[1:]])
    assert raised.value is error
    documents = Documents(OperationFailure("mistyped", 2), {**FREE, "ow_r": "text"})
    with pytest.raises(LedgerMismatch):
        made(documents)


# --- an inbox ----------------------------------------------------------------------------------------------------------


def inbox_of(documents: Documents) -> Inbox:
    return Inbox(documents.beside("inbox"), consumer="c", retention=DAYS, clock=lambda: NOW)


def test_inbox_proves_that_an_earlier_attempt_was_applied() -> None:
    documents = Documents()
    plain = name_calls(GuardedCollection(documents, None), lambda: "try")
    write = plain.updating({"_id": "a"}, {"$inc": {"n": 1}})
    documents.answers = [object(), MATCHED]
    made(documents, [write], inbox=inbox_of(documents))
    mark = documents.sent[0][1][0]
    documents.answers = [met(), mark]
    assert made(documents, [write], inbox=inbox_of(documents)) == Applied(M5, retried=True)


# --- what cannot be sent -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [{"email": "a"}, "a"])
def test_each_write_names_its_document_by_id(query: Any) -> None:
    with pytest.raises(InvalidUpdate, match="must identify its document by _id"):
        guarded(Documents(), key=("email",)).updating(query, {"$inc": {"n": 1}})


def test_writes_of_different_clients_are_refused() -> None:
    one, other = Documents(), Documents()
    with pytest.raises(ConfigurationError, match="same MongoClient"):
        made(one, [*writes(one)[:1], *writes(other)[1:]])
    with pytest.raises(ConfigurationError, match="same MongoClient"):
        made(one, inbox=inbox_of(other))
    equal = [guarded(MongoClient[Any](connect=False).shop.orders) for _ in range(2)]
    with pytest.raises(ConfigurationError, match="same MongoClient"):
        made(one, [store.recording({"_id": "a"}) for store in equal])


@pytest.mark.parametrize("plain", [False, True])
def test_stand_in_without_sessions_names_the_remedy(plain: bool) -> None:
    with mongomock_collection() as stand_in:
        collection: Any = mongomock.MongoClient().shop.orders if plain else stand_in
        with pytest.raises(ConfigurationError, match=r"explore\(\.\.\.\).*mongod\(\)"):
            transact(M5, writes(collection))


def test_write_without_ledger_cannot_change_reserved_names() -> None:
    documents = Documents()
    plain = GuardedCollection(documents, None)
    for write in (
        plain.updating({"_id": "a", "ow_tombstone": 1}, {"$inc": {"n": 1}}),
        plain.updating({"_id": "a"}, {"$set": {"ow_steps": 1}}),
        plain.inserting({"_id": "a", "ow_steps": 1}),
        plain.recording({"_id": "a"}),
    ):
        with pytest.raises(InvalidUpdate, match=r"reserved for onewrite|can't record a message"):
            made(documents, [write], inbox=inbox_of(documents))
    with pytest.raises(ConfigurationError, match="this store has none"):
        made(documents, [plain.inserting({"_id": "a"}, emit=[])], inbox=inbox_of(documents))
