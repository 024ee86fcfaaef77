"""The same decorated handler outside Lambda: `Worker` receives from SQS and hands over batches in Lambda's shape."""

from onewrite.extras import installed_by

with installed_by("aws", "onewrite.sqs"):
    from onewrite.sqs.decisions import backoff
    from onewrite.sqs.worker import Worker

__all__ = ["Worker", "backoff"]
