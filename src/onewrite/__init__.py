"""A message delivered twice takes effect once: the duplicate check is folded into the business write itself."""

from typing import TYPE_CHECKING

from onewrite.core.features.event import Event, Outbox
from onewrite.core.features.tombstone import Tombstones
from onewrite.core.ledgers import HighWaterMark, InSequence, MessageIds, SeenIds
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
    Answer,
    Applied,
    Begun,
    Busy,
    Deferred,
    Duplicate,
    Gone,
    Missing,
    Outcome,
    Rejected,
    Stale,
    Superseded,
    Uncertain,
)

__all__ = [
    "Answer",
    "Applied",
    "Begun",
    "Busy",
    "ConfigurationError",
    "Deferred",
    "Duplicate",
    "EntityTooLarge",
    "Event",
    "Gone",
    "HighWaterMark",
    "InSequence",
    "InvalidMessage",
    "InvalidResponse",
    "InvalidUpdate",
    "LedgerMismatch",
    "Message",
    "MessageIds",
    "Missing",
    "OnewriteError",
    "Outbox",
    "Outcome",
    "Rejected",
    "SeenIds",
    "Stale",
    "Superseded",
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
