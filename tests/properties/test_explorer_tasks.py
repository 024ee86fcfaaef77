"""What the explorer leaves out adds nothing where the tasks of one delivery run side by side: random small handlers of asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import permutations
from math import factorial
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pymongo.errors import DuplicateKeyError, PyMongoError

from onewrite import ConfigurationError, Message
from onewrite.testing import explore
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.everywhere import taps
from tests.support.examples import examples
from tests.support.searches import REDUCED, How, search_schedules

Memory: TypeAlias = dict[str, Any]  # of one delivery, which its tasks share
Acts: TypeAlias = list[tuple[str, str]]  # what a task does, and to which entity
Program: TypeAlias = tuple[str, list[Acts]]  # how the tasks of a delivery are run, and what each of them does

MESSAGE = Message("m1", body=1)


async def add(collection: Any, message: Message, key: str, _: Memory) -> None:
    await collection.update_one({"_id": key}, {"$inc": {"n": message.body}}, upsert=True)


async def add_guarded(collection: Any, message: Message, key: str, _: Memory) -> None:
    update = {"$inc": {"n": message.body}, "$push": {"ids": message.id}}
    with suppress(DuplicateKeyError):
        await collection.update_one({"_id": key, "ids": {"$ne": message.id}}, update, upsert=True)


async def add_or_fail(collection: Any, message: Message, key: str, _: Memory) -> None:
    """Raises for a duplicate, so its siblings are left behind or cancelled."""
    update = {"$inc": {"n": message.body}, "$push": {"ids": message.id}}
    await collection.update_one({"_id": key, "ids": {"$ne": message.id}}, update, upsert=True)


async def read(collection: Any, _: Message, key: str, memory: Memory) -> None:
    memory[key] = (await collection.find_one({"_id": key}) or {}).get("n", 0)


async def put(collection: Any, message: Message, key: str, memory: Memory) -> None:
    """What was read, by whichever task."""
    await collection.update_one({"_id": key}, {"$set": {"n": memory.get(key, 0) + message.body}}, upsert=True)


async def note(collection: Any, message: Message, key: str, memory: Memory) -> None:
    """Keeps for later in which order it was done."""
    await collection.update_one({"_id": f"{key}/{message.id}"}, {"$set": {"n": 1}}, upsert=True)
    memory.setdefault("order", []).append(key)


async def tell(collection: Any, _: Message, key: str, memory: Memory) -> None:
    order = "".join(memory.get("order", []))
    await collection.update_one({"_id": f"{key} told"}, {"$set": {"n": order}}, upsert=True)


async def wait(_collection: Any, _message: Message, _key: str, _memory: Memory) -> None:
    await asyncio.sleep(60)


async def in_time(collection: Any, message: Message, key: str, memory: Memory) -> None:
    """Gives up after a minute."""
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            await add_guarded(collection, message, key, memory)


async def locked(collection: Any, message: Message, key: str, memory: Memory) -> None:
    async with memory["lock"]:
        await read(collection, message, key, memory)
        await put(collection, message, key, memory)


ACTS = {act.__name__: act for act in (add, add_guarded, add_or_fail, read, put, note, tell, wait, in_time, locked)}


async def gathered(*parts: Any) -> None:
    await asyncio.gather(*parts)


async def grouped(*parts: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for part in parts:
            group.create_task(part)


async def raced(*parts: Any) -> None:
    """The first to end wins, and the others are cancelled."""
    tasks = [asyncio.ensure_future(part) for part in parts]
    _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def as_they_come(*parts: Any) -> None:
    for done in asyncio.as_completed(parts):
        with suppress(PyMongoError):
            await done


WAYS = {way.__name__: way for way in (gathered, grouped, raced, as_they_come)}


def make_handler(program: Program) -> Callable[[Any], Any]:
    way, tasks = program

    def build(collection: Any) -> Any:
        async def run(message: Message, acts: Acts, memory: Memory) -> None:
            for act, key in acts:
                await ACTS[act](collection, message, key, memory)

        async def handle(message: Message) -> None:
            memory: Memory = {"lock": asyncio.Lock()}
            await WAYS[way](*[run(message, acts, memory) for acts in tasks])
            await tell(collection, message, "z", memory)

        return handle

    return build


def world() -> Any:
    return mongomock_collection("t", asynchronous=True)


async def observe(collection: Any) -> object:
    return [(document["_id"], document.get("n")) async for document in collection.find({}).sort("_id", 1)]


def searched(program: Program, bounds: Bounds, how: How) -> tuple[set[str], set[str], int]:
    """What was found, every state that a broker might leave behind, and how many schedules were run."""
    ends: set[str] = set()

    async def observed(collection: Any) -> None:
        ends.add(repr([document async for document in collection.find({}).sort("_id", 1)]))

    with taps.on():
        shown, judge = search_schedules(make_handler(program), [MESSAGE], world, bounds, observed, how)
    assert judge.nondeterministic is None
    return {one.finding.reason for one in shown if one.finding is not None}, ends, len(shown)


acts = st.tuples(st.sampled_from(sorted(ACTS)), st.sampled_from("ab"))
programs = st.tuples(st.sampled_from(sorted(WAYS)), st.lists(st.lists(acts, min_size=1, max_size=2), min_size=2, max_size=2))
SCOPES = [Bounds(deliveries=1), Bounds(faults=0, concurrency=1), Bounds(deliveries=1, faults=2)]


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.filter_too_much])
@given(programs, st.sampled_from(SCOPES))
def test_pruning_loses_no_end_state_of_concurrent_tasks(program: Program, bounds: Bounds) -> None:
    try:
        whole, ends, count = searched(program, bounds, "every schedule")
    except ConfigurationError:  # it fails even undisturbed
        assume(False)  # hypothesis takes it so
        return
    for how in REDUCED:
        found = searched(program, bounds, how)
        assert found[:2] == (whole, ends)
        assert found[2] <= count


@pytest.mark.slow
@pytest.mark.measured
@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.filter_too_much])
@given(programs)
def test_counterexample_of_tasks_is_wrong_again_if_replayed(program: Program) -> None:
    options: dict[str, Any] = {"messages": [MESSAGE], "world": world, "observe": observe, "deliveries": 1}
    try:
        report = explore(make_handler(program), **options)
    except ConfigurationError:
        assume(False)  # the same
        return
    assert report.nondeterministic is None
    if report.counterexample is not None:
        replayed = explore(make_handler(program), **options, replay=report.counterexample.replay_code)
        assert replayed.counterexample == report.counterexample


@pytest.mark.parametrize("tasks", [(2, 2), (1, 2), (1, 1, 1), (3,), (2, 1, 1)])
def test_every_order_of_the_requests_of_tasks_is_run_once(tasks: tuple[int, ...]) -> None:
    """`tasks` says how many requests each of them sends."""
    program = "gathered", [[("note", f"{task}.{number}") for number in range(count)] for task, count in enumerate(tasks)]
    wanted = factorial(sum(tasks))
    for count in tasks:
        wanted //= factorial(count)
    _, ends, count = searched(program, Bounds(deliveries=1, faults=0), "every schedule")
    assert count == wanted
    assert len(ends - {"[]"}) == wanted  # the handler tells in which order its requests were answered


def test_all_serial_orders_of_tasks_are_right() -> None:
    """And none in which one of them comes between two requests of another."""
    program = "gathered", [[("note", "a"), ("note", "b")], [("note", "c"), ("note", "d")]]
    report = explore(make_handler(program), [MESSAGE], world, observe, deliveries=1, faults=0)
    assert report.counterexample is not None
    told = {dict(state)["z told"] for state in report.counterexample.expected}
    assert told == {"".join(order) for order in permutations(["ab", "cd"])}
    assert dict(report.counterexample.observed)["z told"] not in told
