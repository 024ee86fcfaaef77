"""An engine-neutral image of an entity as it was read, its ledgers, and the form of a change. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import unquote

from onewrite.core.effect import Effect, read_effect
from onewrite.core.flow import Call
from onewrite.core.label import (
    EFFECTS,
    FORMAT,
    IDS_LAYOUT,
    OUTBOX,
    TOKEN,
    TOMBSTONE,
    USUAL_SET,
    Slot,
    describe_unknown_layout,
    describe_unread_label,
    is_caller_name,
    is_label,
    is_label_name,
    is_other_version,
    is_ours,
    make_name_prefix,
    read_ledger_name,
)
from onewrite.core.ledgers import HighWaterMark, IdSet, Ledger, SeenIds
from onewrite.core.ledgers.entry import ABSENT, Lookup, Remember
from onewrite.core.ledgers.ring import Span, find_span, make_window
from onewrite.core.ledgers.seen_ids import MAX_SQS_RETENTION, UNITS
from onewrite.errors import ConfigurationError, LedgerMismatch, OnewriteError
from onewrite.message import Message


class CannotRepair(OnewriteError):
    """The requested repair would do harm or wouldn't help. Nothing was written."""


class Layout(NamedTuple):
    """An engine's way to store slots."""

    engine: str
    field_of: Callable[[Slot], str]  # returns the top-level attribute or field of a slot
    place_of: Callable[[Slot], str]  # returns the slot's full path
    ledger_names: str  # a regular expression for the names of a ledger's fields, without their prefix
    has_token: bool  # whether each guarded write leaves its token in the entity
    max_number: int  # the largest number that the engine stores exactly

    def is_made_by(self, attribute: str, name: str) -> bool:
        """Whether the field with this name belongs to the ledger with this attribute."""
        return _compile_names(attribute, self.ledger_names).fullmatch(name) is not None


@lru_cache(maxsize=64)
def _compile_names(attribute: str, ledger_names: str) -> re.Pattern[str]:
    pattern = f"{re.escape(make_name_prefix(attribute))}{ledger_names}" if is_ours(attribute) else re.escape(attribute)
    return re.compile(pattern, re.DOTALL)


@dataclass(frozen=True, slots=True)
class EntityImage:
    """One entity. `fields` are its top-level fields, `slots` the contents by place, both in neutral types.

    `sizes` are bytes of top-level fields, and `slot_sizes` those of slots. `raw` is for the engine that read it.
    """

    layout: Layout
    key: Mapping[str, Any]  # in the engine's request format
    name: str  # the key as `--key` takes it
    fields: Mapping[str, object]
    slots: Mapping[Slot, object]
    lookup: Lookup
    effects: Mapping[str, object]  # open effects, by their marks
    sizes: Mapping[str, int]
    slot_sizes: Mapping[Slot, int]
    size: int
    raw: Mapping[str, Any] = field(repr=False)

    def list_fields(self, attribute: str) -> tuple[str, ...]:
        """Return the top-level fields of the ledger, outbox, or ID set with this attribute."""
        if attribute == OUTBOX.label:
            return tuple([name for name in OUTBOX if name in self.fields])
        return tuple([name for name in self.fields if self.layout.is_made_by(attribute, name)])

    @property
    def our_fields(self) -> tuple[str, ...]:
        """Return the top-level fields that aren't the user's own."""
        return tuple([name for name in self.fields if is_ours(name)])

    def sum_sizes(self, names: tuple[str, ...]) -> int:
        return sum([self.sizes[name] for name in names])


@dataclass(frozen=True, slots=True)
class Edit:
    """A verb's changes to an entity, on condition that the fields `as_read` are unchanged or still absent.

    `removes` are top-level fields, `unsets` single slots, `drops` members of a set, `sets` new values of slots.
    """

    as_read: tuple[str, ...]
    removes: tuple[str, ...] = ()
    unsets: tuple[Slot, ...] = ()
    drops: tuple[tuple[Slot, tuple[str, ...]], ...] = ()
    sets: tuple[tuple[Slot, int | str], ...] = ()


