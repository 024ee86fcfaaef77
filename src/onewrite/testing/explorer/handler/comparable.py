"""Tells whether two answers are the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, cast

from onewrite.testing.explorer.handler.calls import Answer
from onewrite.testing.model.canonical import NotCanonicalError, canonical


def comparable(answer: Answer) -> Hashable:
    """Equal for answers that are the same. An answer that has no canonical form equals no other.

    Of the response metadata only the number of retries counts. The rest differs from one request to the next.
    """
    value: Any = answer.value
    if answer.error is not None:
        value = (type(answer.error).__name__, str(answer.error), getattr(answer.error, "response", None))
    try:
        return canonical(_without_metadata(value), ordered=True)
    except NotCanonicalError:
        return object()


def _without_metadata(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_metadata(part) for part in cast("tuple[Any, ...]", value)]
    if isinstance(value, dict):
        kept = {name: inner for name, inner in cast("dict[str, Any]", value).items() if name != "ResponseMetadata"}
        return kept, cast("dict[str, Any]", value).get("ResponseMetadata", {}).get("RetryAttempts", 0)
    return value
