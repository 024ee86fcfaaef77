"""The tap on a pymongo or mongomock collection, blocking or asynchronous.

Proxies tap collections, databases, and cursors. A cursor is one request, which is sent at its first iteration and returns all
documents. An `aggregate` is sent when it's called, as in pymongo. If the gate understands transactions, sessions are tapped too.
Requests of the client and of other sessions don't go through the gate.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from itertools import islice
from typing import Any, Literal, NoReturn, Self, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.errors import needed_by
from onewrite.testing.taps.mongodb_methods import (
    CURSORS,
    DATABASE_READS,
    DATABASE_REQUESTS,
    DATABASE_SILENT,
    READS,
    SILENT,
    WRITES,
    bind,
    find_signature,
    is_about_server,
    list_required_names,
    make_request,
    split_runs,
)
from onewrite.testing.taps.traffic import (
    ABORT,
    COMMIT,
    Gate,
    Key,
    Request,
    StoreCalls,
    TransactionKey,
    amake_calls,
    make_calls,
    transaction_names,
)


def is_pymongo_client(client: object) -> bool:
    """Whether a client is pymongo's or of a subclass. A stand-in's object has an attribute of any name, so this asks its class."""
    return hasattr(type(client), "topology_description")


# --- proxies ----------------------------------------------------------------------------------------------------------


class _Proxy:
    """An object that equals the object that it wraps, and has its class for `isinstance`."""

    def __init__(self, raw: Any, tap: _Tap) -> None:
        self._raw = raw
        self._tap = tap

    @property  # type: ignore[misc]  # `isinstance` reads this; unittest.mock does the same
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # `object` has an attribute here
        return cast("Any", type(self._raw))

    def __eq__(self, other: object) -> bool:
        """Compare the wrapped objects, because each access to a client or a database creates a new proxy."""
        is_proxy = issubclass(cast("type[Any]", type(other)), _Proxy)
        return bool(self._raw == (cast("Any", other)._raw if is_proxy else other))

    def __hash__(self) -> int:
        return hash(self._raw)

    def __bool__(self) -> bool:
        return bool(self._raw)

    def __repr__(self) -> str:
        return repr(self._raw)

    def __getitem__(self, name: str) -> Any:
        return _Collection(self._raw[name], self._tap)

    def with_options(self, *args: Any, **kwargs: Any) -> Any:
        return type(self)(self._raw.with_options(*args, **kwargs), self._tap)


# --- clients ----------------------------------------------------------------------------------------------------------
#
# The client of a tapped collection: a proxy that starts sessions and returns the tapped database.

# `topology_description` describes the servers that pymongo has found. Reading it sends nothing.
_SILENT = frozenset({"codec_options", "options", "read_concern", "read_preference", "topology_description", "write_concern"})


class _Client(_Proxy):
    """The client of a tapped database."""

    def __init__(self, raw: Any, tap: _Tap, database: _Database) -> None:
        super().__init__(raw, tap)
        self._database = database

    def start_session(self, *args: Any, **kwargs: Any) -> Session:
        return start_session(self, self._tap.gate, self._tap.store, *args, awaited=self._tap.awaited, **kwargs)

    def append_metadata(self, driver: object) -> None:
        """Ignore the name that a mapper adds for the server's log."""

    def __getitem__(self, name: str) -> Any:
        if name != self._database.name:
            raise ConfigurationError(
                f"A tapped collection of the database {self._database.name!r} can't reach the database {name!r}, because its requests "
                "wouldn't be seen. Pass a collection of that database as another store."
            )
        return self._database

    def get_database(self, name: str | None = None, *_: Any, **__: Any) -> Any:
        return self[self._database.name if name is None else name]

    def __getattr__(self, name: str) -> Any:
        if name in _SILENT or name.startswith("_"):
            return getattr(self._raw, name)
        if hasattr(cast("type[Any]", type(self._raw)), name):
            raise ConfigurationError(
                f"MongoClient.{name} can't be tapped, because its requests wouldn't be seen. Use a method of the collection, or call it "
                "outside the tested code."
            )
        return self[name]


