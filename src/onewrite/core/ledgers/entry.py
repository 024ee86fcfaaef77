"""The entry of a ledger in a write, and the interface of all ledgers. Pure: no engine, no clock, no I/O.

`Ledger.entry(message, now)` returns the marks that the entity must lack, those that it gains, and the sets to remove. Each engine writes
the entry in its own language. If a write is refused, the engine reads the stored ledger, and `Entry.judge` returns the reason.

docs/format.md specifies the stored data. Next to its marks, each ledger stores a label that names its layout. The label refuses a
store with a different layout, which would search in the wrong place and accept a message twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, cast, final

from onewrite.core.label import FORMAT, MOVED_LABEL, Label, Slot, describe_mismatch, is_ours
from onewrite.errors import ConfigurationError, InvalidMessage, LedgerMismatch
from onewrite.message import SORTABLE_PREFIX, Message, is_sortable
from onewrite.outcome import Deferred, Duplicate, Entity, Gone, Stale

Rule: TypeAlias = Literal["below", "first", "next"]
LedgerRefusal: TypeAlias = Duplicate | Gone | Stale | Deferred
Lookup: TypeAlias = Callable[[Slot], object]
"""Returns the stored value: ABSENT, a frozenset for any set or array, an int, or a str."""
ABSENT: Final = object()


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """The part that all entries of one ledger share."""

    attribute: str  # identifies the ledger: see `make_label_name`
    attributes: tuple[str, ...]  # this ledger's attribute, and those of the ledgers in its previous=
    plain_sets: frozenset[str]  # the attributes that hold a caller's own set
    labels: tuple[Label, ...]
    earlier_entries: tuple[Callable[[Message, float], Entry], ...]  # the `entry` of each ledger in previous=


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """The sets of marks at one moment: the set that gains a mark, the sets to search, and the sets to remove.

    `has_hashes`: the marks are hashes of the messages, not readable IDs.
    """

    present: Slot
    live: tuple[Slot, ...]
    dead: tuple[Slot, ...]
    has_hashes: bool = False


@final
class Remember(NamedTuple):
    """Add `mark` to the set `sets.present` if no live set holds it or one of `aliases`."""

    sets: Sets
    mark: str
    aliases: tuple[str, ...] = ()

    @property
    def requires_predecessor(self) -> bool:
        return False

    @property
    def is_overtakable(self) -> bool:
        return False

    @property
    def has_predecessor(self) -> bool:
        return False

    @property
    def has_text(self) -> bool:
        """Whether the mark is the caller's own text, which a collation can take for a different one.

        Two hashes are 11 random characters. Even if a collation ignores the case of letters and all punctuation, a new hash is one of
        3,000 others by chance less than once in 10^12.
        """
        return not self.sets.has_hashes

    @property
    def dead(self) -> tuple[Slot, ...]:
        return self.sets.dead

    def judge(self, message: Message, lookup: Lookup, entity: Entity | None = None) -> LedgerRefusal | None:
        """Return a `Duplicate` if a live set holds the message, otherwise None."""
        is_held = False
        for slot in self.sets.live:  # also after a match, because `_read_marks` raises for a value that isn't a set of marks
            marks = _read_marks(lookup(slot))
            is_held = is_held or self.mark in marks or not marks.isdisjoint(self.aliases)
        return Duplicate(message, entity) if is_held else None

    def is_shown_by(self, lookup: Lookup) -> bool:
        """Whether this change might have been made, because its mark is stored."""
        stored_sets = [lookup(slot) for slot in self.sets.live]
        return any(self.mark in cast("frozenset[object]", marks) for marks in stored_sets if isinstance(marks, frozenset))


@final
class Advance(NamedTuple):
    """Move the mark in `slot` to `mark`, if `rule` allows it.

    - below: the stored mark is below `mark`, or absent.
    - first: `mark` is the first sequence of its source. The stored mark is absent, or the number before if another ledger had the source.
    - next: the stored mark is the number before.
    """

    slot: Slot
    mark: int | str
    rule: Rule
    first: int = 0  # the first sequence of a source, for the rules "first" and "next"

    @property
    def requires_predecessor(self) -> bool:
        """Whether each message waits for its predecessor."""
        return self.rule != "below"

    @property
    def has_text(self) -> bool:
        """Whether the mark is a text, which a collation can take for a different one."""
        return type(self.mark) is str

    @property
    def dead(self) -> tuple[Slot, ...]:
        return ()

    @property
    def is_overtakable(self) -> bool:
        """Whether a later message can take effect first, and make this one `Stale`."""
        return self.rule == "below"

    @property
    def has_predecessor(self) -> bool:
        """Whether a mark must be stored already. The write then can't create the entity."""
        return self.rule == "next"

    @property
    def is_numeral(self) -> bool:
        """Whether the mark is a string of digits. Two such strings compare like numbers only if they have the same length."""
        return isinstance(self.mark, str) and self.mark.isascii() and self.mark.isdigit()

    @property
    def floor(self) -> str | None:
        """The lowest string that is comparable with the mark, or None if all are. A lower one has a different spelling."""
        if self.is_numeral:
            return "0"
        return SORTABLE_PREFIX if isinstance(self.mark, str) and is_sortable(self.mark) else None

    def judge(self, message: Message, lookup: Lookup, entity: Entity | None = None) -> LedgerRefusal | None:
        """Return why the stored mark can't move to `mark`, or None if it can."""
        mark = lookup(self.slot)
        if mark is ABSENT:
            if self.rule != "next":
                return None
            return Deferred(message, self.first, entity)
        is_below = self._is_below(message, mark)  # first, because it raises for a mark that can't be compared
        if mark == self.mark:
            return Duplicate(message, entity)
        if not is_below:
            return Stale(message, cast("int | str", mark), entity)
        if self.rule == "below" or not isinstance(mark, int) or mark + 1 == self.mark:
            return None
        return Deferred(message, mark + 1, entity)

    def is_shown_by(self, lookup: Lookup) -> bool:
        """Whether this change might have been made, because the stored mark is as high or higher."""
        mark = lookup(self.slot)
        if isinstance(mark, str) and isinstance(self.mark, str):
            return mark >= self.mark
        return type(mark) is int and isinstance(self.mark, int) and mark >= self.mark

    def _is_below(self, message: Message, stored_mark: object) -> bool:
        """Whether the stored mark is below the message's. Raise if the two can't be compared."""
        if isinstance(stored_mark, str) and isinstance(self.mark, str):
            if self.is_numeral and stored_mark < "0":
                raise LedgerMismatch(_DIFFERENT.format(mark=self.mark, source=message.source, stored_mark=stored_mark))
            if self.is_numeral and len(stored_mark) != len(self.mark):
                raise InvalidMessage(_DIGITS.format(mark=self.mark, source=message.source, stored_mark=stored_mark))
            if is_sortable(self.mark) and not is_sortable(stored_mark):
                raise LedgerMismatch(_UNSORTABLE.format(mark=self.mark, source=message.source, stored_mark=stored_mark))
            return stored_mark < self.mark
        if type(stored_mark) is int and isinstance(self.mark, int):
            return stored_mark < self.mark
        raise LedgerMismatch(_DIFFERENT.format(mark=self.mark, source=message.source, stored_mark=stored_mark))


