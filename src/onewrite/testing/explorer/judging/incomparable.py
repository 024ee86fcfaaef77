"""Can what `observe` returns be compared with what it returned before? Pure."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import ItemsView, KeysView, Mapping, ValuesView
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any, cast

_READ_ONCE = ("__next__", "__anext__")


def is_read_once(value: object) -> bool:
    """Is it a generator, a cursor or another iterator, which is empty once it has been read?"""
    return any(hasattr(type(value), name) for name in _READ_ONCE)


_VIEWS: tuple[type, ...] = (KeysView, ValuesView, ItemsView)


def why_incomparable(value: object, place: str = "observe()") -> str | None:
    """Why this value equals no copy of itself, or None if it does. `place` says what the value is a part of."""
    if isinstance(value, float | Decimal):
        nan = value.is_nan() if isinstance(value, Decimal) else value != value  # noqa: PLR0124  # NaN is what does not equal itself
        return (
            f"{place} is NaN, which does not equal itself: let observe() leave it out, or return its text" if nan else None
        )
    if value is None or isinstance(value, str | bytes | int):
        return None
    if is_read_once(value):
        return f"{place} is of type {_kind(value)}, which can be read only once: let observe() return a list of it"
    if isinstance(value, _VIEWS):
        return (
            f"{place} is of type {_kind(value)}, a view of a dict, which cannot be copied: let observe() return a list of it"
        )
    for inner, part in _parts(value):
        if (found := why_incomparable(part, f"{place}{inner}")) is not None:
            return found
    if type(value) in (dict, list, tuple, set, frozenset):
        return None
    try:
        equal = bool(value == copy.deepcopy(value))
    except Exception as error:
        return f"{place} is of type {_kind(value)}, which cannot be copied and compared ({type(error).__name__}: {error})"
    if equal:
        return None
    return (
        f"{place} is of type {_kind(value)}, which does not equal a copy of itself: let observe() return what is in it, as a dict or "
        "a dataclass"
    )


def _parts(value: object) -> list[tuple[str, Any]]:
    """What is in a value, with words for where."""
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", inner) for key, inner in cast("Mapping[Any, Any]", value).items()]
    if isinstance(value, list | tuple):
        return [(f"[{place}]", inner) for place, inner in enumerate(cast("list[Any]", value))]
    if isinstance(value, AbstractSet):
        return [(f" (a member of type {_kind(inner)})", inner) for inner in cast("AbstractSet[Any]", value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{field.name}", getattr(value, field.name)) for field in dataclasses.fields(value) if field.compare]
    return []


def _kind(value: object) -> str:
    return type(value).__qualname__
