"""What is wrong with a set-up: its queue, its function, its table or collection, and its handlers.

`reading/` finds the facts, by requests that only read. `examination.py` makes all checks on them, and is pure, as are the checks.
"""
