"""The requests of a guarded write on MongoDB: the caller's own call, with what the parts of the write ask and change beside it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from onewrite.core.write import Write
from onewrite.errors import InvalidUpdate
from onewrite.mongodb.dialect import Draft, add_parts, check_looks, new_fields
from onewrite.mongodb.expression import Update, asks_more, check_document, check_projection, identity
from onewrite.mongodb.indexes import check_collation, keeps_text
from onewrite.mongodb.layout import Document

_SMALLEST, _LARGEST = -(2**63) + 1, 2**63 - 1  # BSON's integers have 64 bits
_ABSENT: Document = {"$exists": False}
_NONE_OPEN: Document = {"$in": [None, {}]}  # the last step that is finished leaves an empty document


class ReadyWrite(NamedTuple):
    """A write that is ready to be sent."""

    write: Write
    filter: dict[str, Any]
    update: dict[str, Any] | list[Any]
    upsert: bool
    native: Mapping[str, Any]
    query: Document  # the caller's own filter
    change: Update  # and update

    @property
    def conditional(self) -> bool:
        """Does the caller's filter say more than which entity?"""
        return asks_more(self.query, self.write.key)

    def of(self, write: Write) -> ReadyWrite:
        """The same call with these parts."""
        merged_query, merged_update = _merge(write, self.query, self.change)
        return self._replace(write=write, filter=merged_query, update=merged_update)


def guard(write: Write, query: Document, update: Update | None, native: Mapping[str, Any]) -> ReadyWrite:
    """`update`: one that touches nothing of ours; None where nothing else changes."""
    entry, options, upsert = write.entry, native, False
    if update is None:
        update = {}
    if native:
        options = {**native}
        upsert = bool(options.pop("upsert", False))
    if options:
        if options.get("projection") is not None:
            check_projection(entry.terms, options["projection"])
        check_collation(options.get("collation"), write.key, text=keeps_text(entry))
        if "CURRENT" in (options.get("let") or ()):
            raise InvalidUpdate(
                'let={"CURRENT": ...} would take the place of the document, of which the ledger is a part: give it another name.'
            )
        if upsert:
            check_not_in_transaction(options, "upsert=True", _NO_UPSERT)
    # What follows a gap creates no entity; and the equality in its filter would be copied into the new document.
    upsert = upsert and not (entry.own.counts and entry.follows_gap)
    merged_query, merged_update = _merge(write, query, update)
    return ReadyWrite(write, merged_query, merged_update, upsert, options, query, update)


def guard_insert(write: Write, document: Document, native: Mapping[str, Any]) -> dict[str, Any]:
    """The document to insert, with what the parts add to a new one."""
    check_document(write.entry.terms, document)
    check_not_in_transaction(native, "insert_one", _NO_INSERT)
    check_looks(write.entry)  # a later delivery that does not insert would be refused
    return {**document, **new_fields(write)}


def creates_by_record(query: Document, fields: tuple[str, ...], native: Mapping[str, Any]) -> bool:
    """May a record create its entity? Not one that asks something of the entity, which an upsert would copy into a new document."""
    entity = identity(query, fields)
    return "_id" in entity and not asks_more(query, entity) and not in_transaction(native)


_NO_UPSERT = (
    "Create the entity before it, or leave out upsert: the duplicate-key error of a redelivery would abort the transaction."
)
_NO_INSERT = "Create the entity before it: the duplicate-key error of a redelivery would abort the transaction."


def in_transaction(native: Mapping[str, Any]) -> bool:
    session = native.get("session")
    return session is not None and bool(session.in_transaction)


def check_not_in_transaction(native: Mapping[str, Any], name: str, remedy: str) -> None:
    if in_transaction(native):
        raise InvalidUpdate(f"{name} in a transaction is refused. {remedy}")


# --- our parts beside the caller's filter and update ---------------------------------------------------------------------


def _merge(write: Write, query: Document, update: Update) -> tuple[dict[str, Any], dict[str, Any] | list[Any]]:
    """Merge our parts into the caller's filter and update."""
    is_pipeline = type(update) is not dict and not isinstance(update, Mapping)
    draft = Draft(stages=is_pipeline)
    add_parts(write, draft)
    merged_query = {**query, **draft.asks}
    if draft.also:
        merged_query["$and"] = [*query.get("$and", ()), *draft.also]
    if is_pipeline:
        return merged_query, [*cast("Sequence[Document]", update), draft.stage]
    merged_update = dict(cast("Document", update))
    for operator, change in draft.operators.items():
        merged_update[operator] = {**merged_update[operator], **change} if operator in merged_update else change
    return merged_query, merged_update
