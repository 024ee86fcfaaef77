"""What an exploration says: the timeline, the states, and where two runs of one schedule differ."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from onewrite import Begun, Message, SeenIds
from onewrite.dynamodb import GuardedTable
from onewrite.mongodb import GuardedCollection
from onewrite.testing import explore, mongomock_collection
from onewrite.testing.explorer.calls import Reply
from onewrite.testing.explorer.deliverables import Titles
from onewrite.testing.explorer.exploration import Counterexample, Exploration, Legend, counterexample_of
from onewrite.testing.explorer.judge import JudgedSchedule, WrongEnd
from onewrite.testing.explorer.remarks import Remark
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.explorer.trial import TrialStep
from onewrite.testing.taps.traffic import Request

WRITE = Request("orders", "UpdateItem", {"Key": {"id": "o-1"}}, (("orders", "o-1"),), writes=True, tables=("orders",))
READ = Request("orders", "GetItem", {"Key": {"id": "o-1"}}, (("orders", "o-1"),), writes=False, tables=("orders",))
REFUSAL = Reply(error=ClientError({"Error": {"Code": "ConditionalCheckFailedException", "Message": "no"}}, "UpdateItem"))
DONE = Reply({"ResponseMetadata": {}})
MESSAGE = Message("m1")


def shown(*steps: TrialStep, **finding: Any) -> Counterexample:
    found = WrongEnd(**{"reason": "it ends badly", "expected": ({"n": 1},), "observed": {"n": 2}, **finding})
    legend = Legend(Titles(("m1", "m2", "m3"), ("m1", "m2", "m3")), lambda _: ())
    return counterexample_of(JudgedSchedule(steps, found), found, legend, "1.code", "replay it")


def test_a_report_counts_schedules_and_shows_remarks() -> None:
    report = Exploration(12, 3, 0.5, exhausted=False, bounds=Bounds(), remarks=(Remark("note", "Slow, because of this."),))
    assert str(report) == (
        "No counterexample so far.\n"
        "12 schedules run, 3 branches pruned, 0.5 s; deliveries=2, faults=1, reorder=True, concurrency=2\n"
        "These were not all: raise schedules=, lower the bounds, or look further with explore.random().\n"
        "Slow, because of this."
    )


@pytest.mark.parametrize("engine", ["dynamodb", "a client of dynamodb", "mongodb"])
def test_a_report_names_the_steps_of_a_message(engine: str, moto_table: Any) -> None:
    def guard(stores: Any) -> Any:
        if engine == "mongodb":
            return GuardedCollection(stores["orders"], SeenIds()), ({"_id": "o-1"}, {"$set": {"paid": 1}}), {}
        given: Any = {"table_name": "orders"} if engine != "dynamodb" else {}
        update = {"Key": {"id": "o-1"}, "UpdateExpression": "SET paid = :p", "ExpressionAttributeValues": {":p": 1}}
        return GuardedTable(stores["orders"], SeenIds(), **given), (), update

    def build(stores: Any) -> Any:
        orders, args, native = guard(stores)
        key = {"Key": native["Key"]} if native else {}
        spans: Any = {"lease": timedelta(minutes=1), "safe_for": timedelta(hours=1)}

        def handle(message: Message) -> Any:
            step = orders.begin(message, "charge", *args[:1], **key, **spans)
            if not isinstance(step, Begun):
                return step
            charges.append(step.key)
            return (
                orders.update_item(message, **native, finishes=step)
                if native
                else orders.update_one(message, *args, finishes=step)
            )

        charges.clear()
        return handle

    def world() -> Any:
        if engine == "mongodb":
            orders = mongomock_collection("orders")
            orders.insert_one({"_id": "o-1"})
            return {"orders": orders}
        table = moto_table("orders", "id")
        table.put_item(Item={"id": "o-1"})
        return {"orders": table if engine == "dynamodb" else boto3.client("dynamodb")}

    charges: list[str] = []
    report = explore(build, [MESSAGE], world, lambda _: len(charges))
    shown = " ".join(str(report).split())
    assert '(begin "charge": Begun, your code ran)' in shown
    assert '(begin "charge": Begun, taken over, your code ran)' in shown
    assert '(finish "charge", paid=1), returns: settled' in shown


# --- where two runs differ --------------------------------------------------------------------------------------------
