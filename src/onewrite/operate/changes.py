"""The changes that `forget`, `set-mark`, and `clear` make, and their consequences for messages. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from shlex import quote
from typing import cast

from onewrite.core.effect import read_effect
from onewrite.core.features.tombstone import read_tombstone
from onewrite.core.label import TOKEN, TOMBSTONE, Slot, is_ours
from onewrite.core.ledgers import HighWaterMark
from onewrite.core.ledgers.entry import ABSENT
from onewrite.core.ledgers.marks import locate_mark
from onewrite.errors import InvalidMessage, LedgerMismatch
from onewrite.identity.cloudevents import cloudevent_key
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
    read_id,
)
from onewrite.operate.options import read_sequence
from onewrite.operate.predictions import Inquiry, Prediction, judge, list_possible_ledgers, predict_outcomes
from onewrite.operate.report import NothingToDo, format_count

Drop = tuple[Slot, tuple[str, ...]]

_MAX_HINTS = 10

_NAME_IT = (
    "A message's ID is unique only with its source and parts. Its log line shows them: pass --source and "
    "--part if it has any."
)
_FORGETS_WRITER = (
    "The token of the last write is removed too. Otherwise that write, if its response was just lost, could "
    "count as Applied although no ledger remembers it. If it landed, it can count as Duplicate instead."
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
        raise CannotRepair(f"The ledgers {names} both hold the message. Choose the one to change with --attribute.")
    if not holders:
        _check_forgettable(choices, inquiry)
        for prediction in predict_outcomes(image, inquiry):
            if prediction.is_known:
                raise CannotRepair(
                    f"No ledger here can forget {full_name(inquiry.message)}: {_describe_prediction(prediction)}."
                )
        hint = " ".join(list_hints(image, inquiry) or (_NAME_IT,))
        raise NothingToDo(
            f"No ledger of {image.name} holds {full_name(inquiry.message)}, so there is nothing to forget. {hint}"
        )
    ((ledger, drops),) = holders
    family = [ledger, *find_predecessors(ledgers, ledger.attribute)]
    fields = list_read_fields(image, family, [slot for slot, _ in drops])
    edit = Edit(fields, removes=_list_token(image), drops=tuple(drops))
    after = drop_members(image, edit)
    prediction = judge(after, list_possible_ledgers(ledger, ledgers)[0], inquiry.message, inquiry.now)
    if prediction.outcome != "Applied":
        raise CannotRepair(
            f"Forgetting it wouldn't help: a delivery would still be {prediction.outcome}, because {prediction.why}."
        )
    others = [other for other in predict_outcomes(after, replace(inquiry, attribute=None)) if other.is_known]
    changes = tuple([f"{image.layout.place_of(slot)} loses {member!r}" for slot, members in drops for member in members])
    return Repair(edit, changes, tuple(_describe_forgetting(image, inquiry.message, drops, others)))


def find_other_names(image: EntityImage, inquiry: Inquiry) -> list[Message]:
    """Return the message's other names in the entity: with another source or part, or as a CloudEvent.

    A ledger or an open effect holds these names. A ledger can hold only hashes, so this function tries every name that
    the entity shows: sources and parts of marks, readable IDs, effects, and the texts and numbers of its own fields, because a
    message's source is usually the key of the entity that it changes.
    """
    ledgers = find_ledgers(image, inquiry.now, inquiry.attribute)
    effects: list[Message] = []
    for value in image.effects.values():
        with suppress(LedgerMismatch):  # `inspect` reports damaged effects
            effects.append(read_effect(value).message)
    pairs: list[tuple[str, tuple[str, ...]]] = []
    for ledger in ledgers:
        named_ids = [read_id(text) for id_set in ledger.sets for text in id_set.ids]
        pairs += [(mark.source, mark.parts) for mark in ledger.marks]
        pairs += [(named_id.source, named_id.parts) for named_id in named_ids]
    pairs += [(effect.source, effect.parts) for effect in effects if effect.id in _list_ids(effect.source, inquiry)]
    own_texts = [image.layout.spell_raw(value) for name, value in image.raw.items() if not is_ours(name)]
    sources = [
        "",
        inquiry.message.source,
        *[source for source, _ in pairs],
        *[text for text in own_texts if text is not None],
    ]
    all_parts = [(), inquiry.message.parts, *[parts for _, parts in pairs]]
    messages: list[Message] = []
    for source, parts in product(dict.fromkeys(sources), dict.fromkeys(all_parts)):  # each once, in this order
        for own_id in _list_ids(source, inquiry):
            if (own_id, source, parts) == (inquiry.message.id, inquiry.message.source, inquiry.message.parts):
                continue
            try:
                message = Message(own_id, source=source, sequence=inquiry.message.sequence, parts=parts)
            except InvalidMessage:  # the field is too long for a source
                continue
            variant = replace(inquiry, message=message)
            is_open = any((effect.id, effect.source, effect.parts) == (message.id, source, parts) for effect in effects)
            if is_open or any(_find_drops(ledger, ledgers, variant) for ledger in ledgers if not ledger.moved_to):
                messages.append(message)
    return messages


def resolve_event(image: EntityImage, inquiry: Inquiry) -> Inquiry:
    """Return the inquiry about the CloudEvent with this id and source if the entity knows only that: a log line has both."""
    message = inquiry.message
    if not message.source:
        return inquiry
    variant = replace(inquiry, message=replace(message, id=cloudevent_key(message.source, message.id)))
    is_known, is_event = [
        any(prediction.is_known for prediction in predict_outcomes(image, candidate)) for candidate in (inquiry, variant)
    ]
    return variant if is_event and not is_known else inquiry


def _list_ids(source: str, inquiry: Inquiry) -> tuple[str, ...]:
    """Return the given id, and the id that `cloudevent()` creates from an event with this id."""
    own_id = inquiry.message.id
    return (own_id, cloudevent_key(source, own_id)) if source else (own_id,)


def list_hints(image: EntityImage, inquiry: Inquiry) -> tuple[str, ...]:
    """Return options to add if the entity doesn't know a message that it should know."""
    message = inquiry.message
    lines = list[str]()
    for namesake in find_other_names(image, inquiry)[:_MAX_HINTS]:
        options = _format_source_options(namesake) or ["no --source"]
        if namesake.id != message.id:  # it is a CloudEvent's
            options = [f"--message {quote(namesake.id)}", *options]
        lines.append(
            f"The entity knows {full_name(replace(namesake, sequence=None))}. For that message, pass {' '.join(options)}."
        )
    if lines:
        return tuple(lines)
    ledgers = find_ledgers(image, inquiry.now, inquiry.attribute)
    sources = {mark.source for ledger in ledgers for mark in ledger.marks}
    if sources and message.source not in sources:
        examples = ", ".join([repr(source) for source in sorted(sources)[:_MAX_HINTS]])
        more = f" and {len(sources) - _MAX_HINTS} more" if len(sources) > _MAX_HINTS else ""
        return (f"The entity has marks of the sources {examples}{more}, but none of {message.source!r}.", _NAME_IT)
    return () if message.source else (_NAME_IT,)


