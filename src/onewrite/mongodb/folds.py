"""Several messages in one write of a collection. What they are together, and what becomes of each, is in onewrite/folding.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from pymongo.errors import DocumentTooLarge

from onewrite.copies import copied
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.event import emission_of_fold
from onewrite.flow import Flow
from onewrite.folding import TOO_MUCH, Each, Function, Native, Refused, TooMuch, Written, fold, joined, planned
from onewrite.ledgers.entry import Entry, Lookup
from onewrite.message import Message
from onewrite.missing import accepting, asked_of
from onewrite.mongodb.deletes import DeleteFlows
from onewrite.mongodb.flows import ROUNDS, Writer
from onewrite.mongodb.verdict import entity_of, is_race, kept_out, next_try
from onewrite.mongodb.writing.expression import check_filter, identity
from onewrite.mongodb.writing.layout import Document, lookup
from onewrite.mongodb.writing.request import Guarded, guard_fold
from onewrite.outcome import Applied, Outcome

# Measured on MongoDB 6: in writes of more messages than these each of them costs the server more again, not less, because every mark
# and every step is a condition of its own. And where one of them is refused, all are judged.
_MOST = 100
_RETURNING = frozenset({"return_document", "projection", "maxTimeMS"})  # what find_one_and_update alone takes


class FoldFlows(DeleteFlows):
    """The flows of `DeleteFlows`, and those of writes of several messages."""

    most = _MOST

    def fold(self, messages: Iterable[Message], function: Function) -> Flow[list[Outcome]]:
        return fold(self, messages, function)

    def entry(self, message: Message) -> Entry:
        return self._entry(message)

    def entity_of(self, native: Native) -> Document:
        query = native.get("filter")
        if query is None:
            raise InvalidUpdate("The function of a fold names the entity: return its filter beside the update.")
        check_filter(self._ledger.terms, query)
        return cast(
            "Document", copied(identity(cast("Document", query), self._fields))
        )  # the function may use its dict again, for another entity

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        native, missing_ok = asked_of(native)
        now = self.clock()
        guarded, writer = self._together([message], native, now)
        flow = self._write(message, now, guarded, writer)
        return accepting(flow, counts=guarded.entry.own.counts) if missing_ok else flow

    def write_all(self, each: Sequence[Each], native: Native) -> Flow[Written | Refused | TooMuch]:
        now = self.clock()
        guarded, writer = self._together([one.message for one in each], native, now)
        try:
            return (yield from self._write_all(each, now, guarded, writer))
        except (EntityTooLarge, DocumentTooLarge):  # the latter in a transaction, where nothing was sent
            return TOO_MUCH

    def _together(self, messages: Sequence[Message], native: Native, now: float) -> tuple[Guarded, Writer]:
        options: dict[str, Any] = dict(asked_of(native)[0])
        query, update, emit = options.pop("filter"), options.pop("update", None), options.pop("emit", None)
        # All at one moment, so that all marks go into one slot; the messages may have waited for the caller's function.
        entry = joined([self._ledger.entry(message, now) for message in messages])
        emitted = self._nothing if emit is None else emission_of_fold(self._emitter, messages, emit, now, self.attempts())
        steps = [path for message in messages for path in self._steps(message)]
        guarded = guard_fold(entry, self._fields, query, update, options, steps=steps, emission=emitted)
        return guarded, "find_one_and_update" if _RETURNING & options.keys() else "update_one"

    def _write_all(self, each: Sequence[Each], now: float, guarded: Guarded, writer: Writer) -> Flow[Written | Refused]:
        """As `_write`: what may have been a race is tried again. Only the judgement is that of each message."""
        yield from self._check_collection(guarded.entry)
        upsert = guarded.upsert
        failure: Exception | None = None
        for turn in range(1, ROUNDS + 1):
            tried = yield from self._try(each[0].message, now, guarded, writer, upsert=upsert)
            if isinstance(tried, Applied):
                return Written(tried.entity, response=tried.response)
            found = yield from self._look_after(tried, guarded)
            refused = self._refused(guarded, found)
            if len(planned(each, refused).fresh) < len(each):
                return refused
            if tried is not None and found is None and not is_race(tried, guarded):
                yield from self._raise(tried, guarded)
            following = next_try(guarded, turn, failed=tried is not None, exists=found is not None)
            if following is None:
                return refused
            upsert, failure = following, tried or failure
        raise cast("Exception", failure)  # only a creation that fails goes round so often

    def _refused(self, guarded: Guarded, found: Document | None) -> Refused:
        """Why the write did not land, given the document as it was after it."""
        held, emission, now = found or {}, guarded.emission, self.clock()
        entity = entity_of(self._ledger.terms, found)

        def refusal(one: Each, ledger: Lookup) -> Outcome | None:
            told: Any = {"emission": emission, "now": now, "entity_key": guarded.entity}
            return kept_out(one.entry, one.message, held, ledger, entity, **told)

        return Refused(lookup(held), refusal)
