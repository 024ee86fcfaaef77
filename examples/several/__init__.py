"""Four files to copy: one message that changes two entities, and an entity that can't hold a ledger, on each engine."""
