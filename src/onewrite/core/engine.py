"""What the pipeline needs of an engine: a store that writes each request in its own language, and a write that is ready to be sent.

An engine decides nothing else. Which parts a write has, how often it is sent, and what a refusal means is decided in `pipeline.py` and `judging.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from onewrite.core.clock import checked_clock
from onewrite.core.event import Emission, Outbox, make_emitter
from onewrite.core.flow import Flow
from onewrite.core.ledgers import NO_LEDGER, Ledger, check_ledger
from onewrite.core.ledgers.entry import Entry
from onewrite.core.step import FinalWrite, Step
from onewrite.core.tombstone import Tombstones, check_store_tombstones
from onewrite.core.watch import Watch
from onewrite.core.write import Image, StepPart, Write
from onewrite.outcome import Entity, Outcome

Native: TypeAlias = Mapping[str, Any]
"""The caller's own arguments by their names; on MongoDB `filter` and `update` are among them."""


class Landed(NamedTuple):
    """The write is in the entity. `retried`: an earlier attempt has put it there, whose response was lost."""

    entity: Entity | None = None
    response: Any = None
    retried: bool = False


class Refusal(NamedTuple):
    """The write is not in the entity. `failure`: what to raise if nothing in the entity is the reason."""

    write: Write  # with the time at which the entity was read
    image: Image
    failure: Exception | None = None


class Attempt(Protocol):
    """A write that is ready to be sent, in the language of an engine."""

    @property
    def write(self) -> Write: ...

    def send(self) -> Flow[Landed | Refusal]:
        """Send it once. Return what refused it, if anything did."""
        ...

    def lands(self) -> Flow[bool]:
        """Send it once. Return whether the entity met its conditions, without asking why not."""
        ...

    def retry(self, refusal: Refusal, attempts: int) -> Flow[Attempt | None]:
        """Return what to send next if none of our conditions refused it. None: the caller's own condition did. Or raise the failure."""
        ...

    def with_step(self, step: StepPart) -> Attempt:
        """Return the same write with another step."""
        ...

    def make_record(self, *, passes: bool = False) -> Flow[Attempt | None]:
        """Return the write that remembers the message and changes nothing else. None if the call does not name the entity.

        `passes`: it moves the mark over a message that a ledger in also= holds, and always finds the entity.
        """
        ...

    def show(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a refusal as this call has it."""
        ...


class Engine(ABC):
    """A guarded store, as the flows know it. `final_write`: the call that finishes a performed step."""

    final_write: ClassVar[FinalWrite]
    has_token: ClassVar[bool]  # whether an entity keeps the token of its last writer
    too_much: ClassVar[tuple[type[Exception], ...]]  # raised if a write of several messages, or its entity, is too large
    entity_argument: ClassVar[str]  # by which a call names the entity
    fold_step: ClassVar[StepPart]  # what a write of several messages asks of steps
    full_name: str  # of the table or the collection
    target: Any  # whose methods make the requests

    def __init__(
        self,
        ledger: Ledger | None,
        clock: Callable[[], float],
        name_call: Callable[[], str],
        *,
        outbox: Outbox | None,
        tombstones: Tombstones | None,
        is_async: bool,
    ) -> None:
        """`name_call` returns a new name for each call of a method."""
        self.ledger: Ledger = NO_LEDGER if ledger is None else ledger
        check_ledger(self.ledger)
        self.emitter = make_emitter(outbox, self.ledger.terms.attribute)
        self.empty_emission = None if outbox is None else Emission(outbox.label)
        self.is_async, self.clock, self.name_call = is_async, checked_clock(clock), name_call
        self.tombstones, self.watch = tombstones, Watch(self.ledger.skew)
        check_store_tombstones(tombstones, self.is_taken)

    @property
    def has_ledger(self) -> bool:
        return self.ledger is not NO_LEDGER

    @abstractmethod
    def is_taken(self, name: str) -> bool:
        """Whether the ledger, the outbox or the key of the store has this attribute or field."""

    @abstractmethod
    def keep(self, native: Native) -> Native:
        """Return the arguments, copied for an asynchronous call: while it waits for a response, other tasks can change them."""

    @abstractmethod
    def read_key(self, native: Native) -> Mapping[str, Any]:
        """Return the key of the entity that the arguments of a call name."""

    def name_entity(self, key: Mapping[str, Any]) -> Native:
        """Return the arguments of a call that name the entity with this key, and nothing else."""
        return {self.entity_argument: key}

    @property
    @abstractmethod
    def store_id(self) -> object:
        """Equal for stores of one table or collection, and for no others."""

    @abstractmethod
    def canonical(self, key: Any, /) -> Hashable:
        """Return the same for two keys that name one entity."""

    @abstractmethod
    def attempt(self, write: Write, native: Native) -> Attempt:
        """Return the update that has this message's effect, ready to be sent."""

    def attempt_fold(self, write: Write, native: Native) -> Attempt:
        """Return the update that has the effect of several messages, ready to be sent."""
        return self.attempt(write, native)

    @abstractmethod
    def max_messages(self, entry: Entry) -> int:
        """Return for how many messages the first write of a fold is, given what one of them asks."""

    @abstractmethod
    def check_earlier_marks(self, entry: Entry) -> None:
        """Refuse a message if a write would look for a mark of it that cannot be stored."""

    @abstractmethod
    def attempt_begin(self, write: Write, native: Native) -> Attempt:
        """Return the begin of a step, ready to be sent."""

    @abstractmethod
    def change_step(
        self, write: Write, native: Native, ledger: str, fence: str, change: Step | Mapping[str, Any]
    ) -> Attempt:
        """Return the write that changes these fields of the message's step under that ledger, or replaces the step, if it has this fence."""

    @abstractmethod
    def read(self, key: Mapping[str, Any], native: Native, entry: Entry | None = None) -> Flow[Image]:
        """Read the entity as it is now. `entry`: the entry that will be judged, if any."""
