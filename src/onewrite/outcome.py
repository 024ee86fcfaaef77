"""The five answers of a guarded write, as a closed union for `match`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, TypeAlias

from onewrite.message import Message

Entity: TypeAlias = dict[str, Any]


class _Answer:
    """What all five have in common: no truth value. `settled` says whether the broker may be told that the message is done."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} has no truth value: five answers do not fit in a yes or no. "
            "Use `match outcome: case Applied(): ...`, isinstance(), or outcome.settled."
        )


@dataclass(frozen=True, slots=True)
class Applied(_Answer):
    """This message's effect is in the entity, put there by this call.

    `retried`: an earlier try of this very call had landed, and only its answer was lost. `response` is the driver's own
    answer, where there was one: what DynamoDB says of the capacity that was used, or pymongo's UpdateResult.
    """

    settled: ClassVar[bool] = True

    message: Message
    entity: Entity | None = None
    retried: bool = False
    response: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Duplicate(_Answer):
    """The ledger already held this message; nothing was written."""

    settled: ClassVar[bool] = True

    message: Message
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class Stale(_Answer):
    """The source's mark is already past this sequence: an old delivery, or one that came too late."""

    settled: ClassVar[bool] = True

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
    """The ledger would have let it in; the caller's own condition did not, or there is no such entity.

    It is settled, but where `InSequence` has nowhere to remember the refusal: what follows would wait for the message for ever.
    """

    message: Message
    entity: Entity | None = None
    settled: bool = True


Outcome: TypeAlias = Applied | Duplicate | Stale | Deferred | Rejected
