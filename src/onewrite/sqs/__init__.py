"""The same decorated handler outside Lambda: `Worker` receives from SQS and hands over batches in Lambda's shape."""

from onewrite.sqs.decisions import backoff
from onewrite.sqs.worker import Worker

__all__ = ["Worker", "backoff"]
