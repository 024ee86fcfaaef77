"""The explorer's transactions do what those of a real MongoDB do: random programs, in the same order on both."""

from __future__ import annotations

import contextvars
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from random import Random
from typing import Any, TypeAlias

import pymongo
import pytest
from pymongo import InsertOne, MongoClient, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError, PyMongoError

from onewrite import Message
from onewrite.testing import explore
from onewrite.testing.model.machine import Machine
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.traffic import Owner, current_owner

Documents: TypeAlias = Collection[dict[str, Any]]
Do: TypeAlias = Callable[..., Any]  # (collection, **session) -> what the store answered, in words

PROGRAMS = 60
ACTORS = ("one transaction", "another", "plain")
# A server that waits in a plain write of several documents has written the first of them. To the explorer it is one step.
MULTIPLE = frozenset({"all", "bulk"})
WAITED = "waits"
SECONDS = 0.4  # that a plain write waits on the server before it is taken for one that waits


# ---------------------------------------------------------------- what a program consists of


def written(result: Any) -> Any:
    names = ("matched_count", "modified_count", "deleted_count", "upserted_id", "inserted_count")
    return [getattr(result, name, None) for name in names]


def acts(draw: Random) -> Iterator[tuple[str, Do]]:
    one, value = draw.choice("abc"), draw.randint(0, 2)
    guard = draw.choice([{}, {"n": value}])
    yield "find", lambda things, **session: list(things.find({}, **session).sort("_id", 1))
    yield "find one", lambda things, **session: things.find_one({"_id": one}, **session)
    yield "inc", lambda things, **session: written(things.update_one({"_id": one, **guard}, {"$inc": {"n": 1}}, **session))
    yield "set", lambda things, **session: written(things.update_one({"_id": one}, {"$set": {"n": value}}, **session))
    yield "unique", lambda things, **session: written(things.update_one({"_id": one}, {"$set": {"u": value}}, **session))
    yield "all", lambda things, **session: written(things.update_many(guard, {"$inc": {"n": 1}}, **session))
    yield "delete", lambda things, **session: written(things.delete_one({"_id": one, **guard}, **session))
    yield "insert", lambda things, **session: things.insert_one({"_id": one, "n": value}, **session).inserted_id
    yield "insert unique", lambda things, **session: things.insert_one({"_id": one, "u": value}, **session).inserted_id
    yield "modify", lambda things, **session: things.find_one_and_update({"_id": one}, {"$inc": {"n": 1}}, **session)
    yield (
        "bulk",
        lambda things, **session: written(
            things.bulk_write([InsertOne({"_id": one}), UpdateOne({"_id": "a"}, {"$inc": {"n": 1}})], **session)
        ),
    )


def drawn(draw: Random, actor: str) -> tuple[str, Do]:
    return draw.choice([act for act in acts(draw) if actor != "plain" or act[0] not in MULTIPLE])


class Program:
    """What each actor does, and whose turn is when."""

    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        self.unique = draw.random() < 0.5
        self.acts: dict[str, list[tuple[str, Do]]] = {}
        for actor in ACTORS:
            self.acts[actor] = [drawn(draw, actor) for _ in range(draw.randint(1, 4))]
            if actor != "plain":
                self.acts[actor].append((draw.choice(["commit", "commit", "commit", "abort"]), print))
        turns = [actor for actor in ACTORS for _ in self.acts[actor]]
        self.turns = draw.sample(turns, len(turns))


def fill(things: Any, program: Program) -> Any:
    things.insert_many([{"_id": "a", "n": 0}, {"_id": "b", "n": 1}])
    if program.unique:
        things.create_index("u", unique=True, sparse=True)
    return things


def outcome(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except PyMongoError as error:
        if error.timeout:
            return WAITED
        return type(error).__name__, getattr(error, "code", None), error.has_error_label("TransientTransactionError")


def run(program: Program, things: Any, attempt: Callable[[str, Do], Any]) -> list[Any]:
    """What every turn comes to. `attempt` does the act of a plain actor."""
    log: list[Any] = []
    left = {actor: iter(program.acts[actor]) for actor in ACTORS}
    with ExitStack() as stack:
        sessions = {actor: stack.enter_context(things.database.client.start_session()) for actor in ACTORS[:2]}
        contexts = {actor: contextvars.copy_context() for actor in ACTORS}
        for actor, session in sessions.items():
            contexts[actor].run(current_owner.set, Owner(actor))
            session.start_transaction()
        for actor in program.turns:
            name, do = next(left[actor])
            if actor == "plain":
                came_of_it = attempt(name, do)
            elif name in ("commit", "abort"):
                came_of_it = contexts[actor].run(outcome, getattr(sessions[actor], f"{name}_transaction"))
            else:
                came_of_it = contexts[actor].run(outcome, lambda: do(things, session=sessions[actor]))  # noqa: B023  # it is called at once
            log.append((actor, name, came_of_it))
    return [*log, ("end", list(things.find().sort("_id", 1)))]


def on_a_server(program: Program, things: Documents) -> list[Any]:
    fill(things, program)

    def attempt(_: str, do: Do) -> Any:
        with pymongo.timeout(SECONDS):
            return outcome(lambda: do(things))

    return run(program, things, attempt)


def on_a_model(program: Program) -> list[Any]:
    machine = Machine(lambda: fill(mongomock_collection("things"), program))
    blocked: list[bool] = []

    def gate(request: Any) -> Any:
        if request.transaction is None and machine.blockers(request):
            blocked.append(True)
            raise PyMongoError(WAITED)
        return machine.perform(request)

    things = machine.stores(gate)

    def attempt(_: str, do: Do) -> Any:
        blocked.clear()
        came_of_it = outcome(lambda: do(things))
        return WAITED if blocked else came_of_it

    return run(program, things, attempt)


@pytest.mark.parametrize("seed", range(PROGRAMS))
@pytest.mark.few(15)
def test_a_program_of_transactions_has_the_same_answers_and_the_same_end(
    seed: int, mongo: MongoClient[dict[str, Any]], collection: Documents
) -> None:
    program = Program(seed)
    modelled = on_a_model(program)
    assert modelled == on_a_server(program, collection)


@pytest.mark.parametrize("in_transaction", [True, False])
def test_an_inbox_on_a_server_is_explored_as_one_on_a_stand_in(
    in_transaction: bool, mongo: MongoClient[dict[str, Any]], collection: Documents
) -> None:
    inbox = f"{collection.name}-inbox"

    def world() -> Documents:
        collection.drop()
        mongo.test[inbox].drop()
        collection.insert_one({"_id": "ann", "balance": 0})
        return collection

    def build(accounts: Documents) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            def body(session: Any) -> None:
                given = {"session": session} if in_transaction else {}
                accounts.database[inbox].insert_one({"_id": message.id}, **given)
                accounts.update_one({"_id": "ann"}, {"$inc": {"balance": message.body}}, **given)

            with accounts.database.client.start_session() as session, suppress(DuplicateKeyError):
                session.with_transaction(body)

        return handle

    def balance(accounts: Documents) -> int:
        return int((accounts.find_one({"_id": "ann"}) or {})["balance"])

    report = explore(build, [Message("m1", body=10)], world, balance)
    assert report.ok is report.exhausted is in_transaction
