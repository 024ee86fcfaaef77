"""What it takes to write several messages of one entity at once, on any engine.

The result is that of some order of single guarded writes. To find one, the messages are judged in turn, each as if those before
it were in the entity already: first on the assumption that the ledger lets in whatever it may, and, where the write was
refused, on what the entity then held.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

from onewrite.core.event import check_causes
from onewrite.core.flow import Do, Flow
from onewrite.core.label import Slot
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Lookup, Remember
from onewrite.errors import ConfigurationError, InvalidMessage, InvalidUpdate
from onewrite.message import Message, by_sequence
from onewrite.outcome import Applied, Deferred, Duplicate, Entity, Outcome, Rejected, Stale

Native: TypeAlias = Mapping[str, Any]
Function: TypeAlias = Callable[[list[Message]], Any]
"""The caller's: takes messages, and returns the arguments of the write that has their effect. It may be asynchronous."""


class Each(NamedTuple):
    """A message, its place among those that were given, and what a write of it alone asks of the entity."""

    place: int
    message: Message
    entry: Entry


class Written(NamedTuple):
    """The write had landed, with the marks of all its messages."""

    entity: Entity | None = None
    retried: bool = False
    response: Any = None


class Refused(NamedTuple):
    """The write did not land. `held` is the ledger as it was then.

    `refusal` says why a message was kept out, given the ledger; None: nothing but the caller's condition stood in its way.
    """

    held: Lookup
    refusal: Callable[[Each, Lookup], Outcome | None]


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

    def write_all(self, each: Sequence[Each], native: Native) -> Flow[Written | Refused | TooMuch]:
        """Write the messages at once. It is not asked to write the only message there is: `write_one` does that."""
        ...

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        """The guarded write of one message."""
        ...


# --- in which order, and what one write of several asks ----------------------------------------------------------------


def in_turn(messages: Sequence[Message]) -> list[int]:
    """The places of the messages in the order in which they take effect: those of a source by their sequence."""
    for message in messages:
        if not isinstance(cast("object", message), Message):
            kind = type(cast("object", message)).__name__
            raise InvalidMessage(f"fold takes a list of messages, and one of them is a {kind}: make it a Message.")
    return by_sequence(messages)


def joined(entries: Sequence[Entry]) -> Entry:
    """What one write of all asks of the entity. The entries are of one ledger and one moment, in the order in which they take effect."""
    first = entries[0]
    own = _in_one_step([entry.own for entry in entries])
    also: dict[object, Change] = {}
    for change in chain.from_iterable([entry.also for entry in entries]):
        also.setdefault(_strictest(change), change)
    return Entry(first.terms, own[0], tuple(also.values()), tuple(own[1:]))


def _in_one_step(changes: Iterable[Change]) -> list[Change]:
    """A mark moves from below the first sequence of its source to the last one at once."""
    found: list[Change] = []
    places: dict[Slot, int] = {}
    for change in changes:
        if isinstance(change, Advance) and change.slot in places:
            place = places[change.slot]
            found[place] = cast("Advance", found[place])._replace(last=change.mark)
        else:
            if isinstance(change, Advance):
                places[change.slot] = len(found)
            found.append(change)
    return found


def _strictest(change: Change) -> object:
    """Equal for looks of which the first says it all: a mark that is below the first sequence is below those that follow.

    Numbers and texts do not compare, nor do digits of different length.
    """
    if not isinstance(change, Advance):
        return change
    return change.slot, type(change.mark), len(cast("str", change.mark)) if change.has_digits else 0


# --- who is let in -----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """Who is let in, and the answers to the others, by their places. These hold once all who are let in are written."""

    fresh: list[Each]
    answers: dict[int, Outcome]


def planned(each: Iterable[Each], refused: Refused) -> Plan:
    """Judge each message as if those that are let in before it had been written already."""
    held = _Ahead(refused.held)
    fresh: list[Each] = []
    answers: dict[int, Outcome] = {}
    for one in each:
        refusal = refused.refusal(one, held)
        if refusal is None:
            held.write(one.entry.own)
            fresh.append(one)
        else:
            answers[one.place] = refusal
    return Plan(fresh, answers)


class _Ahead:
    """A ledger as it will be. What was looked up once is kept, because a set may be large."""

    __slots__ = ("_known", "_look_up")

    def __init__(self, held: Lookup) -> None:
        self._look_up = held
        self._known: dict[Slot, object] = {}

    def __call__(self, slot: Slot) -> object:
        if slot not in self._known:
            self._known[slot] = self._look_up(slot)
        return self._known[slot]

    def write(self, change: Change) -> None:
        if isinstance(change, Advance):
            self._known[change.slot] = change.mark
            return
        present = cast("Remember", change).sets.present
        marks = self(present)
        self._known[present] = frozenset([change.mark, *(() if marks is ABSENT else cast("Iterable[object]", marks))])


