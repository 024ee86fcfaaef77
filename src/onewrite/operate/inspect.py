"""`onewrite inspect` shows an entity's ledgers and predicts a delivery's outcome. It only reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from onewrite.core.effect import Effect
from onewrite.core.features.pending import read_box
from onewrite.core.features.tombstone import read_tombstone
from onewrite.core.label import EFFECT, EFFECTS, OUTBOX, TOKEN, TOMBSTONE, Slot, is_ours, make_label_name
from onewrite.core.ledgers import IdSet, SeenIds
from onewrite.core.values import moment
from onewrite.errors import LedgerMismatch
from onewrite.message import Message, full_name
from onewrite.operate.effects import export_effect
from onewrite.operate.exits import Exit
from onewrite.operate.image import EntityImage, EntityLedger, StoredIds, find_effect, find_ledgers, read_id
from onewrite.operate.modules import STORE, find_ledger
from onewrite.operate.options import (
    Options,
    VerbParser,
    add_entity,
    add_json,
    add_message,
    add_store,
    make_message,
    refuse_ineffective,
)
from onewrite.operate.predictions import Inquiry, list_hints, predict_outcomes, resolve_event
from onewrite.operate.report import escape, format_count, run_verb, tell, tell_json
from onewrite.operate.stores import open_store, read_entity


def add_options(parser: VerbParser) -> None:
    """Add the options of `inspect`."""
    add_store(parser)
    add_entity(parser)
    add_message(parser)
    ledger = "Judge by this ledger or guarded store, or by the result of this function, instead of the entity's labels."
    parser.add_value("--ledger", ledger, metavar=STORE)
    add_json(parser)


def run(options: Options) -> int:
    """Run the verb and return its exit code."""
    if options["message"] is None:
        refuse_ineffective(options, ["source", "part", "sequence", "ledger"], "without --message")

    def inspect_entity() -> int:
        now, attribute = time.time(), options["attribute"]
        inquiry = None
        if options["message"] is not None:
            inquiry = Inquiry(make_message(options), now, attribute, find_ledger(options["ledger"]))
        image = read_entity(open_store(options), options["key"])
        inquiry = None if inquiry is None else resolve_event(image, inquiry)
        document = make_document(image, now, attribute, inquiry)
        if options["json"]:
            tell_json(document)
        else:
            tell(format_lines(document, None if inquiry is None else inquiry.message))
        return Exit.DONE

    return run_verb(inspect_entity)


def make_document(image: EntityImage, now: float, attribute: str | None, inquiry: Inquiry | None) -> dict[str, Any]:
    """Return the entity's contents, and the outcome of a delivery of the inquiry's message."""
    ledgers = [
        ledger
        for ledger in find_ledgers(image, now, attribute)
        if ledger.attribute == attribute or (attribute is None and ledger.size)
    ]
    predictions = predict_outcomes(image, inquiry) if inquiry else []
    return {
        "entity": image.name,
        "bytes": image.size,
        "ours": image.sum_sizes(image.our_fields),
        "ledgers": [_export_ledger(ledger, now) for ledger in ledgers],
        "outboxes": [_export_outbox(image)] if OUTBOX.label in image.fields and attribute in (None, OUTBOX.label) else [],
        "effects": [_export_effect(image, mark, now) for mark in sorted(image.effects)],
        "effect_bytes": image.sum_sizes(
            tuple([name for name in image.fields if name == EFFECTS or name.startswith(EFFECT)])
        ),
        "token_bytes": image.sum_sizes((TOKEN,)) if TOKEN in image.fields else 0,
        "tombstone": _export_tombstone(image),
        "predictions": [prediction._asdict() for prediction in predictions],
        "hints": [*list_hints(image, inquiry)]
        if inquiry and not any(prediction.is_known for prediction in predictions)
        else [],
    }


def _export_ledger(ledger: EntityLedger, now: float) -> dict[str, Any]:
    return {
        "attribute": ledger.attribute,
        "kept": None if ledger.label is None else ledger.label.layout,
        "moved_to": ledger.moved_to,
        "other_version": ledger.version,
        "bytes": ledger.size,
        "sets": [_export_id_set(id_set, now) for id_set in ledger.sets],
        "marks": [
            {**_export_source(mark.source, mark.parts), "mark": mark.mark, "place": mark.place, "bytes": mark.size}
            for mark in ledger.marks
        ],
        "foreign": [foreign._asdict() for foreign in ledger.foreign],
    }


def _export_id_set(id_set: StoredIds, now: float) -> dict[str, Any]:
    span = id_set.span
    return {
        "place": id_set.place,
        "by_hand": isinstance(id_set.ledger, IdSet),
        "since": None if span is None else moment(span.since),
        "until": None if span is None or span.until > now else moment(span.until),
        "live": span is None or span.live,
        "bytes": id_set.size,
        "ids": [_export_id(id_set, mark) for mark in id_set.ids],
    }


def _export_id(id_set: StoredIds, mark: str) -> dict[str, Any]:
    """Return a mark as JSON: its hash, or a readable mark's id, source, and parts."""
    if isinstance(id_set.ledger, SeenIds) and not id_set.ledger.readable:
        return {"hash": mark}
    named_id = read_id(mark)
    return {"id": named_id.id, **_export_source(named_id.source, named_id.parts)}


