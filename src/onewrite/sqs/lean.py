"""The three requests that a worker sends all the time, whose first try does without boto3. All of them may be sent twice:

- A message that is deleted already is deleted.
- A message that is hidden already is hidden anew, for as long from then on.
- A ReceiveMessage whose answer is lost has hidden its messages, and they come again when their visibility timeout ends. So it is with botocore's
  own retries. On a FIFO queue the second try has the same ReceiveRequestAttemptId, and gets the same messages at once.
"""

from __future__ import annotations

from typing import Any

from onewrite.lean.answers import as_json
from onewrite.lean.client import LeanClient
from onewrite.lean.service import Service

SQS = Service(
    name="sqs",
    title="SQS",
    sender="a lean worker",
    methods={
        "ReceiveMessage": "receive_message",
        "DeleteMessageBatch": "delete_message_batch",
        "ChangeMessageVisibilityBatch": "change_message_visibility_batch",
    },
    place="QueueUrl",
    body=as_json,
    refused=None,
    checksum=None,
    registered=frozenset(),
)


class LeanQueueClient(LeanClient):
    """For one queue: it remembers the way to the one that it was asked for last."""

    service = SQS

    def receive_message(self, **request: Any) -> Any:
        return self._sent("ReceiveMessage", request)

    def delete_message_batch(self, **request: Any) -> Any:
        return self._sent("DeleteMessageBatch", request)

    def change_message_visibility_batch(self, **request: Any) -> Any:
        return self._sent("ChangeMessageVisibilityBatch", request)
