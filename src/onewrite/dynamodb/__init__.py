"""Guarded writes for DynamoDB: `GuardedTable` and `AsyncGuardedTable`."""

from onewrite.dynamodb.table import AsyncGuardedTable, GuardedTable

__all__ = ["AsyncGuardedTable", "GuardedTable"]
