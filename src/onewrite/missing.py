"""What a call says of an entity that is not there: the keyword missing_ok, on any engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from onewrite.errors import InvalidUpdate
from onewrite.flow import Flow
from onewrite.outcome import Answer, Missing

A = TypeVar("A", bound=Answer)

MISSING_OK = "missing_ok"


def asked_of(native: Mapping[str, Any]) -> tuple[Mapping[str, Any], bool]:
    """The native arguments of a call, and whether a missing entity is an answer to it."""
    if MISSING_OK not in native:
        return native, False
    missing_ok = cast("object", native[MISSING_OK])
    if not isinstance(missing_ok, bool):
        raise InvalidUpdate(
            f"missing_ok={missing_ok!r}: give True where a missing entity is an answer, and leave it out otherwise."
        )
    return {name: value for name, value in native.items() if name != MISSING_OK}, missing_ok


def accepting(flow: Flow[A], *, counts: bool) -> Flow[A]:
    """The flow of a call to which a missing entity is an answer. `counts`: later messages wait for this one."""
    outcome = yield from flow
    return accepted(outcome, missing_ok=True, counts=counts)


def accepted(outcome: A, *, missing_ok: bool, counts: bool) -> A:
    if missing_ok and not counts and isinstance(outcome, Missing):
        return cast("A", replace(outcome, settled=True))
    return outcome
