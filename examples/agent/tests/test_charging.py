"""A run is killed between the charge and its record, and repeated: the card is charged once, and the model is told so."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pymongo import AsyncMongoClient

from agent import UndecidedError, make_handler
from onewrite import Message, SeenIds
from onewrite.mongodb import AsyncGuardedCollection
from onewrite.testing import Crash, Faults, explore, mongod, mongomock_collection
from tests.support.engines import mongod_binary, require
from tests.support.mongo_proxy import MongoProxy
from tests.support.proxy import Fault

JOB = Message("job-1", body="Charge order o-1.")
TWO_CHARGES = Message("job-2", body="Charge order o-1 twice.")
Stores = dict[str, Any]


def make_model() -> FunctionModel:
    """Return a model that calls the tool once, or twice if the job says so, with other arguments whenever it's asked again."""
    asked = itertools.count()

    async def decide(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        calls = len(messages) // 2
        if calls < 1 + ("twice" in str(messages[0])):
            number = next(asked)
            part: Any = ToolCallPart("charge_card", {"order": "o-1", "cents": 1000 + number}, f"call.{number}")
        else:
            part = TextPart("Done.")
        return ModelResponse(parts=[part], timestamp=datetime(2026, 1, 1, tzinfo=UTC))

    return FunctionModel(decide)


class FakeProvider:
    """Remembers charges by their keys in a collection."""

    def __init__(self, charges: Any) -> None:
        self._charges = charges

    async def charge(self, cents: int, *, key: str, seconds: float) -> str:
        await self._charges.update_one({"_id": key}, {"$setOnInsert": {"cents": cents}}, upsert=True)
        return f"charge {key[:8]}"


def build(
    stores: Stores, model: FunctionModel | None = None, **options: Any
) -> Callable[[Message], Coroutine[Any, Any, None]]:
    orders = AsyncGuardedCollection(stores["orders"], SeenIds(), **options)
    handle = make_handler(orders, stores["responses"], FakeProvider(stores["provider"]), model or make_model())

    async def run(job: Message) -> None:
        await handle(job)

    return run


def make_stores() -> Stores:
    shop = mongomock_collection(asynchronous=True).database
    asyncio.run(shop.orders.insert_one({"_id": "o-1"}))
    return {name: shop[name] for name in ("orders", "provider", "responses")}


async def count(stores: Stores) -> tuple[int, int]:
    """Return the number of charges at the provider, and in the order."""
    order = await stores["orders"].find_one({"_id": "o-1"})
    return len([charge async for charge in stores["provider"].find()]), len(order.get("charges", {}))


def in_hours(hours: float) -> Callable[[], float]:
    return lambda: time.time() + 3600 * hours


def kill(stores: Stores, model: FunctionModel, moment: str) -> None:
    """Run the job, and kill the process before or after it records the charge."""
    faults = Faults(stores)
    getattr(faults, f"crash_{moment}")(lambda request: request.store == "orders" and "charges" in str(request.arguments))
    with pytest.raises(Crash):
        asyncio.run(build(faults.store, model)(JOB))
    faults.assert_all_used()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_card_is_charged_once_after_a_kill_before_the_record(moment: str) -> None:
    stores, model = make_stores(), make_model()
    kill(stores, model, moment)
    if moment == "before":
        with pytest.raises(UndecidedError, match="Busy"):
            asyncio.run(build(stores, model)(JOB))
    asyncio.run(build(stores, model, clock=in_hours(0.1))(JOB))
    assert asyncio.run(count(stores)) == (1, 1)


def test_run_ends_if_the_provider_might_have_forgotten_the_charge() -> None:
    stores, model = make_stores(), make_model()
    kill(stores, model, "before")
    with pytest.raises(UndecidedError, match="Uncertain"):
        asyncio.run(build(stores, model, clock=in_hours(24))(JOB))
    assert asyncio.run(count(stores)) == (1, 0)


def test_second_call_of_a_run_is_another_charge() -> None:
    stores, model = make_stores(), make_model()
    for _ in range(2):
        asyncio.run(build(stores, model)(TWO_CHARGES))
    assert asyncio.run(count(stores)) == (2, 2)


def test_concurrent_deliveries_use_the_same_response() -> None:
    stores, model = make_stores(), make_model()

    async def deliver_twice() -> tuple[BaseException | None, ...]:
        handle = build(stores, model)
        return await asyncio.gather(handle(JOB), handle(JOB), return_exceptions=True)

    results = asyncio.run(deliver_twice())
    assert [error for error in results if error is not None and not isinstance(error, UndecidedError)] == []
    assert asyncio.run(count(stores)) == (1, 1)


@pytest.mark.slow
def test_agent_is_effectively_once_with_any_fault() -> None:
    report = explore(build, [JOB], make_stores, count, deliveries=1)
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.slow
def test_agent_is_effectively_once_in_random_schedules() -> None:
    """Every schedule of two concurrent deliveries would take minutes."""
    explore.random(build, [JOB], make_stores, count, seed=0, schedules=15).assert_effectively_once()


WORKER = """
import asyncio, importlib.util
from pymongo import AsyncMongoClient
spec = importlib.util.spec_from_file_location("tests_of_agent", {path!r})
tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)

async def main():
    shop = AsyncMongoClient({uri!r}).shop
    await tests.build({{name: shop[name] for name in ("orders", "provider", "responses")}})(tests.JOB)

asyncio.run(main())
"""


@pytest.mark.slow
def test_card_is_charged_once_if_a_real_process_is_killed() -> None:
    """The process is killed once the provider has charged the card, before the process knows."""
    require(mongod_binary)

    async def repeat(uri: str) -> tuple[int, int]:
        async with AsyncMongoClient[dict[str, Any]](uri) as client:
            stores = {name: client.shop[name] for name in ("orders", "provider", "responses")}
            with pytest.raises(UndecidedError, match="Busy"):
                await build(stores)(JOB)
            await build(stores, clock=in_hours(0.1))(JOB)
            return await count(stores)

    with mongod() as server, MongoProxy("127.0.0.1", server.port) as proxy:
        server.collection("orders", database="shop").insert_one({"_id": "o-1"})
        code = WORKER.format(path=__file__, uri=proxy.uri)
        process = subprocess.Popen([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)})
        proxy.after_write = process.kill
        proxy.plan(
            Fault.PASS, Fault.PASS, Fault.DROP_ANSWER
        )  # the model's response, the begin of the effect, and the charge
        assert process.wait(60) == -9
        assert asyncio.run(repeat(server.uri)) == (1, 1)
