"""Calls whose names are all the same: every token, fence and tombstone then is another call's as well.

Each history is run twice, on two places of one server: once with a name for each call, and once with one name for all of them. A name
proves nothing alone, so both give the same answers and leave the same entities. The one difference that may be: what had taken
effect before (`Duplicate`, `Stale`, `Gone`) may be taken for a call's own lost answer.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from onewrite import (
    Applied,
    Begun,
    Duplicate,
    Event,
    HighWaterMark,
    Inbox,
    InSequence,
    Message,
    Outbox,
    Outcome,
    SeenIds,
    Tombstones,
    Uncertain,
)
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable, transact
from onewrite.mongodb import GuardedCollection
from onewrite.mongodb import transact as transact_documents
from onewrite.outbox import Outgoing, Relay
from onewrite.testing.servers.engines import Dynoxide
from tests.engines.stores import create_table
from tests.support.ci import in_ci
from tests.support.seams import name_calls

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

NOW = 1_790_000_000.0
CALLS, ENTITIES = 60, ("a", "b", "c")
TOMBSTONES = Tombstones(timedelta(days=14))
LEDGERS: dict[str, Ledger] = {
    "SeenIds": SeenIds(),
    "readable": SeenIds(readable=True),
    "an hour": SeenIds(timedelta(hours=1)),
    "forever": SeenIds(retention=None),
    "plain set": SeenIds(retention=None, readable=True),
    "HighWaterMark": HighWaterMark(),
    "InSequence": InSequence(),
    "chain": SeenIds(also=HighWaterMark(name="marks")),
}
_places = (f"collisions{n}" for n in itertools.count())


class Said(NamedTuple):
    """What a call has answered, as far as it must not depend on names."""

    kind: str
    settled: bool
    participant: int | None


class Counter:
    """A clock that moves on with every call, so no two of them are made at one moment."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class DynamoPlace:
    """A table of a history's own."""

    def __init__(self, client: DynamoDBClient, ledger: Ledger, attempts: Callable[[], str]) -> None:
        self.clock, self.table = Counter(), next(_places)
        create_table(client, self.table)
        store = GuardedTable(client, ledger, table_name=self.table, tombstones=TOMBSTONES, clock=self.clock)
        self.store = name_calls(store, attempts)

    def _adding(self, entity: str, most: int | None) -> dict[str, Any]:
        limit = {} if most is None else {"ConditionExpression": "n < :most"}
        values = {":one": 1} | ({} if most is None else {":most": most})
        update = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": values}
        return {"Key": {"id": entity}, **update, **limit}

    def add(self, message: Message, entity: str, most: int | None) -> Outcome:
        return self.store.update_item(message, **self._adding(entity, most))

    def create(self, message: Message, entity: str) -> Outcome:
        return self.store.put_item(message, Item={"id": entity, "n": 0})

    def record(self, message: Message, entity: str) -> Outcome:
        return self.store.record(message, Key={"id": entity})

    def delete(self, message: Message, entity: str) -> Outcome:
        return self.store.delete_item(message, Key={"id": entity})

    def begin(self, message: Message, entity: str, **asked: Any) -> Any:
        return self.store.begin(message, "charge", Key={"id": entity}, **asked)

    def finish(self, message: Message, entity: str, claim: Any) -> Outcome:
        return self.store.update_item(message, **self._adding(entity, None), finishes=claim)

    def fold(self, messages: list[Message], entity: str, most: int | None) -> list[Outcome]:
        return self.store.fold(messages, lambda _: self._adding(entity, most))

    def transact(self, message: Message, entities: list[str], most: int | None) -> Outcome:
        return transact(message, [self.store.updating(**self._adding(entity, most)) for entity in entities])

    def state(self) -> list[Any]:
        found = [self.store.get_item(Key={"id": entity}) for entity in ENTITIES]
        return [None if item is None else item.get("n") for item in found]


