"""What a migration asks of a collection: see onewrite/migration/visit.py. It reads by `_id`, and writes one document a request."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, cast

import bson
from bson import json_util

from onewrite.clock import random_name
from onewrite.flow import Call, Do, Flow
from onewrite.label import TOMBSTONE, whose
from onewrite.ledgers import HighWaterMark
from onewrite.ledgers.entry import Advance
from onewrite.migration.plan import CarryIds, CarryMark, Drop, Found, Step, dropped_by, sets_of, text_or_integer
from onewrite.migration.visit import Page
from onewrite.mongodb.flows import LARGEST_DOCUMENT, Flows, of_majority
from onewrite.mongodb.layout import Document, lookup, path_of
from onewrite.mongodb.outboxes import origin
from onewrite.mongodb.request import labels
from onewrite.outcome import Gone, Unmet

_AT_ONCE = 100
_ROOM = 1024 * 1024  # for what consumers add meanwhile
_JSON = json_util.CANONICAL_JSON_OPTIONS


class MigrationStore:
    """A collection. `attribute`: only documents that have this field are looked at; None for all.

    Each page is a query of its own, which begins where the last one ended in the index on `_id`: a cursor would be closed by the
    server where writes are slow.
    """

    def __init__(
        self,
        collection: Any,
        attribute: str | None,
        *,
        clock: Callable[[], float],
        position: object = None,
    ) -> None:
        self.target = of_majority(collection)
        self._attribute, self._clock = attribute, clock
        self._alive: Document = {
            TOMBSTONE: {"$exists": False},
            **({} if attribute is None else {attribute: {"$exists": True}}),
        }
        self._last: tuple[object, ...] | None = ()
        if position is not None:
            self._last = (cast("Document", json_util.loads(str(position), json_options=_JSON))["_id"],)

    @property
    def position(self) -> object:
        return json_util.dumps({"_id": self._last[0]}, json_options=_JSON) if self._last else None

    def total(self) -> Flow[int]:
        return int((yield Do(self.target.count_documents, (self._alive,), sends=True)))

    def next(self) -> Flow[Page | None]:
        if self._last is None:
            return None
        # Unlike a filter, this goes on to an _id of another type. The bound itself is in it, and may be read once more.
        start = {"min": {"_id": self._last[0]}, "hint": [("_id", 1)]} if self._last else {}
        order: dict[str, Any] = {"sort": [("_id", 1)], "limit": _AT_ONCE, **start}
        documents: list[Document] = yield Do(list, ((yield Call("find", (self._alive,), order)),))
        fresh = [each for each in documents if (each["_id"],) != self._last]
        self._last = (documents[-1]["_id"],) if len(documents) == _AT_ONCE else None
        return Page([_found(document) for document in fresh], len(fresh))

    def look(self, found: Found) -> Flow[Found | None]:
        document = yield Call("find_one", ({"_id": found.key, **self._alive},))
        return None if document is None else _found(document)

    def write(self, found: Found, step: Step) -> Flow[bool]:
        if isinstance(step, CarryMark):
            return (yield from self._record(found, step))
        asked, update = request_of(step)
        result = yield Call("update_one", ({"_id": found.key, **self._alive, **asked}, update))
        return bool(result.matched_count)

    def _record(self, found: Found, step: CarryMark) -> Flow[bool]:
        ledger = HighWaterMark(name=whose(step.entry.terms.attribute))
        flows = Flows(self.target, ledger, self._clock, (), "majority", attempts=random_name, awaited=False)
        query = {"_id": found.key, step.attribute: {"$eq": step.read}}
        outcome = yield from flows.record(step.message, query, {"upsert": False})
        return not isinstance(outcome, Unmet | Gone)

    def size_after(self, found: Found, step: Step) -> int:
        return len(bson.encode(after(found.held, step)))

    def fits(self, found: Found, step: Step) -> bool:
        return self.size_after(found, step) + _ROOM <= LARGEST_DOCUMENT


def _found(document: Document) -> Found:
    size = len(bson.encode(document))
    return Found(origin(document["_id"]), document["_id"], document, lookup(document), size, _spelled)


def _spelled(held: object) -> str | None:
    return str(held) if isinstance(held, bson.ObjectId) else text_or_integer(held)


def request_of(step: CarryIds | Drop) -> tuple[dict[str, Any], dict[str, Any]]:
    """The filter beside the `_id`, and the update."""
    terms, drop = step.entry.terms, dropped_by(step)
    asked: dict[str, Any] = dict(labels(terms).fits)
    update: dict[str, Any] = {"$set": {path_of(label.slot): label.text for label in terms.labels}}
    removed: list[str] = []
    if isinstance(step, CarryIds):
        update["$push"] = {path_of(sets_of(step).present): {"$each": list(step.marks)}}
        removed += [path_of(slot) for slot in step.entry.dead]
    if drop is not None:
        asked[step.attribute] = {"$eq": drop.read}
        removed.append(step.attribute)
    if isinstance(step, Drop):
        asked |= _still_carried(step, asked)
    return asked, update | ({"$unset": dict.fromkeys(removed, "")} if removed else {})


def _still_carried(step: Drop, asked: Document) -> dict[str, Any]:
    """A mark only rises, and a set loses nothing that is needed, unless somebody takes the whole ledger away meanwhile."""
    label, own = path_of(step.entry.terms.labels[0].slot), step.entry.own
    mark = {path_of(own.slot): {"$gte": own.mark}} if isinstance(own, Advance) else {}
    return {label: {**asked[label], "$exists": True}, **mark}


def after(document: Document, step: Step) -> dict[str, Any]:
    """The document as it is after the step."""
    changed, drop, entry = deepcopy(dict(document)), dropped_by(step), step.entry
    changed |= {path_of(label.slot): label.text for label in entry.terms.labels}
    if isinstance(step, CarryIds):
        for slot in entry.dead:
            changed.get(slot.group, {}).pop(slot.key, None)
        present = sets_of(step).present
        inner = changed.setdefault(present.group, {}) if present.key else changed
        inner[present.key or present.group] = [*inner.get(present.key or present.group, []), *step.marks]
    elif isinstance(step, CarryMark):
        slot = cast("Advance", entry.own).slot
        changed.setdefault(slot.group, {})[slot.key] = step.read
    if drop is not None:
        changed.pop(step.attribute, None)
    return changed
