"""A canonical form of values, by which equal values are found again: hashable, and the same in every run."""

from __future__ import annotations

import copyreg
from collections.abc import Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from hashlib import blake2b
from typing import Any, cast

_LEAVES = frozenset({int, bool, bytes, type(None)})


class NotCanonicalError(Exception):
    """The value has a state of its own, such as the position of a cursor, which no canonical form captures."""


def canonical(value: object, *, ordered: bool) -> Hashable:
    """The canonical form. `ordered`: the order of the names in a mapping counts, as it does in a MongoDB document."""
    try:
        return _canonical(value, ordered)
    except (TypeError, RecursionError, AttributeError) as error:
        raise NotCanonicalError(f"{type(value).__name__}: {error}") from error


def digest(form: Hashable) -> bytes:
    """A short hash of a canonical form."""
    return blake2b(repr(form).encode("utf-8", "surrogatepass"), digest_size=16).digest()


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
    return _reduced(value, ordered)


def _reduced(value: Any, ordered: bool) -> Hashable:  # noqa: FBT001  # the same
    """The parts into which pickle takes an object. The form of a class or a function is its name."""
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
        raise TypeError(f"{name} is made anew each time")
    return "name", name
