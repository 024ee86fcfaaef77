"""A record whose messages are grouped: what was read from it, and what has become of it so far."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, TypeAlias

from onewrite.batch.function import WrongReturn, close_coroutine
from onewrite.batch.report import Result
from onewrite.batch.workers import interrupts, is_interrupt
from onewrite.identity import Skip, record_id
from onewrite.message import Message
from onewrite.outcome import Answer

GroupBy: TypeAlias = Callable[[Message], Hashable]
Found: TypeAlias = tuple[Message, ...] | Skip | BaseException
"""What the identity said of a record."""
MessageEnd: TypeAlias = tuple[Answer, ...] | BaseException
"""How it ended with one message."""


@dataclass(slots=True, eq=False)
class GroupedRecord:
    """One record. `keys` are the groups of its messages."""

    record: Any
    found: Found
    keys: tuple[Hashable, ...] = ()
    outcomes: tuple[Answer, ...] = ()
    message: Message | None = None
    error: BaseException | None = None
    seconds: float = 0.0
    _noted: int = 0

    @property
    def messages(self) -> tuple[Message, ...]:
        """None of them if the identity failed, or skipped the record."""
        return self.found if isinstance(self.found, tuple) else ()

    @property
    def has_failed(self) -> bool:
        return self.error is not None or not all(outcome.settled for outcome in self.outcomes)

    @property
    def is_over(self) -> bool:
        """Whether none of its messages is to be processed any more: what comes after a failure must not overtake it."""
        return self.has_failed or self._noted == len(self.messages)

    def note(self, end: MessageEnd, seconds: float) -> None:
        """How it ended with the next one of its messages."""
        self.message = self.messages[self._noted]
        self._noted += 1
        self.seconds += seconds
        if isinstance(end, BaseException):
            self.error = end
        else:
            self.outcomes += end

    def result(self) -> Result:
        """What became of it. Where it has no messages, the identity's error is its own."""
        error = self.found if isinstance(self.found, BaseException) else self.error
        skipped = isinstance(self.found, Skip)
        return Result(self.record, record_id(self.record), self.message, self.outcomes, error, self.seconds, skipped=skipped)


def read(record: Any, identified: Callable[[Any], Found], group_by: GroupBy) -> GroupedRecord:
    """The record with its messages and their groups. An error of `group_by` fails it, as one of the identity does."""
    found = identified(record)
    before = interrupts()
    try:
        return GroupedRecord(record, found, _keys(found, group_by))
    except BaseException as error:
        if is_interrupt(error, before):
            raise
        return GroupedRecord(record, error)


def _keys(found: Found, group_by: GroupBy) -> tuple[Hashable, ...]:
    return tuple(_hashable(group_by(message)) for message in found) if isinstance(found, tuple) else ()


def _hashable(key: object) -> Hashable:
    kind = type(key).__name__
    if isawaitable(key):
        close_coroutine(key)
        raise WrongReturn(f"group_by returned a {kind}: give a plain function, not an asynchronous one.")
    try:
        hash(key)
    except TypeError as error:
        raise WrongReturn(
            f"group_by returned a {kind}, which cannot be hashed: return a text, a number or a tuple."
        ) from error
    return key
