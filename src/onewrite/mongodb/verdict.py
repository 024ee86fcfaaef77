"""Explains what MongoDB returned as an outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from pymongo.errors import DuplicateKeyError, ExecutionTimeout, OperationFailure, WriteConcernError

from onewrite.event import Emission
from onewrite.label import STEPS, TOMBSTONE, check_outbox
from onewrite.ledgers.entry import Entry, Lookup, Terms
from onewrite.message import Message
from onewrite.mongodb.writing.layout import Document, lookup, without_ledger
from onewrite.mongodb.writing.request import Guarded
from onewrite.outcome import Busy, Deferred, Entity, Missing, Outcome, Rejected, Superseded, Uncertain
from onewrite.step import Step, answer_to, no_step, read_step, step_mark

LARGEST_DOCUMENT = 16 * 1024 * 1024  # bytes of BSON, the server's limit
# BSONObjectTooLarge, the same for an upsert, and what the result of a pipeline raises.
_TOO_LARGE = frozenset({10334, 17419, 17420})
# Unauthorized, AuthenticationFailed, and rate limits of MongoDB and of compatible services: they say nothing about the document.
_UNWILLING = frozenset({13, 18, 462, 16500})
# BadValue, TypeMismatch, PathNotViable, and $concatArrays on something else: the cause may be the caller's update, or a broken ledger.
_CONTENT = frozenset({2, 14, 28, 28664})


def unmatched(
    entry: Entry,
    message: Message,
    document: Document | None,
    emission: Emission | None = None,
    *,
    now: float,
    entity_key: Document,
) -> Outcome:
    """Why a guarded write matched nothing, given the document. The ledger comes before the caller's own condition."""
    held, entity = document or {}, entity_of(entry.terms, document)
    found = kept_out(entry, message, held, lookup(held), entity, emission=emission, now=now, entity_key=entity_key)
    if found is not None:
        return found
    return Missing(message) if document is None else Rejected(message, entity)


def of_creation(outcome: Outcome, entity: Document, inserted: Document) -> Outcome:
    """The answer to an insert. It comes again where nothing but a key is in its way, as a record leaves it that came before it."""
    if isinstance(outcome, Rejected) and outcome.entity == entity and len(inserted) > len(entity):
        return replace(outcome, settled=False)
    return outcome


def kept_out(
    entry: Entry,
    message: Message,
    document: Document,
    ledger: Lookup,
    entity: Entity | None,
    *,
    emission: Emission | None,
    now: float,
    entity_key: Document,
) -> Outcome | None:
    """Why the message is kept out, whatever the caller's condition says. None: it is let in. `ledger`: what the document has of it."""
    step = open_step(entry, message, document)
    if step is not None:
        return answer_to(step, message, now, entity, entity_key)
    refusal = entry.judge(message, ledger, entity=entity, gone=TOMBSTONE in document)
    if refusal is None:
        check_emits(emission, document)
    return refusal


def entity_of(terms: Terms, document: Document | None) -> Entity | None:
    """The document as the caller sees it."""
    return None if document is None or TOMBSTONE in document else without_ledger(terms, document)


def kept_alive(outcome: Outcome, document: Document | None, now: float) -> Outcome:
    """What a delete answers: a step of any message keeps the document alive, also where its lease is over."""
    if not isinstance(outcome, Rejected | Busy | Uncertain) or not (steps := steps_of(document or {})):
        return outcome
    return Busy(outcome.message, max([read_step(step).until for step in steps.values()], default=now), outcome.entity)


def finish_unmatched(
    entry: Entry, message: Message, document: Document | None, emission: Emission | None, *, fence: str
) -> Outcome | None:
    """Why a write could not finish the step, given the document. None: the step is this worker's to finish."""
    held, entity = document or {}, entity_of(entry.terms, document)
    step = open_step(entry, message, held)
    if step is None:
        refusal = entry.judge(message, lookup(held), entity=entity, gone=TOMBSTONE in held)
        return Superseded(message, entity) if refusal is None or isinstance(refusal, Deferred) else refusal
    if step.fence != fence:
        return Superseded(message, entity)
    gap = entry.judge(message, lookup(held), entity=entity)
    if isinstance(gap, Deferred):  # a counting ledger took over while the step was open: its mark cannot pass over the gap
        return gap
    check_emits(emission, held)
    return None


def check_emits(emission: Emission | None, held: Document) -> None:
    """Raise if the write emits events, and something else stands where they would be."""
    if emission is not None and emission.events:
        check_outbox(emission.shape.label, held)


def open_step(entry: Entry, message: Message, document: Document) -> Step | None:
    """The step that the message has begun and not finished, under this ledger or one in its also=."""
    steps = steps_of(document)
    marks = [step_mark(attribute, message).hex() for attribute in entry.terms.attributes] if steps else []
    return next((read_step(steps[mark]) for mark in marks if mark in steps), None)


def steps_of(document: Document) -> Document:
    """The open steps of a document, by the marks of their messages."""
    held: object = document.get(STEPS, {})
    if not isinstance(held, Mapping):
        raise no_step()
    return cast("Document", held)


def says_nothing_was_done(error: Exception) -> bool:
    """Is it certain that the write had no effect? Not where only its durability failed, or its time was up."""
    if not isinstance(error, OperationFailure) or isinstance(error, WriteConcernError | ExecutionTimeout):
        return False
    return error.code not in _UNWILLING


def is_of_entity(error: DuplicateKeyError, entity: Mapping[str, Any]) -> bool:
    """Is the duplicate key the entity's own? A unique index of the caller's is the caller's business."""
    pattern = (error.details or {}).get("keyPattern")
    # Servers before MongoDB 4.2, and Amazon DocumentDB, do not say which index refused: then the entity itself must tell.
    return pattern is None or set(pattern) <= set(entity)


def is_too_large(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code in _TOO_LARGE


def may_be_ledger(error: Exception) -> bool:
    return isinstance(error, OperationFailure) and error.code in _CONTENT


def next_try(guarded: Guarded, turn: int, *, failed: bool, exists: bool, fits: bool = True) -> bool | None:
    """A write did not land although the ledger would let it in. Is the next one an upsert? None if there is none.

    `fits`: was it in the form that the ledger wants, as an earlier look has shown?
    """
    if failed or (exists and not fits):
        return False  # the entity is there: now the write matches it, or has a reason not to
    if guarded.upsert and not (exists and guarded.conditional):
        return True  # it was deleted meanwhile, and maybe created again: nothing else could keep the message out
    if turn == 1 and guarded.entry.follows_gap:
        return False  # the gap that kept the message out may have been filled before the look
    return None


def is_race(failure: Exception, guarded: Guarded) -> bool:
    """Did another create the entity first? It may be deleted again by now."""
    return isinstance(failure, DuplicateKeyError) and is_of_entity(failure, guarded.entity)
