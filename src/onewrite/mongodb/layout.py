"""Where a ledger's slots stand in a document: each group of them is a field. docs/format.md lists them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from math import isfinite
from typing import Any, TypeAlias, cast

from bson import BSON, SON, CodecOptions, DBRef, Decimal128, ObjectId, Timestamp, UuidRepresentation, encode
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import DatetimeConversion, TypeRegistry
from bson.datetime_ms import DatetimeMS
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex

from onewrite.core.label import OURS, STEPS, TOMBSTONE, Slot, is_ours, prefix_of
from onewrite.core.ledgers.entry import ABSENT, Lookup, Terms
from onewrite.core.ledgers.seen_ids import RING_LAYOUT
from onewrite.core.step import no_step
from onewrite.core.tombstone import read_tombstone
from onewrite.core.write import Image
from onewrite.errors import LedgerMismatch
from onewrite.outcome import Entity

Document: TypeAlias = Mapping[str, Any]

_NO_MARK = object()  # stands for documents and arrays, which are not hashable


@lru_cache(maxsize=1024)  # as many as there are sources
def path_of(slot: Slot) -> str:
    return f"{slot.group}.{slot.key}" if slot.key else slot.group


_OF_LEDGER = rf"(?:l|{RING_LAYOUT}r|allt?|@)"


def is_made_by(attribute: str, name: str) -> bool:
    """Whether this field belongs to the ledger that is known by that one."""
    return _compile_names(attribute).fullmatch(name) is not None


@lru_cache(maxsize=64)
def _compile_names(attribute: str) -> re.Pattern[str]:
    pattern = f"{re.escape(prefix_of(attribute))}{_OF_LEDGER}" if is_ours(attribute) else re.escape(attribute)
    return re.compile(pattern)


def without_ledger(terms: Terms, document: Document) -> Entity:
    """The document without all that is ours, whichever store has written it. Of a deleted document only the key is left."""
    plain_sets = terms.plain_sets
    key = read_tombstone(document[TOMBSTONE]).key if TOMBSTONE in document else document
    return {
        name: value
        for name, value in document.items()
        if name in key and not name.startswith(OURS) and name not in plain_sets
    }


def lookup(document: Document) -> Lookup:
    """A function that looks up a slot in a document."""

    def look_up(slot: Slot) -> object:
        value: object = document.get(slot.group, ABSENT)
        if not slot.key or value is ABSENT:
            return _neutral(value)
        if not isinstance(value, Mapping):
            raise LedgerMismatch(
                f"{slot.group!r} holds a {type(value).__name__} where the ledger keeps a document: another writer uses the "
                "name. Repair the entity."
            )
        return _neutral(cast("Document", value).get(slot.key, ABSENT))

    return look_up


def image_of(terms: Terms, document: Document | None) -> Image:
    """The document as somebody found it who looked why it did not match."""
    fields: Document = document or {}
    steps: object = fields.get(STEPS, {})
    if not isinstance(steps, Mapping):
        raise no_step()
    is_gone = TOMBSTONE in fields
    entity = None if document is None or is_gone else without_ledger(terms, fields)
    return Image(document is not None, is_gone, entity, lookup(fields), cast("Document", steps), fields, null_is_absent=True)


def _neutral(value: object) -> object:
    match value:
        case list():
            members = cast("list[object]", value)
            return frozenset([_neutral(member) if isinstance(member, Hashable) else _NO_MARK for member in members])
        case float() if value.is_integer():  # mongosh writes numbers as doubles
            return int(value)
        case int() if not isinstance(value, bool):
            return int(value)  # bson.Int64 is a subclass of int
        case _:
            return value


# --- which filters name one document -------------------------------------------------------------------------------

# Numbers of all types compare by their value, and a boolean is no number. Documents compare with their fields in order. A time has
# milliseconds. A client's options say how it writes what BSON has several forms for, as UUIDs.

UUIDS: CodecOptions[Any] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
# Reads each value in the form that has nothing of a client's options.
_NEUTRAL: CodecOptions[Any] = CodecOptions(
    document_class=SON,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)


def read_codec(collection: Any) -> CodecOptions[Any]:
    """How the client reads and writes values. A stand-in keeps those of Python."""
    options: object = getattr(collection, "codec_options", None)
    return cast("CodecOptions[Any]", options) if isinstance(options, CodecOptions) else UUIDS


_NO_BSON = (BSONError, TypeError, ValueError, OverflowError)  # what the driver raises for a value that it cannot write
_NO_TYPES = TypeRegistry()


def with_codec(collection: Any, codec: CodecOptions[Any]) -> Any:
    """The collection with these options in place of the caller's. A stand-in has none."""
    has_options = isinstance(getattr(collection, "codec_options", None), CodecOptions)
    return collection.with_options(codec_options=codec) if has_options else collection


def raw(collection: Any, codec: CodecOptions[Any]) -> Any:
    """The collection with documents that are read as they are stored. What is asked of it is written by these options."""
    return with_codec(collection, codec.with_options(document_class=RawBSONDocument))


def has_types(codec: CodecOptions[Any]) -> bool:
    """Does the client read or write types of its own, which may stand for those of a ledger?"""
    return codec.type_registry != _NO_TYPES


def read_raw(terms: Terms, document: RawBSONDocument, codec: CodecOptions[Any]) -> Document:
    """The document as the client reads it, but what is ours as it is stored."""
    stored: Document = BSON(document.raw).decode(codec.with_options(type_registry=_NO_TYPES))
    ours = {name: value for name, value in stored.items() if name.startswith(OURS) or name in terms.plain_sets}
    return {**BSON(document.raw).decode(codec), **ours}


# A client may read what it cannot write, as by a TypeDecoder alone.
_READ_ONLY = UUIDS.with_options(type_registry=TypeRegistry(fallback_encoder=repr))


def measure_size(document: Document, codec: CodecOptions[Any]) -> int:
    """Its bytes as the client writes them, and about as many where it cannot write what it has read."""
    try:
        return len(encode(document, codec_options=codec))
    except _NO_BSON:
        return len(encode(document, codec_options=_READ_ONLY))


def canonical(entity: Mapping[str, Any], codec: CodecOptions[Any] = UUIDS) -> Hashable:
    """Equal for two values of the fields that name a document, if they name the same one."""
    try:
        fields: Mapping[str, Any] = BSON.encode({**entity}, codec_options=codec).decode(_NEUTRAL)
    except _NO_BSON:  # the driver refuses it, and says why
        return repr(entity)
    return tuple(sorted([(name, _comparable(value)) for name, value in fields.items()], key=lambda entry: entry[0]))


def _comparable(value: object) -> Hashable:
    match value:
        case bool():
            return "bool", value
        case int() | float() | Decimal128():
            return "number", _number(value)
        case str() if not isinstance(value, Code):
            return "text", value
        case Mapping():
            fields = cast("Mapping[str, object]", value)
            return "document", tuple([(name, _comparable(member)) for name, member in fields.items()])
        case list():
            return "array", tuple([_comparable(member) for member in cast("list[object]", value)])
        case bytes():
            return "binary", value.subtype if isinstance(value, Binary) else 0, bytes(value)
        case DatetimeMS():
            return "time", int(value)
        case DBRef():
            return "document", tuple([(name, _comparable(member)) for name, member in value.as_doc().items()])
        case Code():
            return "code", str(value), None if value.scope is None else _comparable(value.scope)
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
