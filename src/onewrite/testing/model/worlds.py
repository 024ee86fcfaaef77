"""What `world()` makes: its stores by their names, and whether each world is like the one before."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.testing.model.contents import Contents
from onewrite.testing.model.databases import Databases
from onewrite.testing.model.transition import Place
from onewrite.testing.taps.tap import Store, check_store, is_async, kind_of

World: TypeAlias = Callable[[], Store | Mapping[str, Store]]


def named(given: Store | Mapping[str, Store]) -> dict[str, Store]:
    """The stores by their names. A store that is not in a dict has its own name."""
    stores = dict(cast("Mapping[str, Store]", given)) if isinstance(given, Mapping) else {_own_name(given): given}
    if not stores:
        raise ConfigurationError(
            "world() made no store: return a boto3 client or Table, a pymongo collection, or a dict of these."
        )
    for store in stores.values():
        check_store(store)
    return stores


def renewed(databases: Databases, stores: Mapping[str, Store]) -> Databases:
    """The databases, gone over to the stores of a new world."""
    before, after = _names(databases.of_world), _names(stores)
    if before != after:
        raise ConfigurationError(f"world() made {before}, and then {after}: use the same names each time.")
    return databases.renewed(stores)


def are_async(stores: Iterable[Store]) -> bool:
    kinds = {is_async(store) for store in stores}
    if len(kinds) > 1:
        raise ConfigurationError("world() made asynchronous stores beside others: make all of them of one kind.")
    return kinds == {True}


def _own_name(store: Store) -> str:
    return "dynamodb" if kind_of(store) == "client" else store.name


def _names(stores: Mapping[str, Store]) -> list[str]:
    return [name if name == _own_name(store) else f"{name} ({_own_name(store)})" for name, store in stores.items()]


def check_same(before: Mapping[Place, Contents], after: Mapping[Place, Contents]) -> None:
    """Raise if a new world does not begin as the one before."""
    for place, contents in before.items():
        if after[place].digest != contents.digest:
            raise ConfigurationError(
                f"world() must make the same each time: {place[1]!r} began with {_in_words(contents)}, and then with "
                f"{_in_words(after[place])}. Let it make a new one, or empty it first, and give what it puts there its ids."
            )


def _in_words(contents: Contents) -> str:
    for entity in contents.entities.values():
        return f"{dict(entity)!r}" + " and more" * (len(contents.entities) > 1)
    return "nothing"
