"""Reads and restores the contents of a table or a collection. It uses the store itself, not a tap."""

from __future__ import annotations

import copyreg
import pickle
from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import takewhile
from typing import Any, TypeAlias, cast

from onewrite.core.label import is_ours
from onewrite.testing.model.tokens import ENDED_ATTEMPT, Names, has_effect, read_token, rename_item
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

_MAX_PICKLES = 100_000  # The cache is cleared when it's full, because it would grow with the exploration.


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

_DUPLICATE_KEY = 11000
_Change: TypeAlias = tuple[str, Mapping[str, Any]]  # a method, and its arguments without the table
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
        return _make_contents(("_id",), {make_document_key(each["_id"]): each for each in documents}, ordered=True)
    try:
        key = key or (yield from _make_key(store, table))
        items = yield from _scan(store, table)
    except Exception as error:
        response = cast("Mapping[str, Any]", getattr(error, "response", None) or {})
        if response.get("Error", {}).get("Code") != _MISSING:
            raise
        return Contents(key=(), entities={}, forms={}, digest=b"")
    return _make_contents(key, {find_key_value(key, item): item for item in items}, ordered=False)


def read_item(store: Store, table: str, name: Hashable, like: Contents) -> StoreCalls[Contents]:
    """Return one item of a DynamoDB table as contents. `like` is contents that have an item with the same key."""
    key = {part: like.entities[name][part] for part in like.key}
    arguments = {"TableName": table, "Key": key, "ConsistentRead": True}
    answer = yield partial(send, store, _make_request("GetItem", arguments, table))
    return _make_contents(like.key, {name: answer["Item"]} if "Item" in answer else {}, ordered=False)


def restore(store: Store, table: str, present: Contents, target: Contents) -> StoreCalls[None]:
    """Restore the target in the table. Only entities that differ are deleted or written."""
    if find_kind(store) == "collection":
        changes, common = [*_restore_documents(present, target)], {}
    else:
        changes, common = [*_restore_items(present, target)], {"TableName": table}
    try:
        for method, arguments in changes:
            yield partial(send, store, _make_request(method, {**common, **arguments}, table))
    except Exception as error:
        if getattr(error, "code", None) != _DUPLICATE_KEY:
            raise
        # A unique index refuses a replacement as long as another document still has its value.
        yield partial(send, store, _make_request("delete_many", {"filter": {}}, table))
        for document in target.entities.values():
            yield partial(send, store, _make_request("insert_one", {"document": document}, table))


def _restore_items(present: Contents, target: Contents) -> Iterator[_Change]:
    for name in target.list_differing_keys(present):
        if name in target.entities:
            yield "PutItem", {"Item": target.entities[name]}
        else:
            yield "DeleteItem", {"Key": {part: present.entities[name][part] for part in present.key}}


def _restore_documents(present: Contents, target: Contents) -> Iterator[_Change]:
    """Yield the changes that restore a collection in its natural order, by which a read without `sort` finds its documents.

    A replaced document keeps its place, and an inserted one comes last.
    """
    common = [name for name in present.entities if name in target.entities]
    in_place = [name for name, other in zip(common, target.entities, strict=False) if name == other]
    kept = {*takewhile(lambda name: name in in_place, target.entities)}
    for name in present.entities:
        if name not in kept:
            yield "delete_one", {"filter": {"_id": present.entities[name]["_id"]}}
    for name, document in target.entities.items():
        if name not in kept:
            yield "insert_one", {"document": document}
        elif present.forms[name] != target.forms[name]:
            yield "replace_one", {"filter": {"_id": document["_id"]}, "replacement": document}


def rename(contents: Contents, name: Hashable, names: Names) -> Contents:
    """Return contents of one item, with its token replaced."""
    item = contents.entities.get(name)
    return _make_contents(contents.key, {} if item is None else {name: rename_item(item, names)}, ordered=False)


def forget_attempts(contents: Contents, tokens: frozenset[str]) -> Contents:
    """Return the contents with one token in place of these."""
    for name, item in contents.entities.items():
        token = read_token(item)
        if token in tokens and not has_effect(item):
            contents = merge(contents, rename(contents, name, {token: ENDED_ATTEMPT}), [name])
    return contents


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


def _make_contents(key: tuple[str, ...], entities: Mapping[Hashable, Entity], *, ordered: bool) -> Contents:
    forms = {name: _make_form(entity, ordered=ordered) for name, entity in entities.items()}
    return Contents(key, entities, forms, _compute_digest(forms))


def _make_form(entity: Entity, *, ordered: bool) -> Hashable:
    """Return the canonical form of an entity. `ordered`: it is a document of MongoDB.

    MongoDB stores a ledger's marks in arrays, whose order doesn't matter to the ledger. Documents that received the same messages in
    different orders are therefore equal, so there are far fewer states.
    """
    if ordered:
        entity = {field: _turn_into_sets(value) if is_ours(field) else value for field, value in entity.items()}
    return canonical(entity, ordered=ordered)


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
