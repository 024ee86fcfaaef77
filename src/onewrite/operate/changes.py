"""What `forget`, `set-mark` and `clear` change of an entity, and what would take effect again, or never, after it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from shlex import quote
from typing import cast

from onewrite.core.label import TOKEN, TOMBSTONE, Slot, is_ours
from onewrite.core.ledgers import HighWaterMark
from onewrite.core.ledgers.entry import ABSENT, Remember
from onewrite.core.ledgers.marks import mark_slot
from onewrite.core.step import read_step
from onewrite.errors import InvalidMessage, LedgerMismatch
from onewrite.identity.cloudevents import cloudevent_key
from onewrite.message import Message, full_name, is_sortable, sortable
from onewrite.operate.answers import Inquiry, Prediction, answers_to, judge, stores_ledgers
from onewrite.operate.image import (
    CannotRepair,
    Edit,
    EntityImage,
    EntityLedger,
    as_read,
    held_ledgers,
    kept_as,
    moved_here,
    read_id,
    sets_of_texts,
    without,
)
from onewrite.operate.options import sequence_of
from onewrite.operate.report import NothingToDo, count_of

Drop = tuple[Slot, tuple[str | bytes, ...]]

_MOST_HINTS = 10

_NAME_IT = "A message is known by its id together with its source and its parts, which its line in the log shows: give --source and --part if it has any."
_FORGETS_WRITER = (
    "The token of the last write goes as well. Otherwise that write could be called Applied, if its response was lost just now, although "
    "nothing remembers it. If it landed, it may be called Duplicate instead."
)


@dataclass(frozen=True, slots=True)
class Repair:
    """A edit, and what to say of it: what it changes in the entity, and what that means for messages."""

    edit: Edit
    changes: tuple[str, ...]
    effects: tuple[str, ...]


# --- forget -------------------------------------------------------------------------------------------------------------


def forget(image: EntityImage, inquiry: Inquiry) -> Repair:
    """Let a message take effect once more."""
    ledgers = held_ledgers(image, inquiry.now, inquiry.attribute)
    _check_alive(image)
    choices = _choices(ledgers, inquiry.attribute)
    holders = [(ledger, drops) for ledger in choices if (drops := _drops(ledger, ledgers, inquiry))]
    if len(holders) > 1:
        names = " and ".join([repr(ledger.attribute) for ledger, _ in holders])
        raise CannotRepair(f"The ledgers {names} both hold the message: say with --attribute which of them shall forget it.")
    if not holders:
        _check_answerable(choices, inquiry)
        for answer in answers_to(image, inquiry):
            if answer.is_known:
                raise CannotRepair(f"No ledger here can forget {full_name(inquiry.message)}: {_told(answer)}.")
        hint = " ".join(hints(image, inquiry) or (_NAME_IT,))
        raise NothingToDo(
            f"No ledger of {image.name} holds {full_name(inquiry.message)}: there is nothing to forget. {hint}"
        )
    ((ledger, drops),) = holders
    family = [ledger, *moved_here(ledgers, ledger.attribute)]
    fields = as_read(image, family, [slot for slot, _ in drops])
    edit = Edit(fields, removes=_token(image), drops=tuple(drops))
    after = without(image, edit)
    answer = judge(after, stores_ledgers(ledger, ledgers)[0], inquiry.message, inquiry.now)
    if not answer.is_applied:
        raise CannotRepair(f"That would not help: a delivery would still get {answer.outcome}, because {answer.why}.")
    others = [other for other in answers_to(after, replace(inquiry, attribute=None)) if other.is_known]
    changes = tuple(
        [
            f"{image.layout.place_of(slot)} loses {member.hex() if isinstance(member, bytes) else repr(member)}"
            for slot, members in drops
            for member in members
        ]
    )
    return Repair(edit, changes, tuple(_effects_of_forgetting(image, inquiry.message, drops, others)))


def known_as(image: EntityImage, inquiry: Inquiry) -> list[Message]:
    """The message under other sources and parts, or as a CloudEvent of this id, where a ledger holds it so or a step of it is open.

    A ledger may keep no more than hashes. So this tries what the entity shows: the sources and parts of marks, readable ids and steps, and the
    texts and numbers of its own fields, because the source of a message most often is the key of what it changes.
    """
    ledgers = held_ledgers(image, inquiry.now, inquiry.attribute)
    steps: list[Message] = []
    for value in image.steps.values():
        with suppress(LedgerMismatch):  # a damaged one, of which `inspect` tells
            steps.append(read_step(value).message)
    pairs = [
        *_shown_sources(ledgers),
        *[(step.source, step.parts) for step in steps if step.id in _ids(step.source, inquiry)],
    ]
    sources = {"": None, inquiry.message.source: None} | {source: None for source, _ in pairs}
    sources |= dict.fromkeys(
        [
            text
            for name, value in image.raw.items()
            if not is_ours(name) and (text := image.layout.spelling_of(value)) is not None
        ]
    )
    all_parts = {(): None, inquiry.message.parts: None} | {parts: None for _, parts in pairs}
    messages: list[Message] = []
    for source, parts in product(sources, all_parts):
        for own_id in _ids(source, inquiry):
            if (own_id, source, parts) == (inquiry.message.id, inquiry.message.source, inquiry.message.parts):
                continue
            try:
                message = Message(own_id, source=source, sequence=inquiry.message.sequence, parts=parts)
            except InvalidMessage:  # a field that is too long for a source
                continue
            variant = replace(inquiry, message=message)
            is_open = any((step.id, step.source, step.parts) == (message.id, source, parts) for step in steps)
            if is_open or any(_drops(ledger, ledgers, variant) for ledger in ledgers if not ledger.moved_to):
                messages.append(message)
    return messages


def _ids(source: str, inquiry: Inquiry) -> tuple[str, ...]:
    """What was asked for, and the id of the message that `cloudevent()` makes of an event of this id."""
    own_id = inquiry.message.id
    return (own_id, cloudevent_key(source, own_id)) if source else (own_id,)


def _shown_sources(ledgers: list[EntityLedger]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for ledger in ledgers:
        yield from [(mark.source, mark.parts) for mark in ledger.marks]
        for text in [member for ids in ledger.sets for member in ids.ids if isinstance(member, str)]:
            named_id = read_id(text)
            yield named_id.source, named_id.parts


def hints(image: EntityImage, inquiry: Inquiry) -> tuple[str, ...]:
    """What is to be given besides, if the entity does not know a message that should be known."""
    message = inquiry.message
    lines = list[str]()
    for namesake in known_as(image, inquiry)[:_MOST_HINTS]:
        parts = [f"--part {quote(part)}" for part in namesake.parts]
        options = [f"--source {quote(namesake.source)}", *parts] if namesake.source or parts else ["no --source"]
        if namesake.id != message.id:  # a CloudEvent's
            options = [f"--message {quote(namesake.id)}", *options]
        lines.append(f"It knows {full_name(replace(namesake, sequence=None))}: for that one give {' '.join(options)}.")
    if lines:
        return tuple(lines)
    ledgers = held_ledgers(image, inquiry.now, inquiry.attribute)
    sources = {mark.source for ledger in ledgers for mark in ledger.marks}
    if sources and message.source not in sources:
        examples = ", ".join([repr(source) for source in sorted(sources)[:_MOST_HINTS]])
        more = f" and {len(sources) - _MOST_HINTS} more" if len(sources) > _MOST_HINTS else ""
        return (f"The entity has marks of the sources {examples}{more}, and none of {message.source!r}.", _NAME_IT)
    return () if message.source else (_NAME_IT,)


def _choices(ledgers: list[EntityLedger], attribute: str | None) -> list[EntityLedger]:
    """The ledgers in which something may be changed."""
    for ledger in ledgers:
        if ledger.attribute == attribute and ledger.moved_to:
            raise CannotRepair(
                f"The ledger of {attribute!r} has moved to {ledger.moved_to!r}: give --attribute {ledger.moved_to}. What it still holds is looked "
                "into from there."
            )
    choices = [
        ledger
        for ledger in ledgers
        if attribute in (None, ledger.attribute) and not ledger.moved_to and (ledger.size or ledger.is_named)
    ]
    if not choices:
        where = "the entity" if attribute is None else repr(attribute)
        raise CannotRepair(f"There is no ledger in {where}. `onewrite inspect` shows what there is.")
    for ledger in choices:
        kept_as(ledger)  # raises where another version of the format, or a later onewrite, has written it
    return choices


def _drops(stored_ledger: EntityLedger, ledgers: list[EntityLedger], inquiry: Inquiry) -> list[Drop]:
    """The marks of the message, in every spelling and in every set that some store may look into."""
    drops: list[Drop] = []
    for family_ledger in (stored_ledger, *moved_here(ledgers, stored_ledger.attribute)):
        for ids in family_ledger.sets:
            own = cast("Remember", ids.ledger.entry(inquiry.message, inquiry.now).own)
            members = tuple([mark for mark in (own.mark, *own.aliases) if mark in ids.ids])
            drops.extend([(ids.slot, members)] if members else [])
    return drops


def _check_answerable(choices: list[EntityLedger], inquiry: Inquiry) -> None:
    """Raise where a ledger cannot say whether it holds the message, or cannot forget a single one."""
    for stored_ledger in choices:
        ledger = kept_as(stored_ledger)
        if isinstance(ledger, HighWaterMark):
            source = f" --source {inquiry.message.source}" if inquiry.message.source else ""
            source += "".join([f" --part {part}" for part in inquiry.message.parts])
            raise CannotRepair(
                f"The ledger {stored_ledger.attribute!r} keeps one mark for each source and no single messages, so it cannot forget one. To let "
                f"messages of a source take effect again, move its mark back: onewrite set-mark{source} --sequence N, where N is the one before the first of "
                "them. All that come after it take effect again then, if they are delivered again."
            )


def _told(answer: Prediction) -> str:
    return f"{answer.ledger or 'a store'} in {answer.attribute} answers {answer.outcome}, because {answer.why}"


def _effects_of_forgetting(
    image: EntityImage, message: Message, drops: list[Drop], others: list[Prediction]
) -> Iterator[str]:
    yield f"The next delivery of {full_name(message)} takes effect again, once. If its first effect is still there, it will be there twice."
    if others:
        yield f"Some stores still keep it out: {'; '.join(map(_told, others))}."
    plain = [slot for slot, members in drops if message.source and message.id in members]
    for slot in plain:
        yield (
            f"{image.layout.place_of(slot)} holds the id alone, which counts for every source: message {message.id!r} of any other source "
            "takes effect again as well."
        )
    if _token(image):
        yield _FORGETS_WRITER


# --- set-mark -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetMark:
    """The mark that a source shall have: a text as the operator writes it, or None to remove it."""

    source: str
    parts: tuple[str, ...]
    value: str | None
    attribute: str | None = None


def set_mark(image: EntityImage, target: TargetMark, now: float) -> Repair:
    """Move the mark of a source, back or on, or remove it."""
    _check_alive(image)
    ledger = _ledger_of_marks(held_ledgers(image, now, target.attribute), target.attribute)
    if not target.source:
        raise CannotRepair("A mark belongs to a source. Name it with --source; onewrite inspect shows the entity's sources.")
    slot = mark_slot(ledger.attribute, target.source, target.parts)
    before = image.slots.get(slot, ABSENT)
    if before is not ABSENT and type(before) not in (int, str):
        raise CannotRepair(
            f"{image.layout.place_of(slot)} holds {before!r}, which is no mark: another writer uses it. Repair it by hand."
        )
    _check_no_step(image, ledger.attribute, target)
    mark = None if target.value is None else as_mark(image, target.value, before)
    if mark == before or (mark is None and before is ABSENT):
        raise NothingToDo(f"{image.layout.place_of(slot)} is {'not there' if mark is None else repr(mark)} already.")
    edit = Edit(
        as_read(image, [ledger], [slot]),
        removes=() if _moves_on(before, mark) else _token(image),
        unsets=(slot,) if mark is None else (),
        sets=() if mark is None else ((slot, mark),),
    )
    was = "nothing" if before is ABSENT else repr(before)
    becomes = "is removed" if mark is None else f"becomes {mark!r}"
    effects = _effects_of_mark(target, before, mark)
    return Repair(
        edit, (f"{image.layout.place_of(slot)}: {was} {becomes}",), (*effects, *([_FORGETS_WRITER] if edit.removes else []))
    )


def _ledger_of_marks(ledgers: list[EntityLedger], attribute: str | None) -> EntityLedger:
    candidates = [ledger for ledger in _choices(ledgers, attribute) if isinstance(kept_as(ledger), HighWaterMark)]
    if not candidates:
        raise CannotRepair(
            "There is no ledger of marks, as HighWaterMark and InSequence keep them. The others keep single messages: `onewrite forget` "
            "lets one of these take effect again."
        )
    if len(candidates) > 1:
        names = " and ".join([repr(ledger.attribute) for ledger in candidates])
        raise CannotRepair(f"There are ledgers of marks in {names}: say with --attribute which one is meant.")
    return candidates[0]


def as_mark(image: EntityImage, text: str, before: object) -> int | str:
    """The operator's text as a mark that compares with the one that is there."""
    sequence = sequence_of(text)
    if isinstance(before, str):
        is_number = isinstance(sequence, int) and sequence >= 0 and is_sortable(before)
        mark = sortable(cast("int", sequence)) if is_number else text if isinstance(sequence, int) else sequence
        if is_sortable(before) != is_sortable(mark) or (
            before.isdigit() and (len(before), True) != (len(mark), mark.isdigit())
        ):
            raise CannotRepair(
                f"The mark is {before!r}, and {text!r} does not compare with it. Give it in the same spelling, with as many digits."
            )
        return mark
    if isinstance(sequence, str) and before is not ABSENT:
        raise CannotRepair(f"The mark is the number {before}, and {text!r} is none: give a number.")
    if isinstance(sequence, int) and abs(sequence) > image.layout.largest:
        raise CannotRepair(
            f"{image.layout.engine} cannot store {text}: give onewrite.sortable({text}), which is {sortable(abs(sequence))!r}."
        )
    return sequence


