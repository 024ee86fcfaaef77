"""Several messages in one write of a collection. What they are together, and what becomes of each, is in onewrite/core/folding.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from pymongo.errors import DocumentTooLarge

from onewrite.core.event import copy_of, make_fold_emission
from onewrite.core.flow import Flow
from onewrite.core.folding import FoldedWrites, Function, Native, fold, join, make_entries
from onewrite.core.ledgers.entry import Entry
from onewrite.core.write import NO_STEP, Write
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.dialect import check_looks, may_create_by_record
from onewrite.mongodb.expression import check_filter, identity
from onewrite.mongodb.flows import CollectionAttempt, Flows, Writer
from onewrite.mongodb.layout import Document
from onewrite.outcome import Outcome

# Measured on MongoDB 6: in writes of more messages than these each of them costs the server more again, not less, because every mark
# and every step is a condition of its own. And where one of them is refused, all are judged.
_MAX_MESSAGES = 100
_RETURN_OPTIONS = frozenset(
    {"return_document", "projection", "maxTimeMS", "bypassDocumentValidation"}
)  # what find_one_and_update alone takes


def fold_into(flows: Flows, messages: Iterable[Message], function: Function) -> Flow[list[Outcome]]:
    return fold(Folds(flows), messages, function)


class Folds(FoldedWrites):
    """What a fold asks of a collection."""

    most = _MAX_MESSAGES
    too_much = (EntityTooLarge, DocumentTooLarge)  # the latter in a transaction, where nothing was sent

    def __init__(self, flows: Flows) -> None:
        self._flows = flows
        self.canonical = flows.canonical

    def entry(self, message: Message) -> Entry:
        entry = self._flows.ledger.entry(message, self._flows.clock())
        check_looks(entry)
        return entry

    def entity_of(self, native: Native) -> Document:
        query = native.get("filter")
        if query is None:
            raise InvalidUpdate("The function of a fold names the entity: return its filter beside the update.")
        check_filter(self._flows.ledger.terms, query)
        # The function may use its dict again, for another entity.
        return cast("Document", copy_of(identity(query, self._flows.fields)))

    def attempt(self, messages: Sequence[Message], native: Native, moved: Sequence[Message] = ()) -> CollectionAttempt:
        flows = self._flows
        emit = native.get("emit")
        arguments = {name: value for name, value in flows.keep(native).items() if name != "emit"}
        if arguments.get("update") is None:
            arguments.pop("update", None)
            arguments = {"upsert": may_create_by_record(arguments["filter"], flows.fields, arguments), **arguments}
        # All at one moment, so all marks go into one slot; the messages may have waited for the caller's function.
        now = flows.clock()
        entry = join(make_entries(flows.ledger, messages, moved, now))
        outbox_part = flows.empty_emission
        if emit is not None:
            outbox_part = make_fold_emission(flows.emitter, messages, emit, now, flows.attempts())
        key, others = flows.read_key(arguments), tuple(messages[1:])
        write = Write(messages[0], key, now, entry, NO_STEP, outbox_part, other_messages=others)
        writer: Writer = "find_one_and_update" if _RETURN_OPTIONS & arguments.keys() else "update_one"
        return flows.attempt(write, arguments, writer)
