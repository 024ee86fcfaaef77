"""How safe what is written must be, and what is read."""

from __future__ import annotations

from typing import Any, Literal

from pymongo import ReadPreference, WriteConcern
from pymongo.read_concern import ReadConcern

from onewrite.errors import ConfigurationError

Durability = Literal["majority", "acknowledged"]


def durable(collection: Any, durability: Durability) -> Any:
    """The collection as a guarded store writes to it, and reads what it concludes from."""
    if collection.write_concern.document.get("w") == 0:
        raise ConfigurationError("The collection writes with w=0: the server would tell no outcome. Leave w out.")
    if durability == "acknowledged":
        return collection.with_options(read_preference=ReadPreference.PRIMARY)
    if durability != "majority":
        raise ConfigurationError(f'durability={durability!r}: give "majority", or "acknowledged" to risk a failover.')
    return of_majority(collection)


def of_majority(collection: Any) -> Any:
    """The collection with journaled writes that a majority has, and reads of what a majority has, from the primary."""
    return collection.with_options(
        write_concern=WriteConcern("majority", j=True, wtimeout=collection.write_concern.document.get("wtimeout")),
        read_concern=ReadConcern("majority"),
        read_preference=ReadPreference.PRIMARY,
    )
