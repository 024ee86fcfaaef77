"""What the Lambda decorator costs: for each record, without the function's own work."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

from onewrite import Applied, Message, Outcome
from onewrite.aws_lambda import sqs_handler
from onewrite.batch.handler import HandlerFunction
from onewrite.identity import json_body
from tests.benchmarks.measure import Plan, Row
from tests.support.batches import sqs_record

PER_RECORD = 25.0  # microseconds, identity included
_RECORDS = 1000  # in a batch: what a batch costs once is little beside them
_BATCHES = 15  # to one median
_MEDIANS = 5
_WORKERS = 10

_BODY = json.dumps(
    {
        "order": {"no": "1b4e28ba-2fa1-41d2-883f-0016d3cca427", "customer": "c-1", "lines": [{"sku": "a", "n": 1}]},
        "version": 3,
    }
)
_OUTCOME = Applied(Message("m"))


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # a median of what takes microseconds needs no tuning
    identity = json_body(id="order.no", source="order.customer", sequence="version")
    records = [sqs_record(str(number), body=_BODY) for number in range(_RECORDS)]
    yield _row("the identity alone", lambda: [identity(record) for record in records])
    yield _row("one by one", _batch(sqs_handler(identity)(_handle), records), PER_RECORD)
    yield _row(f"{_WORKERS} threads", _batch(sqs_handler(identity, max_workers=_WORKERS)(_handle), records))
    yield _row(f"{_WORKERS} tasks", _batch(sqs_handler(identity, max_workers=_WORKERS)(_ahandle), records))


def _handle(message: Message) -> Outcome:
    del message
    return _OUTCOME


async def _ahandle(message: Message) -> Outcome:
    return _handle(message)


def _batch(handler: HandlerFunction[Any, Any], records: list[Any]) -> Callable[[], object]:
    event = {"Records": records}
    return lambda: handler(event, None)


def _row(what: str, call: Callable[[], object], target: float | None = None) -> Row:
    """The least median: what else the machine does only ever adds."""
    call()
    medians = [statistics.median(_seconds(call) for _ in range(_BATCHES)) / _RECORDS * 1e6 for _ in range(_MEDIANS)]
    return Row(
        f"a record of a batch, {what}", "without the function's work", min(medians), min(medians), max(medians), "us", target
    )


def _seconds(call: Callable[[], object]) -> float:
    """Of the processor: nothing here waits, and what other programs take is not ours."""
    start = process_time()
    call()
    return process_time() - start
