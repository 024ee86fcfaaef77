"""A collection as the verbs see it: images of its documents, one scan, and writes that land only on what was read.

A migration's writes are conditional in another way, which `migration.py` explains: they may land beside those of consumers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from operator import attrgetter
from typing import Any, cast

import bson
from bson import json_util
from bson.binary import UuidRepresentation
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError

from onewrite.core.clock import random_name
from onewrite.core.flow import Call, Do, Flow
from onewrite.core.label import PREFIX, STEPS, TOMBSTONE, Slot, check_attribute, ledger_name
from onewrite.core.ledgers import HighWaterMark
from onewrite.core.ledgers.entry import Advance
from onewrite.core.ledgers.seen_ids import RING_LAYOUT
from onewrite.errors import ConfigurationError
from onewrite.mongodb.flows import LARGEST_DOCUMENT, Flows, of_majority
from onewrite.mongodb.layout import Document, canonical, is_made_by, lookup, path_of, with_codec
from onewrite.mongodb.outboxes import STORED_CODEC, origin
from onewrite.mongodb.request import labels
from onewrite.operate.image import Edit, EntityImage, Layout
from onewrite.operate.migration import CarryIds, CarryMark, Drop, Step, dropped_by, sets_of
from onewrite.operate.report import NotThere
from onewrite.outcome import Gone, Unmet

_GROUP = re.compile(rf"{PREFIX}(?:@|{RING_LAYOUT}r)")
_AT_ONCE = 100  # documents of a page
_ROOM = 1024 * 1024  # bytes for what consumers add while they are migrated
_DISPLAY_JSON = json_util.RELAXED_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)
_EXACT_JSON = json_util.CANONICAL_JSON_OPTIONS.with_options(uuid_representation=UuidRepresentation.STANDARD)
# Every value becomes one that is written again as it stands there: a UUID of the old kind too, and a date after Python's last.
_INPUT_JSON = json_util.JSONOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO, tz_aware=False)
# A text that is none, in a field of the user's or an _id, must not hide all other entities. It is shown only.
LENIENT = STORED_CODEC.with_options(unicode_decode_error_handler="replace")


def _spelling_of(value: object) -> str | None:
    is_key = isinstance(value, str | int | bson.ObjectId) and not isinstance(value, bool | bson.Code)
    return (str(int(value)) if isinstance(value, int) else str(value)) if is_key else None


LAYOUT = Layout("MongoDB", attrgetter("group"), path_of, is_made_by, _spelling_of, tokens=0, largest=2**63 - 1)


class CollectionStore:
    """The documents of a collection. It reads what a majority holds, and waits until a majority has what it writes."""

    limit = LARGEST_DOCUMENT
    engine = "mongodb"

    def __init__(self, collection: Any, *, clock: Callable[[], float]) -> None:
        self.target, self.name = (
            with_codec(of_majority(collection), LENIENT),
            str(getattr(collection, "full_name", collection.name)),
        )
        self._clock = clock

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

    def scan(
        self, attribute: str | None = None, *, consistent: bool = True, size: int | None = None, position: object = None
    ) -> CollectionScan:
        del consistent  # a majority's is all that is read
        return CollectionScan(attribute, size=size, position=position)

    def count(self) -> Flow[int]:
        """About how many documents there are. A collection that does not exist has no number, as a table that does not."""
        count: int = yield Call("estimated_document_count")
        if not count:  # those that the user may use are listed without a right on the database
            names = yield Call("database.list_collection_names", (), {"authorizedCollections": True})
            if self.target.name not in names:
                raise NotThere(f"There is no collection {self.name} here.")
        return count

    def calls(self, image: EntityImage, edit: Edit) -> list[Call]:
        """The one request of an edit."""
        query = {
            **image.key,
            **{name: {"$eq": image.raw[name]} if name in image.raw else {"$exists": False} for name in edit.as_read},
        }
        if edit.deletes:
            return [Call("delete_one", (query,))]
        removals = [*edit.removes, *map(path_of, edit.unsets)]
        update: dict[str, Any] = {
            "$unset": dict.fromkeys(removals, ""),
            "$pull": {path_of(slot): {"$in": [*members]} for slot, members in edit.drops},
            "$set": {path_of(slot): mark for slot, mark in edit.sets},
        }
        return [Call("update_one", (query, {operator: change for operator, change in update.items() if change}))]

    def write(self, image: EntityImage, edit: Edit) -> Flow[int]:
        """Send the request. Returns how many were done: none, if the document is not as it was read."""
        (call,) = self.calls(image, edit)
        reply = yield call
        return int((reply.deleted_count if edit.deletes else reply.matched_count) == 1)

    def to_json(self, call: Call) -> Any:
        """A request as JSON has it."""
        return {call.method: json.loads(json_util.dumps(call.args, json_options=_DISPLAY_JSON))}

    def migrate(self, image: EntityImage, step: Step) -> Flow[bool]:
        """Make a migration's step. False: the document is not as it must be."""
        check_attribute(step.attribute)  # a pattern may match a field with a "." in its name, which no update can name
        if isinstance(step, CarryMark):
            ledger = HighWaterMark(name=ledger_name(step.entry.terms.attribute))
            flows = Flows(self.target, ledger, self._clock, (), "majority", attempts=random_name, is_async=False)
            query = {**image.key, step.attribute: {"$eq": step.value}}
            outcome = yield from flows.record(step.message, query, {"upsert": False})
            return not isinstance(outcome, Unmet | Gone)
        conditions, update = request_of(step)
        result = yield Call("update_one", ({**image.key, **conditions}, update))
        return bool(result.matched_count)

    def size_after(self, image: EntityImage, step: Step) -> int:
        """The bytes of the document after a migration's step."""
        document, drop, entry = deepcopy(dict(image.raw)), dropped_by(step), step.entry
        document |= {path_of(label.slot): label.text for label in entry.terms.labels}
        if isinstance(step, CarryIds):
            for slot in entry.dead:
                document.get(slot.group, {}).pop(slot.key, None)
            present = sets_of(step).present
            inner = document.setdefault(present.group, {}) if present.key else document
            inner[present.key or present.group] = [*inner.get(present.key or present.group, []), *step.marks]
        elif isinstance(step, CarryMark):
            slot = cast("Advance", entry.own).slot
            document.setdefault(slot.group, {})[slot.key] = step.value
        if drop is not None:
            document.pop(step.attribute, None)
        return _size(document)

    def fits(self, image: EntityImage, step: Step) -> bool:
        return self.size_after(image, step) + _ROOM <= LARGEST_DOCUMENT


