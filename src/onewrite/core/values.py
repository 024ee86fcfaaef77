"""Values that outlive a call: times as text, and copies of the caller's values. Pure."""

from __future__ import annotations

from copy import deepcopy
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

_MAX_MOMENT = 253_402_300_799.0  # the end of the year 9999, Python's last date


def moment(now: float) -> str:
    """Return a time as text that sorts like the time: 2026-11-22T08:00:00.000Z."""
    second, millisecond = divmod(round(now * 1e6) // 1000, 1000)
    return f"{datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()}.{millisecond:03d}Z"


def format_nearest_moment(time: float) -> str:
    """Return a time as text, or the nearest one that a date since 1970 can show."""
    return moment(min(max(0.0, time), _MAX_MOMENT))


def seconds(at: str) -> float:
    """Parse the text of `moment` into seconds since 1970."""
    return datetime.fromisoformat(at).timestamp()


_LEAVES = frozenset({str, int, float, bool, bytes, type(None)})


def copy_value(value: Any) -> Any:
    """Return a deep copy. An object that can't be copied, such as one with a lock, stays the same."""
    if type(value) in _LEAVES:
        return value
    if type(value) is dict or type(value) is MappingProxyType:
        return {name: copy_value(member) for name, member in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if type(value) is list:
        return [copy_value(member) for member in value]  # pyright: ignore[reportUnknownVariableType]
    if type(value) is tuple:
        return tuple([copy_value(member) for member in value])  # pyright: ignore[reportUnknownVariableType]
    try:
        return deepcopy(value)
    except Exception:
        return value
