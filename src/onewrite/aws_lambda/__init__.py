"""Decorators that make a Lambda handler of a function of one message. What they return is a plain function of (event, context).

Of a queue or a stream the handler answers with what must be redelivered: the event source mapping needs
`FunctionResponseTypes: [ReportBatchItemFailures]`, without which Lambda takes every answer for success. For Kafka, DocumentDB, SNS,
EventBridge and S3 it raises `NotSettled`, because Lambda reads no answer, except for Kafka in provisioned mode.
"""

from onewrite.aws_lambda.decorators import (
    documentdb_handler,
    dynamodb_stream_handler,
    eventbridge_handler,
    kafka_handler,
    kinesis_handler,
    s3_handler,
    sns_handler,
    sqs_handler,
)
from onewrite.batch.handler import Handler
from onewrite.batch.report import EveryRecordFailed, Failure, NotSettled, Report, Result

__all__ = [
    "EveryRecordFailed",
    "Failure",
    "Handler",
    "NotSettled",
    "Report",
    "Result",
    "documentdb_handler",
    "dynamodb_stream_handler",
    "eventbridge_handler",
    "kafka_handler",
    "kinesis_handler",
    "s3_handler",
    "sns_handler",
    "sqs_handler",
]
