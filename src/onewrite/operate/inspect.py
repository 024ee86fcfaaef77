"""`onewrite inspect` shows what an entity holds for its ledgers, and what a delivery of a message would get. It only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.core.event import moment
from onewrite.core.label import OUTBOX, STEP, STEPS, TOMBSTONE, Slot
from onewrite.core.pending import Box, read_box
from onewrite.core.step import FoundStep, Step, found_step
from onewrite.core.tombstone import read_tombstone
from onewrite.errors import LedgerMismatch
from onewrite.operate.answers import Inquiry, expected
from onewrite.operate.changes import hints
from onewrite.operate.image import Block, EntityImage, EntityLedger, IdSet, held_ledgers, read_id
from onewrite.operate.modules import ledger_of
from onewrite.operate.options import (
    AnyMessageId,
    AsJson,
    At,
    Attribute,
    CollectionUrl,
    EndpointUrl,
    Key,
    Parts,
    Region,
    SequenceOption,
    Source,
    TableName,
    VersionOption,
    message_of,
    moment_of,
)
from onewrite.operate.report import count_of, end, shown, tell, tell_json
from onewrite.operate.stores import entity_of, store_of
from onewrite.operate.strip import outboxes_of

InSequence: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--in-sequence", metavar="FIRST", help="The marks are those of InSequence(first=FIRST), and not of HighWaterMark."
    ),
]
LedgerName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="MODULE:STORE",
        help="Ask the ledger of this guarded store, or this ledger, instead of the labels.",
    ),
]


def inspect(
    *,
    key: Key,
    table: TableName = None,
    collection: CollectionUrl = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    attribute: Attribute = None,
    message: AnyMessageId = None,
    source: Source = "",
    sequence: SequenceOption = None,
    part: Parts = None,
    in_sequence: InSequence = None,
    ledger: LedgerName = None,
    at: At = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Show what an entity holds: ledgers with their ids and marks, pending events, open steps, a tombstone, and their bytes.

    With --message it says what a delivery of that message would get, and why. It only reads. The exit code is 1 if the store cannot be read, or has no such entity.
    """
    given = locals()
    end(lambda: _inspect(given))


def _inspect(given: dict[str, Any]) -> int:
    now, attribute, asked = moment_of(given["at"], time.time()), given["attribute"], None
    if given["message"] is not None:
        asked = Inquiry(message_of(given), now, attribute, given["in_sequence"], ledger_of(given["ledger"]))
    found = inspection(entity_of(store_of(given), given["key"]), now, attribute, asked)
    tell_json(found) if given["as_json"] else tell(inspected(found, given["message"]))
    return 0


def inspection(image: EntityImage, now: float, attribute: str | None, asked: Inquiry | None) -> dict[str, Any]:
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


