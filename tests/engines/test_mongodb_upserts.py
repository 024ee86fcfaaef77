"""MongoDB: an upsert that matches nothing tries to create, and where that fails the failure is no verdict on the message.

The entity is looked at first: a redelivery is a duplicate, whatever the server says of the document that it could not make.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from onewrite import Applied, Duplicate, Message, Outcome
from onewrite.mongodb import GuardedCollection
from tests.engines.ledgers import AnyLedger, ledgers

Documents = Collection[dict[str, Any]]
M1, M2 = (Message(f"m-{n}", source="s", sequence=n) for n in (1, 2))


@dataclass(frozen=True)
class Case:
    """An upsert that changes `before` and cannot create. `code` is what the server says of the creation."""

    code: int
    before: dict[str, Any]
    query: dict[str, Any]
    update: dict[str, Any] | list[dict[str, Any]]
    native: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)  # of the collection


LINES = {"lines": [{"sku": "a", "n": 1}, {"sku": "b", "n": 1}]}
CASES: dict[str, Case] = {
    "validator": Case(
        121, {"customer": "Ada"}, {}, {"$inc": {"n": 1}}, options={"validator": {"$jsonSchema": {"required": ["customer"]}}}
    ),
    "push_onto_what_the_filter_says": Case(2, {"tags": ["a"]}, {"tags": "a"}, {"$push": {"tags": "b"}}),
    "positional": Case(2, LINES, {"lines.sku": "b"}, {"$inc": {"lines.$.n": 1}}),
    "array_filters": Case(2, LINES, {}, {"$inc": {"lines.$[one].n": 1}}, native={"array_filters": [{"one.sku": "a"}]}),
    "all_members": Case(2, LINES, {}, {"$inc": {"lines.$[].n": 1}}),
    "pop_from_what_the_filter_says": Case(14, {"tags": ["a", "b"]}, {"tags": "a"}, {"$pop": {"tags": 1}}),
    "a_path_twice": Case(54, {"tags": ["a", "b"]}, {"$and": [{"tags": "a"}, {"tags": "b"}]}, {"$inc": {"n": 1}}),
    "size_of_nothing": Case(17124, {"lines": [1, 2]}, {}, [{"$set": {"count": {"$size": "$lines"}}}]),
    "increment_of_text": Case(14, {"name": ["Ada", 1]}, {"name": "Ada"}, {"$inc": {"name": 1}}),
    "below_a_text": Case(28, {"name": ["Ada", {}]}, {"name": "Ada"}, {"$set": {"name.first": "Ada"}}),
}
cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
# Their update cannot be applied to the entity as it is either: it was another one that put the mark there.
APPLICABLE = {name: case for name, case in CASES.items() if name not in ("increment_of_text", "below_a_text")}

Upsert = Callable[[GuardedCollection, Message, Case], Outcome]
WRITERS: dict[str, Upsert] = {
    "update_one": lambda c, m, case: c.update_one(m, {"_id": "e", **case.query}, case.update, upsert=True, **case.native),
    "find_one_and_update": lambda c, m, case: c.find_one_and_update(
        m, {"_id": "e", **case.query}, case.update, upsert=True, **case.native
    ),
}
writers = pytest.mark.parametrize("upsert", WRITERS.values(), ids=WRITERS)


def create(collection: Documents, case: Case) -> Documents:
    return collection.database.create_collection(collection.name, **case.options)


@writers
@cases
@ledgers
def test_redelivered_upsert_is_a_duplicate_if_creation_would_fail(
    collection: Documents, ledger: AnyLedger, case: Case, upsert: Upsert
) -> None:
    documents = create(collection, case)
    guarded = GuardedCollection(documents, ledger)
    guarded.insert_one(M1, {"_id": "e", **case.before})
    before = documents.find_one()
    assert upsert(guarded, M1, case) == Duplicate(M1, {"_id": "e", **case.before})
    assert list(documents.find()) == [before]


@writers
@pytest.mark.parametrize("case", APPLICABLE.values(), ids=APPLICABLE)
@ledgers
def test_new_upsert_changes_an_existing_document_once(
    collection: Documents, ledger: AnyLedger, case: Case, upsert: Upsert
) -> None:
    documents = create(collection, case)
    guarded = GuardedCollection(documents, ledger)
    guarded.insert_one(M1, {"_id": "e", **case.before})
    assert isinstance(upsert(guarded, M2, case), Applied)
    changed = documents.find_one()
    assert guarded.without_ledger(changed or {}) != {"_id": "e", **case.before}
    assert isinstance(upsert(guarded, M2, case), Duplicate)
    assert list(documents.find()) == [changed]


@writers
@cases
@ledgers
def test_failed_first_upsert_raises_the_server_error(
    collection: Documents, ledger: AnyLedger, case: Case, upsert: Upsert
) -> None:
    documents = create(collection, case)
    with pytest.raises(OperationFailure) as raised:
        upsert(GuardedCollection(documents, ledger), M1, case)
    assert raised.value.code == case.code
    assert documents.find_one() is None


@ledgers
def test_redelivery_is_recognized_despite_the_callers_unique_index(collection: Documents, ledger: AnyLedger) -> None:
    """The server names the index that it met first, which need not be the one that names the entity."""
    collection.create_index("number", unique=True)
    collection.create_index("email", unique=True)
    guarded = GuardedCollection(collection, ledger, key=("email",))
    change = {"$set": {"number": 7}}
    assert isinstance(guarded.update_one(M1, {"email": "a@b"}, change, upsert=True), Applied)
    before = list(collection.find())
    assert isinstance(guarded.update_one(M1, {"email": "a@b"}, change, upsert=True), Duplicate)
    assert isinstance(guarded.find_one_and_update(M1, {"email": "a@b"}, change, upsert=True), Duplicate)
    with pytest.raises(OperationFailure) as raised:
        guarded.update_one(M1, {"email": "c@d"}, change, upsert=True)
    assert (raised.value.details or {})["keyPattern"] == {"number": 1}
    assert list(collection.find()) == before
