"""What it takes to write several messages of one entity at once, on any engine.

The result is that of some order of single guarded writes. To find one, the messages are judged in turn, each as if those before
it were in the entity already: first on the assumption that the ledger lets in whatever it may, and, where the write was
refused, on what the entity then held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar, cast

from onewrite.core.engine import Attempt, Engine, Landed, Native, Refusal
from onewrite.core.event import check_causes, make_fold_emission
from onewrite.core.flow import Do, Flow, split_missing_ok
from onewrite.core.judging import is_waited_for, judge_message, open_step
from onewrite.core.label import Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Lookup
from onewrite.core.pipeline import Settled, make_token, move_mark, send_write, settle
from onewrite.core.unreturned import hear_begin
from onewrite.core.write import NO_STEP, Image, NoStepAtAll, StepPart, Write
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.message import Message, by_sequence
from onewrite.outcome import Applied, Deferred, Duplicate, Outcome, Rejected, Stale

E = TypeVar("E", bound=Engine)
Function: TypeAlias = Callable[[list[Message]], Any]
"""The caller's: takes messages, and returns the arguments of the write that has their effect. It may be asynchronous."""


class Member(NamedTuple):
    """A message, its place among those that were given, and what a write of it alone asks of the entity."""

    place: int
    message: Message
    entry: Entry


class FoldedWrites(ABC, Generic[E]):
    """The writes of a fold, on an engine.

    - `too_much`: what is raised if a write is too large for the engine, or makes the entity too large
    - `step`: what a write of several messages asks of steps
    """

    too_much: ClassVar[tuple[type[Exception], ...]]
    step: ClassVar[StepPart]

    def __init__(self, engine: E) -> None:
        self.engine = engine

    @property
    @abstractmethod
    def max_messages(self) -> int:
        """How many messages the first write has at most."""

    @abstractmethod
    def check_looks(self, entry: Entry) -> None:
        """Refuse a message if a write would look for a mark of it that cannot be stored."""

    @abstractmethod
    def read_entity(self, native: Native) -> Mapping[str, Any]:
        """Return what names the entity in the arguments of a write."""

    @abstractmethod
    def build(self, write: Write, native: Native) -> Attempt:
        """Return the write, ready to be sent."""

    def entry(self, message: Message) -> Entry:
        """Return what a write of this message asks of the entity now."""
        entry = self.engine.ledger.entry(message, self.engine.clock())
        self.check_looks(entry)
        return entry

    def attempt(self, messages: Sequence[Message], native: Native, moved: Sequence[Message] = ()) -> Attempt:
        """Return the write of the messages at once. `moved`: these, among others over which a mark only moves."""
        hear_begin(messages)
        engine, emit = self.engine, native.get("emit")
        arguments = {name: value for name, value in engine.keep(native).items() if name != "emit"}
        # All at one moment, so all marks go into one slot; the messages may have waited for the caller's function.
        now, call = engine.clock(), engine.attempts()
        entry = join(make_entries(engine.ledger, messages, moved, now))
        outbox_part = engine.empty_emission
        if emit is not None:
            outbox_part = make_fold_emission(engine.emitter, messages, emit, now, call)
        step, token = NO_STEP if len(messages) == 1 else self.step, make_token(call) if engine.has_token else None
        key, others = engine.read_key(arguments), tuple(messages[1:])
        return self.build(Write(messages[0], key, now, entry, step, outbox_part, token, other_messages=others), arguments)

    def write_all(self, plan: Plan, native: Native) -> Flow[Landed | Refusal | None]:
        """Write the plan's messages at once. None: that is too much for one write."""
        fresh, moved = ([member.message for member in members] for members in (plan.fresh, plan.moved))
        try:
            if fresh:
                attempt = self.attempt(fresh, split_missing_ok(native)[0], moved)
            else:
                attempt = cast("Attempt", (yield from self._without_effect(moved, native).record(passes=True)))
            return (yield from send_fold(attempt, plan))
        except self.too_much:
            return None

    def _without_effect(self, messages: Sequence[Message], native: Native) -> Attempt:
        arguments = {name: value for name, value in split_missing_ok(native)[0].items() if name != "emit"}
        return self.attempt(messages, arguments)

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        """Make the guarded write of one message."""
        native, missing_ok = split_missing_ok(native)
        return send_write(self.attempt([message], native), missing_ok=missing_ok)

    def pass_one(self, message: Message, native: Native) -> Flow[Outcome | None]:
        """Move the mark over the message. None: done. Otherwise why the message must be redelivered."""
        return move_mark(self._without_effect([message], native))


