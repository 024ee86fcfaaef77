"""The requests to one queue. Passing failures are retried, and a refusal is explained.

A worker sends three kinds of requests. Each can safely be sent twice:

- Deleting a deleted message succeeds.
- Hiding a hidden message hides it for the whole time again, counted from the second request.
- A ReceiveMessage whose response is lost has hidden its messages. SQS redelivers them when their visibility timeout ends. On a FIFO
  queue, botocore's retries repeat the ReceiveRequestAttemptId, and get the same messages at once.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from logging import WARNING
from typing import Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,  # noqa: A004  # botocore's
    EndpointConnectionError,
    HTTPClientError,
    ProxyConnectionError,
    SSLError,
)

from onewrite.core.log import log
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.sqs.waiting import SqsMessage

_OVERLOAD = ("Throttl", "OverLimit", "RequestLimitExceeded", "SlowDown", "TooManyRequests")  # parts of error codes


def is_passing(error: BotoCoreError | ClientError) -> bool:
    """Whether the error might be gone on the next attempt, like throttling or a lost connection. Other errors are permanent."""
    if isinstance(error, ClientError):
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        overload = any(word in code for word in _OVERLOAD) or status == HTTPStatus.TOO_MANY_REQUESTS
        return overload or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, ConnectionError | HTTPClientError)


# Seconds. A long poll takes up to 20. With botocore's defaults, which are 60 seconds and five attempts, a network that swallows requests
# would stay unnoticed for five minutes. The worker retries by itself.
_CONNECT_TIMEOUT, _READ_TIMEOUT = 10, 30
_CONNECTIONS = 50  # botocore's default of 10 opens and closes a connection for each additional concurrent request
_PAUSES = (0.0, 0.1, 0.2, 0.4, 0.8)  # seconds before each attempt, within which botocore retries too
MAX_ATTEMPTS = len(_PAUSES)
_MANY_FAILURES = 3  # in a row
_ATTRIBUTES = ["QueueArn", "VisibilityTimeout", "RedrivePolicy"]
_PERMISSIONS = "sqs:ReceiveMessage, sqs:DeleteMessage, sqs:ChangeMessageVisibility, and sqs:GetQueueAttributes"


# Errors that a wrong address causes. A worker that starts reports them at once, and a running one retries.
_ADDRESS_ERRORS = (EndpointConnectionError, ProxyConnectionError, SSLError)


class QueueRefused(OnewriteError):
    """SQS refuses a running worker's requests, for example after a token has expired, or fails too often while a worker starts."""


class SqsQueue:
    """One queue, used by several threads. `visibility` is how long a received message is hidden, or None for the queue's own timeout."""

    def __init__(self, url: str, client: Any, *, visibility: int | None, sleep: Callable[[float], None]) -> None:
        response = _request_attributes(url, client, sleep)
        attributes: Mapping[str, str] = response["Attributes"]
        self.url = url
        self.arn = attributes["QueueArn"]
        self.is_fifo = self.arn.endswith(".fifo")
        self.visibility = int(attributes["VisibilityTimeout"]) if visibility is None else visibility
        if not self.visibility:
            raise ConfigurationError(
                f"The visibility timeout of {url} is 0. Every message would be redelivered while it is processed. "
                "Set a longer timeout on the queue, or pass visibility_timeout= to the worker."
            )
        self._client = client
        self._sleep = sleep
        self._has_request_ids = _has_request_id(response)  # a stand-in might send none
        self._failures_in_a_row = 0  # of all threads, for the log
        policy = json.loads(attributes.get("RedrivePolicy") or "{}")
        # None means that the queue has no dead-letter queue.
        self.max_receives = int(policy["maxReceiveCount"]) if "maxReceiveCount" in policy else None
        self.dead_letter_queue = str(policy.get("deadLetterTargetArn", "")).rpartition(":")[2]

    def receive(self, number: int, wait: int) -> Sequence[SqsMessage] | None:
        """Return the messages that SQS has within `wait` seconds, or None if the request failed but a later request can succeed."""
        options: dict[str, Any] = {
            "MaxNumberOfMessages": number,
            "WaitTimeSeconds": wait,
            "VisibilityTimeout": self.visibility,
            "MessageSystemAttributeNames": ["All"],
            "MessageAttributeNames": ["All"],
        }
        if self.is_fifo:  # If a response is lost, a retry with the same name gets the same messages.
            options["ReceiveRequestAttemptId"] = secrets.token_hex(16)
        try:
            response = self._request("receive_message", **options)
        except (BotoCoreError, ClientError) as error:
            self._log_or_raise(error)
            return None
        self._failures_in_a_row = 0
        return response.get("Messages", [])  # type: ignore[no-any-return]  # the client has no types

    def delete(self, messages: Sequence[SqsMessage]) -> None:
        """Delete the messages. If SQS fails to delete a message, its redelivery is a Duplicate."""
        self._send_batch("delete_message_batch", [_make_entry(number, message) for number, message in enumerate(messages)])

    def hide(self, messages: Sequence[tuple[SqsMessage, int]], *, max_attempts: int) -> dict[str, bool]:
        """Hide each message for its number of seconds from now.

        Return the failed receipt handles, each with whether the receive has expired. SQS redelivers those messages when their visibility
        timeout ends.
        """
        entries = [_make_entry(n, message) | {"VisibilityTimeout": seconds} for n, (message, seconds) in enumerate(messages)]
        return self._send_batch("change_message_visibility_batch", entries, max_attempts)

    def _send_batch(
        self, method: str, entries: Sequence[Mapping[str, Any]], max_attempts: int = MAX_ATTEMPTS
    ) -> dict[str, bool]:
        """Send the entries until SQS has accepted or refused each, in at most `max_attempts`. Log the number of failed entries.

        Return the failed receipt handles, each with whether SQS refused it for good.
        """
        retries, refusals = [*entries], list[Mapping[str, Any]]()
        for pause in _PAUSES[:max_attempts]:
            if pause:
                self._sleep(pause)
            try:
                response = self._request(method, Entries=retries)
            except (BotoCoreError, ClientError) as error:
                self._log_or_raise(error)
                continue
            self._failures_in_a_row = 0
            # An entry that isn't in this response has succeeded.
            sender_faults = {failure["Id"]: bool(failure.get("SenderFault")) for failure in response.get("Failed", ())}
            refusals += [entry for entry in retries if sender_faults.get(entry["Id"])]
            retries = [entry for entry in retries if sender_faults.get(entry["Id"]) is False]
            if not retries:
                break
        failures = {entry["ReceiptHandle"]: entry in refusals for entry in [*retries, *refusals]}
        if failures:
            text = "%s: %s failed for %s of %s messages. SQS might redeliver them, which does no harm"
            log(WARNING, text, self.url, method, len(failures), len(entries))
        return failures

    def _request(self, method: str, **arguments: Any) -> Any:
        """Send a request, and return the response. Raise a passing error if the response isn't SQS's.

        botocore takes the page of a proxy for an empty response, which would look like an empty queue. SQS sends a request ID.
        """
        response = getattr(self._client, method)(QueueUrl=self.url, **arguments)
        if self._has_request_ids and not _has_request_id(response):
            raise HTTPClientError(error="the response has no request ID. Something else than SQS sent it, such as a proxy")
        return response

    def _log_or_raise(self, error: BotoCoreError | ClientError) -> None:
        """Log a passing failure. Raise QueueRefused for a permanent failure."""
        if not is_passing(error):
            raise QueueRefused(_describe_refusal(self.url, error)) from error
        self._failures_in_a_row += 1
        if self._failures_in_a_row < _MANY_FAILURES:
            text = "%s: a request failed. No action is needed unless this repeats: %s"
            log(WARNING, text, self.url, error)
        else:
            text = "%s: %d requests in a row failed, and the worker keeps trying. Check the network, and the AWS Health Dashboard. The last error: %s"
            log(WARNING, text, self.url, self._failures_in_a_row, error)


