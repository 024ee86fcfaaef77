"""The explorer on real stand-ins: what it finds, what it lets pass, and what it says."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import ClientError

from onewrite import ConfigurationError, Deferred, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing.explorer.exploration import Exploration
from onewrite.testing.explorer.explore import Arguments, Explore, explore, run
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps.faults import Crash
from tests.support.handlers import build_from

Handler = Callable[[Message], Any]
MESSAGES = [Message("m1", "s", 1, 30), Message("m2", "s", 2, 50)]


def customers() -> Any:
    return mongomock_collection("customers")


def credit(collection: Any) -> Any:
    return collection.find_one({"_id": "c1"}, {"credit": 1})


def on_mongodb(build: Callable[[Any], Any], messages: list[Any] = MESSAGES, **options: Any) -> Exploration:
    arguments: dict[str, Any] = {"messages": messages, "world": customers, "observe": credit, **options}
    return explore(build, **arguments)


def reserve(collection: Any, amount: int) -> None:
    collection.update_one({"_id": "c1"}, {"$inc": {"credit": amount}}, upsert=True)


def increment(collection: Any) -> Handler:
    return lambda message: reserve(collection, message.body)


def guarded_by(ledger: Any) -> Callable[[Any], Handler]:
    def build(collection: Any) -> Handler:
        guarded = GuardedCollection(collection, ledger)
        return lambda message: guarded.update_one(message, {"_id": "c1"}, {"$inc": {"credit": message.body}}, upsert=True)

    return build


def words(report: Exploration) -> list[str]:
    assert report.counterexample is not None
    return [str(step) for step in report.counterexample.steps]


# --- MongoDB ----------------------------------------------------------------------------------------------------------


def test_store_that_changes_on_its_own_is_refused() -> None:
    def world() -> Any:
        collection = customers()
        insert_one, ticks = collection.insert_one, count()
        collection.insert_one = lambda document: insert_one({**document, "at": next(ticks)})
        return collection

    with pytest.raises(ConfigurationError, match="The earlier contents of 'customers' couldn't be restored"):
        on_mongodb(guarded_by(SeenIds()), world=world, deliveries=1)


def test_state_without_reset_is_reported() -> None:
    sent: list[str] = []

    def build(collection: Any) -> Handler:
        return lambda message: sent.append(message.id)

    report = on_mongodb(build, observe=lambda _: len(sent))
    assert not report.ok
    assert "in world(), or clear it in build()" in str(report)


def test_invariant_is_checked_after_every_schedule() -> None:
    def spent(limit: int) -> Callable[[Any], Any]:
        def check(collection: Any) -> None:
            assert credit(collection)["credit"] <= limit, "over the limit"

        return check

    guarded = guarded_by(SeenIds())
    assert on_mongodb(guarded, invariant=spent(80)).ok
    assert on_mongodb(guarded, invariant=lambda _: True).ok
    broken = on_mongodb(guarded, invariant=spent(79))
    assert "the invariant is broken: AssertionError: over the limit" in str(broken)
    assert "Not effectively once: the invariant is broken." in str(on_mongodb(guarded, invariant=lambda _: False))


def test_failing_observe_after_a_schedule_is_a_finding() -> None:
    def handle(collection: Any, message: Message) -> None:
        if collection.find_one({"_id": message.id}) is None:
            collection.insert_one({"_id": message.id})
            reserve(collection, message.body)

    report = on_mongodb(build_from(handle), MESSAGES[:1], observe=lambda c: c.find_one({"_id": "c1"})["credit"])
    assert "observe failed with TypeError" in str(report)


def test_handler_that_never_settles_is_a_finding() -> None:
    def handle(collection: Any, message: Message) -> Any:
        collection.update_one({"_id": "c1"}, {"$inc": {"tries": 1}}, upsert=True)
        return Deferred(message, 1) if credit(collection) and collection.find_one({"_id": "c1"})["tries"] > 1 else None

    report = on_mongodb(build_from(handle), MESSAGES[:1])
    assert "m1 never settled: the handler never settles the message. The guarded store's last outcome" in str(report)


# --- DynamoDB ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def orders(moto_table: Any) -> Any:
    return moto_table


ADD: dict[str, Any] = {"UpdateExpression": "ADD paid :cents"}


def paid(table: Any) -> Any:
    item = table.get_item(Key={"orderId": "o-1"}, ConsistentRead=True).get("Item")
    return item and item.get("paid")


def pay_once(table: Any) -> Handler:
    guarded = GuardedTable(table, SeenIds())
    return lambda message: guarded.update_item(
        message, Key={"orderId": "o-1"}, **ADD, ExpressionAttributeValues={":cents": message.body}
    )


def test_a_guarded_write_resent_by_the_driver_is_applied_once(orders: Any) -> None:
    retried: list[bool] = []

    def build(table: Any) -> Handler:
        inner = pay_once(table)

        def handle(message: Message) -> Any:
            outcome = inner(message)
            retried.append(getattr(outcome, "retried", False))
            return outcome

        return handle

    explore(build, messages=MESSAGES[:1], world=orders, observe=paid, deliveries=1).assert_effectively_once()
    assert True in retried


def test_failed_request_raises_the_driver_error(orders: Any) -> None:
    names: set[str] = set()

    def catching(handle: Handler) -> Handler:
        def caught(message: Message) -> Any:
            try:
                return handle(message)
            except Exception as error:
                code: Any = (
                    error.response.get("Error", {}).get("Code") if isinstance(error, ClientError) else type(error).__name__
                )
                names.add(code)  # older versions of boto3 have no class for some codes
                raise

        return caught

    explore(lambda table: catching(pay_once(table)), messages=MESSAGES[:1], world=orders, observe=paid)
    on_mongodb(lambda collection: catching(guarded_by(SeenIds())(collection)), MESSAGES[:1])
    assert names == {
        *("ConnectionClosedError", "ReadTimeoutError", "EndpointConnectionError", "ConnectTimeoutError"),
        *("ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded", "InternalServerError"),
        *("ServiceUnavailable", "WaitQueueTimeoutError", "AutoReconnect", "NetworkTimeout", "ServerSelectionTimeoutError"),
        *("OperationFailure", "ExecutionTimeout", "NotPrimaryError", "WTimeoutError"),
    }


# --- how handlers behave ----------------------------------------------------------------------------------------------


def test_report_states_that_not_all_orders_were_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onewrite.testing.explorer.undisturbed.References.max_orders", 2)
    messages = [Message(f"m{n}", body=n) for n in range(3)]
    report = on_mongodb(increment, messages)
    assert (
        "The messages and their tasks have more than 2 orders, so the expected states come from only some of them."
        in str(report)
    )
    assert "orders" not in str(on_mongodb(increment, MESSAGES))
    right = on_mongodb(guarded_by(SeenIds()), messages, deliveries=1, faults=0)
    assert right.ok  # after one order, so it is no matter how many there are
    assert "orders" not in str(right)


def test_explorer_can_be_called_inside_a_running_loop() -> None:
    async def explore_in_a_loop() -> Exploration:
        return on_mongodb(increment)

    assert len(words(asyncio.run(explore_in_a_loop()))) == 2


def test_crashed_process_sends_no_requests() -> None:
    cleaned: list[str] = []

    def build(collection: Any) -> Handler:
        inner = guarded_by(SeenIds())(collection)

        def handle(message: Message) -> Any:
            try:
                return inner(message)
            except BaseException:  # as people write it
                collection.delete_one({"_id": "c1"})
            finally:
                cleaned.append(message.id)
                collection.count_documents({})

        return handle

    # An exception is another matter: there the handler lives, and deletes what was written.
    report = on_mongodb(build, faults=1)
    assert not report.ok
    assert all("CRASH" not in step for step in words(report))
    assert cleaned


def test_handler_that_suppresses_a_crash_counts_as_crashed() -> None:
    def build(collection: Any) -> Handler:
        inner = guarded_by(SeenIds())(collection)

        def handle(message: Message) -> Any:
            with suppress(Crash):
                return inner(message)

        return handle

    report = on_mongodb(build, MESSAGES[:1])
    report.assert_effectively_once()


def test_messages_without_an_id_are_numbered() -> None:
    def build(collection: Any) -> Callable[[Any], Any]:
        return lambda message: reserve(collection, message["amount"])

    assert words(on_mongodb(build, [{"amount": 1}, {"amount": 2}]))[0].startswith("#1, delivery 1: update_one")


# --- what stops an exploration ----------------------------------------------------------------------------------------


def test_hanging_handler_is_reported_after_the_timeout() -> None:
    def build(collection: Any) -> Handler:
        lock = threading.Lock()
        inner = guarded_by(SeenIds())(collection)

        def handle(message: Message) -> Any:
            with lock:
                return inner(message)

        return handle

    with pytest.raises(ConfigurationError, match=r"m[12], delivery [12] has neither sent a request nor returned for 0.5"):
        on_mongodb(build, timeout=0.5)


def test_a_handler_that_fails_undisturbed_stops_the_exploration() -> None:
    def handle(collection: Any, message: Message) -> None:
        raise KeyError(message.id)

    with pytest.raises(ConfigurationError, match="fails even without faults: m1, m2 never settled: KeyError: 'm"):
        on_mongodb(build_from(handle))


def test_observe_that_fails_undisturbed_stops_the_exploration() -> None:
    with pytest.raises(ConfigurationError, match=r"observe\(store\) fails after processing without faults: KeyError"):
        on_mongodb(increment, observe=lambda collection: credit(collection)["debit"])


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"messages": []}, "expected at least one message"),
        ({"messages": MESSAGES[0]}, "expected at least one message, in a list"),
        ({"messages": {"Records": []}}, "expected at least one message, in a list"),
        ({"messages": "m1"}, "messages='m1': expected at least one message, in a list"),
        ({"messages": b"m1"}, "expected at least one message, in a list"),
        ({"messages": iter(MESSAGES)}, "expected at least one message, in a list"),
        ({"messages": [MESSAGES[0], MESSAGES[0]]}, "Two messages have the ID 'm1'.*its own ID, for example sqs_event"),
        ({"messages": [{"amount": 1}], "reorder": "within_source"}, "needs the source of each message"),
        ({"build": lambda store: None}, "returned None: expected the handler"),
        ({"world": customers()}, "world="),
        ({"observe": 3}, "observe=3"),
        ({"schedules": 0}, "schedules=0"),
        ({"timeout": "long"}, "timeout='long'"),
        ({"deliveries": 0}, "deliveries"),
        ({"faults": -1}, "faults"),
        ({"reorder": 1}, "reorder"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_misuse_is_refused_with_the_remedy(wrong: dict[str, Any], match: str) -> None:
    arguments = {"build": increment, "messages": MESSAGES, "world": customers, "observe": credit, **wrong}
    with pytest.raises(ConfigurationError, match=match):
        explore(**arguments)


# --- how it is called -------------------------------------------------------------------------------------------------


def test_explore_documents_each_argument_with_its_default() -> None:
    assert str(explore.__doc__).startswith("Run a handler through every schedule within the bounds")
    said = dict(re.findall(r"^ +(\w+): (.*(?:\n {16}.*)*)$", str(explore.__doc__), re.MULTILINE))
    arguments = {field.name: field.default for field in fields(Arguments) if field.name not in ("at_random", "seed")}
    assert list(said) == list(arguments)
    for name, default in arguments.items():
        if type(default) in (int, float):
            assert said[name].endswith(f"The default is {default:,.0f}.")


def test_random_schedules_have_wider_bounds_by_default() -> None:
    asked: list[Arguments] = []

    def note(arguments: Arguments) -> Exploration:
        asked.append(arguments)
        return run(replace(arguments, schedules=1))

    noting = Explore(note)
    assert not noting.random(increment, MESSAGES, customers, credit)
    assert not noting.random(increment, MESSAGES, customers, credit, faults=0, seed=7)
    assert [(one.deliveries, one.faults, one.concurrency, one.seed) for one in asked] == [(3, 2, 3, 0), (3, 0, 3, 7)]
    assert "deliveries=3, faults=2, and concurrency=3" in str(explore.random.__doc__)


# --- what guarded stores take from outside ----------------------------------------------------------------------------


def test_time_is_fixed_for_a_store_without_a_clock(orders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    explore(pay_once, MESSAGES[:1], orders, paid)  # from now on the explorer tells guarded stores the time
    hours = itertools.count(1_790_000_000, 3600)
    monkeypatch.setattr(time, "time", lambda: float(next(hours)))
    report = explore(pay_once, MESSAGES, orders, paid)
    report.assert_effectively_once()
    assert report.exhausted


SHOW_REQUESTS = """
from onewrite import Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.testing import explore
from onewrite.testing.explorer.subject import Subject
from onewrite.testing.standins.stores import moto_tables

