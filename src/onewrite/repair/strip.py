"""What `strip` removes from an entity when somebody leaves onewrite, and why it holds back from some. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from onewrite.errors import LedgerMismatch
from onewrite.label import OUTBOX, TOMBSTONE, is_ours
from onewrite.repair.holdings import as_read, held_ledgers, kept_as
from onewrite.repair.image import Image, Plan
from onewrite.step import Step, found_step


@dataclass(frozen=True, slots=True)
class HeldBack:
    """An entity that is left as it is, and why."""

    named: str
    why: str


@dataclass(frozen=True, slots=True)
class Stripped:
    """What is removed from an entity, in bytes, and how. `plan.deletes`: it is a tombstone, and goes as a whole."""

    plan: Plan
    size: int


Stripping: TypeAlias = Stripped | HeldBack | None  # None: there is nothing of ours in it


def strip(image: Image, attribute: str | None) -> Stripping:
    """Remove all that is ours, or the ledger or the outbox of one attribute."""
    fields = image.ours if attribute is None else image.fields_of(attribute)
    why = _held_back(image, attribute)
    if why is not None:
        return HeldBack(image.named, why)
    if not fields:
        return None
    if TOMBSTONE in image.fields and attribute is None:
        return Stripped(Plan((TOMBSTONE,), deletes=True), image.size)  # which lets no guarded write in
    ledgers = [held for held in held_ledgers(image, 0) if held.kept is not None and attribute in (None, held.attribute)]
    outboxes = [name for each in outboxes_of(image) if attribute in (None, each) for name in OUTBOX]
    plan = Plan(as_read(image, ledgers, fields=[*fields, *outboxes]), removes=fields)
    return Stripped(plan, image.bytes_of(fields))


def _held_back(image: Image, attribute: str | None) -> str | None:
    """Why nothing may be removed: something is under way, or is not understood, or is not ours."""
    if attribute is not None and not is_ours(attribute):
        return f"{attribute!r} is an attribute of yours, whatever MessageIDs keeps there: remove it by yourself."
    ledgers = [held for held in held_ledgers(image, 0) if attribute in (None, held.attribute)]
    for held in ledgers:
        try:
            _ = kept_as(held) if held.moved_to is None else None
        except LedgerMismatch as error:
            return str(error)
    outboxes = [OUTBOX.events for each in outboxes_of(image) if attribute in (None, each)]
    if pending := [name for name in outboxes if image.fields.get(name)]:
        return f"Events are pending in {pending[0]!r}: let the relay publish them first."
    if any(attribute in (None, step_ledger(held)) for held in image.steps.values()):
        return "A step is open: let it finish first, or release it. `onewrite steps` lists open steps."
    return None


def step_ledger(held: object) -> str | None:
    """By what the ledger is known that the step's finish writes; None if it cannot be read."""
    step = found_step("", held).step
    return step.ledger if isinstance(step, Step) else None


def outboxes_of(image: Image) -> list[str]:
    """By what the entity's outbox is known, if it has one."""
    return [OUTBOX.label] if OUTBOX.label in image.fields else []
