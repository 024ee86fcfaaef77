"""The ledgers: the part of an entity that remembers messages, and what a write requires of it. Pure."""

from onewrite.core.ledgers.entry import Ledger, check_ledger
from onewrite.core.ledgers.marks import HighWaterMark, InSequence
from onewrite.core.ledgers.seen_ids import IdSet, SeenIds

__all__ = ["HighWaterMark", "IdSet", "InSequence", "Ledger", "SeenIds", "check_ledger"]
