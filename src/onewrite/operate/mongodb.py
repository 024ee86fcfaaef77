"""A collection for the verbs: images of its documents, a scan, and writes that change only an unchanged document."""

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

from onewrite.core.flow import Call
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


LAYOUT = Layout("MongoDB", attrgetter("group"), locate_slot, _LEDGER_NAMES, has_token=False, max_number=2**63 - 1)


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

    def read(self, key: Document) -> EntityImage | None:
        """Return the document, or None."""
        documents = [*self.target.find({"_id": {"$eq": key["_id"]}}, limit=1)]  # an _id can look like an operator
        return make_image(documents[0]) if documents else None

    def list_pages(self, attribute: str) -> Iterator[list[EntityImage]]:
        """Yield the documents that have the field, page by page.

        Each page is a query that starts where the previous one ended in the index on `_id`. The server would close a cursor
        whose documents are processed slowly.
        """
        query: Document = {attribute: {"$exists": True, "$ne": {}}}
        last: Document = {}
        while True:
            # Unlike a filter, this continues to an _id of another type. It includes the bound itself, which can be read again.
            start: dict[str, Any] = {"min": last, "hint": [("_id", 1)]} if last else {}
            limit = _AT_ONCE + len(last)
            documents: list[Document] = [*self.target.find(query, sort=[("_id", 1)], limit=limit, **start)]
            if not (documents or last):
                check_collection(self.target)
            bound = canonical(last, STORED_CODEC)  # Python's equality differs from MongoDB's
            yield [
                make_image(document) for document in documents if canonical({"_id": document["_id"]}, STORED_CODEC) != bound
            ]
            if len(documents) < limit:
                return
            last = {"_id": documents[-1]["_id"]}

    def compile_edit(self, image: EntityImage, edit: Edit) -> Call:
        """Return the request of an edit."""
        unchanged = {name: {"$eq": image.raw[name]} if name in image.raw else {"$exists": False} for name in edit.as_read}
        update: dict[str, Any] = {
            "$unset": dict.fromkeys([*edit.removes, *map(locate_slot, edit.unsets)], ""),
            "$pull": {locate_slot(slot): {"$in": [*members]} for slot, members in edit.drops},
            "$set": {locate_slot(slot): mark for slot, mark in edit.sets},
        }
        changes = {operator: change for operator, change in update.items() if change}
        return Call("update_one", ({**image.key, **unchanged}, changes))

    def write(self, call: Call) -> bool:
        """Send the request, and return whether the document was unchanged."""
        return bool(self.target.update_one(*call.args).matched_count)

    def export_call(self, call: Call) -> Any:
        """Return a request as JSON."""
        return {call.method: json.loads(json_util.dumps(call.args, json_options=_DISPLAY_JSON))}


def format_key(key: Document) -> str:
    """Return a document's `_id` as `--key` takes it."""
    return json_util.dumps({"_id": key["_id"]}, json_options=_DISPLAY_JSON)


def check_collection(collection: Any) -> None:
    """Raise NotThere if the collection doesn't exist. A query of it returns no documents instead of failing."""
    # This lists the collections that the user can access, without a privilege on the database.
    if collection.name not in collection.database.list_collection_names(authorizedCollections=True):
        raise NotThere(
            f"There is no collection {collection.full_name} here. Check the database and collection in --collection."
        )


def sample_documents(collection: Any, limit: int) -> list[EntityImage]:
    """Return documents that MongoDB picks at random."""
    return [make_image(document) for document in collection.aggregate([{"$sample": {"size": limit}}])]


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
