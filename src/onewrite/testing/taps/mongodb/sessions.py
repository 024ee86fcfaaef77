"""Sessions and transactions of MongoDB, for a gate that knows what transactions do.

A session here looks like pymongo's, and needs no server that has sessions. It goes through the states that pymongo's goes through,
and raises what pymongo's raises. Each operation in a transaction, each commit and each abort passes the gate as a request that
names its transaction. What becomes of the data is decided behind the gate.

`with_transaction` does not wait before it tries again, and does not look at a clock: see `_MOST_ATTEMPTS`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from enum import Enum, auto
from functools import partial
from typing import Any, ClassVar, NoReturn, Self, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.taps.mongodb.transaction_names import ABORT, COMMIT, Transaction, current_owner
from onewrite.testing.taps.store_calls import StoreCalls, amake_calls, make_calls
from onewrite.testing.taps.traffic import Gate, Key, Request

Callback: TypeAlias = Callable[[Any], Any]

# How often `with_transaction` begins. Each conflict takes another delivery that commits, so that more are rare. What comes up every
# time, for instance because the callback swallows an error or is in its own way, comes up on a server until pymongo gives up after two
# minutes.
_MOST_ATTEMPTS = 5
_BUSY = "SystemOverloadedError"
_UNKNOWN, _TRANSIENT = "UnknownTransactionCommitResult", "TransientTransactionError"


class _State(Enum):
    """The states of pymongo's own sessions."""

    NONE = auto()
    STARTING = auto()
    IN_PROGRESS = auto()
    COMMITTED = auto()
    COMMITTED_EMPTY = auto()
    ABORTED = auto()


_WHY_NO_ABORT = {
    _State.NONE: "No transaction started",
    _State.COMMITTED: "Cannot call abortTransaction after calling commitTransaction",
    _State.COMMITTED_EMPTY: "Cannot call abortTransaction after calling commitTransaction",
    _State.ABORTED: "Cannot call abortTransaction twice",
}