class MongoPlace:
    """A collection of a history's own."""

    transact = None

    def __init__(self, collection: Any, ledger: Ledger, attempts: Callable[[], str]) -> None:
        self.clock = Counter()
        self.store = name_calls(GuardedCollection(collection, ledger, tombstones=TOMBSTONES, clock=self.clock), attempts)

    def _filter(self, entity: str, most: int | None) -> dict[str, Any]:
        return {"_id": entity} | ({} if most is None else {"n": {"$lt": most}})

    def add(self, message: Message, entity: str, most: int | None) -> Outcome:
        return self.store.update_one(message, self._filter(entity, most), {"$inc": {"n": 1}}, upsert=most is None)

    def create(self, message: Message, entity: str) -> Outcome:
        return self.store.insert_one(message, {"_id": entity, "n": 0})

    def record(self, message: Message, entity: str) -> Outcome:
        return self.store.record(message, {"_id": entity})

    def delete(self, message: Message, entity: str) -> Outcome:
        return self.store.delete_one(message, {"_id": entity})

    def begin(self, message: Message, entity: str, **asked: Any) -> Any:
        return self.store.begin(message, "charge", {"_id": entity}, **asked)

    def finish(self, message: Message, entity: str, claim: Any) -> Outcome:
        return self.store.update_one(message, {"_id": entity}, {"$inc": {"n": 1}}, finishes=claim)

    def fold(self, messages: list[Message], entity: str, most: int | None) -> list[Outcome]:
        upsert = most is None
        return self.store.fold(
            messages, lambda _: {"filter": self._filter(entity, most), "update": {"$inc": {"n": 1}}, "upsert": upsert}
        )

    def state(self) -> list[Any]:
        found = [self.store.find_one({"_id": entity}) for entity in ENTITIES]
        return [None if document is None else document.get("n") for document in found]


def said(outcome: Any, *, forced: bool) -> Said:
    kind = type(outcome).__name__
    if (forced and kind == "Applied" and outcome.retried) or kind in {"Duplicate", "Stale", "Gone"}:
        kind = "done before"
    return Said(kind, outcome.settled, None if kind == "done before" else getattr(outcome, "participant", None))


def run(place: Any, seed: int, *, forced: bool) -> Iterator[Any]:
    """A history of random calls, each with its answer and the entities after it."""
    choice = random.Random(seed)
    claims: dict[tuple[str, int], Any] = {}
    has_marks = choice.random() < 0.3
    for _ in range(CALLS):
        place.clock.now += choice.choice([0.5, 1.0, 70.0])
        number, entity = choice.randrange(1, 12), choice.choice(ENTITIES)
        message = Message(f"m{number}", source="s", sequence=number)
        most = choice.choice([None, None, 3])
        verbs = ["add"] * 4 + ["create", "record", "begin", "begin", "finish", "finish", "fold", "transact"]
        verb = choice.choice([*verbs, "delete"] if has_marks else verbs)
        if verb == "transact" and place.transact is None:
            continue
        if verb == "begin":
            claim = claims.get((entity, number))
            after = {"after": claim} if isinstance(claim, Uncertain) and choice.random() < 0.5 else {}
            safe_for = choice.choice([timedelta(0), timedelta(days=1)])
            answer = place.begin(message, entity, lease=timedelta(minutes=1), safe_for=safe_for, **after)
            if isinstance(answer, Begun | Uncertain):
                claims[entity, number] = answer
        elif verb == "finish":
            if not claims:
                continue
            (entity, number), claim = choice.choice(sorted(claims.items(), key=lambda each: each[0]))
            del claims[entity, number]
            answer = place.finish(Message(f"m{number}", source="s", sequence=number), entity, claim)
        elif verb == "fold":
            numbers = sorted(choice.sample(range(1, 12), 3))
            answers = place.fold([Message(f"m{n}", source="s", sequence=n) for n in numbers], entity, most)
            yield verb, [said(each, forced=forced) for each in answers], place.state()
            continue
        elif verb == "transact":
            answer = place.transact(message, choice.sample(ENTITIES, 2), most)
        else:
            arguments = [most] if verb == "add" else []
            answer = getattr(place, verb)(message, entity, *arguments)
        yield verb, said(answer, forced=forced), place.state()


@pytest.fixture
def client_of_its_own(dynoxide: Dynoxide) -> Iterator[DynamoDBClient]:
    """A client whose transactions are told apart by DynamoDB, although their calls have one name."""
    client, tokens = dynoxide.client(), itertools.count()

    def told_apart(params: dict[str, Any], **_: object) -> None:
        params["ClientRequestToken"] = f"{next(_places)} {next(tokens)}"

    client.meta.events.register("provide-client-params.dynamodb.TransactWriteItems", told_apart)
    yield client
    client.close()


