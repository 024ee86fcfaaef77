"""Runs a decorated handler outside Lambda: `Worker` receives messages from SQS, and gives them to it one by one, or by groups."""

from onewrite.core.extras import name_extra

with name_extra("aws", "onewrite.sqs"):
    from onewrite.batch.report import backoff
    from onewrite.sqs.queue import QueueRefused
    from onewrite.sqs.watch import WorkerStuck
    from onewrite.sqs.worker import Worker

__all__ = ["QueueRefused", "Worker", "WorkerStuck", "backoff"]
