"""A guarded store without its client: what all engines have in common, and the flows of the verbs that all of them have.

An engine says in its own language what a request is (its methods that are abstract here), and nothing else: which parts a write has, how often
it is sent and what a refusal means is decided in this package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from hashlib import blake2b
from typing import Any, ClassVar, TypeAlias

from onewrite.core.clock import checked_clock
from onewrite.core.event import Outbox, check_outbox_has_ledger, emission, empty_emission, make_emitter
from onewrite.core.flow import Flow, split_missing_ok
from onewrite.core.judging import judge_read
from onewrite.core.ledgers import NO_LEDGER, Ledger, check_ledger
from onewrite.core.ledgers.entry import Entry
from onewrite.core.ledgers.ledger import UNGUARDED, check_message
from onewrite.core.pipeline import Attempt, send_finish
from onewrite.core.step import Claim, FinalWrite, Step, check_claim
from onewrite.core.tombstone import Tombstones, check_store_tombstones
from onewrite.core.unreturned import hear_begin
from onewrite.core.watch import Watch
from onewrite.core.write import NO_STEP, Finishes, Image, StepPart, Write
from onewrite.message import Message
from onewrite.outcome import Outcome

Native: TypeAlias = Mapping[str, Any]
"""The caller's own arguments by their names; on MongoDB `filter` and `update` are among them."""


_TOKEN_BYTES = 6  # two calls have the same token once in 2^48: docs/format.md says what that means


def make_token(call: str) -> bytes:
    """Return the token of the call with this name, which no other call has.

    botocore sends a request again when the response is lost, and the first attempt's mark then refuses the second. The entity keeps the
    token of its last writer, and so shows whose mark that is.
    """
    return blake2b(call.encode(), digest_size=_TOKEN_BYTES).digest()


class Engine(ABC):
    """What the flows need to know of a guarded store. `final_write`: the call that finishes a performed step."""

    final_write: ClassVar[FinalWrite]
    has_token: ClassVar[bool]  # does an entity keep the token of its last writer?
    full_name: str  # of the table or the collection

    def __init__(
        self,
        ledger: Ledger | None,
        clock: Callable[[], float],
        attempts: Callable[[], str],
        *,
        outbox: Outbox | None,
        tombstones: Tombstones | None,
        is_async: bool,
    ) -> None:
        """`attempts` names calls."""
        check_outbox_has_ledger(ledger, outbox)
        self.ledger: Ledger = NO_LEDGER if ledger is None else ledger
        check_ledger(self.ledger)
        self.emitter = make_emitter(outbox, self.ledger.terms.attribute)
        self.empty_emission = None if outbox is None else empty_emission(outbox)
        self.is_async, self.clock, self.attempts = is_async, checked_clock(clock), attempts
        self.tombstones, self.watch = tombstones, Watch(self.ledger.skew)
        check_store_tombstones(tombstones, self.is_taken)

    @property
    def guards(self) -> bool:
        return self.ledger is not NO_LEDGER

    # --- what each engine says in its own language ---------------------------------------------------------------------

    @abstractmethod
    def is_taken(self, name: str) -> bool:
        """Whether the ledger, the outbox or the key of the store has this attribute or field."""

    @abstractmethod
    def keep(self, native: Native) -> Native:
        """Return the arguments. While an asynchronous call waits for a response, other tasks may use its arguments again: so these are copied."""

    @abstractmethod
    def read_key(self, native: Native) -> Mapping[str, Any]:
        """Return what names the entity in the arguments of a call."""

    @abstractmethod
    def name_entity(self, key: Mapping[str, Any]) -> Native:
        """Return the arguments of a call that name the entity with this key, and nothing else."""

    @abstractmethod
    def canonical(self, key: Any, /) -> Hashable:
        """Return the same for two keys that name one entity."""

    @abstractmethod
    def attempt(self, write: Write, native: Native) -> Attempt:
        """Return the update that has this message's effect, ready to be sent."""

    @abstractmethod
    def attempt_begin(self, write: Write, native: Native) -> Attempt:
        """Return the begin of a step, ready to be sent."""

    @abstractmethod
    def change_step(
        self, write: Write, native: Native, ledger: str, fence: str, change: Step | Mapping[str, Any]
    ) -> Attempt:
        """Return what changes these fields of the message's step under that ledger, or puts another step in its place, if it has this fence."""

    @abstractmethod
    def read(self, key: Mapping[str, Any], native: Native, entry: Entry | None = None) -> Flow[Image]:
        """Read the entity as it is now. `entry`: for which the ledger is looked into."""

    # --- the verbs -----------------------------------------------------------------------------------------------------

    def new_write(
        self,
        message: Message,
        key: Mapping[str, Any],
        step: StepPart = NO_STEP,
        *,
        emit: object = None,
        entry: Entry | None = None,
        name: str | None = None,
        place: int = 0,
    ) -> Write:
        """Return the parts of a write. `name` and `place`: which call it is of, and which of the call's writes."""
        hear_begin((message,))
        now, outbox_part = self.clock(), self.empty_emission
        if entry is None:
            entry = self.ledger.entry(message, now)
        if name is None and (self.has_token or emit is not None):
            name = self.attempts()
        if emit is not None:
            outbox_part = emission(self.emitter, message, emit, now, f"{self.full_name} {name} {place}")
        token = make_token(name) if name and self.has_token and entry is not UNGUARDED else None
        return Write(message, key, now, entry, step, outbox_part, token)

    def finish(
        self,
        message: Message,
        native: Native,
        claim: Claim,
        emit: object = None,
        attempt: Callable[[Write, Native], Attempt] | None = None,
    ) -> Flow[Outcome]:
        """Write what finishes a step. `attempt`: where it is another one than that of an update."""
        native = self.keep(split_missing_ok(native)[0])
        key = self.read_key(native)
        check_claim(claim, message, key, self.canonical)
        write = self.new_write(message, key, Finishes(claim.fence, self.ledger.attribute), emit=emit)
        return send_finish((attempt or self.attempt)(write, native))

    def look_up(self, message: Message, native: Native) -> Flow[Outcome]:
        """Read what an unconditional write of the message would get now."""
        check_message(message)
        native = self.keep(native)
        write = self.new_write(message, self.read_key(native))
        return judge_read(write, (yield from self.read(write.key, native, write.entry)))
