"""What a write of one message asks of an entity, on any engine, and what the entity's ledger says about the message. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, cast, final

from onewrite.core.label import Label, Slot, mismatch
from onewrite.errors import InvalidMessage, LedgerMismatch
from onewrite.message import Message, is_sortable
from onewrite.outcome import Deferred, Duplicate, Entity, Gone, Stale

SetMark: TypeAlias = str | bytes
Rule: TypeAlias = Literal["below", "first", "next"]
LedgerRefusal: TypeAlias = Duplicate | Gone | Stale | Deferred
Lookup: TypeAlias = Callable[[Slot], object]  # what is stored there: ABSENT, a frozenset for any set or array, an int, a str
ABSENT: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """What all entries of one ledger have in common."""

    attribute: str  # by which the ledger is known: see `make_label_name`
    attributes: tuple[str, ...]  # the same for this ledger, and for those named in its also=
    plain_sets: frozenset[str]  # those of the attributes that are a set of the caller's, as handlers keep it by hand
    labels: tuple[Label, ...]
    earlier_entries: tuple[Callable[[Message, float], Entry], ...]  # the `entry` of each ledger named in also=


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """The sets of marks as one moment sees them: the one that gains a mark, those to look into, those to remove."""

    present: Slot
    live: tuple[Slot, ...]
    dead: tuple[Slot, ...]
    kind: type[SetMark]


@final
class Remember(NamedTuple):
    """Put `mark` into the set `sets.present`, provided that no live set holds it, or one of `aliases`. Without a live set, nothing is remembered."""

    sets: Sets
    mark: SetMark
    aliases: tuple[SetMark, ...] = ()

    @property
    def requires_predecessor(self) -> bool:
        return False

    def judge(self, message: Message, lookup: Lookup, entity: Entity | None) -> LedgerRefusal | None:
        is_held = False
        for slot in self.sets.live:
            marks = _marks(lookup(slot), self.sets.kind)
            is_held = is_held or self.mark in marks or not marks.isdisjoint(self.aliases)
        return Duplicate(message, entity) if is_held else None

    def shows(self, lookup: Lookup) -> bool:
        """Whether this change may have been made: the mark is stored."""
        sets = [lookup(slot) for slot in self.sets.live]
        is_held = any(self.mark in cast("frozenset[object]", marks) for marks in sets if isinstance(marks, frozenset))
        return is_held or not sets


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
    def reaches(self) -> int | str:
        """The mark after the write."""
        return self.mark if self.last is None else self.last

    @property
    def requires_predecessor(self) -> bool:
        """Whether each message waits for the one before it."""
        return self.rule != "below"

    @property
    def has_digits(self) -> bool:
        """Whether the mark is a number written as text. Two such texts compare as their numbers do only if they are equally long."""
        return isinstance(self.mark, str) and self.mark.isascii() and self.mark.isdigit()

    def judge(self, message: Message, lookup: Lookup, entity: Entity | None) -> LedgerRefusal | None:
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
        """Whether this change may have been made: the stored mark is as high, or higher."""
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

    def _judge_unknown_source(self, message: Message, entity: Entity | None) -> LedgerRefusal | None:
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


Change: TypeAlias = Remember | Advance


class Entry(NamedTuple):
    """What a write of one message asks of the entity. `own` is looked into and written, `also` is looked into only.

    A mark in `own` that counts moves over what `also` holds, because the messages behind it wait for that.

    `more`: of a write of several messages, what the others ask, looked into and written as `own` is.
    """

    terms: Terms
    own: Change
    also: tuple[Change, ...] = ()
    more: tuple[Change, ...] = ()

    @property
    def passing(self) -> Entry:
        """Return the entry that moves the marks over messages that a ledger in also= holds. That ledger is not asked again."""
        return self._replace(also=())

    def holds_before(self, message: Message, lookup: Lookup) -> bool:
        """Whether a ledger in also= keeps the message out of one that counts."""
        return self.own.requires_predecessor and any(change.judge(message, lookup, None) is not None for change in self.also)

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
        """Whether a later message can take effect first. This one is `Stale` from then on."""
        return any(isinstance(change, Advance) and change.rule == "below" for change in self.changes)

    @property
    def follows_gap(self) -> bool:
        """Whether a mark must be stored already. Then the write creates no entity."""
        return any(isinstance(change, Advance) and change.rule == "next" for change in self.written_changes)

    def judge(
        self, message: Message, lookup: Lookup, *, entity: Entity | None = None, is_gone: bool = False
    ) -> LedgerRefusal | None:
        """Return why the ledger refuses the message, or None if it accepts the message.

        Pass `is_gone=True` for a deleted entity, whose tombstone still contains the ledger.
        """
        self.check(lookup)
        refusals: list[LedgerRefusal] = [Gone(message)] if is_gone else []
        for change in self.changes:
            refusal = change.judge(message, lookup, entity)
            if refusal is not None:
                refusals.append(refusal)
        if len(refusals) < 2:  # noqa: PLR2004  # nothing to weigh
            return refusals[0] if refusals else None
        heaviest = min(refusals, key=lambda refusal: _WEIGHTS.index(type(refusal)))  # the first of those that weigh most
        if isinstance(heaviest, Duplicate) and isinstance(refusals[0], Deferred):
            # A ledger in also= holds the message. It comes again when the mark is before it, because the mark must move over it then.
            return refusals[0]
        return heaviest

    def shows(self, lookup: Lookup) -> bool:
        """Whether the write may have landed: all of its changes are stored, or what later writes have made of them."""
        return all(change.shows(lookup) for change in self.written_changes)

    def check(self, lookup: Lookup) -> None:
        """Raise `LedgerMismatch` if the entity has another ledger, or another value in its place."""
        for label in self.terms.labels:
            text = lookup(label.slot)
            if text is not ABSENT and text not in label.accepts:
                raise LedgerMismatch(mismatch(label, text))


_WEIGHTS = (Duplicate, Gone, Stale, Deferred)


def _marks(stored_set: object, kind: type[SetMark]) -> frozenset[SetMark]:
    if stored_set is ABSENT:
        return frozenset()
    if isinstance(stored_set, frozenset):
        marks = cast("frozenset[SetMark]", stored_set)
        if {*map(type, marks)} <= {kind} or all(isinstance(mark, kind) for mark in marks):
            return marks
    raise LedgerMismatch(
        f"Where the ledger keeps its set of {kind.__name__} stands a {type(cast('object', stored_set)).__name__} with something else: another writer "
        "uses its name. Repair the entity."
    )
