"""Guarded writes for DynamoDB: `GuardedTable` and `AsyncGuardedTable`."""

from onewrite.extras import installed_by

with installed_by("dynamodb", "onewrite.dynamodb"):
    # First, because it is what to install: botocore comes with it.
    import boto3.dynamodb.types  # noqa: F401  # pyright: ignore[reportUnusedImport]

    from onewrite.dynamodb.table import AsyncGuardedTable, GuardedTable

__all__ = ["AsyncGuardedTable", "GuardedTable"]
