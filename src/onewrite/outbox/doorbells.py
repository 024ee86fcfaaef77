"""Doorbells: they wake a relay when something is emitted. What goes out is read in the entity, so that one that is lost or rings
twice does no harm: a sweep finds what no doorbell has told of.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeAlias, cast

from onewrite.batch.workers import runner_of_this_thread
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.label import OUTBOX
from onewrite.outbox.relay import AsyncRelay, OnPass, Relay, reported
from onewrite.outbox.reports import Swept

Handler = Callable[[Mapping[str, Any], Any], dict[str, Any]]
# A relay, or an asynchronous function that makes one where its client must be made in the event loop.
HandledRelay: TypeAlias = Relay | AsyncRelay | Callable[[], Awaitable[AsyncRelay]]

_MARGIN = timedelta(
    seconds=2
)  # before the invocation's end: enough for the call that is under way, and for the clears after it
_NO_END = timedelta.max
_log = logging.getLogger("onewrite")


class Context(Protocol):
    """What Lambda hands a function beside the event."""

    def get_remaining_time_in_millis(self) -> int: ...


def stream_handler(relay: HandledRelay, *, on_pass: OnPass | None = None) -> Handler:
    """A Lambda function for the stream of the relay's DynamoDB table, and for a schedule.

    An event with records makes a pass over the items of which they tell. Its answer is success, whatever the broker and the
    database say: an event that is refused stays in its entity, and must not hold up the shard. Any other event, as a schedule sends
    it, makes a sweep, and what the database raises there is raised. No call to the broker is begun in the last two seconds.

    With an `AsyncRelay`, or an asynchronous function that makes one at the first invocation, all invocations have one event loop.
    """
    make_pass = _blocking(relay) if isinstance(relay, Relay) else _asynchronous(relay)

    def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any]:
        try:
            swept = make_pass(event, _time_left(context))
        except OnewriteError:
            raise
        except Exception as error:
            if "Records" not in event:
                raise
            _log.warning("A doorbell was not followed, and a sweep will find what it told of: %r", error)
        else:
            if swept is not None:
                reported(swept, 0, on_pass)
        return {"batchItemFailures": []}

    return handler


# Makes the pass that an event asks for, within a time, and returns None where it tells of nothing.
MakePass: TypeAlias = Callable[[Mapping[str, Any], timedelta], Swept | None]


def _blocking(relay: Relay) -> MakePass:
    return lambda event, within: _begun(relay, event, within)


def _asynchronous(given: object) -> MakePass:
    if isinstance(given, type) or (not isinstance(given, AsyncRelay) and not callable(given)):
        raise ConfigurationError(
            f"stream_handler({given!r}): give a Relay, an AsyncRelay, or an asynchronous function that makes one."
        )
    made = [given] if isinstance(given, AsyncRelay) else []

    async def make_pass(event: Mapping[str, Any], within: timedelta) -> Swept | None:
        if not made:
            made.append(await cast("Callable[[], Awaitable[AsyncRelay]]", given)())
        begun = _begun(made[0], event, within)
        return None if begun is None else await begun

    return lambda event, within: runner_of_this_thread().run(make_pass(event, within))


def _begun(relay: Relay | AsyncRelay, event: Mapping[str, Any], within: timedelta) -> Any:
    """The pass, which is to be awaited if the relay is asynchronous."""
    if "Records" not in event:
        return relay.sweep(within=within)
    keys = rung_keys(event["Records"])
    return relay.ring(keys, within=within) if keys else None


def _time_left(context: Any) -> timedelta:
    remaining = getattr(context, "get_remaining_time_in_millis", None)
    return _NO_END if remaining is None else timedelta(milliseconds=remaining()) - _MARGIN


def rung_keys(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The keys of the items that may have something pending, each once. They are typed, as a stream has them.

    An image without events rules that out: whatever is emitted after it has a record of its own.
    """
    keys: dict[str, dict[str, Any]] = {}
    for record in records:
        if (source := record.get("eventSource", "aws:dynamodb")) != "aws:dynamodb":
            raise ConfigurationError(
                f"stream_handler got an event of {source}: map the function to the stream of the relay's table. A queue is consumed by @sqs_handler."
            )
        change = cast("Mapping[str, Any]", record.get("dynamodb") or {})
        image = change.get("NewImage")
        if record.get("eventName") != "REMOVE" and (image is None or OUTBOX.events in image) and change.get("Keys"):
            keys[repr(sorted(change["Keys"].items()))] = change["Keys"]
    return [*keys.values()]