class CollectionScan:
    """Goes through a collection once, and can go on at a `position`. `attribute`: only documents that have this field count.

    Each page is a query of its own, which begins where the last one ended in the index on `_id`: a cursor would be closed by the
    server where what is done with its documents is slow.
    """

    def __init__(self, attribute: str | None = None, *, size: int | None = None, position: object = None) -> None:
        self.read_count = 0
        self._size = size or _AT_ONCE
        self._filter: Document = {} if attribute is None else {attribute: {"$exists": True, "$ne": {}}}
        self._last: Document | None = {}
        if position is not None:
            self._last = cast("Document", json_util.loads(str(position), json_options=_INPUT_JSON))

    @property
    def position(self) -> object:
        """Where to go on after the last page, as JSON; None at the end."""
        return json_util.dumps(self._last, json_options=_EXACT_JSON) if self._last else None

    def next(self) -> Flow[list[EntityImage] | None]:
        """The documents of the next page; None at the end."""
        if self._last is None:
            return None
        # Unlike a filter, this goes on to an _id of another type. The bound itself is in it, and may be read once more.
        start = {"min": self._last, "hint": [("_id", 1)]} if self._last else {}
        limit = self._size + len(self._last)
        documents: list[Document] = yield Do(
            list, ((yield Call("find", (self._filter,), {"sort": [("_id", 1)], "limit": limit, **start})),)
        )
        bound = canonical(self._last, STORED_CODEC)  # Python has other ideas of which values are equal
        fresh = [document for document in documents if canonical({"_id": document["_id"]}, STORED_CODEC) != bound]
        self._last = {"_id": documents[-1]["_id"]} if len(documents) == limit else None
        self.read_count += len(fresh)
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
        origin(document["_id"], STORED_CODEC),
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


def request_of(step: CarryIds | Drop) -> tuple[dict[str, Any], dict[str, Any]]:
    """The filter beside the `_id`, and the update, for a step of a migration."""
    terms, drop = step.entry.terms, dropped_by(step)
    conditions: dict[str, Any] = {TOMBSTONE: {"$exists": False}, step.attribute: {"$exists": True}, **labels(terms).fits}
    update: dict[str, Any] = {"$set": {path_of(label.slot): label.text for label in terms.labels}}
    removals: list[str] = []
    if isinstance(step, CarryIds):
        update["$push"] = {path_of(sets_of(step).present): {"$each": list(step.marks)}}
        removals += [path_of(slot) for slot in step.entry.dead]
    if drop is not None:
        conditions[step.attribute] = {"$eq": drop.value}
        removals.append(step.attribute)
    if isinstance(step, Drop) and step.value != []:  # of an empty set nothing was carried, and the ledger may not be there
        # A mark only rises, and a set loses nothing that is needed, unless somebody takes the whole ledger away meanwhile.
        label, own = path_of(terms.labels[0].slot), step.entry.own
        conditions[label] = {**conditions[label], "$exists": True}
        if isinstance(own, Advance):
            conditions[path_of(own.slot)] = {"$gte": own.mark}
    return conditions, update | ({"$unset": dict.fromkeys(removals, "")} if removals else {})
