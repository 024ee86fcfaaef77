"""Goes through a whole table, for those who look at each of its items."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onewrite.flow import Call, Flow


class Pages:
    """Goes through a table once, by a plain client. `request` is what each scan asks besides, and `start` a key to go on behind."""

    def __init__(self, table: Mapping[str, Any], request: Mapping[str, Any], start: Mapping[str, Any] | None = None) -> None:
        self.key_names: tuple[str, ...] = ()
        # Where the next page begins; empty at the beginning of the table, and None behind its end.
        self.start: Mapping[str, Any] | None = start or {}
        self._table, self._request = table, request

    def next(self) -> Flow[Mapping[str, Any] | None]:
        """DynamoDB's answer with the next items, of which it may have none; None at the end."""
        if self.start is None:
            return None
        if not self.key_names:
            yield from self.count()
        start = {"ExclusiveStartKey": self.start} if self.start else {}
        page: Mapping[str, Any] = yield Call("scan", (), {**self._table, **self._request, **start})
        self.start = page.get("LastEvaluatedKey") or None
        return page

    def count(self) -> Flow[int]:
        """About how many items there are, as DynamoDB counts them every few hours."""
        described = yield Call("describe_table", (), {**self._table})
        self.key_names = tuple([part["AttributeName"] for part in described["Table"]["KeySchema"]])
        return int(described["Table"].get("ItemCount", 0))
