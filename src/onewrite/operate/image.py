"""An entity as it was read, in no engine's words. An engine makes it, and everything here is told from it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import unquote

from onewrite.core.flow import Call, Flow
from onewrite.core.label import (
    BY_HAND,
    OUTBOX,
    STEPS,
    TOKEN,
    TOMBSTONE,
    Slot,
    is_label_name,
    is_other_version,
    is_ours,
    ledger_name,
    make_name_prefix,
    may_be_callers,
    unread,
)
from onewrite.core.ledgers import HighWaterMark, Ledger, MessageIds, SeenIds
from onewrite.core.ledgers.entry import ABSENT, Lookup, Remember
from onewrite.core.ledgers.kept import LabelledLedger, kept_ledgers
from onewrite.core.ledgers.ring import Span, span_at, window
from onewrite.core.ledgers.seen_ids import MAX_SQS_RETENTION, UNITS
from onewrite.core.step import Step, found_step
from onewrite.errors import ConfigurationError, LedgerMismatch, OnewriteError
from onewrite.message import Message


class CannotRepair(OnewriteError):
    """What was asked for would do harm, or would not help: nothing was written."""


class Layout(NamedTuple):
    """How an engine keeps slots. `has_token`: each guarded write leaves its token in the entity."""

    engine: str
    field_of: Callable[[Slot], str]  # the top-level attribute or field in which a slot stands
    place_of: Callable[[Slot], str]  # the same, with the way to it
    is_made_by: Callable[[str, str], bool]  # (attribute, name of a field)
    spelling_of: Callable[
        [Any], str | None
    ]  # the text by which consumers spell a raw value in a source; None if they may differ
    has_token: bool
    largest: int  # the largest number that it stores exactly


@dataclass(frozen=True, slots=True)
class EntityImage:
    """One entity. `fields` are its top-level fields, `slots` what stands in each place, both in no engine's types.

    `sizes` are bytes of top-level fields, `slot_sizes` those of slots. `raw` is for the engine that has read it.
    """

    layout: Layout
    key: Mapping[str, Any]  # as the engine writes it in a request
    name: str  # the key as `--key` takes it
    fields: Mapping[str, object]
    slots: Mapping[Slot, object]
    lookup: Lookup
    steps: Mapping[str, object]  # those that are open, by their marks in hexadecimal
    sizes: Mapping[str, int]
    slot_sizes: Mapping[Slot, int]
    size: int
    raw: Mapping[str, Any] = field(repr=False)

    def fields_of(self, attribute: str) -> tuple[str, ...]:
        """The top-level fields of the ledger, the outbox or the set of ids that is known by this one."""
        if attribute == OUTBOX.label:
            return tuple([name for name in OUTBOX if name in self.fields])
        return tuple([name for name in self.fields if self.layout.is_made_by(attribute, name)])

    @property
    def our_fields(self) -> tuple[str, ...]:
        """All top-level fields that are not the user's own."""
        return tuple([name for name in self.fields if is_ours(name)])

    def bytes_of(self, names: tuple[str, ...]) -> int:
        return sum([self.sizes[name] for name in names])


@dataclass(frozen=True, slots=True)
class Edit:
    """What a verb changes in an entity, all on the condition that the fields `as_read` are still as they were read, or absent.

    `removes` are whole top-level fields, `unsets` single slots, `drops` members of a set, `sets` new values of a slot.
    """

    as_read: tuple[str, ...]
    removes: tuple[str, ...] = ()
    unsets: tuple[Slot, ...] = ()
    drops: tuple[tuple[Slot, tuple[str | bytes, ...]], ...] = ()
    sets: tuple[tuple[Slot, int | str], ...] = ()


class EntityScan(Protocol):
    """Goes through a store once, page by page."""

    def next(self) -> Flow[list[EntityImage] | None]:
        """The entities of the next page, which may have none; None at the end."""
        ...


class EntityStore(Protocol):
    """What verbs ask of a table or collection. `target` is the client that its flows are run with."""

    target: Any
    name: str

    def key(self, text: str) -> dict[str, Any]: ...
    def read(self, key: Mapping[str, Any]) -> Flow[EntityImage | None]: ...

    def scan(self, attribute: str) -> EntityScan: ...  # the entities that have the attribute

    def calls(self, image: EntityImage, edit: Edit) -> list[Call]: ...
    def write(
        self, image: EntityImage, edit: Edit
    ) -> Flow[int]: ...  # how many of these calls found the entity as it was read
    def to_json(self, call: Call) -> Any: ...  # as JSON has it


def without(image: EntityImage, edit: Edit) -> EntityImage:
    """The entity as a delivery would meet it without the members that the edit drops."""
    drops = dict(edit.drops)

    def lookup(slot: Slot) -> object:
        content = image.lookup(slot)
        return cast("frozenset[object]", content) - frozenset(drops[slot]) if slot in drops else content

    return replace(image, lookup=lookup)


