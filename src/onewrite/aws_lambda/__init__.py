"""Decorators that make a Lambda handler of batches of a function of one message. It answers with what must come again.

The event source mapping needs `FunctionResponseTypes: [ReportBatchItemFailures]`. Without it Lambda takes every answer for
success.
"""

from onewrite.aws_lambda.decorators import (
    dynamodb_stream_handler,
    kafka_handler,
    kinesis_handler,
    sqs_handler,
)
from onewrite.batch.handler import Handler, Options
from onewrite.batch.report import EveryRecordFailed, Report, Result

__all__ = [
    "EveryRecordFailed",
    "Handler",
    "Options",
    "Report",
    "Result",
    "dynamodb_stream_handler",
    "kafka_handler",
    "kinesis_handler",
    "sqs_handler",
]
