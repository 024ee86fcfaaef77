"""Describe the difference between two requests or states that should be equal, and its probable cause. Pure."""

from __future__ import annotations

import copy
import datetime as dt
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

from onewrite.core.label import is_ours
from onewrite.testing.taps.traffic import Request

# --- comparing --------------------------------------------------------------------------------------------------------
#
# Check whether a return value of `observe` can be compared with an earlier one. Pure.

_READ_ONCE = ("__next__", "__anext__")


def is_read_once(value: object) -> bool:
    """Whether the value is a generator, a cursor, or another iterator, which is empty after one read."""
    return any(hasattr(type(value), name) for name in _READ_ONCE)


def explain_incomparable(value: object) -> str | None:
    """Return why this value doesn't equal its own copy, or None if it does."""
    kind = type(value).__qualname__
    try:
        if value == copy.deepcopy(value):
            return None
    except Exception as error:
        return (
            f"it is of type {kind}, which can't be copied and compared ({type(error).__name__}: {error}). Return a list, a dict, or a "
            "dataclass from observe()"
        )
    return (
        f"it is of type {kind}, which doesn't equal a copy of itself. Return its content from observe(), as a list, a dict, or a "
        "dataclass"
    )


# --- differences ------------------------------------------------------------------------------------------------------

_REDELIVERY = "A redelivery must send the same requests as the first delivery."
LEASE_CLOCK = (
    "use a clock that advances with each delivery. Create clock = itertools.count(1_800_000_000, 60) in build(store), and pass next(clock). "
    "If a library reads the clock, such as Powertools, begin the handler with `with time_machine.travel(next(clock), tick=False):`"
)
_CLOCK = (
    "That is the time, from the machine's clock. Take the time from the message, or freeze it around explore() with freezegun, or with "
    f"time-machine and tick=False. For a lease, {LEASE_CLOCK}. {_REDELIVERY}"
)
_RANDOM = f"That looks random. Derive IDs from the message with message.child(name). {_REDELIVERY}"
_MODULE = (
    "The handler depends on state that a module keeps, such as a global, a cache, functools.cache, or an attribute of a class. Create or "
    "clear that state in build(store), which is called before each schedule, like the start of a new process."
)
_MEMORY = f"It's the same from the second run on. {_MODULE}"
_UNKNOWN = (
    "If the handler generates it, derive IDs from the message with message.child(name), and pass the time as an argument that the test "
    f"sets. {_REDELIVERY} If the handler depends on state that a module keeps, such as a counter or a cache, create that state in "
    "build(store), which is called before each schedule."
)
_MADE_UP = (
    "Leave generated values out of observe(), such as the time or an _id. Create everything that observe() reads outside the store in "
    "world(), or clear it in build()."
)
_BEFORE_SECOND_VALUE = frozenset({"AND", "BETWEEN", "IN"})  # in an expression, between an attribute and a placeholder
_OURS = ("ow_", ":ow_", "outbox_")  # prefixes of onewrite's own names, whose values contain times
_A_DAY = 86_400.0
_SOME_DECADES = 20 * 365 * _A_DAY  # Only numbers as near to the present as this are times.
_FAR = 400 * _A_DAY  # for times that differ between two runs, such as expiry times
_UNITS = (1, 1_000, 1_000_000, 1_000_000_000)  # units of a time in one second, from seconds to nanoseconds
_TIME_IN_TEXT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?|\d{10,19}(\.\d+)?")
_RANDOM_IN_TEXT = re.compile(r"[0-9a-fA-F]{8}-?([0-9a-fA-F]{4}-?){3}[0-9a-fA-F]{12}|[0-9a-fA-F]{16,}|[0-9A-HJKMNP-TV-Z]{26}")


class Cause(Enum):
    """What is known about the cause of a difference between two runs."""

    UNKNOWN = ""
    LASTING = _MEMORY  # a third run was like the second
    CONTEXT = (
        "In the second run, both messages were handled in one context, as in one thread. The handler depends on a context variable that an "
        "earlier message has set. Reset it before the handler returns."
    )
    LEAD = f"In the second run, the process's clock was more than a year ahead. {_CLOCK}"