_DIGITS = (
    "Sequence {mark!r} of source {source!r} can't be compared with the entity's {stored_mark!r}, because strings compare from the left. Numbers "
    "of different lengths would be in the wrong order. Read the sequence as a number, for example with json_body(sequence=number(...)), or pass "
    "onewrite.sortable(n). Rewrite the mark in the entity in the same way."
)
_DIFFERENT = (
    "Sequence {mark!r} of source {source!r} can't be compared with the entity's mark {stored_mark!r}. Use one type and one spelling for each "
    "source, or give the ledger its own name=."
)
_UNSORTABLE = (
    "Sequence {mark!r} of source {source!r} can't be compared with the entity's mark {stored_mark!r}, because only the sequence is from "
    "onewrite.sortable. Rewrite the mark in the entity with onewrite.sortable, or give the ledger its own name=."
)


Change: TypeAlias = Remember | Advance


class Entry(NamedTuple):
    """The conditions and changes of a ledger in a write.

    - `written`: the changes that the write makes, one for each message
    - `checked`: the changes that the entity must allow: the written ones, and those of the ledgers in previous=, which stay unwritten. If a
      write moves one mark for several messages, only the first move is checked.
    """

    terms: Terms
    written: tuple[Change, ...]
    checked: tuple[Change, ...]

    @property
    def own(self) -> Change:
        """The change of the first message."""
        return self.written[0]

    @property
    def dead(self) -> tuple[Slot, ...]:
        """The slots that a write removes. They are the same for all messages of a write."""
        if len(self.checked) == 1:
            return self.own.dead
        return tuple(dict.fromkeys([slot for change in self.checked for slot in change.dead]))

    @property
    def is_overtakable(self) -> bool:
        """Whether a later message can take effect first, and make this one `Stale`."""
        return any(change.is_overtakable for change in self.checked)

    @property
    def has_predecessor(self) -> bool:
        """Whether a mark must be stored already. The write then can't create the entity."""
        return any(change.has_predecessor for change in self.checked)

    def judge(
        self, message: Message, lookup: Lookup, *, entity: Entity | None = None, is_gone: bool = False
    ) -> LedgerRefusal | None:
        """Return why the ledger refuses the message, or None if it accepts the message.

        Pass `is_gone=True` for a deleted entity, whose tombstone still contains the ledger. Raise `LedgerMismatch` if the entity has a different
        ledger, or a different value in the ledger's place.
        """
        for label in self.terms.labels:
            text = lookup(label.slot)
            if text is not ABSENT and text not in label.accepts:
                raise LedgerMismatch(describe_mismatch(label, text, has_previous=not self.own.requires_predecessor))
        refusals: list[LedgerRefusal] = [Gone(message)] if is_gone else []
        for change in self.checked:
            refusal = change.judge(message, lookup, entity)
            if refusal is not None:
                refusals.append(refusal)
        return min(refusals, key=lambda refusal: _PRECEDENCE.index(type(refusal)), default=None)

    def is_shown_by(self, lookup: Lookup) -> bool:
        """Whether the write might have landed, because its changes are stored. Later writes can have added theirs."""
        return all(change.is_shown_by(lookup) for change in self.written)


