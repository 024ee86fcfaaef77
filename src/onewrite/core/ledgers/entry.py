"""What a write of one message asks of an entity, on any engine, and what the entity's ledger says about the message. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, cast, final

from onewrite.core.label import Label, Slot, mismatch
from onewrite.errors import InvalidMessage, LedgerMismatch
from onewrite.message import Message, is_sortable
from onewrite.outcome import Deferred, Duplicate, Entity, Gone, Stale

Mark: TypeAlias = str | bytes
Rule: TypeAlias = Literal["below", "first", "next"]
# What a write asks of the slot of its number's block, and what it does there: see `Number`.
Form: TypeAlias = Literal["joins", "enters", "asks", "overtaken"]
Refusal: TypeAlias = Duplicate | Gone | Stale | Deferred
Lookup: TypeAlias = Callable[[Slot], object]  # what is stored there: ABSENT, a frozenset for any set or array, an int, a str
ABSENT: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What all entries of one ledger have in common."""

    attribute: str  # by which the ledger is known: see `label_of`
    attributes: tuple[str, ...]  # the same for this ledger, and for those named in its also=
    plain_sets: frozenset[str]  # those of the attributes that are a set of the caller's, as handlers keep it by hand
    labels: tuple[Label, ...]
    looks: tuple[Callable[[Message, float], Change], ...]  # the `look` of each ledger named in also=


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """The sets of marks as one moment sees them: the one that gains a mark, those to look into, those to remove."""

    present: Slot
    live: tuple[Slot, ...]
    dead: tuple[Slot, ...]
    kind: type[Mark]


@final
class Remember(NamedTuple):
    """Put `mark` into the set `sets.present`, provided that no live set holds it, or one of `aliases`."""

    sets: Sets
    mark: Mark
    aliases: tuple[Mark, ...] = ()

    @property
    def shape(self) -> tuple[Sets, int]:
        return self.sets, len(self.aliases)

    @property
    def counts(self) -> bool:
        return False

    def judge(self, message: Message, lookup: Lookup, entity: Entity | None) -> Refusal | None:
        is_held = False
        for slot in self.sets.live:
            marks = _marks(lookup(slot), self.sets.kind)
            is_held = is_held or self.mark in marks or not marks.isdisjoint(self.aliases)
        return Duplicate(message, entity) if is_held else None

    def shows(self, lookup: Lookup) -> bool:
        """May this change have been made? What is stored holds the mark."""
        sets = [lookup(slot) for slot in self.sets.live]
        return any(self.mark in cast("frozenset[object]", marks) for marks in sets if isinstance(marks, frozenset))


@final
class Advance(NamedTuple):
    """Move the mark in `slot` to `mark`, if `rule` allows it.

    - below: it is now below `mark`, or absent.
    - first: `mark` is the first sequence of its source. It is now absent; or the one before, where another ledger had the source.
    - next: it is now the one before.

    `last`: of a write of several messages, the mark of the last. It moves there at once, on the same condition.
    """

    slot: Slot
    mark: int | str
    rule: Rule
    first: int = 0  # the first sequence of a source, for the rules "first" and "next"
    last: int | str | None = None

    @property
    def shape(self) -> tuple[Rule, bool, bool]:
        return self.rule, type(self.mark) is str and self.has_digits, self.last is not None

    @property
    def reaches(self) -> int | str:
        """The mark after the write."""
        return self.mark if self.last is None else self.last

    @property
    def counts(self) -> bool:
        """Does each message wait for the one before it?"""
        return self.rule != "below"

    @property
    def has_digits(self) -> bool:
        """Is the mark a number written as text? Two of these compare as their numbers do only if they are equally long."""
        return isinstance(self.mark, str) and self.mark.isascii() and self.mark.isdigit()

    def judge(self, message: Message, lookup: Lookup, entity: Entity | None) -> Refusal | None:
        mark = lookup(self.slot)
        if mark is ABSENT:
            return self._judge_unknown_source(message, entity)
        is_below = self._is_below(message, mark)
        if mark == self.mark:
            return Duplicate(message, entity)
        if not is_below:
            return Stale(message, cast("int | str", mark), entity)
        if self.rule == "below" or not isinstance(mark, int) or mark + 1 == self.mark:
            return None
        return Deferred(message, mark + 1, entity)

    def shows(self, lookup: Lookup) -> bool:
        """May this change have been made? The mark is there, or further on."""
        mark, reaches = lookup(self.slot), self.reaches
        if isinstance(mark, str) and isinstance(reaches, str):
            return mark >= reaches
        return type(mark) is int and isinstance(reaches, int) and mark >= reaches

    def _is_below(self, message: Message, stored_mark: object) -> bool:
        if isinstance(stored_mark, str) and isinstance(self.mark, str):
            if self.has_digits and stored_mark < "0":
                raise LedgerMismatch(_DIFFERENT.format(mark=self.mark, source=message.source, stored_mark=stored_mark))
            if self.has_digits and len(stored_mark) != len(self.mark):
                raise InvalidMessage(_DIGITS.format(mark=self.mark, source=message.source, stored_mark=stored_mark))
            if is_sortable(self.mark) and not is_sortable(stored_mark):
                raise LedgerMismatch(_UNSORTABLE.format(mark=self.mark, source=message.source, stored_mark=stored_mark))
            return stored_mark < self.mark
        if type(stored_mark) is int and isinstance(self.mark, int):
            return stored_mark < self.mark
        raise LedgerMismatch(_DIFFERENT.format(mark=self.mark, source=message.source, stored_mark=stored_mark))

    def _judge_unknown_source(self, message: Message, entity: Entity | None) -> Refusal | None:
        if self.rule != "next":
            return None
        if isinstance(self.mark, int) and self.mark < self.first:
            return Stale(message, self.first - 1, entity)
        return Deferred(message, self.first, entity)


