"""What an entity remembers about messages: the ledgers, and what a write of one message asks under them. Pure."""

from onewrite.ledgers.ledger import NO_LEDGER, Ledger, check_ledger
from onewrite.ledgers.marks import HighWaterMark, InSequence
from onewrite.ledgers.seen_ids import MessageIDs, SeenIds
from onewrite.ledgers.seen_numbers import SeenNumbers

__all__ = ["NO_LEDGER", "HighWaterMark", "InSequence", "Ledger", "MessageIDs", "SeenIds", "SeenNumbers", "check_ledger"]
