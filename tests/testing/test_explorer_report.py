"""What an exploration says: the timeline, the states, and where two runs of one schedule differ."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onewrite import Applied, Begun, Duplicate, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore, mongomock_collection
from onewrite.testing.explorer.calls import Reply
from onewrite.testing.explorer.deliverables import Titles
from onewrite.testing.explorer.difference import describe_difference
from onewrite.testing.explorer.exploration import Counterexample, Exploration, Legend, describe_step, make_counterexample
from onewrite.testing.explorer.judge import JudgedSchedule, WrongEnd
from onewrite.testing.explorer.remarks import Remark
from onewrite.testing.explorer.schedule import Bounds, Delivery, ScheduleStep, TakenStep
from onewrite.testing.explorer.trial import TrialStep
from onewrite.testing.taps.fault import Fault
from onewrite.testing.taps.faults import Crash
from onewrite.testing.taps.traffic import Request
from tests.support.handlers import build_from

WRITE = Request("orders", "UpdateItem", {"Key": {"id": "o-1"}}, (("orders", "o-1"),), writes=True, tables=("orders",))
READ = Request("orders", "GetItem", {"Key": {"id": "o-1"}}, (("orders", "o-1"),), writes=False, tables=("orders",))
REFUSAL = Reply(error=ClientError({"Error": {"Code": "ConditionalCheckFailedException", "Message": "no"}}, "UpdateItem"))
DONE = Reply({"ResponseMetadata": {}})
MESSAGE = Message("m1")


def trial_step(
    request: Request | None,
    *answers: Reply,
    fault: Fault = Fault.NONE,
    end: Reply | None = None,
    delivery: Delivery = Delivery(0, 0),  # noqa: B008  # it is a tuple
    settling: bool = False,
) -> TrialStep:
    settled = (delivery.message,) if end is not None and end.error is None else ()
    taken = TakenStep(ScheduleStep(delivery, fault), request, None, end is not None, settled)
    return TrialStep(taken, answers, end, settling)


@pytest.mark.parametrize(
    ("happened", "told"),
    [
        (trial_step(READ, DONE), "GetItem orders o-1: read, nothing there"),
        (trial_step(WRITE, DONE, end=Reply(Applied(MESSAGE))), "UpdateItem orders o-1: applied"),
        (trial_step(WRITE, REFUSAL, end=Reply(Duplicate(MESSAGE))), "UpdateItem orders o-1: refused, duplicate"),
        (trial_step(WRITE, REFUSAL, end=REFUSAL), "UpdateItem orders o-1: refused, raises ClientError"),
        (trial_step(WRITE, fault=Fault.CRASH_BEFORE, end=Reply(error=Crash())), "CRASH before UpdateItem orders o-1"),
        (trial_step(WRITE, DONE, fault=Fault.LOST), "UpdateItem orders o-1: applied, but the response is lost"),
        (
            trial_step(WRITE, DONE, REFUSAL, fault=Fault.RETRIED, end=Reply()),
            "UpdateItem orders o-1: applied, the response is lost, sent again by the driver: refused",
        ),
        (trial_step(None, end=Reply(error=KeyError("a"))), "sends nothing, raises KeyError"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_step_description_states_the_event(happened: TrialStep, told: str) -> None:
    assert describe_step(happened) == told


def shown(*steps: TrialStep, **finding: Any) -> Counterexample:
    found = WrongEnd(**{"reason": "it ends badly", "expected": ({"n": 1},), "observed": {"n": 2}, **finding})
    legend = Legend(Titles(("m1", "m2", "m3"), ("m1", "m2", "m3")), lambda _: ())
    return make_counterexample(JudgedSchedule(steps, found), found, legend, "1.code", "replay it")


def test_an_undisturbed_failure_is_shown_as_plain_deliveries() -> None:
    text = shown(trial_step(WRITE, DONE, settling=True)).text
    assert "     delivered one at a time, without faults:\n     m1, delivery 1: UpdateItem orders o-1: applied\n" in text


def test_long_redelivery_list_is_truncated() -> None:
    text = shown(trial_step(READ, DONE), *[trial_step(WRITE, DONE, settling=True)] * 40).text
    assert text.count("m1, delivery 1: UpdateItem") == 1
    assert "     and so on, 39 requests more\n" in text


def test_many_or_large_states_are_shortened_and_wrapped() -> None:
    text = shown(
        trial_step(READ, DONE), expected=tuple({"n": n} for n in range(8)), observed={"k" * 60: 1, "l" * 60: 2}
    ).text
    assert "  expected  {'n': 0}\n            or {'n': 1}\n" in text
    assert "            or one of 2 more\n" in text
    assert f"  observed  {{'{'k' * 60}': 1,\n             '{'l' * 60}': 2}}\n" in text


def test_a_report_counts_schedules_and_shows_remarks() -> None:
    report = Exploration(12, 3, 0.5, exhausted=False, bounds=Bounds(), remarks=(Remark("note", "Slow, because of this."),))
    assert str(report) == (
        "No counterexample so far.\n"
        "12 schedules run, 3 branches pruned, 0.5 s; deliveries=2, faults=1, reorder=True, concurrency=2\n"
        "Not all schedules were run. Pass a higher schedules=, lower the bounds, or continue with explore.random().\n"
        "Slow, because of this."
    )


@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
def test_a_report_names_the_steps_of_a_message(engine: str, moto_table: Any) -> None:
    paid: dict[str, Any] = {"filter": {"_id": "o-1"}, "update": {"$set": {"paid": 1}}}
    if engine == "dynamodb":
        paid = {"Key": {"id": "o-1"}, "UpdateExpression": "SET paid = :p", "ExpressionAttributeValues": {":p": 1}}

    def build(store: Any) -> Any:
        orders: Any = (
            GuardedCollection(store, SeenIds())
            if engine == "mongodb"
            else GuardedTable(store, SeenIds(), table_name="orders")
        )
        update = orders.update_one if engine == "mongodb" else orders.update_item
        named = {name: paid[name] for name in ("Key", "filter") if name in paid}

        def handle(message: Message) -> Any:
            step = orders.begin_effect(
                message, "charge", **named, lease=timedelta(minutes=1), key_valid_for=timedelta(hours=1)
            )
            if not isinstance(step, Begun):
                return step
            charges.append(step.key)
            return update(message, **paid, finishes=step)

        charges.clear()
        return handle

    def world() -> Any:
        if engine == "dynamodb":
            moto_table("orders", "id").put_item(Item={"id": "o-1"})
            return boto3.client("dynamodb")
        orders = mongomock_collection("orders")
        orders.insert_one({"_id": "o-1"})
        return orders

    charges: list[str] = []
    report = explore(build, [MESSAGE], world, lambda _: len(charges))
    shown = " ".join(str(report).split())
    assert '(begin_effect "charge": Begun, your code ran)' in shown
    assert '(begin_effect "charge": Begun, taken over, your code ran)' in shown
    assert '(finish "charge", paid=1), returns: settled' in shown


# --- where two runs differ --------------------------------------------------------------------------------------------


def sent(**arguments: Any) -> Request:
    return Request("orders", "insert_one", arguments, None, writes=True, tables=("orders",))


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (sent(document={"at": 1}), sent(document={"at": 2}), "document.at of insert_one orders was 1, and then 2"),
        (sent(x=[{"a": 1}]), sent(x=[{"a": "1"}]), "x.0.a of insert_one orders was 1, and then '1'"),
        (sent(document={"_id": 1, "at": 1}), sent(document={"at": 2}), "document.at of insert_one orders was 1, and then 2"),
        (sent(document={"_id": 1}), sent(document={}), "the arguments of insert_one orders differed"),
        (WRITE, None, "it sent UpdateItem orders o-1 in the first run, and nothing in the second"),
        (None, WRITE, "it sent UpdateItem orders o-1 in the second run, and nothing in the first"),
    ],
)
def test_the_first_difference_is_named(before: Request | None, after: Request | None, told: str) -> None:
    text = describe_difference("m1, delivery 1", before, after)
    assert text.startswith("m1, delivery 1 differs between two runs of the same schedule: ")
    assert told in text
    assert "message.child(name)" in text
    assert "create that state in build(store)" in text


def test_read_shows_its_response_and_not_later_changes() -> None:
    def handle(collection: Any, _: Message) -> None:
        document = collection.find_one({"_id": "o-1"})
        document["paid"] += 100
        collection.replace_one({"_id": "o-1"}, document)

    def world() -> Any:
        collection = mongomock_collection("orders")
        collection.insert_one({"_id": "o-1", "paid": 0})
        return collection

    report = explore(build_from(handle), [MESSAGE], world, lambda collection: collection.find_one({"_id": "o-1"}))
    assert "read (paid=0)" in str(report)


# --- what a reader doesn't need -----------------------------------------------------------------------------------------


def test_redeliveries_that_repeat_are_shown_once() -> None:
    def handle(collection: Any, message: Message) -> None:
        collection.insert_one({"_id": message.id})  # the second delivery fails, and so do all others
        collection.update_one({"_id": message.id}, {"$set": {"n": 1}})

    report = explore(build_from(handle), [MESSAGE], mongomock_collection, lambda orders: [*orders.find()], deliveries=1)
    text = str(report.counterexample)
    assert text.count("m1, delivery") < 6
    assert "and so on, 24 requests more" in text
    assert "lease" not in text


def test_lease_advice_is_given_if_a_time_is_stored() -> None:
    def handle(collection: Any, message: Message) -> None:
        collection.insert_one({"_id": message.id, "expires": 1_800_000_000})
        collection.update_one({"_id": message.id}, {"$set": {"n": 1}})

    report = explore(build_from(handle), [MESSAGE], mongomock_collection, lambda orders: [*orders.find()], deliveries=1)
    assert "with time_machine.travel(next(clock), tick=False):" in str(report.counterexample)


def test_state_of_a_broken_invariant_is_shown_once() -> None:
    def handle(collection: Any, message: Message) -> None:
        collection.insert_one({"_id": message.id})

    text = str(explore(build_from(handle), [MESSAGE], mongomock_collection, lambda _: "here", invariant=lambda _: False))
    assert "  observed  'here'" in text
    assert "  expected" not in text


def test_members_of_a_set_are_shown_sorted() -> None:
    members = {f"id-{number}" for number in range(3)}
    one, other = (Request("c", "update_one", {"filter": {"_id": each}}, None, writes=True) for each in (members, 1))
    assert "{'id-0', 'id-1', 'id-2'}" in describe_difference("m1", one, other)
