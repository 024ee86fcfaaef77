"""Arguments of boto3's methods as DynamoDB's JSON."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any


def _encode_base64(value: object) -> str:
    if not isinstance(value, bytes | bytearray):
        raise TypeError(f"{type(value).__name__} can't be sent as JSON")
    return b64encode(value).decode()


_encode = json.JSONEncoder(separators=(",", ":"), default=_encode_base64).encode


def build_body(arguments: Mapping[str, Any]) -> bytes:
    """Return the arguments as JSON. Only binary values change: they become base64. Raise if botocore would refuse an argument."""
    for name in ("Key", "Item", "ExpressionAttributeValues"):
        _check_map(arguments.get(name) or {})
    names: Mapping[Any, Any] = arguments.get("ExpressionAttributeNames") or {}
    _check_names((*names, *names.values(), *arguments.get("AttributesToGet", ())))
    return _encode(arguments).encode()


def _check_names(names: Iterable[object]) -> None:
    """Raise if a name isn't a string. JSON would convert it, but botocore refuses it with an explanation."""
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"{name!r} is a name, but not a string")


def _check_map(values: Mapping[Any, Mapping[str, Any]]) -> None:
    _check_names(values)
    _check_members(values.values())


def _check_members(values: Iterable[Mapping[str, Any]]) -> None:
    """Check the names in the maps among these typed values, at any depth."""
    for value in values:
        if "M" in value:
            _check_map(value["M"])
        elif "L" in value:
            _check_members(value["L"])
