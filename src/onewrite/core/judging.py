"""The reasons why an entity refuses a guarded write, on any engine. Pure. If several apply, the first in this list counts:

    the write has landed           Applied, from an earlier attempt whose response was lost (DynamoDB only: the token shows it)
    an effect of the message is open  Busy, Uncertain; an effect of any message prevents a delete
    the ledger                     Duplicate, then Gone, Stale, Deferred
    another outbox                 raises
    none of these                  Missing, or Rejected: the caller's own condition

The finish of an effect checks the effect first: see `judge_finish`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from onewrite.core.effect import Effect, judge_open_effect, read_effect
from onewrite.core.label import TOKEN, TOMBSTONE, check_outbox
from onewrite.core.ledgers.entry import Advance
from onewrite.core.write import NO_EFFECT, EffectPart, Emission, Finishes, Image, NoEffectAtAll, Write
from onewrite.outcome import (
    ENTITY_EXISTS,
    ENTITY_IS_BARE,
    Applied,
    Busy,
    Deferred,
    Missing,
    Outcome,
    Rejected,
    TakenOver,
    Uncertain,
    Unmet,
)

T = TypeVar("T")


class Reason(NamedTuple, Generic[T]):
    """One of onewrite's conditions refused the write, with this outcome."""

    outcome: T


class OtherEffect(NamedTuple):
    """The write must be sent again, with this effect part."""

    effect: EffectPart


class NoReason(NamedTuple):
    """None of onewrite's conditions refused the write."""


Verdict: TypeAlias = Reason[T] | OtherEffect | NoReason
"""Why an entity refused a write."""


def judge_read(write: Write, image: Image) -> Outcome:
    """Return the outcome of an unconditional write, given an entity that was only read."""
    outcome = judge(write, image)
    return Applied(write.message, image.entity) if isinstance(outcome, Unmet) else outcome


def has_landed(write: Write, image: Image) -> bool:
    """Whether an earlier attempt of this call was the last write of the entity.

    The token alone proves nothing, because two calls can have the same one. The change must be stored too. If a different writer has
    overtaken the call, the entity has that writer's token, and the message is `Duplicate` or `Stale`.
    """
    return write.token is not None and image.fields.get(TOKEN) == write.token and has_change(write, image)


def judge(write: Write, image: Image) -> Outcome:
    """Return why the entity refused a write, other than the finish of an effect."""
    outcome = judge_message(write, image)
    if outcome is None:
        outcome = Rejected(write.message, image.entity) if image.exists else Missing(write.message)
    if isinstance(write.effect, NoEffectAtAll) and isinstance(outcome, Rejected | Busy | Uncertain):
        # An effect of any message prevents a delete, even after its lease. An effect that wasn't sent doesn't.
        ends = [effect.until for effect in map(read_effect, image.effects.values()) if not effect.is_unsent]
        return Busy(write.message, max(ends), image.entity) if ends else outcome
    return outcome


def judge_message(write: Write, image: Image) -> Outcome | None:
    """Return why the message is refused regardless of the caller's condition, or None if the ledger accepts it."""
    effect = find_open_effect(write, image)
    if effect is not None and not effect.is_unsent:
        return judge_open_effect(effect, write.message, write.now, image.entity, write.key)
    refusal = write.entry.judge(write.message, image.ledger, entity=image.entity, is_gone=image.is_gone)
    if effect is not None and not isinstance(refusal, Deferred):
        # The begin of the effect accepted the message, and no worker performs the effect.
        refusal = None
    if refusal is None:
        check_emits(write, image)
    return refusal


def judge_write(write: Write, image: Image) -> Verdict[Outcome]:
    """Return why the entity refused a write. If the ledger accepts the message, the write can end effects that weren't sent."""
    outcome = judge(write, image)
    return OtherEffect(end_unsent_effects(write, image)) if isinstance(outcome, Unmet) else Reason(outcome)


def end_unsent_effects(write: Write, image: Image) -> EffectPart:
    """Return the effect part of a write whose message is accepted. It ends effects that were released before they were sent."""
    if isinstance(write.effect, NoEffectAtAll):
        return NoEffectAtAll(tuple(image.effects.items()))
    effect = find_open_effect(write, image)
    if effect is None:
        return NO_EFFECT
    return Finishes(effect.fence, effect.ledger, is_overtaken(write, image), is_unsent=True)


