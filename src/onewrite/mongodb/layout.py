"""The stored form of a document: its values, and the paths of a ledger's slots. Each group of slots is a field. docs/format.md lists the fields."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from struct import pack, unpack_from
from typing import Any, TypeAlias, cast

from bson import BSON, SON, CodecOptions, DBRef, Decimal128, ObjectId, Timestamp, UuidRepresentation, encode
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import DatetimeConversion, TypeRegistry
from bson.datetime_ms import DatetimeMS
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from bson.regex import Regex

from onewrite.core.effect import make_effect_error
from onewrite.core.features.tombstone import read_tombstone
from onewrite.core.label import EFFECTS, OURS, TOMBSTONE, Slot
from onewrite.core.ledgers.entry import ABSENT, Lookup, Terms
from onewrite.core.write import Image, Unreadable
from onewrite.errors import LedgerMismatch
from onewrite.outcome import Entity

Document: TypeAlias = Mapping[str, Any]

_NO_MARK = object()  # replaces values that no ledger stores, some of which aren't hashable


def locate_slot(slot: Slot) -> str:
    """Return the path of a slot: a field of its group's document, or the group's field itself."""
    return f"{slot.group}.{slot.key}" if slot.key else slot.group


def without_ledger(terms: Terms, document: Document) -> Entity:
    """Return the document without any store's onewrite fields. For a deleted document, return only its key."""
    plain_sets = terms.plain_sets
    key = read_tombstone(document[TOMBSTONE]).key if TOMBSTONE in document else document
    return {
        name: value
        for name, value in document.items()
        if name in key and not name.startswith(OURS) and name not in plain_sets
    }


def lookup(document: Document) -> Lookup:
    """Return a function that looks up a slot in a document."""

    def look_up(slot: Slot) -> object:
        value: object = document.get(slot.group, ABSENT)
        if not slot.key or value is ABSENT:
            return normalize(value)
        if not isinstance(value, Mapping):
            raise LedgerMismatch(
                f"{slot.group!r} holds a {type(value).__name__} where the ledger keeps a document, because another writer uses this name. "
                "Repair the entity, and make the other writer use a different name."
            )
        return normalize(cast("Document", value).get(slot.key, ABSENT))

    return look_up


def read_image(terms: Terms, document: Document | None) -> Image:
    """Return the image of a document that was read after a refused write."""
    fields: Document = document or {}
    effects: object = fields.get(EFFECTS, {})
    if not isinstance(effects, Mapping):
        raise make_effect_error()
    is_gone = TOMBSTONE in fields
    is_shown = document is not None and not is_gone and not isinstance(document, Unreadable)
    entity = without_ledger(terms, fields) if is_shown else None
    return Image(
        document is not None, is_gone, entity, lookup(fields), cast("Document", effects), fields, is_null_absent=True
    )


def normalize(value: object) -> object:
    """Return a stored value in the form that ledgers compare: a frozenset for an array, an int for a whole number."""
    match value:
        case list():
            members = cast("list[object]", value)
            return frozenset(
                [normalize(member) if isinstance(member, str | int | float) else _NO_MARK for member in members]
            )
        case float() if value.is_integer():  # mongosh writes numbers as doubles
            return int(value)
        case int() if not isinstance(value, bool):
            return int(value)  # bson.Int64 is a subclass of int
        case _:
            return value


# --- which filters identify the same document ----------------------------------------------------------------------

# Numbers of all types compare by value; a boolean isn't a number. Documents compare field by field, in order. A time has
# milliseconds. If BSON has several forms for a value, such as a UUID, the client's options select one.

UUIDS: CodecOptions[Any] = CodecOptions(uuid_representation=UuidRepresentation.STANDARD)
# Reads each value in a form that doesn't depend on a client's options.
_NEUTRAL: CodecOptions[Any] = CodecOptions(
    document_class=SON,
    uuid_representation=UuidRepresentation.UNSPECIFIED,
    datetime_conversion=DatetimeConversion.DATETIME_MS,
)


