"""Tasks of one delivery that wait for several requests at once: each of them may be the next, and none is lost on the way."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from typing import Any

import pytest

from onewrite import ConfigurationError, Message
from onewrite.testing import explore
from onewrite.testing.explorer.calls import CallThreads, HandlerCall, WatchedLoop, current_call
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.traffic import Request

M1 = Message("m1", body=10)
Handle = Callable[[Any], Coroutine[Any, Any, Any]]


def world() -> Any:
    return mongomock_collection("t", asynchronous=True)


async def everything(collection: Any) -> dict[str, Any]:
    return {document["_id"]: document.get("n") async for document in collection.find({}).sort("_id", 1)}


async def put(collection: Any, key: str, n: object = 1) -> None:
    await collection.update_one({"_id": key}, {"$set": {"n": n}}, upsert=True)


def explored(handle: Handle, **options: Any) -> Exploration:
    """Explore a handler that is given the collection only."""
    given = {"messages": [M1], "world": world, "observe": everything, **options}
    return explore(lambda collection: lambda _: handle(collection), **given)


def ends_of(handle: Handle, **options: Any) -> list[dict[str, Any]]:
    """Everything that is ever seen where the broker has nothing left to deliver."""
    ends: list[dict[str, Any]] = []

    async def observe(collection: Any) -> None:
        seen = await everything(collection)
        if seen and seen not in ends:
            ends.append(seen)

    report = explored(handle, observe=observe, **options)
    assert report.nondeterministic is None
    return ends


# --- explorations -----------------------------------------------------------------------------------------------------


def test_crash_can_apply_any_subset_of_pending_requests() -> None:
    async def handle(collection: Any) -> None:
        found = sorted(set(await everything(collection)) & {"a", "b"})
        if await collection.find_one({"_id": "begun"}) is not None:
            await put(collection, "found", found)
            return
        await put(collection, "begun")
        await asyncio.gather(put(collection, "a"), put(collection, "b"))

    ends = ends_of(handle, deliveries=1)
    assert sorted(end["found"] for end in ends if "found" in end) == [[], ["a"], ["a", "b"], ["b"]]


@pytest.mark.parametrize("waits", [True, False])
def test_a_handler_that_cancels_its_only_write_has_returned(waits: bool) -> None:
    async def handle(collection: Any) -> None:
        task = asyncio.create_task(put(collection, "a"))
        await asyncio.sleep(0)
        task.cancel()
        if waits:
            await asyncio.wait([task])

    report = explored(handle, deliveries=1, faults=0)
    assert report.counterexample is not None
    assert report.counterexample.expected == ({},)
    assert set(report.counterexample.observed) == {"a"}


def test_a_report_shows_cancelled_requests() -> None:
    async def handle(collection: Any) -> None:
        try:
            async with asyncio.timeout(1):
                await put(collection, "a")
        except TimeoutError:
            await put(collection, "b")

    def words(wrong: Callable[[dict[str, Any]], bool]) -> list[str]:
        report = explored(handle, observe=lambda c: _wrong(c, wrong), deliveries=1)
        assert report.counterexample is not None
        return [step.words for step in report.counterexample.steps]

    async def _wrong(collection: Any, wrong: Callable[[dict[str, Any]], bool]) -> bool:
        return wrong(await everything(collection))

    late, unsent = "update_one t a: takes longer than a timer", "update_one t a: cancelled, and never sent"
    arrived = "update_one t a: cancelled, but it has arrived: applied"
    assert words(lambda seen: {*seen} == {"a", "b"}) == [late, arrived, "update_one t b: applied"]
    assert words(lambda seen: {*seen} == {"b"}) == [late, unsent, "update_one t b: applied"]


def test_early_timer_counts_as_a_fault() -> None:
    async def handle(collection: Any) -> None:
        async def late() -> None:
            await asyncio.sleep(60)
            await put(collection, "z", await everything(collection))

        await asyncio.gather(late(), put(collection, "a"))

    seen = [end["z"] for end in ends_of(handle, deliveries=1, faults=0)]
    assert seen == [{"a": 1}]
    assert {} in [end["z"] for end in ends_of(handle, deliveries=1)]


def test_a_dependence_on_task_order_gets_a_remark() -> None:
    async def handle(collection: Any) -> None:
        order: list[str] = []

        async def part(name: str) -> None:
            await put(collection, name)
            order.append(name)

        await asyncio.gather(part("a"), part("b"))
        await put(collection, "order", order)

    report = explored(handle, deliveries=1, faults=0)
    report.assert_effectively_once(accept="tasks")
    assert any("The end depends on which task of a delivery comes first" in remark.text for remark in report.remarks)
    assert "['b', 'a']" in str(report)


@pytest.mark.parametrize("make", [asyncio.Lock, lambda: asyncio.Semaphore(1)])
def test_deliveries_that_wait_for_a_lock_take_turns(make: Callable[[], Any]) -> None:
    async def under(lock: Any, collection: Any) -> None:
        async with lock:
            await put(collection, "a")
            await put(collection, "b")

    def build(collection: Any) -> Any:
        lock = make()
        return lambda _: asyncio.wait_for(under(lock, collection), None)

    report = explore(build, [M1], world, everything)
    report.assert_effectively_once()
    assert report.exhausted


def test_lock_shared_by_two_processes_is_refused_with_the_remedy() -> None:
    lock = threading.Lock()

    async def handle(collection: Any) -> None:
        with lock:
            await put(collection, "a")

    with pytest.raises(ConfigurationError, match=r"Create locks in build\(store\)"):
        ends_of(handle)


def test_unsupported_event_loop_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WatchedLoop, "can_watch", lambda _: False)
    with pytest.raises(
        ConfigurationError, match=r"in an event loop of the kind asyncio.*, in which the explorer can't control"
    ):
        explore(lambda collection: lambda _: asyncio.run(put(collection, "a")), [M1], world, everything)


def test_own_attributes_of_an_event_loop_are_used_and_restored() -> None:
    numbers: list[int] = []

    def run_in_executor(executor: Any, function: Any, *args: Any) -> Any:
        numbers.append(len(numbers))
        return asyncio.SelectorEventLoop.run_in_executor(loop, executor, function, *args)

    def build(collection: Any) -> Callable[[Any], None]:
        async def put_from_thread() -> None:
            await put(collection, await loop.run_in_executor(None, str, "a"))

        return lambda _: loop.run_until_complete(put_from_thread())

    loop: Any = asyncio.SelectorEventLoop()
    loop.time, loop.run_in_executor = lambda: -1.0, run_in_executor
    with closing(loop):
        assert explore(build, [M1], world, everything, faults=0, concurrency=1)
        assert loop.time() == -1.0
        assert loop.run_in_executor is run_in_executor
        assert numbers


@pytest.mark.parametrize("kind", [LookupError, ConfigurationError])
def test_call_that_fails_to_begin_is_released(kind: type[Exception]) -> None:
    def fail(*_: Any) -> None:
        call = current_call.get()
        assert call is not None
        call.stop_exploring(kind())
        call.ask(Request("t", "find", {}, keys=None, writes=False))

    def begin(handle: Any) -> HandlerCall:
        return threads.begin(handle, M1, "m1, delivery 1")

    threads = CallThreads(30.0)
    with pytest.raises(kind):
        begin(fail)
    call = begin(lambda *_: None)
    assert not call.others_stand()
    threads.release(call)
    threads.close()
