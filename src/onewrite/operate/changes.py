"""The changes that `forget`, `set-mark`, and `clear` make, and their consequences for messages. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from shlex import quote
from typing import cast

from onewrite.core.effect import read_effect
from onewrite.core.features.tombstone import read_tombstone
from onewrite.core.label import TOKEN, TOMBSTONE, Slot, is_ours
from onewrite.core.ledgers import HighWaterMark
from onewrite.core.ledgers.entry import ABSENT
from onewrite.core.ledgers.marks import locate_mark
from onewrite.message import Message, full_name, is_sortable, sortable
from onewrite.operate.image import (
    CannotRepair,
    Edit,
    EntityImage,
    EntityLedger,
    choose_ledger,
    drop_members,
    find_ledgers,
    find_predecessors,
    find_text_sets,
    list_read_fields,
    make_remember,
)
from onewrite.operate.options import read_sequence
from onewrite.operate.predictions import (
    Inquiry,
    Prediction,
    judge,
    list_hints,
    list_possible_ledgers,
    predict_outcomes,
    resolve_event,
)
from onewrite.operate.report import NothingToDo, format_count

Drop = tuple[Slot, tuple[str, ...]]

_FORGETS_WRITER = (
    "The token of the last write is removed too. If the response to that write was just lost, its retry is no longer "
    "recognized as the same write."
)


@dataclass(frozen=True, slots=True)
class Repair:
    """An edit with its description: the changes in the entity, and the consequences for messages."""

    edit: Edit
    changes: tuple[str, ...]
    effects: tuple[str, ...]


def forget(image: EntityImage, inquiry: Inquiry) -> Repair:
    """Plan an edit after which a message takes effect once more."""
    inquiry = resolve_event(image, inquiry)
    ledgers = find_ledgers(image, inquiry.now, inquiry.attribute)
    _check_alive(image)
    choices = _list_changeable(ledgers, inquiry.attribute)
    holders = [(ledger, drops) for ledger in choices if (drops := _find_drops(ledger, ledgers, inquiry))]
    if len(holders) > 1:
        names = " and ".join([repr(ledger.attribute) for ledger, _ in holders])
        raise CannotRepair(f"Several ledgers hold the message: {names}. Choose one with --attribute.")
    if not holders:
        _check_forgettable(choices, inquiry)
        for prediction in predict_outcomes(image, inquiry):
            if prediction.is_known:
                raise CannotRepair(
                    f"No ledger here can forget {full_name(inquiry.message)}, because {_describe_prediction(prediction)}."
                )
        hint = "".join([f" {hint}" for hint in list_hints(image, inquiry)])
        raise NothingToDo(f"No ledger of {image.name} holds {full_name(inquiry.message)}. Nothing was forgotten.{hint}")
    ((ledger, drops),) = holders
    family = [ledger, *find_predecessors(ledgers, ledger.attribute)]
    fields = list_read_fields(image, family, [slot for slot, _ in drops])
    edit = Edit(fields, removes=_list_token(image), drops=tuple(drops))
    after = drop_members(image, edit)
    prediction = judge(after, list_possible_ledgers(ledger, ledgers)[0], inquiry.message, inquiry.now)
    if prediction.outcome != "Applied":
        raise CannotRepair(
            f"Forgetting it wouldn't help. A delivery would still be {prediction.outcome}, because {prediction.why}."
        )
    others = [other for other in predict_outcomes(after, replace(inquiry, attribute=None)) if other.is_known]
    changes = tuple([f"{image.layout.place_of(slot)} loses {member!r}" for slot, members in drops for member in members])
    return Repair(edit, changes, tuple(_describe_forgetting(image, inquiry.message, drops, others)))


def _format_source_options(name: Message) -> list[str]:
    """Return the options that name a message's source, as a shell reads them."""
    source = [f"--source {quote(name.source)}"] if name.source else []
    return [*source, *[f"--part {quote(part)}" for part in name.parts]]