def _export_source(source: str, parts: tuple[str, ...]) -> dict[str, Any]:
    return {"source": source, "parts": [*parts]}


def _export_outbox(image: EntityImage) -> dict[str, Any]:
    attribute = OUTBOX.label
    size = image.sum_sizes(image.list_fields(attribute))
    fields = {name: image.fields[name] for name in (*OUTBOX, TOMBSTONE) if name in image.fields}
    # `read_box` needs the list of events as it is stored. `image.lookup` would change it.
    content: dict[str, Any] = {
        name: value if isinstance(value, list | Mapping) else image.lookup(Slot(name)) for name, value in fields.items()
    }
    try:
        box = read_box(None, {}, image.name, content)
    except LedgerMismatch as error:
        return {"attribute": attribute, "bytes": size, "damaged": str(error)}
    return {
        "attribute": attribute,
        "bytes": size,
        "sent": box.base,
        "incarnation": None if box.is_unused else box.life,
        "due": box.due,
        "events": [
            {"number": number, "type": event.type, "time": event.time, "cause": event.cause, "stored_id": event.id}
            for number, event in enumerate(box.events, box.base + 1)
        ],
    }


def _export_effect(image: EntityImage, mark: str, now: float) -> dict[str, Any]:
    effect = find_effect(image.effects[mark])
    if not isinstance(effect, Effect):
        return {"damaged": str(effect)}
    return {**export_effect(effect), "lease_is_over": now >= effect.until}


def _export_tombstone(image: EntityImage) -> dict[str, Any] | None:
    if TOMBSTONE not in image.fields:
        return None
    try:
        tombstone = read_tombstone(image.fields[TOMBSTONE])
    except LedgerMismatch as error:
        return {"damaged": str(error)}
    return {
        "at": tombstone.at,
        "ttl": tombstone.ttl,
        "has_expiry": tombstone.ttl in image.fields,
        "seconds": tombstone.seconds,
    }


_MAX_MEMBERS = 20  # members of a set, or events of an outbox, in the text output; --json has all of them

Document = Mapping[str, Any]


def format_lines(document: Document, message: Message | None) -> Iterator[str]:
    """Yield the lines of `onewrite inspect`."""
    yield f"{document['entity']}: {document['bytes']} bytes, {_format_share(document['ours'], document['bytes'])} of them onewrite's"
    for ledger in document["ledgers"]:
        yield ""
        yield from _format_ledger(ledger, document["bytes"])
    for outbox in document["outboxes"]:
        yield ""
        yield from _format_outbox(outbox, document["bytes"])
    yield from _format_effects(document)
    if document["token_bytes"]:
        yield ""
        yield f"The token of the last write, {document['token_bytes']} bytes"
    yield from _format_tombstone(document["tombstone"])
    if not any(
        [document["ledgers"], document["outboxes"], document["effects"], document["tombstone"], document["token_bytes"]]
    ):
        yield "The entity doesn't contain data of onewrite."
    if message is not None:
        yield ""
        yield from _format_predictions(document["predictions"], message)
        yield from [escape(hint) for hint in document["hints"]]


def _format_ledger(ledger: Document, total: int) -> Iterator[str]:
    yield f"Ledger {escape(ledger['attribute'])}, {_describe_layout(ledger)}: {_format_share(ledger['bytes'], total)}"
    for id_set in ledger["sets"]:
        yield from _format_set(id_set)
    if any(id_set["since"] for id_set in ledger["sets"]):
        yield "  Some IDs can be older than that, if the entity was not written to for long."
    for mark in ledger["marks"]:
        yield f"  {_describe_source(mark)}: {mark['mark']!r}, {mark['bytes']} bytes in {escape(mark['place'])}"
    for foreign in ledger["foreign"]:
        yield f"  {escape(foreign['place'])} holds a value of the type {foreign['kind']}, which isn't a ledger's content"


