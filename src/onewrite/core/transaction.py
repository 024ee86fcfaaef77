"""Makes several guarded writes as one, on any engine: it checks the participants, retries the transaction, and selects the outcome."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Final, Generic, TypeVar, cast

from onewrite.core.engine import Attempt, Engine, Native
from onewrite.core.event import Emit
from onewrite.core.flow import Flow, Wait
from onewrite.core.inbox import Inbox
from onewrite.core.judging import end_unsent_steps, judge, settle_missing
from onewrite.core.ledgers.ledger import UNGUARDED, check_message
from onewrite.core.pipeline import make_token, make_write, send_write
from onewrite.core.write import NO_STEP, Image, StepPart, Write
from onewrite.errors import ConfigurationError, InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import (
    Applied,
    Busy,
    Deferred,
    Duplicate,
    Gone,
    Missing,
    Outcome,
    Rejected,
    Stale,
    Superseded,
    Uncertain,
    Unmet,
)

DEADLINE: Final = timedelta(seconds=30)  # the default time for which a transaction waits for others
_MIN_WAIT, _MAX_WAIT = 0.005, 0.5  # seconds: a transaction holds an entity for milliseconds, but throttling lasts longer
# Of the outcomes of several writes, the first kind in this order is the transaction's outcome.
_PRECEDENCE = (Applied, Duplicate, (Busy, Uncertain), Gone, Stale, Deferred, Missing, Rejected)

E = TypeVar("E", bound=Engine)
A = TypeVar("A", bound=Attempt)


@dataclass(frozen=True, slots=True, eq=False)
class PreparedWrite(ABC, Generic[E]):
    """A guarded write that isn't sent yet. `method`: the store's method that created it. `native`: a copy of the caller's arguments."""

    store: E = field(repr=False)
    method: str
    native: Native
    emit: Emit = None
    missing_ok: bool = False

    @property
    def creates(self) -> bool:
        return self.method in ("putting", "inserting")

    @property
    @abstractmethod
    def entity(self) -> Mapping[str, Any]:
        """The key of the entity. It's empty if the write creates an item, and its key attributes aren't known."""

    @abstractmethod
    def make_attempt(self, write: Write) -> Attempt:
        """Return the guarded write with these parts, ready to be sent alone."""


@dataclass(frozen=True, slots=True, eq=False)
class TransactionWrite(ABC, Generic[A]):
    """One write of a transaction.

    - `place`: its index among the participants, or None for the inbox's write
    - `attempt`: the same write, ready to be sent alone
    - `creates`: whether it creates its entity
    - `steps`: the steps that the next attempt of the transaction ends, by the places of their writes
    """

    place: int | None
    attempt: A
    creates: bool
    missing_ok: bool
    steps: dict[int | None, StepPart]

    @property
    def write(self) -> Write:
        return self.attempt.write

    @property
    def requires_predecessor(self) -> bool:
        """Whether later messages wait until this one's mark has moved."""
        return self.write.entry.own.requires_predecessor

    def judge(self, image: Image, now: float) -> Outcome | None:
        """Return why the write's condition failed, given the entity at `now`.

        Return None if the message's unsent step refused it. The next attempt ends that step.
        """
        write = self.write._replace(now=now)
        outcome = judge(write, image)
        if isinstance(outcome, Unmet) and not self.creates:
            step = end_unsent_steps(write, image)
            if not write.has_step(step):
                self.steps[self.place] = step
                return None
        outcome = settle_missing(self.attempt.show(outcome), write, missing_ok=self.missing_ok)
        return with_participant(outcome, self.place)

    @abstractmethod
    def pass_over(self, image: Image | None) -> Flow[Outcome | None]:
        """Move the mark like `pipeline.pass_over`. `image`: the entity that refused the transaction, if it's known."""


P = TypeVar("P", bound=PreparedWrite[Any])
W = TypeVar("W", bound=TransactionWrite[Any])
R = TypeVar("R")


class Backoff:
    """The waits between attempts. Each is twice as long as the previous one, and partly random, so two transactions don't conflict repeatedly."""

    def __init__(self, deadline: timedelta, chance: Callable[[], float], clock: Callable[[], float]) -> None:
        if not isinstance(cast("object", deadline), timedelta):
            raise ConfigurationError(f"deadline={deadline!r}: expected a timedelta, for example timedelta(seconds=30).")
        self._clock = clock
        self._chance = chance
        self._end = clock() + deadline.total_seconds()
        # The sum of all waits is limited too, which ends the retries even if the clock doesn't advance.
        self._budget = deadline.total_seconds()
        self._next = _MIN_WAIT

    def pause(self) -> float | None:
        """Return the seconds to wait before the next attempt, or None if the wait would end after the deadline."""
        wait = self._next * (1 + self._chance()) / 2
        if self._clock() + wait > self._end or wait > self._budget:
            return None
        self._budget -= wait
        self._next = min(_MAX_WAIT, self._next * 2)
        return wait