_RING = re.compile(r"(?:(?P<count>\d+)(?P<unit>d|h|m|s|us)(?P<text>t?)_)?r")
_READABLE_ID = re.compile(r"@(?P<name>[^/]*)/(?P<id>.*)", re.DOTALL)


class IdSet(NamedTuple):
    """A set of ids in one slot. `ledger` keeps its ids so; `span`: when they were written, unless they are kept forever."""

    slot: Slot
    place: str
    ledger: SeenIds | MessageIds
    ids: tuple[str | bytes, ...]
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
    """Something in a place of the ledger that no ledger has put there."""

    place: str
    kind: str
    size: int


@dataclass(frozen=True, slots=True)
class EntityLedger:
    """What stands in the ledger that is known by `attribute`. `label` is None for a set that is kept by hand.

    `text` is what stands in the place of the label, whoever has put it there.
    """

    attribute: str
    label: LabelledLedger | None
    text: object
    is_named: bool  # by what the entity shows, and not by the operator alone
    sets: tuple[IdSet, ...]
    marks: tuple[SourceMark, ...]
    foreign: tuple[Foreign, ...]
    size: int

    @property
    def moved_to(self) -> str | None:
        return None if self.label is None else self.label.moved_to

    @property
    def is_new(self) -> bool:
        """Would a store that writes there be the first?"""
        return self.text is ABSENT and is_label_name(self.attribute)

    @property
    def version(self) -> str | None:
        """The label of another version of the format, of which nothing else is known."""
        return str(self.text) if is_other_version(self.text) else None

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """Those that have left something here, whatever the label says."""
        ledgers: list[Ledger] = [id_set.ledger for id_set in self.sets]
        name = ledger_name(self.attribute)
        if self.marks:
            ledgers.append(HighWaterMark(name=name))
        return tuple({ledger.layout: ledger for ledger in ledgers}.values())


def held_ledgers(image: EntityImage, now: float, *asked: str | None) -> list[EntityLedger]:
    """All ledgers that the entity names, and what stands at the attributes that are asked for, in the order of their attributes.

    A ledger is named where anything stands in the place of its label, by the label of one that has moved there, and by its open steps.
    """
    labels = {label.attribute: label for label in kept_ledgers(image.fields.items())}
    steps = [found_step(image.name, value).step for value in image.steps.values()]
    names = [BY_HAND] if BY_HAND in sets_of_texts(image) else []
    names += [name for name in image.fields if is_label_name(name)]
    names += [label.moved_to for label in labels.values() if label.moved_to is not None]
    names += [step.ledger for step in steps if isinstance(step, Step)]
    named = {name for name in names if is_label_name(name) or may_be_callers(name)}
    attributes = sorted({*named, *[name for name in asked if name is not None]})
    return [_ledger_at(image, now, name, labels.get(name), is_named=name in named) for name in attributes]


def sets_of_texts(image: EntityImage) -> dict[str, frozenset[str]]:
    """The caller's own attributes that may be sets of ids, as handlers keep them by hand, and `MessageIds`."""
    return {
        slot.group: cast("frozenset[str]", content)
        for slot, content in image.slots.items()
        if isinstance(content, frozenset) and content and may_be_callers(slot.group)
        if all(isinstance(member, str) for member in cast("frozenset[object]", content))
    }


def _ledger_at(
    image: EntityImage, now: float, attribute: str, label: LabelledLedger | None, *, is_named: bool
) -> EntityLedger:
    text = image.slots.get(Slot(attribute), ABSENT) if is_ours(attribute) else ABSENT
    # Nothing is concluded from what another version has written.
    is_legible = not is_other_version(text)
    contents = [*_contents(image, attribute, now)] if is_legible else []
    if label is None and is_legible and text is not ABSENT:
        contents.append(_foreign(image, Slot(attribute)))
    return EntityLedger(
        attribute,
        label,
        text,
        is_named,
        sets=tuple([content for content in contents if isinstance(content, IdSet)]),
        marks=tuple([content for content in contents if isinstance(content, SourceMark)]),
        foreign=tuple([content for content in contents if isinstance(content, Foreign)]),
        size=image.bytes_of(image.fields_of(attribute)),
    )


def _contents(image: EntityImage, attribute: str, now: float) -> Iterator[IdSet | SourceMark | Foreign]:
    """What stands in the slots of a ledger, except for its label, in the order of their places."""
    if not is_ours(attribute):
        if Slot(attribute) in image.slots:
            yield _ids(image, Slot(attribute), MessageIds(attribute))
        return
    prefix, name = make_name_prefix(attribute), ledger_name(attribute)
    slots = [slot for slot in image.slots if slot.group.startswith(prefix)]
    for slot in sorted(slots, key=image.layout.place_of):
        rest = slot.group.removeprefix(prefix)
        if rest == "@":
            yield _mark(image, slot)
        elif rest in ("all", "allt"):
            yield _ids(image, slot, SeenIds(None, name=name, readable=rest == "allt"))
        elif match := _RING.fullmatch(rest):
            with suppress(
                ConfigurationError, OverflowError, ValueError
            ):  # a name that looks like ours, and is of no span that we take
                retention = int(match["count"]) * UNITS[match["unit"]] if match["unit"] else MAX_SQS_RETENTION
                ledger = SeenIds(retention, name=name, readable=bool(match["text"]))
                yield _ring_ids(image, slot, ledger, now)


