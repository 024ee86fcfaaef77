"""The five answers of a guarded write, as a closed union for `match`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, TypeAlias

from onewrite.message import Message

Entity: TypeAlias = dict[str, Any]


class _Answer:
    """What all five have in common: whether the broker may forget the message, and no truth value."""

    __slots__ = ()
    settled: ClassVar[bool] = True

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} has no truth value: five answers do not fit in a yes or no. "
            "Use `match outcome: case Applied(): ...`, isinstance(), or outcome.settled."
        )


@dataclass(frozen=True, slots=True)
class Applied(_Answer):
    """This message's effect is in the entity, put there by this call.

    `retried`: an earlier try of this very call had landed, and only its answer was lost.
    """

    message: Message
    entity: Entity | None = None
    retried: bool = False


@dataclass(frozen=True, slots=True)
class Duplicate(_Answer):
    """The ledger already held this message; nothing was written."""

    message: Message
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class Stale(_Answer):
    """The source's mark is already past this sequence: an old delivery, or one that came too late."""

    message: Message
    mark: int | str
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class Deferred(_Answer):
    """An earlier message of this source is still missing: nothing was written, and the message must come again."""

    settled: ClassVar[bool] = False

    message: Message
    expected: int
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class Rejected(_Answer):
    """The ledger would have let it in; the caller's own condition did not, or there is no such entity."""

    message: Message
    entity: Entity | None = None


Outcome: TypeAlias = Applied | Duplicate | Stale | Deferred | Rejected
