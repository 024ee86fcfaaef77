"""What the explorer reads of a handler's memory, and what a process is to it."""

from __future__ import annotations

import functools
import io
import itertools
import json
import os
import random
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from botocore.exceptions import ClientError
from pymongo.errors import ServerSelectionTimeoutError

import tests.support.kept
from onewrite import Message, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import Identity, cloudevent, eventbridge, json_body, s3_object, sns
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore, sqs_event
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.memory import is_readable, memory_of
from onewrite.testing.standins.stores import mongomock_collection, moto_tables
from onewrite.testing.taps.tap import send, tap

Handler: TypeAlias = Callable[[Message], Any]

M1, M2 = Message("m1", body=1), Message("m2", body=10)
C1 = {"_id": "c1"}
SEEN_BY_THE_MODULE: list[str] = []

# --- what is read -----------------------------------------------------------------------------------------------------


class Slotted:
    __slots__ = ("__hidden", "__weakref__")

    def __init__(self) -> None:
        self.__hidden = [0]

    def hide(self) -> None:
        self.__hidden.append(1)


class OfTheClass:
    kept: list[int] = []  # noqa: RUF012  # that is what is read here

    def __call__(self) -> list[int]:
        return self.kept


class DerivedFromIt(OfTheClass):
    pass


def closed_over(value: Any) -> Callable[[], Any]:
    return lambda: value


def by_the_module() -> list[str]:
    return SEEN_BY_THE_MODULE


def numbered() -> Iterator[int]:
    at = 0
    while True:
        at += 1
        yield at


def one_of_many() -> Iterator[int]:
    for each in [0, 0, 0]:  # noqa: UP028  # that is what is read here
        yield each


def yielded_from() -> Iterator[int]:
    yield from one_of_many()


def begun(generator: Iterator[int]) -> tuple[Any, Callable[[], Any]]:
    next(generator)
    return closed_over(generator), lambda: next(generator)


def of_a_module_in_a_package() -> list[int]:
    return tests.support.kept.IDS


def of_a_module_that_it_imports() -> list[int]:
    from tests.support.kept import IDS  # noqa: PLC0415  # that is what is read here

    return IDS


def a_number_and_its_change() -> tuple[Any, Callable[[], Any]]:
    calls = 0

    def handle() -> None:
        nonlocal calls
        calls += 1

    return handle, handle


def appended(value: Any) -> tuple[Any, Callable[[], Any]]:
    return closed_over(value), lambda: value.append(1)


def changes() -> dict[str, tuple[Any, Callable[[], Any]]]:
    """Handlers, and what changes the memory of each."""
    slotted, nested, counted = Slotted(), {"a": {"b": [OrderedDict(x=[0])]}}, Counter("a")
    drawn, generator, referent = random.Random(0), numbered(), Slotted()
    partly: Any = functools.partial(print, [0])
    ids: set[Any] = {1, "a", (2, 3)}
    hooked: list[int] = []
    in_order, buffer, lock = OrderedDict(a=1, b=2), io.StringIO("a"), threading.Lock()
    decoder: Any = json.JSONDecoder(object_hook=lambda _: hooked)
    return {
        "number": a_number_and_its_change(),
        "list": appended([0]),
        "nested": (closed_over(nested), lambda: nested["a"]["b"][0]["x"].append(1)),
        "set": (closed_over(ids), lambda: ids.add(4)),
        "private slot": (slotted.hide, slotted.hide),
        "method": (counted.update, lambda: counted.update("b")),
        "random numbers": (closed_over(drawn), drawn.random),
        "generator": (closed_over(generator), lambda: next(generator)),
        "partial": (partly, lambda: partly.args[0].append(1)),
        "what is weakly referred to": (closed_over(weakref.ref(referent)), referent.hide),
        "class": (OfTheClass(), lambda: OfTheClass.kept.append(1)),
        "module": (by_the_module, lambda: SEEN_BY_THE_MODULE.append("m1")),
        "base class": (DerivedFromIt(), lambda: OfTheClass.kept.append(1)),
        "module in a package": (of_a_module_in_a_package, lambda: tests.support.kept.IDS.append(1)),
        "module that it imports": (of_a_module_that_it_imports, lambda: tests.support.kept.IDS.append(1)),
        "order": (closed_over(in_order), lambda: in_order.move_to_end("a")),
        "buffer": (closed_over(buffer), lambda: buffer.write("b")),
        "lock": (closed_over(lock), lock.acquire),
        "iterator of a generator": begun(one_of_many()),
        "generator of a generator": begun(yielded_from()),
        "hook of a decoder": (decoder.scan_once, lambda: hooked.append(1)),
    }


