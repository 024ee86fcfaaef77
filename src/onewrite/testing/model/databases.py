"""The database of each store, and the store that performs the requests of a client from outside the world.

Two stores with the same database share its contents. A client or collection that the world didn't create is *adopted*: its requests
are performed by a store of the world with the same database and form of values, or by a store that is created from one. Requests
therefore reach only the test's databases, regardless of the client's own connection, and an asynchronous client, which is bound to
its event loop, sends nothing itself. A database that no store of the world uses is refused: the explorer deletes and restores the
contents of tables, and must do that only to databases of the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Self, TypeAlias, cast
from urllib.parse import urlsplit

from onewrite.errors import ConfigurationError
from onewrite.testing.model.contents import Contents, Place
from onewrite.testing.taps.aws import find_client, find_service, is_dynamodb_client, make_twin, takes_plain_values
from onewrite.testing.taps.mongodb import is_pymongo_client, read_from_primary
from onewrite.testing.taps.tap import Store, check_store, find_kind, is_async
from onewrite.testing.taps.traffic import Request

# --- worlds -----------------------------------------------------------------------------------------------------------
#
# The stores of `world()` by their names, and the check that each world has the same contents as the previous one.

World: TypeAlias = Callable[[], Store | Mapping[str, Store]]


def name_stores(result: Store | Mapping[str, Store]) -> dict[str, Store]:
    """Return the stores by their names. A store outside a dict has its own name."""
    stores = dict(cast("Mapping[str, Store]", result)) if isinstance(result, Mapping) else {_find_own_name(result): result}
    if not stores:
        raise ConfigurationError(
            "world() returned no store. Return a boto3 client or Table, a pymongo collection, or a dict of these."
        )
    for store in stores.values():
        check_store(store)
    return stores


def are_async(stores: Iterable[Store]) -> bool:
    kinds = {is_async(store) for store in stores}
    if len(kinds) > 1:
        raise ConfigurationError(
            "world() returned blocking and asynchronous stores together. Return stores of one kind, all blocking or all asynchronous."
        )
    return kinds == {True}


def _find_own_name(store: Store) -> str:
    return "dynamodb" if find_kind(store) == "client" else store.name


def _list_names(stores: Mapping[str, Store]) -> list[str]:
    return [name if name == _find_own_name(store) else f"{name} ({_find_own_name(store)})" for name, store in stores.items()]


def check_same(before: Mapping[Place, Contents], after: Mapping[Place, Contents]) -> None:
    """Raise if two worlds don't begin with the same contents."""
    for place, contents in before.items():
        if after[place].digest != contents.digest:
            raise ConfigurationError(
                f"world() must return the same contents each time: {place[1]!r} contained {_describe_contents(contents)} at first, and then "
                f"{_describe_contents(after[place])}. Create or empty it in world(), and insert documents with fixed IDs."
            )


def _describe_contents(contents: Contents) -> str:
    if not contents.entities:
        return "nothing"
    first, *others = contents.entities.values()
    return f"{dict(first)!r}{' and more' if others else ''}"


# --- databases --------------------------------------------------------------------------------------------------------

_LOCAL = {"localhost": "127.0.0.1", "::1": "127.0.0.1"}


class Location(NamedTuple):
    """The location of a store's data: addresses and a region, or an object in memory."""

    addresses: frozenset[str] = frozenset()
    region: str | None = None
    memory: object = None

    def is_same(self, other: Location) -> bool:
        if self.memory is not None or other.memory is not None:
            return self.memory is other.memory
        return self.region == other.region and not self.addresses.isdisjoint(other.addresses)

    @property
    def is_mocked(self) -> bool:
        """Whether the addresses are those of AWS, at which tests reach moto."""
        return all(".amazonaws.com" in address for address in self.addresses)

    def __str__(self) -> str:
        if self.memory is not None:
            return "a separate server in memory"
        return ", ".join(sorted(self.addresses)) + (f" in {self.region}" if self.region else "")


