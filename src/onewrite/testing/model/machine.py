"""A store as a state machine, which answers repeated requests from memory.

An exploration performs one request at a time, so the response and the next state depend only on the current state and the request.
The machine remembers both. The real store performs a request that is new in the current state. If the real store is in a different
state, the entities that differ are restored first.

A state consists of the contents of the tables, the tokens of DynamoDB's transactions, and the structural requests, which have changed
more than contents, for example by creating an index. They can't be undone, so going back to before one takes a new world, in which
the earlier structural requests are performed again.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.model.contents import (
    Contents,
    Entity,
    Keys,
    Place,
    find_tables,
    forget_attempts,
    merge,
    read,
    read_item,
    rename,
    restore,
)
from onewrite.testing.model.databases import Databases, World, are_async, check_same, name_stores
from onewrite.testing.model.tokens import (
    has_effects,
    omit_token,
    omit_token_of_form,
    read_own_token,
    read_token,
    rename_answer,
)
from onewrite.testing.taps import aws
from onewrite.testing.taps import mongodb_methods as mongodb
from onewrite.testing.taps.failures import is_answer, make_client_error, make_server_error
from onewrite.testing.taps.mongodb_methods import DESCRIBING, INDEXING, UNFIT_FOR_TRANSACTIONS, has_only_equalities
from onewrite.testing.taps.tap import send, tap
from onewrite.testing.taps.traffic import (
    ABORT,
    COMMIT,
    Gate,
    Key,
    Request,
    StoreCalls,
    TransactionKey,
    amake_calls,
    is_dynamodb,
    make_calls,
)

# --- states and transitions -------------------------------------------------------------------------------------------
#
# A machine's memory: its states, and the effect of each request on them.

Tokens: TypeAlias = frozenset[tuple[str, int | None]]  # each with the key of the request that it was given with

_DATA = frozenset(
    {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}
    | {"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"}
)


@dataclass(frozen=True, slots=True, eq=False)
class WorldState:
    """A state of the world: the contents of its tables, the structural requests, and the transaction tokens that DynamoDB remembers."""

    contents: Mapping[Place, Contents]
    structure: tuple[Request, ...]
    tokens: Tokens = frozenset()
    transitions: dict[int, Transition] = field(
        default_factory=dict["int", "Transition"]
    )  # the effect of each request, by its key


@dataclass(frozen=True, slots=True)
class Transition:
    """The effect of a request on a state: the next state, and the response."""

    state: WorldState
    answer: Callable[[], Any]  # returns a new copy each time, or raises the store's exception
    ids: Sequence[Any] = ()  # those of the documents that it inserts


class Item(NamedTuple):
    """An item of DynamoDB: its table, and the value of its key."""

    place: Place
    key: Hashable


class _Likeness(NamedTuple):
    """What the effect of a request depends on, apart from the tokens of guarded writes, and these tokens."""

    form: Hashable
    tokens: tuple[str | None, ...]
    item: Item | None = None


class _RealStores(NamedTuple):
    """The contents of the real stores, in their own order, and the structural requests that were performed there."""

    contents: Mapping[Place, Contents]
    structure: tuple[Request, ...]


# The effect and response of these requests depend only on their item and on the structure of its table.
_OF_ONE_ITEM = frozenset({"GetItem", "PutItem", "UpdateItem", "DeleteItem"})


def changes_structure(request: Request) -> bool:
    """Whether the request changes more than the contents of the tables, such as an index."""
    if is_dynamodb(request):
        return request.writes and request.method not in _DATA
    return request.method in INDEXING


def reads_structure(request: Request) -> bool:
    """Whether the request reads nothing from the contents of the tables."""
    return request.method in DESCRIBING or request.method == "DescribeTable"


def _without_preference(request: Request) -> Request:
    """Return the request without the read preference of its collection."""
    if "read_preference" not in request.options:
        return request
    return replace(request, options={name: value for name, value in request.options.items() if name != "read_preference"})


def copy_request(request: Request) -> Request:
    """Return a copy that the handler can't change through its own objects, or the request itself if it can't be copied."""
    try:
        return replace(request, arguments=copy.deepcopy(dict(request.arguments)))
    except Exception:  # an object's own code can raise anything while it's copied
        return request


def make_repeater(answer: object) -> Callable[[], Any] | None:
    """Return a function that returns a copy of this response, or raises this exception. Return None if it can't be copied."""
    try:
        if isinstance(answer, Exception):
            return partial(_raise, type(answer), answer.args, pickle.dumps(vars(answer)))
        return partial(pickle.loads, pickle.dumps(answer))
    except Exception:  # an object's own code can raise anything while it's pickled
        return None