def _ledger(held: EntityLedger) -> dict[str, Any]:
    return {
        "attribute": held.attribute,
        "kept": None if held.kept is None else held.kept.layout,
        "moved_to": held.moved_to,
        "other_version": held.version,
        "bytes": held.size,
        "sets": [_set(each) for each in held.sets],
        "marks": [
            {**_source(each.source, each.parts), "mark": each.mark, "place": each.place, "bytes": each.size}
            for each in held.marks
        ],
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


def _outbox(image: EntityImage, attribute: str) -> dict[str, Any]:
    size = image.bytes_of(image.fields_of(attribute))
    found = {name: image.fields[name] for name in (*OUTBOX, TOMBSTONE) if name in image.fields}
    # Its list of events as it is.
    held: dict[str, Any] = {
        name: value if isinstance(value, list | Mapping) else image.lookup(Slot(name)) for name, value in found.items()
    }
    try:
        box = read_box(None, {}, image.named, held)
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


def _event(box: Box, place: int) -> dict[str, Any]:
    event = box.events[place]
    return {
        "number": box.base + place + 1,
        "type": event.type,
        "time": event.time,
        "cause": event.cause,
        "stored_id": event.id,
    }


def _step(image: EntityImage, mark: str, now: float) -> dict[str, Any]:
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


def _tombstone(image: EntityImage) -> dict[str, Any] | None:
    if TOMBSTONE not in image.fields:
        return None
    try:
        found = read_tombstone(image.fields[TOMBSTONE])
    except LedgerMismatch as error:
        return {"damaged": str(error)}
    return {"at": found.at, "ttl": found.ttl, "expires": found.ttl in image.fields, "seconds": found.seconds}


_MOST = 20  # members of one set that a person is shown; --json has all of them

Found = Mapping[str, Any]


def inspected(found: Found, message: str | None) -> Iterator[str]:
    """The lines of `onewrite inspect`."""
    yield f"{found['entity']}: {found['bytes']} bytes, {_share(found['ours'], found['bytes'])} of them onewrite's"
    for ledger in found["ledgers"]:
        yield ""
        yield from _ledger_lines(ledger, found["bytes"])
    for outbox in found["outboxes"]:
        yield ""
        yield from _outbox_lines(outbox, found["bytes"])
    yield from _steps(found)
    yield from _tombstone_lines(found["tombstone"])
    if not any([found["ledgers"], found["outboxes"], found["steps"], found["tombstone"]]):
        yield "There is nothing of onewrite in it."
    if message is not None:
        yield ""
        yield from _answers(found["answers"], message)
        yield from [shown(hint) for hint in found["hints"]]


def _ledger_lines(ledger: Found, total: int) -> Iterator[str]:
    yield f"Ledger {shown(ledger['attribute'])}, {_kept(ledger)}: {_share(ledger['bytes'], total)}"
    for each in ledger["sets"]:
        yield from _set_lines(each)
    if any(each["since"] for each in ledger["sets"]):
        yield "  Some ids may be older than that, if the entity was not written to for long."
    for each in ledger["marks"]:
        yield f"  {_source_words(each)}: {each['mark']!r}, {each['bytes']} bytes in {shown(each['place'])}"
    for each in ledger["numbers"]:
        numbers = ", ".join([str(number) for number in each["numbers"][:_MOST]]) or "no number"
        numbers += f" and {more} more" if (more := len(each["numbers"]) - _MOST) > 0 else ""
        yield f"  {_source_words(each)}: {numbers}, of {each['first']} to {each['last']}, {each['bytes']} bytes in {shown(each['place'])}"
    for each in ledger["foreign"]:
        yield f"  {shown(each['place'])} holds a {each['kind']}, which no ledger has put there"
    if ledger["tokens"]["count"]:
        yield f"  {count_of(ledger['tokens']['count'], 'token')} of recent attempts, {ledger['tokens']['bytes']} bytes"


def _kept(ledger: Found) -> str:
    if ledger["moved_to"]:
        return f"which has moved to {shown(ledger['moved_to'])}; what is left here counts for stores that name it in also="
    if ledger["other_version"]:
        return f"written by another version of onewrite, as {shown(ledger['other_version'])!r}"
    return (
        "without a label: maybe ids that are kept by hand"
        if ledger["kept"] is None
        else f"kept as {shown(ledger['kept'])!r}"
    )


def _set_lines(each: Found) -> Iterator[str]:
    when = "never forgotten"
    if each["since"]:
        when = f"written between {each['since']} and {each['until']}"
        when += "" if each["live"] else ": no store looks here any more, and the next write removes it"
    by_hand = ", kept by hand" if each["by_hand"] else ""
    yield f"  {shown(each['place'])}: {count_of(len(each['ids']), 'id')}{by_hand}, {each['bytes']} bytes, {when}"
    for found in each["ids"][:_MOST]:
        of = f" of {_source_words(found)}" if found.get("source") or found.get("parts") else ""
        yield f"    {found['hash'] if 'hash' in found else shown(found['id'])}{of}"
    if (more := len(each["ids"]) - _MOST) > 0:
        yield f"    and {more} more, which --json shows"


def _source_words(found: Found) -> str:
    hashed = " (a hash)" if found.get("source_is_hashed") else ""
    source = f"source {shown(found['source'])}{hashed}" if found["source"] else "no source"
    return source + "".join([f", part {shown(part)}" for part in found["parts"]])


def _outbox_lines(outbox: Found, total: int) -> Iterator[str]:
    head = f"Outbox {shown(outbox['attribute'])}"
    if "damaged" in outbox:
        yield f"{head}: {outbox['damaged']}"
        return
    pending = count_of(len(outbox["events"]), "event")
    due = f", due at {shown(outbox['due'])}" if outbox["due"] else ""
    yield f"{head}: {pending} pending{due}, {outbox['sent']} sent before: {_share(outbox['bytes'], total)}"
    for event in outbox["events"][:_MOST]:
        yield f"  number {event['number']}: {shown(event['type'])}, emitted at {shown(event['time'])} because of {shown(event['cause'])}"
    if (more := len(outbox["events"]) - _MOST) > 0:
        yield f"  and {more} more, which --json shows"


def _steps(found: Found) -> Iterator[str]:
    if not found["steps"]:
        return
    yield ""
    yield f"{count_of(len(found['steps']), 'step')} under way: {_share(found['step_bytes'], found['bytes'])}"
    for step in found["steps"]:
        if "damaged" in step:
            yield f"  {step['damaged']}"
            continue
        of = f" of {_source_words(step)}" if step["source"] or step["parts"] else ""
        lease = f"begun at {step['begun']}, with a lease until {step['until']}"
        lease += ": nobody knows whether its effect happened" if step["lease_is_over"] else ""
        yield f"  message {shown(step['message'])}{of}: {lease}, key {shown(step['key'])}, for the ledger {shown(step['ledger'])}"


def _tombstone_lines(found: Found | None) -> Iterator[str]:
    if found is None:
        return
    yield ""
    if "damaged" in found:
        yield found["damaged"]
        return
    when = "by its TTL" if found["expires"] else "once its last event is published"
    yield f"A tombstone: the entity was deleted at {shown(found['at'])}. The database removes it {when}, by {shown(found['ttl'])}."


def _answers(answers: list[Found], message: str) -> Iterator[str]:
    if not answers:
        yield "No ledger is here yet, so a delivery would be Applied if your own condition holds."
        return
    yield f"A delivery of message {shown(message)} would get:"
    for answer in answers:
        by = (
            f" from {answer['ledger']} in {shown(answer['attribute'])}"
            if answer["ledger"]
            else f" in {shown(answer['attribute'])}"
        )
        yield f"  {answer['outcome']}{by}: {shown(answer['why'].removesuffix('.'))}."


def _share(part: int, total: int) -> str:
    return f"{part} bytes ({100 * part / total:.0f} %)" if total else f"{part} bytes"