# --- in which order, and what one write of several asks ----------------------------------------------------------------


def order_messages(messages: Sequence[Message]) -> list[int]:
    """Return the places of the messages in the order in which they take effect: those of a source by their sequence."""
    for message in messages:
        if not isinstance(cast("object", message), Message):
            kind = type(cast("object", message)).__name__
            raise InvalidMessage(f"fold takes a list of messages, and one of them is a {kind}: make it a Message.")
    return by_sequence(messages)


def make_entries(ledger: Ledger, messages: Sequence[Message], moved: Sequence[Message], now: float) -> list[Entry]:
    """Return what a write of the messages asks, each by itself. `moved`: these, and those over which a mark only moves; none: these alone."""
    written = {*map(id, messages)}
    entries = [(message, ledger.entry(message, now)) for message in moved or messages]
    return [entry if id(message) in written else entry.passing for message, entry in entries]


def join(entries: Sequence[Entry]) -> Entry:
    """Return what one write of all asks of the entity. The entries are of one ledger and one moment, in the order in which they take effect."""
    first = entries[0]
    written_changes = _merge_moves([entry.own for entry in entries])
    also: dict[object, Change] = {}
    for change in chain.from_iterable([entry.also for entry in entries]):
        also.setdefault(_strictest(change), change)
    return Entry(first.terms, written_changes[0], tuple(also.values()), tuple(written_changes[1:]))


def _merge_moves(changes: Iterable[Change]) -> list[Change]:
    """Return the changes with one for each source, whose mark moves from below the first sequence to the last one at once."""
    moves: list[Change] = []
    places: dict[Slot, int] = {}
    for change in changes:
        if isinstance(change, Advance) and change.slot in places:
            place = places[change.slot]
            moves[place] = cast("Advance", moves[place])._replace(last=change.mark)
        else:
            if isinstance(change, Advance):
                places[change.slot] = len(moves)
            moves.append(change)
    return moves


def _strictest(change: Change) -> object:
    """Return the same for changes of which the first covers all: a mark below the first sequence is below those that follow.

    Numbers and texts do not compare, nor do digits of different length.
    """
    if not isinstance(change, Advance):
        return change
    return change.slot, type(change.mark), len(cast("str", change.mark)) if change.has_digits else 0


# --- who is let in -----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Which messages a write has.

    - `fresh`: those that the ledger lets in
    - `outcomes`: those of all others, by their places. They hold once the fresh ones are written.
    - `moved`: the fresh ones, and others over which a mark moves because a ledger in also= holds them
    """

    fresh: list[Member]
    outcomes: dict[int, Outcome]
    moved: list[Member]


def make_plan(members: Iterable[Member], fold_refusal: Refusal) -> Plan:
    """Judge each message as if the fresh ones before it had been written already."""
    ledger = _LedgerAhead(fold_refusal.image.ledger)
    fresh: list[Member] = []
    outcomes: dict[int, Outcome] = {}
    moved: list[Member] = []
    for member in members:
        outcome = judge_member(fold_refusal, member, ledger)
        if outcome is None:
            fresh.append(member)
        else:
            outcomes[member.place] = outcome
        if outcome is None or is_passed_over(outcome, fold_refusal, member, ledger):
            ledger.write(member.entry.own)
            moved.append(member)
    return Plan(fresh, outcomes, moved)


class _LedgerAhead:
    """A ledger as it will be. What was looked up once is kept, because a set may be large."""

    __slots__ = ("_contents", "_look_up")

    def __init__(self, look_up: Lookup) -> None:
        self._look_up = look_up
        self._contents: dict[Slot, object] = {}

    def __call__(self, slot: Slot) -> object:
        if slot not in self._contents:
            self._contents[slot] = self._look_up(slot)
        return self._contents[slot]

    def write(self, change: Change) -> None:
        if isinstance(change, Advance):
            self._contents[change.slot] = change.mark
            return
        present = change.sets.present
        marks = self(present)
        self._contents[present] = frozenset([change.mark, *(() if marks is ABSENT else cast("Iterable[object]", marks))])


def assume_refusal(members: Sequence[Member]) -> Refusal:
    """Return a refusal by an entity whose ledger, which nobody has read yet, lets in the first message of each source, and every id."""
    marks: dict[Slot, object] = {}
    for member in members:
        change = member.entry.own
        if isinstance(change, Advance):
            marks.setdefault(change.slot, cast("int", change.mark) - 1 if change.rule == "next" else ABSENT)

    def look_up(slot: Slot) -> object:
        return marks.get(slot, ABSENT)

    first = members[0]
    image = Image(False, False, None, look_up, {}, {}, False)  # an entity of which nothing is known
    return Refusal(Write(first.message, {}, 0.0, first.entry, NO_STEP), image)


def make_single_write(write: Write, member: Member) -> Write:
    """Return the write of several messages as if it were of this one alone."""
    return write._replace(message=member.message, entry=member.entry, other_messages=())


def judge_member(refusal: Refusal, member: Member, ledger: Lookup) -> Outcome | None:
    """Return why the message is kept out, given the ledger as it will be. None: nothing but the caller's condition is in its way."""
    return judge_message(make_single_write(refusal.write, member), refusal.image._replace(ledger=ledger))


