"""Decorators that turn a function of one message into a Lambda handler: a plain function of (event, context).

For queues and streams, the handler's response names the records to redeliver. Set `FunctionResponseTypes:
[ReportBatchItemFailures]` on the event source mapping. Otherwise Lambda takes every response for success. For Kafka,
DocumentDB, SNS, EventBridge, and S3, the handler raises `NotSettled` instead, because Lambda reads no response there. Kafka
in provisioned mode is the exception.
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
