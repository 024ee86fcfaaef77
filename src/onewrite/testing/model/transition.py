"""What a machine remembers: the states that it has been in, and what each request did at them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, TypeAlias

from onewrite.testing.model.contents import Contents
from onewrite.testing.taps.mongodb.methods import DESCRIBING, INDEXING
from onewrite.testing.taps.traffic import Request

Place: TypeAlias = tuple[str, str]  # a database by its name, and a table in it
Tokens: TypeAlias = frozenset[tuple[str, int | None]]  # each with the key of the request that it was given with

_DATA = frozenset(
    {"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}
    | {"ExecuteStatement", "BatchExecuteStatement", "ExecuteTransaction"}
)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What the world holds: the contents of its tables, the requests that have changed more than contents, and the tokens of
    transactions that DynamoDB remembers.
    """

    contents: Mapping[Place, Contents]
    structure: tuple[Request, ...]
    tokens: Tokens = frozenset()
    known: dict[int, Transition] = field(default_factory=dict["int", "Transition"])  # by the keys of their requests


@dataclass(frozen=True, slots=True)
class Transition:
    """What a request does at a state: the state that it leads to, and its answer."""

    request: Request
    state: State
    answer: Callable[[], Any]  # returns a new copy each time, or raises what the store raised
    ids: Sequence[Any] = ()  # those of the documents that it inserts


def changes_structure(request: Request) -> bool:
    """Does it change something that the contents of the tables do not show, such as an index?"""
    if request.method[0].isupper():
        return request.writes and request.method not in _DATA
    return request.method in INDEXING


def reads_structure(request: Request) -> bool:
    """Does it read nothing but what the contents of the tables do not show?"""
    return request.method in DESCRIBING or request.method == "DescribeTable"


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


def ids_in(arguments: Mapping[str, Any]) -> list[Any]:
    """The `_id` of each document that a request inserts, in the order of the documents."""
    return [document.get("_id") for document in _inserted(arguments)]


def fill_in_ids(arguments: Mapping[str, Any], ids: Sequence[Any]) -> None:
    """Give the handler's documents the `_id` that pymongo gives them when it sends them."""
    for document, made in zip(_inserted(arguments), ids, strict=True):
        if made is not None:
            document.setdefault("_id", made)


def _inserted(arguments: Mapping[str, Any]) -> list[MutableMapping[str, Any]]:
    operations = arguments.get("requests", ())
    documents = [arguments.get("document"), *arguments.get("documents", ())]
    documents += [getattr(operation, "_doc", None) for operation in operations if not hasattr(operation, "_filter")]
    return [document for document in documents if isinstance(document, MutableMapping)]
