"""The tap on a pymongo or mongomock collection, blocking or asynchronous.

Collections, databases and cursors are tapped by proxies. A cursor is one request, which is sent at its first iteration and brings
all documents. An `aggregate` is sent where it is called, as pymongo does it. Where the gate knows what transactions do, a session
is tapped too: see `sessions`. What any other session or the client sends passes no gate.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.errors import needed_by
from onewrite.testing.seams import PYMONGO, check
from onewrite.testing.signatures import bound, signature_of
from onewrite.testing.taps.mongodb.client import TappedClient
from onewrite.testing.taps.mongodb.cursors import AsyncCursor, Chained, Cursor
from onewrite.testing.taps.mongodb.methods import (
    CURSORS,
    DATABASE_READS,
    DATABASE_REFUSED,
    DATABASE_REQUESTS,
    DATABASE_SILENT,
    READS,
    REFUSED,
    SILENT,
    WRITES,
    is_about_server,
    request_of,
)
from onewrite.testing.taps.mongodb.sessions import without_session
from onewrite.testing.taps.traffic import Gate, Request

Options: TypeAlias = Mapping[str, Any]


def send(collection: Any, request: Request, *, awaited: bool) -> Any:
    """Send a request. Where pymongo returns a cursor, this returns a list."""
    target = _target(collection, request)
    method: Any = getattr(target, request.method)
    if request.method == "bulk_write" and type(target).__module__.startswith("mongomock."):
        from onewrite.testing.standins.bulk import bulk_write  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

        method = partial(bulk_write, target)
    args, kwargs = _call(request)
    answer = method(*args, **kwargs)
    for option, args, kwargs in request.arguments.get("then", ()):
        answer = getattr(answer, option)(*args, **kwargs)
    if request.method not in CURSORS:
        return answer
    return _documents(answer) if awaited else list(answer)


async def _documents(cursor: Any) -> list[Any]:
    found = await cursor if inspect.isawaitable(cursor) else cursor
    return [document async for document in found] if hasattr(found, "__aiter__") else list(found)


def _target(collection: Any, request: Request) -> Any:
    if request.method in DATABASE_REQUESTS:
        return collection.database
    target = named(collection, request.tables[0])
    return target.with_options(**request.options) if request.options else target


def named(collection: Any, name: str) -> Any:
    """The collection of this name in the same database."""
    if name == collection.name:
        return collection
    inner = name.removeprefix(f"{collection.name}.")
    return collection[inner] if inner != name else collection.database[name]


def options_beside(collection: Any, other: Any) -> Options:
    """The options of a collection or database that differ from those of the other one."""
    given = {name: getattr(collection, name) for name in signature_of("with_options").names}
    return {name: value for name, value in given.items() if value != getattr(other, name)}


def _call(request: Request) -> tuple[list[Any], dict[str, Any]]:
    """The arguments to call the method with. The options that were set on a cursor are not among them."""
    given = {name: value for name, value in request.arguments.items() if name != "then"}
    # mongomock has other names for some of the arguments that must be given, so these are given by position.
    return [given.pop(name) for name in signature_of(request.method).required], given


def tapped(collection: Any, gate: Gate, name: str | None, *, awaited: bool, with_sessions: bool = False) -> Any:
    with needed_by("A tap on a collection", "mongodb"):
        check(PYMONGO)
    kind = cast("type[Any]", type(collection))
    tap = (_AsyncTap if awaited else _Tap)(gate, name or collection.name, kind, with_sessions=with_sessions)
    return _Collection(collection, tap, {})


def tap_for(gate: Gate, store: str, kind: type, *, awaited: bool) -> _Tap:
    """A tap on collections that the world did not make."""
    return (_AsyncTap if awaited else _Tap)(gate, store, kind, with_sessions=False)


class _Tap:
    """What the proxies of one tapped collection share."""

    awaited = False

    def __init__(self, gate: Gate, store: str, kind: type, *, with_sessions: bool) -> None:
        self._gate = gate
        self._store = store
        self._kind = kind
        self._with_sessions = with_sessions

    def wrap(self, value: Any, options: Options) -> Any:
        """The proxy of a collection. Any other value is returned as it is."""
        return _Collection(value, self, options) if type(value) is self._kind else value

    def proxy(self, raw: Any, options: Options) -> Any:
        """The proxy of a collection or of a database."""
        return (
            _Collection(raw, self, options) if hasattr(cast("type[Any]", type(raw)), "update_one") else _Database(raw, self)
        )

    def attribute(self, raw: Any, name: str, silent: frozenset[str], refused: Mapping[str, str]) -> Any:
        """An attribute that sends nothing: a property as it is, and another collection as a proxy."""
        value = None if name in refused else getattr(raw, name)
        if type(value) is self._kind:
            return self.wrap(value, {})
        if name in silent or name.startswith("_"):
            return value
        why = refused.get(name, "a tap does not know it, and would not see what it sends")
        raise ConfigurationError(f"{name} cannot be tapped: {why}. Leave it out of what is tested.")

    def client_of(self, database: Any) -> Any:
        """The client of a tapped database: itself, or a proxy if its sessions are tapped."""
        if not self._with_sessions:
            return database.client
        return TappedClient(database, _Database(database, self), self._gate, self._store, awaited=self.awaited)

    def call(self, collection: Any, options: Options, method: str, *args: Any, **kwargs: Any) -> Any:
        arguments, session = without_session(bound(method, args, kwargs))
        request = request_of(self._store, collection.name, method, arguments, options)
        answer = self._send(session, request)
        return Cursor(lambda _: answer) if method in CURSORS else answer

    def find(self, collection: Any, options: Options, *args: Any, **kwargs: Any) -> Any:
        arguments, session = without_session(bound("find", args, kwargs))

        def fetch(then: Chained) -> Any:
            given = {**arguments, "then": then} if then else arguments
            return self._send(session, request_of(self._store, collection.name, "find", given, options))

        return self._cursor(fetch)

    def _send(self, session: Any, request: Request) -> Any:
        return self._gate(request) if session is None else session.perform(self._gate, request)

    def _cursor(self, fetch: Callable[[Chained], Any]) -> Any:
        return Cursor(fetch)


def leave_independent(indexes: Mapping[str, Any]) -> bool:
    """Can documents with different `_id` never conflict in these indexes?"""
    return all(map(_leaves_independent, indexes.values()))


def _leaves_independent(index: Mapping[str, Any]) -> bool:
    """Can documents with different `_id` never conflict in this index? Under a collation, different ids may be equal."""
    if "collation" in index:
        return False
    return not index.get("unique") or [name for name, _ in index["key"]] == ["_id"]


class _AsyncTap(_Tap):
    awaited = True

    async def call(self, collection: Any, options: Options, method: str, *args: Any, **kwargs: Any) -> Any:
        arguments, session = without_session(bound(method, args, kwargs))
        request = request_of(self._store, collection.name, method, arguments, options)
        answer = await self._send(session, request)
        return AsyncCursor(_ready(answer)) if method in CURSORS else answer

    def _cursor(self, fetch: Callable[[Chained], Any]) -> Any:
        return AsyncCursor(fetch)


def _ready(answer: Any) -> Callable[[Chained], Any]:
    async def fetch(_: Chained) -> Any:
        return answer

    return fetch


class _Collection:
    """A proxy that `isinstance`, too, takes for the collection."""

    def __init__(self, raw: Any, tap: _Tap, options: Options) -> None:
        self._raw = raw
        self._tap = tap
        self._options = options

    @property  # type: ignore[misc]  # `isinstance` reads this; unittest.mock does the same
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # the same
        return cast("Any", type(self._raw))

    def __getattr__(self, name: str) -> Any:
        if name == "find":
            return partial(self._tap.find, self._raw, self._options)
        if name in READS or name in WRITES:
            return partial(self._tap.call, self._raw, self._options, name)
        if name == "database":
            return _Database(self._raw.database, self._tap)
        return self._tap.attribute(self._raw, name, SILENT, REFUSED)

    def __getitem__(self, name: str) -> Any:
        return self._tap.wrap(self._raw[name], self._options)

    def with_options(self, *args: Any, **kwargs: Any) -> Any:
        options = {**self._options, **bound("with_options", args, kwargs)}
        return self._tap.wrap(self._raw.with_options(*args, **kwargs), options)

    def __eq__(self, other: object) -> bool:
        return bool(self._raw == (other._raw if type(other) is _Collection else other))

    def __hash__(self) -> int:
        return hash(self._raw)

    def __bool__(self) -> bool:
        return bool(self._raw)

    def __repr__(self) -> str:
        return repr(self._raw)


class _Database:
    """A proxy of the database. Its collections are behind the same gate."""

    def __init__(self, raw: Any, tap: _Tap) -> None:
        self._raw = raw
        self._tap = tap

    @property  # type: ignore[misc]  # `isinstance` reads this; unittest.mock does the same
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # the same
        return cast("Any", type(self._raw))

    def __getattr__(self, name: str) -> Any:
        if name == "client":
            return self._tap.client_of(self._raw)
        if name == "command":
            return self._command
        if name in DATABASE_READS:
            return partial(self._tap.call, self._raw, {}, name)
        return self._tap.attribute(self._raw, name, DATABASE_SILENT, DATABASE_REFUSED)

    def _command(self, *args: Any, **kwargs: Any) -> Any:
        if not is_about_server(bound("command", args, kwargs)["command"]):
            return self._tap.attribute(self._raw, "command", DATABASE_SILENT, DATABASE_REFUSED)
        return self._tap.call(self._raw, {}, "command", *args, **kwargs)

    def __getitem__(self, name: str) -> Any:
        return self._tap.wrap(self._raw[name], {})

    def with_options(self, *args: Any, **kwargs: Any) -> Any:
        return _Database(self._raw.with_options(*args, **kwargs), self._tap)

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> Any:
        options = bound("with_options", args, kwargs)
        return self._tap.wrap(self._raw.get_collection(name, *args, **kwargs), options)

    def __repr__(self) -> str:
        return repr(self._raw)
