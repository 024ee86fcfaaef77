"""A target for flows that sends the first attempt of a request itself, and leaves the rest to a boto3 client.

A second attempt is safe only if it recognizes the first one. Therefore, only two kinds of requests bypass boto3: reads, and writes
that store the token of their attempt in the entity, by which the flow recognizes its own write:

- `update_item` with `:ow_token`, which is every guarded write: an update, a batch, a `remember`, the finish of an effect, the first request of a delete;
- `update_item` with `:ow_effect`, the begin of an effect, whose fence is the name of the call;
- `put_item`, which a guarded table sends only to create an item, with the token in it.

A takeover and a release of an effect, the second request of a delete, and a relay's requests don't have a token. The boto3
client sends them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onewrite.dynamodb.dialect import EFFECT_VALUE, TOKEN_VALUE
from onewrite.errors import ConfigurationError
from onewrite.lean.client import LeanClient

_OWNER_VALUES = (TOKEN_VALUE, EFFECT_VALUE)


def make_lean_client(client: Any, table_name: str | None) -> LeanTableClient:
    """Return the client for a guarded table with `lean=True`."""
    if table_name is None:
        raise ConfigurationError(
            "lean=True requires a low-level client. Instead of a Table, pass boto3.client('dynamodb') and table_name=."
        )
    return LeanTableClient(client)


class LeanTableClient(LeanClient):
    """The lean client of a guarded table."""

    def update_item(self, **request: Any) -> Any:
        """Send the update itself if a value identifies the call that writes, and through boto3 otherwise."""
        values: Mapping[str, Any] = request.get("ExpressionAttributeValues", {})
        if any(name in values for name in _OWNER_VALUES):
            return self._send("UpdateItem", request)
        return self._client.update_item(**request)

    def put_item(self, **request: Any) -> Any:
        return self._send("PutItem", request)

    def get_item(self, **request: Any) -> Any:
        return self._send("GetItem", request)
