"""What it takes to write several messages of one entity at once, on any engine.

The result is that of some order of single guarded writes. To find one, the messages are judged in turn, each as if those before
it were in the entity already: first on the assumption that the ledger lets in whatever it may, and, where the write was
refused, on what the entity then held.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from onewrite.core.engine import Engine, Native, make_token
from onewrite.core.event import check_causes, make_fold_emission
from onewrite.core.flow import Do, Flow, split_missing_ok
from onewrite.core.judging import is_waited_for, judge_message
from onewrite.core.label import Slot
from onewrite.core.ledgers import Ledger
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Lookup
from onewrite.core.pipeline import Attempt, Landed, Refusal, Settled, move_mark, send_write, settle
from onewrite.core.write import NO_STEP, Image, NoStepAtAll, StepPart, Write
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.message import Message, by_sequence
from onewrite.outcome import Applied, Deferred, Duplicate, Entity, Outcome, Rejected, Stale

E = TypeVar("E", bound=Engine)
Function: TypeAlias = Callable[[list[Message]], Any]
"""The caller's: takes messages, and returns the arguments of the write that has their effect. It may be asynchronous."""


class Member(NamedTuple):
    """A message, its place among those that were given, and what a write of it alone asks of the entity."""

    place: int
    message: Message
    entry: Entry


class Landing(NamedTuple):
    """The write had landed, with the marks of all its messages."""

    entity: Entity | None = None
    retried: bool = False
    response: Any = None


class FoldRefusal(NamedTuple):
    """The write did not land. `ledger` is what it was then.

    `refusal` says why a message was kept out, given the ledger; None: nothing but the caller's condition stood in its way. `passes` says
    whether the mark moves over one that was kept out, because a ledger in also= holds it.
    """

    ledger: Lookup
    refusal: Callable[[Member, Lookup], Outcome | None]
    passes: Callable[[Member, Lookup], bool]


class TooMuch(NamedTuple):
    """The write is too large for the engine, or makes the entity too large, and fewer messages may fit."""


TOO_MUCH: Final = TooMuch()


class FoldingStore(Protocol):
    """What an engine's flows do for a fold."""

    @property
    def most(self) -> int:
        """How many messages to begin with."""
        ...

    def entry(self, message: Message) -> Entry:
        """What a write of this message asks of the entity now."""
        ...

    def entity_of(self, native: Native) -> object:
        """What names the entity in the arguments of a write."""
        ...

    def canonical(self, entity: Any, /) -> Hashable:
        """Equal for two values that name one entity."""
        ...

    def write_all(self, plan: Plan, native: Native) -> Flow[Landing | FoldRefusal | TooMuch]:
        """Write the plan's messages at once. It is not asked to write the only message there is: `write_one` does that."""
        ...

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        """The guarded write of one message."""
        ...

    def pass_one(self, message: Message, native: Native) -> Flow[Outcome | None]:
        """Move the mark over the message. None: done. Otherwise why the message must be redelivered."""
        ...


class FoldedWrites(ABC, Generic[E]):
    """The writes of a fold, on an engine. `too_much`: what is raised if a write is too large. `step`: what a write of several messages asks of steps."""

    too_much: ClassVar[tuple[type[Exception], ...]]
    step: ClassVar[StepPart]

    def __init__(self, engine: E) -> None:
        self.engine = engine

    @abstractmethod
    def check_looks(self, entry: Entry) -> None:
        """Refuse a message of which a write would look for a mark that cannot be stored."""

    @abstractmethod
    def build(self, write: Write, native: Native) -> Attempt:
        """Return the write, ready to be sent."""

    def canonical(self, entity: Any, /) -> Hashable:
        return self.engine.canonical(entity)

    def entry(self, message: Message) -> Entry:
        entry = self.engine.ledger.entry(message, self.engine.clock())
        self.check_looks(entry)
        return entry

    def attempt(self, messages: Sequence[Message], native: Native, moved: Sequence[Message] = ()) -> Attempt:
        """Return the write of the messages at once. `moved`: these, among others over which a mark only moves."""
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

    def write_all(self, plan: Plan, native: Native) -> Flow[Landing | FoldRefusal | TooMuch]:
        fresh, moved = ([member.message for member in members] for members in (plan.fresh, plan.moved))
        try:
            if fresh:
                attempt = self.attempt(fresh, split_missing_ok(native)[0], moved)
            else:
                attempt = cast("Attempt", (yield from self._without_effect(moved, native).record(passes=True)))
            return (yield from send_fold(attempt, plan))
        except self.too_much:
            return TOO_MUCH

    def _without_effect(self, messages: Sequence[Message], native: Native) -> Attempt:
        arguments = {name: value for name, value in split_missing_ok(native)[0].items() if name != "emit"}
        return self.attempt(messages, arguments)

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        native, missing_ok = split_missing_ok(native)
        return send_write(self.attempt([message], native), missing_ok=missing_ok)

    def pass_one(self, message: Message, native: Native) -> Flow[Outcome | None]:
        return move_mark(self._without_effect([message], native))


