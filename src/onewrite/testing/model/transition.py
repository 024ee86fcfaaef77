"""What a machine remembers: the states that it has been in, and what each request did at them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeAlias, cast

from onewrite.testing.model.contents import Contents
from onewrite.testing.taps.traffic import Request

Place: TypeAlias = tuple[str, str]  # a database by its name, and a table in it

_STRUCTURAL = frozenset({"create_index", "create_indexes", "drop_index", "drop_indexes", "drop", "rename"})
_DATA = frozenset(
    {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}
    | {"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"}
)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What the world holds: the contents of its tables, and the requests that have changed more than contents."""

    contents: Mapping[Place, Contents]
    structure: tuple[Request, ...]
    known: dict[int, Transition] = field(default_factory=dict["int", "Transition"])  # by the keys of their requests


@dataclass(frozen=True, slots=True)
class Transition:
    """What a request does at a state: the state that it leads to, and its answer."""

    request: Request
    state: State
    answer: Callable[[], Any]  # returns a new copy each time, or raises what the store raised


def changes_structure(request: Request) -> bool:
    """Does it change something that the contents of the tables do not show, such as an index?"""
    if request.method[0].isupper():
        return request.writes and request.method not in _DATA
    return request.method in _STRUCTURAL


def copied(request: Request) -> Request:
    """A copy, which stays the same if the handler changes its own objects; the request itself if it cannot be copied."""
    try:
        return replace(request, arguments=copy.deepcopy(dict(request.arguments)))
    except Exception:
        return request


def repeated(answer: object) -> Callable[[], Any] | None:
    """A function that gives this answer, or raises this exception, each time it is called; None if it cannot be copied."""
    try:
        if isinstance(answer, Exception):
            return partial(_raise, type(answer), answer.args, pickle.dumps(vars(answer)))
        return partial(pickle.loads, pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
    except Exception:
        return None


def _raise(kind: type[Exception], args: tuple[Any, ...], attributes: bytes) -> NoReturn:
    """Raise a copy of an exception.

    boto3 makes the classes of its exceptions for each client, so they cannot be pickled, and not every class of exceptions
    can be called with the `args` of its instances.
    """
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(pickle.loads(attributes))  # noqa: S301  # `repeated` has made these bytes
    raise error


def fill_in_ids(arguments: Mapping[str, Any], answer: Any) -> None:
    """Give the handler's documents the `_id` that pymongo gives them when it sends them."""
    if isinstance(arguments.get("document"), MutableMapping):
        arguments["document"].setdefault("_id", answer.inserted_id)
    for document, made in zip(arguments.get("documents", ()), getattr(answer, "inserted_ids", ()), strict=False):
        cast("MutableMapping[str, Any]", document).setdefault("_id", made)
