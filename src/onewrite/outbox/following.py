"""Following a MongoDB change stream: the steps, without a client. What has changed is only a doorbell; the entity is read.

The stream's place is a token that is kept outside. Where the server's log does not reach back to it any more, the stream is
opened anew, and a sweep finds what it has missed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from logging import WARNING
from math import inf
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

from onewrite.core.extras import installed_by
from onewrite.core.flow import Do, FlowStep
from onewrite.core.label import OUTBOX
from onewrite.core.log import log
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.outbox.passes import Passes, Publish, StoredOutboxes, SweepReport

# ChangeStreamHistoryLost, ChangeStreamFatalError, and InvalidResumeToken: the token leads nowhere any more.
_LOST_CODES = frozenset({286, 280, 260})
# TypeMismatch and similar codes: what the server answers where the token is none. All else in that request is always the same.
_UNREADABLE_CODES = frozenset({9, 14, 15, 40647, 40648, 40649})
_KEPT_EVERY = 100  # changes, after which the token is kept although the stream is not quiet: what comes after it rings twice

Token: TypeAlias = Mapping[str, Any]


class Tokens(Protocol):
    """Keeps the place in a change stream."""

    def load(self) -> Token | None:
        """The token that was saved last."""
        ...

    def save(self, token: Token | None) -> None:
        """Keep the token; None forgets the one that is there."""
        ...


class TokenFile:
    """Keeps the place in a change stream in a file. Each relay needs its own file."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)

    def load(self) -> Token | None:
        """The token that was kept last, if there is one that can be read."""
        with installed_by("mongodb", "TokenFile"):
            from bson import json_util  # noqa: PLC0415  # relays of tables do without it
            from bson.errors import BSONError  # noqa: PLC0415
        try:
            token: object = json_util.loads(self._path.read_text())
        except (OSError, ValueError, TypeError, BSONError):
            return None
        return cast("Token", token) if isinstance(token, dict) and "_data" in token else None

    def save(self, token: Token | None) -> None:
        """Keep the token; None forgets the one that is there."""
        if token is None:
            self._path.unlink(missing_ok=True)
            return
        with installed_by("mongodb", "TokenFile"):
            from bson import json_util  # noqa: PLC0415  # relays of tables do without it
        draft = self._path.with_name(f"{self._path.name}.new")
        draft.write_text(json_util.dumps(token))  # extended JSON: a token of some documents has bytes in it
        draft.replace(self._path)


@dataclass(frozen=True, slots=True)
class Take:
    """Call a method of an open change stream."""

    stream: Any
    method: str


Following: TypeAlias = Generator[FlowStep | Publish | Take, Any, None]


def check_seconds(name: str, value: object) -> None:
    """Raise unless this can be the time between two passes."""
    if not isinstance(value, int | float) or not 0 <= value < inf:
        raise ConfigurationError(f"{name}={value!r}: it is a number of seconds, and not below zero.")


class _EndedError(Exception):
    """The server has ended the stream, as it does where its collection is dropped or renamed."""

    code = 260


