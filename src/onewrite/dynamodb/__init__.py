"""Guarded writes for DynamoDB: `GuardedTable` and `AsyncGuardedTable`."""

from onewrite.process.extras import name_extra

with name_extra("dynamodb", "onewrite.dynamodb"):
    # Import boto3 first, because the error then names the package to install. boto3 installs botocore.
    import boto3.dynamodb.types  # noqa: F401  # pyright: ignore[reportUnusedImport]

    from onewrite.dynamodb.table import AsyncGuardedTable, GuardedTable

__all__ = ["AsyncGuardedTable", "GuardedTable"]
