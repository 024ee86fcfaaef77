"""What an update of MongoDB writes to the oplog, in bytes of BSON. Pure.

MongoDB documents neither the form of these entries nor their size. This is the form of version 6.0, whose entries the tests compare byte
by byte: an update that changes single fields logs a tree of what was changed, a driver that may retry adds its session and its number, and
a transaction logs all its writes in one entry. Later versions may differ by a few bytes. An upsert that creates, and the removal of what a TTL index
has let expire, are entries of their own and are not counted here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import bson
from bson import Binary, Int64, Timestamp

_ID = Binary(bytes(16), 4)
_SESSION = {"lsid": {"id": _ID, "uid": bytes(32)}, "txnNumber": Int64(1)}
_TIME = Timestamp(1, 1)
_WRITTEN = {"ts": _TIME, "t": Int64(1), "v": Int64(2), "wall": datetime.fromtimestamp(0, UTC)}
_BEFORE = {"prevOpTime": {"ts": _TIME, "t": Int64(-1)}}


def update_bytes(namespace: str, key: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> int:
    """Of an update that a driver may retry. `namespace` is the database and the collection, with a dot between."""
    return len(
        bson.encode({**_SESSION, **update_operation(namespace, key, before, after), "stmtId": 0, **_WRITTEN, **_BEFORE})
    )


def transaction_bytes(operations: Sequence[Mapping[str, Any]]) -> int:
    """Of a transaction that makes these `operations`."""
    applied = {"op": "c", "ns": "admin.$cmd", "o": {"applyOps": [*operations]}}
    return len(bson.encode({**_SESSION, **applied, **_WRITTEN, **_BEFORE}))


def insert_operation(namespace: str, document: Mapping[str, Any]) -> dict[str, Any]:
    """An insert as a part of a transaction."""
    return {"op": "i", "ns": namespace, "ui": _ID, "o": dict(document), "o2": {"_id": document["_id"]}}


def update_operation(namespace: str, key: Any, before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """An update as a part of a transaction."""
    changes = {"$v": 2, "diff": difference(before, after)}
    return {"op": "u", "ns": namespace, "ui": _ID, "o": changes, "o2": {"_id": key}}


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What the oplog says of a change: fields that are deleted, updated and inserted, and under "s" what changes inside of a field."""
    kinds: dict[str, dict[str, Any]] = {"d": {}, "u": {}, "i": {}}
    inside: dict[str, Any] = {}
    kinds["d"].update({name: False for name in before if name not in after})
    for name, value in after.items():
        if name not in before:
            kinds["i"][name] = value
        elif (old := before[name]) == value:
            continue
        elif isinstance(value, dict) and isinstance(old, dict):
            inside[f"s{name}"] = difference(cast("dict[str, Any]", old), cast("dict[str, Any]", value))
        elif isinstance(value, list) and isinstance(old, list) and _begins(cast("list[Any]", value), cast("list[Any]", old)):
            inside[f"s{name}"] = _pushed(cast("list[Any]", value), len(cast("list[Any]", old)))
        else:
            kinds["u"][name] = value
    return {**{kind: fields for kind, fields in kinds.items() if fields}, **inside}


def _begins(value: list[Any], old: list[Any]) -> bool:
    """Was something put at the end of the old array?"""
    return value[: len(old)] == old


def _pushed(value: list[Any], old: int) -> dict[str, Any]:
    return {"a": True, **{f"u{place}": each for place, each in enumerate(value[old:], start=old)}}
