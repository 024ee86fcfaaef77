"""Following a MongoDB change stream, without a client. A change only rings the doorbell; the relay reads the entity.

The position in the stream is a token that the caller stores. If the server's log no longer reaches back to the token, the relay opens
the stream from now on, and a sweep finds the missed events.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from datetime import timedelta
from inspect import iscoroutinefunction
from logging import WARNING
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from onewrite.core.extras import name_extra
from onewrite.core.flow import Do, Flow
from onewrite.core.label import OUTBOX
from onewrite.core.log import log
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.outbox.passes import FOR_EVER, Passes, SweepReport

# ChangeStreamHistoryLost, ChangeStreamFatalError, and InvalidResumeToken: the server can't resume from the token.
_LOST_CODES = frozenset({286, 280, 260})
# TypeMismatch and similar codes: the value isn't a token. Nothing else can cause them, because the rest of the request never changes.
_UNREADABLE_CODES = frozenset({9, 14, 15, 40647, 40648, 40649})
_CHANGES_PER_SAVE = 100  # changes after which the token is saved in a busy stream. After a crash, later changes ring twice.

Token: TypeAlias = Mapping[str, Any]


class Tokens(Protocol):
    """Stores the position in a change stream."""

    def load(self) -> Token | None:
        """Return the token that was saved last."""

    def save(self, token: Token | None) -> None:
        """Save the token, or remove the saved token if it is None."""


class TokenFile:
    """Stores the position in a change stream in a file. Each relay needs its own file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def load(self) -> Token | None:
        """Return the token that was saved last, or None if the file can't be read."""
        extended_json, unreadable = _extended_json()
        try:
            token: object = extended_json.loads(self._path.read_text())
        except (OSError, ValueError, TypeError, unreadable):
            return None
        return cast("Token", token) if isinstance(token, dict) and "_data" in token else None

    def save(self, token: Token | None) -> None:
        """Save the token, or remove the file if it is None."""
        if token is None:
            self._path.unlink(missing_ok=True)
            return
        draft = self._path.with_name(f"{self._path.name}.new")
        draft.write_text(_extended_json()[0].dumps(token))  # some tokens contain bytes, which plain JSON can't encode
        draft.replace(self._path)


def _extended_json() -> tuple[Any, type[Exception]]:
    """Return bson's module for extended JSON, and the base class of its errors. Importing this module doesn't need bson."""
    with name_extra("mongodb", "TokenFile"):
        from bson import json_util
        from bson.errors import BSONError
    return json_util, BSONError


def check_seconds(name: str, value: object) -> None:
    """Raise unless the value is a valid time between two passes."""
    if not isinstance(value, int | float) or not value >= 0:
        raise ConfigurationError(f"{name}={value!r}: expected a number of seconds, 0 or more.")


class _EndedError(Exception):
    """The server has ended the stream, because the collection was dropped or renamed."""

    code = 260


