"""How a request is written: what the ledger asks and gains, beside the caller's own part. Pure."""
