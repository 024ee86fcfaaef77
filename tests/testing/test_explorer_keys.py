"""Which entities the explorer takes a request to make a difference to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pytest
from pymongo import IndexModel

from onewrite import Message
from onewrite.testing.explorer.schedule import Bounds, Delivery, ScheduleStep
from onewrite.testing.explorer.subject import Subject
from onewrite.testing.explorer.trial import Trial
from onewrite.testing.standins.stores import mongomock_collection

Keys = list[tuple[Any, ...] | None]


def with_unique_index(collection: Any) -> None:
    collection.create_index("sku", unique=True)


def with_hidden_indexes(collection: Any) -> None:
    collection.index_information = denied


def with_collation(collection: Any) -> None:
    information: Mapping[str, Any] = {"_id_": {"key": [("_id", 1)], "collation": {"locale": "en"}}}
    collection.index_information = lambda: information


def with_nothing(_: object) -> None:
    pass


def denied() -> None:
    raise PermissionError


def blocking(prepare: Callable[[Any], None]) -> Any:
    collection = mongomock_collection("customers")
    prepare(collection)
    return collection


def awaited(prepare: Callable[[Any], None]) -> Any:
    collection = mongomock_collection("customers", asynchronous=True)
    prepare(collection._collection)
    return collection


@contextmanager
def a_trial(world: Callable[[], Any], handle: Callable[[Any], Any]) -> Iterator[Trial]:
    with closing(Subject(lambda store: lambda _: handle(store), [Message("m1")], world, Bounds(), 10)) as subject:
        trial = Trial(subject)
        yield trial
        trial.abandon()


def keys_of(world: Callable[[], Any], *acts: Callable[[Any], Any]) -> Keys:
    """The keys of each request that these acts of a handler send."""

    def handle(collection: Any) -> None:
        for act in acts:
            act(collection)

    async def ahandle(collection: Any) -> None:
        for act in acts:
            await act(collection)

    with a_trial(world, handle if world() is None or not hasattr(world(), "_collection") else ahandle) as trial:
        taken = [trial.take(ScheduleStep(Delivery(0, 0))) for _ in acts]
    return [step.request.keys for step in taken if step.request is not None]


@pytest.fixture(params=[blocking, awaited])
def world(request: pytest.FixtureRequest) -> Callable[[Callable[[Any], None]], Callable[[], Any]]:
    return lambda prepare: lambda: request.param(prepare)


def insert(number: int) -> Callable[[Any], Any]:
    return lambda collection: collection.insert_one({"_id": number, "sku": f"s{number}"})


def test_documents_are_independent_of_each_other(world: Any) -> None:
    assert keys_of(world(with_nothing), insert(1), insert(2)) == [(("customers", 1),), (("customers", 2),)]


def test_a_unique_index_ties_what_is_written_together_and_not_what_is_read(world: Any) -> None:
    acts = insert(1), lambda collection: collection.find_one({"_id": 1})
    assert keys_of(world(with_unique_index), *acts) == [None, (("customers", 1),)]


def test_a_write_of_no_document_is_tied_to_nothing(world: Any) -> None:
    nothing = {"_id": {"$exists": False}}
    assert keys_of(world(with_unique_index), lambda each: each.update_one(nothing, {"$set": {"sku": "a"}})) == [()]


def test_an_index_that_the_handler_makes_unties_no_keys_any_more(world: Any) -> None:
    acts = insert(1), lambda collection: collection.create_indexes([IndexModel("n")]), insert(2)
    assert keys_of(world(with_nothing), *acts) == [(("customers", 1),), None, None]


@pytest.mark.parametrize("prepare", [with_hidden_indexes, with_collation])
def test_what_the_indexes_do_not_keep_apart_is_tied_together(world: Any, prepare: Callable[[Any], None]) -> None:
    assert keys_of(world(prepare), insert(1)) == [None]


def test_to_look_at_the_indexes_lets_no_task_of_the_handler_go_first() -> None:
    """A tap that awaited the answer would let the second task send its request before the first."""

    async def handle(collection: Any) -> None:
        async def write(number: int) -> None:
            await collection.insert_one({"_id": number})

        await asyncio.gather(write(1), write(2))

    with a_trial(lambda: awaited(with_nothing), handle) as trial:
        taken = [trial.take(ScheduleStep(Delivery(0, 0))) for _ in range(2)]
    assert [str(step.request) for step in taken] == ["insert_one customers 1", "insert_one customers 2"]
