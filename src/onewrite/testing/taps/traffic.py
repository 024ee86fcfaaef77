"""A request as a value: the entities that it touches, and its description in a report. This module needs no driver."""

from __future__ import annotations

import inspect
import itertools
import operator
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from onewrite.core.flow import adrive, drive
from onewrite.core.label import OURS

# --- calls of a store -------------------------------------------------------------------------------------------------
#
# Work on a store is a generator of calls. The same code then serves blocking and asynchronous stores.
#
# The generator yields each call, and receives the call's result or exception.

T = TypeVar("T")
StoreCalls: TypeAlias = Generator[Callable[[], Any], Any, T]


def make_calls(calls: StoreCalls[T]) -> T:
    """Make the blocking calls, and return the generator's result."""
    return drive(calls, operator.call)


async def amake_calls(calls: StoreCalls[T]) -> T:
    """Make the calls, await the awaitable ones, and return the generator's result."""
    return await adrive(calls, _acall)


async def _acall(call: Callable[[], Any]) -> Any:
    answer = call()
    return await answer if inspect.isawaitable(answer) else answer


# --- names of transactions --------------------------------------------------------------------------------------------
#
# The MongoDB transaction of a request, under a name that is the same in every run of a schedule.

COMMIT = "commit_transaction"
ABORT = "abort_transaction"


class TransactionKey(NamedTuple):
    owner: str  # the delivery that began the transaction
    number: int  # among the transactions of its owner


def name_transactions(owner: str) -> Iterator[TransactionKey]:
    """Yield the names of the transactions that this delivery begins, one after the other."""
    return (TransactionKey(owner, number) for number in itertools.count(1))


# By default, the names of transactions outside a delivery, for example in `build` or `observe`.
transaction_names: ContextVar[Iterator[TransactionKey]] = ContextVar(
    "onewrite.testing.transactions",
    default=name_transactions(""),  # noqa: B039  # shared on purpose, so that no two transactions have one name
)


# --- requests ---------------------------------------------------------------------------------------------------------

Key: TypeAlias = tuple[str, Hashable]  # the table or collection, and the entity's key in it

_SHOWN_KEYS = 3
_LEDGER_PREFIXES = (OURS, f"#{OURS}", f":{OURS}")  # prefixes of names on MongoDB, and of placeholders on DynamoDB
_SINGLE_WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem"})
_TRANSACTIONS = frozenset({"TransactWriteItems", "TransactGetItems"})
_COUNTS = ("inserted_count", "matched_count", "deleted_count", "upserted_count")  # a bulk write has all of them
_ENDS = {COMMIT: "committed", ABORT: "aborted"}  # ends of transactions
_REFUSALS = frozenset({"ConditionalCheckFailedException", "ConditionalCheckFailed", "DuplicateItem", "DuplicateKeyError"})


@dataclass(frozen=True, slots=True)
class Request:
    """One request, as the handler passed it to its driver.

    `store` is the name of the store in the world, or the table's or collection's own name. `method` is the native operation, such
    as "UpdateItem" or "update_one". `arguments` are plain values for a Table, typed ones for a client, and for a collection they
    have pymongo's parameter names. `keys` are the entities that the request touches. They're None if it can touch any entity in
    its `tables`, and `tables` is empty if the tables aren't known either. `options` are the arguments of a collection's `with_options`.
    A request in a MongoDB transaction has its `transaction`, and `starts` is true for the first request of one.
    """

    store: str
    method: str
    arguments: Mapping[str, Any]
    keys: tuple[Key, ...] | None
    writes: bool
    tables: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    transaction: TransactionKey | None = None
    starts: bool = False

    def __str__(self) -> str:
        words = [self.method, *([", ".join(self._list_targets())] if self.tables else [self.store])]
        return " ".join([*words, *(["in a transaction"] if self.is_uncommitted else [])])

    @property
    def is_uncommitted(self) -> bool:
        """Whether the request is part of a transaction, and only that transaction sees its writes. A commit isn't."""
        return self.transaction is not None and self.method not in (COMMIT, ABORT)

    def _list_targets(self) -> Iterator[str]:
        for table in self.tables:
            own = [key for owner, key in self.keys or () if owner == table]
            parts = [cast("tuple[Hashable, ...]", key) if isinstance(key, tuple) else (key,) for key in own]
            keys = ["/".join(map(str, part)) for part in parts]
            if len(keys) > _SHOWN_KEYS:
                keys = [f"({len(keys)} keys)"]
            yield " ".join([table, *keys])


Gate: TypeAlias = Callable[[Request], Any]  # sends the request never, once, or twice, and returns the response or raises


def is_transaction(request: Request) -> bool:
    """Whether the request is a DynamoDB transaction, which is a single request."""
    return request.method in _TRANSACTIONS


def is_single_write(request: Request) -> bool:
    return request.method in _SINGLE_WRITES


def describe(request: Request, answer: object) -> str:
    """Describe the response to a request, or the exception that it raised."""
    if isinstance(answer, BaseException):
        words = _describe_failure(answer)
    else:
        words = _describe_change(request, answer) if request.writes else _describe_reading(answer)
    return f"guarded, {words}" if words in ("applied", "refused") and is_guarded(request) else words


def is_dynamodb(request: Request) -> bool:
    return request.method[:1].isupper()  # DynamoDB's operations begin with a capital letter, unlike pymongo's methods


def is_guarded(request: Request) -> bool:
    """Whether a guarded store made the request. It then names attributes or placeholders of a ledger."""
    return any(name.startswith(_LEDGER_PREFIXES) for name, _ in walk(request.arguments))


def walk(value: object) -> Iterator[tuple[str, Any]]:
    """Yield all names in a document and its nested documents, each with its value."""
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[Any, Any]", value).items():
            yield str(name), inner
            if name != "$literal":
                yield from walk(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[object]", value):
            yield from walk(inner)


def _describe_failure(error: BaseException) -> str:
    response = cast("Mapping[str, Any]", getattr(error, "response", None) or {})
    code = str(response.get("Error", {}).get("Code") or _name_error(error))
    reasons = [str(reason.get("Code")) for reason in response.get("CancellationReasons", ())]
    return "refused" if _REFUSALS.intersection([code, *reasons]) else f"error {code}"


def _name_error(error: BaseException) -> str:
    """Return the name of an error. Most of MongoDB's errors share a class, and their code has a name."""
    kind = type(error).__name__
    details = cast("Mapping[str, Any]", getattr(error, "details", None) or {})
    return str(details.get("codeName", kind)) if kind == "OperationFailure" else kind


def _describe_reading(answer: object) -> str:
    # A GetItem of a missing item returns nothing but metadata.
    is_missing = answer is None or (
        isinstance(answer, Mapping) and set(cast("Mapping[str, Any]", answer)) <= {"ResponseMetadata"}
    )
    return "read, nothing there" if is_missing else "read"


def _describe_change(request: Request, answer: object) -> str:
    """Describe the response to a write: "refused" if it matched nothing, or "sent" if the server doesn't confirm it."""
    if request.method in _ENDS:
        return _ENDS[request.method]
    if answer is None and request.method.startswith("find_one_and_"):
        return "applied" if request.arguments.get("upsert") else "refused"
    if getattr(answer, "acknowledged", True) is False:
        return "sent"
    counts = [getattr(answer, name) for name in _COUNTS if hasattr(answer, name)]
    return "refused" if counts and not any(counts) and getattr(answer, "upserted_id", None) is None else "applied"
