"""One call, and the token by which it recognises its own earlier write. Pure.

botocore retries by itself, and a try whose answer got lost makes the next one fail at its own mark: its token in the returned
image tells whose mark it is. Drivers give up within minutes, so the tokens have a ring of their own that forgets soon. It
serves all ledgers and any number of writers.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from onewrite.dynamodb.writing.layout import ATTEMPT_SLOTS
from onewrite.event import Emission
from onewrite.ledgers.entry import Entry
from onewrite.ledgers.ring import Ring, ring_at, window
from onewrite.message import Message
from onewrite.step import Step, step_mark

# botocore gives up after four tries of a minute each, in its older mode after ten.
ATTEMPTS = window(timedelta(minutes=10), timedelta(minutes=5))
# Two calls have the same token once in 2^48: docs/format.md says what that comes to.
TOKEN_BYTES = 6


# A write of the message; the begin of its step; the finish, and the finish of one whose mark others have moved on meanwhile; a
# begin that is taken back.
Part: TypeAlias = Literal["write", "begin", "finish", "finish overtaken", "withdraw"]


class Attempt(NamedTuple):
    """One call: what it asks of the entity, and the token that says which marks are its own."""

    message: Message
    entry: Entry
    token: bytes
    now: float
    ring: Ring  # where the tokens of attempts are
    emission: Emission | None = None  # what it adds to the outbox, in a store that has one
    exact: bool = False  # asks for a step of this very message, and not whether any message has one
    entity_key: Mapping[str, Any] = MappingProxyType({})  # as the caller wrote it
    part: Part = "write"
    step: Step | None = None  # that it begins
    fence: str = ""  # of the step that it finishes
    more: tuple[Message, ...] = ()  # the others that it writes
    burial: str = ""  # the name of the tombstone that it leaves
    step_ledger: str = ""  # the ledger of the step that it finishes, if that is one before this
    turn: int = 0  # how many requests of this call were made in a form that did not fit

    @property
    def fresh(self) -> Step:
        """The step that it begins. Asked only where it begins one."""
        return cast("Step", self.step)

    @property
    def step_mark(self) -> bytes:
        """Of the step that it begins or finishes."""
        return step_mark(self.step_ledger or self.entry.terms.attribute, self.message)

    @property
    def step_marks(self) -> list[list[bytes]]:
        """For each message those of the steps that may be open: under this ledger, and under those in its also=."""
        return [
            [step_mark(attribute, message) for attribute in self.entry.terms.attributes]
            for message in (self.message, *self.more)
        ]


def new_attempt(
    message: Message, entry: Entry, name: str, now: float, emission: Emission | None = None, **more: Any
) -> Attempt:
    """`name` is any text that no other call has."""
    token = blake2b(name.encode(), digest_size=TOKEN_BYTES).digest()
    return Attempt(message, entry, token, now, ring_at(ATTEMPTS, now, ATTEMPT_SLOTS), emission, **more)
