"""Reads and restores the contents of a table or a collection. It uses the store itself, not a tap."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, TypeAlias, cast

from onewrite.core.label import is_ours
from onewrite.testing.taps.aws import find_key_value
from onewrite.testing.taps.mongodb_methods import make_document_key
from onewrite.testing.taps.tap import Store, find_kind, send
from onewrite.testing.taps.traffic import Request, StoreCalls, is_dynamodb

# --- canonical forms --------------------------------------------------------------------------------------------------
#
# A canonical form of values: hashable, and the same in every run.

_LEAVES = frozenset({int, bool, bytes, type(None)})


class NotCanonicalError(Exception):
    """Raised for a value with internal state, such as a cursor's position. It has no canonical form."""


def canonical(value: object, *, ordered: bool) -> Hashable:
    """Return the canonical form. `ordered`: the order of the names in a mapping matters, as in a MongoDB document."""
    try:
        return _canonical(value, ordered)
    except (TypeError, RecursionError, AttributeError) as error:
        raise NotCanonicalError(f"{type(value).__name__}: {error}") from error


def _canonical(value: Any, ordered: bool) -> Hashable:  # noqa: FBT001  # private, and called for each value
    kind = cast("type[Any]", type(value))
    if kind is str:
        return cast("str", value)
    if kind in _LEAVES:
        return kind.__name__, value  # with its type, because 1 == True
    if isinstance(value, Mapping):
        items = [
            (_canonical(name, ordered), _canonical(inner, ordered))
            for name, inner in cast("Mapping[Any, Any]", value).items()
        ]
        return "map", tuple(items if ordered else sorted(items, key=repr))
    if kind in (list, tuple):
        return kind.__name__, *[_canonical(inner, ordered) for inner in value]
    if isinstance(value, AbstractSet):
        members = cast("AbstractSet[Any]", value)
        return "set", *sorted([_canonical(inner, ordered) for inner in members], key=repr)
    if kind is float:
        return "float", repr(value)  # as text, because 0.0 == -0.0
    return _reduce(value, ordered)


def _reduce(value: Any, ordered: bool) -> Hashable:  # noqa: FBT001  # private, and called for each value
    """Return the parts that pickle uses for an object. The form of a class or function is its name."""
    if hasattr(value, "__next__"):
        raise TypeError("it is consumed by reading")
    if callable(value) and hasattr(value, "__qualname__"):
        return _name(value)
    reduce = copyreg.dispatch_table.get(cast("type[Any]", type(value)))
    make, args, *rest = cast("tuple[Any, ...]", reduce(value) if reduce is not None else value.__reduce_ex__(4))
    states = [list(part) if hasattr(part, "__next__") else part for part in cast("Iterable[Any]", rest)]
    return "object", _name(make), _canonical(args, ordered), _canonical(states, ordered)


def _name(value: Any) -> Hashable:
    name = f"{value.__module__}.{value.__qualname__}"
    if "<" in name:
        raise TypeError(f"{name} is created again each time")
    return "name", name


# --- keys of requests -------------------------------------------------------------------------------------------------
#
# Numbers for requests: equal requests have the same number.

_MAX_PICKLES = 100_000  # of a cache that is cleared when it's full, so it doesn't grow with the exploration


class Keys:
    def __init__(self) -> None:
        self._keys: dict[Hashable, int] = {}
        self._keys_of_pickles: dict[bytes, int | None] = {}

    def key(self, request: Request) -> int | None:
        """Return the same number for equal requests, or None for a request without a canonical form.

        Equal pickles mean equal requests, and pickling is fast, so only new pickles need a canonical form.
        """
        try:
            target = request.store, request.tables, request.method  # a collection's arguments don't contain its name
            pickle_bytes = pickle.dumps((target, dict(request.arguments), dict(request.options)))
        except Exception:  # an object's own code can raise anything while it's pickled; its canonical form might still exist
            return self._make_form_key(request)
        if pickle_bytes not in self._keys_of_pickles:
            if len(self._keys_of_pickles) == _MAX_PICKLES:
                self._keys_of_pickles.clear()
            self._keys_of_pickles[pickle_bytes] = self._make_form_key(request)
        return self._keys_of_pickles[pickle_bytes]

    def _make_form_key(self, request: Request) -> int | None:
        ordered = not is_dynamodb(request)
        try:
            arguments = [(name, canonical(value, ordered=ordered)) for name, value in request.arguments.items()]
            target = request.store, request.tables, request.method
            form = (target, tuple(sorted(arguments)), canonical(request.options, ordered=False))
        except NotCanonicalError:
            return None
        return self._keys.setdefault(form, len(self._keys) + 1)


# --- contents of tables -----------------------------------------------------------------------------------------------

Entity: TypeAlias = Mapping[str, Any]
Place: TypeAlias = tuple[str, str]  # the names of a database and of its table

