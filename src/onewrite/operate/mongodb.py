"""A collection as the verbs see it: images of its documents, a scan, and writes that land only on an unchanged document."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from typing import Any, cast

import bson
from bson import json_util
from bson.binary import UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError

from onewrite.core.flow import Call, Do, Flow
from onewrite.core.label import EFFECTS, PREFIX, Slot
from onewrite.core.ledgers.seen_ids import RING_LAYOUT
from onewrite.errors import ConfigurationError
from onewrite.mongodb.flows import require_majority
from onewrite.mongodb.layout import Document, canonical, locate_slot, lookup, set_codec
from onewrite.mongodb.outboxes import LENIENT_CODEC, STORED_CODEC
from onewrite.operate.image import Edit, EntityImage, Layout
from onewrite.operate.report import NotThere

_GROUP = re.compile(rf"{PREFIX}(?:@|{RING_LAYOUT}r)")
_AT_ONCE = 100  # documents in a page
_DISPLAY_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)
# Read every value in a type that is written back unchanged, such as UUIDs of the legacy format and dates after Python's
# last.
_INPUT_JSON = json_util.JSONOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO, tz_aware=False)
_LEDGER_NAMES = rf"(?:l|{RING_LAYOUT}r|allt?|@)"


def _spell_raw(value: object) -> str | None:
    if isinstance(value, bool | bson.Code) or not isinstance(value, str | int | bson.ObjectId):
        return None
    return str(int(value)) if isinstance(value, int) else str(value)


LAYOUT = Layout(
    "MongoDB", attrgetter("group"), locate_slot, _LEDGER_NAMES, _spell_raw, has_token=False, max_number=2**63 - 1
)


class CollectionStore:
    """The documents of a collection, with majority reads and majority writes."""

    where = "the database and collection in --collection"

    def __init__(self, collection: Any) -> None:
        # Invalid UTF-8 in a user's field or an _id must not hide the other entities. It is only shown.
        self.target = set_codec(require_majority(collection), LENIENT_CODEC)
        self.name = str(getattr(collection, "full_name", collection.name))

    def parse_key(self, text: str) -> dict[str, Any]:
        """Return the document key of extended JSON, such as {"_id": {"$oid": "..."}}, or of a bare `_id`."""
        try:
            value: object = json_util.loads(text, json_options=_INPUT_JSON)
        except (ValueError, TypeError, BSONError):
            if text.lstrip().startswith(("{", "[")):
                raise ConfigurationError(
                    f"""--key {text}: expected the _id of a document, plain or as JSON, for example '{{"_id": {{"$oid": "..."}}}}'."""
                ) from None
            value = text  # a bare string
        is_named = isinstance(value, dict) and cast("dict[str, Any]", value).keys() == {"_id"}
        return cast("dict[str, Any]", value) if is_named else {"_id": value}

    def read(self, key: Document) -> Flow[EntityImage | None]:
        """Return the document, or None."""
        # An _id that looks like an operator isn't one.
        cursor = yield Call("find", ({"_id": {"$eq": key["_id"]}},), {"limit": 1})
        documents: list[Document] = yield Do(list, (cursor,))
        return make_image(documents[0]) if documents else None

    def scan(self, attribute: str) -> CollectionScan:
        return CollectionScan(self.target.name, self.name, attribute)

    def calls(self, image: EntityImage, edit: Edit) -> list[Call]:
        """Return the one request of an edit."""
        query = {
            **image.key,
            **{name: {"$eq": image.raw[name]} if name in image.raw else {"$exists": False} for name in edit.as_read},
        }
        removals = [*edit.removes, *map(locate_slot, edit.unsets)]
        update: dict[str, Any] = {
            "$unset": dict.fromkeys(removals, ""),
            "$pull": {locate_slot(slot): {"$in": [*members]} for slot, members in edit.drops},
            "$set": {locate_slot(slot): mark for slot, mark in edit.sets},
        }
        return [Call("update_one", (query, {operator: change for operator, change in update.items() if change}))]

    def write(self, image: EntityImage, edit: Edit) -> Flow[int]:
        """Send the request. Return the number of successful requests: 0 if the document has changed."""
        (call,) = self.calls(image, edit)
        reply = yield call
        return int(reply.matched_count)

    def to_json(self, call: Call) -> Any:
        """Return a request as JSON."""
        return {call.method: json.loads(json_util.dumps(call.args, json_options=_DISPLAY_JSON))}


def format_key(key: Document) -> str:
    """Return a document's `_id` as `--key` takes it."""
    return json_util.dumps({"_id": key["_id"]}, json_options=_DISPLAY_JSON)