class FollowedPasses(Passes):
    """The passes of a relay that follows a change stream."""

    _last_sweep = -inf  # the time of the last sweep, which also counts for the next stream

    def _check_following(self, tokens: object, sweep_every: object) -> None:
        """Raise if the arguments would make every attempt fail."""
        if not callable(getattr(getattr(self._boxes, "watched", None), "watch", None)):
            raise ConfigurationError(
                "follow() needs a relay of a collection, got one of a table. Use stream_handler(relay) in Lambda, or relay.run()."
            )
        check_seconds("sweep_every", sweep_every)
        for name in ("load", "save"):
            method = getattr(tokens, name, None)
            if not callable(method) or iscoroutinefunction(method):
                raise ConfigurationError(
                    f"follow({tokens!r}): expected an object whose {name}() is a plain function, because it isn't awaited. Pass "
                    "TokenFile('relay.token'), or your own Tokens."
                )

    def _follow(self, tokens: Tokens, sweep_every: float, on_report: Callable[[SweepReport], object]) -> Flow[None]:
        """Open the stream, and follow it until the relay is stopped or the server can't resume it. Any other failure is raised."""
        token = tokens.load()
        stream: Any = None
        is_open = False  # whether the server has accepted the token
        failure: Exception | None = None
        try:
            watch = cast("Any", self._boxes).watched.watch
            stream = yield Do(watch, (_build_pipeline(),), {"resume_after": token}, sends=True)
            change = yield Do(stream.try_next)  # Motor opens the stream only now
            is_open = True
            # The stream must be open before the first sweep, so that no change falls between the two.
            yield from self._listen(stream, change, tokens, sweep_every, on_report)
        except Exception as error:
            failure = error
        # Not in a `finally`: a flow that is abandoned, for example by a cancellation, can't yield another step.
        if stream is not None:
            yield Do(stream.close)
        if failure is None:
            return
        code = getattr(failure, "code", None)
        can_reopen = is_open or token is not None  # otherwise, the server would refuse the same request again at once
        if can_reopen and (code in _LOST_CODES or (code in _UNREADABLE_CODES and not is_open)):
            text = "Relay: the change stream can't resume from the saved token. Reopening it from now on; a sweep will publish missed events: %s"
            log(WARNING, text, failure)
            tokens.save(None)
            self._last_sweep = -inf
            return
        if not is_open and not isinstance(failure, OnewriteError):
            yield from self._sweep_without_stream(on_report)
        raise failure

    def _listen(
        self, stream: Any, change: Any, tokens: Tokens, sweep_every: float, on_report: Callable[[SweepReport], object]
    ) -> Flow[None]:
        """Publish the events of each changed document, save the position, and sweep when due, until the relay is stopped.

        `change` is the first change of the stream, or None if there was none yet.
        """
        for count in itertools.count(1):
            if self._clock() - self._last_sweep >= sweep_every:
                yield from self._sweep_now(on_report)
            if change is None:
                change = yield Do(stream.try_next)
            if change is not None:
                # Pass the _id as the relay's own client decoded it. Your client might decode it to a different type, or not at all.
                on_report((yield from self._ring([{"_id": change["documentKey"]["_id"]}], FOR_EVER)))
            elif not stream.alive:
                raise _EndedError("The server ended the change stream, because its collection was dropped or renamed.")
            if change is None or count % _CHANGES_PER_SAVE == 0 or self._is_stopped:
                tokens.save(stream.resume_token)
            if self._is_stopped:
                return
            change = None

    def _sweep_without_stream(self, on_report: Callable[[SweepReport], object]) -> Flow[None]:
        """Sweep because the stream can't be opened, and only a sweep then finds events. Log a failure: the caller raises the stream's."""
        try:
            yield from self._sweep_now(on_report)
        except OnewriteError:  # misuse, which no retry can cure
            raise
        except Exception as error:
            log(WARNING, "Relay: the sweep in place of the change stream failed too. Retrying both: %r", error)

    def _sweep_now(self, on_report: Callable[[SweepReport], object]) -> Flow[None]:
        """Sweep all due events, and report the pass."""
        now = self._clock()
        on_report((yield from self._sweep(timedelta())))
        self._last_sweep = now  # only after success, so that a failed sweep is repeated with the next stream


def _build_pipeline() -> list[dict[str, Any]]:
    """Return the pipeline stages that select the changes that can have added an event."""
    # A regex fails on a name that isn't UTF-8.
    names_events = {"$eq": [{"$first": {"$split": ["$$field.k", "."]}}, OUTBOX.events]}
    no_fields: dict[str, Any] = {}
    fields = {"$objectToArray": {"$ifNull": ["$updateDescription.updatedFields", no_fields]}}
    update_adds_events = {"$anyElementTrue": [{"$map": {"input": fields, "as": "field", "in": names_events}}]}
    inserts = {"operationType": {"$in": ["insert", "replace"]}}
    return [
        {"$match": {"$or": [inserts, {"operationType": "update", "$expr": update_adds_events}]}},
        {"$project": {"documentKey": 1}},
    ]