@pytest.mark.parametrize("what", list(changes()))
def test_a_change_in_memory_is_seen(what: str) -> None:
    handler, change = changes()[what]
    before = memory_of(handler)
    assert is_readable(before)
    assert memory_of(handler) == before
    change()
    assert is_readable(memory_of(handler))
    assert memory_of(handler) != before


def test_a_change_in_a_default_is_seen() -> None:
    kept = [0]

    def handle(kept: list[int] = kept) -> list[int]:
        return kept

    before = memory_of(handle)
    kept.append(1)
    assert memory_of(handle) != before


def test_what_is_in_a_circle_is_read_once() -> None:
    kept: list[Any] = [0]
    kept.append(kept)
    before = memory_of(closed_over(kept))
    assert is_readable(before)
    kept[0] = 1
    assert memory_of(closed_over(kept)) != before


def filled_cache() -> Any:
    cached = functools.cache(str)
    cached(1)
    return cached


@pytest.mark.parametrize("make", [threading.local, filled_cache])
def test_memory_that_cannot_be_read_is_never_the_same(make: Callable[[], Any]) -> None:
    handler = closed_over(make())
    assert memory_of(handler) != memory_of(handler)
    assert not is_readable(memory_of(handler))


def test_what_a_guarded_store_does_is_no_change() -> None:
    """Otherwise every handler with one would be looked at twice."""
    customers = mongomock_collection("customers")
    on_documents = GuardedCollection(tap(customers, lambda request: send(customers, request)), SeenIds())
    with moto_tables() as make:
        table = make("customers", key="id")
        on_items = GuardedTable(tap(table, lambda request: send(table, request)), SeenIds())
        handle = closed_over([on_documents, on_items])
        before = memory_of(handle)
        for message in (M1, M1, M2):
            on_documents.update_one(message, C1, {"$inc": {"n": 1}}, upsert=True)
            change: Any = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": 1}}
            on_items.update_item(message, Key={"id": "c1"}, **change)
        assert memory_of(handle) == before


