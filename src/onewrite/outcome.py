"""The answers of a guarded write and of the start of a step, as closed unions for `match`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, TypeAlias

from onewrite.message import Message

Entity: TypeAlias = dict[str, Any]


class _Answer:
    """What all have in common: no truth value. `settled` says whether the broker may be told that the message is done."""

    __slots__ = ()

    def __bool__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} has no truth value: so many answers do not fit in a yes or no. "
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
    """This message was decided before: applied, or refused for good and recorded. Nothing was written.

    Which of the two, only the entity tells.
    """

    settled: ClassVar[bool] = True

    message: Message
    entity: Entity | None = None
    participant: int | None = None


@dataclass(frozen=True, slots=True)
class Stale(_Answer):
    """The source's mark is already past this sequence: an old delivery, or one that came too late."""

    settled: ClassVar[bool] = True

    message: Message
    mark: int | str
    entity: Entity | None = None
    participant: int | None = None


@dataclass(frozen=True, slots=True)
class Deferred(_Answer):
    """An earlier message of this source is still missing: nothing was written, and the message must be redelivered."""

    settled: ClassVar[bool] = False

    message: Message
    expected: int
    entity: Entity | None = None
    participant: int | None = None


@dataclass(frozen=True, slots=True)
class Rejected(_Answer):
    """The ledger would have let it in; the caller's own condition did not.

    It is settled, but where `InSequence` has nowhere to remember the refusal: what follows would wait for the message forever.
    """

    message: Message
    entity: Entity | None = None
    settled: bool = True
    participant: int | None = None


@dataclass(frozen=True, slots=True)
class Missing(_Answer):
    """There is no such entity, and the write was not to create it: nothing was written.

    The message that creates it may still be on its way, so this one must be redelivered. A write with `missing_ok=True` says that a
    missing entity is an answer, and is settled by it; but not under `InSequence`, where nothing would remember the message.
    """

    message: Message
    settled: bool = False
    entity: None = field(default=None, init=False)  # as every refusal has one
    participant: int | None = None


@dataclass(frozen=True, slots=True)
class Gone(_Answer):
    """The entity was deleted, and what is left of it refuses every message."""

    settled: ClassVar[bool] = True

    message: Message
    entity: Entity | None = None
    participant: int | None = None


@dataclass(frozen=True, slots=True)
class Busy(_Answer):
    """Another worker has begun a step of this message, or, for a delete, of any message: wait until `until`, in epoch seconds."""

    settled: ClassVar[bool] = False

    message: Message
    until: float
    entity: Entity | None = None
    participant: int | None = None


@dataclass(frozen=True, slots=True)
class Uncertain(_Answer):
    """A step was begun at `since` and never finished, and nobody may repeat its effect: whether it happened is not known.

    Look it up where the effect was sent, by `key`. Then `finishes=` of a write records what was found, and `after=` of `begin`
    permits the effect once more.
    """

    settled: ClassVar[bool] = False

    message: Message
    since: float
    fence: str
    key: str = ""
    entity: Entity | None = None
    participant: int | None = None
    entity_key: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Superseded(_Answer):
    """The step that this write was to finish is no longer this worker's: another has taken it over, or it was released."""

    settled: ClassVar[bool] = False

    message: Message
    entity: Entity | None = None


@dataclass(frozen=True, slots=True)
class Begun(_Answer):
    """This worker alone may have the effect of the step, until its lease ends at `until`, in epoch seconds.

    `key` is for the one who performs the effect, as an idempotency key. It is the same for every worker that takes the step over.
    """

    settled: ClassVar[bool] = False

    message: Message
    key: str
    fence: str
    since: float
    until: float
    first: bool = True  # nobody had begun it before
    entity_key: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False, compare=False, repr=False)
    clock: Callable[[], float] = field(default=float, hash=False, compare=False, repr=False)

    def left(self) -> float:
        """The seconds for which the effect may still be under way: a timeout for it. 0.0: do not send it any more."""
        return max(0.0, self.until - self.clock())


Unmet: TypeAlias = Rejected | Missing  # the ledger would have let it in
Outcome: TypeAlias = Applied | Duplicate | Stale | Deferred | Rejected | Missing | Gone | Busy | Uncertain | Superseded
"""What came of a guarded write. `outcome.settled` says whether the broker may be told that the message is done."""
Answer: TypeAlias = Outcome | Begun
"""What `begin` answers. A function that returns `Begun` has not finished what it began."""
