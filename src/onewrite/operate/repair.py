"""`onewrite forget`, `set-mark`, and `clear`: they show a change, and write it only with --yes."""

from __future__ import annotations

import json
import time
from typing import Any, cast

from onewrite.core.flow import run as run_flow
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
            (
                "This entity emits events. A repeated effect emits them again, with new IDs and numbers, so consumers "
                "apply them again."
            ),
        )
    requests = [store.to_json(call) for call in store.calls(image, repair.edit)]
    if not options["json"]:
        change_lines, effect_lines = [[f"  {escape(text)}" for text in texts] for texts in (repair.changes, effects)]
        request_lines = [f"  {json.dumps(_shorten(request))}" for request in requests]
        tell([f"{image.name}:", *change_lines, "What that means:", *effect_lines, "The request:", *request_lines])
    result = _write(options["verb"], options["operator"], store, image, repair) if options["yes"] else None
    if options["json"]:
        document = {"entity": image.name, "changes": repair.changes, "effects": effects, "requests": requests}
        tell_json({**document, "written": result == 0})
    elif result is None:
        tell("\nNothing was written. To write this, repeat the command with --yes.\n")
    elif result == 0:
        tell("\nWritten.\n")
    return result or 0


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


def _write(act: str, operator: str | None, store: EntityStore, image: EntityImage, repair: Repair) -> int:
    """Write the change, and log what was done and who requested it. Return FAILED if another writer was faster."""
    log_to_stderr()
    total = len(store.calls(image, repair.edit))
    changed = "; ".join(repair.changes)
    details = {"act": act, "entity": image.name, "of": total, "changes": [*repair.changes]}
    with record_unknown_result(f"{act} of {image.name} ({changed})", operator, details):
        count = run_flow(store.write(image, repair.edit), store.target)
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