def _format_source_options(name: Message) -> list[str]:
    """Return the options that name a message's source, as a shell reads them."""
    source = [f"--source {quote(name.source)}"] if name.source else []
    return [*source, *[f"--part {quote(part)}" for part in name.parts]]


def _list_changeable(ledgers: list[EntityLedger], attribute: str | None) -> list[EntityLedger]:
    """Return the ledgers that can be changed."""
    for ledger in ledgers:
        if ledger.attribute == attribute and ledger.moved_to:
            raise CannotRepair(
                f"The ledger in {attribute!r} has moved to {ledger.moved_to!r}, where stores still look into the old one. "
                f"Pass --attribute {quote(ledger.moved_to)}."
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
    """Return the message's marks, in every spelling and in every set that a store could look into."""
    drops: list[Drop] = []
    for family_ledger in (stored_ledger, *find_predecessors(ledgers, stored_ledger.attribute)):
        for ids in family_ledger.sets:
            change = make_remember(ids.ledger, inquiry.message, inquiry.now)
            members = tuple([mark for mark in (change.mark, *change.aliases) if mark in ids.ids])
            drops.extend([(ids.slot, members)] if members else [])
    return drops


def _check_forgettable(choices: list[EntityLedger], inquiry: Inquiry) -> None:
    """Raise CannotRepair if a ledger keeps marks of sources, and so can't forget a single message."""
    for stored_ledger in choices:
        ledger = choose_ledger(stored_ledger)
        if isinstance(ledger, HighWaterMark):
            command = " ".join(["onewrite set-mark", *_format_source_options(inquiry.message), "--sequence N"])
            raise CannotRepair(
                f"The ledger {stored_ledger.attribute!r} keeps one mark per source, not single messages, so it can't forget "
                f"one. To let messages of a source take effect again, move its mark back: {command}, "
                "where N is the number before the first of them. Every later message then takes effect again "
                "if it is redelivered."
            )


def _describe_prediction(prediction: Prediction) -> str:
    return (
        f"{prediction.ledger or 'a store'} in {prediction.attribute} returns {prediction.outcome}, because {prediction.why}"
    )


def _describe_forgetting(image: EntityImage, message: Message, drops: list[Drop], others: list[Prediction]) -> Iterator[str]:
    yield (
        f"The next delivery of {full_name(message)} takes effect again, once. If its first effect is still there, "
        "it happens twice."
    )
    if others:
        yield f"Some stores still refuse it: {'; '.join(map(_describe_prediction, others))}."
    for slot, members in drops:
        # Only IdSet gives a plain ID this meaning. Its set is the user's own attribute.
        if message.id in members and not is_ours(slot.group):
            yield (
                f"{image.layout.place_of(slot)} holds the ID alone, which counts for every source. So message "
                f"{message.id!r} of any other source takes effect again too."
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
        raise CannotRepair("A mark belongs to a source. Pass --source; onewrite inspect shows the entity's sources.")
    slot = locate_mark(ledger.attribute, target.source, target.parts)
    before = image.slots.get(slot, ABSENT)
    if before is not ABSENT and type(before) not in (int, str):
        raise CannotRepair(
            f"{image.layout.place_of(slot)} holds {before!r}, which isn't a mark, so another writer uses this field. "
            "Repair it by hand."
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
                f"The mark is {before!r}, and {text!r} doesn't compare with it. Use the same spelling, with as many digits."
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
    """Whether the ledger refuses more messages after the change. Both marks have the type that `parse_mark` requires."""
    return before is ABSENT or (mark is not None and cast("int", mark) > cast("int", before))


def _describe_moved_mark(target: TargetMark, before: object, mark: int | str | None) -> Iterator[str]:
    of = f"of source {target.source!r}" + "".join([f", part {part!r}" for part in target.parts])
    if mark is None:
        yield f"Every sequence {of} up to {before!r} takes effect again if it is redelivered."
        yield "InSequence waits for the source's first number again. Until it arrives, all others are Deferred."
    elif before is ABSENT:
        yield (
            f"Every sequence {of} up to {mark!r} is refused from now on, as Duplicate or Stale, even if it hasn't taken "
            "effect."
        )
    elif _moves_forward(before, mark):
        yield (
            f"{_describe_span(before, mark)} {of}: refused from now on, as Duplicate or Stale. Those that haven't taken effect "
            "never will."
        )
    else:
        yield f"{_describe_span(mark, before)} {of}: each takes effect again if it is redelivered."
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
    """Raise if a message of the source has an open effect, because such an effect couldn't finish after the change."""
    for value in image.effects.values():
        effect = read_effect(value)
        is_same = effect.message.source == target.source and effect.message.parts == target.parts
        if is_same and effect.ledger == attribute:
            raise CannotRepair(
                f"The {full_name(effect.message)} has an open effect, which it couldn't finish after this change. Wait until it "
                "is finished, or release it. To list open effects, run `onewrite effects`."
            )


def clear(image: EntityImage, attribute: str | None, now: float) -> Repair:
    """Plan an edit that empties a ledger."""
    _check_alive(image)
    ledgers = find_ledgers(image, now, attribute)
    ledger = _choose_ledger_to_clear(ledgers, attribute)
    if any(read_effect(effect).ledger == ledger.attribute for effect in image.effects.values()):
        raise CannotRepair(
            "An effect of this ledger is open. Wait until it is finished, or release it. To list open effects, run "
            "`onewrite effects`."
        )
    fields = [name for name in image.list_fields(ledger.attribute) if name != ledger.attribute]
    if not fields:
        raise NothingToDo(f"The ledger {ledger.attribute!r} is already empty.")
    # The label goes last, because it identifies the rest. A label that sends older stores to another ledger stays.
    last = [] if ledger.moved_to else [ledger.attribute]
    edit = Edit(list_read_fields(image, [ledger], [], fields), removes=(*fields, *last, *_list_token(image)))
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
        raise CannotRepair(f"There is no ledger label {where}, so nothing there is known to be onewrite's.")
    if not candidates[0].moved_to:
        choose_ledger(candidates[0])  # raises if a later onewrite wrote it
    return candidates[0]


def _describe_clearing(image: EntityImage, ledger: EntityLedger, ledgers: list[EntityLedger]) -> Iterator[str]:
    if ids := sum([len(id_set.ids) for id_set in ledger.sets]):
        yield (
            f"{format_count(ids, 'id is', 'ids are')} forgotten. Each of their messages takes effect again if it is redelivered."
        )
    for mark in ledger.marks:
        yield from _describe_moved_mark(TargetMark(mark.source, mark.parts, value=None), mark.mark, mark=None)
    earlier = [former.attribute for former in find_predecessors(ledgers, ledger.attribute) if former.ledgers]
    if ledger.ledgers and (others := [*earlier, *find_text_sets(image)]):
        yield (
            f"Marks in {', '.join(map(repr, others))} stay. Stores with that ledger in previous= still refuse those messages."
        )
    yield "This includes messages in queues and dead-letter queues, and replays."


def _check_alive(image: EntityImage) -> None:
    if TOMBSTONE in image.fields:
        read_tombstone(image.fields[TOMBSTONE])  # raises if another writer uses the attribute
        raise CannotRepair(
            "The entity was deleted, and its tombstone refuses every message, whatever the ledger holds. The "
            "database's TTL removes the tombstone."
        )


def _list_token(image: EntityImage) -> tuple[str, ...]:
    """Return the field with the token of the last write, if there is one."""
    return (TOKEN,) if TOKEN in image.fields else ()
