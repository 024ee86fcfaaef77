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
from tests.benchmarks.measure import (
    Contender,
    Duel,
    Entrant,
    Plan,
    Row,
    fight,
    numbered_messages,
    ratio,
    take_turns,
)
from tests.benchmarks.orders import DYNAMODB_UPDATE, TABLE, orders
from tests.support.batches import sqs_record

_BATCH = 10


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as server, orders(server) as client:
        resource = server.resource()
        table = resource.Table(TABLE)
        for what, clock in (("time", perf_counter), ("processor", process_time)):
            yield from fight(plan, [_duel(plan, client, table, what)], clock)
        yield from _handlers(plan, client)
        resource.meta.client.close()


def _duel(plan: Plan, client: Any, table: Any, what: str) -> Duel:
    messages = numbered_messages(plan)
    lean = GuardedTable(client, HighWaterMark(), table_name=TABLE, lean=True)

    def ours(key: Callable[[int], str]) -> Contender:
        return lambda turn: lean.update_item(messages[turn], Key={"id": key(turn)}, **DYNAMODB_UPDATE)

    def plain(key: Callable[[int], str]) -> Contender:
        return lambda turn: table.update_item(Key={"id": key(turn)}, **DYNAMODB_UPDATE)

    own_ours, own_plain = _with_own_entities(what, ours), _with_own_entities(what, plain)
    return Duel(f"HighWaterMark, lean, {what}", "unguarded, Table", own_ours, own_plain)


def _with_own_entities(what: str, entrant: Entrant) -> Entrant:
    """With entities of its own for time and for the processor, whose keys are of one length."""
    return lambda key: entrant(lambda turn: f"{what[0]}{key(turn)}")


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