def _list_changeable(ledgers: list[EntityLedger], attribute: str | None) -> list[EntityLedger]:
    """Return the ledgers that can be changed."""
    for ledger in ledgers:
        if ledger.attribute == attribute and ledger.moved_to:
            raise CannotRepair(
                f"The ledger in {attribute!r} has moved to {ledger.moved_to!r}. Pass --attribute {quote(ledger.moved_to)}, "
                "which includes the old ledger."
            )
    choices = [
        ledger
        for ledger in ledgers
        if attribute in (None, ledger.attribute) and not ledger.moved_to and (ledger.size or ledger.is_named)
    ]
    if not choices:
        where = "the entity" if attribute is None else repr(attribute)
        raise CannotRepair(f"There is no ledger in {where}. To list the ledgers, run `onewrite inspect`.")
    for ledger in choices:
        choose_ledger(ledger)  # raises if another format version or a later onewrite wrote it
    return choices


def _find_drops(stored_ledger: EntityLedger, ledgers: list[EntityLedger], inquiry: Inquiry) -> list[Drop]:
    """Return the message's marks, in every spelling, from every set that a store with this ledger can read."""
    drops: list[Drop] = []
    for family_ledger in (stored_ledger, *find_predecessors(ledgers, stored_ledger.attribute)):
        for ids in family_ledger.sets:
            change = make_remember(ids.ledger, inquiry.message, inquiry.now)
            members = tuple([mark for mark in (change.mark, *change.aliases) if mark in ids.ids])
            drops.extend([(ids.slot, members)] if members else [])
    return drops


def _check_forgettable(choices: list[EntityLedger], inquiry: Inquiry) -> None:
    """Raise CannotRepair if a ledger can't forget a single message, because it keeps one mark per source."""
    for stored_ledger in choices:
        ledger = choose_ledger(stored_ledger)
        if isinstance(ledger, HighWaterMark):
            command = " ".join(["onewrite set-mark", *_format_source_options(inquiry.message), "--sequence N"])
            raise CannotRepair(
                f"The ledger {stored_ledger.attribute!r} can't forget a single message, because it keeps one mark per source. "
                f"To apply messages again, move the mark back with `{command}`, where N is the number before the first of "
                "them. Every later message of the source then takes effect again if it is redelivered."
            )


def _describe_prediction(prediction: Prediction) -> str:
    return (
        f"{prediction.ledger or 'a store'} in {prediction.attribute} returns {prediction.outcome}, because {prediction.why}"
    )


def _describe_forgetting(image: EntityImage, message: Message, drops: list[Drop], others: list[Prediction]) -> Iterator[str]:
    yield (
        f"The next delivery of {full_name(message)} takes effect again, once. Undo the first effect before, or it happens twice."
    )
    if others:
        yield f"Stores with another ledger, also as previous=, still refuse it: {'; '.join(map(_describe_prediction, others))}."
    for slot, members in drops:
        # Only IdSet gives a plain ID this meaning. Its set is the user's own attribute.
        if message.id in members and not is_ours(slot.group):
            yield (
                f"{image.layout.place_of(slot)} holds the ID alone, which counts for every source. Message {message.id!r} of any "
                "other source takes effect again too."
            )
    if _list_token(image):
        yield _FORGETS_WRITER


@dataclass(frozen=True, slots=True)
class TargetMark:
    """A source's new mark, as the operator wrote it, or None to remove it."""

    source: str
    parts: tuple[str, ...]
    value: str | None
    attribute: str | None = None


def set_mark(image: EntityImage, target: TargetMark, now: float) -> Repair:
    """Plan an edit that moves a source's mark, or removes it."""
    _check_alive(image)
    ledger = _choose_mark_ledger(find_ledgers(image, now, target.attribute), target.attribute)
    if not target.source:
        raise CannotRepair("A mark belongs to a source. Pass --source. `onewrite inspect` shows the entity's sources.")
    slot = locate_mark(ledger.attribute, target.source, target.parts)
    before = image.slots.get(slot, ABSENT)
    if before is not ABSENT and type(before) not in (int, str):
        raise CannotRepair(
            f"{image.layout.place_of(slot)} holds {before!r}, which isn't a mark. Another writer uses this field. Repair it by hand."
        )
    _check_no_effect(image, ledger.attribute, target)
    mark = None if target.value is None else parse_mark(image, target.value, before)
    if mark == before or (mark is None and before is ABSENT):
        raise NothingToDo(f"{image.layout.place_of(slot)} is already {'absent' if mark is None else repr(mark)}.")
    edit = Edit(
        list_read_fields(image, [ledger], [slot]),
        removes=() if _moves_forward(before, mark) else _list_token(image),
        unsets=(slot,) if mark is None else (),
        sets=() if mark is None else ((slot, mark),),
    )
    was = "nothing" if before is ABSENT else repr(before)
    becomes = "is removed" if mark is None else f"becomes {mark!r}"
    effects = _describe_moved_mark(target, before, mark)
    return Repair(
        edit, (f"{image.layout.place_of(slot)}: {was} {becomes}",), (*effects, *([_FORGETS_WRITER] if edit.removes else []))
    )


