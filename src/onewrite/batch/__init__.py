"""Processing of a batch: the order of its messages, the workers, and the report.

This package knows no event source. A `Source` describes one; `aws_lambda` has one for each of Lambda's.
"""
