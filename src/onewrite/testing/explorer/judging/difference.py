"""Says how two requests differ that should be the same. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from onewrite.testing.taps.traffic import Request

_REMEDY = (
    "Take ids from the message, as message.child(name) gives them, and take the time from an argument that the test sets: a "
    "redelivery must send what the first delivery sent."
)
_REMEDY_FOR_MEMORY = (
    "A module keeps what is in its memory from one schedule to the next, so what a handler remembers must be made in build(store), "
    "which is called before each schedule"
)


def difference(delivery: str, before: Request | None, after: Request | None) -> str:
    """How a delivery behaved differently when its schedule was run again, and what to do about it.

    `delivery` is its name. `before` and `after` are what it sent in the two runs, or None where it sent nothing.
    """
    if before is None or after is None:
        sending, silent = ("first", "second") if after is None else ("second", "first")
        what = f"it sent {before or after} the {sending} time, and nothing the {silent}. {_REMEDY_FOR_MEMORY}"
    elif str(before) != str(after):
        what = f"it sent {before} the first time, and {after} the second"
    else:
        path, one, other = _first(dict(before.arguments), dict(after.arguments)) or ("its arguments", "one thing", "another")
        what = f"in {before} it gave {path} as {one}, and then as {other}"
    return f"{delivery} is not the same each time that the same schedule is run: {what}. {_REMEDY}"


def _first(one: object, other: object, path: str = "") -> tuple[str, str, str] | None:
    """The path to the first value that differs, and both values; None if no value differs."""
    ours, others = _parts(one), _parts(other)
    if ours is None or others is None:
        return None if one == other else (path, repr(one), repr(other))
    for name in dict.fromkeys([*ours, *others]):
        inner = f"{path}.{name}" if path else str(name)
        if name in ours and name in others:
            found = _first(ours[name], others[name], inner)
            if found is not None:
                return found
        elif name != "_id":  # pymongo puts an _id into the handler's own document when it sends the document
            return inner, repr(ours.get(name, "nothing")), repr(others.get(name, "nothing"))
    return None


def _parts(value: object) -> Mapping[Any, object] | None:
    """The values in a mapping by name, those in a list by position; None for any other value."""
    if isinstance(value, Mapping):
        return cast("Mapping[Any, object]", value)
    return dict(enumerate(cast("Sequence[object]", value))) if isinstance(value, list | tuple) else None
