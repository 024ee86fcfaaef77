"""Compiles what a write emits into its request: the list of pending events grows in the same update. Pure."""

from __future__ import annotations

from typing import Any

from onewrite.event import Emission
from onewrite.label import OUTBOX, OutboxNames


def outbox_condition(names: OutboxNames) -> dict[str, Any]:
    """The entity's outbox must be ours, or not there at all: what stands in its place would be appended to."""
    # A $or of the two would cost mongod several times as much.
    return {names.label: {"$in": [None, OUTBOX]}, "$nor": [{names.label: None, names.events: {"$exists": True}}]}


def outbox_operators(emission: Emission) -> dict[str, dict[str, Any]]:
    """What a write that emits adds to the operators of its update.

    `$min` keeps the time of the oldest event. It also brings a postponed entity forward, which costs one more try of the event
    that was refused: an update has no operator that sets a field only where it is missing.
    """
    names = emission.shape.names
    return {
        "$set": {names.label: OUTBOX},
        "$push": {names.events: {"$each": [*emission.events]}},
        "$min": {names.due: emission.due},
    }


def outbox_stage(emission: Emission) -> dict[str, Any]:
    """The same for a pipeline."""
    names = emission.shape.names
    return {
        names.label: {"$literal": OUTBOX},
        names.events: {"$concatArrays": [{"$ifNull": [f"${names.events}", []]}, {"$literal": [*emission.events]}]},
        names.due: {"$ifNull": [f"${names.due}", {"$literal": emission.due}]},
    }


def stored_outbox(emission: Emission) -> dict[str, Any]:
    """What a new entity's outbox looks like."""
    names = emission.shape.names
    return {names.label: OUTBOX, names.events: [*emission.events], names.due: emission.due}
