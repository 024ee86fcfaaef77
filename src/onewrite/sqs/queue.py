"""The requests to one queue: tried again where SQS fails, explained where it refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from onewrite.errors import ConfigurationError
from onewrite.sqs.decisions import RequestEntry, backoff, is_passing, unsettled
from onewrite.sqs_message import Received

logger = logging.getLogger("onewrite.sqs")

_LONGEST_PAUSE = 20  # seconds between two receives that fail
_RETRY_PAUSES = (0.0, 0.1, 0.2, 0.4, 0.8)  # seconds before each try; botocore has retries of its own within a try
_PERMISSIONS = "sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility and sqs:GetQueueAttributes"


class Queue:
    """`visibility`: for how many seconds what is received is hidden; None asks the queue."""

    def __init__(
        self,
        url: str,
        client: Any,
        *,
        visibility: int | None,
        attempts: Callable[[], str],
        sleep: Callable[[float], None],
    ) -> None:
        found = _attributes(client, url, sleep)
        self.url = url
        self.arn = found["QueueArn"]
        self.fifo = self.arn.endswith(".fifo")
        self.visibility = int(found["VisibilityTimeout"]) if visibility is None else visibility
        if not self.visibility:
            raise ConfigurationError(
                f"The visibility timeout of {url} is 0: every message would come again while it is worked on. "
                "Set another one on the queue, or give the worker its visibility_timeout."
            )
        self._client = client
        self._attempts = attempts
        self._attempt = attempts()
        self._failures = 0
        self._sleep = sleep

    def receive(self, **options: Any) -> Sequence[Received] | None:
        """None: SQS could not be asked, and after a pause may be."""
        options |= {"QueueUrl": self.url, "VisibilityTimeout": self.visibility}
        options |= {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"]}
        if self.fifo:  # when the answer is lost, asking again by the same name gives the same messages
            options["ReceiveRequestAttemptId"] = self._attempt
        try:
            answer = self._client.receive_message(**options)
        except (BotoCoreError, ClientError) as error:
            self._pass(error)
            self._failures += 1
            self._sleep(min(backoff(self._failures), _LONGEST_PAUSE))
            return None
        self._failures, self._attempt = 0, self._attempts()
        return answer.get("Messages", [])  # type: ignore[no-any-return]  # the client is anybody's

    def delete(self, messages: Sequence[Received]) -> None:
        """What SQS does not delete comes again, and is a Duplicate then."""
        self._tell("delete_message_batch", [_entry(number, message) for number, message in enumerate(messages)])

    def hide(self, messages: Sequence[tuple[Received, int]]) -> set[str]:
        """Each for so many seconds from now. Returns the receipt handles that are in flight no more."""
        entries = [_entry(n, message) | {"VisibilityTimeout": seconds} for n, (message, seconds) in enumerate(messages)]
        return {entry["ReceiptHandle"] for entry in self._tell("change_message_visibility_batch", entries)}

    def _tell(self, method: str, entries: Sequence[RequestEntry]) -> Sequence[RequestEntry]:
        """Returns what SQS will never take. What it does not take in some tries is no reason to stop."""
        left = entries
        refused: list[RequestEntry] = []
        for pause in _RETRY_PAUSES if entries else ():
            self._sleep(pause)
            left, hopeless = unsettled(left, self._answer(method, left))
            refused += hopeless
            if not left:
                break
        if lost := len(left) + len(refused):
            logger.warning("%s: %s: not done for %s of %s messages", self.url, method, lost, len(entries))
        return refused

    def _answer(self, method: str, entries: Sequence[RequestEntry]) -> Mapping[str, Any]:
        try:
            return getattr(self._client, method)(QueueUrl=self.url, Entries=entries)  # type: ignore[no-any-return]  # as above
        except (BotoCoreError, ClientError) as error:
            self._pass(error)
            return {"Failed": entries}

    def _pass(self, error: BotoCoreError | ClientError) -> None:
        if not is_passing(error):
            raise _unusable(self.url, error) from error
        logger.warning("%s: %s", self.url, error)


def default_client(url: str, *, region: str | None = None, endpoint_url: str | None = None) -> Any:
    import boto3  # noqa: PLC0415  # who brings a client may bring any

    sdk: Any = boto3  # the types of its `client` name every service there is
    try:
        return sdk.client("sqs", region_name=region, endpoint_url=endpoint_url)
    except (BotoCoreError, ValueError) as error:  # no region, or what is none; an address that is none
        raise _unusable(url, error) from error


def _attributes(client: Any, url: str, sleep: Callable[[float], None]) -> Mapping[str, str]:
    """What fails here for longer than a moment is explained, a lost connection too: most likely it is the address."""
    pauses = iter(_RETRY_PAUSES[1:])
    while True:
        try:
            return client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn", "VisibilityTimeout"])["Attributes"]  # type: ignore[no-any-return]  # as above
        except (BotoCoreError, ClientError) as error:
            pause = next(pauses, None)
            if pause is None or not is_passing(error):
                raise _unusable(url, error) from error
        sleep(pause)


def _unusable(url: str, error: Exception) -> ConfigurationError:
    return ConfigurationError(
        f"The worker cannot use the queue {url}: {error} "
        f"Check the URL, the region, the endpoint and the credentials. The worker needs {_PERMISSIONS}."
    )


def _entry(number: int, message: Received) -> dict[str, Any]:
    return {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
