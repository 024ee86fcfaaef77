"""`Worker` runs a decorated handler outside Lambda. It receives messages from SQS, and passes them on one by one, or in groups."""

from onewrite.process.extras import name_extra

with name_extra("aws", "onewrite.sqs"):
    from onewrite.batch.report import backoff
    from onewrite.process.watch import WorkerStuck
    from onewrite.sqs.queue import QueueRefused
    from onewrite.sqs.worker import Worker

__all__ = ["QueueRefused", "Worker", "WorkerStuck", "backoff"]