IDENTITIES: dict[str, Identity] = {
    "json_body": json_body(id="id", source="source", sequence="n", parse_float=float),
    "cloudevent": cloudevent(),
    "eventbridge": eventbridge(json_body(id="id")),
    "sns": sns(json_body(id="id")),
    "s3_object": s3_object(),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_what_a_decorator_adds_to_a_handler_can_be_read_and_does_not_change(name: str) -> None:
    """Otherwise nothing is pruned where the handler goes by its memory, as by a clock that the test moves."""

    def handle(message: Message) -> None: ...

    def handle_group(messages: list[Message]) -> None: ...

    identity = IDENTITIES[name]
    one = sqs_handler(identity, max_workers=2, on_outcome=lambda message, outcome, seconds: None)(handle)
    several = sqs_handler(identity, group_by=lambda message: message.id)(handle_group)
    for handler in (one, one.each, several, several.each):
        before = memory_of(closed_over(handler))
        assert is_readable(before)
        for _ in range(2):
            one(sqs_event({"id": "a", "source": "s", "n": 1}, "b"))
            several(sqs_event({"id": "a", "source": "s", "n": 1}, "b"))
        assert memory_of(closed_over(handler)) == before


def test_a_note_says_what_keeps_the_search_from_sparing_any_schedule() -> None:
    def build(collection: Any) -> Handler:
        unreadable, calls = threading.local(), [0]

        def handle(message: Message) -> None:
            calls[0] += 1
            unreadable.last = message.id
            collection.update_one({"_id": message.id, "n": calls[0]}, {"$set": {"n": calls[0]}}, upsert=True)

        return handle

    report = explore(build, [M1], customers, lambda collection: collection.count_documents({}), schedules=50)
    assert not report.pruned
    assert any("_thread._local" in remark.text for remark in report.remarks if remark.kind == "note")


# --- what a process is ------------------------------------------------------------------------------------------------


def customers() -> Any:
    return mongomock_collection("customers")


def credit(collection: Any) -> Any:
    return (collection.find_one(C1) or {}).get("n", 0)


def explored(build: Callable[[Any], Handler], messages: Any = (M1,), **options: Any) -> Exploration:
    given: dict[str, Any] = {"world": customers, "observe": credit, **options}
    return explore(build, messages=messages, **given)


def add_guarded(collection: Any, message: Message) -> Any:
    guarded = GuardedCollection(collection, SeenIds())
    return guarded.update_one(message, C1, {"$inc": {"n": message.body}}, upsert=True)


def test_a_process_that_has_died_keeps_nothing() -> None:
    def build(collection: Any) -> Handler:
        died: list[str] = []

        def handle(message: Message) -> None:
            if message.id in died:
                return  # only in the process that it has died in
            died.append(message.id)
            add_guarded(collection, message)
            died.remove(message.id)

        return handle

    report = explored(build, concurrency=1)
    assert report.counterexample is not None
    assert "CRASH" not in str(report)  # a failure that it survives goes wrong, and a crash does not


def test_what_is_under_way_when_another_delivery_dies_goes_on_in_the_process_that_it_is_in() -> None:
    """Each process tells its deliveries its number. A delivery that changes its process would notice."""
    processes = itertools.count()

    def build(collection: Any) -> Handler:
        process = next(processes)
        at: dict[str, int] = {}

        def handle(message: Message) -> None:
            at[message.id] = process
            collection.find_one(C1)
            assert at[message.id] == process
            add_guarded(collection, message)

        return handle

    explored(build, (M1, M2), faults=2, deliveries=1).assert_effectively_once()


@pytest.mark.parametrize("faults", [1, 2])
def test_a_list_that_build_empties_is_not_emptied_in_the_middle_of_a_schedule(faults: int) -> None:
    mails: list[str] = []

    def build(collection: Any) -> Handler:
        mails.clear()

        def handle(message: Message) -> Any:
            mails.append(message.id)
            return add_guarded(collection, message)

        return handle

    # Emptied in between, it would end without any mail where the process has died after the write.
    some = explored(build, observe=lambda _: bool(mails), faults=faults, concurrency=1)
    some.assert_effectively_once(accept="beside")
    assert "observe() asked none of the stores" in str(some)
    assert explored(build, observe=lambda _: len(mails), faults=faults, concurrency=1).counterexample is not None


def test_a_list_that_belongs_to_a_handler_survives_its_crashes_and_a_remark_says_so() -> None:
    latest: list[list[str]] = []

    def build(collection: Any) -> Handler:
        mails: list[str] = []
        latest[:] = [mails]

        def handle(message: Message) -> Any:
            mails.append(message.id)
            return add_guarded(collection, message)

        return handle

    report = explored(build, observe=lambda _: bool(latest[0]), concurrency=1)
    report.assert_effectively_once(accept=["memory", "beside"])
    assert ["has survived its crashes" in remark.text for remark in report.remarks if remark.kind == "memory"] == [True]


def test_a_handler_that_recovers_when_it_is_built_is_built_when_it_takes_over() -> None:
    def build(collection: Any) -> Handler:
        started = [each["_id"] for each in collection.find({"state": "started"})]
        for name in started:
            collection.update_one({"_id": name}, {"$set": {"state": "done"}})

        def handle(message: Message) -> None:
            collection.update_one({"_id": message.id}, {"$setOnInsert": {"state": "started"}}, upsert=True)
            collection.update_one({"_id": message.id}, {"$set": {"state": "done"}})

        return handle

    def settled_by_the_first_delivery(collection: Any) -> Handler:
        inner = build(collection)

        def handle(message: Message) -> None:
            if collection.find_one({"_id": message.id}) is None:
                inner(message)

        return handle

    def states(collection: Any) -> Any:
        return [each["state"] for each in collection.find({})]

    report = explored(settled_by_the_first_delivery, observe=states, concurrency=1)
    assert report.counterexample is not None  # an error that it survives leaves it started
    assert "CRASH" not in str(report)
    assert explored(build, observe=states, concurrency=1).ok


# --- what is proven of a handler that is recalled -----------------------------------------------------------------------


@pytest.mark.slow
def test_memory_that_shows_only_while_the_delivery_is_under_way_is_found() -> None:
    """A failure opens it, and the retry in the same delivery closes it again."""

    def build(collection: Any) -> Handler:
        failing: set[str] = set()

        def handle(message: Message) -> Any:
            if failing - {message.id}:
                return None
            try:
                return add_guarded(collection, message)
            except Exception:
                failing.add(message.id)
                try:
                    return add_guarded(collection, message)
                finally:
                    failing.clear()

        return handle

    assert explored(build, (M1, M2)).counterexample is not None
    report = explored(build, (M1, M2), concurrency=1)
    report.assert_effectively_once()
    assert report.exhausted


@pytest.mark.slow
def test_memory_that_one_kind_of_failure_creates_for_one_message_is_found() -> None:
    """There are more pairs of deliveries than can be run, and nearly all leave nothing behind."""

    def build(collection: Any) -> Handler:
        failed: list[str] = []

        def handle(message: Message) -> None:
            if failed and failed.pop() and message == M2:
                return
            try:
                add_guarded(collection, message)
                add_guarded(collection, message)
            except ServerSelectionTimeoutError:
                if message == M1:
                    failed.append(message.id)
                raise

        return handle

    report = explored(build, (M1, M2, Message("m3", body=100)), deliveries=1)
    assert report.counterexample is not None


def test_memory_that_a_value_in_an_answer_creates_is_found() -> None:
    """Both answers have the same shape. What the second says makes it leave out the next message."""

    def world() -> Any:
        collection = customers()
        collection.insert_one({**C1, "n": 0, "level": "low"})
        return collection

    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, SeenIds())
        is_rich = False

        def handle(message: Message) -> Any:
            nonlocal is_rich
            if is_rich:
                is_rich = False
                return None
            is_rich = collection.find_one(C1)["level"] == "high"
            change = {"$inc": {"n": message.body}, "$set": {"level": "high"}}
            return guarded.update_one(message, C1, change)

        return handle

    report = explored(build, (M1, M2, Message("m3", body=100)), world=world, reorder=False, concurrency=1, faults=0)
    assert not report.ok


def test_memory_outside_of_python_is_found_by_what_the_deliveries_before_have_been_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def build(table: Any) -> Handler:
        monkeypatch.delenv("ONEWRITE_THROTTLED", raising=False)

        def handle(message: Message) -> None:
            if os.environ.pop("ONEWRITE_THROTTLED", None) is not None:
                return  # gives the message up, and says that it is done
            try:
                table.put_item(Item={"id": message.id})
            except ClientError as error:
                if "Throughput" in error.response["Error"]["Code"]:
                    monkeypatch.setenv("ONEWRITE_THROTTLED", "1")
                raise

        return handle

    with moto_tables() as make:
        report = explore(build, [M1, Message("m2")], lambda: make("orders", "id"), lambda table: table.scan()["Items"])
    assert report.counterexample is not None
    assert [step.words.partition(",")[0] for step in report.counterexample.steps] == ["PutItem orders m1: throttled"]