@dataclass(frozen=True, slots=True)
class Findings:
    """The reasons why a transaction wasn't made, as far as the engine reports them."""

    outcomes: Sequence[Outcome]  # the refused writes
    passes: bool = False  # the next attempt can succeed
    waits: bool = False  # the next attempt must wait
    failure: Exception | None = None  # raised if no ledger refused the message
    is_undecided: bool = False  # an earlier attempt might have made it, and only the next one shows that
    # The entities, by the index of their write in the transaction.
    images: Mapping[int | None, Image] = field(default_factory=dict[int | None, Image])


class Transaction(ABC, Generic[P, W, R]):
    """One call of `transact`. `R`: the engine's form of a refused transaction."""

    kind: type[P]  # the type of the participants
    action: type[W]  # the type of the writes
    stores: ClassVar[str]  # the stores that make participants, for an error
    instead: ClassVar[str]  # an example of a list of participants, for an error

    def __init__(self, message: Message, participants: Sequence[P], inbox: Inbox | None, *, is_async: bool) -> None:
        check_message(message)
        self.message, self.inbox = message, inbox
        self.steps: dict[int | None, StepPart] = {}
        self.participants: tuple[P, ...] = self._require_participants(participants)
        self.store = self.participants[0].store  # its client and clock are those of the transaction
        _check_stores(self.participants, inbox, is_async=is_async)
        self.inbox_store = None if inbox is None else self.open_inbox(inbox)
        self.check()

    @property
    def is_single(self) -> bool:
        return len(self.participants) == 1 and self.inbox is None

    @abstractmethod
    def check(self) -> None:
        """Refuse writes that the engine can't make in one transaction."""

    @abstractmethod
    def open_inbox(self, inbox: Inbox) -> Engine:
        """Return the inbox as a store, for a transaction with the stores of the participants."""

    @abstractmethod
    def attempt_inbox(self, write: Write, expires: float) -> Attempt:
        """Return the write that remembers the message in the inbox. `expires`: when the database can remove it, in epoch seconds."""

    def check_stores(self) -> Flow[None]:
        """Raise if a store can't be guarded, for reasons that only its database knows."""
        yield from ()

    @abstractmethod
    def make(self, actions: Sequence[W], name: str, round_number: int, backoff: Backoff) -> Flow[Applied | R]:
        """Make the transaction, or return its refusal. Wait for conflicts of the whole transaction."""

    @abstractmethod
    def find_reasons(self, actions: Sequence[W], refusal: R, round_number: int) -> Flow[Findings]:
        """Return why the transaction was refused."""

    @abstractmethod
    def give_up(self, actions: Sequence[W], refusal: R) -> Flow[Outcome]:
        """Return the outcome, or raise, if other writers conflicted until the deadline."""

    def make_actions(self, name: str) -> list[W]:
        """Return the transaction's writes, with the inbox first. `name`: the name of the call."""
        actions: list[W] = []
        if self.inbox is not None:
            now = cast("Engine", self.inbox_store).clock()
            for key in self.inbox.make_keys(self.message):
                write = Write(self.message, {self.inbox.key: key}, now, UNGUARDED, NO_STEP, token=make_token(name))
                attempt = self.attempt_inbox(write, self.inbox.expiry(now))
                actions.append(self.action(None, attempt, creates=True, missing_ok=False, steps={}))
        for place, participant in enumerate(self.participants):
            store, step = participant.store, self.steps.get(place, NO_STEP)
            entry = None if store.has_ledger else UNGUARDED
            write = make_write(
                store, self.message, participant.entity, step, emit=participant.emit, entry=entry, name=name, place=place
            )
            attempt = participant.make_attempt(write)
            actions.append(
                self.action(place, attempt, creates=participant.creates, missing_ok=participant.missing_ok, steps=self.steps)
            )
        return actions

    def send_alone(self) -> Flow[Outcome]:
        """Send the only write by itself. A refusal names its participant, like in a transaction."""
        yield from self.check_stores()
        (action,) = self.make_actions(self.store.name_call())
        outcome = yield from send_write(action.attempt, missing_ok=action.missing_ok)
        return with_participant(outcome, action.place)

    def flow(self, backoff: Backoff) -> Flow[Outcome]:
        """Make the transaction, or return why it can't be made.

        All attempts share a name, and so a token. By the token, an attempt is recognized that landed although its response was lost.
        """
        yield from self.check_stores()
        name, round_number = self.store.name_call(), 0
        while True:
            actions = self.make_actions(name)
            result = yield from self.make(actions, name, round_number, backoff)
            if isinstance(result, Applied):
                return result
            findings = yield from self.find_reasons(actions, result, round_number)
            outcome = self._choose_outcome(findings, actions)
            if outcome is not None:
                return (yield from self._pass_over(outcome, actions, findings.images))
            round_number += 1
            if findings.waits:
                wait = backoff.pause()
                if wait is None:
                    return (yield from self.give_up(actions, result))
                yield Wait(wait)

    def _pass_over(self, outcome: Outcome, actions: Sequence[W], images: Mapping[int | None, Image]) -> Flow[Outcome]:
        """Advance the counting marks past a message that a ledger in also= holds, because a `Duplicate` isn't redelivered."""
        if isinstance(outcome, Duplicate):
            for action in actions:
                if action.requires_predecessor:
                    unsettled = yield from action.pass_over(images.get(action.place))
                    if unsettled is not None:
                        return with_participant(unsettled, action.place)
        return outcome

    def _choose_outcome(self, findings: Findings, actions: Sequence[W]) -> Outcome | None:
        """Return the outcome, or None if the transaction must be made again."""
        if findings.is_undecided:
            return None
        outcome = find_decisive(findings.outcomes)
        if isinstance(outcome, Duplicate):
            return outcome
        if findings.passes:
            return None
        if findings.failure is not None and isinstance(outcome, Unmet | None):
            raise findings.failure
        if isinstance(outcome, Unmet) and any(action.requires_predecessor for action in actions):
            # Later messages wait for this one, so a refusal that isn't recorded must be redelivered.
            return replace(outcome, settled=False)
        return outcome

    def _require_participants(self, participants: object) -> tuple[P, ...]:
        """Return the participants. Raise unless they are a non-empty sequence of this engine's prepared writes."""
        writes: tuple[object, ...] = ()
        wrong: list[object] = [participants]
        if isinstance(participants, Sequence) and not isinstance(participants, str):
            writes = tuple(cast("Sequence[object]", participants))
            wrong = [write for write in writes if not isinstance(write, self.kind)]
        if wrong:
            raise InvalidUpdate(
                f"transact: expected a message and a list of prepared writes of guarded {self.stores}, got a {type(wrong[0]).__name__}. "
                f"Write {self.instead}."
            )
        if not writes:
            raise InvalidUpdate(
                "transact: expected at least one participant, got an empty list. Without a write, no entity would remember the message."
            )
        return cast("tuple[P, ...]", writes)


