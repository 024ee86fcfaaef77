"""What an entity holds for its ledgers, in words, and what a repair of it changes. Pure: it knows no engine."""