_DIGITS = (
    "Sequence {mark!r} of source {source!r} cannot be compared with {stored_mark!r}, which the entity holds: text compares from the "
    "left, so numbers of different length are in the wrong order. Read the sequence as a number, for "
    "example with json_body(sequence=number(...)), or make it onewrite.sortable(n). The mark in the entity has to be rewritten alike."
)
_DIFFERENT = (
    "The mark of source {source!r} is {stored_mark!r}, and this message's sequence is {mark!r}: they do not compare. Keep one type and one "
    "spelling for each source, or give the ledger a name of its own."
)
_UNSORTABLE = (
    "Sequence {mark!r} of source {source!r} is from onewrite.sortable, and the entity holds {stored_mark!r}, which is not: they do not "
    "compare. Rewrite the mark in the entity with onewrite.sortable, or give the ledger a name of its own."
)


@final
class Number(NamedTuple):
    """Put the number `mark` into the slot of its block, which blocks use in turn: see seen_numbers.py.

    One request can add to a slot, or empty it, and not find out by itself which of the two is right. So there are forms:

    - joins: the slot is free, or holds this block without the number, which is added. The usual case.
    - enters: the slot holds an older block, which this one replaces.
    - asks: the slot holds nothing newer, and not the number. It is left as it is.
    - overtaken: the slot holds a newer block. It is left as it is. Only the finish of a step may do that.
    """

    tag: Slot  # which block the slot holds
    numbers: Slot  # those of its numbers that were seen
    mark: int
    size: int  # how many numbers make a block
    form: Form = "joins"
    stored_tag: object = None  # the tag for which the form was chosen; None: nobody has looked yet

    @property
    def block(self) -> int:
        return self.mark // self.size

    @property
    def shape(self) -> Form:
        return self.form

    @property
    def counts(self) -> bool:
        return False

    def judge(self, message: Message, lookup: Lookup, entity: Entity | None) -> Refusal | None:
        tag = self._tag(lookup)
        if tag > self.block:
            return Stale(message, tag * self.size, entity)
        if _FREE < tag < self.block:  # what the slot holds may go
            return None
        return Duplicate(message, entity) if self.mark in self._numbers(lookup) else None

    def shows(self, lookup: Lookup) -> bool:
        """May this change have been made? The number is in its block, or a later block has taken the slot."""
        tag, numbers = lookup(self.tag), lookup(self.numbers)
        if type(tag) is not int or tag < self.block:
            return False
        return tag > self.block or (isinstance(numbers, frozenset) and self.mark in cast("frozenset[object]", numbers))

    def fit_to(self, lookup: Lookup) -> Number:
        """The same in the form that fits what is stored."""
        if self.form == "asks":
            return self
        tag = self._tag(lookup)
        form: Form = "overtaken" if tag > self.block else "enters" if _FREE < tag < self.block else "joins"
        return self._replace(form=form, stored_tag=tag)

    def _tag(self, lookup: Lookup) -> int:
        tag = lookup(self.tag)
        if tag is ABSENT:
            return _FREE
        if type(tag) is not int or tag < 0:
            raise LedgerMismatch(_NOT_OURS.format(what="number of a block", kind=type(tag).__name__))
        return tag

    def _numbers(self, lookup: Lookup) -> frozenset[object]:
        numbers = lookup(self.numbers)
        if numbers is ABSENT:
            return frozenset()
        if isinstance(numbers, frozenset):
            members = cast("frozenset[object]", numbers)
            if all(type(member) is int for member in members):
                return members
        raise LedgerMismatch(_NOT_OURS.format(what="set of numbers", kind=type(cast("object", numbers)).__name__))