def _request_attributes(url: str, client: Any, sleep: Callable[[float], None]) -> Any:
    """Return the response with the queue's attributes. Retry if SQS throttles or fails, as it can when many workers start at once."""
    failure: Exception | None = None
    for pause in _PAUSES:
        if pause:
            sleep(pause)
        try:
            response = client.get_queue_attributes(QueueUrl=url, AttributeNames=_ATTRIBUTES)
        except (BotoCoreError, ClientError) as error:
            if not is_passing(error) or isinstance(error, _ADDRESS_ERRORS):
                raise ConfigurationError(_describe_refusal(url, error)) from error
            failure = error
            log(WARNING, "%s: the worker can't start yet, and tries again: %s", url, error)
        else:
            if not {"QueueArn", "VisibilityTimeout"} <= response.get("Attributes", {}).keys():
                raise ConfigurationError(_describe_refusal(url, "its response has no attributes of a queue."))
            return response
    raise QueueRefused(
        f"The worker can't start on the queue {url}. SQS failed {MAX_ATTEMPTS} times, at last with: {str(failure).rstrip('.')}. Start the worker "
        "again. If this repeats, check the AWS Health Dashboard, and the rate of this account's requests to SQS."
    ) from failure


def _has_request_id(response: Any) -> bool:
    return "RequestId" in response.get("ResponseMetadata", {})


# The region in a queue's host: sqs.eu-west-1.amazonaws.com, sqs-fips.us-east-1.amazonaws.com, vpce-1.sqs.eu-west-1.vpce.amazonaws.com,
# sqs.eu-west-1.api.aws, and the older eu-west-1.queue.amazonaws.com.
_REGION = r"[a-z]{2,}(?:-[a-z]+)+-\d+"
_HOST_WITH_REGION = re.compile(rf"https?://(?:[^/]+\.)?(?:sqs(?:-fips)?\.({_REGION})|({_REGION})\.queue)\.[^/]+(?:/.*)?")


def find_region(url: str) -> str | None:
    """Return the region in a queue's URL, or None if it has none, for example a stand-in's."""
    match = _HOST_WITH_REGION.fullmatch(url)
    return None if match is None else match[1] or match[2]


def make_default_client(url: str, *, region: str | None = None, endpoint_url: str | None = None) -> Any:
    """Return a client with enough connections for the worker's threads, in the given region, the URL's, or the configured one.

    Parameter validation is off, because it would take a tenth of the client's time.
    """
    import boto3

    sdk: Any = boto3  # the type of boto3.client is unknown without boto3-stubs
    config = Config(
        max_pool_connections=_CONNECTIONS,
        parameter_validation=False,
        connect_timeout=_CONNECT_TIMEOUT,
        read_timeout=_READ_TIMEOUT,
        retries={"total_max_attempts": 2},
    )
    try:
        return sdk.client("sqs", region_name=region or find_region(url), endpoint_url=endpoint_url, config=config)
    except (BotoCoreError, ValueError) as error:  # the region or the endpoint is missing or malformed
        raise ConfigurationError(_describe_refusal(url, error)) from error


def _describe_refusal(url: str, error: object) -> str:
    return (
        f"The worker can't use the queue {url}: {str(error).rstrip('.')}. "
        f"Check the URL, the region, the endpoint, the network's proxies, and the credentials. The worker needs {_PERMISSIONS}."
    )


def _make_entry(number: int, message: SqsMessage) -> dict[str, Any]:
    """Return the part of a batch request that names a message. Its ID is the place in the batch."""
    return {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
