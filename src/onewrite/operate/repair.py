"""`onewrite forget`, `set-mark`, and `clear`: they show a change, and write it only with --yes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer

from onewrite.core.flow import run
from onewrite.core.label import OUTBOX, is_outbox_label
from onewrite.errors import ConfigurationError
from onewrite.operate import changes
from onewrite.operate.answers import Inquiry
from onewrite.operate.changes import Repair, TargetMark
from onewrite.operate.exits import Exit
from onewrite.operate.image import EntityImage, EntityStore
from onewrite.operate.options import (
    AsJson,
    Attribute,
    EndpointUrl,
    Key,
    MessageId,
    Operator,
    Options,
    Parts,
    Region,
    RequiredCollection,
    RequiredTable,
    SequenceOption,
    Source,
    VersionOption,
    Yes,
    make_message,
)
from onewrite.operate.report import escape, log_to_stderr, record, record_unknown_result, run_verb, say, tell, tell_json
from onewrite.operate.stores import open_store, read_entity


def forget(
    *,
    key: Key,
    message: MessageId,
    table: RequiredTable = None,
    collection: RequiredCollection = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    attribute: Attribute = None,
    source: Source = "",
    sequence: SequenceOption = None,
    part: Parts = None,
    yes: Yes = False,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Let one message take effect once more. Show the request, and write only with --yes."""
    options = locals()

    def forget_message(image: EntityImage) -> Repair:
        return changes.forget(image, Inquiry(make_message(options), time.time(), attribute))

    run_verb(lambda: _change("forget", options, forget_message))


def set_mark(
    *,
    key: Key,
    table: RequiredTable = None,
    collection: RequiredCollection = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    attribute: Attribute = None,
    source: Source = "",
    part: Parts = None,
    sequence: Annotated[
        str | None,
        typer.Option("--sequence", metavar="N", help="The last sequence that counts as done. Required without --remove."),
    ] = None,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Remove the mark, as if the source had sent nothing. Required without --sequence."),
    ] = False,
    yes: Yes = False,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Move a source's mark. Show which sequences it affects, and write only with --yes."""
    options = locals()

    def move_mark(image: EntityImage) -> Repair:
        if (sequence is None) != remove:
            raise ConfigurationError("Pass --sequence with the new mark, or --remove.")
        target = TargetMark(source, tuple(part or ()), sequence, attribute)
        return changes.set_mark(image, target, time.time())

    run_verb(lambda: _change("set-mark", options, move_mark))


def clear(
    *,
    key: Key,
    table: RequiredTable = None,
    collection: RequiredCollection = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    attribute: Attribute = None,
    yes: Yes = False,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Empty a ledger of an entity. Show which messages would take effect again, and write only with --yes."""
    options = locals()
    run_verb(lambda: _change("clear", options, lambda image: changes.clear(image, attribute, time.time())))


def _change(act: str, options: Options, plan_repair: Callable[[EntityImage], Repair]) -> int:
    """Show a change of an entity. With --yes, write it if the entity is unchanged. Return the exit code."""
    store = open_store(options)
    image = read_entity(store, options["key"])
    repair = plan_repair(image)
    effects = repair.effects
    if is_outbox_label(image.fields.get(OUTBOX.label)):
        effects += (
            (
                "This entity emits events. A repeated effect emits them again, with new IDs and numbers, so consumers "
                "apply them again."
            ),
        )
    requests = [store.to_json(call) for call in store.calls(image, repair.edit)]
    if not options["as_json"]:
        change_lines, effect_lines = [[f"  {escape(text)}" for text in texts] for texts in (repair.changes, effects)]
        request_lines = [f"  {json.dumps(_shorten(request))}" for request in requests]
        tell([f"{image.name}:", *change_lines, "What that means:", *effect_lines, "The request:", *request_lines])
    result = _write(act, options["operator"], store, image, repair) if options["yes"] else None
    if options["as_json"]:
        document = {"entity": image.name, "changes": repair.changes, "effects": effects, "requests": requests}
        tell_json({**document, "written": result == 0})
    elif result is None:
        tell("\nNothing was written. To write this, repeat the command with --yes.\n")
    elif result == 0:
        tell("\nWritten.\n")
    return result or 0


def _shorten(value: Any, most: int = 5) -> Any:
    """Return a request for display, with long lists shortened."""
    match value:
        case list():
            items = cast("list[Any]", value)
            members = [_shorten(item, most) for item in items[:most]]
            return [*members, f"... and {len(items) - most} more"] if len(items) > most else members
        case dict():
            return {name: _shorten(item, most) for name, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _write(act: str, operator: str | None, store: EntityStore, image: EntityImage, repair: Repair) -> int:
    """Write the change, and log what was done and who requested it. Return FAILED if another writer was faster."""
    log_to_stderr()
    total = len(store.calls(image, repair.edit))
    changed = "; ".join(repair.changes)
    details = {"act": act, "entity": image.name, "of": total, "changes": [*repair.changes]}
    with record_unknown_result(f"{act} of {image.name} ({changed})", operator, details):
        count = run(store.write(image, repair.edit), store.target)
    if count:
        partly = "" if count == total else f" ({count} of {total} requests, before another writer changed it)"
        record(f"{act} of {image.name}{partly}: {changed}.", operator, {**details, "requests": count})
    if count < total:
        clause = f"only {count} of {total} requests were made" if count else "nothing was written"
        return say(
            f"Another writer changed the entity in the meantime, so {clause}. Repeat the command without --yes to see "
            "the current state.",
            Exit.FAILED,
        )
    return Exit.DONE