# --- in which order, and what one write of several asks ----------------------------------------------------------------


def order_messages(messages: Sequence[Message]) -> list[int]:
    """The places of the messages in the order in which they take effect: those of a source by their sequence."""
    for message in messages:
        if not isinstance(cast("object", message), Message):
            kind = type(cast("object", message)).__name__
            raise InvalidMessage(f"fold takes a list of messages, and one of them is a {kind}: make it a Message.")
    return by_sequence(messages)


def make_entries(ledger: Ledger, messages: Sequence[Message], moved: Sequence[Message], now: float) -> list[Entry]:
    """What a write of the messages asks, each by itself. `moved`: these, and those over which a mark only moves; none: these alone."""
    written = {*map(id, messages)}
    entries = [(message, ledger.entry(message, now)) for message in moved or messages]
    return [entry if id(message) in written else entry.passing for message, entry in entries]


def join(entries: Sequence[Entry]) -> Entry:
    """What one write of all asks of the entity. The entries are of one ledger and one moment, in the order in which they take effect."""
    first = entries[0]
    written_changes = _merge_moves([entry.own for entry in entries])
    also: dict[object, Change] = {}
    for change in chain.from_iterable([entry.also for entry in entries]):
        also.setdefault(_strictest(change), change)
    return Entry(first.terms, written_changes[0], tuple(also.values()), tuple(written_changes[1:]))


def _merge_moves(changes: Iterable[Change]) -> list[Change]:
    """A mark moves from below the first sequence of its source to the last one at once."""
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
    """Equal for looks of which the first says it all: a mark that is below the first sequence is below those that follow.

    Numbers and texts do not compare, nor do digits of different length.
    """
    if not isinstance(change, Advance):
        return change
    return change.slot, type(change.mark), len(cast("str", change.mark)) if change.has_digits else 0


