"""What may become of one entity in a migration: the words of it, without an engine. Pure.

How consumers and the migration work side by side
-------------------------------------------------
Three kinds of consumers write to an entity, never more than two kinds at the same time:

- old: the user's own code. It looks into the old attribute, and writes it, in the write of the effect.
- between: a guarded store that looks into the old attribute and into the ledger. It writes the old attribute, so it may
  run beside the old ones.
- new: a guarded store that looks into both as well, and writes the ledger alone. It may run beside those between, and not
  beside the old ones, which would not see what it has done.

The migration makes two kinds of writes, each to one entity, and each is safe at whatever moment it lands:

- *carry* adds to the ledger what the old attribute holds, and leaves the old attribute as it is. What the old attribute holds
  was done, and stays done: so it needs no other condition than that the entity is there and keeps its ledger as expected. No
  consumer refuses a message afterwards that it would have let in before, except new ones without a look into the old
  attribute, which are right to refuse it. So it is safe beside consumers of every kind.
- *drop* removes the old attribute, provided that it is exactly what was read, and that the ledger held all of it then. What a
  consumer between, or a new one, refused because of the old attribute it refuses because of the ledger now. An old consumer
  would take everything for fresh: so it is done only where the user says that none is left, and never where the old
  attribute has gained anything since it was carried, which shows that somebody still writes it.

A drop makes the look into the old attribute unnecessary. It comes in a later run than the carry, so what is written
between the two shows.

What is carried counts as if it had arrived at this moment: a set has no times, and what it holds must be recognised for a whole
retention from now on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias, cast

from onewrite.core.flow import Flow
from onewrite.core.label import OURS, TOMBSTONE, Slot, is_ours
from onewrite.core.ledgers import HighWaterMark, Ledger, MessageIDs, SeenIds
from onewrite.core.ledgers.entry import ABSENT, Advance, Entry, Lookup, Mark, Remember, Sets
from onewrite.errors import ConfigurationError, LedgerMismatch, OnewriteError
from onewrite.message import Message
from onewrite.operate.image import EntityImage, EntityStore

_NAMES = re.compile(r"\{([^{}]+)\}")
REST = "*"  # in a template: what stands behind the prefix in the name of an old attribute


class EntityState(Enum):
    """What an entity is found to be. The last that fits one of its attributes counts for all."""

    CARRIED = "carried"  # the ledger holds all that the old attribute holds
    FRESH = "to carry"  # nothing was carried before
    CHANGED = "changed"  # something was, and the old attribute has gained more since
    TOO_LARGE = "too large"  # there is no room for both
    REFUSED = "refused"  # somebody has to look at it

    def or_worse(self, other: EntityState) -> EntityState:
        order = list(EntityState)
        return max(self, other, key=order.index)


class CarryIds(NamedTuple):
    """Put the marks beside those that are there. `drop` goes with it, where there is no room for both."""

    attribute: str
    entry: Entry  # of any message: it says where marks stand, and how the entity is labelled
    marks: tuple[Mark, ...]
    drop: Drop | None = None


class CarryMark(NamedTuple):
    """Record the message, whose sequence is what the old attribute holds."""

    attribute: str
    entry: Entry
    message: Message
    value: object


class Drop(NamedTuple):
    """Remove the old attribute, given that it is what was read. `entry`: as above."""

    attribute: str
    entry: Entry
    value: object


Step: TypeAlias = CarryIds | CarryMark | Drop


def dropped_by(step: Step) -> Drop | None:
    """What of the old attribute the step removes."""
    return step if isinstance(step, Drop) else step.drop if isinstance(step, CarryIds) else None


def sets_of(step: CarryIds) -> Sets:
    """The sets of marks of the ledger that gains some."""
    return cast("Remember", step.entry.own).sets


class EntityPlan(NamedTuple):
    """What is to be done with an entity, in this order; and what of it there is to tell."""

    state: EntityState
    steps: tuple[Step, ...] = ()
    marks: int = 0  # how many the ledger gains
    why: str = ""


class CarriedMark(NamedTuple):
    """A mark as the ledger has it or would have it, and the message for which it counts: of a number, the last of its source."""

    message: Message
    mark: Mark | int | str


class Fits(Protocol):
    """Would the entity after this step be as small as the engine demands?"""

    def __call__(self, image: EntityImage, step: Step, /) -> bool: ...


class Origin(Protocol):
    """Where an entity's own code has kept what it remembers."""

    @property
    def attribute(self) -> str | None: ...  # its one name, by which a store finds such entities
    @property
    def ledger(self) -> Ledger: ...
    def names(self, image: EntityImage) -> list[str]: ...  # those that the entity has
    def carried_marks(self, image: EntityImage, now: float) -> list[CarriedMark]: ...  # all that the old attributes say
    def plan(self, image: EntityImage, now: float, fits: Fits, *, drops: bool) -> EntityPlan: ...


