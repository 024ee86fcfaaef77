"""Deletes from a collection: one update makes a tombstone of the document."""

from __future__ import annotations

from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.flow import Flow
from onewrite.message import Message
from onewrite.missing import accepted, asked_of
from onewrite.mongodb.flows import Writer
from onewrite.mongodb.steps import StepFlows
from onewrite.mongodb.writing.expression import root
from onewrite.mongodb.writing.layout import Document
from onewrite.mongodb.writing.request import guard_delete
from onewrite.mongodb.writing.tombstones import burial
from onewrite.outcome import Outcome
from onewrite.tombstone import made_with_tombstones, new_tombstone


class DeleteFlows(StepFlows):
    """The flows of `StepFlows`, and those of deletes."""

    _indexes_fit = False  # has it been seen that no unique index would take two tombstones for one?

    def delete(
        self, message: Message, query: Document, native: Document, writer: Writer, emit: object = None
    ) -> Flow[Outcome]:
        native, missing_ok = asked_of(native)
        for name in ("upsert", "return_document", "array_filters"):
            if name in native:
                raise InvalidUpdate(f"A delete takes no {name}: leave it out.")
        now = self.clock()
        tombstone = new_tombstone(made_with_tombstones(self._tombstones), now, self.attempts(), self._key)
        entry, emitted = self._ledger.entry(message, now), self._emitted(message, emit, now)
        expires = None if emitted is not None and emitted.events else tombstone.expiry(now)
        stage = burial(entry.terms, tombstone, expires)
        guarded = guard_delete(entry, self._fields, query, stage, native, emission=emitted)
        yield from self._check_indexes_fit()
        outcome = yield from self._write(message, now, guarded, writer)
        return accepted(outcome, missing_ok=missing_ok, counts=entry.own.counts)

    def _check_indexes_fit(self) -> Flow[None]:
        if not self._indexes_fit:
            check_unique_indexes((yield from self._read_indexes(inserts=False)), self._fields)
            self._indexes_fit = True


def check_unique_indexes(indexes: Document, fields: tuple[str, ...]) -> None:
    """Refuse a collection in which two tombstones would have the same key in a unique index: null, for what they do not have."""
    kept = {"_id", *map(root, fields)}
    for name, index in indexes.items():
        keys = [key for key, _ in index["key"]]
        lost = [key for key in keys if root(key) not in kept]
        is_alone = "_id" in keys or (fields and {*fields} <= {*keys})  # what names the entity is part of the key
        is_left_out = "partialFilterExpression" in index or (index.get("sparse") and lost == keys)
        if index.get("unique") and lost and not is_alone and not is_left_out:
            partial = {key: {"$exists": True} for key in lost}
            raise ConfigurationError(
                f"The second entity that is deleted from this collection would meet the first in the unique index {name!r}, where both "
                f"have null for {', '.join(lost)}. Create the index with partialFilterExpression={partial!r}, so that it leaves out what "
                "was deleted."
            )
