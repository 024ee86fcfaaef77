"""What tells one document of a collection from all others, as MongoDB compares values. Pure.

Numbers of all types compare by their value, and a boolean is no number. Documents compare with their fields in order. A time has
milliseconds. A client's options say how it writes what BSON has several forms for, as UUIDs.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from decimal import Decimal
from fractions import Fraction
from math import isfinite
from typing import Any, cast

from bson import BSON, SON, CodecOptions, DBRef, Decimal128, ObjectId, Timestamp, UuidRepresentation
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.errors import BSONError
from bson.regex import Regex

UUIDS: CodecOptions[Any] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
# Reads each value in the form that has nothing of a client's options.
_NEUTRAL: CodecOptions[Any] = CodecOptions(
    document_class=SON,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)


def codec_of(collection: Any) -> CodecOptions[Any]:
    """How the client reads and writes values. A stand-in keeps those of Python."""
    options: object = getattr(collection, "codec_options", None)
    return cast("CodecOptions[Any]", options) if isinstance(options, CodecOptions) else UUIDS


def canonical(entity: Mapping[str, Any], codec: CodecOptions[Any] = UUIDS) -> Hashable:
    """Equal for two values of the fields that name a document, if they name the same one."""
    try:
        held: Mapping[str, Any] = BSON.encode({**entity}, codec_options=codec).decode(_NEUTRAL)
    except (BSONError, TypeError, ValueError, OverflowError):  # the driver refuses it, and says why
        return repr(entity)
    return tuple(sorted([(name, _compared(value)) for name, value in held.items()], key=lambda each: each[0]))


def _compared(value: object) -> Hashable:
    match value:
        case bool():
            return "bool", value
        case int() | float() | Decimal128():
            return "number", _number(value)
        case str() if not isinstance(value, Code):
            return "text", value
        case Mapping():
            fields = cast("Mapping[str, object]", value)
            return "document", tuple([(name, _compared(each)) for name, each in fields.items()])
        case list():
            return "array", tuple([_compared(each) for each in cast("list[object]", value)])
        case bytes():
            return "binary", value.subtype if isinstance(value, Binary) else 0, bytes(value)
        case DatetimeMS():
            return "time", int(value)
        case DBRef():
            return "document", tuple([(name, _compared(each)) for name, each in value.as_doc().items()])
        case Code():
            return "code", str(value), None if value.scope is None else _compared(value.scope)
        case Regex():
            pattern = cast("Regex[Any]", value)
            return "regex", pattern.pattern, pattern.flags
        case ObjectId() | Timestamp():
            return type(value).__name__, value
        case _:
            return type(value).__name__, repr(value)


def _number(value: float | Decimal128) -> Hashable:
    exact = value.to_decimal() if isinstance(value, Decimal128) else value
    if isinstance(exact, Decimal):
        return Fraction(exact) if exact.is_finite() else "NaN" if exact.is_nan() else _odd(float(exact))
    return Fraction(exact) if isfinite(exact) else _odd(exact)


def _odd(value: float) -> str:
    """NaN is equal to NaN here."""
    return "NaN" if value != value else f"{value}"  # noqa: PLR0124  # which tells a NaN from all else