class CollectionScan:
    """A single pass over the documents that have a field.

    Each page is a query that starts where the last one ended in the index on `_id`. The server would close a cursor if the
    documents are processed slowly.
    """

    def __init__(self, name: str, full_name: str, attribute: str) -> None:
        self._name, self._full_name = name, full_name
        self._filter: Document = {attribute: {"$exists": True, "$ne": {}}}
        self._last: Document | None = {}

    def next(self) -> Flow[list[EntityImage] | None]:
        """Return the documents of the next page, or None at the end."""
        if self._last is None:
            return None
        # Unlike a filter, this continues to an _id of another type. It includes the bound itself, which can be read again.
        start = {"min": self._last, "hint": [("_id", 1)]} if self._last else {}
        limit = _AT_ONCE + len(self._last)
        documents: list[Document] = yield Do(
            list, ((yield Call("find", (self._filter,), {"sort": [("_id", 1)], "limit": limit, **start})),)
        )
        if not (documents or self._last):  # a query of a missing collection returns no documents instead of failing
            # This lists the collections that the user can access, without a privilege on the database.
            names = yield Call("database.list_collection_names", (), {"authorizedCollections": True})
            if self._name not in names:
                raise NotThere(
                    f"There is no collection {self._full_name} here. Check the database and collection in --collection."
                )
        bound = canonical(self._last, STORED_CODEC)  # Python's equality differs from MongoDB's
        fresh = [document for document in documents if canonical({"_id": document["_id"]}, STORED_CODEC) != bound]
        self._last = {"_id": documents[-1]["_id"]} if len(documents) == limit else None
        return [make_image(document) for document in fresh]


def sample_documents(limit: int) -> Flow[list[EntityImage]]:
    """Return documents that MongoDB picks at random."""
    cursor = yield Call("aggregate", ([{"$sample": {"size": limit}}],))
    return [make_image(document) for document in (yield Do(list, (cursor,)))]


def make_image(document: Document) -> EntityImage:
    document_lookup = lookup(document)
    slots = dict(_list_slots(document))
    effects = document.get(EFFECTS, {})
    return EntityImage(
        LAYOUT,
        {"_id": document["_id"]},
        format_key(document),
        fields=document,
        slots={slot: _read_slot(document_lookup, slot, value) for slot, value in slots.items()},
        lookup=document_lookup,
        effects=cast("Document", effects) if isinstance(effects, Mapping) else {"": effects},
        sizes={name: _measure_field(name, value) for name, value in document.items()},
        slot_sizes={slot: _measure_field(slot.key or slot.group, value) for slot, value in slots.items()},
        size=_measure_document(document),
        raw=document,
    )


def _read_slot(document_lookup: Callable[[Slot], object], slot: Slot, value: object) -> object:
    with suppress(TypeError):  # a list's member can claim to be hashable and fail
        return document_lookup(slot)
    return value


def _list_slots(document: Document) -> Iterator[tuple[Slot, Any]]:
    """Yield the document's contents by slot. A field can have several slots."""
    for name, value in document.items():
        if not isinstance(value, Mapping) or not _GROUP.fullmatch(name):
            yield Slot(name), value
            continue
        for key, inner in cast("Document", value).items():
            yield Slot(name, key), inner


def _measure_document(document: Document) -> int:
    return len(bson.encode(document, codec_options=STORED_CODEC))


def _measure_field(name: str, value: Any) -> int:
    return _measure_document({name: value}) - _measure_document({})
