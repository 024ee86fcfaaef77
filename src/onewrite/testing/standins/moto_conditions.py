"""Conditions as DynamoDB evaluates them. Values of different types are not equal, and a missing attribute equals nothing."""

from __future__ import annotations

import operator
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

from moto.dynamodb.comparisons import (
    AttributeValue,
    FuncBetween,
    FuncContains,
    FuncIn,
    FuncSize,
    OpEqual,
    OpGreaterThan,
    OpGreaterThanOrEqual,
    OpLessThan,
    OpLessThanOrEqual,
    OpNotEqual,
)
from moto.dynamodb.exceptions import InvalidConditionExpression

Item: TypeAlias = Any
Operand: TypeAlias = Any

_SIZED = ("S", "B", "SS", "NS", "BS", "L", "M")
_ORDERED = ("S", "N", "B")
_ORDERS: dict[Any, Callable[[Any, Any], bool]] = {
    OpLessThan: operator.lt,
    OpLessThanOrEqual: operator.le,
    OpGreaterThan: operator.gt,
    OpGreaterThanOrEqual: operator.ge,
}


def comparisons() -> Iterator[tuple[Any, str, Callable[[Any, Item], Any]]]:
    """The methods of moto that are replaced: the class, the name, and the function that takes its place."""
    yield FuncSize, "expr", _size
    yield OpEqual, "expr", lambda op, item: _equal(op.lhs, op.rhs, item)
    yield OpNotEqual, "expr", lambda op, item: not _equal(op.lhs, op.rhs, item)
    yield FuncIn, "expr", lambda func, item: any(_equal(func.attr, value, item) for value in func.possible_values)
    yield FuncBetween, "expr", _between
    yield FuncContains, "expr", _contains(FuncContains.expr)
    for kind, order in _ORDERS.items():
        yield kind, "expr", _ordered(order)


def _kind(operand: Operand, item: Item) -> str | None:
    """The type of an operand. None if it is missing."""
    if isinstance(operand, FuncSize):
        return None if _size(operand, item) is None else "N"
    return cast("str | None", operand.get_type(item))


def _size(func: Any, item: Item) -> int | None:
    return len(func.attr.expr(item)) if func.attr.get_type(item) in _SIZED else None


def _equal(one: Operand, other: Operand, item: Item) -> bool:
    kind = _kind(one, item)
    return bool(kind is not None and kind == _kind(other, item) and one.expr(item) == other.expr(item))


def _ordered(order: Callable[[Any, Any], bool]) -> Callable[[Any, Item], bool]:
    def expr(op: Any, item: Item) -> bool:
        return _comparable(item, op.OP, op.lhs, op.rhs) and order(op.lhs.expr(item), op.rhs.expr(item))

    return expr


def _between(func: Any, item: Item) -> bool:
    if not _comparable(item, "BETWEEN", func.attr, func.start, func.end):
        return False
    return bool(func.start.expr(item) <= func.attr.expr(item) <= func.end.expr(item))


def _contains(original: Callable[[Any, Item], bool]) -> Callable[[Any, Item], bool]:
    """moto knows no binary value that contains another."""

    def expr(func: Any, item: Item) -> bool:
        kinds = _kind(func.attr, item), _kind(func.operand, item)
        if kinds == ("B", "B"):
            return bytes(_raw(func.operand.expr(item))) in bytes(_raw(func.attr.expr(item)))
        return original(func, item)

    return expr


def _raw(value: Any) -> bytes:
    """Of a binary value, which moto keeps in base64."""
    return b64decode(value) if isinstance(value, str) else bytes(getattr(value, "value", value))


def _comparable(item: Item, name: str, *operands: Operand) -> bool:
    for operand in operands:
        if isinstance(operand, AttributeValue) and operand.type not in _ORDERED:
            raise InvalidConditionExpression(
                f"Incorrect operand type for operator or function; operator: {name}, operand type: {operand.type}"
            )
    kinds = {_kind(operand, item) for operand in operands}
    return len(kinds) == 1 and kinds <= set(_ORDERED)
