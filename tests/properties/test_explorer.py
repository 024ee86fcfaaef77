"""What the explorer leaves out adds nothing: random small handlers, explored with pruning and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from pymongo.errors import DuplicateKeyError, PyMongoError

from onewrite import Message
from onewrite.testing.explorer.explore import explore
from onewrite.testing.explorer.judge import Judge, JudgedSchedule
from onewrite.testing.explorer.schedule import Bounds, Delivery, Fault, Reorder, Step, Steps
from onewrite.testing.explorer.search import Search
from onewrite.testing.explorer.trial import Subject
from onewrite.testing.standins.stores import new_collection
from tests.support.examples import examples

Handler: TypeAlias = Callable[[Message], object]
Program: TypeAlias = dict[str, list[tuple[str, str]]]  # for each message what its handler does, and to which entity

KEYS = "ab"


def add(collection: Any, message: Message, key: str, _: dict[str, int]) -> None:
    collection.update_one({"_id": key}, {"$inc": {"n": message.body}}, upsert=True)


def add_guarded(collection: Any, message: Message, key: str, _: dict[str, int]) -> None:
    update = {"$inc": {"n": message.body}, "$push": {"ids": message.id}}
    with suppress(DuplicateKeyError):
        collection.update_one({"_id": key, "ids": {"$ne": message.id}}, update, upsert=True)


def read(collection: Any, _: Message, key: str, memory: dict[str, int]) -> None:
    memory[key] = (collection.find_one({"_id": key}) or {}).get("n", 0)


def put(collection: Any, message: Message, key: str, memory: dict[str, int]) -> None:
    """What was read, and more; the same each time where nothing was read."""
    collection.update_one({"_id": key}, {"$set": {"n": memory.get(key, 0) + message.body}}, upsert=True)


def mark(collection: Any, message: Message, key: str, _: dict[str, int]) -> None:
    collection.insert_one({"_id": f"{key}/{message.id}"})


def careless(collection: Any, message: Message, key: str, memory: dict[str, int]) -> None:
    """Takes a lost answer for a success."""
    with suppress(PyMongoError):
        add_guarded(collection, message, key, memory)


ACTS = {act.__name__: act for act in (add, add_guarded, read, put, mark, careless)}


def handler_of(program: Program) -> Callable[[Any], Handler]:
    def build(collection: Any) -> Handler:
        def handle(message: Message) -> None:
            memory: dict[str, int] = {}
            for act, key in program[message.id]:
                ACTS[act](collection, message, key, memory)

        return handle

    return build


def messages_of(program: Program) -> list[Message]:
    return [Message(name, source=name[0], body=10**place) for place, name in enumerate(program)]


def observe(collection: Any) -> object:
    return [(document["_id"], document.get("n")) for document in collection.find({}).sort("_id", 1)]


def world() -> Any:
    return new_collection("t")


class Found(NamedTuple):
    """What a search came to: the schedules that it ran, and every state that a broker might leave behind."""

    shown: list[JudgedSchedule]
    ends: set[str]

    @property
    def findings(self) -> set[str]:
        wrong = [one.finding for one in self.shown if one.finding is not None]
        return {f"{finding.reason.partition(':')[0]} {finding.observed}" for finding in wrong}


def searched(program: Program, bounds: Bounds, *, prune: bool, lenient: bool = False) -> Found:
    """`lenient`: no state is a finding, so that no schedule is cut short by one."""
    ends: set[str] = set()

    def observed(collection: Any) -> object:
        ends.add(repr(list(collection.find({}).sort("_id", 1))))
        return None if lenient else observe(collection)

    subject = Subject(handler_of(program), messages_of(program), world, bounds, 30)
    with closing(subject):
        judge = Judge(subject, observed)
        judge.prepare()
        return Found(list(Search(judge, prune=prune)), ends)


class Scope(NamedTuple):
    messages: int
    acts: int
    bounds: Bounds


# Few enough schedules to run them all without pruning.
SCOPES = [
    Scope(1, 3, Bounds()),
    Scope(2, 1, Bounds()),
    Scope(2, 2, Bounds(deliveries=1)),
    Scope(2, 2, Bounds(crashes=0)),
    Scope(2, 2, Bounds(reorder=False, concurrency=1)),
    Scope(2, 2, Bounds(crashes=0, concurrency=1)),
    Scope(3, 1, Bounds(deliveries=1, reorder="within_source")),
    Scope(2, 1, Bounds(deliveries=1, crashes=2)),
    Scope(3, 1, Bounds(deliveries=1, concurrency=3)),
]
acts = st.tuples(st.sampled_from(sorted(ACTS)), st.sampled_from(KEYS))
NAMES = ("x1", "x2", "y3")


@st.composite
def cases(draw: st.DrawFn) -> tuple[Program, Bounds]:
    scope = draw(st.sampled_from(SCOPES))
    program = {name: draw(st.lists(acts, min_size=1, max_size=scope.acts)) for name in NAMES[: scope.messages]}
    # A mark that is there already raises, so two of one entity would never let a message through.
    return {
        name: [act for at, act in enumerate(done) if act not in done[:at]] for name, done in program.items()
    }, scope.bounds


@settings(max_examples=examples(40))
@given(cases())
def test_pruning_loses_no_finding(case: tuple[Program, Bounds]) -> None:
    pruned, whole = (searched(*case, prune=prune) for prune in (True, False))
    assert pruned.findings == whole.findings
    assert len(pruned.shown) <= len(whole.shown)


# The first requests commute. Only one delivery may be under way, so whoever starts first is done before the other starts.
ONE_AT_A_TIME: Program = {
    "x1": [("add_guarded", "a"), ("add_guarded", "c")],
    "x2": [("add_guarded", "b"), ("add_guarded", "c")],
}


@settings(max_examples=examples(40))
@given(cases())
@example((ONE_AT_A_TIME, Bounds(deliveries=1, crashes=0, concurrency=1)))
def test_pruning_loses_no_end(case: tuple[Program, Bounds]) -> None:
    pruned, whole = (searched(*case, prune=prune, lenient=True) for prune in (True, False))
    assert pruned.ends == whole.ends
    assert pruned.findings == whole.findings


@settings(max_examples=examples(30))
@given(cases())
def test_a_counterexample_is_wrong_again_when_its_replay_code_is_replayed(case: tuple[Program, Bounds]) -> None:
    program, bounds = case
    assume(any(name != "read" for done in program.values() for name, _ in done))  # the explorer refuses what writes nothing
    options: dict[str, Any] = {
        "messages": messages_of(program),
        "world": world,
        "observe": observe,
        "deliveries": bounds.deliveries,
        "crashes": bounds.crashes,
        "reorder": bounds.reorder,
        "concurrency": bounds.concurrency,
    }
    report = explore(handler_of(program), **options)
    assert report.nondeterministic is None
    assert (report.counterexample is not None) == bool(searched(program, bounds, prune=True).findings)
    if report.counterexample is not None:
        replayed = explore(handler_of(program), **options, replay=report.counterexample.replay_code)
        assert replayed.counterexample == report.counterexample


# --- every schedule within the bounds ---------------------------------------------------------------------------------


def every_schedule(requests: Sequence[int], bounds: Bounds) -> Iterator[Steps]:
    """All schedules of messages whose handler sends so many writes and then is done, counted out by hand."""

    def extend(steps: Steps, sent: dict[Delivery, int], done: dict[Delivery, bool], faults: int) -> Iterator[Steps]:
        moves = [
            delivery
            for message in range(len(requests))
            for number in range(bounds.deliveries)
            if (delivery := Delivery(message, number)) not in done and may_move(delivery, sent, done)
        ]
        if not moves:
            yield steps
        for delivery in moves:
            for fault in [Fault.NONE, *([*"BAL"] if faults < bounds.crashes else [])]:
                now = {**sent, delivery: sent.get(delivery, 0) + 1}
                ends = bool(fault) or now[delivery] == requests[delivery.message]
                ended = {**done, delivery: not fault} if ends else done
                yield from extend((*steps, Step(delivery, Fault(fault))), now, ended, faults + bool(fault))

    def may_move(delivery: Delivery, sent: dict[Delivery, int], done: dict[Delivery, bool]) -> bool:
        if delivery in sent:
            return True
        message, number = delivery
        if len(sent.keys() - done.keys()) == bounds.concurrency:
            return False
        if number > 0:
            return Delivery(message, number - 1) in sent
        settled = {other.message for other, well in done.items() if well}
        return bounds.reorder is True or all(earlier in settled for earlier in range(message))

    return extend((), {}, {}, 0)


@cache
def rewriting(requests: tuple[int, ...]) -> Program:
    """Every write puts the same, so that no schedule is cut short by a finding."""
    return {name: [("put", KEYS[0])] * count for name, count in zip(NAMES, requests, strict=False)}


@pytest.mark.parametrize("reorder", [True, False])
@pytest.mark.parametrize("concurrency", [1, 2, 3])
@pytest.mark.parametrize("crashes", [0, 1, 2])
@pytest.mark.parametrize(("requests", "deliveries"), [((1,), 3), ((2,), 2), ((3,), 1), ((2, 1), 1), ((1, 1), 2)])
def test_every_schedule_within_the_bounds_is_run_once(
    requests: tuple[int, ...], deliveries: int, crashes: int, concurrency: int, reorder: Reorder
) -> None:
    bounds = Bounds(deliveries, crashes, reorder, concurrency)
    wanted = list(every_schedule(requests, bounds))
    if len(wanted) > 1500:
        pytest.skip("a matter of time, not of another kind")
    found = [shown.steps for shown in searched(rewriting(requests), bounds, prune=False, lenient=True).shown]
    assert sorted(found) == sorted(wanted)
