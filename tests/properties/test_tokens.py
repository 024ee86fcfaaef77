"""What the explorer leaves out adds nothing, also where handlers give tokens to DynamoDB's transactions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any, TypeAlias

import pytest
from botocore.exceptions import ClientError
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onewrite import Message
from onewrite.testing.explorer.judge import Judge
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.explorer.search import EverySchedule
from onewrite.testing.explorer.subject import Subject
from onewrite.testing.standins.stores import MakeTable, moto_tables
from tests.support.examples import examples

Act: TypeAlias = tuple[str, str]  # the token, or "" for a read, and the entity
Program: TypeAlias = dict[str, list[Act]]

BOUNDS = [
    Bounds(deliveries=1, faults=0),
    Bounds(faults=0),
    Bounds(deliveries=1),
    Bounds(deliveries=2, faults=0, concurrency=1),
]


def handler_of(program: Program) -> Callable[[Any], Callable[[Message], None]]:
    def build(client: Any) -> Callable[[Message], None]:
        def handle(message: Message) -> None:
            for token, key in program[message.id]:
                if not token:
                    client.get_item(TableName="things", Key={"id": key})
                    continue
                update = {"UpdateExpression": "ADD n :n", "ExpressionAttributeValues": {":n": message.body}}
                action = {"Update": {"TableName": "things", "Key": {"id": key}, **update}}
                with suppress(ClientError):
                    client.transact_write_items(TransactItems=[action], ClientRequestToken=token)

        return handle

    return build


def ends(program: Program, bounds: Bounds, make: MakeTable, *, pruned: bool) -> set[str]:
    """Every state that a broker might leave behind."""
    seen: set[str] = set()

    def observe(client: Any) -> None:
        items = client.scan(TableName="things", ConsistentRead=True)["Items"]
        seen.add(repr(sorted((item["id"], int(item["n"])) for item in items)))

    messages = [Message(name, body=1) for name in program]
    subject = Subject(handler_of(program), messages, lambda: make("things", "id").meta.client, bounds, 30)
    with closing(subject):
        judge = Judge(subject, observe)
        judge.prepare()
        if pruned:
            judge.run_always()
        assert all(one.finding is None for one in EverySchedule(judge))
    return seen


acts = st.lists(st.tuples(st.sampled_from(["", "t", "u"]), st.sampled_from("ab")), min_size=1, max_size=2)


# The token is forgotten before the second delivery, unless that starts while the first is still reading.
LAST_READ: Program = {"x": [("t", "a"), ("", "b")], "y": [("", "b"), ("t", "a")]}


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.fixed_dictionaries({"x": acts}, optional={"y": acts}), st.sampled_from(BOUNDS))
@example(LAST_READ, Bounds(faults=0))
def test_pruning_loses_no_end_of_tokens(program: Program, bounds: Bounds) -> None:
    with moto_tables() as make:
        pruned, whole = (ends(program, bounds, make, pruned=pruned) for pruned in (True, False))
    assert pruned >= whole  # the schedules that check the pruned search also end after one delivery