def is_passed_over(outcome: Outcome, refusal: Refusal, member: Member, ledger: Lookup) -> bool:
    """Whether a ledger in also= keeps the message out, no step of it is open, and so the mark moves over it. `outcome`: of `judge_member`."""
    if not isinstance(outcome, Duplicate):
        return False
    return is_waited_for(make_single_write(refusal.write, member), refusal.image._replace(ledger=ledger))


def send_fold(attempt: Attempt, plan: Plan) -> Flow[Landed | Refusal]:
    """Send the write of several messages."""

    def judge_refusal(write: Write, image: Image) -> Refusal | StepPart | None:
        refusal = Refusal(write, image)
        new_plan = make_plan(plan.moved, refusal)
        if (len(new_plan.fresh), len(new_plan.moved)) != (len(plan.fresh), len(plan.moved)):
            return refusal
        if any(open_step(make_single_write(write, member), image) for member in plan.fresh):
            return refusal  # it was released before its effect was sent, and a write of the message alone ends it
        # A step of another message may have been in the way.
        return NO_STEP if image.steps and isinstance(write.step, NoStepAtAll) else None

    flow: Flow[Settled[Refusal]] = settle(attempt, judge_refusal)
    settled = yield from flow
    answer, refusal = settled.result, settled.refusal
    if isinstance(answer, Landed) and refusal is not None:
        shown = settled.attempt.show(Applied(attempt.write.message, answer.entity))
        return answer._replace(entity=shown.entity)
    return answer or cast("Refusal", refusal)


# --- the fold ----------------------------------------------------------------------------------------------------------


