"""Guarded writes for DynamoDB: `GuardedTable` and `AsyncGuardedTable`, and `transact` for several of them at once."""

from onewrite.core.extras import installed_by

with installed_by("dynamodb", "onewrite.dynamodb"):
    # First, because it is what to install: botocore comes with it.
    import boto3.dynamodb.types  # noqa: F401  # pyright: ignore[reportUnusedImport]

    from onewrite.dynamodb.table import AsyncGuardedTable, GuardedTable
    from onewrite.dynamodb.transactions import Prepared, atransact, transact

__all__ = ["AsyncGuardedTable", "GuardedTable", "Prepared", "atransact", "transact"]