def _describe_layout(ledger: Document) -> str:
    if ledger["moved_to"]:
        return (
            f"which has moved to {escape(ledger['moved_to'])}; the rest here counts for stores with this ledger in previous="
        )
    if ledger["other_version"]:
        return f"written by another version of onewrite, as {escape(ledger['other_version'])!r}"
    if ledger["kept"] is None:
        return (
            "without a label"
            if is_ours(ledger["attribute"])
            else "without a label, possibly a set of IDs that you keep yourself"
        )
    return f"kept as {escape(ledger['kept'])!r}"


def _format_set(id_set: Document) -> Iterator[str]:
    when = "never forgotten"
    if id_set["since"]:
        when = f"written since {id_set['since']}"
        if id_set["until"]:
            when = f"written between {id_set['since']} and {id_set['until']}"
        when += "" if id_set["live"] else ": no store reads this set any longer, and the next write removes it"
    by_hand = ", kept by hand" if id_set["by_hand"] else ""
    yield f"  {escape(id_set['place'])}: {format_count(len(id_set['ids']), 'id')}{by_hand}, {id_set['bytes']} bytes, {when}"
    for mark in id_set["ids"][:_MAX_MEMBERS]:
        of_source = f" of {_describe_source(mark)}" if mark.get("source") or mark.get("parts") else ""
        yield f"    {mark['hash'] if 'hash' in mark else escape(mark['id'])}{of_source}"
    if (more := len(id_set["ids"]) - _MAX_MEMBERS) > 0:
        yield f"    and {more} more, which --json shows"


def _describe_source(document: Document) -> str:
    source = f"source {escape(document['source'])}" if document["source"] else "no source"
    return source + "".join([f", part {escape(part)}" for part in document["parts"]])


def _format_outbox(outbox: Document, total: int) -> Iterator[str]:
    head = f"Outbox {escape(outbox['attribute'])}"
    if "damaged" in outbox:
        yield f"{head}: {outbox['damaged']}"
        return
    pending = format_count(len(outbox["events"]), "event")
    due = f", due at {escape(outbox['due'])}" if outbox["due"] else ""
    yield f"{head}: {pending} pending{due}, {outbox['sent']} sent before: {_format_share(outbox['bytes'], total)}"
    for event in outbox["events"][:_MAX_MEMBERS]:
        yield f"  number {event['number']}: {escape(event['type'])}, emitted at {escape(event['time'])} because of {escape(event['cause'])}"
    if (more := len(outbox["events"]) - _MAX_MEMBERS) > 0:
        yield f"  and {more} more, which --json shows"


def _format_effects(document: Document) -> Iterator[str]:
    if not document["effects"]:
        return
    yield ""
    yield f"{format_count(len(document['effects']), 'open effect')}: {_format_share(document['effect_bytes'], document['bytes'])}"
    for effect in document["effects"]:
        if "damaged" in effect:
            yield f"  {effect['damaged']}"
            continue
        of_source = f" of {_describe_source(effect)}" if effect["source"] or effect["parts"] else ""
        lease = f"begun at {effect['begun']}, with a lease until {effect['until']}"
        if effect["unsent"]:
            lease = (
                f"begun at {effect['begun']} and released at {effect['until']} before it was sent: the next begin_effect or "
                "write of the message ends it"
            )
        elif effect["lease_is_over"]:
            lease += ": it is unknown whether the effect happened"
        yield f"  message {escape(effect['message'])}{of_source}: {lease}, key {escape(effect['key'])}, for the ledger {escape(effect['ledger'])}"


def _format_tombstone(tombstone: Document | None) -> Iterator[str]:
    if tombstone is None:
        return
    yield ""
    if "damaged" in tombstone:
        yield tombstone["damaged"]
        return
    when = "by its TTL" if tombstone["has_expiry"] else "once its last event is published"
    yield f"A tombstone: the entity was deleted at {escape(tombstone['at'])}. The database removes it {when}, by {escape(tombstone['ttl'])}."


def _format_predictions(predictions: list[Document], message: Message) -> Iterator[str]:
    new_ledger_prediction = ("", make_label_name(""), "Applied")
    if [(prediction["ledger"], prediction["attribute"], prediction["outcome"]) for prediction in predictions] == [
        new_ledger_prediction
    ]:
        yield "The entity doesn't have a ledger yet. A delivery would be Applied if your own condition holds."
        return
    yield f"The outcome of a delivery of {full_name(message)}:"
    for prediction in predictions:
        from_ledger = f" from {prediction['ledger']}" if prediction["ledger"] else ""
        why = escape(prediction["why"].removesuffix("."))
        yield f"  {prediction['outcome']}{from_ledger} in {escape(prediction['attribute'])}: {why}."


def _format_share(part: int, total: int) -> str:
    return f"{part} bytes ({100 * part / total:.0f} %)" if total else f"{part} bytes"