_FREE = -1  # stands for the tag of a slot that has none: no block is that low
_NOT_OURS = (
    "Where the ledger keeps a {what} stands a {kind} with something else: another writer uses its name. Repair the entity."
)

Change: TypeAlias = Remember | Advance | Number


class Entry(NamedTuple):
    """What a write of one message asks of the entity. `own` is looked into and written, `also` is looked into only.

    `more`: of a write of several messages, what the others ask, looked into and written as `own` is.
    """

    terms: Terms
    own: Change
    also: tuple[Change, ...] = ()
    more: tuple[Change, ...] = ()

    @property
    def shape(self) -> tuple[object, ...]:
        """Equal for two entries that differ in values, and in the name of a source, only."""
        if self.also or self.more:
            return self.terms, len(self.more), *[change.shape for change in self.changes]
        own = self.own
        if type(own) is Remember:
            return self.terms, own.sets, len(own.aliases)
        if type(own) is Advance:
            return self.terms, own.rule, type(own.mark) is str and own.has_digits, own.last is not None
        return self.terms, own.shape

    @property
    def dead(self) -> list[Slot]:
        """The slots that a write removes. Several messages that are written at once have them in common."""
        slots = [slot for change in self.changes if isinstance(change, Remember) for slot in change.sets.dead]
        return [*dict.fromkeys(slots)]

    @property
    def written_changes(self) -> tuple[Change, ...]:
        return (self.own, *self.more)

    @property
    def changes(self) -> tuple[Change, ...]:
        """All that is looked into. Those that are written come first."""
        return (self.own, *self.more, *self.also)

    @property
    def may_be_overtaken(self) -> bool:
        """May a later message take effect first, so this one is `Stale` from then on?"""
        return any(
            isinstance(change, Number) or (isinstance(change, Advance) and change.rule == "below") for change in self.changes
        )

    @property
    def follows_gap(self) -> bool:
        """Must a mark be there already? Then the write creates no entity."""
        return any(isinstance(change, Advance) and change.rule == "next" for change in self.written_changes)

    @property
    def form(self) -> Form | None:
        return self.own.form if isinstance(self.own, Number) else None

    def fit_to(self, lookup: Lookup) -> Entry:
        """The same in the form that fits what is stored, given that the ledger lets the message in."""
        return self._replace(own=self.own.fit_to(lookup)) if isinstance(self.own, Number) else self

    def like(self, earlier_entry: Entry) -> Entry:
        """The same in the form of an earlier entry of this message and ledger."""
        return self._replace(own=earlier_entry.own) if isinstance(earlier_entry.own, Number) else self

    @property
    def as_question(self) -> Entry:
        """The same for a request that adds nothing to a ledger which is there: the begin of a step, or a creation."""
        return self._replace(own=self.own._replace(form="asks")) if isinstance(self.own, Number) else self

    def judge(
        self, message: Message, lookup: Lookup, *, entity: Entity | None = None, is_gone: bool = False
    ) -> Refusal | None:
        """What the ledger says about the message, given what is stored; None if it lets it in.

        `gone`: the entity was deleted, and its ledger is part of what is left of it.
        """
        self.check(lookup)
        refusals: list[Refusal] = [Gone(message)] if is_gone else []
        for change in self.changes:
            refusal = change.judge(message, lookup, entity)
            if refusal is not None:
                refusals.append(refusal)
        if len(refusals) < 2:  # noqa: PLR2004  # nothing to weigh
            return refusals[0] if refusals else None
        return min(refusals, key=_weight)  # the first of those that weigh most

    def shows(self, lookup: Lookup) -> bool:
        """May the write have landed? What is stored has all of its changes, or what later writes have made of them."""
        return all(change.shows(lookup) for change in self.written_changes)

    def check(self, lookup: Lookup) -> None:
        """Raise `LedgerMismatch` where the entity has another ledger, or something else stands in its place."""
        for label in self.terms.labels:
            text = lookup(label.slot)
            if text is not ABSENT and text not in label.accepts:
                raise LedgerMismatch(mismatch(label, text))


_WEIGHTS = (Duplicate, Gone, Stale, Deferred)


def _weight(refusal: Refusal) -> int:
    return _WEIGHTS.index(type(refusal))


def _marks(stored_set: object, kind: type[Mark]) -> frozenset[Mark]:
    if stored_set is ABSENT:
        return frozenset()
    if isinstance(stored_set, frozenset):
        marks = cast("frozenset[Mark]", stored_set)
        if {*map(type, marks)} <= {kind} or all(isinstance(mark, kind) for mark in marks):
            return marks
    raise LedgerMismatch(
        f"Where the ledger keeps its set of {kind.__name__} stands a {type(cast('object', stored_set)).__name__} with something else: another writer "
        "uses its name. Repair the entity."
    )