def _raise(kind: type[Exception], args: tuple[Any, ...], attributes: bytes) -> NoReturn:
    """Raise a copy of an exception.

    boto3 creates its exception classes per client, so they can't be pickled, and some exception classes don't accept the `args` of
    their instances.
    """
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(pickle.loads(attributes))  # noqa: S301  # `make_repeater` has made these bytes
    raise error


def list_ids(arguments: Mapping[str, Any]) -> list[Any]:
    """Return the `_id` of each document that a request inserts, in the order of the documents."""
    return [document.get("_id") for document in _list_inserted(arguments)]


def fill_in_ids(arguments: Mapping[str, Any], ids: Sequence[Any]) -> None:
    """Add the `_id` to the handler's documents that pymongo adds when it sends them."""
    for document, document_id in zip(_list_inserted(arguments), ids, strict=True):
        if document_id is not None:
            document.setdefault("_id", document_id)


def _list_inserted(arguments: Mapping[str, Any]) -> list[MutableMapping[str, Any]]:
    """Return the documents that the request inserts: pymongo's insert operations have a `_doc`, and no `_filter` as updates have."""
    operations = arguments.get("requests", ())
    documents = [arguments.get("document"), *arguments.get("documents", ())]
    documents += [getattr(operation, "_doc", None) for operation in operations if not hasattr(operation, "_filter")]
    return [document for document in documents if isinstance(document, MutableMapping)]


# --- tokens of DynamoDB -----------------------------------------------------------------------------------------------
#
# The tokens by which DynamoDB recognizes a repeated transaction. They're part of a state, like the items.
#
# The handler's token isn't passed to the real store, which would still remember it after the machine returned to an earlier state.
# The explorer decides when a token is forgotten.

TOKEN = "ClientRequestToken"  # noqa: S105  # the name of an argument
# botocore adds a token if there is none, and sends the same token when it retries.
TAKES_TOKEN = frozenset({"TransactWriteItems", "ExecuteTransaction"})

_CONTENT = ("TransactItems", "TransactStatements")


_OTHER_CONTENT = "The request uses the same client token as a previous, but non-identical request."

# --- transactions of MongoDB ------------------------------------------------------------------------------------------
#
# A model of MongoDB's transactions, for stores without transactions, and for servers whose transactions would wait in real time.
#
# Each open transaction has its own state, its view: the contents at its first operation, and its own writes. Its operations are
# performed on that state, by the store as plain requests. A commit applies its writes to the current state. An operation or a commit
# gets WriteConflict, and the transaction is aborted, if a concurrent write has changed the same data meanwhile.
#
# Only changes count as writes. As on the server, an update that sets the existing value writes nothing.
#
# Differences from a server: there, the second of two transactions that write one document gets WriteConflict at once, and a plain write
# waits. Here, the first commit or plain write wins, and the other transaction gets WriteConflict at its commit. In a collection with a
# unique index, any two transactions that write are in conflict.

FieldNames: TypeAlias = tuple[str, ...]  # the fields of a unique index

_TRANSIENT = ["TransientTransactionError"]
_CONFLICT = (
    "WriteConflict error: this operation conflicted with another operation. Please retry your operation or multi-document "
    "transaction."
)


class WriteMark(NamedTuple):
    """A written document, by its key, or without a key a collection with a unique index."""

    place: Place
    key: Hashable = None


Marks: TypeAlias = frozenset[WriteMark]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """`snapshot` is the transaction's first state, and `view` its current one."""

    snapshot: WorldState
    view: WorldState
    marks: Marks = frozenset()


class StateAndReply(NamedTuple):
    """The effect of a request on a state: the next state, and the response or the error."""

    state: WorldState
    value: Any = None
    error: Exception | None = None