@pytest.mark.parametrize("ledger", LEDGERS.values(), ids=LEDGERS)
@pytest.mark.parametrize("engine", ["mongod", "dynoxide"])
@pytest.mark.few(1, each="engine")
def test_calls_of_one_name_have_the_same_answers(engine: str, ledger: Ledger, request: pytest.FixtureRequest) -> None:
    client: Any = request.getfixturevalue("client_of_its_own" if engine == "dynoxide" else "mongo")

    def place(attempts: Callable[[], str]) -> Any:
        if engine == "dynoxide":
            return DynamoPlace(client, ledger, attempts)
        return MongoPlace(client.test[next(_places)], ledger, attempts)

    for seed in range(6 if in_ci() else 3):
        numbers = itertools.count()
        other_run = run(place(lambda: f"call {next(numbers)}"), seed, forced=False)  # noqa: B023  # it is run in this round
        forced = run(place(lambda: "one name"), seed, forced=True)
        for turn, (one, other) in enumerate(zip(other_run, forced, strict=True)):
            assert one == other, f"seed {seed}, call {turn}"


def test_two_entities_share_no_event_under_one_call_name(
    mongo: Any, dynamo: DynamoDBClient, client_of_its_own: DynamoDBClient
) -> None:
    seams: Any = {"outbox": Outbox("shop"), "clock": lambda: NOW}
    told: list[Outgoing] = []
    for _ in range(2):
        name = next(_places)
        create_table(dynamo, name)
        items = name_calls(GuardedTable(client_of_its_own, SeenIds(), table_name=name, **seams), lambda: "one name")
        documents = name_calls(GuardedCollection(mongo.test[name], SeenIds(), **seams), lambda: "one name")
        items.put_item(Message("m1"), Item={"id": "o"}, emit=[Event("A", 1)])
        documents.insert_one(Message("m1"), {"_id": "o"}, emit=[Event("A", 1)])
        writes = [items.updating(Key={"id": each}, UpdateExpression="SET n = id", emit=[Event("A", 1)]) for each in "pq"]
        assert isinstance(transact(Message("m2"), writes), Applied)
        Relay(items, told.extend).sweep()
        Relay(documents, told.extend).sweep()
    assert len({event.id for event in told}) == len({event.source for event in told}) == len(told) == 8


@pytest.mark.parametrize("engine", ["mongod", "dynoxide"])
def test_inbox_with_anothers_token_shows_no_landing(engine: str, request: pytest.FixtureRequest) -> None:
    client: Any = request.getfixturevalue("client_of_its_own" if engine == "dynoxide" else "mongo")
    message, name, inbox_name = Message("m1"), next(_places), next(_places)
    kept: Any = {"consumer": "c", "retention": timedelta(days=14)}
    if engine == "dynoxide":
        for each in (name, inbox_name):
            create_table(client, each)
        store: Any = name_calls(GuardedTable(client, SeenIds(), table_name=name, clock=lambda: NOW), lambda: "one name")
        inbox = Inbox(client, table_name=inbox_name, **kept)
        update: Any = {"UpdateExpression": "SET n = :n", "ExpressionAttributeValues": {":n": 1}}
        first, second = (transact(message, [store.updating(Key={"id": each}, **update)], inbox=inbox) for each in "ab")
        left = store.get_item(Key={"id": "b"})
    else:
        client.test.create_collection(inbox_name)
        client.test[name].insert_many([{"_id": "a"}, {"_id": "b"}])
        store = name_calls(GuardedCollection(client.test[name], SeenIds(), clock=lambda: NOW), lambda: "one name")
        inbox = Inbox(client.test[inbox_name], **kept)
        first, second = (
            transact_documents(message, [store.updating({"_id": each}, {"$set": {"n": 1}})], inbox=inbox) for each in "ab"
        )
        left = store.find_one({"_id": "b"})
    assert (type(first), type(second)) == (Applied, Duplicate)
    assert "n" not in (left or {})
