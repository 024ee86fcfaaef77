"""A collection as the verbs see it: images of its documents, one scan, and writes that land only on what was read."""

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
from onewrite.core.label import PREFIX, STEPS, Slot
from onewrite.core.ledgers.seen_ids import RING_LAYOUT
from onewrite.errors import ConfigurationError
from onewrite.mongodb.flows import require_majority
from onewrite.mongodb.layout import Document, canonical, is_made_by, locate_slot, lookup, with_codec
from onewrite.mongodb.outboxes import STORED_CODEC
from onewrite.operate.image import Edit, EntityImage, Layout
from onewrite.operate.report import NotThere

_GROUP = re.compile(rf"{PREFIX}(?:@|{RING_LAYOUT}r)")
_AT_ONCE = 100  # documents of a page
_DISPLAY_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)
# Every value becomes one that is written again as it stands there: a UUID of the old kind too, and a date after Python's last.
_INPUT_JSON = json_util.JSONOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO, tz_aware=False)
# A text that is none, in a field of the user's or an _id, must not hide all other entities. It is shown only.
_LENIENT = STORED_CODEC.with_options(unicode_decode_error_handler="replace")


def _spelling_of(value: object) -> str | None:
    is_key = isinstance(value, str | int | bson.ObjectId) and not isinstance(value, bool | bson.Code)
    return (str(int(value)) if isinstance(value, int) else str(value)) if is_key else None


LAYOUT = Layout("MongoDB", attrgetter("group"), locate_slot, is_made_by, _spelling_of, has_token=False, largest=2**63 - 1)


class CollectionStore:
    """The documents of a collection. It reads what a majority holds, and waits until a majority has what it writes."""

    def __init__(self, collection: Any) -> None:
        self.target = with_codec(require_majority(collection), _LENIENT)
        self.name = str(getattr(collection, "full_name", collection.name))

    def key(self, text: str) -> dict[str, Any]:
        """The document that is named by extended JSON, as {"_id": {"$oid": "..."}}, or by its `_id` alone."""
        try:
            value: object = json_util.loads(text, json_options=_INPUT_JSON)
        except (ValueError, TypeError, BSONError):
            if text.lstrip().startswith(("{", "[")):
                raise ConfigurationError(
                    f"""--key {text}: give the _id of a document, plain or as JSON, as in '{{"_id": {{"$oid": "..."}}}}'."""
                ) from None
            value = text  # a bare text
        is_named = isinstance(value, dict) and cast("dict[str, Any]", value).keys() == {"_id"}
        return cast("dict[str, Any]", value) if is_named else {"_id": value}

    def read(self, key: Document) -> Flow[EntityImage | None]:
        """The document as it is now; None if there is none."""
        cursor = yield Call(
            "find", ({"_id": {"$eq": key["_id"]}},), {"limit": 1}
        )  # an _id that looks like an operator is none
        documents: list[Document] = yield Do(list, (cursor,))
        return image_of(documents[0]) if documents else None

    def scan(self, attribute: str) -> CollectionScan:
        return CollectionScan(self.target.name, self.name, attribute)

    def calls(self, image: EntityImage, edit: Edit) -> list[Call]:
        """The one request of an edit."""
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
        """Send the request. Returns how many were done: none, if the document is not as it was read."""
        (call,) = self.calls(image, edit)
        reply = yield call
        return int(reply.matched_count)

    def to_json(self, call: Call) -> Any:
        """A request as JSON has it."""
        return {call.method: json.loads(json_util.dumps(call.args, json_options=_DISPLAY_JSON))}


def key_text(key: Document) -> str:
    """A document's `_id`, as `--key` takes it."""
    return json_util.dumps({"_id": key["_id"]}, json_options=_DISPLAY_JSON)


class CollectionScan:
    """Goes once through the documents of a collection that have a field.

    Each page is a query of its own, which begins where the last one ended in the index on `_id`: a cursor would be closed by the
    server where what is done with its documents is slow.
    """

    def __init__(self, name: str, full_name: str, attribute: str) -> None:
        self._name, self._full_name = name, full_name
        self._filter: Document = {attribute: {"$exists": True, "$ne": {}}}
        self._last: Document | None = {}

    def next(self) -> Flow[list[EntityImage] | None]:
        """The documents of the next page; None at the end."""
        if self._last is None:
            return None
        # Unlike a filter, this goes on to an _id of another type. The bound itself is in it, and may be read once more.
        start = {"min": self._last, "hint": [("_id", 1)]} if self._last else {}
        limit = _AT_ONCE + len(self._last)
        documents: list[Document] = yield Do(
            list, ((yield Call("find", (self._filter,), {"sort": [("_id", 1)], "limit": limit, **start})),)
        )
        if not (documents or self._last):  # a collection that does not exist has no documents, and its query does not fail
            # Those that the user may use are listed without a right on the database.
            names = yield Call("database.list_collection_names", (), {"authorizedCollections": True})
            if self._name not in names:
                raise NotThere(f"There is no collection {self._full_name} here.")
        bound = canonical(self._last, STORED_CODEC)  # Python has other ideas of which values are equal
        fresh = [document for document in documents if canonical({"_id": document["_id"]}, STORED_CODEC) != bound]
        self._last = {"_id": documents[-1]["_id"]} if len(documents) == limit else None
        return [image_of(document) for document in fresh]


def sample(most: int) -> Flow[list[EntityImage]]:
    """Documents that MongoDB picks at random."""
    cursor = yield Call("aggregate", ([{"$sample": {"size": most}}],))
    return [image_of(document) for document in (yield Do(list, (cursor,)))]


def image_of(document: Document) -> EntityImage:
    document_lookup = lookup(document)
    slots = dict(_slots(document))
    steps = document.get(STEPS, {})
    return EntityImage(
        LAYOUT,
        {"_id": document["_id"]},
        key_text(document),
        fields=document,
        slots={slot: _neutral(document_lookup, slot, value) for slot, value in slots.items()},
        lookup=document_lookup,
        steps=cast("Document", steps) if isinstance(steps, Mapping) else {"": steps},
        sizes={name: _size_of(name, value) for name, value in document.items()},
        slot_sizes={slot: _size_of(slot.key or slot.group, value) for slot, value in slots.items()},
        size=_size(document),
        raw=document,
    )


def _neutral(document_lookup: Callable[[Slot], object], slot: Slot, value: object) -> object:
    with suppress(TypeError):  # a member of a list that says it can be hashed, and cannot
        return document_lookup(slot)
    return value


def _slots(document: Document) -> Iterator[tuple[Slot, Any]]:
    """What stands in the document, with the way to it where a field has several slots."""
    for name, value in document.items():
        if not isinstance(value, Mapping) or not _GROUP.fullmatch(name):
            yield Slot(name), value
            continue
        for key, inner in cast("Document", value).items():
            yield Slot(name, key), inner


def _size(document: Document) -> int:
    return len(bson.encode(document, codec_options=STORED_CODEC))


def _size_of(name: str, value: Any) -> int:
    return _size({name: value}) - _size({})
