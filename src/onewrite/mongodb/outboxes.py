"""What a relay asks of a collection: to read a document's outbox, and to change it only as it was read.

It reads what a majority holds, from the primary: an event that a failover takes back must not go out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any, cast
from urllib.parse import quote, unquote

from bson import BSON, CodecOptions, ObjectId, json_util
from bson.codec_options import DatetimeConversion
from bson.errors import InvalidId

from onewrite.errors import ConfigurationError, LedgerMismatch
from onewrite.event import Outbox
from onewrite.flow import Call, Flow
from onewrite.label import OUTBOX, TOMBSTONE
from onewrite.mongodb.durability import of_majority
from onewrite.mongodb.writing.expression import identity
from onewrite.mongodb.writing.layout import Document
from onewrite.mongodb.writing.same import UUIDS, canonical, codec_of
from onewrite.mongodb.writing.tombstones import emptied
from onewrite.pending import Box, Broken, Pending, Search, key_parts, read_box

_REST = 2**31 - 1  # more than an array can have: $slice wants a number


class Outboxes:
    """The outboxes of a collection's documents."""

    def __init__(self, collection: Any, fields: Sequence[str], outbox: Outbox) -> None:
        self.target = _reading_any_time(of_majority(collection))
        self.outbox = outbox
        self._fields = tuple(fields)
        self._codec = codec_of(self.target)

    def entity(self, filter: object, key: object) -> Document:
        """Which document is meant."""
        if key is not None or not isinstance(filter, Mapping):
            raise ConfigurationError("An entity in a collection is named by a filter: write {'_id': ...}.")
        return deepcopy(identity(cast("Document", filter), self._fields))  # it is part of the events that a relay publishes

    def canonical(self, entity: Document) -> Hashable:
        """Equal for two values that name one document."""
        return canonical(entity, self._codec)

    def rung(self, told: Document) -> Document:
        """The document that a doorbell has told of."""
        return {"_id": deepcopy(told["_id"])}

    def of_source(self, source: str) -> Document:
        """The document whose events have that source."""
        try:
            ((name, kind, value),) = key_parts(source, self.outbox.name)
            read = _VALUES[kind](value)
        except (KeyError, ValueError, InvalidId) as error:
            raise ConfigurationError(f"{source!r} names no document of a collection.") from error
        return {name: _recoded(read, _PLAIN, self._codec)}

    def read(self, entity: Document) -> Flow[Box]:
        found: Document | None = yield Call("find_one", (entity, self._projection()))
        return Box(entity, "") if found is None else self.box(found)

    def clear(self, box: Box, count: int, now: float) -> Flow[Box | None]:
        """Remove the first events, which were sent. None: it is done; else the box as it is now."""
        same = self._as_read(box, count - 1)
        sent = {OUTBOX.sent: box.base + count, OUTBOX.incarnation: box.life}
        if count == len(box.events):
            same |= {"$and": [{OUTBOX.events: {"$size": count}}]} | _same_life(box)
            update: Any = {"$set": sent, "$unset": {OUTBOX.events: "", OUTBOX.due: ""}}
            if box.tombstone is not None:
                update = [emptied(sent, box.tombstone, box.tombstone.expiry(now))]
        else:
            rest = {"$slice": [f"${OUTBOX.events}", count, _REST]}
            literal = {name: {"$literal": value} for name, value in sent.items()}
            update = [{"$set": {**literal, OUTBOX.events: rest, OUTBOX.due: {"$literal": box.events[count].time}}}]
        return (yield from self._change(box, same, update))

    def postpone(self, box: Box, due: str) -> Flow[Box | None]:
        """Let a sweep come back at that time, if the oldest event is still the same."""
        return (yield from self._change(box, self._as_read(box, 0), {"$set": {OUTBOX.due: due}}))

    def replace(self, box: Box, place: int, event: Pending) -> Flow[Box | None]:
        """Put another event in the place of one, and let a sweep take the entity at once."""
        changed = {f"{OUTBOX.events}.{place}": event.stored(), OUTBOX.due: box.events[0].time}
        return (yield from self._change(box, self._as_read(box, place), {"$set": changed}))

    def restart(self, box: Box, incarnation: str) -> Flow[Box | None]:
        """Count from zero again, as another source."""
        update = {"$set": {OUTBOX.sent: 0, OUTBOX.incarnation: incarnation}}
        return (yield from self._change(box, self._as_read(box, 0 if box.events else None), update))

    def finder(self, before: str | None) -> Finder:
        """Finds what is pending and due `before` that time; all that is pending if it is None."""
        return Finder(self, before)

    def found(self, due: Document, entity: Document) -> Flow[Document | None]:
        """The document that is due first."""
        query = {OUTBOX.due: {"$exists": True, **due}, **entity}
        found: Document | None = yield Call("find_one", (query, self._projection()), {"sort": [(OUTBOX.due, 1)]})
        return found

    def box(self, document: Document) -> Box:
        key = document["_id"]
        held = {name: _neutral(document[name]) for name in (*OUTBOX, TOMBSTONE) if name in document}
        return read_box(self.outbox.label, {"_id": key}, f"{self.outbox.name}/{origin(key, self._codec)}", held)

    def _as_read(self, box: Box, place: int | None) -> dict[str, Any]:
        """Conditions on which the document's outbox is the one that was read, up to that place.

        The count alone is not enough: a document that is deleted, created again and emits has the same count as its predecessor.
        """
        held = {OUTBOX.sent: box.sent, OUTBOX.incarnation: box.incarnation}
        conditions: dict[str, Any] = {"_id": box.entity["_id"]}
        conditions |= {name: {"$exists": False} if value is None else value for name, value in held.items()}
        if place is not None:
            conditions[f"{OUTBOX.events}.{place}.nonce"] = box.events[place].nonce
        return conditions

    def _change(self, box: Box, query: dict[str, Any], update: Any) -> Flow[Box | None]:
        reply = yield Call("update_one", (query, update))
        return None if reply.matched_count else (yield from self.read({"_id": box.entity["_id"]}))

    def _projection(self) -> dict[str, int]:
        return dict.fromkeys((*OUTBOX, TOMBSTONE), 1)