def describe_difference(delivery: str, before: Request | None, after: Request | None, cause: Cause = Cause.UNKNOWN) -> str:
    """Return how a delivery differed when its schedule was run again, and the remedy.

    `delivery` is the delivery's name. `before` and `after` are its requests in the two runs, or None if it didn't send one.
    """
    lasting, remedy = cause is Cause.LASTING, cause.value or _UNKNOWN
    if before is None or after is None:
        sending, silent = ("first", "second") if after is None else ("second", "first")
        description = f"it sent {before or after} in the {sending} run, and nothing in the {silent}"
    else:
        path, *values = _find_difference(dict(before.arguments), dict(after.arguments)) or ("its arguments", before, after)
        if cause in (Cause.CONTEXT, Cause.LEAD):
            pass
        elif all(is_time(value, _FAR) for value in values):
            remedy = _CLOCK
        elif all(map(_is_random, values)) and not lasting:
            remedy = _RANDOM
        if str(before) != str(after):
            description = f"it sent {before} in the first run, and {after} in the second"
        elif path == "its arguments":
            description = f"the arguments of {before} differed"
        else:
            description = f"{_find_field(path, before)} of {before} was {show(values[0])}, and then {show(values[1])}"
    return f"{delivery} differs between two runs of the same schedule: {description}. {remedy}"


def _find_field(path: str, request: Request) -> str:
    """Return the path, or the attribute that gets the value if the path ends in a DynamoDB placeholder such as `:at`."""
    placeholder = re.match(r"ExpressionAttributeValues\.(:\w+)", path)
    if placeholder is None:
        return path
    names = cast("Mapping[str, str]", request.arguments.get("ExpressionAttributeNames") or {})
    for expression in ("UpdateExpression", "ConditionExpression", "KeyConditionExpression", "FilterExpression"):
        before, separator, _ = str(request.arguments.get(expression, "")).partition(placeholder[1])
        fields = [word for word in re.findall(r"(?<![:\w#.])#?[A-Za-z_][\w.#]*", before) if word not in _BEFORE_SECOND_VALUE]
        if separator and fields:  # the expression contains the placeholder
            return f"{names.get(fields[-1], fields[-1])} ({placeholder[1]})"
    return path


def show(value: object) -> str:
    """Return the value in one line. Unlike `repr`, sort the members of a set, whose order differs between processes."""
    kind = type(value)
    if kind is dict:
        items = cast("Mapping[Any, Any]", value).items()
        return f"{{{', '.join(f'{show(name)}: {show(inner)}' for name, inner in items)}}}"
    if kind in (set, frozenset) and value:
        members = f"{{{', '.join(sorted(map(show, cast('Iterable[Any]', value))))}}}"
        return members if kind is set else f"frozenset({members})"
    if kind is list or (kind is tuple and len(cast("Sequence[Any]", value)) > 1):
        inside = ", ".join(map(show, cast("Sequence[Any]", value)))
        return f"[{inside}]" if kind is list else f"({inside})"
    return repr(value)


def describe_process_difference(names: Sequence[str], in_new_process: object, here: object) -> str:
    """Return how the state after these messages differs in a process that has handled no message before, and the remedy."""
    return (
        f"processing {', '.join(names)} ends in {show(in_new_process)} in a new process, and in {show(here)} in a process that has handled messages "
        f"before. {_MODULE}"
    )


def describe_state_difference(one: object, other: object) -> str:
    """Return how two states differ although the same requests led to them, and the remedy."""
    path, *values = _find_difference(one, other) or ("", one, other)
    location = f" at {path}" if path else ""
    return (
        f"the same requests end in {show(values[0])}{location} in one run, and in {show(values[1])} in another. {_MADE_UP}"
    )


