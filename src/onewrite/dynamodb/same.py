"""What tells one item of a table from all others, as DynamoDB compares keys. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from decimal import Context, Decimal
from typing import cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.values import raw

_DIGITS = Context(prec=38)  # as many as a number may have


def canonical(key: object) -> Hashable:
    """Equal for two keys, in plain values, that name one item. What DynamoDB takes for no key is equal to what is written alike."""
    if not isinstance(key, Mapping):
        return repr(key)
    held = cast("Mapping[str, object]", key)
    return tuple([(name, *_typed(held[name])) for name in sorted(held, key=str)])


def number_text(value: int | Decimal) -> str:
    """1, 1.0 and 1E+0 are one number, and so are 0 and -0."""
    return f"{Decimal(value or 0).normalize(_DIGITS):f}"


def _typed(value: object) -> tuple[str, Hashable]:
    match value:
        case str():
            return "S", str(value)
        case int() | Decimal() if not isinstance(value, bool) and Decimal(value).is_finite():
            return "N", number_text(value)
        case bytes() | bytearray() | Binary():
            return "B", raw(value) if isinstance(value, Binary) else bytes(value)
        case _:
            return "", repr(value)
