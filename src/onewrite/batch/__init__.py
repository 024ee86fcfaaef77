"""Processing a batch of records with a function of one message: what may be taken next, the workers, and the report.

Nothing here knows a source of records. What a source is like is told by a `Source`, of which `aws_lambda` has one for each.
"""
