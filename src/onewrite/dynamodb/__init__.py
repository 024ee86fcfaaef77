"""Guarded writes for DynamoDB: `GuardedTable` and `AsyncGuardedTable`."""

from onewrite.extras import installed_by

with installed_by("dynamodb", "onewrite.dynamodb"):
    import boto3.dynamodb.types  # noqa: F401  # first, because it is what to install: botocore comes with it

    from onewrite.dynamodb.table import AsyncGuardedTable, GuardedTable

__all__ = ["AsyncGuardedTable", "GuardedTable"]
