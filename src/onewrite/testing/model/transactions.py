"""What transactions of MongoDB do, for stores that have none, and for a server whose own would wait in real time.

Each open transaction has a state of its own, its view: what the stores held when its first operation came, and what it has written
since. Its operations are performed at that state, and by the store as plain requests. A commit puts what was written into
the present state. Who is first to write a document keeps the others from it until its transaction ends:

- Another transaction that writes it, or that writes what was changed since it began, gets WriteConflict and is aborted.
- A plain write that would change it waits. Who waits for itself, or in a circle, waits until the server aborts the transaction
  because it is too old.

What a request writes is seen by what it changes, as on the server: an update that sets what is there already writes nothing. A value
in a unique index is written too, by the document that gets it or loses it.

What differs from a server: A write of several documents is one step, so that it waits before it has written any of them. An update
that would violate a unique index is refused for that, also where a server finds first that the document is another
transaction's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.model.canonical import canonical
from onewrite.testing.model.contents import Contents, Entity, merged
from onewrite.testing.model.databases import Databases
from onewrite.testing.model.transition import Place, State, changes_structure, copied
from onewrite.testing.taps.failures import is_answer, server_error
from onewrite.testing.taps.mongodb.methods import UNFIT_FOR_TRANSACTIONS
from onewrite.testing.taps.mongodb.transaction_names import ABORT, COMMIT, Transaction
from onewrite.testing.taps.store_calls import StoreCalls
from onewrite.testing.taps.traffic import Request, is_dynamodb

Name: TypeAlias = tuple[str, int]  # of a transaction
Indexes: TypeAlias = Mapping[str, Mapping[str, Any]]  # the unique ones, by their names

_TRANSIENT = ["TransientTransactionError"]
_CONFLICT = (
    "WriteConflict error: this operation conflicted with another operation. Please retry your operation or multi-document "
    "transaction."
)


class Mark(NamedTuple):
    """A document that was written, by its key; or a value in a unique index that was added to it or removed."""

    place: Place
    key: Hashable
    index_name: str | None = None


Marks: TypeAlias = frozenset[Mark]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """`snapshot` is what it saw first, and `view` is what it sees now."""

    snapshot: State
    view: State
    written: Marks = frozenset()
    places: frozenset[Place] = frozenset()  # what it has touched


class Answered(NamedTuple):
    """What a request did at a state: the state that it led to, and its answer or what it raised."""

    state: State
    value: Any = None
    error: Exception | None = None


class Stores(Protocol):
    """What the transactions need of the machine."""

    why_slow: str | None
    databases: Databases

    @property
    def present(self) -> State: ...  # what everybody sees
    @present.setter
    def present(self, state: State) -> None: ...
    def at(self, state: State, request: Request) -> StoreCalls[Answered]: ...
    def held(self, state: State, place: Place) -> Contents: ...
    def state_of(self, contents: Mapping[Place, Contents], like: State) -> State: ...


class Transactions:
    """The open transactions of a machine."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._open: dict[Name, OpenTransaction] = {}
        self._committed: set[Name] = set()
        self._waited_for: dict[str, frozenset[Name]] = {}  # by owner: those that its last transaction was in conflict with
        self._unique: dict[Hashable, Indexes] = {}

    def clear(self) -> None:
        self._open.clear()
        self._committed.clear()
        self._waited_for.clear()

    @property
    def form(self) -> Hashable:
        """Equal for open transactions that are the same; None if there are none."""
        if not self._open:
            return None
        waiting = frozenset((owner, names.intersection(self._open)) for owner, names in self._waited_for.items())
        return frozenset((name, one.snapshot, one.view, one.written) for name, one in self._open.items()), waiting

    def end_all_of(self, owner: str) -> bool:
        """The owner has ended. The server aborts what it has left open. Had that written anything?"""
        self._waited_for.pop(owner, None)
        left = frozenset(name for name in self._open if name[0] == owner)
        had_written = any(self._open[name].written for name in left)
        self.expire(left)
        return had_written

    def blockers(self, request: Request) -> StoreCalls[frozenset[Name]]:
        """The transactions that must end before this request, made now, would be answered.

        After a conflict, a delivery begins its next transaction only when the other one has ended. On a server it may begin,
        and meet the same conflict, any number of times: to try that would tell nothing new, and would have no end.
        """
        if not self._open or is_dynamodb(request) or not (request.writes or request.starts):
            return frozenset()
        if request.transaction is not None:
            waited_for = (
                self._waited_for.get(request.transaction.owner, frozenset()) if request.starts else frozenset[Name]()
            )
            return waited_for.intersection(self._open)
        if changes_structure(request):
            places = frozenset(self._stores.databases.places_of(request))
            return frozenset(name for name, one in self._open.items() if one.places & places)
        before = self._stores.present
        after = yield from self._stores.at(
            before, copied(request)
        )  # it is not sent yet, so the handler's documents get no ids
        marks = yield from self._marks(before, after.state, after.state.contents)
        return self._writers(marks)

    def answer(self, request: Request, transaction: Transaction) -> StoreCalls[Any]:
        """Answer a request of a transaction."""
        if request.method == COMMIT:
            return self._commit(transaction)
        if request.method == ABORT:
            self._find(transaction)
            del self._open[transaction.name]
            return None
        return (yield from self._operation(request, transaction))

    def expire(self, names: frozenset[Name]) -> None:
        """The server aborts these, because they are too old."""
        for name in names:
            del self._open[name]

    # ------------------------------------------------------------ operations

    def _operation(self, request: Request, transaction: Transaction) -> StoreCalls[Any]:
        _check_fit(request)
        if request.starts:
            self._open.pop(cast("Name", transaction.replaces), None)
            self._waited_for.pop(transaction.owner, None)
            self._open[transaction.name] = OpenTransaction(self._stores.present, self._stores.present)
        before = self._find(transaction)
        after = yield from self._stores.at(before.view, request)
        if self._stores.why_slow is not None:
            raise ConfigurationError(f"A transaction cannot be explored here: {self._stores.why_slow}")
        if after.error is not None:
            if is_answer(after.error):
                del self._open[transaction.name]
            raise after.error
        marks = yield from self._marks(before.view, after.state, after.state.contents)
        yield from self._check_conflict(marks, transaction, before)
        places = before.places | frozenset(self._stores.databases.places_of(request))
        self._open[transaction.name] = OpenTransaction(before.snapshot, after.state, before.written | marks, places)
        return after.value

    def _find(self, transaction: Transaction) -> OpenTransaction:
        if transaction.name not in self._open:
            text = f"Transaction {transaction.number} has been aborted."
            raise server_error(251, "NoSuchTransaction", text, _TRANSIENT)
        return self._open[transaction.name]

    def _check_conflict(self, marks: Marks, transaction: Transaction, before: OpenTransaction) -> StoreCalls[None]:
        writers = self._writers(marks) - {transaction.name}
        since = yield from self._marks(before.snapshot, self._stores.present, {mark.place for mark in marks})
        if writers or since & marks:
            del self._open[transaction.name]
            self._waited_for[transaction.owner] = writers
            raise server_error(112, "WriteConflict", _CONFLICT, _TRANSIENT)

    def _writers(self, marks: Marks) -> frozenset[Name]:
        return frozenset(name for name, one in self._open.items() if one.written & marks)

    def _commit(self, transaction: Transaction) -> None:
        if transaction.name in self._committed:
            return
        ending = self._find(transaction)
        del self._open[transaction.name]
        self._committed.add(transaction.name)
        stores, present = self._stores, self._stores.present
        contents = dict(present.contents)
        for place in {mark.place for mark in ending.written}:
            keys = [mark.key for mark in ending.written if mark.place == place and mark.index_name is None]
            contents[place] = merged(stores.held(present, place), stores.held(ending.view, place), keys)
        stores.present = stores.state_of(contents, present)

    # ------------------------------------------------------------ what was written

    def _marks(self, before: State, after: State, places: Iterable[Place]) -> StoreCalls[Marks]:
        """What differs between two states in these places."""
        marks: set[Mark] = set()
        for place in places if before is not after else ():
            one, other = self._stores.held(before, place), self._stores.held(after, place)
            if one.digest == other.digest:
                continue
            indexes = yield from self._unique_indexes(place, after)
            for key in [key for key in {**one.forms, **other.forms} if one.forms.get(key) != other.forms.get(key)]:
                marks.add(Mark(place, key))
                marks.update(_index_marks(place, indexes, one.entities.get(key), other.entities.get(key)))
        return frozenset(marks)

    def _unique_indexes(self, place: Place, state: State) -> StoreCalls[Indexes]:
        known = place, tuple(map(id, state.structure))
        if known not in self._unique:
            request = Request(
                self._stores.databases.keeper_name(place[0]), "index_information", {}, None, writes=False, tables=(place[1],)
            )
            answered = yield from self._stores.at(state, request)
            found = cast("Mapping[str, Mapping[str, Any]]", answered.value)
            self._unique[known] = {name: index for name, index in found.items() if index.get("unique")}
        return self._unique[known]


