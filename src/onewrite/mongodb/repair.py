"""Reads one document with all that is ours in it, and changes it only if it still is as it was read."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

import bson
from bson import json_util
from bson.errors import BSONError

from onewrite.errors import ConfigurationError
from onewrite.flow import Call, Do, Flow
from onewrite.label import PREFIX, STEPS, Slot
from onewrite.ledgers.seen_ids import KEPT
from onewrite.mongodb.flows import of_majority
from onewrite.mongodb.layout import Document, is_made_by, lookup, path_of
from onewrite.mongodb.outboxes import origin
from onewrite.repair.image import Image, Layout, Plan

_EMPTY = len(bson.encode({}))
_GROUP = re.compile(rf"{PREFIX}(?:@|{KEPT}r)")


def _field_of(slot: Slot) -> str:
    return slot.group


LAYOUT = Layout("MongoDB", _field_of, path_of, is_made_by, tokens=0, largest=2**63 - 1)


class Repairs:
    """The documents of a collection. It reads what a majority holds, and writes so that a majority has it."""

    def __init__(self, collection: Any) -> None:
        self.target = of_majority(collection)

    def key(self, text: str) -> dict[str, Any]:
        """The document that is named by extended JSON, as {"_id": {"$oid": "..."}}, or by its `_id` alone."""
        try:
            found: object = json_util.loads(text)
        except (ValueError, TypeError, BSONError):
            if text.lstrip().startswith(("{", "[")):
                raise ConfigurationError(
                    f"""--key {text}: give the _id of a document, or a filter as JSON, as in '{{"_id": {{"$oid": "..."}}}}'."""
                ) from None
            found = text  # a bare text
        return cast("dict[str, Any]", found) if isinstance(found, dict) and found else {"_id": found}

    def read(self, key: Document) -> Flow[Image | None]:
        """The document as it is now; None if there is none."""
        cursor = yield Call("find", (key,), {"limit": 2})
        found: list[Document] = yield Do(list, (cursor,))
        if len(found) > 1:
            raise ConfigurationError("More than one document matches --key: name one by its _id.")
        return image_of(found[0]) if found else None

    def calls(self, image: Image, plan: Plan) -> list[Call]:
        """The one request of a plan."""
        same = {**image.key, **{name: _as_read(image, name) for name in plan.as_read}}
        if plan.deletes:
            return [Call("delete_one", (same,))]
        gone = [*plan.removes, *map(path_of, plan.unsets)]
        update: dict[str, Any] = {
            "$unset": dict.fromkeys(gone, ""),
            "$pull": {path_of(slot): {"$in": [*members]} for slot, members in plan.drops},
            "$set": {path_of(slot): mark for slot, mark in plan.sets},
        }
        return [Call("update_one", (same, {operator: change for operator, change in update.items() if change}))]

    def write(self, image: Image, plan: Plan) -> Flow[int]:
        """Send the request. Returns how many were done: none, if the document is not as it was read."""
        (call,) = self.calls(image, plan)
        reply = yield call
        return int((reply.deleted_count if plan.deletes else reply.matched_count) == 1)

    def shown(self, call: Call) -> Any:
        """A request as JSON has it."""
        return {call.method: json.loads(json_util.dumps(call.args))}

    def count(self) -> Flow[int]:
        """About how many documents there are."""
        return cast("int", (yield Call("estimated_document_count")))

    def pages(self, size: int) -> Pages:
        return Pages(size)


class Pages:
    """Goes through a collection once, so many documents at a time."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._cursor: Any = None

    def next(self) -> Flow[list[Image] | None]:
        """The next documents; None at the end."""
        if self._cursor is None:
            self._cursor = yield Call("find", ({},), {"batch_size": self._size})
        document: Document | None = yield Do(next, (self._cursor, None))
        return None if document is None else [image_of(document)]


def image_of(document: Document) -> Image:
    slots = dict(_slots(document))
    held = lookup(document)
    steps = document.get(STEPS)
    return Image(
        LAYOUT,
        {"_id": document["_id"]},
        origin(document["_id"]),
        fields=document,
        slots={slot: held(slot) for slot in slots},
        lookup=held,
        steps=cast("Document", steps) if isinstance(steps, Mapping) else {},
        sizes={name: _size(name, value) for name, value in document.items()},
        slot_sizes={slot: _size(slot.key.rpartition(".")[2] or slot.group, value) for slot, value in slots.items()},
        size=len(bson.encode(document)),
        raw=document,
    )


def _slots(document: Document) -> Iterator[tuple[Slot, Any]]:
    """What stands in the document, with the way to it where a field has several slots."""
    for name, value in document.items():
        if not isinstance(value, Mapping) or not _GROUP.fullmatch(name):
            yield Slot(name), value
            continue
        for key, inner in cast("Document", value).items():
            if key.startswith("%w") and isinstance(inner, Mapping):
                for part, held in cast("Document", inner).items():
                    yield Slot(name, f"{key}.{part}"), held
            else:
                yield Slot(name, key), inner


def _as_read(image: Image, name: str) -> Document:
    return {"$eq": image.raw[name]} if name in image.raw else {"$exists": False}


def _size(name: str, value: Any) -> int:
    return len(bson.encode({name: value})) - _EMPTY
