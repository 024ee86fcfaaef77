"""Compiles what a write emits into its request: the list of pending events grows in the same update. Pure."""

from __future__ import annotations

from typing import Any

from onewrite.event import Emission
from onewrite.label import OUTBOX


def outbox_condition(label: str) -> dict[str, Any]:
    """The entity's outbox must be ours, or not there at all: what stands in its place would be appended to."""
    # A $or of the two would cost mongod several times as much.
    return {OUTBOX.label: {"$in": [None, label]}, "$nor": [{OUTBOX.label: None, OUTBOX.events: {"$exists": True}}]}


def outbox_operators(emission: Emission) -> dict[str, dict[str, Any]]:
    """What a write that emits adds to the operators of its update.

    `$min` keeps the time of the oldest event. It also brings a postponed entity forward, which costs one more try of the event
    that was refused: an update has no operator that sets a field only where it is missing.
    """
    return {
        "$set": {OUTBOX.label: emission.shape.label},
        "$push": {OUTBOX.events: {"$each": [*emission.events]}},
        "$min": {OUTBOX.due: emission.due},
    }


def outbox_stage(emission: Emission) -> dict[str, Any]:
    """The same for a pipeline."""
    return {
        OUTBOX.label: {"$literal": emission.shape.label},
        OUTBOX.events: {"$concatArrays": [{"$ifNull": [f"${OUTBOX.events}", []]}, {"$literal": [*emission.events]}]},
        OUTBOX.due: {"$ifNull": [f"${OUTBOX.due}", {"$literal": emission.due}]},
    }


def stored_outbox(emission: Emission) -> dict[str, Any]:
    """What a new entity's outbox looks like."""
    return {OUTBOX.label: emission.shape.label, OUTBOX.events: [*emission.events], OUTBOX.due: emission.due}
