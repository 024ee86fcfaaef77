"""A message delivered twice takes effect once, because the duplicate check is in the business write itself."""

from typing import TYPE_CHECKING

from onewrite.core.features.event import Event, Outbox
from onewrite.core.features.tombstone import Tombstones
from onewrite.core.ledgers import HighWaterMark, IdSet, InSequence, SeenIds
from onewrite.errors import (
    ConfigurationError,
    EntityTooLarge,
    InvalidMessage,
    InvalidResponse,
    InvalidUpdate,
    LedgerMismatch,
    OnewriteError,
)
from onewrite.message import Message, sortable
from onewrite.outcome import (
    Applied,
    BeginOutcome,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    Gone,
    Missing,
    Outcome,
    Rejected,
    Stale,
    TakenOver,
    Uncertain,
)

__all__ = [
    "Applied",
    "BeginOutcome",
    "Begun",
    "Busy",
    "ConfigurationError",
    "Deferred",
    "Duplicate",
    "EntityTooLarge",
    "Event",
    "Gone",
    "HighWaterMark",
    "IdSet",
    "InSequence",
    "InvalidMessage",
    "InvalidResponse",
    "InvalidUpdate",
    "LedgerMismatch",
    "Message",
    "Missing",
    "OnewriteError",
    "Outbox",
    "Outcome",
    "Rejected",
    "SeenIds",
    "Stale",
    "TakenOver",
    "Tombstones",
    "Uncertain",
    "sortable",
]

__version__: str

if not TYPE_CHECKING:  # with this function, type checkers would accept every name

    def __getattr__(name: str) -> str:
        """Return the installed version. Reading it takes longer than the import of this package, and few programs need it."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version(__name__)
