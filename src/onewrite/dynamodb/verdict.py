"""Explains what DynamoDB returned as an outcome. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.writing.attempt import Attempt
from onewrite.dynamodb.writing.layout import attempts_name, lookup, name_of_step, without_ledger
from onewrite.errors import LedgerMismatch
from onewrite.label import STEPS, TOMBSTONE, check_outbox
from onewrite.ledgers.entry import Advance, Lookup
from onewrite.outcome import Applied, Deferred, Entity, Missing, Outcome, Rejected, Superseded
from onewrite.step import Step, answer_to, no_step, read_step
from onewrite.tombstone import is_tombstone_of

_KEY = 2  # attributes at most
_TURNS = 8  # each after the second means that another writer has come in between


def refused(attempt: Attempt, item: Entity | None, *, shows: bool) -> Outcome | Attempt:
    """Why the condition failed, given the item as it was then. The ledger comes before the caller's own condition.

    `shows`: does the caller ask for the entity as it is after the write? An attempt: there is no reason, and this one is to be sent.
    """
    entity = entity_of(attempt, item)
    if landed(attempt, item or {}):
        return Applied(attempt.message, entity if shows else None, retried=True)
    return judged(attempt, item or {}, entity)


def judged(attempt: Attempt, held: Entity, entity: Entity | None) -> Outcome | Attempt:
    """What stands in the way of the message in what the item holds. `entity`: as the caller sees the item. An attempt: see `refused`."""
    refusal = kept_out(attempt, held, lookup(held), entity)
    if refusal is not None:
        return refusal
    again = _facing(attempt, held)
    if again is None:
        return Rejected(attempt.message, entity) if held else Missing(attempt.message)
    return again if again.turn < _TURNS else Rejected(attempt.message, entity, settled=False)


def _facing(attempt: Attempt, held: Entity) -> Attempt | None:
    """The attempt as this item wants it, if that is another: another message has a step open, or the ledger's form does not fit."""
    exact, entry = attempt.exact or STEPS in held, attempt.entry.facing(lookup(held))
    if exact == attempt.exact and entry.form == attempt.entry.form:
        return None
    return attempt._replace(exact=exact, entry=entry, turn=attempt.turn + 1)


def kept_out(attempt: Attempt, held: Entity, ledger: Lookup, entity: Entity | None) -> Outcome | None:
    """Why the message is kept out, whatever the caller's condition says. None: it is let in. `ledger` is what the item has of it."""
    if STEPS in held and (step := open_step(attempt, held)) is not None:
        return answer_to(step, attempt.message, attempt.now, entity, attempt.entity_key)
    refusal = attempt.entry.judge(attempt.message, ledger, entity=entity, gone=TOMBSTONE in held)
    if refusal is None:
        check_outbox_of(attempt, held)
    return refusal


def finish_refused(attempt: Attempt, item: Entity | None, *, shows: bool) -> Outcome | Attempt | None:
    """Why a write could not finish the step, given the item as it was then.

    An attempt: the step is this worker's, and this one is to be sent. None: it is this worker's, and nothing is in the way.
    """
    held, entity = item or {}, entity_of(attempt, item)
    if landed(attempt, held):
        return Applied(attempt.message, entity if shows else None, retried=True)
    step = open_step(attempt, held)
    if step is None:
        refusal = attempt.entry.judge(attempt.message, lookup(held), entity=entity, gone=TOMBSTONE in held)
        return Superseded(attempt.message, entity) if refusal is None or isinstance(refusal, Deferred) else refusal
    if step.fence != attempt.fence:
        return Superseded(attempt.message, entity)
    if step.ledger != (attempt.step_ledger or attempt.entry.terms.attribute):
        return attempt._replace(step_ledger=step.ledger)
    gap = attempt.entry.judge(attempt.message, lookup(held), entity=entity)
    if isinstance(gap, Deferred):  # a counting ledger took over while the step was open: its mark cannot pass over the gap
        return gap
    check_outbox_of(attempt, held)
    entry = attempt.entry.facing(lookup(held))
    if isinstance(entry.own, Advance) and attempt.part == "finish":
        return attempt._replace(part="finish overtaken")
    if entry.form == attempt.entry.form or attempt.turn == _TURNS:
        return None
    return attempt._replace(entry=entry, turn=attempt.turn + 1)


def entity_of(attempt: Attempt, item: Entity | None) -> Entity | None:
    """The item as the caller sees it."""
    return None if item is None or TOMBSTONE in item else without_ledger(attempt.entry.terms, item)


def check_outbox_of(attempt: Attempt, held: Entity) -> None:
    if attempt.emission is not None and (attempt.emission.events or attempt.part == "begin"):
        check_outbox(attempt.emission.shape.label, held, null_is_absent=False)


def open_step(attempt: Attempt, item: Entity) -> Step | None:
    """The step that the message has begun and not finished, under this ledger or one in its also=."""
    if not isinstance(item.get(STEPS, frozenset()), AbstractSet):
        raise no_step()
    names = [name_of_step(mark) for mark in attempt.step_marks[0]]
    return next((read_step(item[name]) for name in names if name in item), None)


def landed(attempt: Attempt, item: Entity) -> bool:
    """Did an earlier try of this very call write to the item?

    A token alone proves nothing, as another call may have the same one: the effect must be there too.
    """
    tokens: object = item.get(attempts_name(attempt.entry.terms.attribute, attempt.ring.present))
    is_there = isinstance(tokens, AbstractSet) and attempt.token in cast("AbstractSet[object]", tokens)
    return is_there and shows_effect(attempt, item)


def shows_effect(attempt: Attempt, item: Entity) -> bool:
    """Is the item one that this write may have left, with whatever others have written since?"""
    if attempt.burial and not is_tombstone_of(attempt.burial, item.get(TOMBSTONE)):
        return False
    has_open_step = any(name_of_step(mark) in item for marks in attempt.step_marks for mark in marks)
    return not has_open_step and attempt.entry.shows(lookup(item))


def of_creation(outcome: Outcome | Attempt, item: Mapping[str, Any]) -> Outcome | Attempt:
    """The answer to a request that creates this item: where nothing is there, the caller's condition was false of that."""
    if isinstance(outcome, Missing):
        return Rejected(outcome.message)
    if isinstance(outcome, Rejected) and is_bare(outcome.entity, item):
        return replace(outcome, settled=False)
    return outcome


def is_bare(entity: Entity | None, item: Mapping[str, Any]) -> bool:
    """Is the entity that is in the way of this item nothing but a key, as a `record` leaves it that came before the creation?"""
    return entity is not None and len(entity) <= _KEY and entity.items() < item.items()


def check_tokens(attempt: Attempt, item: Entity) -> None:
    """Raise if the attributes of the tokens hold something else."""
    name = attempts_name(attempt.entry.terms.attribute, attempt.ring.present)
    held: object = item.get(name, frozenset())
    if not isinstance(held, AbstractSet) or not all(isinstance(each, Binary) for each in cast("AbstractSet[object]", held)):
        raise LedgerMismatch(
            f"{name!r} holds something else than the tokens of attempts: another writer uses the name. Repair the entity."
        )
