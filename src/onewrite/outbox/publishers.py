"""Publishers for Amazon's brokers. Each sends a relay's events as CloudEvents, and returns the events that weren't accepted.

The response to a batch reports each entry, even if the request itself succeeded. A publisher takes a boto3 client for `Relay`, or an
aiobotocore client for `AsyncRelay`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from hashlib import blake2b
from logging import WARNING
from math import inf
from typing import Any, TypeAlias

from onewrite.core.features.pending import Outgoing
from onewrite.core.flow import Call, adrive, drive, make_async_executor, make_executor
from onewrite.core.log import log
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.stores import is_asynchronous

Sending: TypeAlias = Generator[Call, Any, list[Outgoing]]
Compile: TypeAlias = Callable[[Sequence[Outgoing]], Call]
# Takes the sent events and the broker's response, and returns the events that weren't accepted.
ReadResponse: TypeAlias = Callable[[Sequence[Outgoing], Any], list[Outgoing]]

MAX_ENTRIES = 10  # SQS, SNS, and EventBridge accept ten in a request
_MAX_TYPE_LENGTH = 128  # characters, EventBridge's limit
MAX_REQUEST_BYTES = 256 * 1024  # bytes, which all three accept in every region
_ENTRY_OVERHEAD = 256  # bytes: the maximum of an entry's other parts, such as the names of a bus, source, or attribute
_GROUP = re.compile(r"[!-~]{1,128}")  # the valid names of a FIFO group


def to_sqs(client: Any, queue_url: str, *, max_bytes: int = MAX_REQUEST_BYTES) -> Publisher:
    """Return a publisher to an SQS queue. A request has at most `max_bytes` bytes.

    On a FIFO queue, the group is the event's source, and the deduplication ID is the event's ID.
    """

    def compile_request(events: Sequence[Outgoing]) -> Call:
        entries = [
            {"Id": str(n), "MessageBody": event.cloudevent(), **_make_fifo_fields(event, queue_url)}
            for n, event in enumerate(events)
        ]
        return Call("send_message_batch", (), {"QueueUrl": queue_url, "Entries": entries})

    return Publisher(client, queue_url, "send_message_batch", compile_request, _read_failures_by_id, max_bytes=max_bytes)


def to_sns(client: Any, topic_arn: str, *, max_bytes: int = MAX_REQUEST_BYTES) -> Publisher:
    """Return a publisher to an SNS topic, with the event's type as the attribute `type` for filters. A request has at most `max_bytes` bytes.

    A FIFO topic works like a FIFO queue.
    """

    def compile_request(events: Sequence[Outgoing]) -> Call:
        entries: list[dict[str, Any]] = []
        for n, event in enumerate(events):
            attributes = {"type": {"DataType": "String", "StringValue": event.type}}
            entry = {"Id": str(n), "Message": event.cloudevent(), "MessageAttributes": attributes}
            entries.append({**entry, **_make_fifo_fields(event, topic_arn)})
        return Call("publish_batch", (), {"TopicArn": topic_arn, "PublishBatchRequestEntries": entries})

    return Publisher(client, topic_arn, "publish_batch", compile_request, _read_failures_by_id, max_bytes=max_bytes)


def to_eventbridge(client: Any, bus: str, *, source: str, max_bytes: int = MAX_REQUEST_BYTES) -> Publisher:
    """Return a publisher to an event bus, whose rules match `source` and the event's type as the detail-type. The detail is the CloudEvent.

    EventBridge doesn't keep the order, so consumers need a ledger that accepts any order. A request has at most `max_bytes` bytes.
    """

    def compile_request(events: Sequence[Outgoing]) -> Call:
        target = {"EventBusName": bus, "Source": source}
        entries = [{**target, "DetailType": event.type, "Detail": event.cloudevent()} for event in events]
        return Call("put_events", (), {"Entries": entries})

    return Publisher(
        client, bus, "put_events", compile_request, _read_failures_by_place, max_bytes=max_bytes, type_limit=_MAX_TYPE_LENGTH
    )


class IncompleteResponse(OnewriteError, ConnectionError):
    """A broker's response doesn't name each event. All events of the request are published again."""


class Publisher:
    """Sends events in requests within the broker's limits."""

    def __init__(
        self,
        client: Any,
        address: object,
        method: str,
        compile_request: Compile,
        read_response: ReadResponse,
        *,
        max_bytes: int,
        type_limit: float = inf,
    ) -> None:
        if not callable(getattr(client, method, None)) or not isinstance(address, str):
            raise ConfigurationError(
                f"A publisher expected a client with {method}() and an address as a str, got {client!r} and {address!r}."
            )
        if type(max_bytes) is not int or max_bytes < 1:
            raise ConfigurationError(
                f"A publisher's max_bytes={max_bytes!r}: expected the maximum bytes of a request, an int of 1 or more."
            )
        self._client, self._compile, self._read_response = client, compile_request, read_response
        self._max_bytes, self._type_limit = max_bytes, type_limit
        self._is_asynchronous = is_asynchronous(client, method)

    def __call__(self, events: list[Outgoing]) -> Any:
        """Send the events, and return those that weren't accepted, or an awaitable of them with an asynchronous client."""
        sending = self._send(events)
        if self._is_asynchronous:
            return adrive(sending, make_async_executor(self._client))
        return drive(sending, make_executor(self._client))

    def _send(self, events: list[Outgoing]) -> Sending:
        """Send the events in as few requests as their sizes allow, in order. Return the events that weren't accepted."""
        refused_events: list[Outgoing] = []
        chunks: list[list[Outgoing]] = []  # the events of each request
        room = 0  # bytes left in the last chunk
        for event in events:
            size = len(event.cloudevent().encode()) + len(event.type.encode()) + _ENTRY_OVERHEAD
            if len(event.type) > self._type_limit:
                reason = f"its type has {len(event.type)} characters, but the broker accepts at most {self._type_limit}"
                refused_events.append(_log_refusal(event, reason))
            elif size > self._max_bytes:
                reason = f"it has {size} bytes with its attributes, but a request can have at most {self._max_bytes}"
                refused_events.append(_log_refusal(event, reason))
            else:
                if size > room or len(chunks[-1]) == MAX_ENTRIES:
                    chunks.append([])
                    room = self._max_bytes
                chunks[-1].append(event)
                room -= size
        for chunk in chunks:
            refused_events += self._read_response(chunk, (yield self._compile(chunk)))
        return refused_events


