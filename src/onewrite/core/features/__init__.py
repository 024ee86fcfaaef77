"""What is built on the guarded write: events, effects, folds, and deletes. The modules of the write never import these."""
