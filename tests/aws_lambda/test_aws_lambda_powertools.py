"""Our handlers below the decorators of AWS Powertools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from aws_lambda_powertools import Logger, Metrics, Tracer
from aws_lambda_powertools.middleware_factory import lambda_handler_decorator
from aws_lambda_powertools.utilities.data_classes import (
    DynamoDBStreamEvent,
    EventBridgeEvent,
    KafkaEvent,
    KinesisStreamEvent,
    S3Event,
    SNSEvent,
    SQSEvent,
    event_source,
)
from aws_lambda_powertools.utilities.parser import BaseModel, envelopes, event_parser
from aws_lambda_powertools.utilities.parser.models import (
    DynamoDBStreamModel,
    EventBridgeModel,
    KafkaMskEventModel,
    KinesisDataStreamModel,
    SqsModel,
    SqsRecordModel,
)
from pydantic import Json

from onewrite import ConfigurationError, Message
from onewrite.aws_lambda import (
    dynamodb_stream_handler,
    eventbridge_handler,
    kafka_handler,
    kinesis_handler,
    s3_handler,
    sns_handler,
    sqs_handler,
)
from onewrite.batch.handler import find_handler
from onewrite.batch.report import Report
from onewrite.identity import eventbridge, json_body, s3_object, sns
from onewrite.testing import dynamodb_stream_event, kafka_event, kinesis_event, lambda_context, sqs_event
from tests.aws_lambda.test_aws_lambda_sources import PLACED, PUBLISHED, STORED, of_sns
from tests.support.batches import SENT_AT, by_name, identifiers

CONTEXT: Any = lambda_context()
ORDER = {"no": "o-7", "cents": 900}


@lambda_handler_decorator
def passing(handler: Callable[..., Any], event: Any, context: Any, answer: Any = None) -> Any:
    return answer or handler(event, context)


logger, tracer = Logger(service="shop"), Tracer(service="shop", disabled=True)
metrics = Metrics(namespace="shop", service="shop")

DECORATORS: dict[str, Callable[[Any], Any]] = {
    "event_source": event_source(data_class=SQSEvent),
    "event_parser": event_parser(model=SqsModel),
    "event_parser by annotation": event_parser,
    "inject_lambda_context with options": logger.inject_lambda_context(log_event=False, clear_state=True),
    "lambda_handler_decorator with options": passing(answer=None),
    "all": lambda handler: logger.inject_lambda_context(
        tracer.capture_lambda_handler(metrics.log_metrics(event_source(data_class=SQSEvent)(handler)))
    ),
}


@pytest.mark.filterwarnings("ignore:No application metrics to publish")  # Powertools': nothing was counted here
@pytest.mark.parametrize("name", DECORATORS)
def test_handler_works_below_each_powertools_decorator(name: str) -> None:
    seen: list[Message] = []

    def each(message: Message) -> None:
        seen.append(message)
        if message.body["no"] == "bad":
            raise ValueError

    handler = sqs_handler(json_body(id="no"))(each)
    decorated = DECORATORS[name](handler)
    event = sqs_event(ORDER, {"no": "bad"})
    assert identifiers(decorated(event, CONTEXT)) == [event["Records"][1]["messageId"]]
    assert [message.body for message in seen] == [ORDER, {"no": "bad"}]
    assert find_handler(decorated) is handler.handler
    assert (decorated.__name__, decorated.function) == ("each", each)


DATA_CLASSES: dict[str, tuple[Any, Any, Any, Any]] = {
    "Kinesis": (KinesisStreamEvent, kinesis_handler, json_body(id="no"), kinesis_event(ORDER)),
    "DynamoDB": (
        DynamoDBStreamEvent,
        dynamodb_stream_handler,
        json_body(id="NewImage.no.S"),
        dynamodb_stream_event((None, ORDER), key="no"),
    ),
    "Kafka": (KafkaEvent, kafka_handler, json_body(id="no"), kafka_event(ORDER)),
    "SNS": (SNSEvent, sns_handler, sns(json_body(id="no")), of_sns(PUBLISHED)),
    "EventBridge": (EventBridgeEvent, eventbridge_handler, eventbridge(json_body(id="no")), PLACED),
    "S3": (S3Event, s3_handler, s3_object(), {"Records": [STORED]}),
}


@pytest.mark.parametrize("name", DATA_CLASSES)
def test_powertools_data_class_is_accepted_as_an_event(name: str) -> None:
    data_class, decorator, identity, event = DATA_CLASSES[name]
    seen: list[str] = []
    event_source(data_class=data_class)(decorator(identity)(lambda message: seen.append(message.id)))(event, CONTEXT)
    assert len(seen) == 1
    assert "o-7" in seen[0]


class Order(BaseModel):
    no: str
    cents: int


class OrderRecord(SqsRecordModel):
    body: Json[Order]  # pyright: ignore[reportIncompatibleVariableOverride]


class OrderEvent(SqsModel):
    Records: list[OrderRecord]  # pyright: ignore[reportIncompatibleVariableOverride]


def test_body_is_the_validated_model() -> None:
    seen: list[Message] = []
    handler = event_parser(model=OrderEvent)(sqs_handler(json_body(id="no"), clock=lambda: 1_700_000_002.0)(seen.append))
    handler(sqs_event({**ORDER, "cents": "900"}, queue="orders.fifo", message_attributes={"a": "b"}), CONTEXT)
    assert (seen[0].id, seen[0].body) == ("o-7", ORDER)
    assert seen[0].attributes["a"] == "b"


@pytest.mark.parametrize(
    ("model", "decorator", "event"),
    [
        (KinesisDataStreamModel, kinesis_handler, kinesis_event(ORDER)),
        (DynamoDBStreamModel, dynamodb_stream_handler, dynamodb_stream_event((None, ORDER), key="no")),
        (KafkaMskEventModel, kafka_handler, kafka_event(ORDER)),
    ],
)
def test_model_that_decodes_stream_records_is_refused(model: Any, decorator: Any, event: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Remove @event_parser and validate message.body"):
        event_parser(model=model)(decorator(by_name)(lambda _: None))(event, CONTEXT)


def test_model_of_a_direct_event_keeps_its_time() -> None:
    seen: list[Message] = []
    reports: list[Report] = []
    handler = eventbridge_handler(eventbridge(json_body(id="no")), clock=lambda: SENT_AT + 2)(seen.append)
    parsing = event_parser(model=EventBridgeModel)(lambda event, context: reports.append(handler.run(event, context)))
    parsing({**PLACED, "account": "1", "region": "r", "resources": []}, CONTEXT)
    assert (seen[0].id, reports[0].oldest_seconds) == ("o-7", 2.0)


def test_event_without_its_envelope_is_refused() -> None:
    handler = event_parser(model=Order, envelope=envelopes.SqsEnvelope)(sqs_handler(json_body(id="no"))(lambda _: None))
    with pytest.raises(ConfigurationError, match="This event isn't a batch of SQS"):
        handler(sqs_event(ORDER), CONTEXT)
