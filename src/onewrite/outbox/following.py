"""The steps of following a MongoDB change stream, without a client. A change is only a doorbell; the entity is read.

The stream's place is a token that is kept outside. If the server's log no longer reaches back to it, the stream is
opened from now on, and a sweep finds the events that it has missed.
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

# ChangeStreamHistoryLost, ChangeStreamFatalError, and InvalidResumeToken: the token no longer leads to a place.
_LOST_CODES = frozenset({286, 280, 260})
# TypeMismatch and similar codes, by which the server refuses a value that isn't a token. Everything else in that request is always the same.
_UNREADABLE_CODES = frozenset({9, 14, 15, 40647, 40648, 40649})
_KEPT_EVERY = 100  # changes, after which the token is kept although the stream is not quiet: later changes ring twice

Token: TypeAlias = Mapping[str, Any]


class Tokens(Protocol):
    """Keeps the place in a change stream."""

    def load(self) -> Token | None:
        """Return the token that was saved last."""
        ...

    def save(self, token: Token | None) -> None:
        """Keep the token; None forgets the one that is there."""
        ...


class TokenFile:
    """Keeps the place in a change stream in a file. Each relay needs its own file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def load(self) -> Token | None:
        """Return the token that was kept last, if it can be read."""
        extended_json, unreadable = _extended_json()
        try:
            token: object = extended_json.loads(self._path.read_text())
        except (OSError, ValueError, TypeError, unreadable):
            return None
        return cast("Token", token) if isinstance(token, dict) and "_data" in token else None

    def save(self, token: Token | None) -> None:
        """Keep the token; None forgets the one that is there."""
        if token is None:
            self._path.unlink(missing_ok=True)
            return
        draft = self._path.with_name(f"{self._path.name}.new")
        draft.write_text(_extended_json()[0].dumps(token))  # a token of some documents has bytes in it
        draft.replace(self._path)


def _extended_json() -> tuple[Any, type[Exception]]:
    with name_extra("mongodb", "TokenFile"):
        from bson import json_util
        from bson.errors import BSONError
    return json_util, BSONError


def check_seconds(name: str, value: object) -> None:
    """Raise unless this can be the time between two passes."""
    if not isinstance(value, int | float) or not value >= 0:
        raise ConfigurationError(f"{name}={value!r}: must be a number of seconds, not below zero.")


class _EndedError(Exception):
    """The server has ended the stream, as it does if the collection is dropped or renamed."""

    code = 260


class FollowedPasses(Passes):
    """The passes that a change stream calls for."""

    _last_sweep = -inf  # its time, also of a stream that was open before

    def _check_following(self, tokens: object, sweep_every: object) -> None:
        """Raise an error for arguments with which every attempt would fail."""
        if not callable(getattr(getattr(self._boxes, "watched", None), "watch", None)):
            raise ConfigurationError(
                "follow is for a collection. For a table use stream_handler(relay) in Lambda, or relay.run()."
            )
        check_seconds("sweep_every", sweep_every)
        for name in ("load", "save"):
            method = getattr(tokens, name, None)
            if not callable(method) or iscoroutinefunction(method):
                raise ConfigurationError(
                    f"follow({tokens!r}): pass an object that keeps the place in the stream, such as TokenFile('relay.token'). Its {name} must be "
                    "a plain function, because it isn't awaited."
                )

    def _follow(self, tokens: Tokens, sweep_every: float, report: Callable[[SweepReport], object]) -> Flow[None]:
        """Open the stream and follow it until the relay is stopped, or the place in it is lost."""
        token, stream, is_open = tokens.load(), cast("Any", None), False
        failure: Exception | None = None
        try:
            stream = yield Do(
                cast("Any", self._boxes).watched.watch, (changes(OUTBOX.events),), {"resume_after": token}, sends=True
            )
            change = yield Do(stream.try_next)  # Motor opens it no earlier
            is_open = True
            # No change is lost between the stream and the sweep.
            yield from self._listen(stream, change, tokens, sweep_every, report)
        except Exception as error:
            failure = error
        if stream is not None:
            yield Do(stream.close)
        if failure is None:
            return
        code = getattr(failure, "code", None)
        if code in _LOST_CODES or (code in _UNREADABLE_CODES and token is not None and not is_open):
            text = "The change stream cannot go on where the relay was, and a sweep finds what it missed: %s"
            log(WARNING, text, failure)
            tokens.save(None)
            self._last_sweep = -inf
            return
        if not is_open and not isinstance(failure, OnewriteError):
            try:
                yield from self._sweep_now(report)  # events that no stream reports must go out all the same
            except OnewriteError:
                raise
            except Exception as error:
                log(WARNING, "The sweep in place of a change stream has failed too: %r", error)
        raise failure

    def _listen(
        self, stream: Any, change: Any, tokens: Tokens, sweep_every: float, report: Callable[[SweepReport], object]
    ) -> Flow[None]:
        for count in itertools.count(1):
            if self._clock() - self._last_sweep >= sweep_every:
                yield from self._sweep_now(report)
            if change is None:
                change = yield Do(stream.try_next)
            if change is not None:
                # As the relay itself reads it: the caller's client may have no type for this _id, or another one.
                report((yield from self._ring([{"_id": change["documentKey"]["_id"]}], FOR_EVER)))
            elif not stream.alive:
                raise _EndedError("It was ended by the server, because its collection was dropped or renamed.")
            if change is None or count % _KEPT_EVERY == 0 or self._is_stopped:
                tokens.save(stream.resume_token)
            if self._is_stopped:
                return
            change = None

    def _sweep_now(self, report: Callable[[SweepReport], object]) -> Flow[None]:
        now = self._clock()
        report((yield from self._sweep(timedelta())))
        self._last_sweep = now  # a sweep that failed is made again with the next stream


def changes(events: str) -> list[dict[str, Any]]:
    """Return the stages that select the changes that may have added an event."""
    is_of_outbox = {"$eq": [{"$first": {"$split": ["$$field.k", "."]}}, events]}  # a regex fails at a name that isn't UTF-8
    no_fields: dict[str, Any] = {}
    fields = {"$objectToArray": {"$ifNull": ["$updateDescription.updatedFields", no_fields]}}
    is_update = {"$anyElementTrue": [{"$map": {"input": fields, "as": "field", "in": is_of_outbox}}]}
    inserts = {"operationType": {"$in": ["insert", "replace"]}}
    return [
        {"$match": {"$or": [inserts, {"operationType": "update", "$expr": is_update}]}},
        {"$project": {"documentKey": 1}},
    ]