class EntityStore(Protocol):
    """A table or collection for the verbs."""

    target: Any  # boto3's client or pymongo's collection
    name: str
    where: str  # the options that name the place of the store, for an error

    def parse_key(self, text: str) -> dict[str, Any]: ...
    def read(self, key: Mapping[str, Any]) -> EntityImage | None: ...
    def list_pages(self, attribute: str) -> Iterator[list[EntityImage]]: ...  # of the entities that have the attribute
    def compile_edit(self, image: EntityImage, edit: Edit) -> Call: ...
    def write(self, call: Call) -> bool: ...  # returns whether the entity was unchanged, and so was written
    def export_call(self, call: Call) -> Any: ...  # as JSON


def drop_members(image: EntityImage, edit: Edit) -> EntityImage:
    """Return the entity without the members that the edit drops, as a delivery would find it."""
    drops = dict(edit.drops)

    def lookup(slot: Slot) -> object:
        content = image.lookup(slot)
        return cast("frozenset[object]", content) - frozenset(drops[slot]) if slot in drops else content

    return replace(image, lookup=lookup)


_MOVED_TO = "> "


class LabelledLedger(NamedTuple):
    """A ledger's label in an entity, in `attribute`. `layout` is the label without its version, for example "14d text"."""

    attribute: str
    layout: str

    @property
    def moved_to(self) -> str | None:
        """The attribute of the ledger that replaced this one, or None."""
        return (self.layout.removeprefix(_MOVED_TO) or None) if self.layout.startswith(_MOVED_TO) else None

    @property
    def is_known(self) -> bool:
        """Whether this version of onewrite knows this layout."""
        if self.moved_to is not None:
            return True
        try:
            _ = self.ledger
        except LedgerMismatch:
            return False
        return True

    @property
    def ledger(self) -> Ledger:
        """A ledger with this layout. For marks it is a `HighWaterMark`, although the layout of `InSequence` is the same."""
        name = read_ledger_name(self.attribute)
        with suppress(ConfigurationError, OverflowError, ValueError):  # a number that no ledger can have
            if self.layout == "marks":
                return HighWaterMark(name=name)
            if ids := IDS_LAYOUT.fullmatch(self.layout):
                retention = None if ids["unit"] is None else int(ids["count"]) * UNITS[ids["unit"]]
                return SeenIds(retention, name=name, readable=ids["text"] is not None)
        raise LedgerMismatch(describe_unknown_layout(self.attribute, self.layout))


def find_labels(fields: Iterable[tuple[str, object]]) -> list[LabelledLedger]:
    """Return the ledgers with a label among an entity's top-level attributes or fields, sorted by attribute."""
    labels = [(name, str(text)) for name, text in fields if is_label_name(name) and is_label(text)]
    return sorted([LabelledLedger(name, text.removeprefix(f"{FORMAT} ")) for name, text in labels])


_RING = re.compile(r"(?:(?P<count>\d+)(?P<unit>d|h|m|s|us)(?P<text>t?)_)?r")
_READABLE_ID = re.compile(r"@(?P<name>[^/]*)/(?P<id>.*)", re.DOTALL)


class StoredIds(NamedTuple):
    """A set of IDs in one slot, kept by `ledger`. `span` is when they were written, unless they are kept forever."""

    slot: Slot
    place: str
    ledger: SeenIds | IdSet
    ids: tuple[str, ...]
    span: Span | None
    size: int


class SourceMark(NamedTuple):
    """The mark of one source, or of one part of its messages."""

    place: str
    source: str
    parts: tuple[str, ...]
    mark: int | str
    size: int


class Foreign(NamedTuple):
    """Foreign content in a ledger's place."""

    place: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class EntityLedger:
    """The contents of the ledger with this `attribute`. `label` is None for a caller's own set.

    `text` is the content in the label's place, whoever wrote it, or ABSENT.
    """

    attribute: str
    label: LabelledLedger | None
    text: object
    is_named: bool  # the entity shows it, not only the operator
    sets: tuple[StoredIds, ...]
    marks: tuple[SourceMark, ...]
    foreign: tuple[Foreign, ...]
    size: int

    @property
    def moved_to(self) -> str | None:
        return None if self.label is None else self.label.moved_to

    @property
    def is_new(self) -> bool:
        """Whether a store with this ledger would be the first to write it."""
        return self.text is ABSENT and is_label_name(self.attribute)

    @property
    def version(self) -> str | None:
        """The label of another version of the format. Nothing else is known about its ledger."""
        return str(self.text) if is_other_version(self.text) else None

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """The ledgers with contents here, for any label."""
        ledgers: list[Ledger] = [id_set.ledger for id_set in self.sets]
        name = read_ledger_name(self.attribute)
        if self.marks:
            ledgers.append(HighWaterMark(name=name))
        return tuple({ledger.layout: ledger for ledger in ledgers}.values())


