"""What is built on the guarded write: events, effects, batches, and deletes. The modules of the write never import these."""
