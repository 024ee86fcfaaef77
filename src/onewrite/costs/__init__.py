"""What messages cost: bytes of a ledger, DynamoDB's write units, MongoDB's oplog. Pure but for `live.py`, which reads what is there."""
