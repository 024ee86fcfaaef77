"""A store as a machine that is learnt: known requests are answered from a table, without the store.

An exploration performs one request at a time, so that what a request answers, and what becomes of the data, depends on nothing
but the data and the request. Both are kept. A request that is new at the present state is performed by the real store. If that
holds something else, it is first made to hold what the present state does, by putting back the entities that differ.

A state is what the tables hold, together with the requests that have changed more than that, as creating an index does: there is
no way back from those but a new world, in which they are performed again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.model.canonical import NotCanonicalError, canonical
from onewrite.testing.model.contents import Contents, read, restore, tables_of
from onewrite.testing.model.transition import Place, State, Transition, changes_structure, copied, fill_in_ids, repeated
from onewrite.testing.taps.steps import Steps, arun, run
from onewrite.testing.taps.tap import Gate, Request, Store, is_async, kind_of, send, tap

World: TypeAlias = Callable[[], Store | Mapping[str, Store]]

_MOST_SPELLINGS = 100_000  # they save time, and no more


class Machine:
    """`world` makes the stores, one or a dict of them. It is called once, and again where nothing else leads back."""

    def __init__(self, world: World) -> None:
        self.known = 0  # requests that were answered from the table
        self.performed = 0  # requests that were performed by the store
        self.why_slow: str | None = None  # why every request is performed by now
        self._world = world
        self._given = world()
        self._stores = _named(self._given)
        self.is_async = _are_async(self._stores.values())
        self._initial: dict[Place, Contents] = {}  # of every table that was ever touched
        self._states: dict[Hashable, State] = {}
        self._start = self._state = State({}, ())  # until it is looked at
        self._real: State | None = None  # what the stores hold; None: not known
        self._writes: list[Request] = []  # since the last reset
        self._keys: dict[Hashable, int] = {}
        self._spellings: dict[bytes, int | None] = {}
        if not self.is_async:
            run(self._begin())

    @property
    def state(self) -> Hashable:
        """The present state: the same object whenever the stores hold the same."""
        return self._state

    def stores(self, gate: Gate) -> Any:
        """What `world` gives, behind a gate. It stays good whatever becomes of the stores behind it."""
        return tap(self._given, gate)

    def reset(self) -> None:
        """Be where the world begins again."""
        self._state = self._start
        self._writes = []
        if self.why_slow is not None:
            self._real = None

    def perform(self, request: Request) -> Any:
        """What the request answers, or raises, at the present state, which it moves."""
        key = self.key(request)
        transition = self._known(key)
        return run(self._perform(request, key)) if transition is None else self._follow(request, transition)

    async def aperform(self, request: Request) -> Any:
        """`perform` for asynchronous stores."""
        if not self._initial:
            await arun(self._begin())
        key = self.key(request)
        transition = self._known(key)
        return await arun(self._perform(request, key)) if transition is None else self._follow(request, transition)

    def _known(self, key: int | None) -> Transition | None:
        return None if key is None or self.why_slow is not None else self._state.known.get(key)

    def _follow(self, request: Request, transition: Transition) -> Any:
        self.known += 1
        self._state = transition.state
        if request.writes:
            self._writes.append(transition.request)
        answer = transition.answer()
        fill_in_ids(request.arguments, answer)
        return answer

    def _perform(self, request: Request, key: int | None) -> Steps[Any]:
        _check_session(request)
        yield from self._reach()
        yield from self._notice(request)
        before, kept = self._state, copied(request)
        self.performed += 1
        self._real = None  # until it is known what came of it
        try:
            answer = yield partial(send, self._stores, request)
        except Exception as error:
            answer = error
        self._real = self._state = yield from self._look(before, kept, answer)
        if request.writes:
            self._writes.append(kept)
        again = repeated(answer)
        if key is not None and again is not None:
            before.known[key] = Transition(kept, self._state, again)
        if isinstance(answer, Exception):
            raise answer
        return answer

    # ------------------------------------------------------------ what the stores hold

    def _begin(self) -> Steps[None]:
        found: dict[Place, Contents] = {}
        for name, store in self._stores.items():
            for table in (yield from tables_of(store)):
                found[name, table] = yield from read(store, table)
        self._initial = found
        self._start = self._real = self._state = self._interned(self._initial, ())

    def _notice(self, request: Request) -> Steps[None]:
        """Look at tables that no request has touched before: they still hold what the world put there."""
        for table in request.tables:
            place = (request.store, table)
            if place not in self._initial:
                self._initial[place] = yield from read(self._stores[request.store], table)

    def _look(self, before: State, request: Request, answer: object) -> Steps[State]:
        """The state that a request has led to."""
        if not request.writes:
            return before
        structure = before.structure
        if changes_structure(request) and not isinstance(answer, Exception):
            structure = (*structure, request)
        touched = [place for place in self._initial if not request.tables or place[1] in request.tables]
        contents = dict(before.contents)
        for place in touched:
            contents[place] = yield from self._read(place, () if structure else self._initial[place].key)
        return self._interned(contents, structure)

    def _read(self, place: Place, key: tuple[str, ...]) -> Steps[Contents]:
        name, table = place
        return (yield from read(self._stores[name], table, key))

    def _interned(self, contents: Mapping[Place, Contents], structure: tuple[Request, ...]) -> State:
        held = tuple(sorted((place, found.digest) for place, found in contents.items()))
        changes = tuple([self.key(request) or id(request) for request in structure])
        return self._states.setdefault((held, changes), State(dict(contents), structure))

    # ------------------------------------------------------------ the way back to a state

    def _reach(self) -> Steps[None]:
        """Make the stores hold what the present state does."""
        if self._real is self._state:
            return
        if self._real is None or self._real.structure != self._state.structure:
            yield from self._renew(self._state.structure)
        astray = yield from self._restore()
        if astray is None:
            self._real = self._state
            return
        self.why_slow = (
            f"{astray[1]!r} did not take back what it had held, so every request is performed anew: is there somebody else at "
            "work, or does it change by itself?"
        )
        yield from self._renew(self._writes)
        self._real = self._state = yield from self._everything(self._state.structure)

    def _restore(self) -> Steps[Place | None]:
        """Put back what differs; the place where that did not succeed, if any."""
        assert self._real is not None  # noqa: S101  # it is what `_renew` has left, or better
        for place, initial in self._initial.items():
            present = self._real.contents.get(place, initial)
            wanted = self._state.contents.get(place, initial)
            if present.digest != wanted.digest:
                yield from restore(self._stores[place[0]], place[1], present, wanted)
                found = yield from self._read(place, wanted.key)
                if found.digest != wanted.digest:
                    return place
        return None

    def _renew(self, requests: Iterable[Request]) -> Steps[None]:
        """A new world, and in it the requests."""
        given = _named(self._world())
        if _names(given) != _names(self._stores):
            raise ConfigurationError(
                f"world() made {_names(self._stores)}, and then {_names(given)}: use the same names each time."
            )
        self._stores = given
        fresh = yield from self._everything(())
        self._check_same(fresh)
        structure: tuple[Request, ...] = ()
        for request in requests:
            try:
                yield partial(send, self._stores, request)
            except Exception:  # noqa: S112  # as it did before
                continue
            structure = (*structure, request) if changes_structure(request) else structure
        self._real = yield from self._everything(structure)

    def _everything(self, structure: tuple[Request, ...]) -> Steps[State]:
        contents: dict[Place, Contents] = {}
        for place in self._initial:
            contents[place] = yield from self._read(place, ())
        return self._interned(contents, structure)

    def _check_same(self, fresh: State) -> None:
        for place, before in self._start.contents.items():
            if fresh.contents[place].digest != before.digest:
                raise ConfigurationError(
                    f"world() must make the same each time: {place[1]!r} began with {_shown(before)}, and then with "
                    f"{_shown(fresh.contents[place])}. Let it make a new one, or empty it first, and give what it puts there its ids."
                )

    # ------------------------------------------------------------ keys

    def key(self, request: Request) -> int | None:
        """A number for all requests that are the same; None for one that has no spelling."""
        try:
            spelling = pickle.dumps((request.store, request.method, dict(request.arguments), dict(request.options)))
        except Exception:
            return self._spelt(request)
        if spelling not in self._spellings:
            if len(self._spellings) == _MOST_SPELLINGS:
                self._spellings.clear()
            self._spellings[spelling] = self._spelt(request)
        return self._spellings[spelling]

    def _spelt(self, request: Request) -> int | None:
        ordered = kind_of(self._stores[request.store]) == "collection"
        try:
            arguments = [(name, canonical(value, ordered=ordered)) for name, value in request.arguments.items()]
            form = (request.store, request.method, tuple(sorted(arguments)), canonical(request.options, ordered=False))
        except NotCanonicalError:
            return None
        return self._keys.setdefault(form, len(self._keys) + 1)


def _named(given: Store | Mapping[str, Store]) -> dict[str, Store]:
    stores = dict(cast("Mapping[str, Store]", given)) if isinstance(given, Mapping) else {_own_name(given): given}
    if not stores:
        raise ConfigurationError(
            "world() made no store: return a boto3 client or Table, a pymongo collection, or a dict of these."
        )
    for store in stores.values():
        kind_of(store)
    return stores


def _are_async(stores: Iterable[Store]) -> bool:
    kinds = {is_async(store) for store in stores}
    if len(kinds) > 1:
        raise ConfigurationError("world() made asynchronous stores beside others: make all of them of one kind.")
    return kinds == {True}


def _own_name(store: Store) -> str:
    return "dynamodb" if kind_of(store) == "client" else store.name


def _names(stores: Mapping[str, Store]) -> list[str]:
    return [name if name == _own_name(store) else f"{name} ({_own_name(store)})" for name, store in stores.items()]


def _shown(contents: Contents) -> str:
    for entity in contents.entities.values():
        return f"{dict(entity)!r}" + " and more" * (len(contents.entities) > 1)
    return "nothing"


def _check_session(request: Request) -> None:
    if getattr(request.arguments.get("session"), "in_transaction", False):
        raise ConfigurationError(
            "A MongoDB transaction is committed where no request is seen: explore the handler without it."
        )