def plan_or_refusal(plan: Callable[[], EntityPlan]) -> EntityPlan:
    """The plan, or where the entity holds something other than expected, that it is refused."""
    try:
        return plan()
    except OnewriteError as error:
        return EntityPlan(EntityState.REFUSED, why=str(error))


def check_template(template: str, *, has_rest: bool) -> None:
    """Raise unless this can name a source. `has_rest`: a pattern says which attributes are old."""
    if (f"{{{REST}}}" in template) != has_rest:
        raise ConfigurationError("A --version-in that ends with * and a --source with {*} in it go together.")
    if set("{}") & set(_NAMES.sub("", template)):
        raise ConfigurationError(f"--source {template!r}: a name stands in braces, as in orders/{{orderId}}.")


def fill(template: str, image: EntityImage, rest: str = "") -> str:
    """The source of an entity's messages: each {name} is what the entity holds under that name."""

    def value(match: re.Match[str]) -> str:
        text = rest if match[1] == REST else image.layout.spelling_of(image.raw[match[1]]) if match[1] in image.raw else None
        if text is None:
            raise ConfigurationError(
                f"The source is made with {match[0]}, and the entity has no text and no integer there: name another attribute in "
                "--source, or repair the entity."
            )
        return text

    return _NAMES.sub(value, template)


# --- a set of ids that the user's own code keeps in an attribute, or that `MessageIDs` keeps there ------------------------
#
# Until the old attribute is dropped, consumers look into it by `also=MessageIDs(...)`.

_SPELLED_ID = re.compile(r"@([^/]*)/(.+)", re.DOTALL)
_QUOTES = {"%2F": "/", "%2B": "+", "%25": "%"}
_QUOTED_CHARACTER = re.compile("|".join(_QUOTES))
_NO_ROOM = "There is no room for the old set and the ledger together. --drop moves the ids in one write."


@dataclass(frozen=True, slots=True)
class Ids:
    """The set in `attribute`, which is to be carried into `ledger`. `source`: that of its messages, as a template."""

    attribute: str
    ledger: SeenIds
    source: str
    _old_ids: MessageIDs = field(init=False, repr=False)
    _new_ids: SeenIds = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_template(self.source, has_rest=False)
        old_ids, target = MessageIDs(self.attribute), self.ledger
        new_ids = SeenIds(target.retention, name=target.name, readable=target.readable, also=old_ids)
        object.__setattr__(self, "_old_ids", old_ids)
        object.__setattr__(self, "_new_ids", new_ids)

    def names(self, image: EntityImage) -> list[str]:
        return [self.attribute] if self.attribute in image.fields else []

    def plan(self, image: EntityImage, now: float, fits: Fits, *, drops: bool) -> EntityPlan:
        """What is to be done with the entity. `drops`: may the old attribute be removed?"""
        return plan_or_refusal(lambda: self._plan(image, now, fits, drops=drops))

    def _plan(self, image: EntityImage, now: float, fits: Fits, *, drops: bool) -> EntityPlan:
        entry = self._new_ids.entry(Message("any"), now)
        entry.check(image.lookup)
        marks = list(dict.fromkeys([cast("Mark", carried_mark.mark) for carried_mark in self.carried_marks(image, now)]))
        held_marks = _held_marks(cast("Remember", entry.own), image.lookup)
        new_marks = tuple([mark for mark in marks if mark not in held_marks])
        drop = Drop(self.attribute, entry, image.raw[self.attribute])
        if not new_marks:
            return EntityPlan(EntityState.CARRIED, (drop,) if drops else ())
        count = len(new_marks)
        state = EntityState.CHANGED if count < len(marks) else EntityState.FRESH
        step = CarryIds(self.attribute, entry, new_marks)
        if fits(image, step):
            return EntityPlan(state, (step,), count)
        # There is no room for both. So all ids change place in one write, which only a drop may do.
        step = step._replace(drop=drop)
        if not fits(image, step):
            return EntityPlan(
                EntityState.REFUSED,
                why="Even without the old set the entity would be too large for the database: split it first.",
            )
        return EntityPlan(EntityState.TOO_LARGE, (step,) if drops else (), count, "" if drops else _NO_ROOM)

    def carried_marks(self, image: EntityImage, now: float) -> list[CarriedMark]:
        """The messages of the old set's ids, in one order, with their marks in the ledger."""
        old = self._old_ids.look(Message("any"), now)
        texts = cast("list[str]", sorted(_held_marks(old, image.lookup)))
        source = fill(self.source, image)
        messages = [message for text in texts for message in self._messages(text, source, now)]
        return [CarriedMark(message, self.ledger.look(message, now).mark) for message in messages]

    def _messages(self, text: str, source: str, now: float) -> list[Message]:
        """The messages for which consumers with a look into the old set take this. An id that begins with "@" may be the user's own."""
        own = Message(text, source=source)
        spelling = _SPELLED_ID.fullmatch(text)
        if spelling is not None:
            kept_source, *parts = [
                _QUOTED_CHARACTER.sub(lambda match: _QUOTES[match[0]], name) for name in spelling[1].split("+")
            ]
            message = Message(spelling[2], source=kept_source, parts=tuple(parts))
            if self._old_ids.look(message, now).mark == text:
                # What was written without a source counts for every source.
                counts_for = source if message == Message(message.id) else kept_source
                return [*dict.fromkeys([message, Message(message.id, source=counts_for, parts=message.parts), own])]
        return [own]


