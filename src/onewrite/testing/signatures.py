"""pymongo's own signatures: which argument of a call is which."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, cast


class Signature(NamedTuple):
    """What a method takes. It can be read much faster than an `inspect.Signature`."""

    whole: inspect.Signature
    names: tuple[str, ...]
    required: tuple[str, ...]
    takes_others: bool


def bound(method: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a collection's or database's method by their names; `TypeError` where pymongo would raise it."""
    signature = signature_of(method)
    found = {**dict(zip(signature.names, args, strict=False)), **kwargs}
    if (
        len(found) < len(args) + len(kwargs)
        or not found.keys() >= {*signature.required}
        or not (signature.takes_others or found.keys() <= {*signature.names})
    ):
        signature.whole.bind(*args, **kwargs)  # it raises what Python does for such a call
    for name in ("documents", "requests"):
        if isinstance(found.get(name), Iterable):
            found[name] = list(found[name])  # an iterator can be read only once
    return found


@cache
def signature_of(method: str) -> Signature:
    """Without `self`, or the cursor's collection."""
    from pymongo.collection import Collection  # noqa: PLC0415  # a test on DynamoDB may run without pymongo
    from pymongo.cursor import Cursor  # noqa: PLC0415  # the same
    from pymongo.database import Database  # noqa: PLC0415  # the same

    if method in ("find", "find_one"):  # these hand their arguments on to the cursor
        signature = inspect.signature(cast("Any", Cursor))
    else:
        signature = inspect.signature(getattr(Collection, method, None) or getattr(Database, method))
    _, *parameters = signature.parameters.values()
    named = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    return Signature(
        signature.replace(parameters=parameters),
        tuple(one.name for one in named),
        tuple(one.name for one in named if one.default is one.empty),
        len(named) < len(parameters),
    )
