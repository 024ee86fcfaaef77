"""The flows of a guarded collection that begin a step, finish it and let it go. The rules are in onewrite/step.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pymongo.errors import DocumentTooLarge, OperationFailure

from onewrite.errors import LedgerMismatch
from onewrite.event import moment
from onewrite.flow import Call, Flow
from onewrite.label import check_outbox
from onewrite.ledgers.entry import Entry
from onewrite.message import Message
from onewrite.missing import accepted, asked_of
from onewrite.mongodb.flows import Flows, Writer, landed
from onewrite.mongodb.verdict import finish_unmatched, open_step, steps_of
from onewrite.mongodb.writing.expression import Update, identity
from onewrite.mongodb.writing.layout import Document, lookup
from onewrite.mongodb.writing.own_part import Finishes, withdrawing_filter
from onewrite.mongodb.writing.request import Guarded, guard_begin, guard_finish, keeps_text
from onewrite.outcome import Answer, Applied, Begun, Busy, Outcome, Rejected, Uncertain, Unmet
from onewrite.step import (
    MOVED_BACK,
    Asked,
    Claim,
    Step,
    answer_to,
    check_begin,
    check_claim,
    check_release,
    fence_of_unsent,
    new_step,
    read_step,
    since,
)
from onewrite.step_flows import Effect, Start, Then, begun, performed

_FINISHES = 4  # others may move the mark on between a write and the look after it


class StepFlows(Flows):
    """The flows of `Flows`, and those of steps."""

    def begin(self, message: Message, query: Document, native: Document, asked: Asked) -> Flow[Answer]:
        check_begin(asked)
        native, missing_ok = asked_of(native)
        now, entity = self.clock(), identity(query, self._fields)
        if asked.after is not None:
            check_claim(asked.after, message, entity, self.canonical)
        entry = self._ledger.entry(message, now).asking
        fresh = new_step(self._ledger.attribute, message, asked, self.attempts(), now)
        label = None if self._outbox is None else self._outbox.label
        guarded = guard_begin(entry, self._fields, query, native, paths=self._steps(message), step=fresh, outbox=label)
        if self._fields or keeps_text(entry):
            yield from self._check_collection(entry)

        def try_to_begin(step: Step, replaced: str | None) -> Flow[Step | Outcome | None]:
            return self._try_begin(message, guarded, step, replaced)

        answer = yield from begun(Start(message, entity, asked, fresh, now, self.clock), try_to_begin)
        return accepted(answer, missing_ok=missing_ok, counts=entry.own.counts)

    def _try_begin(
        self, message: Message, guarded: Guarded, step: Step, replaced: str | None
    ) -> Flow[Step | Outcome | None]:
        if replaced is not None:
            path = self._step(message, step.ledger)
            same = {**guarded.entity, f"{path}.fence": replaced}
            guarded = guarded._replace(filter=same, update={"$set": {path: step.stored()}})
        outcome: Outcome | None = None
        for _ in range(2):  # what refused the write may be gone by the look, as a step that was let go is
            if (yield from self._lands(guarded)):
                return step
            found = yield from self._look(guarded.entity, guarded.native)
            if self._outbox is not None:
                check_outbox(self._outbox.label, found or {})
            met = open_step(guarded.entry, message, found or {})
            if met is not None:
                return met
            outcome = self._unmatched(guarded.entry, message, guarded.entity, found)
            if not isinstance(outcome, Unmet):
                return outcome
            if replaced is not None and found is not None:
                return None  # the step that was to be replaced is gone, and the message was not done
        if isinstance(outcome, Rejected) and (yield from self._holds(guarded)):
            return replace(outcome, settled=False)  # something else than the caller's condition refused it, as a hint may
        return (yield from self._settled(cast("Outcome", outcome), guarded.entry, guarded.entity, guarded.native))

    def _lands(self, guarded: Guarded) -> Flow[bool]:
        try:
            reply = yield Call("update_one", (guarded.filter, guarded.update), {"upsert": False, **guarded.native})
        except (OperationFailure, DocumentTooLarge) as error:
            return (yield from self._raise(error, guarded))
        return landed("update_one", reply, upsert=False)

    def change(
        self,
        message: Message,
        query: Document,
        update: Update,
        native: Document,
        writer: Writer,
        *,
        emit: object,
        finishes: Claim | None,
    ) -> Flow[Outcome]:
        """A write, which may finish a step."""
        if finishes is None:
            return self.update(message, query, update, native, writer, emit=emit)
        return self._finish(message, query, update, native, writer, finishes=finishes, emit=emit)

    def remember(
        self, message: Message, query: Document, native: Document, emit: object, finishes: Claim | None
    ) -> Flow[Outcome]:
        """A record, which may finish a step."""
        if finishes is None:
            return self.record(message, query, native, emit)
        return self._finish(message, query, None, native, "update_one", finishes=finishes, emit=emit)

    def _finish(
        self,
        message: Message,
        query: Document,
        update: Update | None,
        native: Document,
        writer: Writer,
        *,
        finishes: Claim,
        emit: object,
    ) -> Flow[Outcome]:
        native, _ = asked_of(native)
        now, entity = self.clock(), identity(query, self._fields)
        check_claim(finishes, message, entity, self.canonical)
        entry, emitted = self._ledger.entry(message, now), self._emitted(message, emit, now)
        path = self._step(message)
        for turn in range(_FINISHES):
            fenced = Finishes(path, finishes.fence, overtaken=turn % 2 == 1)
            guarded = guard_finish(entry, self._fields, query, update, native, finishes=fenced, emission=emitted)
            met = yield from self._try_finish(message, now, guarded, writer, finishes.fence)
            if not isinstance(met, tuple):
                return met
            entry, ledger = met
            path = self._step(message, ledger)
        raise LedgerMismatch(MOVED_BACK)

    def _try_finish(
        self, message: Message, now: float, guarded: Guarded, writer: Writer, fence: str
    ) -> Flow[Outcome | tuple[Entry, str]]:
        """An entry: the step is ours, and this is what the next try asks of the ledger. The text is the step's own ledger."""
        tried = yield from self._try(message, now, guarded, writer, upsert=False)
        if isinstance(tried, Applied):
            return tried
        found = yield from self._look(guarded.entity, guarded.native, guarded.entry)
        outcome = finish_unmatched(guarded.entry, message, found, guarded.emission, fence=fence)
        if outcome is not None:
            return outcome
        held = found or {}
        return guarded.entry.facing(lookup(held)), cast("Step", open_step(guarded.entry, message, held)).ledger

    def release(self, step: Begun, *, sent: bool) -> Flow[None]:
        """End the lease, if the step is still this worker's. One whose effect nobody can have sent is removed.

        It stays, as one that anybody may take over, under a ledger by which later messages may overtake this one: only the step says
        then that the message is still to be done.
        """
        check_release(step)
        entity = step.entity_key
        unsent, entry = step.first and not sent, self._entry(step.message)
        for path in self._steps(step.message):  # it may be under a ledger in also=
            if unsent and not entry.may_be_overtaken:
                query = withdrawing_filter(entry.asking, entity, path, step.fence)
                reply = yield Call("update_one", (query, {"$unset": {path: ""}}))
                if reply.matched_count == 1:
                    return
            ended: Document = {f"{path}.until": moment(self.clock())}
            if unsent:
                ended = {**ended, f"{path}.unsent": True, f"{path}.fence": fence_of_unsent(step.fence)}
            update = {"$set": ended}
            reply = yield Call("update_one", ({**entity, f"{path}.fence": step.fence}, update))
            if reply.matched_count == 1:
                return

    def perform(
        self, message: Message, query: Document, native: Document, asked: Asked, *, effect: Effect, then: Then
    ) -> Flow[Outcome]:
        def finish(step: Begun, made: Mapping[str, Any]) -> Flow[Outcome]:
            arguments = dict(made)
            update, emit = arguments.pop("update", None), arguments.pop("emit", None)
            return self._finish(message, step.entity_key, update, arguments, "update_one", finishes=step, emit=emit)

        return performed(self.begin(message, query, native, asked), effect, finish, self.release, then)

    def open_steps(self, query: Document, native: Document) -> Flow[list[Busy | Uncertain]]:
        """The entity's steps of this store's ledger, and of those in its also=, those first that were begun first."""
        entity = identity(query, self._fields)
        found = yield from self._look(entity, native)
        steps = [read_step(value) for value in steps_of(found or {}).values()]
        mine = sorted([step for step in steps if step.ledger in self._ledger.terms.attributes], key=since)
        return [answer_to(step, step.message, self.clock(), None, entity) for step in mine]