class Databases:
    """The stores of a world and the adopted ones, by their names."""

    def __init__(self, stores: Mapping[str, Store]) -> None:
        self.of_world = stores
        self.stores = dict(stores)
        self._locations = {name: _locate(store) for name, store in stores.items()}
        self._names = {name: self._find_name(store, name) for name, store in stores.items()}  # names of the databases
        self._factories: dict[str, Callable[[], Store]] = {}

    def name(self, store: str) -> str | None:
        """Return the name of the store's database, or None for a service without tables."""
        return self._names.get(store)

    @property
    def are_in_memory(self) -> bool:
        """Whether all stores keep their data in this process, so that a forked child has its own copy."""
        return all(location.memory is not None or location.is_mocked for location in self._locations.values())

    def find_keeper(self, database: str) -> Store:
        """Return the store that reads and restores the contents of this database."""
        store = self.stores[self.find_keeper_name(database)]
        return read_from_primary(store) if find_kind(store) == "collection" else store

    def find_performer(self, request: Request) -> Store:
        """Return the store that performs a request. The store itself reads from the primary, because a stale read is the explorer's decision."""
        store = self.stores[request.store]
        return read_from_primary(store) if find_kind(store) == "collection" else store

    def list_places(self, request: Request) -> list[Place]:
        """Return the tables that a request names. A request to a service that isn't a database names none."""
        database = self.name(request.store)
        return [] if database is None else [(database, table) for table in request.tables]

    def find_keeper_name(self, database: str) -> str:
        return next(store for store, name in self._names.items() if name == database)

    def renew(self, stores: Mapping[str, Store]) -> Self:
        """Switch to the stores of a new world. Adopted stores keep their names."""
        before, after = _list_names(self.of_world), _list_names(stores)
        if before != after:
            raise ConfigurationError(f"world() made {before}, and then {after}: use the same names each time.")
        self.of_world = stores
        self.stores = dict(stores)
        self._locations = {name: _locate(store) for name, store in stores.items()}
        self.stores |= {name: make() for name, make in self._factories.items()}
        return self

    # ------------------------------------------------------------ adopting

    def adopt_client(self, client: Any) -> str:
        """Return the name of the store that performs the requests of this client."""
        if not is_dynamodb_client(client):
            return self._adopt_service(client)
        location = _locate(client)
        home = self._find_home(location, f"DynamoDB at {location}")
        plain = takes_plain_values(client)
        for name, store in self.stores.items():
            if self._names.get(name) == self._names[home] and takes_plain_values(find_client(store)) == plain:
                return name
        name = self._find_unused_name(f"{home}, {'plain' if plain else 'typed'} values")
        return self._add(name, self._names[home], lambda: make_twin(find_client(self.stores[home]), plain=plain))

    def adopt_database(self, database: Any) -> str:
        """Return the name of the store that performs the requests to a MongoDB database and its collections."""
        location = _locate_database(database) or Location(memory=database)
        home = self._find_home(location, f"the database {database.name!r} of MongoDB at {location}")
        label = f"{self._names[home].rpartition('/')[0]}/{database.name}"
        for name, other_label in self._names.items():
            if other_label == label:
                return name

        def open_store() -> Store:
            return self.stores[home].database.client[database.name][self.stores[home].name]

        return self._add(self._find_unused_name(database.name), label, open_store)

    def make_server_store(self, client: Any) -> str:
        """Return the name of a store of the world on the server of this MongoDB client."""
        location = _locate_server(client) or Location(memory=client)
        return self._find_home(location, f"MongoDB at {location}")

    def _find_home(self, location: Location, target: str) -> str:
        """Return the store of the world at this location."""
        for name, other in self._locations.items():
            if location.is_same(other):
                return name
        locations = "; ".join(dict.fromkeys(map(str, self._locations.values())))
        raise ConfigurationError(
            f"A request was sent to {target}, but no store that world() made is there (world() made stores at {locations}). The explorer "
            "deletes and restores the contents of tables, and uses only databases of the test. Create a store there in world() too, "
            "or pass the stores of build(store) to the handler."
        )

    def _adopt_service(self, client: Any) -> str:
        location, service = _locate(client), find_service(client)
        for name in self._factories:
            store = self.stores[name]
            if name not in self._names and find_service(store) == service and _locate(store).is_same(location):
                return name
        performer = make_twin(client) if is_async(client) else client
        return self._add(self._find_unused_name(service), database=None, make=lambda: performer)

    def _add(self, name: str, database: str | None, make: Callable[[], Store]) -> str:
        self._factories[name] = make
        self.stores[name] = make()
        if database is not None:
            self._names[name] = database
        return name

    def _find_name(self, store: Store, name: str) -> str:
        """Return the name of a store's database: the name of the world's first store at its location, and for MongoDB the database's own name as well."""
        first = next(other for other, location in self._locations.items() if location.is_same(self._locations[name]))
        if find_kind(store) != "collection":
            return first
        return f"{first}/{getattr(getattr(store, 'database', None), 'name', '')}"

    def _find_unused_name(self, name: str) -> str:
        names = [name, *[f"{name} ({number})" for number in range(2, len(self.stores) + 3)]]
        return next(name for name in names if name not in self.stores)


def _locate(store: Any) -> Location:
    """Return the location of the data of a store, client, or collection. An object of an unknown kind has its own location."""
    kind = cast("type[Any]", type(store))
    if hasattr(kind, "_make_api_call") or hasattr(kind, "meta"):
        meta = find_client(store).meta
        return Location(frozenset({_read_address(meta.endpoint_url)}), meta.region_name)
    return _locate_database(getattr(store, "database", None)) or Location(memory=store)


def _locate_database(database: Any) -> Location | None:
    return _locate_server(getattr(database, "client", None))


def _locate_server(client: Any) -> Location | None:
    if is_pymongo_client(client):
        addresses = client.topology_description.server_descriptions()
        return Location(frozenset({f"{_LOCAL.get(host, host)}:{port}" for host, port in addresses}))
    memory = getattr(client, "_store", None)  # mongomock's store, which several clients can share
    return None if memory is None else Location(memory=memory)


def _read_address(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{_LOCAL.get(host, host)}:{port}"