def find_effect(stored_effect: object) -> Effect | LedgerMismatch:
    """Return the effect, or the error of `read_effect`: one damaged entity must not hide all others."""
    try:
        return read_effect(stored_effect)
    except LedgerMismatch as error:
        return error


def find_ledgers(image: EntityImage, now: float, *asked: str | None) -> list[EntityLedger]:
    """Return every ledger that the entity names or the operator asks for, sorted by attribute.

    An entity names a ledger by any content in its label's place, by the label of a ledger that moved there, and by its open
    effects.
    """
    labels = {label.attribute: label for label in find_labels(image.fields.items())}
    effects = [find_effect(value) for value in image.effects.values()]
    names = [USUAL_SET] if USUAL_SET in find_text_sets(image) else []
    names += [name for name in image.fields if is_label_name(name)]
    names += [label.moved_to for label in labels.values() if label.moved_to is not None]
    names += [effect.ledger for effect in effects if isinstance(effect, Effect)]
    named = {name for name in names if is_label_name(name) or is_caller_name(name)}
    attributes = sorted({*named, *[name for name in asked if name is not None]})
    return [_read_ledger(image, now, name, labels.get(name), is_named=name in named) for name in attributes]


def find_text_sets(image: EntityImage) -> dict[str, frozenset[str]]:
    """Return the caller's attributes that could be sets of IDs, as handlers keep them by hand or in an `IdSet`."""
    return {
        slot.group: cast("frozenset[str]", content)
        for slot, content in image.slots.items()
        if isinstance(content, frozenset) and content and is_caller_name(slot.group)
        if all(isinstance(member, str) for member in cast("frozenset[object]", content))
    }


def _read_ledger(
    image: EntityImage, now: float, attribute: str, label: LabelledLedger | None, *, is_named: bool
) -> EntityLedger:
    """Return the ledger with this attribute. `is_named`: the entity itself names the attribute, not only the operator."""
    text = image.slots.get(Slot(attribute), ABSENT) if is_ours(attribute) else ABSENT
    # Conclude nothing from another version's content.
    is_legible = not is_other_version(text)
    contents = [*_read_contents(image, attribute, now)] if is_legible else []
    if label is None and is_legible and text is not ABSENT:
        contents.append(_make_foreign(image, Slot(attribute)))
    return EntityLedger(
        attribute,
        label,
        text,
        is_named,
        sets=tuple([content for content in contents if isinstance(content, StoredIds)]),
        marks=tuple([content for content in contents if isinstance(content, SourceMark)]),
        foreign=tuple([content for content in contents if isinstance(content, Foreign)]),
        size=image.sum_sizes(image.list_fields(attribute)),
    )


def _read_contents(image: EntityImage, attribute: str, now: float) -> Iterator[StoredIds | SourceMark | Foreign]:
    """Yield the contents of a ledger's slots, except for its label, in the order of their places."""
    if not is_ours(attribute):
        if Slot(attribute) in image.slots:
            yield _read_id_set(image, Slot(attribute), IdSet(attribute))
        return
    prefix, name = make_name_prefix(attribute), read_ledger_name(attribute)
    slots = [slot for slot in image.slots if slot.group.startswith(prefix)]
    for slot in sorted(slots, key=image.layout.place_of):
        rest = slot.group.removeprefix(prefix)
        if rest == "@":
            yield _read_mark(image, slot)
        elif rest in ("all", "allt"):
            yield _read_id_set(image, slot, SeenIds(None, name=name, readable=rest == "allt"))
        elif match := _RING.fullmatch(rest):
            # A name similar to ours can have a span that no ledger uses.
            with suppress(ConfigurationError, OverflowError, ValueError):
                retention = int(match["count"]) * UNITS[match["unit"]] if match["unit"] else MAX_SQS_RETENTION
                ledger = SeenIds(retention, name=name, readable=bool(match["text"]))
                yield _read_ring_ids(image, slot, ledger, now)


