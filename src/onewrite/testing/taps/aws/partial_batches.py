"""Batches that DynamoDB carries out in part: it answers with success, and names what is left in the answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from onewrite.testing.taps.traffic import Request

_LEFT_IN = {"BatchWriteItem": "UnprocessedItems", "BatchGetItem": "UnprocessedKeys"}


def is_batch(request: Request) -> bool:
    """May a part of it be left? Not of a malformed request, which will be refused."""
    return (
        request.method in _LEFT_IN and bool(request.tables) and all(map(_parts, request.arguments["RequestItems"].values()))
    )


def without_last(request: Request) -> tuple[Request | None, dict[str, Any]]:
    """The request without the last of its writes or keys, or None if there is no other; and the last one as the answer names it."""
    tables = dict(request.arguments["RequestItems"])
    table, wanted = tables.popitem()
    *others, last = _parts(wanted)
    items = {**tables, **({table: _with_parts(wanted, others)} if others else {})}
    rest = replace(request, arguments={**request.arguments, "RequestItems": items}) if items else None
    return rest, {table: _with_parts(wanted, [last])}


def _parts(wanted: Any) -> Sequence[Any]:
    """The writes or the keys that are wanted of a table. Keys stand beside options."""
    return cast("Sequence[Any]", wanted["Keys"] if isinstance(wanted, Mapping) else wanted)


def _with_parts(wanted: Any, parts: Sequence[Any]) -> Any:
    return {**cast("Mapping[str, Any]", wanted), "Keys": parts} if isinstance(wanted, Mapping) else parts


def naming(request: Request, answer: Mapping[str, Any] | None, left: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to the whole request, where the answer to the rest of it is known, or None if there is no rest."""
    name = _LEFT_IN[request.method]
    if answer is None:
        answer = {"ResponseMetadata": {"HTTPStatusCode": 200, "RetryAttempts": 0}}
        answer = answer if request.writes else {**answer, "Responses": {}}
    return {**answer, name: {**answer.get(name, {}), **left}}