@dataclass(slots=True)
class Follower:
    """The steps of one relay that follows a stream. `last_sweep` is its time, also of a stream that was open before."""

    passes: Passes
    boxes: StoredOutboxes
    tokens: Tokens
    sweep_every: float
    clock: Callable[[], float]
    stopping: Callable[[], bool]
    report: Callable[[SweepReport], object]
    last_sweep: float = -inf

    def __post_init__(self) -> None:
        if not callable(getattr(self.watched, "watch", None)):
            raise ConfigurationError(
                "follow is for a collection. For a table use stream_handler(relay) in Lambda, or relay.run()."
            )
        if self.sweep_every != inf:
            check_seconds("sweep_every", self.sweep_every)
        for name in ("load", "save"):  # what fails in there later would be tried again forever
            method = getattr(self.tokens, name, None)
            if not callable(method) or iscoroutinefunction(method):
                raise ConfigurationError(
                    f"follow({self.tokens!r}): give what keeps the place in the stream, such as TokenFile('relay.token'): its {name} is a plain "
                    "function, which nobody awaits."
                )

    @property
    def watched(self) -> Any:
        """The collection whose stream it is. A table has none."""
        return getattr(self.boxes, "watched", None)

    def follow(self) -> Following:
        """Open the stream and follow it until the relay is stopped, or the place in it is lost."""
        token, stream = self.tokens.load(), cast("Any", None)
        try:
            stream = yield Do(self.watched.watch, (changes(OUTBOX.events),), {"resume_after": token}, sends=True)
            change = yield Take(stream, "try_next")  # Motor opens it no earlier
        except OnewriteError:
            raise
        except Exception as error:
            if stream is not None:
                yield Take(stream, "close")
            yield from self._after_refusal(error, token)
            return
        try:
            # The stream is open by now, so nothing falls between it and the sweep.
            yield from self._listen(stream, change)
        except Exception as error:
            yield Take(stream, "close")
            self._forget(error)
        else:
            yield Take(stream, "close")

    def _after_refusal(self, error: Exception, token: Token | None) -> Following:
        if token is not None and getattr(error, "code", None) in _UNREADABLE_CODES:
            log(WARNING, "What was kept is no place in the change stream, and a sweep finds what was missed: %s", error)
            self._begin_anew()
            return
        if getattr(error, "code", None) not in _LOST_CODES:
            try:
                yield from self._sweep()  # what no stream tells of must go out all the same
            except Exception as sweep_error:
                if isinstance(sweep_error, OnewriteError):
                    raise
                log(WARNING, "The sweep in place of a change stream has failed too: %r", sweep_error)
        self._forget(error)

    def _listen(self, stream: Any, change: Any) -> Following:
        count = 0
        while not self.stopping():
            if self.clock() - self.last_sweep >= self.sweep_every:
                yield from self._sweep()
            if change is None:
                change = yield Take(stream, "try_next")
            if change is not None:
                count += 1
                # As the relay itself reads it: the caller's client may have no type for this _id, or another one.
                self.report((yield from self.passes.ring([{"_id": change["documentKey"]["_id"]}])))
            elif not stream.alive:
                raise _EndedError("It was ended by the server, because its collection was dropped or renamed.")
            if change is None or count % _KEPT_EVERY == 0:
                self.tokens.save(stream.resume_token)
            change = None
        if change is None:  # otherwise the place is behind one that nobody has told
            self.tokens.save(stream.resume_token)

    def _sweep(self) -> Following:
        now = self.clock()
        self.report((yield from self.passes.sweep(0.0)))
        self.last_sweep = now  # one that the database has failed is none, and is made again with the next stream

    def _forget(self, error: Exception) -> None:
        """Begin anew where the place is lost, and raise everything else."""
        if getattr(error, "code", None) not in _LOST_CODES:
            raise error
        log(
            WARNING,
            "The change stream does not reach back to where the relay was, and a sweep finds what it missed: %s",
            error,
        )
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.tokens.save(None)
        self.last_sweep = -inf


def changes(events: str) -> list[dict[str, Any]]:
    """The stages that let those changes through that may have added an event."""
    is_of_outbox = {"$regexMatch": {"input": "$$field.k", "regex": rf"^{re.escape(events)}(\.|$)"}}
    no_fields: dict[str, Any] = {}
    fields = {"$objectToArray": {"$ifNull": ["$updateDescription.updatedFields", no_fields]}}
    is_update = {"$anyElementTrue": [{"$map": {"input": fields, "as": "field", "in": is_of_outbox}}]}
    inserts = {"operationType": {"$in": ["insert", "replace"]}}
    return [
        {"$match": {"$or": [inserts, {"operationType": "update", "$expr": is_update}]}},
        {"$project": {"documentKey": 1}},
    ]
