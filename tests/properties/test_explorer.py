"""What the explorer leaves out adds nothing: random small handlers, explored with pruning and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import pytest
from hypothesis import assume, example, given, reject, settings
from hypothesis import strategies as st
from pymongo import ReadPreference
from pymongo.errors import DuplicateKeyError, PyMongoError

from onewrite import ConfigurationError, Message
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.explore import explore
from onewrite.testing.explorer.judge import JudgedSchedule
from onewrite.testing.explorer.schedule import Bounds, Delivery, Reorder, ScheduleStep, Steps
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.fault import Fault
from tests.support.examples import examples
from tests.support.searches import REDUCED, How, search_schedules

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


def read_late(collection: Any, message: Message, key: str, memory: dict[str, int]) -> None:
    read(collection.with_options(read_preference=ReadPreference.SECONDARY), message, key, memory)


def put(collection: Any, message: Message, key: str, memory: dict[str, int]) -> None:
    """What was read, and more; the same each time where nothing was read."""
    collection.update_one({"_id": key}, {"$set": {"n": memory.get(key, 0) + message.body}}, upsert=True)


def mark(collection: Any, message: Message, key: str, _: dict[str, int]) -> None:
    collection.insert_one({"_id": f"{key}/{message.id}"})


def careless(collection: Any, message: Message, key: str, memory: dict[str, int]) -> None:
    """Takes a lost answer for a success."""
    with suppress(PyMongoError):
        add_guarded(collection, message, key, memory)


ACTS = {act.__name__: act for act in (add, add_guarded, read, read_late, put, mark, careless)}


def add_unless_seen(collection: Any, message: Message, key: str, kept: dict[str, int]) -> None:
    """Goes by what the process has seen."""
    if kept.setdefault(message.id + key, 0) == 0:
        add(collection, message, key, kept)
        kept[message.id + key] = 1


def add_every_other_time(collection: Any, message: Message, key: str, kept: dict[str, int]) -> None:
    kept["calls"] = kept.get("calls", 0) + 1
    if kept["calls"] % 2:
        add(collection, message, key, kept)


def put_what_was_read_first(collection: Any, message: Message, key: str, kept: dict[str, int]) -> None:
    """Reads an entity once in the life of the process."""
    if key not in kept:
        read(collection, message, key, kept)
    put(collection, message, key, kept)


def add_guarded_unless_under_way(collection: Any, message: Message, key: str, kept: dict[str, int]) -> None:
    """Leaves the message to the delivery that is under way, and says that it is done."""
    if not kept.get(message.id):
        kept[message.id] = 1
        add_guarded(collection, message, key, kept)
        kept[message.id] = 0


def add_guarded_unless_it_failed(collection: Any, message: Message, key: str, kept: dict[str, int]) -> None:
    """Leaves out what comes after a failure, once."""
    if kept.pop("failed", 0):
        return
    try:
        add_guarded(collection, message, key, kept)
    except PyMongoError:
        kept["failed"] = 1
        raise


def add_unless_just_refused(collection: Any, message: Message, key: str, kept: dict[str, int]) -> None:
    """Takes the message after a duplicate for another one."""
    if kept.pop("refused", 0):
        return
    try:
        collection.insert_one({"_id": f"{key}/{message.id}", "n": message.body})
    except DuplicateKeyError:
        kept["refused"] = 1


def add_guarded_by_the_shared_key(collection: Any, message: Message, key: str, kept: dict[str, int]) -> None:
    """Keeps in one place which entity it is at, as if no other delivery was under way."""
    kept["at"] = ord(key)
    with suppress(DuplicateKeyError):
        collection.insert_one({"_id": f"{key}/{message.id}"})
    add_guarded(collection, message, chr(kept["at"]), kept)


KEEPING = {
    act.__name__: act
    for act in (
        add_unless_seen,
        add_every_other_time,
        put_what_was_read_first,
        add_guarded_unless_under_way,
        add_guarded_unless_it_failed,
        add_unless_just_refused,
        add_guarded_by_the_shared_key,
    )
}


def make_handler(program: Program) -> Callable[[Any], Handler]:
    def build(collection: Any) -> Handler:
        kept: dict[str, int] = {}  # by the handler, from one delivery to the next

        def handle(message: Message) -> None:
            memory: dict[str, int] = {}
            for act, key in program[message.id]:
                if act in KEEPING:
                    KEEPING[act](collection, message, key, kept)
                else:
                    ACTS[act](collection, message, key, memory)

        return handle

    return build


def messages_of(program: Program) -> list[Message]:
    return [Message(name, source=name[0], body=10**place) for place, name in enumerate(program)]


def observe(collection: Any) -> object:
    return [(document["_id"], document.get("n")) for document in collection.find({}).sort("_id", 1)]


def world() -> Any:
    return mongomock_collection("t")


class Found(NamedTuple):
    """What a search came to: the schedules that it ran, and every state that a broker might leave behind."""

    shown: list[JudgedSchedule]
    ends: set[str]

    @property
    def findings(self) -> set[str]:
        wrong = [one.finding for one in self.shown if one.finding is not None]
        return {f"{finding.reason.partition(':')[0]} {finding.observed}" for finding in wrong}


def searched(program: Program, bounds: Bounds, how: How, *, lenient: bool = False, own_processes: bool = False) -> Found:
    """`lenient`: no state is a finding, so no schedule is cut short by one. `own_processes`: each delivery has one of its own."""
    ends: set[str] = set()

    def observed(collection: Any) -> object:
        ends.add(repr(list(collection.find({}).sort("_id", 1))))
        return None if lenient else observe(collection)

    given = (make_handler(program), messages_of(program), world, bounds, observed, how)
    return Found(search_schedules(*given, own_processes=own_processes)[0], ends)


def explored(program: Program, bounds: Bounds, **more: Any) -> Exploration:
    """As a user explores the program."""
    limits: dict[str, Any] = {name: getattr(bounds, name) for name in ("deliveries", "faults", "reorder", "concurrency")}
    return explore(make_handler(program), messages_of(program), world, observe, **limits, **more)


class Scope(NamedTuple):
    messages: int
    acts: int
    bounds: Bounds


# Few enough schedules to run them all without pruning.
SCOPES = [
    Scope(1, 3, Bounds()),
    Scope(2, 1, Bounds()),
    Scope(2, 2, Bounds(deliveries=1)),
    Scope(2, 2, Bounds(faults=0)),
    Scope(2, 2, Bounds(reorder=False, concurrency=1)),
    Scope(2, 2, Bounds(faults=0, concurrency=1)),
    Scope(3, 1, Bounds(deliveries=1, reorder="within_source")),
    Scope(2, 1, Bounds(deliveries=1, faults=2)),
    Scope(3, 1, Bounds(deliveries=1, concurrency=3)),
]
acts = st.tuples(st.sampled_from(sorted(ACTS)), st.sampled_from(KEYS))
any_acts = st.tuples(st.sampled_from(sorted([*ACTS, *KEEPING])), st.sampled_from(KEYS))
NAMES = ("x1", "x2", "y3")


@st.composite
def cases(draw: st.DrawFn, acts: st.SearchStrategy[tuple[str, str]] = acts) -> tuple[Program, Bounds]:
    scope = draw(st.sampled_from(SCOPES))
    program = {name: draw(st.lists(acts, min_size=1, max_size=scope.acts)) for name in NAMES[: scope.messages]}
    # A mark that is there already raises, so two of one entity would never let a message through.
    return {
        name: [act for at, act in enumerate(done) if act not in done[:at]] for name, done in program.items()
    }, scope.bounds


@pytest.mark.slow
@pytest.mark.measured  # nothing else goes on searching after a finding
@settings(max_examples=examples(40))
@given(cases())
def test_pruning_loses_no_finding(case: tuple[Program, Bounds]) -> None:
    whole = searched(*case, "every schedule")
    for how in REDUCED:
        pruned = searched(*case, how)
        assert pruned.findings == whole.findings
        assert len(pruned.shown) <= len(whole.shown)


# The first requests commute. Only one delivery may be under way, so whoever starts first is done before the other starts.
ONE_AT_A_TIME: Program = {
    "x1": [("add_guarded", "a"), ("add_guarded", "c")],
    "x2": [("add_guarded", "b"), ("add_guarded", "c")],
}


@pytest.mark.slow
@settings(max_examples=examples(40))
@given(cases())
@example((ONE_AT_A_TIME, Bounds(deliveries=1, faults=0, concurrency=1)))
def test_pruning_loses_no_end_state(case: tuple[Program, Bounds]) -> None:
    whole = searched(*case, "every schedule", lenient=True)
    for how in REDUCED:
        pruned = searched(*case, how, lenient=True)
        assert pruned.ends == whole.ends
        assert pruned.findings == whole.findings


@pytest.mark.slow  # the gallery replays some counterexamples quickly
@settings(max_examples=examples(30))
@given(cases())
def test_counterexample_is_wrong_again_if_replayed(case: tuple[Program, Bounds]) -> None:
    program, bounds = case
    assume(
        any(not name.startswith("read") for done in program.values() for name, _ in done)
    )  # the explorer refuses what writes nothing
    report = explored(program, bounds)
    assert report.nondeterministic is None
    assert (report.counterexample is not None) == bool(searched(program, bounds, "recalled").findings)
    if report.counterexample is not None:
        replayed = explored(program, bounds, replay=report.counterexample.replay_code)
        assert replayed.counterexample == report.counterexample


@pytest.mark.slow
@settings(max_examples=examples(80))
@given(cases(any_acts))
@example(({"x1": [("add_guarded_unless_it_failed", "a")], "x2": [("add_guarded_unless_it_failed", "b")]}, Bounds()))
@example(({"x1": [("add_every_other_time", "a")], "x2": [("add_guarded", "b")]}, Bounds(deliveries=2, faults=0)))
def test_handler_with_memory_is_judged_by_every_schedule(case: tuple[Program, Bounds]) -> None:
    program, bounds = case
    try:
        wrong = searched(program, bounds, "every schedule").findings
        if bounds.concurrency > 1:
            wrong |= searched(program, bounds, "every schedule", own_processes=True).findings
    except ConfigurationError:  # it fails even undisturbed
        reject()
    assume(any(not name.startswith("read") for done in program.values() for name, _ in done))
    report = explored(program, bounds)
    assert (report.counterexample is not None) == bool(wrong)


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
            for fault in [Fault.NONE, *([*"BALTN"] if faults < bounds.faults else [])]:
                now = {**sent, delivery: sent.get(delivery, 0) + 1}
                ends = bool(fault) or now[delivery] == requests[delivery.message]
                ended = {**done, delivery: not fault} if ends else done
                yield from extend((*steps, ScheduleStep(delivery, Fault(fault))), now, ended, faults + bool(fault))

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
    """Every write puts the same, so no schedule is cut short by a finding."""
    return {name: [("put", KEYS[0])] * count for name, count in zip(NAMES, requests, strict=False)}


@pytest.mark.parametrize("reorder", [True, False])
@pytest.mark.parametrize("concurrency", [1, 2, 3])
@pytest.mark.parametrize("faults", [0, 1, 2])
@pytest.mark.parametrize(("requests", "deliveries"), [((1,), 3), ((2,), 2), ((3,), 1), ((2, 1), 1), ((1, 1), 2)])
@pytest.mark.few(20)
def test_every_schedule_within_the_bounds_is_run_once(
    requests: tuple[int, ...], deliveries: int, faults: int, concurrency: int, reorder: Reorder
) -> None:
    bounds = Bounds(deliveries, faults, reorder, concurrency)
    wanted = list(every_schedule(requests, bounds))
    if len(wanted) > 1500:
        pytest.skip("a matter of time, not of another kind")
    found = [shown.steps for shown in searched(rewriting(requests), bounds, "every schedule", lenient=True).shown]
    assert sorted(found) == sorted(wanted)