class Transactions:
    """The open transactions of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._open: dict[TransactionKey, OpenTransaction] = {}
        self._committed: set[TransactionKey] = set()
        self._unique: dict[Hashable, list[FieldNames]] = {}

    def clear(self) -> None:
        self._open.clear()
        self._committed.clear()

    @property
    def form(self) -> Hashable:
        """Return a value that is equal for equal open transactions."""
        return frozenset(
            (name, transaction.snapshot, transaction.view, transaction.marks) for name, transaction in self._open.items()
        )

    def end_all(self, owner: str) -> None:
        """Abort the open transactions of an owner that has ended, like the server."""
        for transaction in [transaction for transaction in self._open if transaction.owner == owner]:
            del self._open[transaction]

    def answer(self, request: Request, transaction: TransactionKey) -> StoreCalls[Any]:
        """Answer a request of a transaction."""
        if request.method == COMMIT:
            return (yield from self._commit(transaction))
        if request.method == ABORT:
            self._find(transaction)
            del self._open[transaction]
            return None
        return (yield from self._perform_operation(request, transaction))

    # ------------------------------------------------------------ operations

    def _perform_operation(self, request: Request, transaction: TransactionKey) -> StoreCalls[Any]:
        """Perform an operation on the transaction's view. An error that is the server's response aborts the transaction."""
        is_storing = request.method == "aggregate" and request.writes
        if is_storing or request.method in UNFIT_FOR_TRANSACTIONS:
            operation = "An aggregate that stores its result" if is_storing else request.method
            raise ConfigurationError(
                f"{operation} can't be part of a transaction, because MongoDB refuses it there (OperationNotSupportedInTransaction). Call "
                "it outside the transaction."
            )
        if request.starts:
            self._open[transaction] = OpenTransaction(self._machine.present, self._machine.present)
        before = self._find(transaction)
        after = yield from self._machine.at(before.view, request)
        if after.error is not None:
            if is_answer(after.error):
                del self._open[transaction]
            raise after.error
        marks = yield from self._find_marks(before.view, after.state, after.state.contents)
        yield from self._abort_if_in_conflict(marks, transaction, before)
        self._open[transaction] = OpenTransaction(before.snapshot, after.state, before.marks | marks)
        return after.value

    def _find(self, transaction: TransactionKey) -> OpenTransaction:
        if transaction not in self._open:
            text = f"Transaction {transaction.number} has been aborted."
            raise make_server_error(251, "NoSuchTransaction", text, _TRANSIENT)
        return self._open[transaction]

    def _abort_if_in_conflict(self, marks: Marks, transaction: TransactionKey, before: OpenTransaction) -> StoreCalls[None]:
        """Abort the transaction if another write has changed one of its documents since its snapshot."""
        newer_marks = yield from self._find_marks(before.snapshot, self._machine.present, {mark.place for mark in marks})
        if newer_marks & marks:
            del self._open[transaction]
            raise make_server_error(112, "WriteConflict", _CONFLICT, _TRANSIENT)

    def _commit(self, transaction: TransactionKey) -> StoreCalls[None]:
        """Merge the transaction's writes into the present state. Do nothing if it has been committed before."""
        if transaction in self._committed:
            return
        ending = self._find(transaction)
        yield from self._abort_if_in_conflict(ending.marks, transaction, ending)
        del self._open[transaction]
        self._committed.add(transaction)
        machine, present = self._machine, self._machine.present
        contents = dict(present.contents)
        for place in {mark.place for mark in ending.marks}:
            keys = [mark.key for mark in ending.marks if mark.place == place and mark.key is not None]
            contents[place] = merge(machine.contents_at(present, place), machine.contents_at(ending.view, place), keys)
        machine.go_on_to(machine.make_state(contents, present.structure, present.tokens))

    # ------------------------------------------------------------ written documents

    def _find_marks(self, before: WorldState, after: WorldState, places: Iterable[Place]) -> StoreCalls[Marks]:
        """Return the marks of the documents in these tables that were written between two states."""
        marks: set[WriteMark] = set()
        for place in places if before is not after else ():
            one, other = self._machine.contents_at(before, place), self._machine.contents_at(after, place)
            if one.digest == other.digest:
                continue
            has_unique_index = bool((yield from self.find_unique_indexes(place, after)))
            keys = [*other.list_differing_keys(one), *([None] if has_unique_index else [])]
            marks.update(WriteMark(place, key) for key in keys)
        return frozenset(marks)

    def find_unique_indexes(self, place: Place, state: WorldState) -> StoreCalls[list[FieldNames]]:
        """Return the fields of each unique index of a collection."""
        key = place, tuple(map(id, state.structure))
        if key not in self._unique:
            store = self._machine.databases.find_keeper_name(place[0])
            request = Request(store, "index_information", {}, keys=None, writes=False, tables=(place[1],))
            reply = yield from self._machine.at(state, request)
            indexes = cast("Mapping[str, Mapping[str, Any]]", reply.value).values()
            self._unique[key] = [tuple(field for field, _ in index["key"]) for index in indexes if index.get("unique")]
        return self._unique[key]


