"""The pipeline's interface to an engine: a store that builds requests in its own language, and a write that is ready to be sent.

An engine decides nothing else. `pipeline.py` and `judging.py` decide the parts of a write, its retries, and the meaning of a refusal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from onewrite.core.clock import checked_clock
from onewrite.core.event import Emission, Outbox, make_emitter
from onewrite.core.flow import Flow
from onewrite.core.ledgers import Ledger, check_ledger
from onewrite.core.ledgers.entry import Entry
from onewrite.core.step import FinalWrite, Step
from onewrite.core.tombstone import Tombstones, check_store_tombstones
from onewrite.core.watch import Watch
from onewrite.core.write import Image, StepPart, Write
from onewrite.outcome import Entity, Outcome

Native: TypeAlias = Mapping[str, Any]
"""The caller's own arguments by their names; on MongoDB `filter` and `update` are among them."""


class Landed(NamedTuple):
    """The write is in the entity. `retried`: an earlier attempt made it, and its response was lost."""

    entity: Entity | None = None
    response: Any = None
    retried: bool = False


class Refusal(NamedTuple):
    """The write isn't in the entity. `failure`: the exception to raise if nothing in the entity is the reason."""

    write: Write  # its time is that of the read
    image: Image
    failure: Exception | None = None


class Attempt(Protocol):
    """A write in the language of an engine, ready to be sent."""

    @property
    def write(self) -> Write: ...

    def send(self) -> Flow[Landed | Refusal]:
        """Send the write once. Return its landing, or the entity that refused it."""
        ...

    def try_send(self) -> Flow[bool]:
        """Send the write once. Return whether the entity met its conditions, without reading the reason."""
        ...

    def retry(self, refusal: Refusal, attempts: int) -> Flow[Attempt | None]:
        """Return the next attempt after a refusal that none of onewrite's conditions explain, or raise the refusal's failure.

        Return None if the caller's own condition refused the write.
        """
        ...

    def raise_failure(self, refusal: Refusal) -> Flow[None]:
        """Raise the failure of the refused write, if it has one, with the engine's explanation."""
        ...

    def with_step(self, step: StepPart) -> Attempt:
        """Return the same write with a different step part."""
        ...

    def make_record(self) -> Flow[Attempt | None]:
        """Return the write that only records the message, or None if the call doesn't name the entity."""
        ...

    def show(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a refusal with this call's form of the entity."""
        ...


class Engine(ABC):
    """The part of a guarded store that the flows use. `final_write`: the name of the call that finishes a performed step."""

    final_write: ClassVar[FinalWrite]
    has_token: ClassVar[bool]  # whether an entity stores the token of its last writer
    too_much: ClassVar[tuple[type[Exception], ...]]  # the errors of a write, or an entity, that is too large for a fold
    entity_argument: ClassVar[str]  # the arguments that name the entity
    full_name: str  # of the table or the collection
    target: Any  # its methods send the requests

    def __init__(
        self,
        ledger: Ledger,
        clock: Callable[[], float],
        name_call: Callable[[], str],
        *,
        outbox: Outbox | None,
        tombstones: Tombstones | None,
        is_async: bool,
    ) -> None:
        """`name_call` returns a new name for each call of a method. A subclass first sets the attributes that its `is_taken` reads."""
        check_ledger(ledger)
        self.ledger = ledger
        self.emitter = make_emitter(outbox, self.ledger.terms.attribute)
        self.empty_emission = None if outbox is None else Emission(outbox.label)
        self.is_async, self.clock, self.name_call = is_async, checked_clock(clock), name_call
        self.tombstones, self.watch = tombstones, Watch(self.ledger.skew, self.ledger.attribute)
        check_store_tombstones(tombstones, self.is_taken)

    @abstractmethod
    def is_taken(self, name: str) -> bool:
        """Whether this attribute or field belongs to the store's ledger, outbox, or key."""

    @abstractmethod
    def keep(self, native: Native) -> Native:
        """Return the arguments. For an asynchronous call they're a copy, because other tasks can change them while it waits."""

    @abstractmethod
    def read_key(self, native: Native) -> Mapping[str, Any]:
        """Return the key of the entity that these arguments name."""

    def name_key(self, key: Mapping[str, Any]) -> Native:
        """Return the arguments of a call that only name the entity with this key."""
        return {self.entity_argument: key}

    @abstractmethod
    def canonical(self, key: Any, /) -> Hashable:
        """Return a canonical form, which is equal for two keys of the same entity."""

    @abstractmethod
    def make_attempt(self, write: Write, native: Native) -> Attempt:
        """Return the update that has this message's effect, ready to be sent."""

    def make_fold_attempt(self, write: Write, native: Native) -> Attempt:
        """Return the update that has the effect of several messages, ready to be sent."""
        return self.make_attempt(write, native)

    @abstractmethod
    def limit_messages(self, entry: Entry) -> int:
        """Return the number of messages in the first write of a fold, given the write of one of them."""

    @abstractmethod
    def check_marks(self, entry: Entry) -> None:
        """Refuse a message with a mark that can't be stored."""

    @abstractmethod
    def make_begin_attempt(self, write: Write, native: Native) -> Attempt:
        """Return the begin of a step, ready to be sent."""

    @abstractmethod
    def change_step(
        self, write: Write, native: Native, ledger: str, fence: str, change: Step | Mapping[str, Any]
    ) -> Attempt:
        """Return the write that changes these fields of the message's step under that ledger, or replaces the step. It requires that the step has this fence."""

    @abstractmethod
    def read(self, key: Mapping[str, Any], native: Native, entry: Entry | None = None) -> Flow[Image]:
        """Read the current entity. `entry`: the entry that will be judged, if any."""
