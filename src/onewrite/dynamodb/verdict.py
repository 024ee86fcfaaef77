"""Explains what DynamoDB returned as an outcome. Pure."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import cast

from boto3.dynamodb.types import Binary

from onewrite.dynamodb.attempt import Attempt
from onewrite.dynamodb.layout import attempts_name, lookup, without_ledger
from onewrite.errors import LedgerMismatch
from onewrite.label import check_outbox
from onewrite.outcome import Applied, Entity, Outcome, Rejected


def refused(attempt: Attempt, item: Entity | None, *, shows: bool) -> Outcome:
    """Why the condition failed, given the item as it was then. The ledger comes before the caller's own condition.

    `shows`: does the caller ask for the entity as it is after the write?
    """
    held, emission = item or {}, attempt.emission
    names = () if emission is None else emission.shape.names
    entity = None if item is None else without_ledger(attempt.entry.terms, item, names)
    if _landed(attempt, held):
        return Applied(attempt.message, entity if shows else None, retried=True)
    refusal = attempt.entry.judge(attempt.message, lookup(held), entity=entity)
    if refusal is None and emission is not None and emission.events:
        outbox = emission.shape.names
        check_outbox(outbox, held.get(outbox.label), holds=outbox.events in held)
    return Rejected(attempt.message, entity) if refusal is None else refusal


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
