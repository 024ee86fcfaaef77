"""The cache for the requests of usual writes: without it, each engine builds the same requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from onewrite import HighWaterMark, IdSet, InSequence, Message, SeenIds, sortable
from onewrite.core.effect import Effect
from onewrite.core.ledgers import Ledger
from onewrite.core.write import NO_EFFECT, Begins, Burial, Emission, Finishes, NoEffectAtAll, Write
from onewrite.dynamodb import dialect as dynamodb
from onewrite.mongodb import dialect as mongodb

NOW = 1_790_000_000.0
LEDGERS: tuple[Ledger, ...] = (
    SeenIds(),
    SeenIds(None),
    SeenIds(name="b"),
    SeenIds(readable=True),
    SeenIds(previous=SeenIds(timedelta(days=1), name="old")),  # whose sets change at other hours
    IdSet("messageIDs"),
    HighWaterMark(),
    HighWaterMark(previous=SeenIds()),
    InSequence(),
)
DUE = "2026-11-22T08:00:00.000Z"
EVENTS = [{"id": "e", "type": "Paid"}]
PARTS: tuple[Mapping[str, Any], ...] = (
    {},
    {"token": "0123abcd"},
    {"emission": Emission("ow1 outbox o")},
    {"emission": Emission("ow1 outbox o", EVENTS, DUE, 5), "token": "0123abcd"},  # 5 is a mark too
    {"emission": Emission("ow1 outbox o", EVENTS * 2, DUE, 3)},
    {"emission": Emission("ow1 outbox o", EVENTS, DUE, 4)},  # before the mark 5
    {"effect": NoEffectAtAll()},
    {"effect": NoEffectAtAll((("0a", {}),))},
    {"effect": Begins(Effect("ow_l", Message("m"), "key", "fence", NOW, NOW, first=True))},
    {"effect": Finishes("f", "ow_l")},
    {"effect": Finishes("f", "ow_l", overtaken=True)},
    {"burial": Burial({"by": "b"}, "b", "expiresAt")},
    {"messages": (Message("m5", source="s", sequence=5), Message("m6", source="s", sequence=6))},
)


def list_writes() -> Iterator[Write]:
    """Writes of all kinds, several of each form."""
    for ledger in LEDGERS:
        for sequence in (1, 2, 5, "5", "five", sortable(5), DUE, "ow1 marks"):
            if isinstance(ledger, InSequence) and isinstance(sequence, str):
                continue
            for source in ("s", "$s", "") if isinstance(ledger, SeenIds | IdSet) else ("s", "$s"):
                message = Message(str(sequence), source=source, sequence=sequence)
                for hours in (0, 70):
                    entry = ledger.entry(message, NOW + hours * 3600)
                    for part in PARTS:
                        yield Write((message,), {}, NOW, entry, NO_EFFECT)._replace(**part)


def build_for_dynamodb(write: Write) -> list[Any]:
    native: dict[str, Any] = {"UpdateExpression": "SET #a = :a", "ExpressionAttributeNames": {"#a": "a"}}
    requests = [dynamodb.build_update(write, {"Key": {"id": 1}, **arguments}).kwargs for arguments in (native, {})]
    return [[*request.get(name, {}).items()] for request in requests for name in VALUES] + requests


VALUES = ("ExpressionAttributeNames", "ExpressionAttributeValues")  # whose order is part of the request


def build_for_mongodb(write: Write) -> list[Any]:
    updates: list[Any] = [{"$set": {"a": 1}}, {"$inc": {"a": 1}}, [{"$set": {"a": 1}}], None]
    return [mongodb.build_update(write, {"_id": 1, "b": 2}, update, {}) for update in updates]


@pytest.mark.parametrize(("dialect", "build"), [(dynamodb, build_for_dynamodb), (mongodb, build_for_mongodb)])
def test_requests_are_the_same_without_cache(
    monkeypatch: pytest.MonkeyPatch, dialect: Any, build: Callable[[Write], list[Any]]
) -> None:
    dialect._make_template.cache_clear()
    requests = [build(write) for write in list_writes()]
    assert 20 < dialect._make_template.cache_info().currsize < 100
    monkeypatch.setattr(dialect, "read_form", lambda _: None)
    if dialect is dynamodb:
        for name in ("join_updates", "join_conditions"):
            monkeypatch.setattr(dialect, name, getattr(dialect, name).__wrapped__)
    assert [build(write) for write in list_writes()] == requests


@pytest.mark.parametrize(("dialect", "build"), [(dynamodb, build_for_dynamodb), (mongodb, build_for_mongodb)])
def test_cache_keeps_nothing_of_a_message(dialect: Any, build: Callable[[Write], list[Any]]) -> None:
    dialect._make_template.cache_clear()
    for ledger in (SeenIds(), HighWaterMark(), InSequence()):
        for n in range(2, 50):
            message = Message(f"m{n}", source=f"s{n}", sequence=n)
            build(Write((message,), {}, NOW, ledger.entry(message, NOW), NO_EFFECT, token=f"t{n}"))
    assert dialect._make_template.cache_info().currsize == 3


def test_change_of_a_request_changes_no_other() -> None:
    message = Message("m")
    write = Write((message,), {}, NOW, SeenIds().entry(message, NOW), NO_EFFECT)
    update: Any = mongodb.build_update(write, {"_id": 1}, {"$inc": {"a": 1}}, {}).update
    before = repr(update)
    for fields in update.values():
        fields["b"] = 2
    assert repr(mongodb.build_update(write, {"_id": 1}, {"$inc": {"a": 1}}, {}).update) == before