class AnySession:
    """What a blocking and an asynchronous session share: everything but the sending."""

    _awaited: ClassVar[bool]

    cluster_time = None
    operation_time = None

    def __init__(self, client: Any, gate: Gate, store: str, options: Any) -> None:
        self.client = client
        self.options = options
        self.has_ended = False
        self._gate = gate
        self._store = store
        self._state = _State.NONE
        self._transaction: Transaction | None = None
        self._unsure: Transaction | None = None  # its commit has failed, so that it may still be open
        self._is_lost = False  # the server has answered with an error, and has aborted the transaction
        self._keys: tuple[Key, ...] | None = ()  # what the transaction has written
        self._tables: tuple[str, ...] = ()

    @property  # type: ignore[misc]  # `isinstance` reads this; unittest.mock does the same
    def __class__(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # the same
        return _class_in_pymongo(awaited=self._awaited)

    @property
    def in_transaction(self) -> bool:
        return self._state in (_State.STARTING, _State.IN_PROGRESS)

    def advance_cluster_time(self, _: object) -> None:
        """Of no consequence: requests come one at a time, so each sees what was done before it."""

    def advance_operation_time(self, _: object) -> None:
        """The same."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_") or not hasattr(self.__class__, name):
            raise AttributeError(f"A session has no {name}.")
        raise ConfigurationError(
            f"{name} of a session cannot be tapped: this session exists on no server. Hand the session to each call as session=."
        )

    def joining(self, request: Request) -> Request:
        """The request as one of the transaction that is under way, if one is."""
        self._check_open()
        if not self.in_transaction:
            self._state = _State.NONE
            return request
        starts = self._state is _State.STARTING
        if starts:
            self._transaction, self._unsure = current_owner.get().next_transaction(self._unsure), None
            self._state = _State.IN_PROGRESS
        if request.writes:
            self._keys = None if self._keys is None or request.keys is None else (*self._keys, *request.keys)
            self._tables = tuple(dict.fromkeys([*self._tables, *request.tables]))
        return replace(request, transaction=self._transaction, starts=starts)

    def met(self, error: Exception) -> None:
        """An operation has failed. An error of the server's ends the transaction, unless the server was too busy to look at it."""
        from pymongo.errors import OperationFailure  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

        is_answer = isinstance(error, OperationFailure) and not error.has_error_label(_BUSY)
        self._is_lost = self._is_lost or (self.in_transaction and is_answer)

    # ------------------------------------------------------------ what pymongo's methods do, as generators of calls

    def _begin(self) -> None:
        self._check_open()
        if self.in_transaction:
            _misuse("Transaction already in progress")
        self._state, self._is_lost = _State.STARTING, False
        self._keys, self._tables = (), ()

    def _commit(self) -> StoreCalls[None]:
        from pymongo.errors import ConnectionFailure, PyMongoError  # noqa: PLC0415  # the same

        self._check_open()
        if self._state is _State.NONE:
            _misuse("No transaction started")
        if self._state is _State.ABORTED:
            _misuse("Cannot call commitTransaction after calling abortTransaction")
        if self._state in (_State.STARTING, _State.COMMITTED_EMPTY):
            self._state = _State.COMMITTED_EMPTY  # nothing was sent, so there is nothing to commit
            return
        self._state = _State.COMMITTED
        self._unsure = self._transaction
        try:
            yield partial(self._gate, self._ending(COMMIT))
        except ConnectionFailure as error:
            _relabel(error, without=_TRANSIENT, label=_UNKNOWN)
            raise
        except PyMongoError:
            self._unsure = None  # the server says that there is no such transaction
            raise
        self._unsure = None

    def _abort(self) -> StoreCalls[None]:
        from pymongo.errors import ConnectionFailure, OperationFailure  # noqa: PLC0415  # the same

        self._check_open()
        if not self.in_transaction:
            _misuse(_WHY_NO_ABORT[self._state])
        was_sent, self._state = self._state is _State.IN_PROGRESS, _State.ABORTED
        if self._is_lost:
            self._unsure = self._transaction  # it is gone, unless the error was a made one
        elif was_sent:
            try:
                yield partial(self._gate, self._ending(ABORT))
            except (OperationFailure, ConnectionFailure):
                self._unsure = self._transaction  # pymongo hides these errors too

    def _end(self) -> StoreCalls[None]:
        if not self.has_ended:
            if self.in_transaction:
                yield from self._abort()
            self.has_ended = True

    def _with_transaction(self, callback: Callback) -> StoreCalls[Any]:
        from pymongo.errors import PyMongoError  # noqa: PLC0415  # the same

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
                if not (isinstance(error, PyMongoError) and error.has_error_label(_TRANSIENT)):
                    raise
                if attempts == _MOST_ATTEMPTS:
                    _give_up(error)
            else:
                return result

    def _commit_until_known(self) -> StoreCalls[None]:
        from pymongo.errors import PyMongoError  # noqa: PLC0415  # the same

        while True:
            try:
                return (yield from self._commit())
            except PyMongoError as error:
                if not error.has_error_label(_UNKNOWN):
                    raise

    def _ending(self, method: str) -> Request:
        return Request(self._store, method, {}, self._keys, writes=True, tables=self._tables, transaction=self._transaction)

    def _check_open(self) -> None:
        if self.has_ended:
            _misuse("Cannot use ended session")


class TappedSession(AnySession):
    """Looks like pymongo's ClientSession."""

    _awaited = False

    def perform(self, gate: Gate, request: Request) -> Any:
        """Send an operation that was given this session."""
        try:
            return gate(self.joining(request))
        except Exception as error:
            self.met(error)
            raise

    def start_transaction(self, *_: Any, **__: Any) -> AbstractContextManager[Self]:
        self._begin()
        return self._committing()

    @contextmanager
    def _committing(self) -> Generator[Self]:
        try:
            yield self
        except BaseException:
            if self.in_transaction:
                self.abort_transaction()
            raise
        if self.in_transaction:
            self.commit_transaction()

    def commit_transaction(self) -> None:
        make_calls(self._commit())

    def abort_transaction(self) -> None:
        make_calls(self._abort())

    def with_transaction(self, callback: Callback, *_: Any, **__: Any) -> Any:
        return make_calls(self._with_transaction(callback))

    def end_session(self) -> None:
        make_calls(self._end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_session()


class TappedAsyncSession(AnySession):
    """Looks like pymongo's AsyncClientSession."""

    _awaited = True

    async def perform(self, gate: Gate, request: Request) -> Any:
        try:
            return await gate(self.joining(request))
        except Exception as error:
            self.met(error)
            raise

    async def start_transaction(self, *_: Any, **__: Any) -> AbstractAsyncContextManager[Self]:
        self._begin()
        return self._committing()

    @asynccontextmanager
    async def _committing(self) -> AsyncGenerator[Self]:
        try:
            yield self
        except BaseException:
            if self.in_transaction:
                await self.abort_transaction()
            raise
        if self.in_transaction:
            await self.commit_transaction()

    async def commit_transaction(self) -> None:
        await amake_calls(self._commit())

    async def abort_transaction(self) -> None:
        await amake_calls(self._abort())

    async def with_transaction(self, callback: Callback, *_: Any, **__: Any) -> Any:
        return await amake_calls(self._with_transaction(callback))

    async def end_session(self) -> None:
        await amake_calls(self._end())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end_session()


def start_session(
    client: Any,
    gate: Gate,
    store: str,
    *,
    awaited: bool,
    causal_consistency: bool | None = None,
    default_transaction_options: Any = None,
    snapshot: bool | None = False,
) -> TappedSession | TappedAsyncSession:
    """What `client.start_session()` returns. `store` is the name under which its commits pass the gate."""
    from pymongo import client_session  # noqa: PLC0415  # a test on DynamoDB may run without pymongo

    if snapshot:
        raise ConfigurationError(
            "A session with snapshot=True cannot be tapped: a tap does not know what the data were before. Read in a transaction."
        )
    options = cast("Any", client_session).SessionOptions(causal_consistency, default_transaction_options, snapshot)
    return (TappedAsyncSession if awaited else TappedSession)(client, gate, store, options)


def without_session(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
    """The arguments of a call, and the session among them if it is one of ours."""
    others = dict(arguments)
    if issubclass(type(others.get("session")), AnySession):
        return others, others.pop("session")
    return others, None


def _class_in_pymongo(*, awaited: bool) -> type[Any]:
    from pymongo.asynchronous.client_session import AsyncClientSession  # noqa: PLC0415  # the same
    from pymongo.client_session import ClientSession  # noqa: PLC0415  # the same

    return AsyncClientSession if awaited else ClientSession


def _misuse(text: str) -> NoReturn:
    from pymongo.errors import InvalidOperation  # noqa: PLC0415  # the same

    raise InvalidOperation(text)


def _relabel(error: Any, *, without: str, label: str) -> None:
    error._remove_error_label(without)  # noqa: SLF001  # pymongo's sessions do it in this way
    error._add_error_label(label)  # noqa: SLF001  # the same


def _give_up(error: Any) -> NoReturn:
    """Raise what pymongo's `with_transaction` raises after two minutes."""
    from pymongo.errors import NetworkTimeout  # noqa: PLC0415  # the same

    timeout: Any = NetworkTimeout(str(error))
    timeout._add_error_label(_TRANSIENT)  # noqa: SLF001  # the error that was met last has it too
    raise cast("Exception", timeout) from error