def judge_finish(write: Write, image: Image) -> Verdict[Outcome]:
    """Return why a write couldn't finish its effect. The fence alone proves that this worker performed the effect."""
    finishes, effect = cast("Finishes", write.effect), find_open_effect(write, image)
    if effect is None:
        refusal = write.entry.judge(write.message, image.ledger, entity=image.entity, is_gone=image.is_gone)
        is_lost = refusal is None or isinstance(refusal, Deferred)
        return Reason(TakenOver(write.message, image.entity) if is_lost else cast("Outcome", refusal))
    if effect.fence != finishes.fence:
        return Reason(TakenOver(write.message, image.entity))
    gap = write.entry.judge(write.message, image.ledger, entity=image.entity)
    if isinstance(gap, Deferred):  # a counting ledger took over while the effect was open, and its mark can't skip the gap
        return Reason(gap)
    check_emits(write, image)
    # An effect that was begun under an earlier ledger is kept under that ledger's name.
    return OtherEffect(finishes._replace(ledger=effect.ledger, overtaken=is_overtaken(write, image)))


def is_overtaken(write: Write, image: Image) -> bool:
    """Whether other messages moved the mark past this message while its effect was open. If so, the mark remains unchanged."""
    change = write.entry.own
    return isinstance(change, Advance) and change.judge(write.message, image.ledger) is not None


def judge_begin(write: Write, image: Image) -> Effect | Outcome:
    """Return the open effect that refused the begin of an effect, or why the message can't have an effect."""
    effect = find_open_effect(write, image)
    if effect is not None:
        check_emits(write, image)  # a worker that takes over the effect must be able to finish it
        return effect
    return judge(write, image)


def find_open_effect(write: Write, image: Image) -> Effect | None:
    """Return the message's open effect under this ledger or one in its previous=, or None."""
    if not image.effects:
        return None
    hashes = write.hash_effects(write.message)
    return next((read_effect(image.effects[effect_hash]) for effect_hash in hashes if effect_hash in image.effects), None)


def check_emits(write: Write, image: Image) -> None:
    """Raise if the entity has a different outbox from the store's."""
    if write.has_outbox_condition:
        check_outbox(cast("Emission", write.emission).label, image.fields, is_null_absent=image.is_null_absent)


def has_change(write: Write, image: Image) -> bool:
    """Whether the entity contains the change of this write, even if other writers changed it later."""
    if write.burial is not None:
        tombstone = cast("object", image.fields.get(TOMBSTONE))
        by = cast("Mapping[str, object]", tombstone).get("by") if isinstance(tombstone, Mapping) else None
        if by != write.burial.by:
            return False
    is_open = bool(image.effects) and any(
        effect_hash in image.effects for effect_hash in write.hash_effects(*write.messages)
    )
    return not is_open and write.entry.is_shown_by(image.ledger)


def settle_missing(outcome: Outcome, write: Write, *, missing_ok: bool) -> Outcome:
    """Return the outcome. With `missing_ok`, a missing entity settles the message, unless later messages wait for its mark."""
    if missing_ok and isinstance(outcome, Missing) and not write.entry.own.requires_predecessor:
        return replace(outcome, settled=True)
    return outcome


def judge_creation(outcome: Outcome, item: Mapping[str, Any], max_keys: int) -> Outcome:
    """Return the outcome of creating this item. `max_keys`: the maximum number of its fields that form the key.

    `Missing` becomes `Rejected`, because the caller's condition failed on an entity that doesn't exist. If the entity contains only its
    key, `remember` created it first, and the message must be redelivered.
    """
    if isinstance(outcome, Missing):
        return Rejected(outcome.message)
    if not isinstance(outcome, Rejected):
        return outcome
    entity = outcome.entity
    is_bare = entity is not None and len(entity) <= max_keys and entity.items() < item.items()
    return replace(outcome, reason=ENTITY_IS_BARE if is_bare else ENTITY_EXISTS)