def fold(store: FoldedWrites[Any], messages: Iterable[Message], function: Function) -> Flow[list[Outcome]]:
    """Write the messages in as few writes as there can be. The outcomes are in the order of the messages."""
    if isinstance(cast("object", messages), Message | str) or not isinstance(cast("object", messages), Iterable):
        raise InvalidMessage(
            f"fold takes the messages first, as a list, and got a {type(messages).__name__}: write fold([message, ...], function)."
        )
    if not callable(function):
        raise InvalidUpdate(
            f"fold takes a function behind the messages, and got a {type(cast('object', function)).__name__}: write lambda fresh: {{...}}, "
            "which returns the arguments of one write."
        )
    message_list = [*messages]
    order = order_messages(message_list)
    first_places: dict[object, int] = {}
    firsts = [first_places.setdefault(_identify(message, store.entry(message)), n) for n, message in enumerate(message_list)]
    call, outcomes, max_messages = _Fold(store, function), dict[int, Outcome](), store.max_messages
    places = [place for place in order if firsts[place] == place]
    while places:
        chunk = [Member(place, message_list[place], store.entry(message_list[place])) for place in places[:max_messages]]
        chunk_outcomes = yield from call.write_chunk(chunk)
        if chunk_outcomes is None:
            max_messages = max(1, len(chunk) // 2)
        else:
            outcomes |= chunk_outcomes
            places = places[len(chunk) :]
    for place, first in enumerate(firsts):
        if place != first:
            outcomes[place] = _copy_outcome(outcomes[first], message_list[place])
    return [outcomes[place] for place in range(len(message_list))]


def _identify(message: Message, entry: Entry) -> object:
    """Return the same for two copies of a message."""
    change = entry.own
    return (change.slot, change.mark, message.id) if isinstance(change, Advance) else change.mark


def _copy_outcome(outcome: Outcome, message: Message) -> Outcome:
    """Return the outcome of a second copy of a message."""
    return Duplicate(message, outcome.entity) if isinstance(outcome, Applied) else replace(outcome, message=message)


class _Fold:
    """One call of `fold`. It asks the caller's function, and sees to it that all writes are of one entity."""

    def __init__(self, store: FoldedWrites[Any], function: Function) -> None:
        self._store, self._function = store, function
        self._entity: object = ABSENT
        self._native: Native = {}  # what the caller's function has returned last

    def write_chunk(self, chunk: Sequence[Member]) -> Flow[dict[int, Outcome] | None]:
        """Write the messages in one write; again with those that the ledger lets in, where it kept out others; or one by one.

        None: one write of them is too much.
        """
        refusal, asked_places = assume_refusal(chunk), set[int]()
        for _ in chunk:
            plan = make_plan(chunk, refusal)
            if not plan.moved:
                return plan.outcomes
            # If the ledger lets in all that were refused, the caller's condition kept them out: some may pass that alone.
            fresh = {member.place for member in plan.fresh}
            if len(chunk) == 1 or (asked_places and (len(plan.moved) == 1 or asked_places <= fresh)):
                break
            asked_places = fresh
            native = (yield from self._ask(plan.fresh)) if plan.fresh else self._native
            result = yield from self._store.write_all(plan, native)
            if result is None:
                return None
            if isinstance(result, Landed):
                return plan.outcomes | {
                    member.place: Applied(member.message, result.entity, result.retried, result.response)
                    for member in plan.fresh
                }
            refusal = result
        return (yield from self._write_one_by_one(chunk, refusal))

    def _write_one_by_one(self, chunk: Sequence[Member], fold_refusal: Refusal) -> Flow[dict[int, Outcome]]:
        """Write the messages in order, without those that the ledger refuses, given what was written since it was read."""
        ledger, others_wrote = _LedgerAhead(fold_refusal.image.ledger), False
        outcomes: dict[int, Outcome] = {}
        for member in chunk:
            outcome = judge_member(fold_refusal, member, ledger)
            if outcome is None or (isinstance(outcome, Deferred) and others_wrote):
                native = yield from self._ask([member])
                outcome = yield from self._store.write_one(member.message, native)
                if isinstance(outcome, Applied) or (
                    isinstance(outcome, Rejected) and outcome.settled and member.entry.own.requires_predecessor
                ):
                    ledger.write(member.entry.own)
                others_wrote = others_wrote or isinstance(outcome, Duplicate | Stale)
            elif is_passed_over(outcome, fold_refusal, member, ledger):
                unsettled = yield from self._store.pass_one(member.message, self._native)
                if unsettled is None:
                    ledger.write(member.entry.own)
                else:
                    outcome = unsettled
            outcomes[member.place] = outcome
        return outcomes

    def _ask(self, fresh: Sequence[Member]) -> Flow[Native]:
        messages = [member.message for member in fresh]
        native = yield Do(self._function, ([*messages],))
        if not isinstance(native, Mapping):
            raise InvalidUpdate(
                f"The function of a fold returned a {type(native).__name__}: return a dict with the arguments of the write."
            )
        arguments = cast("Native", native)
        if "finishes" in arguments:
            raise InvalidUpdate("A fold finishes no step: finish it by update_item or update_one, message by message.")
        if arguments.get("emit") is not None:
            check_causes(messages, arguments["emit"])  # also of one message alone, so no mistake waits for a larger batch
        entity, canonical = self._store.read_entity(arguments), self._store.engine.canonical
        if self._entity is ABSENT:
            self._entity = entity
        elif canonical(self._entity) != canonical(entity):
            raise InvalidUpdate(
                f"The function of a fold named {entity!r} after {self._entity!r}: a fold writes to one entity. Group the messages by "
                "entity, and fold each group."
            )
        self._native = arguments
        return arguments
