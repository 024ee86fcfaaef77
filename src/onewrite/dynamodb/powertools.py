"""Reads the records of Powertools' idempotency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onewrite.dynamodb.values import plain
from onewrite.flow import Call, Flow


class Records:
    """Goes through a table once, by a plain client. `prefix`: of the keys, up to their #; without it, all are read."""

    def __init__(self, client: Any, table_name: str, prefix: str) -> None:
        self.target = client
        self._table, self._prefix = {"TableName": table_name}, prefix
        self._key_name = ""
        self._start: Mapping[str, Any] | None = {}

    def next(self) -> Flow[list[dict[str, Any]] | None]:
        """The records of the next page; None at the end."""
        if self._start is None:
            return None
        if not self._key_name:
            described = yield Call("describe_table", (), dict(self._table))
            # Where there is a sort key, that one has the hash, and the partition key is the same for all.
            self._key_name = described["Table"]["KeySchema"][-1]["AttributeName"]
        names = {"#k": self._key_name, "#e": "expiration", "#s": "status"}
        request = {
            **self._table,
            "ProjectionExpression": "#k,#e,#s",
            "ExpressionAttributeNames": names,
            "ConsistentRead": True,
        }
        page = yield Call("scan", (), {**request, **({"ExclusiveStartKey": self._start} if self._start else {})})
        self._start = page.get("LastEvaluatedKey") or None
        records = [plain(item) for item in page["Items"]]
        return [each for each in records if self._is_asked_for(str(each[self._key_name]))]

    def _is_asked_for(self, key: str) -> bool:
        return not self._prefix or key.startswith(f"{self._prefix}#")
