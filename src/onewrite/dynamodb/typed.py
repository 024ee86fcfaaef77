"""Typed values, such as {"S": "text"}, for callers of a store with `typed=True`. Internally, all values are plain."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from inspect import isawaitable
from typing import Any, TypeVar, cast

from onewrite.core.flow import Flow, arun, run
from onewrite.dynamodb.values import is_typed, plain_values, typed_values
from onewrite.errors import ConfigurationError, InvalidUpdate

T = TypeVar("T")

_VALUE_ARGUMENTS = ("Key", "Item", "ExpressionAttributeValues")  # the arguments that contain values


def check_typed(typed: object, table_name: object) -> None:
    """Raise if `typed` isn't a boolean, or if it's true for a Table."""
    if not isinstance(typed, bool):
        raise ConfigurationError(f"typed={typed!r}: expected True or False.")
    if typed and table_name is None:
        raise ConfigurationError(
            "typed=True: a Table types values itself. Omit typed, or pass a low-level client together with table_name."
        )


def convert_arguments(native: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with plain values."""
    arguments = dict(native)
    for part in _VALUE_ARGUMENTS:
        values = native.get(part)
        if isinstance(values, Mapping):  # the write itself refuses a different type
            items = cast("Mapping[str, Any]", values).items()
            arguments[part] = {name: _make_plain_value(name, value) for name, value in items}
    return arguments


def _make_plain_value(name: str, value: Any) -> Any:
    """Return a typed value as a plain value. Raise if it isn't typed, or if it contains a value that isn't."""
    problem = ""
    if is_typed(value):
        try:
            return plain_values({name: value})[name]
        except Exception as error:  # boto3 raises errors of many kinds for a member that isn't typed
            problem = f" ({type(error).__name__})"
    raise InvalidUpdate(
        f"{name} is a {type(value).__name__} that isn't a typed value{problem}: this store was made with typed=True. Write each value as the "
        'low-level client does, such as {"S": "text"} or {"N": "7"}.'
    )


def wrap_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap the function so that the arguments it returns, directly or from an awaitable, have plain values."""

    async def awaited(result: Awaitable[Any]) -> Any:
        return _make_plain_mapping(await result)

    def call(*args: Any) -> Any:
        result: Any = function(*args)
        return awaited(result) if isawaitable(result) else _make_plain_mapping(result)

    return call


def _make_plain_mapping(result: Any) -> Any:
    return convert_arguments(cast("Mapping[str, Any]", result)) if isinstance(result, Mapping) else result


def type_result(result: T) -> T:
    """Return an outcome, a list of them, or an entity with typed values."""
    value: Any = result
    if isinstance(value, list):
        return cast("T", [*map(type_result, cast("list[Any]", value))])
    if isinstance(value, Mapping):
        return cast("T", typed_values(cast("Mapping[str, Any]", value)))
    if getattr(value, "entity", None) is not None:
        return cast("T", replace(value, entity=typed_values(value.entity)))
    return result


def run_typed(flow: Flow[T], target: object) -> T:
    """Run the flow like `run`, and return typed values in the result."""
    return type_result(run(flow, target))


async def arun_typed(flow: Flow[T], target: object) -> T:
    """Run the flow like `arun`, and return typed values in the result."""
    return type_result(await arun(flow, target))
