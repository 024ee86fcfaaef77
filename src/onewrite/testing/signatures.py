"""pymongo's own signatures: which argument of a call is which."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, cast


def bound(method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a collection's or database's method by their names; `TypeError` where pymongo would raise it."""
    found = _signature(method).bind(*args, **kwargs).arguments
    if isinstance(found.get("documents"), Iterable):
        found["documents"] = list(found["documents"])  # an iterator can be read only once
    others = found.pop("kwargs", {})
    return {**found, **others}


def required(method: str) -> list[str]:
    """The arguments that must be given. They are handed on by their position, since mongomock names some of them otherwise."""
    return [name for name, parameter in _signature(method).parameters.items() if _is_required(parameter)]


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD


@cache
def _signature(method: str) -> inspect.Signature:
    """Without `self`, or the cursor's collection."""
    from pymongo.collection import Collection  # noqa: PLC0415  # a test on DynamoDB may run without pymongo
    from pymongo.cursor import Cursor  # noqa: PLC0415  # the same
    from pymongo.database import Database  # noqa: PLC0415  # the same

    if method in ("find", "find_one"):  # these hand their arguments on to the cursor
        signature = inspect.signature(cast("Any", Cursor))
    else:
        signature = inspect.signature(getattr(Collection, method, None) or getattr(Database, method))
    return signature.replace(parameters=list(signature.parameters.values())[1:])