def _make_fifo_fields(event: Outgoing, address: str) -> dict[str, str]:
    """Return the fields of an entry that a FIFO queue or topic needs, or none for other addresses."""
    if not address.endswith(".fifo"):
        return {}
    # A long key can make the source too long for a group's name, so the name is then a hash of the source.
    is_valid_group = _GROUP.fullmatch(event.source) is not None
    group = event.source if is_valid_group else blake2b(event.source.encode(), digest_size=32).hexdigest()
    return {"MessageGroupId": group, "MessageDeduplicationId": event.id}


def _read_failures_by_id(events: Sequence[Outgoing], response: Any) -> list[Outgoing]:
    """Return the events that SQS or SNS didn't accept. The response names the accepted and the failed entries."""
    accepted_ids = {str(entry["Id"]) for entry in response.get("Successful", [])}
    failed_entries = {str(entry["Id"]): entry for entry in response.get("Failed", [])}
    events_by_id = {str(n): event for n, event in enumerate(events)}
    _check_known(len(events), is_known=accepted_ids | failed_entries.keys() == events_by_id.keys())
    return [
        _log_refusal(events_by_id[entry_id], f"{entry.get('Code')}: {entry.get('Message')}")
        for entry_id, entry in failed_entries.items()
    ]


def _read_failures_by_place(events: Sequence[Outgoing], response: Any) -> list[Outgoing]:
    """Return the events that EventBridge didn't accept. An accepted entry has an ID, and a failed one an error code."""
    entries: list[dict[str, Any]] = response.get("Entries", [])
    known_entries = [entry for entry in entries if entry.get("EventId") or entry.get("ErrorCode")]
    # Entries don't name their events. They are in the events' order.
    _check_known(len(events), is_known=len(known_entries) == len(entries) == len(events))
    return [
        _log_refusal(event, f"{entry['ErrorCode']}: {entry.get('ErrorMessage')}")
        for event, entry in zip(events, entries, strict=True)
        if entry.get("ErrorCode")
    ]


def _check_known(count: int, *, is_known: bool) -> None:
    """Raise unless the response names exactly these events. A proxy or a wrong address can respond to any request with success."""
    if not is_known:
        raise IncompleteResponse(
            f"The broker's response doesn't name each of the {count} events, so all of them will be published again. Check that the "
            "address belongs to the broker."
        )


def _log_refusal(event: Outgoing, reason: str) -> Outgoing:
    """Log that an event wasn't accepted, and return the event."""
    log(WARNING, "Publisher: event %s of %s wasn't accepted: %s", event.id, event.source, reason)
    return event