def join_entries(entries: Sequence[Entry]) -> Entry:
    """Return the entry of one write of several messages. The entries have the same ledger and time, and the order of the messages' changes."""
    written = tuple([entry.own for entry in entries])
    earlier = [change for entry in entries for change in entry.checked[1:]]
    checked: dict[object, Change] = {}
    for change in (*written, *earlier):
        checked.setdefault(_make_cover_key(change), change)
    return Entry(entries[0].terms, written, tuple(checked.values()))


def _make_cover_key(change: Change) -> object:
    """Return a key that is equal for marks that can be compared. A stored mark below the first one is then below the later ones too.

    Numbers can't be compared with texts, nor can digits of different length.
    """
    if not isinstance(change, Advance):
        return change
    return change.slot, type(change.mark), len(cast("str", change.mark)) if change.is_numeral else 0


_PRECEDENCE = (Duplicate, Gone, Stale, Deferred)  # the order in which a refusal wins over a later one


def _read_marks(stored_set: object) -> frozenset[str]:
    """Return the marks in a stored set, which can be absent. Raise `LedgerMismatch` for other contents."""
    if stored_set is ABSENT:
        return frozenset()
    if isinstance(stored_set, frozenset):
        marks = cast("frozenset[str]", stored_set)
        # Comparing exact types is many times faster, and nearly always enough. A driver can return a subclass, too.
        if {*map(type, marks)} <= {str} or all(isinstance(mark, str) for mark in cast("frozenset[object]", stored_set)):
            return marks
    raise LedgerMismatch(
        f"The ledger's set of strings is a {type(cast('object', stored_set)).__name__} with other contents, because another writer uses its "
        "name. Repair the entity, and make the other writer use a different name."
    )


