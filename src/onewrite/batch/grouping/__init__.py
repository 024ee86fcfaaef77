"""Handlers whose function is called with several messages at once: those of one group, as `group_by` tells it.

- `records`: a record with the groups of its messages, and what has become of it. `plan`: which messages are one call. Both are pure.
- `calls`: calls the function, and tries a group that raised an error one by one. `batch`: what the workers share.
- `handler`: the handler itself.
"""