def _held_marks(change: Remember, lookup: Lookup) -> frozenset[Mark]:
    """The marks in all sets that a write would look into."""
    sets = [lookup(slot) for slot in change.sets.live]
    for members in sets:
        if members is ABSENT:
            continue
        is_set, kind = isinstance(members, frozenset), change.sets.kind
        kept = cast("frozenset[object]", members) if is_set else [members]
        kinds = sorted({type(each).__name__ for each in kept if not (is_set and isinstance(each, kind))})
        if kinds:
            raise LedgerMismatch(
                f"Where a set of {'ids, as text,' if kind is str else 'marks'} is expected the entity has something else "
                f"({', '.join(kinds)}). Correct the entity: consumers may take for fresh what that stands for."
            )
    return frozenset[Mark]().union(*[cast("frozenset[Mark]", members) for members in sets if members is not ABSENT])


# --- an attribute that holds the number of the last message of one source, as the user's own code keeps it -------------------
#
# Until it is carried, a guarded store between the old code and the new has the old condition in its own call, beside
# `HighWaterMark`, and sets the old attribute as before. So each looks into both.


@dataclass(frozen=True, slots=True)
class Versions:
    """The attribute `name`, or all that begin with it where it ends with a *, to be carried into `ledger`.

    `source` is a template. Where the name ends with a *, {*} in it stands for the rest of an attribute's name.
    """

    name: str
    ledger: HighWaterMark
    source: str
    _prefix: str | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        prefix = self.name.removesuffix(REST) if self.name.endswith(REST) else None
        check_template(self.source, has_rest=prefix is not None)
        if prefix == "":
            raise ConfigurationError("--version-in *: say how the names of the attributes begin.")
        if is_ours(self.name):
            raise ConfigurationError(f"--version-in {self.name}: what begins with {OURS} is no attribute of your own.")
        object.__setattr__(self, "_prefix", prefix)

    @property
    def attribute(self) -> str | None:
        return self.name if self._prefix is None else None

    def plan(self, image: EntityImage, now: float, fits: Fits, *, drops: bool) -> EntityPlan:
        """What is to be done with the entity. `drops`: may the old attributes be removed?"""
        plans = [plan_or_refusal(partial(self._plan, name, image, now, fits, drops=drops)) for name in self.names(image)]
        whole = EntityPlan(EntityState.CARRIED)
        for plan in plans:
            state = whole.state.or_worse(plan.state)
            whole = EntityPlan(state, (*whole.steps, *plan.steps), whole.marks + plan.marks, whole.why or plan.why)
        return whole

    def names(self, image: EntityImage) -> list[str]:
        if self._prefix is None:
            return [self.name] if self.name in image.fields else []
        names = [name for name in image.fields if name.startswith(self._prefix)]
        return sorted([name for name in names if not is_ours(name) and name not in image.key])

    def carried_marks(self, image: EntityImage, now: float) -> list[CarriedMark]:
        """The last messages of the sources whose numbers the entity has, with the marks that they leave."""
        del now  # a mark knows no time
        messages = [self._last(name, image) for name in self.names(image)]
        return [CarriedMark(message, cast("int | str", message.sequence)) for message in messages]

    def _last(self, name: str, image: EntityImage) -> Message:
        if name in image.key:
            raise LedgerMismatch(f"{name!r} is part of the key, and no number of a last message.")
        sequence = image.lookup(Slot(name))
        if type(sequence) is not int and not isinstance(sequence, str):
            raise LedgerMismatch(f"{name!r} holds a {type(sequence).__name__}, and a mark is an integer or text.")
        return Message("migrated", source=fill(self.source, image, name[len(self._prefix or "") :]), sequence=sequence)

    def _plan(self, name: str, image: EntityImage, now: float, fits: Fits, *, drops: bool) -> EntityPlan:
        message, value = self._last(name, image), image.raw[name]
        entry = self.ledger.entry(message, now)
        if entry.judge(message, image.lookup) is not None:
            return EntityPlan(EntityState.CARRIED, (Drop(name, entry, value),) if drops else ())
        step = CarryMark(name, entry, message, value)
        if not fits(image, step):
            return EntityPlan(EntityState.REFUSED, why="The entity would be too large for the database: split it first.")
        marks: Advance = self.ledger.look(message, now)
        return EntityPlan(EntityState.FRESH if image.lookup(marks.slot) is ABSENT else EntityState.CHANGED, (step,), 1)


