"""The target of flows for an aiobotocore client: which requests go lean, and why, stands in `lean`."""

from __future__ import annotations

from typing import Any

from onewrite.dynamodb.lean import LeanTableClient, check_low_level
from onewrite.lean.asynchronous import AsyncLeanClient


class AsyncLeanTableClient(AsyncLeanClient, LeanTableClient):
    """Its methods return what is awaited."""


def async_lean_target(client: Any, table_name: str | None) -> AsyncLeanTableClient:
    """What an asynchronous guarded table sends its requests to, where it was made with `lean=True`."""
    check_low_level(table_name, "aiobotocore's client of DynamoDB")
    return AsyncLeanTableClient(client)