def _choose_mark_ledger(ledgers: list[EntityLedger], attribute: str | None) -> EntityLedger:
    """Return the ledger of marks. Raise if there is none, or if there are several."""
    candidates = [
        ledger for ledger in _list_changeable(ledgers, attribute) if isinstance(choose_ledger(ledger), HighWaterMark)
    ]
    if not candidates:
        raise CannotRepair(
            "There is no ledger of marks, such as HighWaterMark or InSequence. Other ledgers keep single messages. To let a "
            "message take effect again, run `onewrite forget`."
        )
    if len(candidates) > 1:
        names = " and ".join([repr(ledger.attribute) for ledger in candidates])
        raise CannotRepair(f"There are ledgers of marks in {names}. Choose one with --attribute.")
    return candidates[0]


def parse_mark(image: EntityImage, text: str, before: object) -> int | str:
    """Return the operator's text as a mark that is comparable with the current one."""
    sequence = read_sequence(text)
    if isinstance(before, str):
        if isinstance(sequence, str):
            mark = sequence
        else:
            mark = sortable(sequence) if sequence >= 0 and is_sortable(before) else text
        # Texts of digits are in the order of their numbers only if they have the same length.
        is_padded_alike = mark.isdigit() and len(mark) == len(before)
        if is_sortable(before) != is_sortable(mark) or (before.isdigit() and not is_padded_alike):
            raise CannotRepair(
                f"The mark is {before!r}, and {text!r} isn't comparable with it. Use the same spelling, with as many digits."
            )
        return mark
    if isinstance(sequence, str) and before is not ABSENT:
        raise CannotRepair(f"The mark is the number {before}, but {text!r} isn't a number. Pass a number.")
    if isinstance(sequence, int) and abs(sequence) > image.layout.max_number:
        raise CannotRepair(
            f"{image.layout.engine} can't store {text} exactly. Pass onewrite.sortable({text}), which is "
            f"{sortable(abs(sequence))!r}."
        )
    return sequence


def _moves_forward(before: object, mark: int | str | None) -> bool:
    """Whether the ledger refuses more messages after the change. `parse_mark` has made sure that the marks are comparable."""
    return before is ABSENT or (mark is not None and cast("int", mark) > cast("int", before))


def _describe_moved_mark(target: TargetMark, before: object, mark: int | str | None) -> Iterator[str]:
    source = f"source {target.source!r}" + "".join([f", part {part!r}" for part in target.parts])
    if mark is None:
        yield f"Every sequence of {source} up to {before!r} takes effect again if it is redelivered."
        yield "InSequence waits for the source's first number again. Until it arrives, all others are Deferred."
    elif before is ABSENT:
        yield (
            f"Every sequence of {source} up to {mark!r} is refused from now on, as Duplicate or Stale, even if it hasn't "
            "taken effect."
        )
    elif _moves_forward(before, mark):
        yield (
            f"{_describe_span(before, mark)} of {source}: refused from now on, as Duplicate or Stale. Messages that haven't taken "
            "effect never will."
        )
    else:
        yield f"{_describe_span(mark, before)} of {source}: each takes effect again if it is redelivered."
    if mark is not None:
        yield (
            f"InSequence waits for {mark + 1} next."
            if isinstance(mark, int)
            else "HighWaterMark accepts every later sequence."
        )


