"""Several messages in one write of a collection. What they are together, and what becomes of each, is in onewrite/core/folding.py."""

from __future__ import annotations

from typing import cast

from pymongo.errors import DocumentTooLarge

from onewrite.core.engine import Native
from onewrite.core.event import copy_value
from onewrite.core.folding import FoldedWrites
from onewrite.core.ledgers.entry import Entry
from onewrite.core.write import NO_STEP, Write
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.mongodb.dialect import check_looks, may_create_by_record
from onewrite.mongodb.expression import check_filter, read_entity_key
from onewrite.mongodb.flows import CollectionAttempt, Flows, Writer
from onewrite.mongodb.layout import Document

# Measured on MongoDB 6: in writes of more messages than these each of them costs the server more again, not less, because every mark
# and every step is a condition of its own. And where one of them is refused, all are judged.
_MAX_MESSAGES = 100
_RETURN_OPTIONS = frozenset(
    {"return_document", "projection", "maxTimeMS", "bypassDocumentValidation"}
)  # what find_one_and_update alone takes


class Folds(FoldedWrites[Flows]):
    """What a fold asks of a collection."""

    too_much = (EntityTooLarge, DocumentTooLarge)  # the latter in a transaction, where nothing was sent
    step = NO_STEP

    @property
    def max_messages(self) -> int:
        return _MAX_MESSAGES

    def check_looks(self, entry: Entry) -> None:
        check_looks(entry)

    def read_entity(self, native: Native) -> Document:
        query = native.get("filter")
        if query is None:
            raise InvalidUpdate("The function of a fold names the entity: return its filter beside the update.")
        check_filter(self.engine.ledger.terms, query)
        # The function may use its dict again, for another entity.
        return cast("Document", copy_value(read_entity_key(query, self.engine.fields)))

    def build(self, write: Write, native: Native) -> CollectionAttempt:
        arguments = dict(native)
        if arguments.get("update") is None:
            arguments.pop("update", None)
            arguments = {"upsert": may_create_by_record(arguments["filter"], self.engine.fields, arguments), **arguments}
        writer: Writer = "find_one_and_update" if _RETURN_OPTIONS & arguments.keys() else "update_one"
        return self.engine.attempt(write, arguments, writer)
