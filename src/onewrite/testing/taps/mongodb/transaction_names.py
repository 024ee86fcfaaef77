"""Which transaction of MongoDB a request belongs to, under a name that is the same in every run of a schedule. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

COMMIT = "commit_transaction"
ABORT = "abort_transaction"


class Transaction(NamedTuple):
    """The owner is the delivery that has begun it. `replaces` is the session's earlier one, if that may still be open."""

    owner: str
    number: int  # among the transactions of its owner
    replaces: tuple[str, int] | None = None

    @property
    def name(self) -> tuple[str, int]:
        return self.owner, self.number


@dataclass(frozen=True, slots=True)
class Owner:
    """Who begins transactions."""

    name: str
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def next_transaction(self, replaces: Transaction | None) -> Transaction:
        return Transaction(self.name, next(self.numbers), None if replaces is None else replaces.name)


NOBODY = Owner("")  # what begins outside of any delivery, as in `build` or `observe`
current_owner: ContextVar[Owner] = ContextVar("onewrite.testing.owner", default=NOBODY)
