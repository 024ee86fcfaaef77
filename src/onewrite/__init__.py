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
from onewrite.inbox import Inbox
from onewrite.ledgers import HighWaterMark, InSequence, MessageIDs, SeenIds, SeenNumbers
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
from onewrite.tombstone import Tombstones

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
    "Inbox",
    "InvalidMessage",
    "InvalidUpdate",
    "LedgerMismatch",
    "Message",
    "MessageIDs",
    "Missing",
    "OnewriteError",
    "Outbox",
    "Outcome",
    "Rejected",
    "SeenIds",
    "SeenNumbers",
    "Stale",
    "Superseded",
    "Tombstones",
    "Uncertain",
    "sortable",
]
