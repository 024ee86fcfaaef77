"""The outboxes of a collection, for a relay. A relay reads a document's outbox, and changes it only if it hasn't changed since.

It reads majority-committed data from the primary, because it must not publish an event that a failover could undo.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, cast
from urllib.parse import quote, unquote

from bson import BSON, CodecOptions, ObjectId, UuidRepresentation, json_util
from bson.code import Code
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError, InvalidBSON
from bson.raw_bson import RawBSONDocument
from pymongo.errors import CursorNotFound

from onewrite.core.features.event import Outbox
from onewrite.core.features.pending import Box, BrokenOutbox, PendingEvent, Search, parse_source, read_box, try_read
from onewrite.core.flow import Call, Do, Flow
from onewrite.core.label import OUTBOX, TOMBSTONE
from onewrite.core.values import copy_value
from onewrite.errors import ConfigurationError
from onewrite.mongodb.deletes import make_clear_stage
from onewrite.mongodb.expression import read_entity_key
from onewrite.mongodb.flows import require_majority
from onewrite.mongodb.layout import UUIDS, Document, canonical, read_codec, set_codec, set_lazy_codec

_MAX_EVENTS = 2**31 - 1  # more events than an array can have, because $slice requires a number


class Outboxes:
    """The outboxes of a collection's documents."""

    def __init__(self, collection: Any, fields: Sequence[str], outbox: Outbox) -> None:
        majority = require_majority(collection)
        self.target, self.raw_target = set_codec(majority, STORED_CODEC), set_lazy_codec(majority, STORED_CODEC)
        self.outbox = outbox
        self._fields = tuple(fields)
        self._caller_codec, self._codec = read_codec(collection), read_codec(self.target)

    def entity(self, filter: object, key: object) -> Document:
        """Return the key of the document that the filter identifies. Raise if the caller passed a `key`."""
        if key is not None or not isinstance(filter, Mapping):
            raise ConfigurationError("An entity in a collection is identified by a filter. Pass {'_id': ...}.")
        # A copy, because it's part of the events that a relay publishes.
        fields = copy_value(read_entity_key(cast("Document", filter), self._fields))
        return {name: _recode(value, self._caller_codec, self._codec) for name, value in fields.items()}

    def canonical(self, entity: Document) -> Hashable:
        """Return a value that is equal for two keys of the same document."""
        return canonical(entity, self._codec)

    def read_notified(self, entity: Document) -> Document:
        """Return the key of the document that a caller passes instead of a notification."""
        return self.entity(entity, None)

    def read_source(self, source: str) -> Document:
        """Return the key of the document whose events have that source."""
        try:
            ((name, kind, value),) = parse_source(source, self.outbox.name)
            return {name: _recode(_PARSERS[kind](value), _PLAIN_CODEC, self._codec)}
        except (KeyError, TypeError, ValueError, ArithmeticError, RecursionError, BSONError) as error:
            raise ConfigurationError(f"{source!r} doesn't identify a document of a collection.") from error

    def read(self, entity: Document) -> Flow[Box]:
        """Return the document's outbox, which is unused if the document doesn't exist."""
        document: Document | None = yield Call("find_one", (entity, dict.fromkeys((*OUTBOX, TOMBSTONE), 1)))
        return Box(entity, "") if document is None else self._make_box(document)

    def clear(self, box: Box, count: int, now: float) -> Flow[Box | None]:
        """Remove the first `count` events, which were sent. Return None, or the current box if it has changed."""
        query = self._match_read_box(box, count - 1)
        counts = {OUTBOX.sent_count: box.base + count, OUTBOX.incarnation: box.life}
        if count == len(box.events):
            query[OUTBOX.events] = {"$size": count}
            if box.tombstone is None:
                query[TOMBSTONE] = {"$exists": False}
                update: Any = {"$set": counts, "$unset": {OUTBOX.events: "", OUTBOX.due: ""}}
            else:  # the database removes the deleted document with its last event, unless it was deleted again since
                query[f"{TOMBSTONE}.by"] = box.tombstone.by
                update = [make_clear_stage(counts, box.tombstone, box.tombstone.expiry(now))]
        else:
            later_events = {"$slice": [f"${OUTBOX.events}", count, _MAX_EVENTS]}
            literal = {name: {"$literal": value} for name, value in counts.items()}
            update = [{"$set": {**literal, OUTBOX.events: later_events, OUTBOX.due: {"$literal": box.events[count].time}}}]
        return (yield from self._change(box, query, update))

    def postpone(self, box: Box, due: str) -> Flow[Box | None]:
        """Postpone the entity's next sweep to `due`, if the oldest event is still the same."""
        return (yield from self._change(box, self._match_read_box(box, 0), {"$set": {OUTBOX.due: due}}))

    def replace(self, box: Box, place: int, event: PendingEvent) -> Flow[Box | None]:
        """Replace an event, and make the entity due for the next sweep."""
        changes = {f"{OUTBOX.events}.{place}": event.as_fields(), OUTBOX.due: box.events[0].time}
        return (yield from self._change(box, self._match_read_box(box, place), {"$set": changes}))

    def restart(self, box: Box, incarnation: str) -> Flow[Box | None]:
        """Restart the count of sent events at zero, under a new source."""
        update = {"$set": {OUTBOX.sent_count: 0, OUTBOX.incarnation: incarnation}}
        return (yield from self._change(box, self._match_read_box(box, 0 if box.events else None), update))

    def finder(self, before: str | None, share: Callable[[], float]) -> Finder:
        """Return a search for pending events that are due `before` that time, or for all pending events if it's None.

        Each page is in a random order, so that two relays don't publish the events of the same entities. `share` draws the order.
        """
        return Finder(self, before, share)

    def _match_read_box(self, box: Box, place: int | None) -> dict[str, Any]:
        """Return the conditions that the document's outbox hasn't changed since it was read, up to the event at `place`.

        The count alone isn't enough, because the new events of a document that is deleted and created again have the same counts.
        """
        fields = {OUTBOX.sent_count: box.sent_count, OUTBOX.incarnation: box.incarnation}
        conditions: dict[str, Any] = {"_id": box.entity["_id"]}
        conditions |= {name: {"$exists": False} if value is None else value for name, value in fields.items()}
        if place is not None:
            conditions[f"{OUTBOX.events}.{place}.nonce"] = box.events[place].nonce
        return conditions

    def _change(self, box: Box, query: dict[str, Any], update: Any) -> Flow[Box | None]:
        """Change the outbox, and return None, or return the current box if the query doesn't match it."""
        reply = yield Call("update_one", (query, update))
        return None if reply.matched_count else (yield from self.read({"_id": box.entity["_id"]}))

    def _make_box(self, document: Document) -> Box:
        """Return the outbox in a document, with the document's key as a relay reads it and as the caller's client reads it."""
        key = caller_key = document["_id"]
        with suppress(Exception):  # keep the key if the caller's options can't decode it
            caller_key = _recode(key, self._codec, self._caller_codec)
        fields = {name: _make_neutral(document[name]) for name in (*OUTBOX, TOMBSTONE) if name in document}
        box = read_box(self.outbox.label, {"_id": key}, f"{self.outbox.name}/{format_key(key, self._codec)}", fields)
        return replace(box, caller_entity={"_id": caller_key})


