"""Tasks: answers get lost, and tasks are cancelled while nobody knows whether their write was done."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from pymongo import AsyncMongoClient
from pymongo.collection import Collection

from onewrite import Applied, Duplicate, Message, Outcome, SeenIds
from onewrite.dynamodb import AsyncGuardedTable
from onewrite.mongodb import AsyncGuardedCollection
from tests.engines.stores import State, addition, async_dynamo, dynamo_state, increment, mongo_state
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault, FaultProxy

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

pytestmark = pytest.mark.usefixtures("quick_retries")

Apply: TypeAlias = Callable[[Message], Coroutine[Any, Any, Outcome]]
Proxy: TypeAlias = FaultProxy | MongoProxy
Story: TypeAlias = Callable[[Apply], Awaitable[None]]
Place: TypeAlias = tuple[Proxy, Callable[[Story], None], Callable[[], State]]

M1 = Message("m-1")


@pytest.fixture(params=["dynoxide", "mongod"])
def place(request: pytest.FixtureRequest) -> Place:
    """The proxy, a way to run a story behind it, and what the entity says afterwards."""
    build = _on_dynoxide if request.param == "dynoxide" else _on_mongod
    return build(request)


def _on_dynoxide(request: pytest.FixtureRequest) -> Place:
    proxy: FaultProxy = request.getfixturevalue("fault_proxy")
    dynamo: DynamoDBClient = request.getfixturevalue("dynamo")
    table: str = request.getfixturevalue("table")

    async def tell(story: Story) -> None:
        retries = {"mode": "legacy", "total_max_attempts": 3}
        async with async_dynamo(proxy.endpoint, retries=retries, max_pool_connections=8) as client:
            guarded = AsyncGuardedTable(client, SeenIds(), table_name=table)
            await story(lambda message: guarded.update_item(message, **addition(message, "e")))

    return proxy, lambda story: asyncio.run(tell(story)), lambda: dynamo_state(dynamo, table)


def _on_mongod(request: pytest.FixtureRequest) -> Place:
    proxy: MongoProxy = request.getfixturevalue("mongo_proxy")
    collection: Collection[dict[str, Any]] = request.getfixturevalue("collection")

    async def tell(story: Story) -> None:
        async with AsyncMongoClient[dict[str, Any]](proxy.uri, serverMonitoringMode="poll") as client:
            guarded = AsyncGuardedCollection(client.test[collection.name], SeenIds())
            await story(lambda message: guarded.update_one(message, {"_id": "e"}, increment(message), upsert=True))

    return proxy, lambda story: asyncio.run(tell(story)), lambda: mongo_state(collection)


def test_redelivery_is_a_duplicate_if_task_is_cancelled_after_writing(place: Place) -> None:
    proxy, run, state = place
    written, cancelled = threading.Event(), threading.Event()
    proxy.plan(Fault.DROP_ANSWER)

    def hold() -> None:
        written.set()
        assert cancelled.wait(30)

    proxy.after_write = hold

    async def story(apply: Apply) -> None:
        task = asyncio.create_task(apply(M1))
        assert await asyncio.to_thread(written.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        cancelled.set()
        assert isinstance(await apply(M1), Duplicate)

    run(story)
    assert state() == (1, ["m-1"])


# pymongo leaves the socket of a task that is cancelled while it connects to the collector, which warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.few(1)
def test_effects_are_exact_if_tasks_time_out(place: Place) -> None:
    _, run, state = place
    choice = random.Random(31)
    messages = [Message(f"m-{n}") for n in range(120)]
    outcomes: list[Outcome] = []

    async def deliver(apply: Apply, message: Message, patience: float | None) -> None:
        try:
            async with asyncio.timeout(patience):
                outcomes.append(await apply(message))
        except TimeoutError:
            outcomes.append(await apply(message))

    async def story(apply: Apply) -> None:
        await apply(Message("the connection is there"))
        for n in range(0, len(messages), 4):
            async with asyncio.TaskGroup() as group:
                for message in messages[n : n + 4]:
                    group.create_task(deliver(apply, message, choice.uniform(0, 0.012)))

    run(story)
    gc.collect()  # here, and not in a later test that expects no warning
    assert sorted(state().effects[1:]) == sorted(message.id for message in messages)
    assert state().n == len(messages) + 1
    assert Counter(outcome.message.id for outcome in outcomes) == {message.id: 1 for message in messages}
    assert {type(outcome) for outcome in outcomes} <= {Applied, Duplicate}
