"""Guarded writes for DynamoDB: `GuardedTable` and `AsyncGuardedTable`."""

from onewrite.extras import installed_by

with installed_by("dynamodb", "onewrite.dynamodb"):
    from onewrite.dynamodb.table import AsyncGuardedTable, GuardedTable

__all__ = ["AsyncGuardedTable", "GuardedTable"]
