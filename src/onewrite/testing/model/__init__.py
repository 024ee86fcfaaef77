"""A store as a machine that is learnt, so that a request that was seen before needs no store."""
