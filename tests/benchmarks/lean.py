"""A fresh message by a lean table: time, and the processor's time, against boto3."""

from __future__ import annotations

import json
import secrets
import socket
import statistics
from collections.abc import Callable, Iterator
from contextlib import closing
from time import perf_counter, process_time
from typing import Any
from urllib.parse import urlsplit

from onewrite import HighWaterMark, Message, Outcome, SeenIds
from onewrite.aws_lambda import sqs_handler
from onewrite.core.step import step_mark
from onewrite.dynamodb import GuardedTable
from onewrite.dynamodb.lean import build_body
from onewrite.identity import json_body
from onewrite.lean.wire import Address, Response, Wiring, connect
from onewrite.testing.servers.engines import REGION, Dynoxide
from tests.benchmarks.measure import (
    Contender,
    Duel,
    Entrant,
    Plan,
    Row,
    WrongOutcomeError,
    fight,
    numbered_messages,
    ratio,
    take_turns,
)
from tests.benchmarks.speed_dynamodb import BUSINESS, TABLE, orders, same_by_hand
from tests.support.batches import sqs_record

_BATCH = 10
_YES = 200


def rows(plan: Plan) -> Iterator[Row]:
    with Dynoxide() as server, orders(server) as client:
        resource = server.resource()
        table = resource.Table(TABLE)
        yield from fight(plan, list(_duels(plan, client, table, "time", 0.40, 0.42)))
        yield from fight(plan, list(_duels(plan, client, table, "processor", 0.30, None)), process_time)
        yield from _least(plan, client, table)
        yield from _handlers(plan, client)
        resource.meta.client.close()


def _duels(plan: Plan, client: Any, table: Any, what: str, by_hand: float, unguarded: float | None) -> Iterator[Duel]:
    messages = numbered_messages(plan)
    lean = GuardedTable(client, HighWaterMark(), table_name=TABLE, lean=True)

    def ours(key: Callable[[int], str]) -> Contender:
        return lambda turn: lean.update_item(messages[turn], Key={"id": key(turn)}, **BUSINESS)

    def plain(key: Callable[[int], str]) -> Contender:
        return lambda turn: table.update_item(Key={"id": key(turn)}, **BUSINESS)

    def values(turn: int) -> dict[str, Any]:
        return {":ow_0": step_mark("ow_l", messages[turn]), ":ow_1": turn + 1, ":ow_token": secrets.token_bytes(6)}

    _, same = same_by_hand(HighWaterMark(), client, table, values)
    for against, theirs, target in (("the same request by hand", same, by_hand), ("unguarded", plain, unguarded)):
        yield Duel(
            f"HighWaterMark, lean, {what}",
            f"{against}, Table",
            _with_own_entities(what, ours),
            _with_own_entities(what, theirs),
            target,
        )


def _least(plan: Plan, client: Any, table: Any) -> Iterator[Row]:
    """What is left if nothing is done but to send ready bytes and to read the answer: the engine's time, and the way there and back."""
    messages, store = numbered_messages(plan), GuardedTable(client, HighWaterMark(), table_name=TABLE)
    place = urlsplit(client.meta.endpoint_url)
    wiring = Wiring(60, 60, [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)], verify=False, client_certificate=None)
    address = Address(place.hostname or "", place.port or 0, is_encrypted=False)
    with closing(connect(address, wiring, wiring.context)) as connection:

        def replay(key: Callable[[int], str]) -> Contender:
            numbers = range(plan.warmup + plan.rounds)
            requests = [_explain(store, messages[turn], key(turn)) for turn in numbers]
            requests_in_bytes = [_bytes(place.netloc, build_body(request)) for request in requests]
            return lambda turn: _check_answer(connection.exchange(requests_in_bytes[turn]))

        def plain(key: Callable[[int], str]) -> Contender:
            return lambda turn: table.update_item(Key={"id": key(turn)}, **BUSINESS)

        yield from fight(
            plan,
            [
                Duel(
                    "ready bytes on a socket, time",
                    "unguarded, Table",
                    _with_own_entities("ready", replay),
                    _with_own_entities("ready", plain),
                )
            ],
        )


def _bytes(host: str, body: bytes) -> bytes:
    """A request as long as a signed one. Dynoxide does not look at the signature."""
    authorization = f"AWS4-HMAC-SHA256 Credential=dummy/20240229/{REGION}/dynamodb/aws4_request, SignedHeaders=host, Signature={'0' * 64}"
    headers = {
        "host": host,
        "user-agent": "benchmark",
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": "DynamoDB_20120810.UpdateItem",
        "x-amz-date": "20240229T000000Z",
        "authorization": authorization,
        "content-length": str(len(body)),
    }
    return (
        "".join(["POST / HTTP/1.1\r\n", *[f"{name}: {value}\r\n" for name, value in headers.items()], "\r\n"]).encode()
        + body
    )


def _check_answer(answer: Response) -> None:
    if answer.status != _YES:
        raise WrongOutcomeError(f"{answer.body!r} where a write is measured.")


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
        return table.update_item(message, Key={"id": f"{name}-{message.id[-1]}"}, **BUSINESS)

    def batch(turn: int) -> object:
        records = [
            sqs_record(f"{turn}-{n}", body=json.dumps({"id": f"{secrets.token_hex(8)}-{turn % 20}{n}"}))
            for n in range(_BATCH)
        ]
        answer = handler({"Records": records}, None)
        assert answer == {"batchItemFailures": []}, answer
        return answer

    return batch


def _explain(store: GuardedTable, message: Message, key: str) -> Any:
    return store.explain("update_item", message, Key={"id": key}, **BUSINESS)
