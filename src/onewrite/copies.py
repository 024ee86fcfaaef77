"""Copies of what a caller, a publisher or an effect may change while something still depends on it."""

from __future__ import annotations

from copy import deepcopy
from types import MappingProxyType
from typing import Any

_LEAVES = frozenset({str, int, float, bool, bytes, type(None)})


def copied(value: Any) -> Any:
    """A copy down to the last container. What cannot be copied, as an object with a lock, stays the same object."""
    if type(value) in _LEAVES:
        return value
    if isinstance(value, dict | MappingProxyType):
        return {name: copied(each) for name, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if type(value) is list:
        return [copied(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    if type(value) is tuple:
        return tuple([copied(each) for each in value])  # pyright: ignore[reportUnknownVariableType]
    try:
        return deepcopy(value)
    except Exception:
        return value
