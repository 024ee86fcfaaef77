"""Finds the steps that are open in a collection, whatever ledger their finish writes. It reads the whole collection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from pymongo.read_concern import ReadConcern

from onewrite.flow import Call, Do, Flow
from onewrite.label import STEPS
from onewrite.mongodb.layout import Document
from onewrite.mongodb.outboxes import STORED, origin, reading
from onewrite.step import FoundStep, found_step

_OPEN: Document = {STEPS: {"$exists": True, "$ne": {}}}


class StepFinder:
    """Goes through a collection once. It reads what a majority holds, from where the client's read preference says."""

    def __init__(self, collection: Any) -> None:
        # An _id that is no text must not hide the steps of all others. It is shown only.
        codec = STORED.with_options(unicode_decode_error_handler="replace")
        self.target = reading(collection.with_options(read_concern=ReadConcern("majority")), codec)
        self._cursor: Any = None

    def next(self) -> Flow[list[FoundStep] | None]:
        """The steps of the next document; None at the end."""
        if self._cursor is None:
            self._cursor = yield Call("find", (_OPEN, {STEPS: 1}))
        document: Document | None = yield Do(next, (self._cursor, None))
        if document is None:
            return None
        entity, held = origin(document["_id"]), document[STEPS]
        steps = cast("Document", held).values() if isinstance(held, Mapping) else [held]
        return [found_step(entity, step) for step in steps]