def _describe_span(low: object, high: object) -> str:
    """Return a description of the sequences after `low`, up to `high`."""
    if isinstance(low, int) and isinstance(high, int):
        return f"Sequence {high}" if low + 1 == high else f"Sequences {low + 1} to {high}"
    return f"The sequences after {low!r} up to {high!r}"


def _check_no_effect(image: EntityImage, attribute: str, target: TargetMark) -> None:
    """Raise if a message of the source has an open effect, which couldn't finish after the change."""
    for value in image.effects.values():
        effect = read_effect(value)
        is_same = effect.message.source == target.source and effect.message.parts == target.parts
        if is_same and effect.ledger == attribute:
            raise CannotRepair(
                f"The {full_name(effect.message)} has an open effect, which couldn't finish after this change. Wait until it is "
                "finished, or release it. To list open effects, run `onewrite effects`."
            )


def clear(image: EntityImage, attribute: str | None, now: float) -> Repair:
    """Plan an edit that empties a ledger."""
    _check_alive(image)
    ledgers = find_ledgers(image, now, attribute)
    ledger = _choose_ledger_to_clear(ledgers, attribute)
    if any(read_effect(effect).ledger == ledger.attribute for effect in image.effects.values()):
        raise CannotRepair(
            "The ledger has an open effect. Wait until it is finished, or release it. To list open effects, run `onewrite effects`."
        )
    fields = [name for name in image.list_fields(ledger.attribute) if name != ledger.attribute]
    if not fields:
        raise NothingToDo(f"The ledger {ledger.attribute!r} is already empty.")
    label = [] if ledger.moved_to else [ledger.attribute]  # a label that sends older stores to another ledger stays
    edit = Edit(list_read_fields(image, [ledger], [], fields), removes=(*fields, *label, *_list_token(image)))
    return Repair(
        edit, tuple([f"{name} is removed" for name in edit.removes]), tuple(_describe_clearing(image, ledger, ledgers))
    )


def _choose_ledger_to_clear(ledgers: list[EntityLedger], attribute: str | None) -> EntityLedger:
    """Return the ledger that is known to be onewrite's. Raise if there is none, or if there are several."""
    candidates = [
        ledger
        for ledger in ledgers
        if attribute in (None, ledger.attribute) and (ledger.label is not None or ledger.version is not None)
    ]
    if len(candidates) > 1:
        names = ", ".join([repr(ledger.attribute) for ledger in candidates])
        raise CannotRepair(f"There are several ledgers: {names}. Choose one with --attribute.")
    if not candidates:
        where = "in the entity" if attribute is None else f"in {attribute!r}"
        raise CannotRepair(f"There is no ledger label {where}. Nothing there is known to be onewrite's.")
    if not candidates[0].moved_to:
        choose_ledger(candidates[0])  # raises if a later onewrite wrote it
    return candidates[0]


def _describe_clearing(image: EntityImage, ledger: EntityLedger, ledgers: list[EntityLedger]) -> Iterator[str]:
    if ids := sum([len(id_set.ids) for id_set in ledger.sets]):
        yield (
            f"{format_count(ids, 'id is', 'ids are')} forgotten. Each of these messages takes effect again if it is redelivered."
        )
    for mark in ledger.marks:
        yield from _describe_moved_mark(TargetMark(mark.source, mark.parts, value=None), mark.mark, mark=None)
    earlier = [former.attribute for former in find_predecessors(ledgers, ledger.attribute) if former.ledgers]
    if ledger.ledgers and (others := [*earlier, *find_text_sets(image)]):
        yield (
            f"Marks in {', '.join(map(repr, others))} stay. Stores with that ledger in previous= still refuse these messages."
        )
    yield "This includes messages in queues and dead-letter queues, and replays."


def _check_alive(image: EntityImage) -> None:
    if TOMBSTONE in image.fields:
        read_tombstone(image.fields[TOMBSTONE])  # raises if another writer uses the attribute
        raise CannotRepair(
            "The entity was deleted, and its tombstone refuses every message. The database's TTL removes the tombstone."
        )


def _list_token(image: EntityImage) -> tuple[str, ...]:
    """Return the field with the token of the last write, if there is one."""
    return (TOKEN,) if TOKEN in image.fields else ()
