"""What a guarded delete leaves of an entity, so no message that comes late can bring it to life again. Pure.

What is stored is fixed by docs/format.md. A tombstone keeps the ledgers and the outboxes of all stores. It names the attribute by
which the database will remove it, so a relay which publishes its last event can set the time without the settings of the
store that has deleted the entity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from math import ceil
from typing import Any, NamedTuple, cast

from onewrite.core.event import moment
from onewrite.core.label import check_attribute, plain
from onewrite.errors import ConfigurationError, LedgerMismatch

_NAME_BYTES = 8  # two deletes of one entity have the same name once in 2^64
_MIN_RETENTION, _MAX_RETENTION = timedelta(seconds=1), timedelta(days=36_525)


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Lets a store delete entities. Of each a tombstone stays for `retention`, which refuses every message.

    `ttl_attribute` is the attribute, or the field, by which the database removes what has expired: switch on TTL for it in
    DynamoDB, or create a TTL index on it in MongoDB. `retention` counts from the delete, or from the moment when the entity's
    last event was published. A message that comes later than that creates the entity anew: 14 days is the longest that SQS keeps
    one.
    """

    retention: timedelta
    ttl_attribute: str = "expiresAt"

    def __post_init__(self) -> None:
        check_retention("Tombstones", self.retention)
        check_attribute(self.ttl_attribute)
        object.__setattr__(self, "ttl_attribute", plain(self.ttl_attribute))


def check_retention(name: str, retention: object) -> None:
    """Raise unless the database can remove an item after this retention."""
    if not isinstance(retention, timedelta) or not _MIN_RETENTION <= retention <= _MAX_RETENTION:
        raise ConfigurationError(
            f"{name}(retention={retention!r}): give a timedelta from a second to a hundred years that outlives every redelivery, as in "
            "timedelta(days=14)."
        )


class Tombstone(NamedTuple):
    """What an entity holds that was deleted. `by`: a name that no other delete has. `key`: the attributes that name the entity."""

    at: str
    ttl: str
    seconds: int
    by: str
    key: tuple[str, ...] = ()

    def as_fields(self) -> dict[str, Any]:
        return {"at": self.at, "ttl": self.ttl, "seconds": self.seconds, "by": self.by, "key": [*self.key]}

    def expiry(self, now: float) -> int:
        """Return when the database may remove it, in epoch seconds, if nothing holds it back after `now`."""
        return ceil(now) + self.seconds


def new_tombstone(tombstones: Tombstones, now: float, call: str, key: Sequence[str] = ()) -> Tombstone:
    """Return the tombstone that a delete leaves. `call` is a name that no other call has."""
    by = blake2b(call.encode(), digest_size=_NAME_BYTES).hexdigest()
    seconds = ceil(tombstones.retention.total_seconds())
    return Tombstone(moment(now), tombstones.ttl_attribute, seconds, by, tuple(sorted(key)))


def read_tombstone(stored_tombstone: object) -> Tombstone:
    """Return the tombstone that is stored so."""
    try:
        fields = cast("Mapping[str, Any]", stored_tombstone)
        key = tuple([str(name) for name in fields["key"]])
        return Tombstone(str(fields["at"]), str(fields["ttl"]), int(fields["seconds"]), str(fields["by"]), key)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise LedgerMismatch(
            "The entity holds something else where its tombstone should be: another writer uses the name ow_tombstone. Repair the "
            "entity."
        ) from error


def check_store_tombstones(tombstones: object, is_taken: Callable[[str], bool]) -> None:
    """Raise unless a store may have these. `is_taken`: does its ledger, its outbox or its key have this attribute?"""
    if tombstones is None:
        return
    if not isinstance(tombstones, Tombstones):
        raise ConfigurationError(
            f"tombstones={tombstones!r}: give Tombstones, as in tombstones=Tombstones(timedelta(days=14))."
        )
    name = tombstones.ttl_attribute
    if is_taken(name):
        raise ConfigurationError(
            f"Tombstones(ttl_attribute={name!r}) has an attribute that something else of the store has: give it another."
        )


def require_tombstones(tombstones: Tombstones | None) -> Tombstones:
    if tombstones is None:
        raise ConfigurationError(
            "A delete takes the ledger along, and a message that comes late or again would then create the entity anew. Make the store "
            "with tombstones=Tombstones(timedelta(days=14)), which leaves a small rest that refuses such messages. Where the same id "
            "is to be used again, mark the entity as deleted by an update instead."
        )
    return tombstones