def _same_life(box: Box) -> dict[str, Any]:
    """A condition that the document was not deleted since the box was read, so that the clear of its last event says when it goes."""
    if box.tombstone is None:
        return {TOMBSTONE: {"$exists": False}}
    return {f"{TOMBSTONE}.by": box.tombstone.by}


class Finder:
    """Goes through all that is pending by the time at which it is due, and reads each document's outbox on the way.

    With an index on the field of that time, each is one request that reads one document.
    """

    def __init__(self, boxes: Outboxes, before: str | None) -> None:
        self._boxes = boxes
        self._until: Document = {} if before is None else {"$lte": before}
        self._due: str | None = None
        self._passed: list[Any] = []  # the ids of the documents that are due at that very time
        self._odd: list[Any] = []  # the ids of those whose time is no text

    def next(self) -> Flow[Box | Broken | Search | None]:
        """The next outbox, or None at the end."""
        # Not $gte: with a text it would pass over what is no text, and what comes after all texts is looked for too.
        since: Document = {} if self._due is None else {"$not": {"$lt": self._due}}
        passed = [*self._passed, *self._odd]
        document = yield from self._boxes.found({**self._until, **since}, {"_id": {"$nin": passed}} if passed else {})
        if document is None:
            return None
        due: object = document[OUTBOX.due]
        if isinstance(due, str):
            self._passed = [*self._passed, document["_id"]] if due == self._due else [document["_id"]]
            self._due = due
        else:
            self._odd.append(document["_id"])
        try:
            return self._boxes.box(document)
        except LedgerMismatch as error:
            return Broken({"_id": document["_id"]}, error)


_PLAIN: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)


def origin(key: object, codec: CodecOptions[Any] = UUIDS) -> str:
    """The document's `_id` as a part of a URI, with its type: the same text whatever a client reads for it by its options, `codec`."""
    match key:
        case str():
            return f"_id=S:{quote(key, safe='')}"
        case int() if not isinstance(key, bool):
            return f"_id=N:{int(key)}"
        case ObjectId():
            return f"_id=O:{key}"
        case _:
            text = json_util.dumps(_recoded(key, codec, _PLAIN), json_options=json_util.CANONICAL_JSON_OPTIONS)
            return f"_id=J:{quote(text, safe='')}"


def _reading_any_time(collection: Any) -> Any:
    """The collection with times in it that Python has no datetime for: one document that is named by one must hold up no other."""
    options: object = collection.codec_options
    if not isinstance(options, CodecOptions) or options.datetime_conversion != DatetimeConversion.DATETIME:
        return collection
    return collection.with_options(codec_options=options.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO))


def _recoded(value: object, written: CodecOptions[Any], read: CodecOptions[Any]) -> object:
    """The value as a client reads it that has other options than the one which has written it."""
    decoded: Document = BSON.encode({"": value}, codec_options=written).decode(read)
    return decoded[""]


def _document(text: str) -> object:
    return json_util.loads(unquote(text), json_options=json_util.CANONICAL_JSON_OPTIONS)


# How `origin` is read again.
_VALUES: dict[str, Callable[[str], object]] = {"S": unquote, "N": int, "O": ObjectId, "J": _document}


def _neutral(value: Any) -> Any:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