def _check_fit(request: Request) -> None:
    stores = request.method == "aggregate" and request.writes
    if stores or request.method in UNFIT_FOR_TRANSACTIONS:
        what = "An aggregate that stores its result" if stores else request.method
        raise ConfigurationError(
            f"{what} cannot be part of a transaction: MongoDB refuses it there (OperationNotSupportedInTransaction). Take it "
            "out of the transaction, or out of what is explored."
        )


def _index_marks(place: Place, indexes: Indexes, before: Entity | None, after: Entity | None) -> Iterator[Mark]:
    for name, index in indexes.items():
        had, has = set(_entries(before, index)), set(_entries(after, index))
        yield from (Mark(place, entry, name) for entry in had ^ has)


def _entries(document: Entity | None, index: Mapping[str, Any]) -> Iterator[Hashable]:
    """What the index holds of a document. A partial index is taken for a whole one."""
    found = [list(_values(document, field.split("."))) for field, _ in index["key"]]
    if document is None or (index.get("sparse") and not any(found)):
        return
    for values in product(*[each or [None] for each in found]):
        yield canonical(list(values), ordered=True)


def _values(value: object, path: Sequence[str]) -> Iterator[object]:
    """The values at a path. An array has all those of its members."""
    if isinstance(value, list):
        for member in cast("list[object]", value):
            yield from _values(member, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _values(cast("Mapping[str, object]", value)[path[0]], path[1:])