class Finder:
    """A search through the ids of documents with pending events, by due time, which reads each document's outbox."""

    def __init__(self, boxes: Outboxes, before: str | None, share: Callable[[], float]) -> None:
        self._boxes, self._before, self._share = boxes, before, share
        self._cursor: Any = None
        self._due: object = None  # the due time of the last document found
        self._due_ids: list[Any] = []  # the ids with exactly that due time
        self._has_found = False  # whether the cursor has found anything. A cursor that is lost before that isn't reopened
        self._ids: deque[Any] = deque()

    def next(self) -> Flow[Box | BrokenOutbox | Search | None]:
        """Return the next outbox, or None at the end. Each step is one request."""
        if not self._ids:
            return Search.CONTINUES if (yield from self._turn_page()) else None
        key = self._ids.popleft()
        box = key if isinstance(key, BrokenOutbox) else (yield from try_read(self._boxes.read, {"_id": key}))
        # An outbox might have been cleared or postponed since its id was read.
        return box if isinstance(box, BrokenOutbox) or box.is_due(self._before) else Search.CONTINUES

    def count_remaining(self) -> Flow[int]:
        """Return the number of documents that the search will find, up to a maximum."""
        until = {} if self._before is None else {"$lte": self._before}
        since = {"$gt": self._due} if isinstance(self._due, str) else {}
        query = {OUTBOX.due: {"$exists": True, **until, **since}}
        count: int = yield Do(self._boxes.target.count_documents, (query,), {"limit": _MAX_COUNT}, sends=True)
        return len(self._ids) + count

    def _turn_page(self) -> Flow[bool]:
        """Read more ids, and return whether there might be another page. Reopen a lost cursor where it stopped."""
        if self._cursor is None:
            # The sparse index on the due time limits the query to pending outboxes.
            until = {} if self._before is None else {"$lte": self._before}
            since = {"$gte": self._due} if isinstance(self._due, str) else {}
            query: dict[str, Any] = {OUTBOX.due: {"$exists": True, **until, **since}}
            found_ids = [key for key in self._due_ids if not isinstance(key, BrokenOutbox)]
            if found_ids:
                query["_id"] = {"$nin": found_ids}
            arguments = query, {"_id": 1, OUTBOX.due: 1}
            cursor: Any = yield Do(self._boxes.raw_target.find, arguments, {"sort": [(OUTBOX.due, 1)]}, sends=True)
            self._cursor = aiter(cursor) if hasattr(cursor, "__aiter__") else iter(cursor)
        try:
            page, is_lost = yield Do(_read_page, (self._cursor,), sends=True)
        except CursorNotFound:
            if not self._has_found:
                raise
            self._cursor, self._has_found = None, False
            return True
        self._has_found = self._has_found or bool(page)
        if is_lost:
            self._cursor, self._has_found = None, False
        keys: list[Any] = []
        for document in page:
            key, due = _read_id_and_due(document)
            keys.append(key)
            if due != self._due:
                self._due, self._due_ids = due, []
            self._due_ids.append(key)
        self._ids.extend(sorted(keys, key=lambda _: self._share()))
        return bool(page)


