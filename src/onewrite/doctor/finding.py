"""What a check finds, and what it does where a fact is missing. Pure."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from onewrite.doctor.facts import Fact, Facts, Unread

T = TypeVar("T")
Severity: TypeAlias = Literal["error", "warning"]
State: TypeAlias = Literal["passed", "found", "not checked"]


class Finding(NamedTuple):
    """An error is what may lose a message or let it take effect twice; a warning is what costs, delays or endangers."""

    severity: Severity
    what: str
    why: str
    do: str
    rests_on: str  # which facts it was concluded from


# A check yields what it finds, and returns a sentence about what it has compared.
Findings: TypeAlias = Generator[Finding, None, str]


class Check(NamedTuple):
    """`code` never changes, so that programs may rely on it."""

    code: str
    title: str
    run: Callable[[Facts], Findings]


@dataclass(frozen=True, slots=True)
class Checked:
    """A check that was made, or could not be. `told` is what it compared, or why it could not."""

    check: Check
    state: State
    told: str
    findings: tuple[Finding, ...] = ()
    missing: Unread | None = None  # what could not be read, if that is why


class NotCheckedError(Exception):
    """A fact is missing without which the check says nothing."""

    def __init__(self, why: str, missing: Unread | None = None) -> None:
        super().__init__(why)
        self.missing = missing


def known(fact: Fact[T], giver: str) -> T:
    """The fact. `giver` is the option that asks for it."""
    if fact is None:
        raise NotCheckedError(f"It needs {giver}.")
    if isinstance(fact, Unread):
        because = f"the permission {fact.permission} is missing" if fact.permission else "the request failed"
        raise NotCheckedError(f"It needs {fact.what}, and {because}.", fact)
    return fact


def span(seconds: float) -> str:
    """A duration as a person says it: 14 days, 90 seconds."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length and seconds % length == 0:
            return _counted(int(seconds // length), unit)
    return str(timedelta(seconds=int(seconds))) if seconds >= 3_600 else _counted(round(seconds), "second")  # noqa: PLR2004  # an hour


def _counted(count: int, unit: str) -> str:
    return f"{count} {unit}" if count == 1 else f"{count:,} {unit}s"
