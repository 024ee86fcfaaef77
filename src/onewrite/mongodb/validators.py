"""Checks whether a collection's validator refuses the names that begin with `ow_`, which guarded writes add to documents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from onewrite.core.label import is_ours
from onewrite.errors import ConfigurationError

_FAILED_VALIDATION = 121  # MongoDB's code


def check_refusal(error: Exception) -> None:
    """Raise `ConfigurationError` if a validator refused a write because of onewrite's names.

    Servers before MongoDB 5.0 don't report the reason, so this raises nothing.
    """
    if getattr(error, "code", None) != _FAILED_VALIDATION:
        return
    details: Mapping[str, Any] = getattr(error, "details", None) or {}
    names = sorted({*filter(is_ours, _list_unwanted_names(details.get("errInfo")))})
    if names:
        raise ConfigurationError(
            f"The collection's validator refuses {', '.join(names)}, which a guarded write adds to a document. Nothing was written. "
            'Add "patternProperties": {"^ow_": {}} to its $jsonSchema, with the command collMod.'
        ) from error


def _list_unwanted_names(report: Any) -> Iterator[str]:
    """Yield the names in a server's report that the validator doesn't allow, at any depth."""
    if isinstance(report, Mapping):
        for name, value in cast("Mapping[str, Any]", report).items():
            if name == "additionalProperties" and isinstance(value, list):
                yield from (member for member in cast("list[Any]", value) if isinstance(member, str))
            else:
                yield from _list_unwanted_names(value)
    elif isinstance(report, list):
        for member in cast("list[Any]", report):
            yield from _list_unwanted_names(member)
