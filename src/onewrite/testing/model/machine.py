"""A store as a state machine: a request that was seen before at the present state is answered from memory.

An exploration performs one request at a time, so what a request answers and what becomes of the data depend on nothing but
the data and the request. The machine remembers both. A request that is new at the present state is performed by the real
store. If the real store holds something else than the present state, it is first brought there: the entities that differ
are put back.

A state consists of what the tables hold, of the tokens of DynamoDB's transactions, and of the requests that have changed
more than that, such as the creation of an index. Such a change cannot be undone, so going back to before it takes a new world,
in which the structural requests are performed again.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Hashable, Iterable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from onewrite.errors import ConfigurationError
from onewrite.testing.model.contents import Contents, Entity, read, restore, tables_of
from onewrite.testing.model.databases import Databases
from onewrite.testing.model.keys import Keys
from onewrite.testing.model.tokens import TOKEN, answer_if_known, token_of, without_token
from onewrite.testing.model.transactions import Answered, Transactions
from onewrite.testing.model.transition import (
    Place,
    State,
    Tokens,
    Transition,
    changes_structure,
    copied,
    fill_in_ids,
    ids_in,
    reads_structure,
    repeated,
)
from onewrite.testing.model.worlds import World, are_async, check_same, named, renewed
from onewrite.testing.taps.aws import dynamodb
from onewrite.testing.taps.mongodb import methods as mongodb
from onewrite.testing.taps.store_calls import StoreCalls, amake_calls, make_calls
from onewrite.testing.taps.tap import Gate, Request, kind_of, send, tap
from onewrite.testing.taps.traffic import Key

Position: TypeAlias = tuple[State, tuple[State, ...]]


class Machine:
    """`world` makes the store, or a dict of stores. It is called once, and again where only a new world leads back."""

    def __init__(self, world: World, databases: Databases | None = None, kept: tuple[Request, ...] = ()) -> None:
        self.known = 0  # how many requests were answered from memory
        self.performed = 0  # how many requests were performed by the store
        self.why_slow: str | None = None  # once it is set, every request is performed by the store
        self._world = world
        self._given = world()
        stores = named(self._given)
        self.databases = Databases(stores) if databases is None else renewed(databases, stores)
        self._kept = kept  # the structural requests with which each trial begins
        self.is_async = are_async(stores.values())
        self._initial: dict[Place, Contents] = {}  # what every table that was ever touched held in the beginning
        self._states: dict[Hashable, State] = {}
        self._fresh = self._start = self._state = State({}, ())  # until `_begin` has read the stores
        self._real: State | None = None  # what the real stores hold; None if that is not known
        self._structure_changes = False  # some request has changed more than contents
        self._earlier: tuple[State, ...] = ()
        self._writes: list[Request] = []  # since the last reset
        self._transactions = Transactions(self)
        self.key = Keys().key
        if not self.is_async:
            make_calls(self._begin())

    @property
    def state(self) -> Hashable:
        """The present state with the open transactions: equal whenever the stores hold the same."""
        transactions = self._transactions.form
        return self._state if transactions is None else (self._state, transactions)

    def stores(self, gate: Gate) -> Any:
        """What `world` returns, behind a gate. It stays usable when the machine makes a new world."""
        return tap(self._given, gate, explored=True)

    @property
    def earlier(self) -> tuple[State, ...]:
        """The states since the last reset that are no longer present, as far as the stores can be brought back to them."""
        return self._earlier if self.why_slow is None else ()

    @property
    def position(self) -> Position:
        """The present state, and the earlier ones."""
        return self._state, self._earlier

    def go_to(self, position: Position) -> None:
        """Go to where the stores have been since the last `reset`."""
        self._state, self._earlier = position

    @contextmanager
    def looking_at(self, state: State) -> Generator[None]:
        """Answer reads as the store does at another state."""
        present, self._state = self._state, state
        try:
            yield
        finally:
            self._state = present

    def key_names(self, store: str) -> dict[str, tuple[str, ...]]:
        """The attributes that are the key of each table in a store's database, as far as tables were read."""
        database = self.databases.name(store)
        return {place[1]: found.key for place, found in self._initial.items() if place[0] == database}

    def keys_held(self) -> frozenset[Key]:
        """The keys of all that the stores hold now, as requests name them."""
        return frozenset(
            key
            for place in self._initial
            for entity in self.held(self._state, place).entities.values()
            for key in self._keys_of(place, entity)
        )

    def _keys_of(self, place: Place, entity: Entity) -> tuple[Key, ...]:
        database, table = place
        if kind_of(self.databases.keeper(database)) == "collection":
            return mongodb.request_of("", table, "insert_one", {"document": entity}, {}).keys or ()
        put = {"TableName": table, "Item": entity}
        return dynamodb.request_of("", "PutItem", put, {table: self._initial[place].key}).keys or ()

    def anew(self) -> Machine:
        """A machine that remembers no request. It takes the place of this one, and knows what this one has adopted."""
        return Machine(self._world, self.databases, self._kept)

    def begin_with(self, structure: tuple[Request, ...]) -> Any:
        """Let every trial begin with these structural requests. Awaited if the stores are asynchronous."""
        return (amake_calls if self.is_async else make_calls)(self._begin_with(structure))

    @contextmanager
    def unchanged(self) -> Generator[None]:
        """Come back to the present state at the end of the block."""
        position, writes = self.position, list(self._writes)
        try:
            yield
        finally:
            self.go_to(position)
            self._writes = writes

    def reset(self) -> None:
        """Go back to the state in which the world began."""
        self._state = self._start
        self._earlier = ()
        self._transactions.clear()
        self._writes = []
        if self.why_slow is not None:
            self._real = None

    async def abegin(self) -> None:
        """Read what asynchronous stores hold. Nothing can be performed before that."""
        await amake_calls(self._begin())

    def perform(self, request: Request, key: int | None = None) -> Any:
        """Answer the request, or raise, as the store does at the present state, and go on to the state that follows.

        Who has made the key of the request already may give it.
        """
        key = self._key_of_plain(request, key)
        transition = self._known(key)
        return make_calls(self._answer(request)) if transition is None else self._follow(request, transition)

    async def aperform(self, request: Request, key: int | None = None) -> Any:
        """`perform` for asynchronous stores."""
        key = self._key_of_plain(request, key)
        transition = self._known(key)
        return await amake_calls(self._answer(request)) if transition is None else self._follow(request, transition)

    def blockers(self, request: Request) -> Any:
        """The owners of the transactions that must end before this request is answered. The result is awaited if the stores are."""
        return (amake_calls if self.is_async else make_calls)(self._blockers(request))

    def _blockers(self, request: Request) -> StoreCalls[frozenset[str]]:
        names = yield from self._transactions.blockers(request)
        return frozenset(owner for owner, _ in names)

    @property
    def has_transactions(self) -> bool:
        """Is a transaction open?"""
        return self._transactions.form is not None

    def end_transactions_of(self, owner: str) -> bool:
        """Abort what this delivery, which has ended, has left open. Had that written anything?"""
        return self._transactions.end_all_of(owner)

    def forget_tokens(self, forgotten: Collection[str] | None = None) -> bool:
        """Forget these tokens of DynamoDB's transactions, or all, as time passes. Were there any of them?"""
        before = self._state.tokens
        left = frozenset(known for known in before if forgotten is not None and known[0] not in forgotten)
        if left != before:
            self._state = self._state_of(self._state.contents, self._state.structure, left)
        return left != before

    def _key_of_plain(self, request: Request, key: int | None) -> int | None:
        """The key of a request whose answer depends on nothing but the present state and itself."""
        is_special = request.transaction is not None or TOKEN in request.arguments
        return None if is_special or (request.writes and self.has_transactions) else key or self.key(request)

    def _answer(self, request: Request) -> StoreCalls[Any]:
        """Answer the request, with regard to tokens and transactions."""
        _check_session(request)
        # Where the request is sent although it must wait, it waits until the server aborts what it waits for.
        self._transactions.expire((yield from self._transactions.blockers(request)))
        if request.transaction is not None:
            return (yield from self._transactions.answer(request, request.transaction))
        if TOKEN in request.arguments:
            return (yield from self._answer_once(request))
        return (yield from self._answer_plain(request))

    def _answer_once(self, request: Request) -> StoreCalls[Any]:
        """Answer a request with a token. A transaction that was cancelled is not remembered."""
        known = answer_if_known(self.databases.stores[request.store], request, self._state, self.key)
        if known is not None:
            return known
        answer = yield from self._answer_plain(without_token(request))
        state = self._state
        self._state = self._state_of(state.contents, state.structure, state.tokens | {token_of(request, self.key)})
        return answer

    def _answer_plain(self, request: Request) -> StoreCalls[Any]:
        key = self.key(request)
        transition = self._known(key)
        if transition is not None:
            return self._follow(request, transition)
        return (yield from self._perform(request, key))

    # ------------------------------------------------------------ what the transactions need

    @property
    def present(self) -> State:
        return self._state

    @present.setter
    def present(self, state: State) -> None:
        self._go_on_to(state)

    def at(self, state: State, request: Request) -> StoreCalls[Answered]:
        """What a plain request does at another state than the present one, which stays as it is."""
        position = self.position
        self._state = state
        try:
            answer = yield from self._answer_plain(request)
            return Answered(self._state, answer)
        except Exception as error:
            return Answered(self._state, error=error)
        finally:
            self.go_to(position)

    def held(self, state: State, place: Place) -> Contents:
        return state.contents.get(place, self._initial[place])

    def state_of(self, contents: Mapping[Place, Contents], like: State) -> State:
        return self._state_of(contents, like.structure, like.tokens)

    def is_lasting(self, request: Request) -> bool:
        """Does the request read nothing that anything here has changed, such as the indexes of a table?"""
        return reads_structure(request) and not self._structure_changes

    def _known(self, key: int | None) -> Transition | None:
        return None if key is None or self.why_slow is not None else self._state.known.get(key)

    def _follow(self, request: Request, transition: Transition) -> Any:
        """Answer the request from memory."""
        self.known += 1
        self._go_on_to(transition.state)
        if request.writes:
            self._writes.append(transition.request)
        fill_in_ids(request.arguments, transition.ids)
        return transition.answer()

    def _perform(self, request: Request, key: int | None) -> StoreCalls[Any]:
        """Let the real store answer the request, and remember what came of it."""
        yield from self._bring_stores_here()
        yield from self._read_new_tables(request)
        before, kept = self._state, copied(request)
        self.performed += 1
        self._real = None  # it is not known if the request or the reading after it fails
        try:
            answer = yield partial(send, self.databases.stores, request)
        except Exception as error:
            answer = error
        self._real = after = yield from self._state_after(before, kept, answer)
        self._go_on_to(after)
        if request.writes:
            self._writes.append(kept)
        again = repeated(answer)
        if key is not None and again is not None:
            before.known[key] = Transition(kept, self._state, again, ids_in(request.arguments))
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _go_on_to(self, state: State) -> None:
        if state is not self._state:
            self._earlier = (*self._earlier, self._state)
            self._state = state

    # ------------------------------------------------------------ what the stores hold

    def _begin(self) -> StoreCalls[None]:
        """Read what the stores hold in the beginning."""
        found: dict[Place, Contents] = {}
        for name, store in self.databases.of_world.items():
            for table in (yield from tables_of(store)):
                place = self.databases.name(name) or name, table
                if place not in found:
                    found[place] = yield from self._read(place, ())
        self._initial = found
        self._fresh = self._start = self._real = self._state = self._state_of(self._initial, ())
        if self._kept:
            yield from self._begin_with(self._kept)

    def _begin_with(self, structure: tuple[Request, ...]) -> StoreCalls[None]:
        yield from self._renew(structure)
        assert self._real is not None  # noqa: S101  # `_renew` has seen to that
        self._kept = structure
        self._start = self._state = self._real

    def _read_new_tables(self, request: Request) -> StoreCalls[None]:
        """Read the tables that no request has touched before. They still hold what they held in the beginning."""
        for place in self.databases.places_of(request):
            if place not in self._initial:
                self._initial[place] = yield from self._read(place, ())

    def _state_after(self, before: State, request: Request, answer: object) -> StoreCalls[State]:
        """The state to which a request has led that the real store has just performed."""
        if not request.writes:
            return before
        structure = before.structure
        if changes_structure(request) and not isinstance(answer, Exception):
            self._structure_changes = True
            structure = (*structure, request)
        contents = dict(before.contents)
        for place, initial in self._initial.items() if self._touches_tables(request) else ():
            if not request.tables or place[1] in request.tables:
                changed = any(map(self._touches_tables, structure))
                contents[place] = yield from self._read(place, () if changed else initial.key)
        return self._state_of(contents, structure, before.tokens)

    def _touches_tables(self, request: Request) -> bool:
        return self.databases.name(request.store) is not None

    def _read(self, place: Place, key: tuple[str, ...]) -> StoreCalls[Contents]:
        database, table = place
        return (yield from read(self.databases.keeper(database), table, key))

    def _read_all(self, structure: tuple[Request, ...]) -> StoreCalls[State]:
        contents: dict[Place, Contents] = {}
        for place in self._initial:
            contents[place] = yield from self._read(place, ())
        return self._state_of(contents, structure)

    def _state_of(
        self, contents: Mapping[Place, Contents], structure: tuple[Request, ...], tokens: Tokens = frozenset()
    ) -> State:
        """The one `State` object for these contents, this structure and these tokens."""
        held = tuple(sorted((place, found.digest) for place, found in contents.items()))
        changes = tuple([self.key(request) or id(request) for request in structure])
        return self._states.setdefault((held, changes, tokens), State(dict(contents), structure, tokens))

    # ------------------------------------------------------------ the way back to a state

    def _bring_stores_here(self) -> StoreCalls[None]:
        """Make the real stores hold what the present state says."""
        if self._real is self._state:
            return
        if self._real is None or self._real.structure != self._state.structure:
            yield from self._renew(self._state.structure)
        failed = yield from self._restore()
        if failed is None:
            self._real = self._state
            return
        self.why_slow = (
            f"{failed[1]!r} did not take back what it had held, so every request is performed anew: does somebody else write "
            "to it, or does it change by itself?"
        )
        yield from self._renew(self._writes)
        self._real = self._state = yield from self._read_all(self._state.structure)

    def _restore(self) -> StoreCalls[Place | None]:
        """Put back what differs. The result is the first place where that failed, or None."""
        assert self._real is not None  # noqa: S101  # `_bring_stores_here` has seen to that
        for place, initial in self._initial.items():
            present = self._real.contents.get(place, initial)
            wanted = self._state.contents.get(place, initial)
            if present.digest != wanted.digest:
                yield from restore(self.databases.keeper(place[0]), place[1], present, wanted)
                found = yield from self._read(place, wanted.key)
                if found.digest != wanted.digest:
                    return place
        return None

    def _renew(self, requests: Iterable[Request]) -> StoreCalls[None]:
        """Make a new world, and perform these requests in it."""
        renewed(self.databases, named(self._world()))
        fresh = yield from self._read_all(())
        check_same(self._fresh.contents, fresh.contents)
        structure: tuple[Request, ...] = ()
        for request in requests:
            try:
                yield partial(send, self.databases.stores, request)
            except Exception:  # noqa: S112  # it failed the first time too
                continue
            structure = (*structure, request) if changes_structure(request) else structure
        self._real = yield from self._read_all(structure)


def _check_session(request: Request) -> None:
    if getattr(request.arguments.get("session"), "in_transaction", False):
        raise ConfigurationError(
            "A transaction of this session cannot be explored, since its commit would not be seen: start the session in the "
            "handler, as collection.database.client.start_session(), with the collection that build() is given."
        )