def _check_stores(participants: Sequence[PreparedWrite[Any]], inbox: Inbox | None, *, is_async: bool) -> None:
    """Raise unless the stores fit the function, and each message is remembered by a ledger or by the inbox."""
    if inbox is not None and not isinstance(cast("object", inbox), Inbox):
        raise ConfigurationError(
            f"inbox={inbox!r}: expected an Inbox, for example inbox=Inbox(table, consumer='billing', retention=...)."
        )
    for participant in participants:
        if participant.store.is_async is not is_async:
            right = "transact" if is_async else "atransact"
            raise ConfigurationError(f"These stores are {'not ' if is_async else ''}asynchronous: use {right}.")
        if inbox is None and not participant.store.has_ledger:
            raise ConfigurationError(
                "A participant without a ledger needs inbox=Inbox(...). Otherwise, a redelivery couldn't be distinguished from a new "
                "message."
            )
        if not participant.store.has_ledger and participant.method == "recording":
            raise InvalidUpdate(
                "A store without a ledger can't record a message. Use updating(...) instead, or omit this participant."
            )


_REASONS = {
    "finishes": "a refused transaction would leave the step open although its effect has happened. Finish the step with its own write."
}


def check_prepared(method: str, names: Iterable[str], parameters: Collection[str], reasons: Mapping[str, str]) -> None:
    """Raise for an argument that this write of a transaction doesn't accept. `reasons`: why, for arguments that the engine accepts elsewhere."""
    for name in names:
        if name not in parameters:
            reason = {**_REASONS, **reasons}.get(name, f"it takes {', '.join(sorted(parameters))} and emit.")
            raise InvalidUpdate(f"{method} takes no {name}: {reason}")


def with_participant(outcome: Outcome, place: int | None) -> Outcome:
    """Return the outcome with the place of its participant. `place`: None for the inbox."""
    return outcome if isinstance(outcome, Applied | Superseded) else replace(outcome, participant=place)


def find_decisive(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Return the first outcome of the first kind in `_PRECEDENCE`, or None without outcomes. An unsettled `Missing` precedes a settled one."""
    candidates = sorted(outcomes, key=lambda outcome: isinstance(outcome, Missing) and outcome.settled)
    return next((outcome for kind in _PRECEDENCE for outcome in candidates if isinstance(outcome, kind)), None)
