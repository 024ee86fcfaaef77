"""What a machine has learnt: its states, and what requests do at them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeAlias, cast

from onewrite.testing.model.contents import Contents
from onewrite.testing.taps.traffic import Request

Place: TypeAlias = tuple[str, str]  # a store by its name in the world, and a table in it

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
    known: dict[int, Transition] = field(default_factory=dict["int", "Transition"])


@dataclass(frozen=True, slots=True)
class Transition:
    """What a request does at a state."""

    request: Request
    state: State
    answer: Callable[[], Any]  # a new copy each time; it raises what the store raised


def changes_structure(request: Request) -> bool:
    """Does it change something that no table's contents show, as an index does?"""
    if request.method[0].isupper():
        return request.writes and request.method not in _DATA
    return request.method in _STRUCTURAL


def copied(request: Request) -> Request:
    """The request as it is now, whatever becomes of the handler's own objects; as it is where it cannot be copied."""
    try:
        return replace(request, arguments=copy.deepcopy(dict(request.arguments)))
    except Exception:
        return request


def repeated(answer: object) -> Callable[[], Any] | None:
    """Gives the answer, or raises the exception, again and again; None where it cannot be copied."""
    try:
        if isinstance(answer, Exception):
            return partial(_raise, type(answer), answer.args, pickle.dumps(vars(answer)))
        return partial(pickle.loads, pickle.dumps(answer, pickle.HIGHEST_PROTOCOL))
    except Exception:
        return None


def _raise(kind: type[Exception], args: tuple[Any, ...], state: bytes) -> NoReturn:
    """A client's exceptions cannot be pickled: their classes are made by the client. Nor does each take its `args` back."""
    error = kind.__new__(kind, *args)
    error.args = args
    vars(error).update(pickle.loads(state))  # noqa: S301  # written above
    raise error


def fill_in_ids(arguments: Mapping[str, Any], answer: Any) -> None:
    """Give the handler's documents the `_id` that pymongo would have put into them."""
    if isinstance(arguments.get("document"), MutableMapping):
        arguments["document"].setdefault("_id", answer.inserted_id)
    for document, made in zip(arguments.get("documents", ()), getattr(answer, "inserted_ids", ()), strict=False):
        cast("MutableMapping[str, Any]", document).setdefault("_id", made)