# --- the flow that migrates one entity, on any engine, and the pace of many -------------------------------------------------

# An entity that others write all the time takes a few tries to drop, and the next run finds what is left.
_TRIES = 8


class MigratedStore(EntityStore, Protocol):
    """What a migration asks of an engine besides."""

    def migrate(
        self, image: EntityImage, step: Step, /
    ) -> Flow[bool]: ...  # whether the write found the entity as it must be
    def size_after(self, image: EntityImage, step: Step, /) -> int: ...  # the bytes of the entity
    def fits(self, image: EntityImage, step: Step, /) -> bool: ...


class Visit(NamedTuple):
    """What became of one entity. `size`: its bytes after the steps that were taken, or that would be."""

    image: EntityImage
    plan: EntityPlan
    size: int
    is_carried: bool = False
    is_dropped: bool = False
    is_lost: bool = False  # did others write the entity at every try?


def is_concerned(origin: Origin, image: EntityImage) -> bool:
    """Is there something to carry, in an entity that was not deleted?"""
    return TOMBSTONE not in image.fields and bool(origin.names(image))


def visit(
    store: MigratedStore, origin: Origin, image: EntityImage, clock: Callable[[], float], *, drops: bool, writes: bool
) -> Flow[Visit]:
    """Do with an entity what its plan says, or without `writes` only say it. Nothing is left half done that harms."""
    plan = origin.plan(image, clock(), store.fits, drops=drops)
    result = _visit_of(store, image, plan)
    for _ in range(_TRIES if writes else 0):
        steps, obstacle = yield from _take_steps(store, image, plan)
        is_carried = result.is_carried or any(not isinstance(step, Drop) for step in steps)
        is_dropped = result.is_dropped or any(dropped_by(step) is not None for step in steps)
        result = result._replace(is_carried=is_carried, is_dropped=is_dropped)
        if obstacle is None:
            return result
        if obstacle:
            return result._replace(plan=plan._replace(state=EntityState.REFUSED, why=obstacle))
        current: EntityImage | None = yield from store.read(image.key)
        if current is None or not is_concerned(origin, current):
            return result
        image, plan = current, origin.plan(current, clock(), store.fits, drops=drops and not is_carried)
        worse = plan._replace(state=result.plan.state.or_worse(plan.state))
        result = _visit_of(store, image, worse)._replace(is_carried=is_carried, is_dropped=is_dropped)
    return result._replace(is_lost=writes)


def _take_steps(store: MigratedStore, image: EntityImage, plan: EntityPlan) -> Flow[tuple[list[Step], str | None]]:
    """The steps that were taken, and what stopped the others: nothing, another writer (""), or a reason to tell."""
    steps: list[Step] = []
    for step in plan.steps:
        try:
            if not (yield from store.migrate(image, step)):
                return steps, ""
        except OnewriteError as error:
            return steps, str(error)
        steps.append(step)
    return steps, None


def _visit_of(store: MigratedStore, image: EntityImage, plan: EntityPlan) -> Visit:
    growth = sum([store.size_after(image, step) - image.size for step in plan.steps])
    return Visit(image, plan, image.size + growth)


def pause(count: int, elapsed: float, rate: float) -> float:
    """The seconds to wait so no more than `rate` entities a second are written."""
    return max(0.0, count / rate - elapsed)