_MISSING = "ResourceNotFoundException"


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a table or collection. A table that doesn't exist has no entities and no key."""

    key: tuple[str, ...]  # the names of the key's attributes
    entities: Mapping[Hashable, Entity]  # by their keys, in the form that requests use
    forms: Mapping[Hashable, Hashable]  # the canonical form of each entity, by the same key
    digest: bytes  # equal for equal entities

    def list_differing_keys(self, before: Contents) -> list[Hashable]:
        """Return the keys of the entities that have changed."""
        return [key for key in {**before.forms, **self.forms} if before.forms.get(key) != self.forms.get(key)]


def read(store: Store, table: str, key: tuple[str, ...] = ()) -> StoreCalls[Contents]:
    """Return all entities of the table or collection. Pass the `key` if you know it, to save a request."""
    if find_kind(store) == "collection":
        documents = yield partial(send, store, _make_request("find", {}, table))
        return _make_contents(("_id",), documents, ordered=True)
    try:
        key = key or (yield from _make_key(store, table))
        items = yield from _scan(store, table)
    except Exception as error:
        response = cast("Mapping[str, Any]", getattr(error, "response", None) or {})
        if response.get("Error", {}).get("Code") != _MISSING:
            raise
        return Contents(key=(), entities={}, forms={}, digest=b"")
    return _make_contents(key, items, ordered=False)


def restore(store: Store, table: str, present: Contents, target: Contents) -> StoreCalls[None]:
    """Restore the target in the table. Only entities that differ are deleted or written."""
    is_collection = find_kind(store) == "collection"
    if is_collection:
        remove, add, common = ("delete_one", "filter"), ("insert_one", "document"), dict[str, Any]()
    else:
        remove, add, common = ("DeleteItem", "Key"), ("PutItem", "Item"), {"TableName": table}
    for name, entity in present.entities.items():
        is_replaced = name in target.forms and not is_collection  # by a put
        if present.forms[name] != target.forms.get(name) and not is_replaced:
            key = {part: entity[part] for part in present.key}
            yield partial(send, store, _make_request(remove[0], {**common, remove[1]: key}, table))
    for name, entity in target.entities.items():
        if target.forms[name] != present.forms.get(name):
            yield partial(send, store, _make_request(add[0], {**common, add[1]: entity}, table))


def merge(present: Contents, changes: Contents, keys: Iterable[Hashable]) -> Contents:
    """Return the current contents, with the entities of these keys replaced by those in `changes`."""
    entities, forms = dict(present.entities), dict(present.forms)
    for key in keys:
        entities.pop(key, None)
        forms.pop(key, None)
        if key in changes.forms:
            entities[key], forms[key] = changes.entities[key], changes.forms[key]
    return Contents(present.key, entities, forms, _compute_digest(forms))


def find_tables(store: Store) -> StoreCalls[tuple[str, ...]]:
    """Return the existing tables of the store: a Table or collection itself, or all tables of a client."""
    if find_kind(store) != "client":
        return (store.name,)
    tables: list[str] = []
    more: dict[str, Any] = {}
    while True:
        answer = yield partial(store.list_tables, **more)
        tables += answer["TableNames"]
        if "LastEvaluatedTableName" not in answer:
            return tuple(tables)
        more = {"ExclusiveStartTableName": answer["LastEvaluatedTableName"]}


def _make_contents(key: tuple[str, ...], members: list[Entity], *, ordered: bool) -> Contents:
    entities = {make_document_key(entity["_id"]) if ordered else find_key_value(key, entity): entity for entity in members}
    # MongoDB stores a ledger's marks in arrays, whose order doesn't matter to the ledger. Documents that received the same messages in
    # different orders are therefore equal, so there are far fewer states.
    forms = {
        name: canonical(
            {field: _turn_into_sets(value) if ordered and is_ours(field) else value for field, value in entity.items()},
            ordered=ordered,
        )
        for name, entity in entities.items()
    }
    return Contents(key, entities, forms, _compute_digest(forms))


def _turn_into_sets(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _turn_into_sets(inner) for name, inner in cast("Entity", value).items()}
    if not isinstance(value, list):
        return value
    members = cast("list[object]", value)
    return frozenset(members) if all(isinstance(member, bytes | str) for member in members) else members


def _compute_digest(forms: Mapping[Hashable, Hashable]) -> bytes:
    text = repr(sorted(forms.values(), key=repr))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _make_request(method: str, arguments: Mapping[str, Any], table: str) -> Request:
    return Request("", method, arguments, keys=None, writes=True, tables=(table,))


def _make_key(store: Store, table: str) -> StoreCalls[tuple[str, ...]]:
    answer = yield partial(send, store, _make_request("DescribeTable", {"TableName": table}, table))
    return tuple(part["AttributeName"] for part in answer["Table"]["KeySchema"])


def _scan(store: Store, table: str) -> StoreCalls[list[Entity]]:
    items: list[Entity] = []
    arguments: dict[str, Any] = {"TableName": table, "ConsistentRead": True}
    while True:
        answer = yield partial(send, store, _make_request("Scan", arguments, table))
        items += answer["Items"]
        if "LastEvaluatedKey" not in answer:
            return items
        arguments = {**arguments, "ExclusiveStartKey": answer["LastEvaluatedKey"]}