# --- the ledger --------------------------------------------------------------------------------------------------------


class Ledger(Protocol):
    """The properties of a ledger that the engines and other ledgers use."""

    @property
    def attribute(self) -> str: ...
    @property
    def previous(self) -> Ledger | tuple[Ledger, ...]: ...
    @property
    def layout(self) -> str: ...
    @property
    def skew(self) -> timedelta | None: ...
    @property
    def terms(self) -> Terms: ...
    @property
    def remedy(self) -> str: ...
    def entry(self, message: Message, now: float) -> Entry: ...


def check_ledger(ledger: object) -> None:
    """Raise unless this is a ledger."""
    if isinstance(ledger, type):
        raise ConfigurationError(f"{ledger.__name__} is a class: expected a ledger. Write {ledger.__name__}().")
    if not isinstance(getattr(ledger, "terms", None), Terms):  # a collection of pymongo has attributes of any name
        raise ConfigurationError(
            f"{ledger!r} isn't a ledger: expected SeenIds(), HighWaterMark(), InSequence(), or IdSet('messageIDs')."
        )


# --- what all entries of a ledger have in common ----------------------------------------------------------------------


def make_terms(ledger: Ledger) -> Terms:
    """Return the terms that all entries of this ledger share."""
    by_attribute: dict[str, dict[str, Ledger]] = {}
    for member in (ledger, *list_earlier_ledgers(ledger.previous)):
        by_attribute.setdefault(member.attribute, {}).setdefault(f"{FORMAT} {member.layout}", member)
    attributes = tuple(by_attribute)
    labels = [
        _make_label(ledger.attribute, name, tuple(texts), attributes)
        for name, texts in by_attribute.items()
        if is_ours(name)
    ]
    return Terms(
        ledger.attribute,
        attributes,
        frozenset([attribute for attribute in attributes if not is_ours(attribute)]),
        labels=tuple(labels),
        earlier_entries=tuple(
            [member.entry for texts in by_attribute.values() for member in texts.values() if member is not ledger]
        ),
    )


def _make_label(present: str, attribute: str, texts: tuple[str, ...], attributes: tuple[str, ...]) -> Label:
    """Return the label for one attribute of the ledger.

    A ledger that moved leaves a label in its old place, which refuses a store that knows only that place. The new place also accepts
    such a label, so that you can roll back. A caller's own set has no label.
    """
    moved_texts = tuple([f"{MOVED_LABEL}{name}" for name in attributes if name != attribute])
    text = texts[0] if attribute == present else f"{MOVED_LABEL}{present}"
    return Label(Slot(attribute), text, tuple(dict.fromkeys([text, *texts, *moved_texts])), texts[0])


def list_earlier_ledgers(previous: object) -> list[Ledger]:
    """Return the ledgers in previous=, and those in their own previous=."""
    ledgers = cast("tuple[object, ...]", previous if isinstance(previous, tuple) else (previous,))
    for ledger in ledgers:
        check_ledger(ledger)
    members = cast("tuple[Ledger, ...]", ledgers)
    return [member for ledger in members for member in (ledger, *list_earlier_ledgers(ledger.previous))]


def make_entry(terms: Terms, own: Change, message: Message, now: float) -> Entry:
    """Return the entry with this change, which must also be new to the ledgers in previous=.

    Marks of those ledgers must only be below the message's, even if they count.
    """
    written = (own,)
    if not terms.earlier_entries:
        return Entry(terms, written, written)
    earlier = [earlier_entry(message, now).own for earlier_entry in terms.earlier_entries]
    below = [Advance(change.slot, change.mark, "below") if isinstance(change, Advance) else change for change in earlier]
    return Entry(terms, written, (own, *below))


# --- misuse -----------------------------------------------------------------------------------------------------------


def check_message(message: object) -> None:
    """Raise unless this is a Message."""
    if not isinstance(message, Message):
        raise InvalidMessage(
            f"A guarded write takes the Message first: expected a Message, got {type(message).__name__}. Pass Message(id) before the key, filter, "
            "or document. message.child() returns a key for other services. For a second write of a message to an entity, pass message.part(name)."
        )