def _read_ring_ids(image: EntityImage, slot: Slot, ledger: SeenIds, now: float) -> StoredIds | Foreign:
    if not re.fullmatch("r[0-5]", slot.key):
        return _make_foreign(image, slot)
    ring_window = make_window(cast("timedelta", ledger.retention), cast("timedelta", ledger.skew))
    span = find_span(ring_window, now, slot.key)
    return _read_id_set(image, slot, ledger, span)


def _read_id_set(image: EntityImage, slot: Slot, ledger: SeenIds | IdSet, span: Span | None = None) -> StoredIds | Foreign:
    content = image.slots[slot]
    if not isinstance(content, frozenset) or not all(
        isinstance(member, str) for member in cast("frozenset[object]", content)
    ):
        return _make_foreign(image, slot)
    ids = tuple(sorted(cast("frozenset[str]", content)))
    return StoredIds(slot, image.layout.place_of(slot), ledger, ids, span, size=image.slot_sizes[slot])


def _read_mark(image: EntityImage, slot: Slot) -> SourceMark | Foreign:
    content = image.slots[slot]
    if type(content) not in (int, str):
        return _make_foreign(image, slot)
    source, *parts = map(unquote, slot.key.split("%+"))
    place, mark = image.layout.place_of(slot), cast("int | str", content)
    return SourceMark(place, source, tuple(parts), mark, image.slot_sizes[slot])


def _make_foreign(image: EntityImage, slot: Slot) -> Foreign:
    return Foreign(image.layout.place_of(slot), type(image.slots[slot]).__name__, image.slot_sizes[slot])


class NamedId(NamedTuple):
    """A readable mark. Without a source, it counts for messages that have none. In a caller's own set, it counts for all."""

    source: str
    parts: tuple[str, ...]
    id: str


def read_id(text: str) -> NamedId:
    match = _READABLE_ID.fullmatch(text)
    if match is None:
        return NamedId("", (), text)
    source, *parts = match["name"].split("+")
    return NamedId(unquote(source), tuple([unquote(part) for part in parts]), match["id"])


def find_predecessors(ledgers: list[EntityLedger], attribute: str) -> list[EntityLedger]:
    """Return the ledgers whose labels name this attribute as their successor, directly or indirectly."""
    direct = [ledger for ledger in ledgers if ledger.moved_to == attribute and ledger.attribute != attribute]
    rest = [ledger for ledger in ledgers if ledger not in direct]
    return [*direct, *[indirect for ledger in direct for indirect in find_predecessors(rest, ledger.attribute)]]


def choose_ledger(ledger: EntityLedger) -> Ledger:
    """Return the ledger of the label. Without one, return the ledger that a store has by default."""
    if ledger.label is not None and ledger.moved_to is None:
        return ledger.label.ledger
    if ledger.text is not ABSENT:
        raise LedgerMismatch(describe_unread_label(ledger.attribute, ledger.text))
    return SeenIds(name=read_ledger_name(ledger.attribute)) if ledger.is_new else IdSet(ledger.attribute)


def list_read_fields(
    image: EntityImage, family: Iterable[EntityLedger], slots: Iterable[Slot], fields: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the fields that must be unchanged for a repair that reads these ledgers and changes these slots and fields.

    A guarded write must not go unnoticed. It changes the entity's token, or on an engine without tokens one of the ledger's
    fields. There, all of them are included.
    """
    has_token = image.layout.has_token
    names, all_slots = [EFFECTS, TOMBSTONE, *([TOKEN] if has_token else fields)], list(slots)
    for stored_ledger in family:
        all_slots.append(Slot(stored_ledger.attribute))
        for ledger in (
            stored_ledger.ledgers if stored_ledger.moved_to else (choose_ledger(stored_ledger), *stored_ledger.ledgers)
        ):
            if isinstance(ledger, SeenIds | IdSet):
                id_sets = make_remember(ledger, Message("any"), 0).sets  # the same for every message, at any time
                all_slots += [*id_sets.live, *id_sets.dead]
        if not has_token:
            names.extend([*image.list_fields(stored_ledger.attribute), f"{make_name_prefix(stored_ledger.attribute)}@"])
    return tuple(dict.fromkeys([*names, *map(image.layout.field_of, all_slots)]))


def make_remember(ledger: SeenIds | IdSet, message: Message, now: float) -> Remember:
    """Return the change with which a ledger of IDs remembers a message, with the message's mark in every spelling."""
    return cast("Remember", ledger.entry(message, now).own)