def _moves_on(before: object, mark: int | str | None) -> bool:
    return before is ABSENT or (mark is not None and cast("int", mark) > cast("int", before))


def _effects_of_mark(target: TargetMark, before: object, mark: int | str | None) -> Iterator[str]:
    of = f"of source {target.source!r}" + "".join([f", part {part!r}" for part in target.parts])
    if mark is None:
        yield f"Every sequence {of} up to {before!r} takes effect again if it is delivered again."
        yield "InSequence waits for the first number of the source again: until that comes, all others are Deferred."
    elif before is ABSENT:
        yield f"Every sequence {of} up to {mark!r} is refused from now on, as Duplicate or Stale, whether it has taken effect or not."
    elif _moves_on(before, mark):
        yield f"{_span(before, mark)} {of}: each is refused from now on, as Duplicate or Stale, and never takes effect if it has not yet."
    else:
        yield f"{_span(mark, before)} {of}: each takes effect again if it is delivered again."
    if mark is not None:
        yield (
            f"InSequence waits for {mark + 1} next." if isinstance(mark, int) else "HighWaterMark takes what sorts after it."
        )


def _span(low: object, high: object) -> str:
    """The sequences after `low`, up to `high`."""
    if isinstance(low, int) and isinstance(high, int):
        return f"Sequence {high}" if low + 1 == high else f"Sequences {low + 1} to {high}"
    return f"The sequences after {low!r} up to {high!r}"


