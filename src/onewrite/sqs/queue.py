"""The requests to one queue. They are sent again if SQS fails for a moment, and explained if it refuses them.

A worker sends three kinds of them, whose first attempt may do without boto3. All of them may be sent twice:

- A message that is deleted already is deleted.
- A message that is hidden already is hidden again, for as long from then on.
- A ReceiveMessage whose response is lost has hidden its messages, and they come again when their visibility timeout ends. So it is with botocore's
  own retries, which have the same ReceiveRequestAttemptId on a FIFO queue, and get the same messages at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from logging import WARNING
from typing import Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ConnectionError, HTTPClientError  # noqa: A004  # botocore's

from onewrite.core.log import log
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.lean.client import LeanClient
from onewrite.lean.responses import as_json
from onewrite.lean.service import Service
from onewrite.sqs.waiting import SqsMessage

_OVERLOAD = ("Throttl", "OverLimit", "RequestLimitExceeded", "SlowDown", "TooManyRequests")  # parts of error codes


def is_passing(error: BotoCoreError | ClientError) -> bool:
    """Whether the error may be gone at the next attempt, like throttling or a lost connection. All others come back every time."""
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        overload = any(word in code for word in _OVERLOAD) or status == HTTPStatus.TOO_MANY_REQUESTS
        return overload or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, ConnectionError | HTTPClientError)


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
    error_code=None,
    checksum=None,
    event_handlers=frozenset(),
)


class LeanQueueClient(LeanClient):
    """The lean client of one queue: it remembers the address of the last queue."""

    service = SQS

    def receive_message(self, **request: Any) -> Any:
        return self._send("ReceiveMessage", request)

    def delete_message_batch(self, **request: Any) -> Any:
        return self._send("DeleteMessageBatch", request)

    def change_message_visibility_batch(self, **request: Any) -> Any:
        return self._send("ChangeMessageVisibilityBatch", request)


_CONNECTIONS = 50  # botocore's own pool has 10, and opens and closes one for each further request in progress
_PAUSES = (0.0, 0.1, 0.2, 0.4, 0.8)  # seconds before each attempt; botocore has retries of its own within one
MAX_ATTEMPTS = len(_PAUSES)
_ATTRIBUTES = ["QueueArn", "VisibilityTimeout", "RedrivePolicy"]
_PERMISSIONS = "sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility and sqs:GetQueueAttributes"


class QueueRefused(OnewriteError):
    """A queue refuses a request that it has accepted before: a token has expired, a permission was removed, or the queue was deleted."""


class SqsQueue:
    """One queue, used by several threads. `visibility`: the seconds for which a received message is hidden; None: the queue's own timeout."""

    def __init__(
        self,
        url: str,
        client: Any,
        *,
        visibility: int | None,
        name_attempt: Callable[[], str],
        sleep: Callable[[float], None],
    ) -> None:
        try:
            attributes = client.get_queue_attributes(QueueUrl=url, AttributeNames=_ATTRIBUTES)["Attributes"]
        except (BotoCoreError, ClientError) as error:  # also a lost connection: most likely the address is wrong
            raise ConfigurationError(_describe_refusal(url, error)) from error
        self.url = url
        self.arn = attributes["QueueArn"]
        self.is_fifo = self.arn.endswith(".fifo")
        self.visibility = int(attributes["VisibilityTimeout"]) if visibility is None else visibility
        if not self.visibility:
            raise ConfigurationError(
                f"The visibility timeout of {url} is 0, so every message would come again while it is processed. "
                "Set a longer one on the queue, or pass visibility_timeout to the worker."
            )
        self._client = client
        self._name_attempt = name_attempt
        self._sleep = sleep
        policy = json.loads(attributes.get("RedrivePolicy") or "{}")
        # None: the queue has no dead-letter queue.
        self.max_receives = int(policy["maxReceiveCount"]) if "maxReceiveCount" in policy else None
        self.dead_letter_queue = str(policy.get("deadLetterTargetArn", "")).rpartition(":")[2]

    def receive(self, number: int, wait: int) -> Sequence[SqsMessage] | None:
        """Return the messages that SQS has within `wait` seconds. None: the request failed, and another one may not."""
        options: dict[str, Any] = {
            "MaxNumberOfMessages": number,
            "WaitTimeSeconds": wait,
            "VisibilityTimeout": self.visibility,
            "MessageSystemAttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        }
        if self.is_fifo:  # If a response is lost, a retry with the same name gets the same messages.
            options["ReceiveRequestAttemptId"] = self._name_attempt()
        try:
            answer = self._client.receive_message(QueueUrl=self.url, **options)
        except (BotoCoreError, ClientError) as error:
            self._log_or_raise(error)
            return None
        return answer.get("Messages", [])  # type: ignore[no-any-return]  # the client has no types

    def delete(self, messages: Sequence[SqsMessage]) -> None:
        """Delete the messages. One that SQS does not delete is redelivered, and is a Duplicate then."""
        self._send_batch("delete_message_batch", [_entry(number, message) for number, message in enumerate(messages)])

    def hide(self, messages: Sequence[tuple[SqsMessage, int]], *, max_attempts: int) -> dict[str, bool]:
        """Hide each message for its seconds from now. One that SQS does not hide is redelivered when its visibility timeout ends.

        Return the receipt handles of those, each with whether SQS no longer knows it as received.
        """
        entries = [_entry(n, message) | {"VisibilityTimeout": seconds} for n, (message, seconds) in enumerate(messages)]
        return self._send_batch("change_message_visibility_batch", entries, max_attempts)

    def _send_batch(
        self, method: str, entries: Sequence[Mapping[str, Any]], max_attempts: int = MAX_ATTEMPTS
    ) -> dict[str, bool]:
        """Send the entries until SQS has accepted them.

        Return the receipt handles of those that it has not, each with whether it never will. The log has their number.
        """
        retries, refusals = [*entries], list[Mapping[str, Any]]()
        for pause in _PAUSES[:max_attempts]:
            if pause:
                self._sleep(pause)
            answer = self._try_batch(method, retries)
            is_refused = {failure["Id"]: bool(failure.get("SenderFault")) for failure in answer.get("Failed", ())}
            refusals += [entry for entry in retries if is_refused.get(entry["Id"])]
            retries = [entry for entry in retries if is_refused.get(entry["Id"]) is False]
            if not retries:
                break
        failures = {entry["ReceiptHandle"]: entry in refusals for entry in [*retries, *refusals]}
        if failures:
            log(WARNING, "%s: %s: not done for %s of %s messages", self.url, method, len(failures), len(entries))
        return failures

    def _try_batch(self, method: str, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        try:
            return getattr(self._client, method)(QueueUrl=self.url, Entries=entries)  # type: ignore[no-any-return]  # a client's methods have no types
        except (BotoCoreError, ClientError) as error:
            self._log_or_raise(error)
            return {"Failed": entries}

    def _log_or_raise(self, error: BotoCoreError | ClientError) -> None:
        if not is_passing(error):
            raise QueueRefused(_describe_refusal(self.url, error)) from error
        log(WARNING, "%s: %s", self.url, error)


# The region in a queue's host: sqs.eu-west-1.amazonaws.com, sqs-fips.us-east-1.amazonaws.com, vpce-1.sqs.eu-west-1.vpce.amazonaws.com,
# sqs.eu-west-1.api.aws, and the older eu-west-1.queue.amazonaws.com.
_REGION = r"[a-z]{2,}(?:-[a-z]+)+-\d+"
_HOST_WITH_REGION = re.compile(rf"https?://(?:[^/]+\.)?(?:sqs(?:-fips)?\.({_REGION})|({_REGION})\.queue)\.[^/]+(?:/.*)?")


def region_of(url: str) -> str | None:
    """Return the region that a queue's URL names. A stand-in's names none."""
    match = _HOST_WITH_REGION.fullmatch(url)
    return None if match is None else match[1] or match[2]


def default_client(url: str, *, region: str | None = None, endpoint_url: str | None = None) -> Any:
    """Return a client with enough connections for its threads, in the given region, or the URL's, or the configured one.

    It does not validate our own requests, which would take a tenth of its time.
    """
    import boto3

    sdk: Any = boto3  # The types of its `client` function are unknown without boto3-stubs.
    config = Config(max_pool_connections=_CONNECTIONS, parameter_validation=False)
    try:
        return sdk.client("sqs", region_name=region or region_of(url), endpoint_url=endpoint_url, config=config)
    except (BotoCoreError, ValueError) as error:  # a region or an endpoint that is missing or malformed
        raise ConfigurationError(_describe_refusal(url, error)) from error


def _describe_refusal(url: str, error: Exception) -> str:
    return (
        f"The worker cannot use the queue {url}: {error} "
        f"Check the URL, the region, the endpoint and the credentials. The worker needs {_PERMISSIONS}."
    )


def _entry(number: int, message: SqsMessage) -> dict[str, Any]:
    return {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