def hint_on_states(observed: object, expected: Sequence[object]) -> str | None:
    """Return the reason why this state looks wrong although the handler is correct, or None."""
    business_state = _omit_ledgers(observed)
    if any(business_state == _omit_ledgers(state) for state in expected):
        return (
            "They differ only in onewrite's fields, which depend on the schedule. Leave these out of observe(), with get_item(...), "
            "find_one(...), or without_ledger(...) of a guarded store"
        )
    if any(sort_lists(observed) == sort_lists(state) for state in expected):
        return "They differ only in the order of a list. If the order doesn't matter, sort the list in observe()"
    return None


def has_time(value: object) -> bool:
    """Whether a value, or a value inside it, looks like a time of this century, except for onewrite's own."""
    return any(is_time(leaf, _SOME_DECADES) for leaf in _leaves(value))


def _leaves(value: object) -> Iterator[object]:
    """Yield the values inside a value, except for the values under onewrite's own names."""
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[Any, object]", value).items():
            if not str(name).startswith(_OURS):
                yield from _leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in cast("Sequence[object]", value):
            yield from _leaves(inner)
    else:
        yield value


def is_time(value: object, near: float) -> bool:
    """Whether this is a time in a common format, less than `near` seconds from now."""
    now = time.time()
    # A value can resemble a time or a number without being valid, such as February 30.
    with suppress(ValueError, ArithmeticError):
        match value:
            case dt.datetime():
                return abs(value.replace(tzinfo=value.tzinfo or dt.UTC).timestamp() - now) < near
            case int() | float() | Decimal() if not isinstance(value, bool):
                return any(abs(float(value) / unit - now) < near for unit in _UNITS)
            case str() if timestamp := _TIME_IN_TEXT.search(value):
                text = timestamp[0]
                return is_time(Decimal(text) if text.replace(".", "").isdigit() else dt.datetime.fromisoformat(text), near)
            case _:
                pass
    return False


def _is_random(value: object) -> bool:
    """Whether this looks like a generated ID: a UUID, an ObjectId, bytes, or a string that contains a long random part."""
    if isinstance(value, str):
        return _RANDOM_IN_TEXT.search(value) is not None
    return isinstance(value, UUID | bytes) or type(value).__name__ in ("ObjectId", "Binary")


def _omit_ledgers(value: object) -> object:
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, object]", value).items()
        return {name: _omit_ledgers(inner) for name, inner in items if not is_ours(str(name))}
    if isinstance(value, list | tuple):
        return [_omit_ledgers(inner) for inner in cast("Sequence[object]", value)]
    return value


def sort_lists(value: object) -> object:
    """Return the value with its lists sorted, so that their order doesn't matter."""
    if isinstance(value, Mapping):
        return {name: sort_lists(inner) for name, inner in cast("Mapping[Any, object]", value).items()}
    if isinstance(value, list | tuple):
        return sorted(map(sort_lists, cast("Sequence[object]", value)), key=repr)
    return value


def _find_difference(one: object, other: object, path: str = "") -> tuple[str, object, object] | None:
    """Return the path to the first difference, and both values, or None if the values are equal."""
    ours, others = _read_parts(one), _read_parts(other)
    if ours is None or others is None:
        return None if one == other else (path, one, other)
    for name in dict.fromkeys([*ours, *others]):
        inner = f"{path}.{name}" if path else str(name)
        if name in ours and name in others:
            inner_difference = _find_difference(ours[name], others[name], inner)
            if inner_difference is not None:
                return inner_difference
        elif name != "_id":  # pymongo adds an _id to the handler's own document when it sends the document
            return inner, ours.get(name, "nothing"), others.get(name, "nothing")
    return None


def _read_parts(value: object) -> Mapping[Any, object] | None:
    """Return the values in a mapping by name, or in a list by position. Return None for any other value."""
    if isinstance(value, Mapping):
        return cast("Mapping[Any, object]", value)
    return dict(enumerate(cast("Sequence[object]", value))) if isinstance(value, list | tuple) else None
