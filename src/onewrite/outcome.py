"""Outcomes of guarded writes and of `begin_effect`, as closed unions for `match`.

The text of an outcome or a message doesn't show the entity or the body, because it can end up in a log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, TypeAlias

from onewrite.errors import OnewriteError
from onewrite.message import Message

Entity: TypeAlias = dict[str, Any]


class NoTruthValue(OnewriteError, TypeError):
    """An outcome was used as a condition."""


class _Outcome:
    """The common base, without a truth value: `if outcome:` raises."""

    __slots__ = ("__weakref__",)  # a handler distinguishes the outcomes of its stores from those that its function made

    def __bool__(self) -> NoReturn:
        raise NoTruthValue(
            f"{type(self).__name__} has no truth value, because an outcome is more than yes or no. "
            "Use outcome.settled, isinstance(), or `match outcome: case Applied(): ...`."
        )


@dataclass(frozen=True, slots=True)
class Applied(_Outcome):
    """This call made the change.

    - `entity`: the entity, if the call asked for it
    - `retried`: an earlier attempt of this call had made the change, and its response was lost
    - `response`: the driver's own response if there was one, such as DynamoDB's consumed capacity or pymongo's UpdateResult
    """

    settled: ClassVar[bool] = True

    message: Message
    entity: Entity | None = field(default=None, repr=False)
    retried: bool = False
    response: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Duplicate(_Outcome):
    """An earlier delivery has decided the message. It was applied, or refused and remembered. Nothing was written.

    Read from the entity which of the two happened.
    """

    settled: ClassVar[bool] = True

    message: Message
    entity: Entity | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Stale(_Outcome):
    """The source has already moved past this message, which is an old copy, or arrived too late."""

    settled: ClassVar[bool] = True

    message: Message
    mark: int | str
    entity: Entity | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Deferred(_Outcome):
    """The message `expected`, an earlier one of this source, is missing or unsettled. Nothing was written. Have the message redelivered."""

    settled: ClassVar[bool] = False

    message: Message
    expected: int | str  # a text only in a batch, whose ledger can be `HighWaterMark`
    entity: Entity | None = field(default=None, repr=False)


_WAYS_OUT = "If that is final, pass rejected_ok=True, or remember the refusal with remember(message, ...)"
CONDITION_IS_FALSE = f"The write's own condition was false. {_WAYS_OUT}"
ENTITY_EXISTS = f"The entity exists, and put_item and insert_one never replace one. {_WAYS_OUT}"
ENTITY_IS_BARE = (
    "The entity has nothing but its key, because `remember` created it, and put_item and insert_one never replace one. Write the entity with "
    "an update"
)
OTHERS_INTERFERED = "Other writers changed the entity during every attempt. No action is needed unless this repeats"


@dataclass(frozen=True, slots=True)
class Rejected(_Outcome):
    """The ledger would have accepted the message, but the caller's own condition was false. Nothing was written.

    The condition can become true, so the message must be redelivered. There are two ways to settle it: pass `rejected_ok=True` if a
    refusal is final, or remember the refusal with `remember(message, ...)`, after which each copy is a `Duplicate`. A `put_item` or
    `insert_one` of an entity that exists is `Rejected` too, because neither ever replaces an entity.

    `reason` says why, for logs. Even with `rejected_ok=True`, a refusal is unsettled if it might not be the condition's: other writers
    changed the entity during every attempt, or a creation found an entity that `remember` had made.
    """

    message: Message
    entity: Entity | None = field(default=None, repr=False)
    settled: bool = False
    reason: str = field(default=CONDITION_IS_FALSE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Missing(_Outcome):
    """The entity does not exist, and the write does not create it. Nothing was written.

    The message that creates the entity might still arrive, so this one must be redelivered. With `missing_ok=True` it is settled,
    except under `InSequence`, where nothing would remember the message.
    """

    message: Message
    settled: bool = False
    entity: None = field(default=None, init=False)  # every refusal has this attribute


@dataclass(frozen=True, slots=True)
class Gone(_Outcome):
    """A guarded delete removed the entity. Its tombstone refuses every message."""

    settled: ClassVar[bool] = True

    message: Message
    entity: Entity | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Busy(_Outcome):
    """Another worker holds an effect of this message (for a delete: of any message) until `until`, in epoch seconds."""

    settled: ClassVar[bool] = False

    message: Message
    until: float
    entity: Entity | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Uncertain(_Outcome):
    """An effect was begun at `since` and never finished. It is unknown whether it happened.

    Look up `key` at the provider. Then record the result with `finishes=` of a write, or allow the effect again with `after=`
    of `begin_effect`.
    """

    settled: ClassVar[bool] = False

    message: Message
    since: float
    fence: str
    key: str = ""
    entity: Entity | None = field(default=None, repr=False)
    entity_key: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class TakenOver(_Outcome):
    """The effect that this write should finish belongs to another worker now, or was released."""

    settled: ClassVar[bool] = False

    message: Message
    entity: Entity | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Begun(_Outcome):
    """The effect is this worker's alone until its lease ends at `until`, in epoch seconds.

    Pass `key` to the provider as the idempotency key. It is the same for every worker that takes the effect over.
    """

    settled: ClassVar[bool] = False

    message: Message
    key: str
    fence: str
    since: float
    until: float
    first: bool = True  # no other worker had begun it
    entity_key: Mapping[str, Any] = field(default_factory=dict[str, Any], hash=False, compare=False, repr=False)
    clock: Callable[[], float] = field(default=float, hash=False, compare=False, repr=False)

    def time_left(self) -> float:
        """Return the seconds left of the lease, to use as a timeout. At 0.0, do not send the effect."""
        return max(0.0, self.until - self.clock())


Unmet: TypeAlias = Rejected | Missing  # refused by the caller's condition, not by the ledger
Outcome: TypeAlias = Applied | Duplicate | Stale | Deferred | Rejected | Missing | Gone | Busy | Uncertain | TakenOver
"""The result of a guarded write. Acknowledge the message if `outcome.settled` is true."""
BeginOutcome: TypeAlias = Outcome | Begun
"""The result of `begin_effect`. A function that returns `Begun` has not finished its effect."""