# --- who is let in -----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Who is let in, and the answers to the others, by their places. These hold once all who are let in are written.

    `moved`: those who are let in, and those of the others over which a mark moves because a ledger in also= holds them.
    """

    fresh: list[Member]
    answers: dict[int, Outcome]
    moved: list[Member]


def make_plan(members: Iterable[Member], refusal_of_all: FoldRefusal) -> Plan:
    """Judge each message as if those that are let in before it had been written already."""
    ledger = _LedgerAhead(refusal_of_all.ledger)
    fresh: list[Member] = []
    answers: dict[int, Outcome] = {}
    moved: list[Member] = []
    for member in members:
        refusal = refusal_of_all.refusal(member, ledger)
        if refusal is None:
            fresh.append(member)
        else:
            answers[member.place] = refusal
        if refusal is None or refusal_of_all.passes(member, ledger):
            ledger.write(member.entry.own)
            moved.append(member)
    return Plan(fresh, answers, moved)


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


def assumed_refusal(members: Sequence[Member]) -> FoldRefusal:
    """A ledger that nobody has looked at yet: it lets in the first message of each source, and every id."""
    marks: dict[Slot, object] = {}
    for member in members:
        change = member.entry.own
        if isinstance(change, Advance) and change.rule == "next":
            marks.setdefault(change.slot, cast("int", change.mark) - 1)
        elif isinstance(change, Advance):
            marks.setdefault(change.slot, ABSENT)

    def look_up(slot: Slot) -> object:
        return marks.get(slot, ABSENT)

    def refusal(member: Member, ledger: Lookup) -> Outcome | None:
        return member.entry.judge(member.message, ledger)

    def passes(_: Member, __: Lookup) -> bool:
        return False

    return FoldRefusal(look_up, refusal, passes)


def judge_fold(write: Write, image: Image) -> FoldRefusal:
    """Why the write of several messages did not land, given the entity that refused it."""

    def single(member: Member) -> Write:
        return write._replace(message=member.message, entry=member.entry, other_messages=())

    def refusal(member: Member, ledger: Lookup) -> Outcome | None:
        return judge_message(single(member), image._replace(ledger=ledger))

    def passes(member: Member, ledger: Lookup) -> bool:
        is_kept_out = isinstance(refusal(member, ledger), Duplicate)  # and no step of it is open
        return is_kept_out and is_waited_for(single(member), image._replace(ledger=ledger))

    return FoldRefusal(image.ledger, refusal, passes)


def send_fold(attempt: Attempt, plan: Plan) -> Flow[Landing | FoldRefusal]:
    """Send the write of several messages."""

    def judge_refusal(write: Write, image: Image) -> FoldRefusal | StepPart | None:
        refusal = judge_fold(write, image)
        new_plan = make_plan(plan.moved, refusal)
        if (len(new_plan.fresh), len(new_plan.moved)) != (len(plan.fresh), len(plan.moved)):
            return refusal
        # A step of another message may have been in the way.
        return NO_STEP if image.steps and isinstance(write.step, NoStepAtAll) else None

    flow: Flow[Settled[FoldRefusal]] = settle(attempt, judge_refusal)
    settled = yield from flow
    answer, refusal = settled.answer, settled.refusal
    if isinstance(answer, Landed):
        entity = answer.entity
        if refusal is not None:
            entity = settled.attempt.show(Applied(attempt.write.message, entity)).entity
        return Landing(entity, answer.retried, answer.response)
    return answer or judge_fold(cast("Refusal", refusal).write, cast("Refusal", refusal).image)


# --- the fold ----------------------------------------------------------------------------------------------------------


def fold(store: FoldingStore, messages: Iterable[Message], function: Function) -> Flow[list[Outcome]]:
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
    first = _first_copies(store, message_list)
    call, answers, most = _Fold(store, function), dict[int, Outcome](), store.most
    places = [place for place in order if first[place] == place]
    while places:
        chunk = [Member(place, message_list[place], store.entry(message_list[place])) for place in places[:most]]
        answer = yield from call.at_once(chunk)
        if isinstance(answer, TooMuch):
            most = max(1, len(chunk) // 2)
        else:
            answers |= answer
            places = places[len(chunk) :]
    return [_answer(message, place, first[place], answers) for place, message in enumerate(message_list)]


def _first_copies(store: FoldingStore, messages: Sequence[Message]) -> list[int]:
    """For each message the place of the first copy of it."""
    first_places: dict[object, int] = {}
    marks = [_mark(message, store.entry(message)) for message in messages]
    return [first_places.setdefault(mark, place) for place, mark in enumerate(marks)]


def _mark(message: Message, entry: Entry) -> object:
    """Equal for two copies of a message."""
    change = entry.own
    return (change.slot, change.mark, message.id) if isinstance(change, Advance) else change.mark


def _answer(message: Message, place: int, first: int, answers: Mapping[int, Outcome]) -> Outcome:
    outcome = answers[first]
    if place == first:
        return outcome
    return Duplicate(message, outcome.entity) if isinstance(outcome, Applied) else replace(outcome, message=message)


class _Fold:
    """One call of `fold`. It asks the caller's function, and sees to it that all writes are of one entity."""

    def __init__(self, store: FoldingStore, function: Function) -> None:
        self._store, self._function = store, function
        self._entity: object = ABSENT
        self._native: Native = {}  # what the caller's function has returned last

    def at_once(self, chunk: Sequence[Member]) -> Flow[dict[int, Outcome] | TooMuch]:
        """Write the messages in one write; again with those that the ledger lets in, where it kept out others; or one by one."""
        refusal, asked_places = assumed_refusal(chunk), set[int]()
        for _ in chunk:
            plan = make_plan(chunk, refusal)
            if not plan.moved:
                return plan.answers
            # Where the ledger lets in all that were refused, the caller's condition kept them out: some may pass that alone.
            fresh = {member.place for member in plan.fresh}
            if len(chunk) == 1 or (asked_places and (len(plan.moved) == 1 or asked_places <= fresh)):
                break
            asked_places = fresh
            native = (yield from self._ask(plan.fresh)) if plan.fresh else self._native
            answer = yield from self._store.write_all(plan, native)
            if isinstance(answer, Landing):
                return plan.answers | {
                    member.place: Applied(member.message, answer.entity, answer.retried, answer.response)
                    for member in plan.fresh
                }
            if isinstance(answer, TooMuch):
                return answer
            refusal = answer
        return (yield from self._one_by_one(chunk, refusal))

    def _one_by_one(self, chunk: Sequence[Member], refusal_of_all: FoldRefusal) -> Flow[dict[int, Outcome]]:
        """What the ledger kept out is not sent: neither when it was looked at, nor behind those of these that were written since."""
        ledger, others_wrote = _LedgerAhead(refusal_of_all.ledger), False
        answers: dict[int, Outcome] = {}
        for member in chunk:
            outcome = refusal_of_all.refusal(member, ledger)
            if outcome is None or (isinstance(outcome, Deferred) and others_wrote):
                native = yield from self._ask([member])
                outcome = yield from self._store.write_one(member.message, native)
                if isinstance(outcome, Applied) or (
                    isinstance(outcome, Rejected) and outcome.settled and member.entry.own.counts
                ):
                    ledger.write(member.entry.own)
                others_wrote = others_wrote or isinstance(outcome, Duplicate | Stale)
            elif refusal_of_all.passes(member, ledger):
                unsettled = yield from self._store.pass_one(member.message, self._native)
                if unsettled is None:
                    ledger.write(member.entry.own)
                else:
                    outcome = unsettled
            answers[member.place] = outcome
        return answers

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
        entity = self._store.entity_of(arguments)
        if self._entity is ABSENT:
            self._entity = entity
        elif self._store.canonical(self._entity) != self._store.canonical(entity):
            raise InvalidUpdate(
                f"The function of a fold named {entity!r} after {self._entity!r}: a fold writes to one entity. Group the messages by "
                "entity, and fold each group."
            )
        self._native = arguments
        return arguments
