"""Carries what an entity's own code remembered about messages over into a ledger, while consumers run.

Read the modules in this order: `plan` says what may become of one entity, and why no interleaving of writers doubles or loses
an effect. `ids` plans for a set of ids, `versions` for the number of the last message of a source. `visit` is the flow for one
entity, on any engine. `powertools` says when a table of Powertools is needed no more, which is all that can be done about it.
"""