def _ring_ids(image: EntityImage, slot: Slot, ledger: SeenIds, now: float) -> IdSet | Foreign:
    if not re.fullmatch("r[0-5]", slot.key):
        return _foreign(image, slot)
    ring_window = window(cast("timedelta", ledger.retention), cast("timedelta", ledger.skew))
    span = span_at(ring_window, now, slot.key)
    return _ids(image, slot, ledger, span)


def _ids(image: EntityImage, slot: Slot, ledger: SeenIds | MessageIds, span: Span | None = None) -> IdSet | Foreign:
    content, kind = image.slots[slot], str if isinstance(ledger, MessageIds) or ledger.readable else bytes
    if not isinstance(content, frozenset) or not all(
        isinstance(member, kind) for member in cast("frozenset[object]", content)
    ):
        return _foreign(image, slot)
    ids = tuple(sorted(cast("frozenset[str]", content)))  # or bytes: all are of one kind
    return IdSet(slot, image.layout.place_of(slot), ledger, ids, span, image.slot_sizes[slot])


def _mark(image: EntityImage, slot: Slot) -> SourceMark | Foreign:
    content = image.slots[slot]
    if type(content) not in (int, str):
        return _foreign(image, slot)
    source, parts = named_by(slot.key)
    return SourceMark(image.layout.place_of(slot), source, parts, cast("int | str", content), image.slot_sizes[slot])


def _foreign(image: EntityImage, slot: Slot) -> Foreign:
    return Foreign(image.layout.place_of(slot), type(image.slots[slot]).__name__, image.slot_sizes[slot])


def named_by(key: str) -> tuple[str, tuple[str, ...]]:
    """The source, and the parts, that stand in the name of a mark so."""
    source, *parts = key.split("%+")
    return unquote(source), tuple([unquote(part) for part in parts])


class NamedId(NamedTuple):
    """What a readable mark says. Without a source it counts for messages that have none, and by hand for all."""

    source: str
    parts: tuple[str, ...]
    id: str


def read_id(text: str) -> NamedId:
    match = _READABLE_ID.fullmatch(text)
    if match is None:
        return NamedId("", (), text)
    source, *parts = match["name"].split("+")
    return NamedId(unquote(source), tuple([unquote(part) for part in parts]), match["id"])


def moved_here(ledgers: list[EntityLedger], attribute: str) -> list[EntityLedger]:
    """The ledgers whose labels say that they have moved to this attribute, at once or by way of another."""
    direct = [ledger for ledger in ledgers if ledger.moved_to == attribute and ledger.attribute != attribute]
    rest = [ledger for ledger in ledgers if ledger not in direct]
    return [*direct, *[indirect for ledger in direct for indirect in moved_here(rest, ledger.attribute)]]


def kept_as(ledger: EntityLedger) -> Ledger:
    """The ledger whose label stands there. Where there is none, it is the one that a store has which nobody told otherwise."""
    if ledger.label is not None and ledger.moved_to is None:
        return ledger.label.ledger
    if ledger.text is not ABSENT:
        raise LedgerMismatch(unread(ledger.attribute, ledger.text))
    return SeenIds(name=ledger_name(ledger.attribute)) if ledger.is_new else MessageIds(ledger.attribute)


def as_read(
    image: EntityImage, family: Iterable[EntityLedger], slots: Iterable[Slot] = (), fields: Iterable[str] = ()
) -> tuple[str, ...]:
    """The fields that must still be as they were read, for a repair that looks at these ledgers and changes these slots and fields.

    Every guarded write changes the entity's token. On an engine without tokens it changes one of the ledger's fields: there all of
    them are among these. So none goes unseen.
    """
    names, all_slots = [STEPS, TOMBSTONE], list(slots)
    if image.layout.has_token:
        names.append(TOKEN)
    for stored_ledger in family:
        all_slots.append(Slot(stored_ledger.attribute))
        for ledger in stored_ledger.ledgers if stored_ledger.moved_to else (kept_as(stored_ledger), *stored_ledger.ledgers):
            all_slots.extend(_slots_of_sets(ledger))
        if not image.layout.has_token:
            names.extend([*image.fields_of(stored_ledger.attribute), f"{make_name_prefix(stored_ledger.attribute)}@"])
    return tuple(dict.fromkeys([*names, *map(image.layout.field_of, all_slots), *fields]))


def _slots_of_sets(ledger: Ledger) -> tuple[Slot, ...]:
    """All slots in which it keeps ids, which are the same at any time."""
    if not isinstance(ledger, SeenIds | MessageIds):
        return ()
    sets = cast("Remember", ledger.entry(Message("any"), 0).own).sets
    return (*sets.live, *sets.dead)
