"""What it takes to make several guarded writes as one, on any engine: what may take part, and which of their answers counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, Protocol, TypeVar, cast

from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.inbox import Inbox
from onewrite.outcome import (
    Applied,
    Busy,
    Deferred,
    Duplicate,
    Gone,
    Missing,
    Outcome,
    Rejected,
    Stale,
    Superseded,
    Uncertain,
    Unmet,
)

DEADLINE: Final = timedelta(seconds=30)  # for how long a transaction waits for what is in the way
_WEIGHTS = (Applied, Duplicate, (Busy, Uncertain), Gone, Stale, Deferred, Missing, Rejected)


class JointStore(Protocol):
    """As much of a store as the checks need."""

    @property
    def awaited(self) -> bool: ...
    @property
    def guards(self) -> bool: ...


class Participant(Protocol):
    """A write that is not sent yet."""

    @property
    def store(self) -> JointStore: ...


P = TypeVar("P", bound=Participant)


def checked(participants: object, kind: type[P], *, stores: str, instead: str) -> tuple[P, ...]:
    """The participants. `stores` are what makes them, and `instead` shows how, for whoever gives something else."""
    if not isinstance(participants, Sequence) or isinstance(participants, str):
        raise InvalidUpdate(
            f"transact takes the message first and a list of writes behind it, and got a {type(participants).__name__} for the list: write "
            f"{instead}."
        )
    given = tuple(cast("Sequence[object]", participants))
    if not given:
        raise InvalidUpdate("A transaction of no writes would say nothing of the message: give it one participant at least.")
    for each in given:
        if not isinstance(each, kind):
            raise InvalidUpdate(
                f"transact takes a list of writes of guarded {stores} that are not sent yet, and got a {type(each).__name__}: write "
                f"{instead}."
            )
    return cast("tuple[P, ...]", given)


def check_stores(participants: Sequence[Participant], inbox: Inbox | None, *, awaited: bool | None) -> None:
    if inbox is not None and not isinstance(cast("object", inbox), Inbox):
        raise ConfigurationError(
            f"inbox={inbox!r}: give an Inbox, as in inbox=Inbox(table, consumer='billing', retention=...)."
        )
    for each in participants:
        if awaited is not None and each.store.awaited is not awaited:
            right = "transact" if awaited else "atransact"
            raise ConfigurationError(f"These stores are {'not ' if awaited else ''}asynchronous: use {right}.")
        if inbox is None and not each.store.guards:
            raise ConfigurationError(
                "A participant without a ledger needs inbox=Inbox(...), or nothing would tell a redelivery from a fresh message."
            )


def check_arguments(method: str, given: Iterable[str], taken: Collection[str], why: Mapping[str, str]) -> None:
    """Raise for an argument that this write of a transaction does not take. `why`: the reasons that need more than the list."""
    for name in given:
        if name not in taken:
            reason = why.get(name, f"it takes {', '.join(sorted(taken))} and emit.")
            raise InvalidUpdate(f"{method} takes no {name}: {reason}")


def numbered(outcome: Outcome, place: int) -> Outcome:
    """The outcome as that of the participant in this place."""
    return outcome if isinstance(outcome, Applied | Superseded) else replace(outcome, participant=place)


def heaviest(outcomes: Iterable[Outcome]) -> Outcome | None:
    """The first of those that weigh most. What must come again weighs more than an answer of its kind."""
    given = sorted(outcomes, key=lambda outcome: isinstance(outcome, Missing) and outcome.settled)
    return next((outcome for kind in _WEIGHTS for outcome in given if isinstance(outcome, kind)), None)


def to_come_again(outcome: Outcome | None, *, counts: bool) -> Outcome | None:
    """Where messages wait for the one before them (`counts`), a refusal that nothing remembers must come again."""
    return replace(outcome, settled=False) if counts and isinstance(outcome, Unmet) else outcome
