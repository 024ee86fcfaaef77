"""All that an entity holds for onewrite, as one document for programs, from which the text for people is made. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onewrite.errors import LedgerMismatch
from onewrite.event import moment
from onewrite.label import OUTBOX, STEP, STEPS, TOMBSTONE, Slot
from onewrite.pending import Box, read_box
from onewrite.repair.answers import Asked, expected
from onewrite.repair.changes import hints
from onewrite.repair.holdings import Block, Held, IdSet, SourceMark, held_ledgers, read_id
from onewrite.repair.image import Image
from onewrite.repair.strip import outboxes_of
from onewrite.step import FoundStep, Step, found_step
from onewrite.tombstone import read_tombstone


def inspection(image: Image, now: float, attribute: str | None, asked: Asked | None) -> dict[str, Any]:
    """What there is, and what a delivery of the message that is asked about would get."""
    ledgers = [held for held in held_ledgers(image, now, attribute) if attribute in (None, held.attribute)]
    answers = expected(image, asked) if asked else []
    return {
        "entity": image.named,
        "bytes": image.size,
        "ours": image.bytes_of(image.ours),
        "ledgers": [_ledger(held) for held in ledgers],
        "outboxes": [_outbox(image, each) for each in outboxes_of(image) if attribute in (None, each)],
        "steps": [_step(image, mark, now) for mark in sorted(image.steps)],
        "step_bytes": image.bytes_of(tuple([name for name in image.fields if name == STEPS or name.startswith(STEP)])),
        "tombstone": _tombstone(image),
        "answers": [answer._asdict() for answer in answers],
        "hints": [*hints(image, asked)] if asked and not any(answer.is_known for answer in answers) else [],
    }


def _ledger(held: Held) -> dict[str, Any]:
    return {
        "attribute": held.attribute,
        "kept": None if held.kept is None else held.kept.layout,
        "moved_to": held.moved_to,
        "other_version": held.version,
        "bytes": held.size,
        "sets": [_set(each) for each in held.sets],
        "marks": [_mark(each) for each in held.marks],
        "numbers": [_block(each) for each in held.blocks],
        "tokens": {"count": held.tokens, "bytes": held.token_size},
        "foreign": [each._asdict() for each in held.foreign],
    }


def _set(each: IdSet) -> dict[str, Any]:
    span = each.span
    return {
        "place": each.place,
        "by_hand": each.by_hand,
        "since": None if span is None else moment(span.since),
        "until": None if span is None else moment(span.until),
        "live": span is None or span.live,
        "bytes": each.size,
        "ids": [_id(found) for found in each.ids],
    }


def _id(found: str | bytes) -> dict[str, Any]:
    """A hash tells nothing but itself; a readable mark tells who sent the message."""
    if isinstance(found, bytes):
        return {"hash": found.hex()}
    named = read_id(found)
    return {"id": named.id, **_source(named.source, named.parts)}


def _source(source: str, parts: tuple[str, ...]) -> dict[str, Any]:
    return {"source": source, "parts": [*parts]}


def _mark(each: SourceMark) -> dict[str, Any]:
    return {**_source(each.source, each.parts), "mark": each.mark, "place": each.place, "bytes": each.size}


def _block(each: Block) -> dict[str, Any]:
    return {
        **_source(each.source, each.parts),
        "source_is_hashed": each.is_hashed,
        "window": each.window,
        "first": each.first,
        "last": each.last,
        "numbers": [*each.numbers],
        "place": each.place,
        "bytes": each.size,
    }


def _outbox(image: Image, attribute: str) -> dict[str, Any]:
    size = image.bytes_of(image.fields_of(attribute))
    try:
        box = read_box(None, {}, image.named, _held(image))
    except LedgerMismatch as error:
        return {"attribute": attribute, "bytes": size, "damaged": str(error)}
    return {
        "attribute": attribute,
        "bytes": size,
        "sent": box.base,
        "incarnation": None if box.is_unused else box.life,
        "due": box.due,
        "events": [_event(box, place) for place in range(len(box.events))],
    }


def _held(image: Image) -> dict[str, Any]:
    """The fields of an outbox, its list of events as it is."""
    found = {name: image.fields[name] for name in (*OUTBOX, TOMBSTONE) if name in image.fields}
    return {name: value if isinstance(value, list | Mapping) else image.lookup(Slot(name)) for name, value in found.items()}


def _event(box: Box, place: int) -> dict[str, Any]:
    event = box.events[place]
    return {
        "number": box.base + place + 1,
        "type": event.type,
        "time": event.time,
        "cause": event.cause,
        "stored_id": event.id,
    }


def _step(image: Image, mark: str, now: float) -> dict[str, Any]:
    found: FoundStep = found_step(image.named, image.steps[mark])
    step = found.step
    if not isinstance(step, Step):
        return {"damaged": str(step)}
    return {
        "message": step.message.id,
        **_source(step.message.source, step.message.parts),
        "sequence": step.message.sequence,
        "key": step.key,
        "begun": moment(step.since),
        "until": moment(step.until),
        "lease_is_over": now >= step.until,
        "ledger": step.ledger,
    }


def _tombstone(image: Image) -> dict[str, Any] | None:
    if TOMBSTONE not in image.fields:
        return None
    try:
        found = read_tombstone(image.fields[TOMBSTONE])
    except LedgerMismatch as error:
        return {"damaged": str(error)}
    return {"at": found.at, "ttl": found.ttl, "expires": found.ttl in image.fields, "seconds": found.seconds}
