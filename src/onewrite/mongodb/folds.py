"""Several messages in one write of a collection. What they are together, and what becomes of each, is in onewrite/core/folding.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from pymongo.errors import DocumentTooLarge

from onewrite.core.event import copy_of, emission_of_fold
from onewrite.core.flow import Flow, split_missing_ok, with_missing_settled
from onewrite.core.folding import TOO_MUCH, FoldRefusal, Function, Landing, Member, Native, TooMuch, fold, join, make_plan
from onewrite.core.ledgers.entry import Entry, Lookup
from onewrite.core.write import NO_STEP, Image, Write, kept_out
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.message import Message
from onewrite.mongodb.expression import check_filter, check_update, identity
from onewrite.mongodb.flows import ROUNDS, Flows, Writer, is_of_entity, next_try
from onewrite.mongodb.layout import Document
from onewrite.mongodb.request import ReadyWrite, check_looks, creates_by_record, guard
from onewrite.outcome import Applied, Outcome

# Measured on MongoDB 6: in writes of more messages than these each of them costs the server more again, not less, because every mark
# and every step is a condition of its own. And where one of them is refused, all are judged.
_MOST = 100
_RETURN_OPTIONS = frozenset(
    {"return_document", "projection", "maxTimeMS", "bypassDocumentValidation"}
)  # what find_one_and_update alone takes


def fold_into(flows: Flows, messages: Iterable[Message], function: Function) -> Flow[list[Outcome]]:
    return fold(Folds(flows), messages, function)


class Folds:
    """What a fold asks of a collection."""

    most = _MOST

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

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        native, missing_ok = split_missing_ok(native)
        request, writer = self._request([message], native)
        flow = self._flows.send_write(request, writer)
        return with_missing_settled(flow, counts=request.write.entry.own.counts) if missing_ok else flow

    def write_all(self, members: Sequence[Member], native: Native) -> Flow[Landing | FoldRefusal | TooMuch]:
        request, writer = self._request([member.message for member in members], native)
        try:
            return (yield from self._write_all(members, request, writer))
        except (EntityTooLarge, DocumentTooLarge):  # the latter in a transaction, where nothing was sent
            return TOO_MUCH

    def _request(self, messages: Sequence[Message], native: Native) -> tuple[ReadyWrite, Writer]:
        flows = self._flows
        others = {
            name: value for name, value in split_missing_ok(native)[0].items() if name not in ("filter", "update", "emit")
        }
        query, update, options = flows.keep_arguments(native["filter"], native.get("update"), others)
        emit = native.get("emit")
        # All at one moment, so all marks go into one slot; the messages may have waited for the caller's function.
        now = flows.clock()
        entry = join([flows.ledger.entry(message, now) for message in messages])
        outbox_part = flows.empty_emission
        if emit is not None:
            outbox_part = emission_of_fold(flows.emitter, messages, emit, now, flows.attempts())
        if update is not None:
            check_update(entry.terms, flows.fields, update)
        else:
            options = {"upsert": creates_by_record(query, flows.fields, options), **options}
        key = identity(query, flows.fields, entry.terms)
        write = Write(messages[0], key, now, entry, NO_STEP, outbox_part, other_messages=tuple(messages[1:]))
        writer: Writer = "find_one_and_update" if _RETURN_OPTIONS & options.keys() else "update_one"
        return guard(write, query, update, options), writer

    def _write_all(self, members: Sequence[Member], request: ReadyWrite, writer: Writer) -> Flow[Landing | FoldRefusal]:
        """As `Flows.send_write`: what may have been a race is tried again. Only the judgement is that of each message."""
        flows = self._flows
        yield from flows.check_collection(request.write.entry)
        upsert, failure = request.upsert, cast("Exception | None", None)
        for turn in range(1, ROUNDS + 1):
            result = yield from flows.try_once(request, writer, upsert=upsert)
            if isinstance(result, Applied):
                return Landing(result.entity, response=result.response)
            image = flows.image_of((yield from flows.look_after(result, request)))
            refusal = self._refusal_of(request.write, image)
            if len(make_plan(members, refusal).fresh) < len(members):
                return refusal
            if result is not None and not image.exists and not is_of_entity(result, request.write.key):
                yield from flows.raise_failure(result, request)
            next_upsert = next_try(request, turn, has_failed=result is not None, exists=image.exists)
            if next_upsert is None:
                return refusal
            upsert, failure = next_upsert, result or failure
        raise cast("Exception", failure)  # only a creation that fails goes round so often

    def _refusal_of(self, write: Write, image: Image) -> FoldRefusal:
        """Why the write did not land, given the document as it was after it."""
        now = self._flows.clock()

        def refusal(member: Member, ledger: Lookup) -> Outcome | None:
            single_write = write._replace(message=member.message, entry=member.entry, other_messages=(), now=now)
            return kept_out(single_write, image._replace(ledger=ledger))

        return FoldRefusal(image.ledger, refusal)
