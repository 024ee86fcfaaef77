"""Explains what DynamoDB returned as an outcome. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.writing.attempt import Attempt
from onewrite.dynamodb.writing.layout import attempts_name, lookup, without_ledger
from onewrite.errors import LedgerMismatch
from onewrite.label import STEP, STEPS, TOMBSTONE, check_outbox
from onewrite.outcome import Applied, Deferred, Entity, Outcome, Rejected, Superseded
from onewrite.step import Step, answer_to, read_step


def refused(attempt: Attempt, item: Entity | None, *, shows: bool) -> Outcome | None:
    """Why the condition failed, given the item as it was then. The ledger comes before the caller's own condition.

    `shows`: does the caller ask for the entity as it is after the write? None: because another message has a step open, which is
    no reason, so that the write is to be sent again as an exact one.
    """
    entity = _entity(attempt, item)
    if _landed(attempt, item or {}):
        return Applied(attempt.message, entity if shows else None, retried=True)
    return judged(attempt, item or {}, entity)


def judged(attempt: Attempt, held: Entity, entity: Entity | None) -> Outcome | None:
    """What stands in the way of the message in what the item holds. `entity`: as the caller sees the item. None: see `refused`."""
    if STEPS in held and (step := open_step(attempt, held)) is not None:
        return answer_to(step, attempt.message, attempt.now, entity, attempt.entity_key)
    refusal = attempt.entry.judge(attempt.message, lookup(held), entity=entity, gone=TOMBSTONE in held)
    if refusal is None:
        _check_outbox(attempt, held)
    if refusal is None and STEPS in held and not attempt.exact:
        return None
    return Rejected(attempt.message, entity) if refusal is None else refusal


def finish_refused(attempt: Attempt, item: Entity | None, *, shows: bool) -> Outcome | None:
    """Why a write could not finish the step, given the item as it was then. None: the step is this worker's to finish."""
    held, entity = item or {}, _entity(attempt, item)
    if _landed(attempt, held):
        return Applied(attempt.message, entity if shows else None, retried=True)
    step = open_step(attempt, held)
    if step is None:
        refusal = attempt.entry.judge(attempt.message, lookup(held), entity=entity, gone=TOMBSTONE in held)
        return Superseded(attempt.message, entity) if refusal is None or isinstance(refusal, Deferred) else refusal
    if step.fence != attempt.fence:
        return Superseded(attempt.message, entity)
    attempt.entry.check(lookup(held))
    _check_outbox(attempt, held)
    return None


def _entity(attempt: Attempt, item: Entity | None) -> Entity | None:
    """The item as the caller sees it."""
    names = () if attempt.emission is None else attempt.emission.shape.names
    return None if item is None or TOMBSTONE in item else without_ledger(attempt.entry.terms, item, names)


def _check_outbox(attempt: Attempt, held: Entity) -> None:
    if attempt.emission is not None and attempt.emission.events:
        names = attempt.emission.shape.names
        check_outbox(names, held.get(names.label), holds=names.events in held)


def open_step(attempt: Attempt, item: Entity) -> Step | None:
    """The step that the message has begun and not finished."""
    held = item.get(f"{STEP}{attempt.step_mark.hex()}")
    return None if held is None else read_step(held)


def _landed(attempt: Attempt, item: Entity) -> bool:
    """Did an earlier try of this very call write to the item?"""
    tokens: object = item.get(attempts_name(attempt.entry.terms.attribute, attempt.ring.present))
    return isinstance(tokens, AbstractSet) and attempt.token in cast("AbstractSet[object]", tokens)


def check_tokens(attempt: Attempt, item: Entity) -> None:
    """Raise if the attributes of the tokens hold something else."""
    name = attempts_name(attempt.entry.terms.attribute, attempt.ring.present)
    held: object = item.get(name, frozenset())
    if not isinstance(held, AbstractSet) or not all(isinstance(each, Binary) for each in cast("AbstractSet[object]", held)):
        raise LedgerMismatch(
            f"{name!r} holds something else than the tokens of attempts: another writer uses it. Give the ledger an attribute of its "
            "own, or repair the entity."
        )
