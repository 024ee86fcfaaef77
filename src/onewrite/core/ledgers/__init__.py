"""What an entity remembers about messages: the ledgers, and what a write of one message asks under them. Pure."""

from onewrite.core.ledgers.ledger import NO_LEDGER, Ledger, check_ledger
from onewrite.core.ledgers.marks import HighWaterMark, InSequence
from onewrite.core.ledgers.seen_ids import MessageIds, SeenIds

__all__ = ["NO_LEDGER", "HighWaterMark", "InSequence", "Ledger", "MessageIds", "SeenIds", "check_ledger"]
