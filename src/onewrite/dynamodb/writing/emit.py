"""Compiles what a write emits into its request: the list of pending events grows in the same expression. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onewrite.event import Emission, EmissionShape
from onewrite.label import OUTBOX

_Word = Callable[[str], str]  # a name as it may stand in an expression


def outbox_condition(word: _Word) -> str:
    """The entity's outbox must be ours, or not there at all: what stands in its place would be appended to."""
    label, events = word(OUTBOX.label), word(OUTBOX.events)
    return f"({label}=:ow_ol OR (attribute_not_exists({label}) AND attribute_not_exists({events})))"


def outbox_sets(word: _Word) -> list[str]:
    """What a write that emits adds to its SET clause."""
    events, due, shard = word(OUTBOX.events), word(OUTBOX.due), word(OUTBOX.shard)
    return [
        f"{word(OUTBOX.label)}=:ow_ol",
        f"{events}=list_append(if_not_exists({events},:ow_on),:ow_oe)",
        # Both stay as the oldest event has set them: the index shows its age, and an entity stays in one partition.
        f"{due}=if_not_exists({due},:ow_od)",
        f"{shard}=if_not_exists({shard},:ow_os)",
    ]


def outbox_values(emission: Emission) -> dict[str, Any]:
    """The values of this write's events."""
    return {":ow_oe": [*emission.events], ":ow_od": emission.due, ":ow_os": emission.shard}


def outbox_constants(shape: EmissionShape) -> dict[str, Any]:
    """The values that are the same for all writes that emit, or that ask for the outbox."""
    return {":ow_ol": shape.label, **({":ow_on": []} if shape.emits else {})}


def stored_outbox(emission: Emission) -> dict[str, Any]:
    """What a new entity's outbox looks like."""
    return {
        OUTBOX.label: emission.shape.label,
        OUTBOX.events: [*emission.events],
        OUTBOX.due: emission.due,
        OUTBOX.shard: emission.shard,
    }
