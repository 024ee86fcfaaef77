"""Each row of the table of sources in docs/identities.md: its decorator and its identities settle what that source delivers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import onewrite.aws_lambda
import onewrite.identity
from onewrite import Message
from onewrite.testing import dynamodb_stream_event, kafka_event, kinesis_event, sqs_event
from tests.aws_lambda.test_aws_lambda_sources import CHANGED, PLACED, PUBLISHED, STORED, of_documentdb, of_sns

PAGE = Path(__file__).parents[2] / "docs" / "identities.md"
ROW = re.compile(r"^\| ([^|]+) \| `(\w+_handler)` \| (.+) \|$", re.MULTILINE)
ROWS = {name.strip(): (decorator, re.findall(r"`([^`]+)`", cell)) for name, decorator, cell in ROW.findall(PAGE.read_text())}

ORDER = {"eventId": "e-1", "cents": 900}
EVENT = {**PLACED, "detail": ORDER}
NOTIFICATION = {**PUBLISHED, "Message": json.dumps(ORDER)}
EVENTS: dict[str, Any] = {
    "SQS, standard queue": sqs_event(ORDER),
    "SQS, FIFO queue": sqs_event(ORDER, queue="orders.fifo"),
    "SNS through SQS": sqs_event(NOTIFICATION),
    "EventBridge through SQS": sqs_event(EVENT),
    "S3 through SQS": sqs_event({"Records": [STORED]}),
    "Kinesis": kinesis_event(ORDER),
    "DynamoDB Streams": dynamodb_stream_event((None, {"orderId": "o-1"})),
    "Kafka": kafka_event(ORDER),
    "DocumentDB": of_documentdb(CHANGED),
    "SNS": of_sns(NOTIFICATION),
    "EventBridge": EVENT,
    "S3": {"Records": [STORED]},
}
CASES = [(name, decorator, identity) for name, (decorator, cells) in ROWS.items() for identity in cells]


def test_table_has_a_row_for_each_source() -> None:
    assert ROWS.keys() == EVENTS.keys()
    assert {decorator for decorator, _ in ROWS.values()} == {
        name for name in onewrite.aws_lambda.__all__ if name.endswith("_handler")
    }


@pytest.mark.parametrize(("name", "decorator", "identity"), CASES)
def test_redelivery_has_the_same_id_for_each_row(name: str, decorator: str, identity: str) -> None:
    made = eval(identity, dict(vars(onewrite.identity)))  # noqa: S307  # our own page
    seen: list[Message] = []
    handler = getattr(onewrite.aws_lambda, decorator)(made)(seen.append)
    for _ in range(2):
        assert handler(json.loads(json.dumps(EVENTS[name])), None) == {"batchItemFailures": []}
    assert len(seen) == 2
    assert seen[0] == seen[1]
    assert ("eventId" in identity) == (seen[0].id == "e-1")