def assumed(each: Sequence[Each]) -> Refused:
    """A ledger that nobody has looked at yet: it lets in the first message of each source, and every id."""
    marks: dict[Slot, object] = {}
    for one in each:
        own = one.entry.own
        if isinstance(own, Advance) and own.rule == "next":
            marks.setdefault(own.slot, cast("int", own.mark) - 1)
        elif isinstance(own, Advance):
            marks.setdefault(own.slot, ABSENT)

    def held(slot: Slot) -> object:
        return marks.get(slot, ABSENT)

    def refusal(one: Each, ledger: Lookup) -> Outcome | None:
        return one.entry.judge(one.message, ledger)

    return Refused(held, refusal)


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
    given = [*messages]
    turns = in_turn(given)
    first = _first_copies(store, given)
    writing, answers, most = _Writing(store, function), dict[int, Outcome](), store.most
    waiting = [place for place in turns if first[place] == place]
    while waiting:
        chunk = [Each(place, given[place], store.entry(given[place])) for place in waiting[:most]]
        found = yield from writing.at_once(chunk)
        if isinstance(found, TooMuch):
            most = max(1, len(chunk) // 2)
        else:
            answers |= found
            waiting = waiting[len(chunk) :]
    return [_answer(message, place, first[place], answers) for place, message in enumerate(given)]


def _first_copies(store: FoldingStore, messages: Sequence[Message]) -> list[int]:
    """For each message the place of the first copy of it."""
    seen: dict[object, int] = {}
    marks = [_mark(message, store.entry(message)) for message in messages]
    return [seen.setdefault(mark, place) for place, mark in enumerate(marks)]


def _mark(message: Message, entry: Entry) -> object:
    """Equal for two copies of a message."""
    own = entry.own
    if not isinstance(own, Remember | Advance):
        raise ConfigurationError(
            "This store's ledger cannot take several messages in one write, because two of them may need the same place in it: "
            "write them one by one, or use SeenIds, HighWaterMark or InSequence."
        )
    return (own.slot, own.mark, message.id) if isinstance(own, Advance) else own.mark


def _answer(message: Message, place: int, first: int, answers: Mapping[int, Outcome]) -> Outcome:
    outcome = answers[first]
    if place == first:
        return outcome
    return Duplicate(message, outcome.entity) if isinstance(outcome, Applied) else replace(outcome, message=message)


class _Writing:
    """One call of `fold`. It asks the caller's function, and sees to it that all writes are of one entity."""

    def __init__(self, store: FoldingStore, function: Function) -> None:
        self._store, self._function = store, function
        self._entity: object = ABSENT

    def at_once(self, chunk: Sequence[Each]) -> Flow[dict[int, Outcome] | TooMuch]:
        """Write the messages in one write; again with those that the ledger lets in, where it kept out others; or one by one."""
        refused, asked = assumed(chunk), set[int]()
        for _ in chunk:
            plan = planned(chunk, refused)
            if not plan.fresh:
                return plan.answers
            # Where the ledger lets in all that were refused, the caller's condition kept them out: some may pass that alone.
            fresh = {one.place for one in plan.fresh}
            if len(chunk) == 1 or (asked and (len(fresh) == 1 or asked <= fresh)):
                break
            asked = fresh
            native = yield from self._asked(plan.fresh)
            found = yield from self._store.write_all(plan.fresh, native)
            if isinstance(found, Written):
                return plan.answers | {
                    one.place: Applied(one.message, found.entity, found.retried, found.response) for one in plan.fresh
                }
            if isinstance(found, TooMuch):
                return found
            refused = found
        return (yield from self._one_by_one(chunk, refused))

    def _one_by_one(self, chunk: Sequence[Each], refused: Refused) -> Flow[dict[int, Outcome]]:
        """What the ledger kept out is not sent: neither when it was looked at, nor behind those of these that were written since."""
        held, others_wrote = _Ahead(refused.held), False
        answers: dict[int, Outcome] = {}
        for one in chunk:
            outcome = refused.refusal(one, held)
            if outcome is None or (isinstance(outcome, Deferred) and others_wrote):
                native = yield from self._asked([one])
                outcome = yield from self._store.write_one(one.message, native)
                if isinstance(outcome, Applied) or (
                    isinstance(outcome, Rejected) and outcome.settled and one.entry.own.counts
                ):
                    held.write(one.entry.own)
                others_wrote = others_wrote or isinstance(outcome, Duplicate | Stale)
            answers[one.place] = outcome
        return answers

    def _asked(self, fresh: Sequence[Each]) -> Flow[Native]:
        messages = [one.message for one in fresh]
        native = yield Do(self._function, ([*messages],))
        if not isinstance(native, Mapping):
            raise InvalidUpdate(
                f"The function of a fold returned a {type(native).__name__}: return a dict with the arguments of the write."
            )
        asked = cast("Native", native)
        if "finishes" in asked:
            raise InvalidUpdate("A fold finishes no step: finish it by update_item or update_one, message by message.")
        if asked.get("emit") is not None:
            check_causes(messages, asked["emit"])  # also of one message alone, so no mistake waits for a larger batch
        entity = self._store.entity_of(asked)
        if self._entity is ABSENT:
            self._entity = entity
        elif self._store.canonical(self._entity) != self._store.canonical(entity):
            raise InvalidUpdate(
                f"The function of a fold named {entity!r} after {self._entity!r}: a fold writes to one entity. Group the messages by "
                "entity, and fold each group."
            )
        return asked