perform = Subject.perform
Subject.perform = lambda subject, request, key: print(request.arguments) or perform(subject, request, key)

def build(table):
    guarded = GuardedTable(table, SeenIds(), clock=lambda: 1_790_000_000.0)
    return lambda message: guarded.update_item(
        message, Key={"orderId": "o-1"}, UpdateExpression="ADD paid :c", ExpressionAttributeValues={":c": message.body}
    )

with moto_tables() as make:
    messages = [Message("m1", body=1), Message("m2", body=2)]
    report = explore(build, messages, lambda: make("orders", key="orderId"), lambda table: table.scan()["Count"], deliveries=1)
    print(report.schedules, report.pruned)
"""


@pytest.mark.slow
@pytest.mark.measured
def test_every_run_explores_the_same_schedules() -> None:
    environments = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    runs = [
        subprocess.Popen([sys.executable, "-c", SHOW_REQUESTS], stdout=subprocess.PIPE, text=True, env=environment)
        for environment in environments
    ]
    one, other = (run.communicate()[0] for run in runs)
    assert one == other
    assert len(one.splitlines()) > 20
    assert "ow_" in one


# --- reports ----------------------------------------------------------------------------------------------------------


def test_a_counterexample_shows_timeline_states_and_replay() -> None:
    assert str(on_mongodb(increment).counterexample) == (
        "Not effectively once: processing each message once, one at a time, never ends like this.\n"
        "\n"
        "     m1, delivery 1                                m1, delivery 2\n"
        "  1  update_one customers c1: applied\n"
        "     (credit=30), returns: settled\n"
        "  2                                                update_one customers c1: applied (credit 30\n"
        "                                                   -> 60), returns: settled\n"
        "     then redelivered until settled:\n"
        "     m2, delivery 1: update_one customers c1: applied (credit 60 -> 110), returns: settled\n"
        "\n"
        "  expected  {'credit': 80, '_id': 'c1'}\n"
        "  observed  {'credit': 110, '_id': 'c1'}\n"
        '  replay    explore(..., replay="1.9e92.1a1b.2052")'
    )


def test_replay_runs_exactly_the_encoded_schedule() -> None:
    found = on_mongodb(increment)
    assert found.counterexample is not None
    again = on_mongodb(increment, replay=found.counterexample.replay_code)
    assert again.schedules == 1
    assert again.counterexample == found.counterexample
    other = on_mongodb(increment, replay="1.9e92.1aA.329c")
    assert words(other) == ["m1, delivery 1: update_one customers c1: applied, then CRASH"]


def test_a_replay_names_missing_steps() -> None:
    found = on_mongodb(increment)
    assert found.counterexample is not None
    mended = on_mongodb(guarded_by(SeenIds()), replay=found.counterexample.replay_code)
    assert mended.ok
    assert "have changed" not in str(mended)
    narrower = on_mongodb(increment, replay=found.counterexample.replay_code, deliveries=1)
    assert narrower.ok
    assert "The handler or the bounds have changed" in str(narrower)


# --- at random --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.measured
def test_random_exploration_finds_and_shrinks_a_counterexample() -> None:
    messages = [Message(f"m{n}", body=n) for n in range(1, 6)]
    report, again = [explore.random(increment, messages, customers, credit, seed=7) for _ in range(2)]
    assert len(words(report)) <= 2
    assert (again.counterexample, again.schedules) == (report.counterexample, report.schedules)


def test_random_exploration_without_finding_is_not_exhaustive() -> None:
    report = explore.random(guarded_by(SeenIds()), MESSAGES, customers, credit, seed=1, schedules=50)
    assert report.ok
    assert not report.exhausted
    assert report.schedules == 50
    assert "drawn at random" in str(report)


# --- long searches ------------------------------------------------------------------------------------------------------


def test_reads_that_do_not_matter_delay_no_counterexample() -> None:
    def handle(collection: Any, message: Message) -> None:
        seen = collection.find_one({"_id": "c1"}) or {"credit": 0, "seen": []}
        for name in ("a", "b", "c", "d"):
            collection.find_one({"_id": name})
        if message.id not in seen["seen"]:
            changed = {"credit": seen["credit"] + message.body, "seen": [*seen["seen"], message.id]}
            collection.update_one({"_id": "c1"}, {"$set": changed}, upsert=True)

    report = on_mongodb(build_from(handle), [*MESSAGES, Message("m3", "s", 3, 70)], deliveries=1)
    assert report.counterexample is not None
    assert report.schedules < 250


def test_search_ends_early_if_the_handler_is_not_deterministic() -> None:
    numbers = count()

    def handle(collection: Any, message: Message) -> None:
        collection.update_one({"_id": "c1"}, {"$set": {message.id: next(numbers) * 0 + 1, "at": next(numbers)}}, upsert=True)

    report = explore(build_from(handle), MESSAGES, customers, lambda c: c.count_documents({}))
    assert not report.ok
    assert report.nondeterministic is not None
    assert report.schedules <= 400


@pytest.mark.parametrize("engine", ["mongomock_collection", "mongod"])
def test_going_back_keeps_the_natural_order_of_documents(engine: str, request: pytest.FixtureRequest) -> None:
    fixture = request.getfixturevalue(engine)
    make = fixture.collection if engine == "mongod" else fixture

    def world() -> Any:
        seats = make("seats")
        seats.insert_many([{"_id": seat, "holder": None} for seat in "abc"])
        return seats

    def handle(seats: Any, message: Message) -> None:
        if seats.find_one({"holder": message.id}) is None:
            seats.find_one_and_update({"holder": None}, {"$set": {"holder": message.id}})

    def holders(seats: Any) -> Any:
        return {seat["_id"]: seat["holder"] for seat in seats.find({}).sort("_id")}

    explore(build_from(handle), MESSAGES, world, holders, concurrency=1).assert_effectively_once()