def read_codec(collection: Any) -> CodecOptions[Any]:
    """Return the client's codec options, or default options for a stand-in, which stores Python values."""
    return cast("CodecOptions[Any]", collection.codec_options) if has_codec(collection) else UUIDS


_NO_BSON = (BSONError, TypeError, ValueError, OverflowError)  # the driver raises these for a value that it can't write
_NO_TYPES = TypeRegistry()
_LENIENT: dict[str, Any] = {
    "unicode_decode_error_handler": "replace",
    "datetime_conversion": DatetimeConversion.DATETIME_AUTO,
}


def set_codec(collection: Any, codec: CodecOptions[Any]) -> Any:
    """Return the collection with these options instead of the caller's. A stand-in has no options and is returned unchanged."""
    return collection.with_options(codec_options=codec) if has_codec(collection) else collection


class Reply(RawBSONDocument):
    """A response document. Its values are decoded lazily, one level at a time.

    A response quotes the caller's values, such as the key of a duplicate-key error. If the driver can't decode those, onewrite
    must still see whether the write happened.
    """

    __slots__ = ()

    def update(self, fields: Document) -> None:
        """Add fields. pymongo calls this to add error labels to the part of the response that it raises."""
        super().__init__(encode({**self, **fields}))

    def __eq__(self, other: object) -> bool:
        """Compare like a dict, so that callers can compare the parts of an error with dicts."""
        return {**self} == {**cast("Document", other)} if isinstance(other, Mapping) else NotImplemented

    __hash__ = None

    def __repr__(self) -> str:
        try:
            return repr({**self})
        except BSONError:
            return super().__repr__()


def set_lazy_codec(collection: Any, codec: CodecOptions[Any]) -> Any:
    """Return the collection, set to read responses as `Reply` and to write requests with these options."""
    changes = {**_LENIENT, "document_class": Reply, "type_registry": _make_encoder_registry(codec)}
    if codec.datetime_conversion is not DatetimeConversion.DATETIME:  # the client's own choice can't fail
        changes["datetime_conversion"] = codec.datetime_conversion
    return set_codec(collection, codec.with_options(**changes))


def _make_encoder_registry(codec: CodecOptions[Any]) -> TypeRegistry:
    """Return the client's type registry without its decoders, which could fail for any value of a response."""
    if codec.type_registry == _NO_TYPES:
        return _NO_TYPES

    def encode_value(value: Any) -> Any:
        return BSON.encode({"": value}, codec_options=codec).decode(_NEUTRAL)[""]

    return TypeRegistry(fallback_encoder=encode_value)


def has_codec(collection: Any) -> bool:
    """Whether a driver decodes the collection's documents. A stand-in has no driver."""
    return isinstance(getattr(collection, "codec_options", None), CodecOptions)


def read_raw(terms: Terms, document: RawBSONDocument, codec: CodecOptions[Any]) -> Document:
    """Return the document as the client reads it, with onewrite's fields as they're stored.

    If the client can't read some fields, return an `Unreadable` without them.
    """
    values: dict[str, bytes] = dict(split_elements(document))
    names = [name for name in values if name.startswith(OURS) or name in terms.plain_sets]
    our_codec = codec.with_options(document_class=dict, type_registry=_NO_TYPES, **_LENIENT)
    try:
        our_fields: Document = _decode([values.pop(name) for name in names], our_codec)
    except BSONError as error:
        raise LedgerMismatch(
            f"The fields {', '.join(names)} have unreadable values, because another writer uses these names of onewrite. Repair the "
            "entity, and make the other writer use different names."
        ) from error
    try:
        return {**_decode(values.values(), codec), **our_fields}
    except Exception:  # a client's own types can raise any error
        return Unreadable({**_decode_readable(values.values(), codec), **our_fields})


def _decode_readable(elements: Iterable[bytes], codec: CodecOptions[Any]) -> dict[str, Any]:
    """Return the fields that the client can read."""
    fields: dict[str, Any] = {}
    for element in elements:
        with suppress(Exception):  # the field is left out
            fields |= _decode([element], codec)
    return fields


