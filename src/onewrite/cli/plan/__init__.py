"""`onewrite plan`: what a table or collection and its messages cost with each ledger, and with what else keeps out duplicates."""
