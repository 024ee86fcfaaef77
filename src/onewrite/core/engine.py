"""The pipeline's interface to an engine: a store that builds requests in its own language, and a write that is ready to be sent.

An engine decides nothing else. `pipeline.py` and `judging.py` decide the parts of a write, its retries, and the meaning of a refusal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias, cast

from onewrite.core.clock import checked_clock
from onewrite.core.effect import Effect
from onewrite.core.flow import Flow
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import Entry
from onewrite.core.watch import Watch
from onewrite.core.write import EffectPart, Emission, Image, Write
from onewrite.errors import InvalidUpdate
from onewrite.message import Message
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

    def with_effect(self, effect: EffectPart) -> Attempt:
        """Return the same write with a different effect part."""
        ...

    def make_ledger_write(self) -> Flow[Attempt | None]:
        """Return the write that only remembers the message, or None if the call doesn't name the entity."""
        ...

    def show(self, outcome: Outcome) -> Outcome:
        """Return the outcome of a refusal with this call's form of the entity."""
        ...


class Emitter(Protocol):
    """Makes the events of a store's writes."""

    @property
    def empty(self) -> Emission | None:
        """The emission of a write without events, if the store has an outbox."""
        ...

    def emit(self, messages: Sequence[Message], argument: object, now: float, call: str) -> Emission:
        """Return the events of a write of these messages. `argument`: the caller's `emit=`. `call`: the unique name of the call."""
        ...


class FinalWrite(NamedTuple):
    """The write that finishes a performed effect: the name of its method, its arguments, and an example."""

    call: str
    arguments: frozenset[str]
    example: str

    def read_arguments(self, result: object) -> dict[str, Any]:
        """Return the result of `then=` as arguments. A mistake is reported before the driver sees it, because the effect has happened."""
        problem: str | None = None
        if not isinstance(result, Mapping):
            problem = f"a {type(result).__name__}"
        elif unknown := [name for name in cast("Mapping[object, object]", result) if name not in self.arguments]:
            problem = f"{', '.join(map(repr, unknown))}, which {self.call} doesn't take"
        if problem is not None:
            raise InvalidUpdate(
                f"then= returned {problem}: expected a dict with the arguments of the write, for example {self.example}."
            )
        return dict(cast("Mapping[str, Any]", result))


class Engine(ABC):
    """The part of a guarded store that the flows use. `final_write`: the name of the call that finishes a performed effect."""

    final_write: ClassVar[FinalWrite]
    has_token: ClassVar[bool]  # whether an entity stores the token of its last writer
    too_much: ClassVar[tuple[type[Exception], ...]]  # the errors of a write, or an entity, that is too large for a batch
    entity_argument: ClassVar[str]  # the arguments that name the entity
    full_name: str  # the table's or the collection's
    target: Any  # its methods send the requests

    def __init__(
        self,
        ledger: Ledger,
        clock: Callable[[], float],
        name_call: Callable[[], str],
        *,
        emitter: Emitter,
        is_async: bool,
    ) -> None:
        """`name_call` returns a new name for each call of a method."""
        self.ledger, self.emitter, self.empty_emission = ledger, emitter, emitter.empty
        self.is_async, self.clock, self.name_call = is_async, checked_clock(clock), name_call
        self.watch = Watch(self.ledger.skew, self.ledger.attribute)

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
        """Return the update with this message's change, ready to be sent."""

    def make_batch_attempt(self, write: Write, native: Native) -> Attempt:
        """Return the update with the changes of several messages, ready to be sent."""
        return self.make_attempt(write, native)

    @abstractmethod
    def limit_messages(self, entry: Entry) -> int:
        """Return the number of messages in the first write of a batch, given the write of one of them."""

    @abstractmethod
    def check_marks(self, entry: Entry) -> None:
        """Refuse a message with a mark that can't be stored."""

    @abstractmethod
    def make_begin_attempt(self, write: Write, native: Native) -> Attempt:
        """Return the begin of an effect, ready to be sent."""

    @abstractmethod
    def change_effect(
        self, write: Write, native: Native, ledger: str, fence: str, change: Effect | Mapping[str, Any]
    ) -> Attempt:
        """Return the write that changes these fields of the message's effect under that ledger, or replaces the effect. It requires that the effect has this fence."""

    @abstractmethod
    def read(self, key: Mapping[str, Any], native: Native, entry: Entry | None = None) -> Flow[Image]:
        """Read the current entity. `entry`: the entry that will be judged, if any."""