def _decode(elements: Iterable[bytes], codec: CodecOptions[Any]) -> Document:
    """Return the document with these raw elements. In BSON, their size precedes them, and a zero byte follows."""
    body = b"".join(elements)
    document: Document = BSON(pack("<i", len(body) + 5) + body + b"\0").decode(codec)
    return {**document}  # decodes the values now, even if the document class is lazy


# The bytes of an element's value, by its type. In _SIZES, the number is fixed; in _MORE, it's added to the length before the value.
_SIZES = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}
_MORE = {0x02: 4, 0x03: 0, 0x04: 0, 0x05: 5, 0x0C: 16, 0x0D: 4, 0x0E: 4, 0x0F: 0}


def split_elements(raw_document: RawBSONDocument) -> Iterator[tuple[str, bytes]]:
    """Yield the names at the top level of a document, each with its raw element.

    Values aren't decoded, because the driver might be unable to decode any of them.
    """
    document, start = bytes(raw_document.raw), 4
    while kind := document[start]:
        end = document.index(0, start) + 1
        name = document[start + 1 : end - 1].decode(errors="replace")
        if kind in _SIZES:
            end += _SIZES[kind]
        elif kind in _MORE:
            end += _MORE[kind] + unpack_from("<i", document, end)[0]
        else:  # a regex: two strings
            end = document.index(0, document.index(0, end) + 1) + 1
        yield name, document[start:end]
        start = end


# A client can read values that it can't write, for example with a TypeDecoder but no TypeEncoder.
_READ_ONLY = UUIDS.with_options(type_registry=TypeRegistry(fallback_encoder=repr))


def measure_size(document: Document, codec: CodecOptions[Any]) -> int:
    """Return a document's size in bytes as the client writes it, or an estimate if the client can't write it."""
    try:
        return len(encode(document, codec_options=codec))
    except _NO_BSON:
        return len(encode(document, codec_options=_READ_ONLY))


def canonical(entity: Mapping[str, Any], codec: CodecOptions[Any] = UUIDS) -> Hashable:
    """Return a value that is equal for two keys of the same document."""
    try:
        fields: Mapping[str, Any] = BSON.encode({**entity}, codec_options=codec).decode(_NEUTRAL)
    except _NO_BSON:  # the driver will refuse the request with its own error
        return repr(entity)
    return tuple(sorted([(name, _make_comparable(value)) for name, value in fields.items()], key=lambda entry: entry[0]))


def _make_comparable(value: object) -> Hashable:
    """Return a value that is equal for two BSON values if MongoDB compares them as equal. It begins with the kind of the value."""
    match value:
        case bool():
            return "bool", value
        case int() | float() | Decimal128():
            return "number", _make_comparable_number(value)
        case str() if not isinstance(value, Code):
            return "text", value
        case Mapping():
            fields = cast("Mapping[str, object]", value)
            return "document", tuple([(name, _make_comparable(member)) for name, member in fields.items()])
        case list():
            return "array", tuple([_make_comparable(member) for member in cast("list[object]", value)])
        case bytes():
            return "binary", value.subtype if isinstance(value, Binary) else 0, bytes(value)
        case DatetimeMS():
            return "time", int(value)
        case DBRef():
            return "document", tuple([(name, _make_comparable(member)) for name, member in value.as_doc().items()])
        case Code():
            return "code", str(value), None if value.scope is None else _make_comparable(value.scope)
        case Regex():
            pattern = cast("Regex[Any]", value)
            return "regex", pattern.pattern, pattern.flags
        case ObjectId() | Timestamp():
            return type(value).__name__, value
        case _:
            return type(value).__name__, repr(value)


def _make_comparable_number(value: float | Decimal128) -> Hashable:
    """Return the exact value of a finite number, or the name of any other."""
    number = value.to_decimal() if isinstance(value, Decimal128) else Decimal(value)
    if number.is_finite():
        return Fraction(number)
    return "NaN" if number.is_nan() else str(number)  # as a string, NaN equals NaN
