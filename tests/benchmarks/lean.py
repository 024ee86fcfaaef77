"""A fresh message by a lean table: time, and the processor's time, against boto3."""

from __future__ import annotations

import json
import secrets
import statistics
from collections.abc import Callable, Iterator
from time import perf_counter, process_time
from typing import Any

from onewrite import HighWaterMark, Message, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.dynamodb import GuardedTable
from onewrite.identity import json_body
from onewrite.testing.servers.engines import Dynoxide
from tests.benchmarks.measure import Contender, Plan, Row, ratio, take_turns
from tests.benchmarks.orders import DYNAMODB_UPDATE, TABLE, orders
from tests.support.batches import sqs_record

_BATCH = 10


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as server, orders(server) as client:
        resource = server.resource()
        table = resource.Table(TABLE)
        for what, clock in (("time", perf_counter), ("processor", process_time)):
            yield _duel(plan, client, table, what, clock)
        yield from _handlers(plan, client)
        resource.meta.client.close()


def _duel(plan: Plan, client: Any, table: Any, what: str, clock: Callable[[], float]) -> Row:
    """Each side has entities of its own for time and for the processor, whose keys are of one length."""
    lean = GuardedTable(client, HighWaterMark(), table_name=TABLE, lean=True)
    messages = [Message(f"m{turn}", "s", sequence=turn + 1) for turn in range(plan.warmup + plan.rounds)]

    def key(side: str, turn: int) -> dict[str, str]:
        return {"id": f"{what[0]}{side}-{turn % plan.warmup:04d}"}

    def ours(turn: int) -> object:
        return lean.update_item(messages[turn], Key=key("o", turn), **DYNAMODB_UPDATE)

    def theirs(turn: int) -> object:
        return table.update_item(Key=key("t", turn), **DYNAMODB_UPDATE)

    took = take_turns({"ours": ours, "theirs": theirs}, plan.rounds, warmup=plan.warmup, seed=plan.seed, clock=clock)
    return ratio(f"HighWaterMark, lean, {what}", "unguarded, Table", took["ours"], took["theirs"])


def _handlers(plan: Plan, client: Any) -> Iterator[Row]:
    """Batches of an SQS handler: the processor's time for each message, from the event to the answer."""
    rounds = max(plan.rounds // _BATCH, 20)
    batches = {name: _batches(client, name, lean=name == "lean") for name in ("client", "lean")}
    for clock, what in ((process_time, "processor"), (perf_counter, "time")):
        took = take_turns(batches, rounds, warmup=5, seed=plan.seed, clock=clock)
        microseconds = {name: statistics.median(seconds) / _BATCH * 1e6 for name, seconds in took.items()}
        for name, duration in microseconds.items():
            against = f"{1e6 / duration:.0f} messages a second"
            yield Row(f"sqs_handler, {name}, {what} of a message", against, duration, duration, duration, "us")
        yield ratio(f"sqs_handler, lean, {what}", "sqs_handler, client", took["lean"], took["client"])


def _batches(client: Any, name: str, *, lean: bool) -> Contender:
    table = GuardedTable(client, SeenIds(), table_name=TABLE, lean=lean)

    @sqs_handler(json_body(id="id"))
    def handler(message: Message) -> Outcome:
        return table.update_item(message, Key={"id": f"{name}-{message.id[-1]}"}, **DYNAMODB_UPDATE)

    def batch(turn: int) -> object:
        records = [
            sqs_record(f"{turn}-{n}", body=json.dumps({"id": f"{secrets.token_hex(8)}-{turn % 20}{n}"}))
            for n in range(_BATCH)
        ]
        answer = handler({"Records": records}, None)
        assert answer == {"batchItemFailures": []}, answer
        return answer

    return batch
