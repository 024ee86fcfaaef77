"""The tombstone that a guarded delete leaves, so that no late message creates the entity again. Pure.

docs/format.md specifies the stored data. A tombstone keeps the ledgers and outboxes of all stores. It names its expiry attribute, so
that a relay that publishes the last event can set the expiry without the settings of the store that deleted the entity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b
from math import ceil
from typing import Any, NamedTuple, cast

from onewrite.core.label import check_attribute, plain
from onewrite.core.ledgers.ring import MAX_LATENESS
from onewrite.core.values import moment
from onewrite.core.write import Burial
from onewrite.errors import ConfigurationError, LedgerMismatch

_NAME_BYTES = 8  # two deletes of one entity have the same name once in 2^64
_MIN_RETENTION, _MAX_RETENTION = timedelta(seconds=1), timedelta(days=36_525)


@dataclass(frozen=True, slots=True)
class Tombstones:
    """Allows a store to delete entities. A tombstone of each stays for `retention`, and refuses every message.

    `retention` counts from the delete, or from the publication of the entity's last event. A message that arrives later creates the
    entity again; SQS keeps a message for up to 14 days. `ttl_attribute` is the attribute with the expiry. Switch on TTL for it in
    DynamoDB, or create a TTL index on it in MongoDB.
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
            f"{name}(retention={retention!r}): expected a timedelta between a second and a hundred years. Choose one that outlives every "
            "redelivery, for example timedelta(days=14)."
        )


class Tombstone(NamedTuple):
    """The stored tombstone of a deleted entity. `by` is a unique name of the delete, and `key` has the names of the key attributes."""

    at: str
    ttl: str
    seconds: int
    by: str
    key: tuple[str, ...] = ()

    def as_fields(self) -> dict[str, Any]:
        """Return the tombstone's stored form."""
        return {"at": self.at, "ttl": self.ttl, "seconds": self.seconds, "by": self.by, "key": [*self.key]}

    def as_burial(self) -> Burial:
        """Return the part of a write that turns the entity into this tombstone."""
        return Burial(self.as_fields(), self.by, self.ttl)

    def expiry(self, now: float) -> int:
        """Return when the database can remove the tombstone, in epoch seconds, if no event is pending after `now`.

        The retention counts from the write, which can land that long after its clock was read.
        """
        return ceil(now + MAX_LATENESS.total_seconds()) + self.seconds


def make_tombstone(tombstones: Tombstones, now: float, call: str, key: Sequence[str] = ()) -> Tombstone:
    """Return the tombstone that a delete leaves. `call` is a unique name of the call."""
    by = blake2b(call.encode(), digest_size=_NAME_BYTES).hexdigest()
    seconds = ceil(tombstones.retention.total_seconds())
    return Tombstone(moment(now), tombstones.ttl_attribute, seconds, by, tuple(sorted(key)))


def read_tombstone(stored_tombstone: object) -> Tombstone:
    """Return the tombstone, given its stored form."""
    try:
        fields = cast("Mapping[str, Any]", stored_tombstone)
        key = tuple([str(name) for name in fields["key"]])
        return Tombstone(str(fields["at"]), str(fields["ttl"]), int(fields["seconds"]), str(fields["by"]), key)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise LedgerMismatch(
            "ow_tombstone of the entity isn't a tombstone, because another writer uses this name. Remove the attribute, and make the other writer "
            "use a different name."
        ) from error


def check_store_tombstones(tombstones: object, is_taken: Callable[[str], bool]) -> None:
    """Raise unless a store can have these tombstones. `is_taken` returns whether its ledger, outbox, or key has an attribute."""
    if tombstones is None:
        return
    if not isinstance(tombstones, Tombstones):
        raise ConfigurationError(
            f"tombstones={tombstones!r}: expected Tombstones, for example tombstones=Tombstones(timedelta(days=14))."
        )
    name = tombstones.ttl_attribute
    if is_taken(name):
        raise ConfigurationError(
            f"Tombstones(ttl_attribute={name!r}): the store's key, ledger, or outbox uses this attribute. Choose a different one."
        )


def require_tombstones(tombstones: Tombstones | None) -> Tombstones:
    """Return the tombstones. Raise if the store has none, because it can't delete then."""
    if tombstones is None:
        raise ConfigurationError(
            "This store can't delete, because it has no tombstones=. Deleting the entity would delete its ledger too, and a late or repeated "
            "message would create the entity again. Create the store with tombstones=Tombstones(timedelta(days=14)), which leaves a small "
            "marker that refuses such messages. If you reuse IDs, mark the entity as deleted with an update instead."
        )
    return tombstones