# --- cursors ----------------------------------------------------------------------------------------------------------
#
# The cursors that a tapped collection returns. A cursor is one request, which is sent when its first document is requested.

CursorOptions: TypeAlias = tuple[tuple[str, tuple[Any, ...], dict[str, Any]], ...]

_CURSOR_OPTIONS = frozenset({
    "add_option", "allow_disk_use", "batch_size", "collation", "comment", "hint", "limit", "max", "max_await_time_ms",
    "max_time_ms", "min", "remove_option", "skip", "sort", "where",
})  # fmt: skip


class _CursorState:
    """The state of both cursors: options until the first document is requested, and then the rest of the documents."""

    def __init__(self, fetch: Callable[[CursorOptions], Any]) -> None:
        self._fetch = fetch
        self._options: CursorOptions = ()
        self._documents: Iterator[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in _CURSOR_OPTIONS:
            raise AttributeError(f"A tapped cursor doesn't support {name}. Iterate over the cursor, or use to_list().")
        return partial(self._chain, name)

    def _chain(self, name: str, *args: Any, **kwargs: Any) -> Self:
        if self._documents is not None:
            from pymongo.errors import InvalidOperation

            raise InvalidOperation("cannot set options after executing query")
        self._options = (*self._options, (name, args, kwargs))
        return self


class Cursor(_CursorState):
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._documents is None:
            self._documents = iter(self._fetch(self._options))
        return next(self._documents)

    next = __next__

    def __getitem__(self, index: int | slice) -> Any:
        return list(self)[index]

    def to_list(self, length: int | None = None) -> list[Any]:
        return list(islice(self, length))

    def close(self) -> None:
        self._documents = iter(())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncCursor(_CursorState):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        for document in await self._fetch_rest():
            return document
        raise StopAsyncIteration

    next = __anext__

    async def to_list(self, length: int | None = None) -> list[Any]:
        return list(islice(await self._fetch_rest(), length))

    async def _fetch_rest(self) -> Iterator[Any]:
        if self._documents is None:
            answer = self._fetch(self._options)
            self._documents = iter(await answer if inspect.isawaitable(answer) else answer)
        return self._documents

    async def close(self) -> None:
        self._documents = iter(())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


# --- sessions ---------------------------------------------------------------------------------------------------------
#
# MongoDB sessions and transactions, for a gate that understands transactions.
#
# A tapped session behaves like pymongo's, but the server doesn't need to support sessions. It has the same states, and raises the same
# errors. Each operation in a transaction, each commit, and each abort goes through the gate as a request that names its transaction.
# The gate decides what happens to the data.
#
# `with_transaction` retries without a pause and without a time limit, up to `_MAX_ATTEMPTS` times.

Callback: TypeAlias = Callable[[Any], Any]

# Each conflict needs another delivery that commits, so more attempts are rare. An error that occurs each time, for example because
# the callback conflicts with itself, also occurs on a server, until pymongo gives up after two minutes.
_MAX_ATTEMPTS = 5
_BUSY = "SystemOverloadedError"
_UNKNOWN, _TRANSIENT = "UnknownTransactionCommitResult", "TransientTransactionError"


# The states of pymongo's own sessions.
_State: TypeAlias = Literal["none", "starting", "in progress", "committed", "aborted"]


class Session:
    """Looks like pymongo's ClientSession, or like its AsyncClientSession if it is `awaited`."""

    def __init__(self, client: Any, gate: Gate, store: str, *, awaited: bool) -> None:
        self.client = client
        self.has_ended = False
        self._awaited = awaited
        self._gate = gate
        self._store = store
        self._state: _State = "none"
        self._transaction: TransactionKey | None = None
        self._is_lost = False  # the server has returned an error and aborted the transaction
        self._keys: tuple[Key, ...] | None = ()  # keys of the entities that the transaction has written
        self._tables: tuple[str, ...] = ()

    @property
    def in_transaction(self) -> bool:
        return self._state in ("starting", "in progress")

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(
            f"A tapped session doesn't support {name}, because it doesn't exist on a server. Pass the session to each call as session=."
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_session()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end_session()

    # ------------------------------------------------------------ pymongo's methods. An asynchronous session awaits their results

    def perform(self, gate: Gate, request: Request) -> Any:
        """Send an operation that was given this session."""
        return self._make(self._perform(gate, request))

    def start_transaction(self, *_: Any, **__: Any) -> Any:
        return self._make(self._start())

    def commit_transaction(self) -> Any:
        return self._make(self._commit())

    def abort_transaction(self) -> Any:
        return self._make(self._abort())

    def with_transaction(self, callback: Callback, *_: Any, **__: Any) -> Any:
        return self._make(self._with_transaction(callback))

    def end_session(self) -> Any:
        return self._make(self._end())

    def _make(self, calls: StoreCalls[Any]) -> Any:
        return (amake_calls if self._awaited else make_calls)(calls)

    def _join(self, request: Request) -> Request:
        """Return the request as part of the transaction in progress, if there is one."""
        self._check_open()
        if not self.in_transaction:
            self._state = "none"
            return request
        starts = self._state == "starting"
        if starts:
            self._transaction, self._state = next(transaction_names.get()), "in progress"
        if request.writes:
            self._keys = None if self._keys is None or request.keys is None else (*self._keys, *request.keys)
            self._tables = tuple(dict.fromkeys([*self._tables, *request.tables]))
        return replace(request, transaction=self._transaction, starts=starts)

    # ------------------------------------------------------------ the work of pymongo's methods, as generators of calls

    def _perform(self, gate: Gate, request: Request) -> StoreCalls[Any]:
        from pymongo.errors import OperationFailure

        try:
            return (yield partial(gate, self._join(request)))
        except OperationFailure as error:
            # A server's error ends the transaction, unless the server was too busy to process the request.
            self._is_lost = self._is_lost or (self.in_transaction and not error.has_error_label(_BUSY))
            raise

    def _start(self) -> StoreCalls[_TransactionBlock]:
        self._begin()
        yield from ()
        return _TransactionBlock(self)

    def _begin(self) -> None:
        self._check_open()
        if self.in_transaction:
            _refuse_misuse("Transaction already in progress")
        self._state, self._transaction, self._is_lost = "starting", None, False
        self._keys, self._tables = (), ()

    def _commit(self) -> StoreCalls[None]:
        """Commit as pymongo does: a lost connection's or a write timeout's error says that the result is unknown."""
        from pymongo.errors import ConnectionFailure, WTimeoutError

        self._check_open()
        if self._state in ("none", "aborted"):
            _refuse_misuse("No transaction started")
        self._state = "committed"
        if self._transaction is None:  # nothing was sent, so there is nothing to commit
            return
        try:
            yield partial(self._gate, self._end_request(COMMIT))
        except (ConnectionFailure, WTimeoutError) as error:
            failure: Any = error
            failure._remove_error_label(_TRANSIENT)
            failure._add_error_label(_UNKNOWN)
            raise

    def _abort(self) -> StoreCalls[None]:
        """Abort as pymongo does. Send nothing if no request has begun the transaction, or the server has aborted it."""
        from pymongo.errors import ConnectionFailure, OperationFailure

        self._check_open()
        if not self.in_transaction:
            _refuse_misuse("No transaction started")
        was_sent = self._state == "in progress"
        self._state = "aborted"
        if was_sent and not self._is_lost:
            with suppress(OperationFailure, ConnectionFailure):  # pymongo hides these errors too
                yield partial(self._gate, self._end_request(ABORT))

    def _end(self) -> StoreCalls[None]:
        if not self.has_ended:
            if self.in_transaction:
                yield from self._abort()
            self.has_ended = True

    def _with_transaction(self, callback: Callback) -> StoreCalls[Any]:
        """Call the callback and commit. Repeat both after a transient error, as pymongo does."""
        from pymongo.errors import PyMongoError

        attempts = 0
        while True:
            attempts += 1
            self._begin()
            try:
                result = yield partial(callback, self)
                if self.in_transaction:  # otherwise the callback has ended it itself
                    yield from self._commit_until_known()
            except Exception as error:
                if self.in_transaction:
                    yield from self._abort()
                is_transient = isinstance(error, PyMongoError) and error.has_error_label(_TRANSIENT)
                if attempts == _MAX_ATTEMPTS or not is_transient:
                    raise
            else:
                return result

    def _commit_until_known(self) -> StoreCalls[None]:
        """Commit, and repeat the commit while its result is unknown."""
        from pymongo.errors import PyMongoError

        while True:
            try:
                return (yield from self._commit())
            except PyMongoError as error:
                if not error.has_error_label(_UNKNOWN):
                    raise

    def _end_request(self, method: str) -> Request:
        return Request(self._store, method, {}, self._keys, writes=True, tables=self._tables, transaction=self._transaction)

    def _check_open(self) -> None:
        if self.has_ended:
            _refuse_misuse("Cannot use ended session")


class _TransactionBlock:
    """The block of `with session.start_transaction()`. An error aborts the transaction, otherwise the end of the block commits it."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __enter__(self) -> Session:
        return self._session

    def __exit__(self, kind: object, *_: object) -> None:
        if self._session.in_transaction:
            self._end(kind)

    async def __aenter__(self) -> Session:
        return self._session

    async def __aexit__(self, kind: object, *_: object) -> None:
        if self._session.in_transaction:
            await self._end(kind)

    def _end(self, kind: object) -> Any:
        return self._session.commit_transaction() if kind is None else self._session.abort_transaction()


def start_session(
    client: Any, gate: Gate, store: str, *_: Any, awaited: bool, snapshot: bool | None = False, **__: Any
) -> Session:
    """Return the session for `client.start_session()`. Its commits go through the gate under the name `store`."""
    if snapshot:
        raise ConfigurationError(
            "start_session(snapshot=True) can't be tapped, because a tap doesn't know earlier versions of the data. Read in a "
            "transaction instead."
        )
    return Session(client, gate, store, awaited=awaited)


def split_session(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the other arguments of a call, and its session if that's a tapped one."""
    others = dict(arguments)
    if issubclass(type(others.get("session")), Session):
        return others, others.pop("session")
    return others, None


def _refuse_misuse(text: str) -> NoReturn:
    from pymongo.errors import InvalidOperation

    raise InvalidOperation(text)


# --- collections and databases ----------------------------------------------------------------------------------------


def send(collection: Any, request: Request, *, awaited: bool) -> Any:
    """Send a request. If pymongo returns a cursor, return a list of its documents."""
    target = _find_target(collection, request)
    method: Any = _find_method(target, request.method)
    arguments = {name: value for name, value in request.arguments.items() if name != "then"}
    # mongomock has different names for some of the required arguments, so pass these by position.
    answer = method(*[arguments.pop(name) for name in list_required_names(request.method)], **arguments)
    for option, args, kwargs in request.arguments.get("then", ()):
        answer = getattr(answer, option)(*args, **kwargs)
    if request.method not in CURSORS:
        return answer
    return _list_documents(answer) if awaited else list(answer)


def read_from_primary(collection: Any) -> Any:
    """Return the collection with reads from the primary. A server without secondaries would let others wait."""
    from pymongo import ReadPreference

    is_primary = getattr(collection, "read_preference", ReadPreference.PRIMARY) == ReadPreference.PRIMARY
    return collection if is_primary else collection.with_options(read_preference=ReadPreference.PRIMARY)


def _find_method(target: Any, name: str) -> Callable[..., Any]:
    """Return the method. mongomock's own `bulk_write` fails with current pymongo versions, so it is replaced."""
    if name == "bulk_write" and type(target).__module__ == "mongomock.collection":
        from onewrite.testing.standins.collection import perform_bulk_write

        return partial(perform_bulk_write, target)
    return getattr(target, name)  # type: ignore[no-any-return]  # a store is of any type here


async def _list_documents(cursor: Any) -> list[Any]:
    documents = await cursor if inspect.isawaitable(cursor) else cursor
    return [document async for document in documents] if hasattr(documents, "__aiter__") else list(documents)


def _find_target(collection: Any, request: Request) -> Any:
    if request.method in DATABASE_REQUESTS:
        return collection.database
    target = _find_collection(collection, request.tables[0])
    return target.with_options(**request.options) if request.options else target


def _find_collection(collection: Any, name: str) -> Any:
    """Return the collection of this name in the same database."""
    if name == collection.name:
        return collection
    inner = name.removeprefix(f"{collection.name}.")
    return collection[inner] if inner != name else collection.database[name]


def tap(collection: Any, gate: Gate, name: str | None, *, awaited: bool, with_sessions: bool = False) -> Any:
    with needed_by("A tap on a collection", "mongodb"):
        import_module("pymongo")
    store, kind = name or collection.name, cast("type[Any]", type(collection))
    return _Collection(collection, tap_for(collection, gate, store, kind, awaited=awaited, with_sessions=with_sessions))


def tap_for(performer: Any, gate: Gate, store: str, kind: type, *, awaited: bool, with_sessions: bool = False) -> _Tap:
    """Return a tap on collections of this class, whose requests the performer performs."""
    return (_AsyncTap if awaited else _Tap)(performer, gate, store, kind, with_sessions=with_sessions)


class _Tap:
    """The common state of the proxies of one tapped collection."""

    _cursor: type[Cursor | AsyncCursor] = Cursor
    awaited = False

    def __init__(self, performer: Any, gate: Gate, store: str, kind: type, *, with_sessions: bool) -> None:
        self.gate = gate
        self.store = store
        self._performer = performer
        self._kind = kind
        self._with_sessions = with_sessions

    def proxy(self, raw: Any) -> Any:
        """Return the proxy of a collection or of a database."""
        return (_Collection if hasattr(cast("type[Any]", type(raw)), "update_one") else _Database)(raw, self)

    def attribute(self, raw: Any, name: str, silent: frozenset[str]) -> Any:
        """Return an attribute that sends nothing, or a proxy if it's another collection."""
        value = getattr(raw, name)
        if type(value) is self._kind:
            return _Collection(value, self)
        if name in silent or name.startswith("_"):
            return value
        raise ConfigurationError(
            f"{name} can't be tapped, because its requests wouldn't be seen. Use another method of the collection, or call it outside the "
            "tested code."
        )

    def find_client(self, database: Any) -> Any:
        """Return the client of a database, or its proxy if sessions are tapped."""
        return _Client(database.client, self, _Database(database, self)) if self._with_sessions else database.client

    def call(self, collection: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return make_calls(self._calls(collection, method, args, kwargs))

    def _calls(self, collection: Any, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> StoreCalls[Any]:
        arguments, session = split_session(bind(method, args, kwargs))
        runs = split_runs(arguments) if method == "bulk_write" else []
        if len(runs) > 1:
            return (yield from self._bulk(collection, arguments, session, runs))
        answer = yield partial(self._send, session, collection, method, arguments)
        return self._cursor(lambda _: answer) if method in CURSORS else answer  # the answer has all documents already

    def _bulk(
        self, collection: Any, arguments: Mapping[str, Any], session: Any, runs: Sequence[Sequence[int]]
    ) -> StoreCalls[Any]:
        """Send each run of operations separately, and return or raise the same as pymongo after the last run."""
        from pymongo.errors import BulkWriteError
        from pymongo.results import BulkWriteResult

        operations, whole = arguments["requests"], dict[str, Any]()
        for places in runs:
            part = {**arguments, "requests": [operations[place] for place in places]}
            try:
                answer = yield partial(self._send, session, collection, "bulk_write", part)
                result = answer.bulk_api_result
            except BulkWriteError as error:
                result = cast("Mapping[str, Any]", error.details)
            whole = _join_results(whole, result, places)
            if whole["writeErrors"] and arguments.get("ordered", True):
                break
        if whole["writeErrors"] or whole["writeConcernErrors"]:
            raise BulkWriteError(whole)
        return BulkWriteResult(whole, acknowledged=True)

    def find(self, collection: Any, *args: Any, **kwargs: Any) -> Any:
        arguments, session = split_session(bind("find", args, kwargs))

        def fetch(cursor_options: CursorOptions) -> Any:
            request_arguments = {**arguments, "then": cursor_options} if cursor_options else arguments
            return self._send(session, collection, "find", request_arguments)

        return self._cursor(fetch)

    def _send(self, session: Any, collection: Any, method: str, arguments: Mapping[str, Any]) -> Any:
        options = {} if method in DATABASE_REQUESTS else self._find_options(collection)
        request = make_request(self.store, collection.name, method, arguments, options)
        return self.gate(request) if session is None else session.perform(self.gate, request)

    def _find_options(self, collection: Any) -> dict[str, Any]:
        """Return the options in which the collection differs from the performer's collection of the same name."""
        same_name = _find_collection(self._performer, collection.name)
        options = {name: getattr(collection, name) for name in find_signature("with_options").parameters}
        return {name: value for name, value in options.items() if value != getattr(same_name, name)}


def _join_results(whole: Mapping[str, Any], part: Mapping[str, Any], places: Sequence[int]) -> dict[str, Any]:
    """Return the results of a bulk write, including those of its next run: counts are added, and lists are joined.

    `places` are the indexes of the run's operations in the bulk write.
    """

    def join(before: Any, value: Any) -> Any:
        if not isinstance(value, list):
            return value + (before or 0)
        entries = cast("list[dict[str, Any]]", value)
        # Write errors and upserts name their operation by its index in the run. Write concern errors have no index.
        moved_entries: list[dict[str, Any]] = [
            {**entry, "index": places[entry["index"]]} if "index" in entry else entry for entry in entries
        ]
        return [*(before or []), *moved_entries]

    return {**whole, **{name: join(whole.get(name), value) for name, value in part.items()}}


class _AsyncTap(_Tap):
    _cursor = AsyncCursor
    awaited = True

    async def call(self, collection: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        return await amake_calls(self._calls(collection, method, args, kwargs))


class _Collection(_Proxy):
    def __getattr__(self, name: str) -> Any:
        if name == "find":
            return partial(self._tap.find, self._raw)
        if name in READS or name in WRITES:
            return partial(self._tap.call, self._raw, name)
        if name == "database":
            return _Database(self._raw.database, self._tap)
        return self._tap.attribute(self._raw, name, SILENT)


class _Database(_Proxy):
    """A database whose collections send through the same gate."""

    def __getattr__(self, name: str) -> Any:
        if name == "client":
            return self._tap.find_client(self._raw)
        if name in DATABASE_READS:
            return partial(self._tap.call, self._raw, name)
        return self._tap.attribute(self._raw, name, DATABASE_SILENT)

    def command(self, *args: Any, **kwargs: Any) -> Any:
        if not is_about_server(bind("command", args, kwargs)["command"]):
            return self._tap.attribute(self._raw, "command", DATABASE_SILENT)  # raises, because a command isn't silent
        return self._tap.call(self._raw, "command", *args, **kwargs)

    def get_collection(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return _Collection(self._raw.get_collection(name, *args, **kwargs), self._tap)
