"""Doorbells: they wake a relay when something is emitted. What goes out is read in the entity, so that one that is lost or rings
twice does no harm: a sweep finds what no doorbell has told of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

from onewrite.errors import OnewriteError
from onewrite.event import Outbox
from onewrite.outbox.relay import Relay
from onewrite.outbox.reports import Swept

Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]

_AT_ONCE = 50  # keys, after which the remaining time is looked at again
_MARGIN_MS = 2000  # how long before the invocation's end nothing is begun any more
_log = logging.getLogger("onewrite")


class Context(Protocol):
    """What Lambda hands a function beside the event."""

    def get_remaining_time_in_millis(self) -> int: ...


def stream_handler(relay: Relay, *, on_pass: Callable[[Swept], object] | None = None) -> Handler:
    """A Lambda function for the stream of the relay's DynamoDB table.

    It answers with success whatever the broker says: an event that is refused stays in its entity, and must not hold up the
    shard. Let a schedule call `relay.sweep()` beside it.
    """

    def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        keys = rung_keys(relay.outbox, event.get("Records", ()))
        remaining = getattr(context, "get_remaining_time_in_millis", None)
        while keys and (remaining is None or remaining() > _MARGIN_MS):
            try:
                swept = relay.ring(keys[:_AT_ONCE])
            except OnewriteError:
                raise
            except Exception as error:
                _log.warning("A doorbell was not followed, and a sweep will find what it told of: %r", error)
            else:
                if on_pass is not None:
                    on_pass(swept)
            keys = keys[_AT_ONCE:]
        return {"batchItemFailures": []}

    return handler


def rung_keys(outbox: Outbox, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The keys of the items that may have something pending, each once. They are typed, as a stream has them.

    An image without events rules that out: whatever is emitted after it has a record of its own.
    """
    keys: dict[str, dict[str, Any]] = {}
    for record in records:
        change = cast("Mapping[str, Any]", record.get("dynamodb") or {})
        image = change.get("NewImage")
        if record.get("eventName") != "REMOVE" and (image is None or outbox.names.events in image) and change.get("Keys"):
            keys[repr(sorted(change["Keys"].items()))] = change["Keys"]
    return [*keys.values()]
