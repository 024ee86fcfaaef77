"""The same work done right: every schedule within the bounds is run, and none ends wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import boto3
import pytest

from onewrite import HighWaterMark, InSequence, Message, SeenIds, Tombstones
from onewrite.core.ledgers import Ledger
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection
from onewrite.testing import sqs_event
from tests.gallery import right_dynamodb, right_mongodb, right_mongodb_async
from tests.gallery.cases import CLOSE, awaited_balances, balances, deposit

ONE = (deposit(1),)
TWO = (deposit(1), deposit(2))
WITHDRAWAL = Message("m2", source="bank", sequence=2, body={"amount": -10})

TOMBSTONES = Tombstones(timedelta(days=30))


@dataclass(frozen=True)
class Work:
    handler: str
    ledger: Ledger
    messages: tuple[Any, ...] = TWO
    reorder: bool = True
    accept: tuple[str, ...] = ()
    only: str | None = None  # the kind of store, if one is enough
    is_slow: bool = False


WORKS = {
    "seen": Work("added", SeenIds()),
    "seen readable": Work("added", SeenIds(readable=True)),
    "seen forever": Work("added", SeenIds(retention=None)),
    "sequence": Work("added", InSequence()),
    "mark in order": Work("added", HighWaterMark(), reorder=False),
    "mark in any order": Work("replaced", HighWaterMark()),
    "several entities": Work("transferred", SeenIds(), ONE),
    "several entities, two messages": Work("transferred", SeenIds(), only="table", is_slow=True),
    "refusals": Work("refused_for_good", SeenIds(), (deposit(1), WITHDRAWAL)),
    "deletion": Work("closed", SeenIds(), (deposit(1), CLOSE), accept=("cancelled",)),
    "creation": Work("opened", SeenIds()),
    "a batch": Work("batched", SeenIds(), (sqs_event("1", "2"),)),
    "two batches": Work("batched", SeenIds(), (sqs_event("1", "2"), sqs_event("3")), only="collection", is_slow=True),
    "three messages": Work("added", SeenIds(), (*TWO, deposit(3)), only="table", is_slow=True),
}
HANDLERS: dict[str, ModuleType] = {
    "table": right_dynamodb,
    "client": right_dynamodb,
    "collection": right_mongodb,
    "async collection": right_mongodb_async,
}


def guard(kind: str, ledger: Ledger, store: Any) -> Any:
    match kind:
        case "table":
            return GuardedTable(store, ledger, tombstones=TOMBSTONES)
        case "client":
            return GuardedTable(store, ledger, table_name="customers", tombstones=TOMBSTONES)
        case "collection":
            return GuardedCollection(store, ledger, tombstones=TOMBSTONES)
        case _:
            return AsyncGuardedCollection(store, ledger, tombstones=TOMBSTONES)


@pytest.fixture
def world(kind: str, moto_table: Any, mongomock_collection: Any) -> Any:
    def new() -> Any:
        if kind.endswith("collection"):
            return mongomock_collection("customers", asynchronous=kind.startswith("async"))
        table = moto_table("customers", key="id")
        return table if kind == "table" else boto3.client("dynamodb")

    return new


@pytest.mark.parametrize(
    ("kind", "work"),
    [
        pytest.param(kind, work, id=f"{kind}-{name}", marks=[pytest.mark.slow] if kind == "client" or work.is_slow else [])
        for kind, handlers in HANDLERS.items()
        for name, work in WORKS.items()
        if hasattr(handlers, work.handler) and work.only in (None, kind)
    ],
)
@pytest.mark.few(4)
def test_guarded_work_takes_effect_once_in_every_schedule(explore: Any, world: Any, kind: str, work: Work) -> None:
    build = getattr(HANDLERS[kind], work.handler)
    report = explore(
        lambda store: build(guard(kind, work.ledger, store)),
        messages=work.messages,
        world=world,
        observe=awaited_balances if kind.startswith("async") else balances,
        reorder=work.reorder,
    )
    report.assert_effectively_once(accept=work.accept)
    assert report.exhausted
