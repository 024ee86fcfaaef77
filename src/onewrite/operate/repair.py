"""`onewrite forget`, `set-mark`, and `clear` show a change of an entity, and write it only with --yes."""

from __future__ import annotations

import json
import time
from typing import Any, cast

from onewrite.core.flow import Call
from onewrite.core.label import OUTBOX, is_outbox_label
from onewrite.errors import ConfigurationError
from onewrite.operate import changes
from onewrite.operate.changes import Repair, TargetMark
from onewrite.operate.exits import Exit
from onewrite.operate.image import EntityImage, EntityStore
from onewrite.operate.options import (
    Options,
    VerbParser,
    add_entity,
    add_json,
    add_message,
    add_source,
    add_store,
    make_message,
    refuse_ineffective,
)
from onewrite.operate.predictions import Inquiry
from onewrite.operate.report import escape, log_to_stderr, record, record_unknown_result, run_verb, say, tell, tell_json
from onewrite.operate.stores import open_store, read_entity


def add_options(parser: VerbParser) -> None:
    """Add the options of the verb."""
    add_store(parser)
    add_entity(parser)
    match parser.verb:
        case "forget":
            add_message(parser, is_required=True)
        case "set-mark":
            add_source(parser)
            last = "The last sequence that counts as done. Required without --remove."
            parser.add_value("--sequence", last, metavar="N")
            parser.add_flag("--remove", "Remove the mark, as if the source had sent nothing. Required without --sequence.")
        case _:
            pass
    parser.add_flag("--yes", "Write. Without this option nothing is written.")
    operator = "Your name, for the log. The default is the user of this process."
    parser.add_value("--operator", operator, metavar="NAME")
    add_json(parser)


def run(options: Options) -> int:
    """Run the verb and return its exit code."""
    return run_verb(lambda: _change(options))


def _plan_repair(options: Options, image: EntityImage) -> Repair:
    attribute, now = options["attribute"], time.time()
    match options["verb"]:
        case "forget":
            return changes.forget(image, Inquiry(make_message(options), now, attribute))
        case "set-mark":
            target = TargetMark(options["source"], tuple(options["part"] or ()), options["sequence"], attribute)
            return changes.set_mark(image, target, now)
        case _:
            return changes.clear(image, attribute, now)


def _change(options: Options) -> int:
    """Show a change of an entity. With --yes, write it if the entity is unchanged. Return the exit code."""
    if options["verb"] == "set-mark" and (options["sequence"] is None) != options["remove"]:
        raise ConfigurationError("Pass --sequence with the new mark, or --remove.")
    if not options["yes"]:
        refuse_ineffective(options, ["operator"], "without --yes")
    store = open_store(options)
    image = read_entity(store, options["key"])
    repair = _plan_repair(options, image)
    effects = repair.effects
    if is_outbox_label(image.fields.get(OUTBOX.label)):
        effects += (
            "This entity emits events. A repeated effect emits them again, with new IDs and numbers. Consumers apply them again.",
        )
    call = store.compile_edit(image, repair.edit)
    request = store.export_call(call)
    if not options["json"]:
        change_lines, effect_lines = [[f"  {escape(text)}" for text in texts] for texts in (repair.changes, effects)]
        request_line = f"  {json.dumps(_shorten(request))}"
        tell([f"{image.name}:", *change_lines, "What that means:", *effect_lines, "The request:", request_line])
    is_written = options["yes"] and _write(options, store, image, repair, call)
    if options["json"]:
        document = {"entity": image.name, "changes": repair.changes, "effects": effects, "requests": [request]}
        tell_json({**document, "written": is_written})
    elif is_written:
        tell("\nWritten.\n")
    elif not options["yes"]:
        tell("\nNothing was written. To write this, repeat the command with --yes.\n")
    if options["yes"] and not is_written:
        return say(
            "Another writer changed the entity in the meantime. Nothing was written. Repeat the command without --yes to see the "
            "current state.",
            Exit.FAILED,
        )
    return Exit.DONE


def _shorten(value: Any, limit: int = 5) -> Any:
    """Return a request for display, with long lists shortened."""
    match value:
        case list():
            items = cast("list[Any]", value)
            members = [_shorten(item, limit) for item in items[:limit]]
            return [*members, f"... and {len(items) - limit} more"] if len(items) > limit else members
        case dict():
            return {name: _shorten(item, limit) for name, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _write(options: Options, store: EntityStore, image: EntityImage, repair: Repair, call: Call) -> bool:
    """Write the change, and log it with its operator. Return False if another writer was faster."""
    log_to_stderr()
    act, operator = options["verb"], options["operator"]
    name, changed = f"{act} of {image.name}", "; ".join(repair.changes)
    details = {"act": act, "entity": image.name, "changes": [*repair.changes]}
    with record_unknown_result(f"{name} ({changed})", operator, details):
        is_written = store.write(call)
    if is_written:
        record(f"{name}: {changed}.", operator, details)
    return is_written