def _check_no_step(image: EntityImage, attribute: str, target: TargetMark) -> None:
    for value in image.steps.values():
        step = read_step(value)
        is_same = step.message.source == target.source and step.message.parts == target.parts
        if is_same and step.ledger == attribute:
            raise CannotRepair(
                f"The {full_name(step.message)} has a step open, and could not finish it if the mark were moved: let it finish "
                "first, or release it. `onewrite steps` lists open steps."
            )


# --- clear --------------------------------------------------------------------------------------------------------------


def clear(image: EntityImage, attribute: str | None, now: float) -> Repair:
    """Empty a ledger."""
    _check_alive(image)
    ledgers = held_ledgers(image, now, attribute)
    ledger = _to_clear(ledgers, attribute)
    if any(read_step(step).ledger == ledger.attribute for step in image.steps.values()):
        raise CannotRepair(
            "A step of this ledger is open: let it finish first, or release it. `onewrite steps` lists open steps."
        )
    fields = [name for name in image.fields_of(ledger.attribute) if name != ledger.attribute]
    if not fields:
        raise NothingToDo(f"The ledger {ledger.attribute!r} holds nothing.")
    # The label goes last: without it nobody would know what the others are. One that sends older stores to another ledger stays.
    last = [] if ledger.moved_to else [ledger.attribute]
    edit = Edit(as_read(image, [ledger], [], fields), removes=(*fields, *last, *_token(image)))
    return Repair(
        edit, tuple([f"{name} is removed" for name in edit.removes]), tuple(_effects_of_clearing(image, ledger, ledgers))
    )