# --- the machine ------------------------------------------------------------------------------------------------------

Position: TypeAlias = tuple[WorldState, tuple[WorldState, ...]]


class Machine:
    """`world` creates the store, or a dict of stores. It's called once, and again if only a new world can restore a state."""

    def __init__(self, world: World, databases: Databases | None = None, opening_requests: tuple[Request, ...] = ()) -> None:
        self._world = world
        self._world_stores = world()
        stores = name_stores(self._world_stores)
        self.databases = Databases(stores) if databases is None else databases.renew(stores)
        self._opening_requests = opening_requests  # the structural requests with which each trial begins
        self.is_async = are_async(stores.values())
        self._initial: dict[Place, Contents] = {}  # the initial contents of every table that was ever touched
        self._states: dict[Hashable, WorldState] = {}
        # The effects of requests on items and tables, each with the tokens that these had. See `_Likeness`.
        self._alike: dict[Hashable, tuple[Transition, tuple[str | None, ...]]] = {}
        self._forgotten: dict[
            tuple[WorldState, frozenset[str]], WorldState
        ] = {}  # states without these tokens, by the state before
        self._races: dict[Hashable, Transition] = {}  # the effects of upserts that found nothing at an earlier state
        # The current state. It's empty until `begin` has read the stores.
        self._fresh = self._start = self.present = WorldState({}, ())
        self._real: _RealStores | None = None  # None if their contents aren't known
        self._structure_changes = False  # a request has changed more than contents
        self.earlier: tuple[WorldState, ...] = ()  # the earlier states since the last reset
        self.transactions = Transactions(self)
        self.key = Keys().key
        if not self.is_async:
            make_calls(self.begin())

    @property
    def state(self) -> Hashable:
        """Return the current state with the open transactions. Two are equal if the stores contain the same data."""
        return self.present, self.transactions.form

    def stores(self, gate: Gate) -> Any:
        """Return the stores of `world` behind a gate. They remain usable if the machine creates a new world."""
        return tap(self._world_stores, gate, is_explored=True)

    @property
    def position(self) -> Position:
        """Return the current state and the earlier ones."""
        return self.present, self.earlier

    def go_to(self, position: Position) -> None:
        """Go to an earlier state since the last `reset`."""
        self.present, self.earlier = position

    @contextmanager
    def looking_at(self, state: WorldState) -> Generator[None]:
        """Use this state until the end of the block, and then return to the current one."""
        position, self.present = self.position, state
        try:
            yield
        finally:
            self.go_to(position)

    def list_key_names(self, store: str) -> dict[str, tuple[str, ...]]:
        """Return the key attributes of each table in a store's database that was read so far."""
        database = self.databases.name(store)
        return {place[1]: contents.key for place, contents in self._initial.items() if place[0] == database}

    def list_keys(self) -> frozenset[Key]:
        """Return the keys of all current entities, in the form that requests use."""
        return frozenset(
            (place[1], key) for place in self._initial for key in self.contents_at(self.present, place).entities
        )

    def without_memory(self) -> Machine:
        """Return a machine without remembered requests. It replaces this one, and knows its adopted stores."""
        return Machine(self._world, self.databases, self._opening_requests)

    def reset(self) -> None:
        """Go back to the initial state."""
        self.present = self._start
        self.earlier = ()
        self.transactions.clear()

    def perform(self, request: Request, key: int | None = None) -> Any:
        """Return or raise the store's response to the request in the current state, and go to the next state.

        Pass the `key` of the request if you have it. The response of asynchronous stores is awaited.
        """
        return self.make(self.answer(request, key))

    def make(self, calls: StoreCalls[Any]) -> Any:
        """Make the calls. The result of asynchronous stores is awaited."""
        return (amake_calls if self.is_async else make_calls)(calls)

    def may_race(self, before: WorldState, request: Request) -> StoreCalls[bool]:
        """Whether an upsert would insert a document at an earlier state, but not now."""
        (place,) = self.databases.list_places(request)
        now = yield from self.at(self.present, copy_request(request))
        then = yield from self.at(before, copy_request(request))
        if now.error is None and self._find_added(self.present, now.state, place):
            return False
        fields = yield from self.transactions.find_unique_indexes(place, before)
        # The server itself retries such an upsert.
        is_retried = any(has_only_equalities(request.arguments["filter"], names) for names in fields)
        return bool(self._find_added(before, then.state, place)) and not is_retried

    def race(self, before: WorldState, request: Request) -> StoreCalls[Any]:
        """Insert the document that an upsert inserts at an earlier state. A unique index can refuse it."""
        key = self.key(request)
        known = self.present, before, key
        if known in self._races:
            return self._follow(request, self._races[known])
        with self.looking_at(before):  # not from memory, because the driver adds a new _id to each document
            result = yield from self._perform(copy_request(request), None)
            (place,) = self.databases.list_places(request)
            (document,) = self._find_added(before, self.present, place)
        arguments = {"document": copy.deepcopy(dict(document))}
        insertion = mongodb.make_request(request.store, place[1], "insert_one", arguments, request.options)
        try:
            yield from self._answer_plain(insertion)
        except Exception as error:
            result = error
        repeater = make_repeater(result)
        if repeater is not None and key is not None:
            self._races[known] = Transition(self.present, repeater)
        if isinstance(result, Exception):
            raise result
        return result

    def _find_added(self, before: WorldState, after: WorldState, place: Place) -> list[Entity]:
        """Return the entities of a table that exist after, but not before."""
        old, new = self.contents_at(before, place).entities, self.contents_at(after, place).entities
        return [entity for key, entity in new.items() if key not in old]

    def changes(self, before: WorldState, request: Request, after: WorldState) -> list[tuple[Entity, Entity]]:
        """Return the entities that differ between two states, before and after. An entity that doesn't exist is empty."""
        pairs: list[tuple[Entity, Entity]] = []
        for place in self.databases.list_places(request) if before is not after else ():
            old, new = self.contents_at(before, place), self.contents_at(after, place)
            pairs += [(old.entities.get(key, {}), new.entities.get(key, {})) for key in new.list_differing_keys(old)]
        return pairs

    def forget_attempts(self, position: Position, tokens: frozenset[str]) -> Position:
        """Return the position with one token in place of these, which guarded writes of ended deliveries have stored.

        A guarded write compares an item's token only with its own. States that differ only in such tokens are therefore equal.
        """
        present, earlier = position
        return self._forget_attempts(present, tokens), tuple([self._forget_attempts(state, tokens) for state in earlier])

    def _forget_attempts(self, state: WorldState, tokens: frozenset[str]) -> WorldState:
        key = state, tokens
        if key not in self._forgotten:
            contents = {place: forget_attempts(each, tokens) for place, each in state.contents.items()}
            self._forgotten[key] = self.make_state(contents, state.structure, state.tokens)
        return self._forgotten[key]

    def forget_tokens(self, tokens: Collection[str] | None = None) -> None:
        """Forget these tokens of DynamoDB's transactions, or all of them, as DynamoDB does after some time."""
        before = self.present.tokens
        rest = frozenset(token for token in before if tokens is not None and token[0] not in tokens)
        if rest != before:
            self.present = self.make_state(self.present.contents, self.present.structure, rest)

    def answer(self, request: Request, key: int | None = None) -> StoreCalls[Any]:
        """Answer the request, with its token or its transaction."""
        if getattr(request.arguments.get("session"), "in_transaction", False):
            raise ConfigurationError(
                "The handler's session can't be explored, because it was started before the exploration and its commit wouldn't be seen. "
                "Start it in the handler, from the collection that build() receives: collection.database.client.start_session()."
            )
        if request.transaction is not None:
            return (yield from self.transactions.answer(request, request.transaction))
        if TOKEN in request.arguments:
            return (yield from self._answer_once(request))
        return (yield from self._answer_plain(request, key))

    def _answer_once(self, request: Request) -> StoreCalls[Any]:
        """Answer a request with a token. The token of a canceled transaction isn't remembered."""
        arguments = {name: value for name, value in request.arguments.items() if name != TOKEN}
        token, content_keys = str(request.arguments[TOKEN]), dict(self.present.tokens)
        # The parts that must be the same each time the token is used.
        content = {name: value for name, value in arguments.items() if name in _CONTENT}
        key = self.key(replace(request, arguments=content))
        if token not in content_keys:
            answer = yield from self._answer_plain(replace(request, arguments=arguments))
            state = self.present
            self.present = self.make_state(state.contents, state.structure, state.tokens | {(token, key)})
            return answer
        if key is None or content_keys[token] != key:
            store = self.databases.stores[request.store]
            raise make_client_error(store, request, "IdempotentParameterMismatchException", _OTHER_CONTENT)
        return {"ResponseMetadata": {"RequestId": "", "HTTPStatusCode": 200, "HTTPHeaders": {}, "RetryAttempts": 0}}

    def _answer_plain(self, request: Request, key: int | None = None) -> StoreCalls[Any]:
        """Answer a request whose response depends only on the current state."""
        key = key or self.key(request)
        known = None if key is None else self.present.transitions.get(key)
        if known is not None or key is None:
            return (yield from self._perform(request, key)) if known is None else self._follow(request, known)
        likeness, before = self._describe(request, key), self.present
        alike = None if likeness is None else self._find_alike(likeness)
        if alike is not None:
            before.transitions[key] = alike
            return self._follow(request, alike)
        try:
            return (yield from self._perform(request, key))
        finally:
            if likeness is not None and key in before.transitions:
                self._alike[likeness.form] = before.transitions[key], likeness.tokens

    # ------------------------------------------------------------ for the transactions

    def go_on_to(self, state: WorldState) -> None:
        """Go to the next state, and remember the current one as an earlier one."""
        if state is not self.present:
            self.earlier = (*self.earlier, self.present)
            self.present = state

    def at(self, state: WorldState, request: Request) -> StoreCalls[StateAndReply]:
        """Return the effect of a plain request on a different state, without changing the current one."""
        with self.looking_at(state):
            try:
                answer = yield from self._answer_plain(request)
                return StateAndReply(self.present, answer)
            except Exception as error:
                return StateAndReply(self.present, error=error)

    def contents_at(self, state: WorldState, place: Place) -> Contents:
        return state.contents.get(place, self._initial[place])

    def is_lasting(self, request: Request) -> bool:
        """Whether the request reads only a structure that no request has changed, such as the indexes of a table."""
        return reads_structure(request) and not self._structure_changes

    def _describe(self, request: Request, key: int) -> _Likeness | None:
        """Return the item, or the tables, on which the effect of a DynamoDB request depends, without tokens. Return None if it isn't known."""
        item, structure = self._find_item(request), tuple(map(id, self.present.structure))
        if item is not None:
            contents = self.contents_at(self.present, item.place)
            entity, form = contents.entities.get(item.key, {}), contents.forms.get(item.key)
            if has_effects(request, entity):  # which are fenced by tokens
                return _Likeness((key, structure, item, form), (), item)
            tokens = read_own_token(request), read_token(entity)
            shape = tokens[0] == tokens[1], tokens[1] is None
            request_key = key if tokens[0] is None else self.key(omit_token(request))
            return _Likeness((request_key, structure, item, omit_token_of_form(form), shape), tokens, item)
        if request.writes or not is_dynamodb(request):
            return None
        places = [place for place in self.databases.list_places(request) if place in self._initial]
        entities = [
            (place, name, omit_token_of_form(contents.forms[name]), read_token(entity))
            for place in places
            for contents in [self.contents_at(self.present, place)]
            for name, entity in contents.entities.items()
        ]
        return _Likeness(
            (key, structure, tuple([entity[:-1] for entity in entities])), tuple([entity[-1] for entity in entities])
        )

    def _find_alike(self, likeness: _Likeness) -> Transition | None:
        """Return the effect of the request if it's known for equal contents, which can have other tokens.

        Other items can have been different when it was performed.
        """
        if likeness.form not in self._alike:
            return None
        known, known_tokens = self._alike[likeness.form]
        names = {
            old: new for old, new in zip(known_tokens, likeness.tokens, strict=True) if old is not None and new is not None
        }
        if tuple([None if old is None else names.get(old) for old in known_tokens]) != likeness.tokens:
            return None
        state, before, item = self.present, self.present, likeness.item
        if item is not None:
            contents = rename(self.contents_at(known.state, item.place), item.key, names)
            if contents.forms.get(item.key) != self.contents_at(before, item.place).forms.get(item.key):
                merged = merge(self.contents_at(before, item.place), contents, [item.key])
                state = self.make_state({**before.contents, item.place: merged}, before.structure, before.tokens)
        return Transition(state, rename_answer(known.answer, names), known.ids)

    def _find_item(self, request: Request) -> Item | None:
        """Return the item of a single-item request if its table has been read, otherwise None."""
        places = self.databases.list_places(request) if request.method in _OF_ONE_ITEM else []
        if len(places) != 1 or places[0] not in self._initial:
            return None
        keys = request.keys or aws.add_keys(request, self.list_key_names(request.store)).keys
        return Item(places[0], keys[0][1]) if keys else None

    def _follow(self, request: Request, transition: Transition) -> Any:
        """Answer the request from memory."""
        self.go_on_to(transition.state)
        fill_in_ids(request.arguments, transition.ids)
        return transition.answer()

    def _perform(self, request: Request, key: int | None) -> StoreCalls[Any]:
        """Send the request to the real store, and remember the response and the next state."""
        item = self._find_item(request)
        yield from self._bring_stores_here(item)
        yield from self._read_new_tables(request)
        before, own_request = self.present, copy_request(request)
        real, self._real = cast("_RealStores", self._real), None  # unknown if the request or the read after it fails
        try:
            answer = yield partial(send, self.databases.find_performer(request), _without_preference(request))
        except Exception as error:
            answer = error
        is_refused = isinstance(answer, Exception) and is_answer(answer)
        if not request.writes or (item is not None and is_refused):
            self._real, after = real, before
        elif item is not None:
            after = yield from self._find_state_after_item(before, item, real)
        else:
            after = yield from self._find_state_after(before, own_request, answer)
        self.go_on_to(after)
        repeater = make_repeater(answer)
        if key is not None and repeater is not None:
            before.transitions[key] = Transition(self.present, repeater, list_ids(request.arguments))
        if isinstance(answer, Exception):
            raise answer
        return answer

    # ------------------------------------------------------------ the contents of the stores

    def begin(self) -> StoreCalls[None]:
        """Read the initial contents of the stores, before anything is performed. Blocking stores have been read already."""
        for name, store in self.databases.of_world.items():
            for table in (yield from find_tables(store)):
                place = self.databases.name(name) or name, table
                if place not in self._initial:
                    self._initial[place] = yield from self._read(place, ())
        self._real = _RealStores(self._initial, ())
        self._fresh = self._start = self.present = self.make_state(self._initial, ())
        if self._opening_requests:
            yield from self.begin_with(self._opening_requests)

    def begin_with(self, structure: tuple[Request, ...]) -> StoreCalls[None]:
        """Begin every trial with these structural requests."""
        self._opening_requests = structure
        self._start = self.present = yield from self._renew(structure)

    def _read_new_tables(self, request: Request) -> StoreCalls[None]:
        """Read the tables that no request has touched before. They still have their initial contents."""
        for place in self.databases.list_places(request):
            if place not in self._initial:
                self._initial[place] = yield from self._read(place, ())

    def _find_state_after_item(self, before: WorldState, item: Item, real: _RealStores) -> StoreCalls[WorldState]:
        """Return the state after a write of one item, and note it as that of the real stores. The other items there can be different."""
        contents = real.contents.get(item.place, self._initial[item.place])
        if item.key in contents.entities:
            database, table = item.place
            result = yield from read_item(self.databases.find_keeper(database), table, item.key, contents)
        else:
            result = yield from self._read(item.place, contents.key)
        self._real = real._replace(contents={**real.contents, item.place: merge(contents, result, [item.key])})
        after = merge(self.contents_at(before, item.place), result, [item.key])
        return self.make_state({**before.contents, item.place: after}, before.structure, before.tokens)

    def _find_state_after(self, before: WorldState, request: Request, answer: object) -> StoreCalls[WorldState]:
        """Return the state after a write that the real store has just performed. Record whether the structure has changed."""
        structure = before.structure
        if changes_structure(request) and not isinstance(answer, Exception):
            self._structure_changes = True
            structure = (*structure, request)
        contents = dict(before.contents)
        for place, initial in self._initial.items() if self._touches_tables(request) else ():
            if not request.tables or place[1] in request.tables:
                key_may_differ = any(map(self._touches_tables, structure))
                contents[place] = yield from self._read(place, () if key_may_differ else initial.key)
        self._real = _RealStores(contents, structure)
        return self.make_state(contents, structure, before.tokens)

    def _touches_tables(self, request: Request) -> bool:
        return self.databases.name(request.store) is not None

    def _read(self, place: Place, key: tuple[str, ...]) -> StoreCalls[Contents]:
        database, table = place
        return (yield from read(self.databases.find_keeper(database), table, key))

    def _read_all(self, structure: tuple[Request, ...]) -> StoreCalls[WorldState]:
        """Read the stores, on which these structural requests were performed, and return their state."""
        contents: dict[Place, Contents] = {}
        for place in self._initial:
            contents[place] = yield from self._read(place, ())
        self._real = _RealStores(contents, structure)
        return self.make_state(contents, structure)

    def make_state(
        self, contents: Mapping[Place, Contents], structure: tuple[Request, ...], tokens: Tokens = frozenset()
    ) -> WorldState:
        """Return the `WorldState` object for these contents, structural requests, and tokens. Equal states are one object."""
        digests = tuple(sorted((place, table_contents.digest) for place, table_contents in contents.items()))
        changes = tuple([self.key(request) or id(request) for request in structure])
        return self._states.setdefault((digests, changes, tokens), WorldState(dict(contents), structure, tokens))

    # ------------------------------------------------------------ the way back to a state

    def _bring_stores_here(self, item: Item | None = None) -> StoreCalls[None]:
        """Restore the current state in the real stores, or only one item, on which alone the next request depends."""
        structure = self.present.structure
        if self._real is None or self._real.structure != structure:
            yield from self._renew(structure)
        for place in self._initial if item is None else (item.place,):
            present = cast("_RealStores", self._real).contents.get(place, self._initial[place])
            target = self.contents_at(self.present, place)
            if item is not None:
                target = merge(present, target, [item.key])
            if present.digest == target.digest:
                continue
            yield from restore(self.databases.find_keeper(place[0]), place[1], present, target)
            if item is None:
                yield from self._check_restored(place, target)
            self._real = _RealStores({**cast("_RealStores", self._real).contents, place: target}, structure)

    def _check_restored(self, place: Place, target: Contents) -> StoreCalls[None]:
        result = yield from self._read(place, target.key)
        if result.digest != target.digest:
            raise ConfigurationError(
                f"The earlier contents of {place[1]!r} couldn't be restored, because another program writes to it, or an expiry "
                "deletes from it. Return a store from world() that only the handler changes."
            )

    def _renew(self, structure: tuple[Request, ...]) -> StoreCalls[WorldState]:
        """Create a new world, perform these structural requests in it, and return its state."""
        self.databases.renew(name_stores(self._world()))
        fresh = yield from self._read_all(())
        check_same(self._fresh.contents, fresh.contents)
        for request in structure:
            yield partial(send, self.databases.find_performer(request), _without_preference(request))
        return (yield from self._read_all(structure))