_PAGE_SIZE = 1000  # ids, in which two relays seldom meet
_MAX_COUNT = 1_000_000  # documents, because the count reads an entry of the index for each


def _read_page(cursor: Any) -> Any:
    """Return the cursor's next page, and whether the server lost the cursor in it, or an awaitable of both if the cursor is asynchronous.

    Raise `CursorNotFound` if the cursor was lost before the page.
    """
    if hasattr(cursor, "__anext__"):
        return _read_page_async(cursor)
    page: list[Any] = []
    try:
        for document in islice(cursor, _PAGE_SIZE):
            page.append(document)  # noqa: PERF402  # a lost cursor must not take the documents before it with it
    except CursorNotFound:
        if not page:
            raise
        return page, True
    return page, False


async def _read_page_async(cursor: Any) -> tuple[list[Any], bool]:
    """Return the next page of an asynchronous cursor like `_read_page`."""
    page: list[Any] = []
    try:
        while len(page) < _PAGE_SIZE:
            page.append(await anext(cursor))
    except StopAsyncIteration:
        pass
    except CursorNotFound:
        if not page:
            raise
        return page, True
    return page, False


def _read_id_and_due(document: Any) -> tuple[Any, object]:
    """Return an id and its due time.

    If the id can't be read, return a `BrokenOutbox` with the error instead. The document then doesn't block the others.
    """
    if not isinstance(document, RawBSONDocument):
        return document["_id"], document[OUTBOX.due]
    try:
        fields = BSON(document.raw).decode(STORED_CODEC)
        # A stored document begins with its length, in four bytes, and its _id.
        encoded_id = BSON.encode({"_id": fields["_id"]}, codec_options=STORED_CODEC)[4:-1]
        if document.raw[4 : 4 + len(encoded_id)] == encoded_id:
            return fields["_id"], fields[OUTBOX.due]
        reason: Exception = InvalidBSON(
            "The entity can't be read by its _id, because the driver can't encode this _id as stored."
        )
    except Exception as error:
        reason, fields = error, {}
        with suppress(Exception):  # the document is then named by its bytes
            fields = BSON(document.raw).decode(LENIENT_CODEC)
    return BrokenOutbox({"_id": fields.get("_id", bytes(document.raw))}, reason), fields.get(OUTBOX.due)


# Values that are read with these options are written unchanged. The caller's options could change them.
STORED_CODEC: CodecOptions[Any] = CodecOptions(
    uuid_representation=UuidRepresentation.STANDARD, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
# These options also read strings that aren't valid UTF-8.
LENIENT_CODEC: CodecOptions[Any] = STORED_CODEC.with_options(unicode_decode_error_handler="replace")
_PLAIN_CODEC: CodecOptions[Any] = CodecOptions(datetime_conversion=DatetimeConversion.DATETIME_AUTO)


def format_key(key: object, codec: CodecOptions[Any] = UUIDS) -> str:
    """Return the document's `_id` and its type as part of a URI. `codec` has the client's options, on which the result doesn't depend."""
    match key:
        case str() if not isinstance(key, Code):
            return f"_id=S:{quote(key, safe='')}"
        case int() if not isinstance(key, bool):
            return f"_id=N:{int(key)}"
        case ObjectId():
            return f"_id=O:{key}"
        case _:
            text = json_util.dumps(_recode(key, codec, _PLAIN_CODEC), json_options=json_util.CANONICAL_JSON_OPTIONS)
            return f"_id=J:{quote(text, safe='')}"


def _recode(value: object, old_codec: CodecOptions[Any], new_codec: CodecOptions[Any]) -> object:
    """Return the value as a client with `new_codec` reads it if a client with `old_codec` wrote it. It can have a different type."""
    if old_codec == new_codec:
        return value
    document: Document = BSON.encode({"": value}, codec_options=old_codec).decode(new_codec)
    return document[""]


def _parse_document(text: str) -> object:
    options = json_util.CANONICAL_JSON_OPTIONS.with_options(datetime_conversion=DatetimeConversion.DATETIME_AUTO)
    return json_util.loads(unquote(text), json_options=options)


# The functions that parse the result of `format_key`, by type.
_PARSERS: dict[str, Callable[[str], object]] = {"S": unquote, "N": int, "O": ObjectId, "J": _parse_document}


def _make_neutral(value: Any) -> Any:
    """Return the value, with an Int64 as an int."""
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value