def _to_clear(ledgers: list[EntityLedger], attribute: str | None) -> EntityLedger:
    candidates = [
        ledger
        for ledger in ledgers
        if attribute in (None, ledger.attribute) and (ledger.label is not None or ledger.version is not None)
    ]
    if len(candidates) > 1:
        names = ", ".join([repr(ledger.attribute) for ledger in candidates])
        raise CannotRepair(f"There are several ledgers: {names}. Say with --attribute which of them is to be cleared.")
    if not candidates:
        where = "in the entity" if attribute is None else f"in {attribute!r}"
        raise CannotRepair(f"There is no label of a ledger {where}, so nothing there is known to be onewrite's.")
    if not candidates[0].moved_to:
        kept_as(candidates[0])  # raises where a later onewrite has written it
    return candidates[0]


def _effects_of_clearing(image: EntityImage, ledger: EntityLedger, ledgers: list[EntityLedger]) -> Iterator[str]:
    if ids := sum([len(id_set.ids) for id_set in ledger.sets]):
        yield f"{count_of(ids, 'id is', 'ids are')} forgotten: each of their messages takes effect again if it is delivered again."
    for mark in ledger.marks:
        yield from _effects_of_mark(TargetMark(mark.source, mark.parts, None), mark.mark, None)
    earlier = [former.attribute for former in moved_here(ledgers, ledger.attribute) if former.ledgers]
    if ledger.ledgers and (others := [*earlier, *sets_of_texts(image)]):
        yield f"What {', '.join(map(repr, others))} may hold of them stays: a store that looks there, by its also=, still refuses it."
    yield "That includes what waits in queues and dead-letter queues, and what somebody replays."


# --- what they have in common -------------------------------------------------------------------------------------------


def _check_alive(image: EntityImage) -> None:
    if TOMBSTONE in image.fields:
        raise CannotRepair(
            "The entity was deleted, and its tombstone refuses every message whatever the ledger says. The database removes it by its TTL."
        )


def _token(image: EntityImage) -> tuple[str, ...]:
    """Return the field that holds the token of the last write, if there is one."""
    return (TOKEN,) if TOKEN in image.fields else ()
