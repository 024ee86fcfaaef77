"""A message delivered twice takes effect once: the duplicate check is folded into the business write itself."""

from onewrite.errors import (
    ConfigurationError,
    EntityTooLarge,
    InvalidMessage,
    InvalidUpdate,
    LedgerMismatch,
    OnewriteError,
)
from onewrite.event import Event, Outbox
from onewrite.ledger import HighWaterMark, InSequence, SeenIds
from onewrite.message import Message, sortable
from onewrite.outcome import Applied, Deferred, Duplicate, Outcome, Rejected, Stale

__all__ = [
    "Applied",
    "ConfigurationError",
    "Deferred",
    "Duplicate",
    "EntityTooLarge",
    "Event",
    "HighWaterMark",
    "InSequence",
    "InvalidMessage",
    "InvalidUpdate",
    "LedgerMismatch",
    "Message",
    "OnewriteError",
    "Outbox",
    "Outcome",
    "Rejected",
    "SeenIds",
    "Stale",
    "sortable",
]
