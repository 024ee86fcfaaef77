"""`onewrite effects` lists the effects of a table or collection that were begun and not finished. It only reads."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, NamedTuple

from onewrite.core.effect import Effect
from onewrite.core.label import EFFECTS
from onewrite.core.values import moment
from onewrite.operate.exits import Exit
from onewrite.operate.image import find_effect
from onewrite.operate.options import Options, VerbParser, add_json, add_store, make_number_reader
from onewrite.operate.report import escape, format_age, format_count, run_verb, tell, tell_json
from onewrite.operate.stores import open_store

_MAX_LISTED = 100  # effects. More are an incident, whose cause the oldest ones show


class OpenEffect(NamedTuple):
    """An open effect, with its entity's key as text."""

    entity: str
    effect: Effect

    def format_line(self, now: float) -> str:
        """Return the effect as a line of text."""
        effect, message = self.effect, self.effect.message
        until = f"{moment(effect.until)}{', not sent' if effect.is_unsent else ''}"
        of_source = f" of {escape(message.source)}" if message.source else ""
        message_name = escape(" / ".join([message.id, *message.parts]))
        return (
            f"{format_age(max(0, now - effect.since))}  begun {moment(effect.since)}, lease until {until}  message "
            f"{message_name}{of_source}  key {effect.key}  in {escape(effect.ledger)} of {self.entity}"
        )


def export_effect(effect: Effect) -> dict[str, Any]:
    """Return an effect in machine-readable form."""
    message = effect.message
    return {
        "message": message.id,
        "source": message.source,
        "sequence": message.sequence,
        "parts": [*message.parts],
        "key": effect.key,
        "begun": moment(effect.since),
        "until": moment(effect.until),
        "unsent": effect.is_unsent,
        "ledger": effect.ledger,
    }


def add_options(parser: VerbParser) -> None:
    """Add the options of `effects`."""
    add_store(parser)
    parser.add_value(
        "--older-than",
        "Skip effects that were begun fewer seconds ago.",
        metavar="SECONDS",
        variable=True,
        default=0,
        kind=make_number_reader(float, 0, math.inf),
    )
    add_json(parser)


def run(options: Options) -> int:
    """Run the verb and return its exit code."""
    older_than, now = options["older_than"], time.time()
    begun_by = now - older_than if older_than else math.inf  # a worker's clock can be ahead of this one

    def list_effects() -> int:
        oldest: list[OpenEffect] = []
        count = younger_count = damaged_count = 0
        for page in open_store(options).list_pages(EFFECTS):
            for image in page:
                for effect in map(find_effect, image.effects.values()):
                    if not isinstance(effect, Effect):
                        damaged_count += 1
                        sys.stderr.write(f"onewrite: {image.name}: {effect}\n")
                    elif effect.since <= begun_by:
                        count += 1
                        oldest.append(OpenEffect(image.name, effect))
                    else:
                        younger_count += 1
            # Drop the rest after each page, because all open effects might not fit into memory.
            oldest = sorted(oldest, key=lambda open_effect: open_effect.effect.since)[:_MAX_LISTED]
        if options["json"]:
            effects = [{**export_effect(effect), "entity": entity} for entity, effect in oldest]
            tell_json({"open": count, "damaged": damaged_count, "effects": effects})
        elif oldest:
            tell([open_effect.format_line(now) for open_effect in oldest])
            if more := count - len(oldest):
                tell(f"{format_count(more, 'more was', 'more were')} begun later.\n")
        elif younger_count:
            younger = format_count(younger_count, "effect was", "effects were")
            tell(f"No open effect is that old. {younger} begun later.\n")
        elif not damaged_count:
            tell("No effect is open.\n")
        return Exit.FOUND if count or damaged_count else Exit.DONE

    return run_verb(list_effects)
