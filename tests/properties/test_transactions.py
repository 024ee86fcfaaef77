"""What the explorer leaves out adds nothing, also where handlers use transactions of MongoDB."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from pymongo.errors import DuplicateKeyError, PyMongoError

from onewrite import ConfigurationError, Message
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.standins.stores import mongomock_collection
from tests.support.examples import examples
from tests.support.searches import How, search_schedules

Act: TypeAlias = tuple[str, str]  # what is done, and to which entity
Program: TypeAlias = dict[str, list[tuple[str, list[Act]]]]  # for each message, its parts: how they are sent, and their acts


def add(collection: Any, message: Message, key: str, _: dict[str, int], **session: Any) -> None:
    collection.update_one({"_id": key}, {"$inc": {"n": message.body}}, **session)


def read(collection: Any, _: Message, key: str, memory: dict[str, int], **session: Any) -> None:
    memory[key] = (collection.find_one({"_id": key}, **session) or {}).get("n", 0)


def put(collection: Any, message: Message, key: str, memory: dict[str, int], **session: Any) -> None:
    collection.update_one({"_id": key}, {"$set": {"n": memory.get(key, 0) + message.body}}, **session)


def mark(collection: Any, message: Message, key: str, _: dict[str, int], **session: Any) -> None:
    collection.insert_one({"_id": f"{key}/{message.id}"}, **session)


def copy(collection: Any, _: Message, key: str, memory: dict[str, int], **session: Any) -> None:
    """Writes into one entity what was seen of all."""
    collection.update_one({"_id": key, "seen": None}, {"$set": {"seen": sum(memory.values())}}, **session)


def add_outside(collection: Any, message: Message, key: str, _: dict[str, int], **__: Any) -> None:
    """Not part of the transaction, so it may wait for that, and the other way round."""
    collection.update_one({"_id": key}, {"$inc": {"n": message.body}})


ACTS: dict[str, Callable[..., None]] = {act.__name__: act for act in (add, add_outside, read, put, mark, copy)}


def make_handler(program: Program) -> Callable[[Any], Callable[[Message], None]]:
    def build(collection: Any) -> Callable[[Message], None]:
        def do(message: Message, acts: list[Act], memory: dict[str, int], **session: Any) -> None:
            for act, key in acts:
                ACTS[act](collection, message, key, memory, **session)

        def handle(message: Message) -> None:
            memory: dict[str, int] = {}
            for sent, acts in program[message.id]:
                if sent == "plainly":
                    with suppress(DuplicateKeyError):
                        do(message, acts, memory)
                    continue
                with collection.database.client.start_session() as session, suppress(DuplicateKeyError):
                    session.start_transaction()
                    do(message, acts, memory, session=session)
                    if sent == "aborted":
                        session.abort_transaction()
                    elif sent == "swallowing":
                        with suppress(PyMongoError):
                            session.commit_transaction()
                    else:
                        session.commit_transaction()

        return handle

    return build


def world() -> Any:
    collection = mongomock_collection("t")
    collection.insert_many([{"_id": "a", "n": 0}, {"_id": "b", "n": 0}])
    return collection


class Found(NamedTuple):
    """What a search came to."""

    schedules: int
    ends: set[str]
    findings: set[str]


def searched(program: Program, bounds: Bounds, how: How) -> Found:
    ends: set[str] = set()

    def observed(collection: Any) -> object:
        ends.add(repr(list(collection.find({}).sort("_id", 1))))
        return None

    messages = [Message(name, body=10**place) for place, name in enumerate(program)]
    try:
        shown, judge = search_schedules(make_handler(program), messages, world, bounds, observed, how)
    except ConfigurationError:  # a handler that waits for its own transaction never settles its message
        reject()
    assert judge.nondeterministic is None
    wrong = {one.finding.reason.partition(":")[0] for one in shown if one.finding is not None}
    return Found(len(shown), ends, wrong)


class Scope(NamedTuple):
    messages: int
    acts: int
    bounds: Bounds


# Few enough schedules to run them all without pruning.
SCOPES = [
    Scope(1, 2, Bounds()),
    Scope(2, 2, Bounds(deliveries=1)),
    Scope(2, 1, Bounds(faults=0)),
    Scope(3, 1, Bounds(deliveries=1, faults=0, concurrency=3)),
    Scope(2, 3, Bounds(deliveries=1, faults=0)),
]
act = st.tuples(st.sampled_from(sorted(ACTS)), st.sampled_from("ab"))
ways = st.sampled_from(["plainly", "committed", "committed", "aborted", "swallowing"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[Program, Bounds]:
    scope = draw(st.sampled_from(SCOPES))
    program: Program = {}
    for name in ("x", "y", "z")[: scope.messages]:
        acts = draw(st.lists(act, min_size=1, max_size=scope.acts))
        cut = draw(st.integers(0, len(acts)))
        program[name] = [(draw(ways), part) for part in (acts[:cut], acts[cut:]) if part]
    return program, scope.bounds


# The second transaction begins before the first commits, or after it.
SNAPSHOTS: Program = {
    "x": [("committed", [("add", "a")])],
    "y": [("committed", [("read", "b"), ("read", "a"), ("copy", "b")])],
}
# Each waits for the other's transaction, with a plain write inside its own.
CIRCLE: Program = {
    "x": [("committed", [("add", "a"), ("add_outside", "b")])],
    "y": [("committed", [("add", "b"), ("add_outside", "a")])],
}


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(cases())
@example((SNAPSHOTS, Bounds(deliveries=1, faults=0)))
@example((CIRCLE, Bounds(deliveries=1, faults=0)))
def test_pruning_loses_no_end_of_transactions(case: tuple[Program, Bounds]) -> None:
    pruned, whole = searched(*case, "run and compared"), searched(*case, "every schedule")
    assert pruned.ends == whole.ends
    assert pruned.findings == whole.findings
    assert pruned.schedules <= whole.schedules
