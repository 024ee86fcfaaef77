"""Deletes from a collection: one update makes a tombstone of the document."""

from __future__ import annotations

from onewrite.errors import InvalidUpdate
from onewrite.flow import Flow
from onewrite.message import Message
from onewrite.missing import accepted, asked_of
from onewrite.mongodb.flows import Flows, Writer
from onewrite.mongodb.indexes import check_unique_indexes
from onewrite.mongodb.layout import Document
from onewrite.mongodb.request import guard, in_transaction
from onewrite.mongodb.tombstones import burial
from onewrite.outcome import Outcome
from onewrite.tombstone import made_with_tombstones, new_tombstone
from onewrite.write import Burial, NoStepAtAll


def delete(
    flows: Flows, message: Message, query: Document, native: Document, writer: Writer, *, emit: object = None
) -> Flow[Outcome]:
    native, missing_ok = asked_of(native)
    for name in ("upsert", "return_document", "array_filters"):
        if name in native:
            raise InvalidUpdate(f"A delete takes no {name}: leave it out.")
    tombstones = made_with_tombstones(flows.tombstones)
    write = flows.new_write(message, query, emit, NoStepAtAll())
    terms, emission = write.entry.terms, write.emission
    tombstone = new_tombstone(tombstones, write.now, flows.attempts(), flows.key_fields)
    expires = None if emission is not None and emission.events else tombstone.expiry(write.now)
    write = write._replace(burial=Burial(tombstone))
    request = guard(write, flows.fields, query, [burial(terms, tombstone, expires)], native)
    # A document that is not there is made, so that a message that comes late meets it; but not where the filter asks more of it.
    creates = not request.conditional and not in_transaction(native) and not write.entry.follows_gap
    if not flows.unique_indexes_fit:
        check_unique_indexes((yield from flows.read_indexes(inserts=False)), flows.fields)
        flows.unique_indexes_fit = True
    outcome = yield from flows.written(request._replace(upsert=creates), writer)
    return accepted(outcome, missing_ok=missing_ok, counts=write.entry.own.counts)
