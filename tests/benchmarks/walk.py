"""How far a reader walks: the functions of onewrite that one warm call enters, and their files. `python -m tests.benchmarks.walk` prints a table."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import onewrite
from onewrite import Event, Message, Outbox, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import json_body
from onewrite.mongodb import GuardedCollection
from onewrite.testing import sqs_event
from onewrite.testing.servers.engines import Dynoxide, Mongod
from tests.support.engines import dynoxide_binary, mongod_binary

_HOME = str(Path(onewrite.__file__).parent)
_ADD: dict[str, Any] = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": 1}}


class Walk(NamedTuple):
    """What one call has entered."""

    calls: int
    functions: int
    files: int
    changes_of_file: int


def walk(call: Callable[[], object]) -> Walk:
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_HOME):
            calls.append((frame.f_code.co_filename, frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    files = [file for file, _ in calls]
    changes = sum(file != next_file for file, next_file in pairwise(files))
    return Walk(len(calls), len(set(calls)), len(set(files)), changes)


def walks() -> Iterator[tuple[str, Walk]]:
    """One call of each kind, when calls like it have been made before."""
    with ExitStack() as stack:
        dynamodb, mongodb = stack.enter_context(Dynoxide()), stack.enter_context(Mongod())
        client = dynamodb.client()
        client.create_table(
            TableName="walk",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        table = GuardedTable(client, SeenIds(), table_name="walk")
        emitting = GuardedTable(client, SeenIds(), table_name="walk", outbox=Outbox("walk/orders"))
        collection = GuardedCollection(mongodb.collection(), SeenIds())
        numbers = count()

        def fresh() -> Message:
            return Message(f"m{next(numbers)}")

        @sqs_handler(json_body(id="id"))
        def handle(message: Message) -> Outcome:
            return table.update_item(message, Key={"pk": "a"}, **_ADD)

        def call(kind: str) -> Callable[[], object]:
            """The call, made of what is not part of it."""
            message, event = first_message if kind == "the same, a duplicate" else fresh(), sqs_event({"id": fresh().id})
            return {
                "update_item, fresh": lambda: table.update_item(message, Key={"pk": "a"}, **_ADD),
                "the same, a duplicate": lambda: table.update_item(message, Key={"pk": "a"}, **_ADD),
                "the same with emit=": lambda: emitting.update_item(message, Key={"pk": "b"}, emit=[Event("E", 1)], **_ADD),
                "update_one, fresh": lambda: collection.update_one(message, {"_id": 1}, {"$inc": {"n": 1}}, upsert=True),
                "one SQS record, with the write": lambda: handle(event, None),
            }[kind]

        first_message = fresh()
        for kind in (
            "update_item, fresh",
            "the same, a duplicate",
            "the same with emit=",
            "update_one, fresh",
            "one SQS record, with the write",
        ):
            for _ in range(3):
                call(kind)()
            yield kind, walk(call(kind))


if __name__ == "__main__":
    for engine in (dynoxide_binary, mongod_binary):
        engine()  # fetched where it is missing
    logging.disable(logging.CRITICAL)
    print(f"{'one warm call':32} calls functions files changes of file")
    for kind, steps in walks():
        print(f"{kind:32} {steps.calls:5} {steps.functions:9} {steps.files:5} {steps.changes_of_file:15}")
