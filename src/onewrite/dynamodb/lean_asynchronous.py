"""The target of flows for an aiobotocore client: which requests go lean, and why, stands in `lean`."""

from __future__ import annotations

from onewrite.dynamodb.lean import LeanTableClient
from onewrite.lean.asynchronous import AsyncLeanClient


class AsyncLeanTableClient(AsyncLeanClient, LeanTableClient):
    """Its methods return what is awaited."""
