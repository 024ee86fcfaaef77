"""`onewrite steps` lists the open steps of a table or collection: begun and not finished. It only reads."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, NamedTuple

from onewrite.core.flow import run as run_flow
from onewrite.core.label import STEPS
from onewrite.core.step import Step
from onewrite.core.values import moment
from onewrite.operate.exits import Exit
from onewrite.operate.image import find_step
from onewrite.operate.options import Options, VerbParser, add_json, add_store, make_number_reader
from onewrite.operate.report import escape, format_age, format_count, run_verb, tell, tell_json
from onewrite.operate.stores import open_store

_MAX_LISTED = 100  # maximum number of listed steps: more are an incident, and the first ones show the cause


class OpenStep(NamedTuple):
    """An open step, with its entity's key as text."""

    entity: str
    step: Step

    def export(self) -> dict[str, Any]:
        """Return the step in machine-readable form."""
        step, message = self.step, self.step.message
        return {
            "message": message.id,
            "source": message.source,
            "sequence": message.sequence,
            "parts": [*message.parts],
            "key": step.key,
            "begun": moment(step.since),
            "until": moment(step.until),
            "unsent": step.is_unsent,
            "ledger": step.ledger,
            "entity": self.entity,
        }

    def format_line(self, now: float) -> str:
        """Return the step for a person."""
        step, message = self.step, self.step.message
        until = f"{moment(step.until)}{', not sent' if step.is_unsent else ''}"
        of_source = f" of {escape(message.source)}" if message.source else ""
        message_name = escape(" / ".join([message.id, *message.parts]))
        return (
            f"{format_age(max(0, now - step.since))}  begun {moment(step.since)}, lease until {until}  message "
            f"{message_name}{of_source}  key {step.key}  in {escape(step.ledger)} of {self.entity}"
        )


def add_options(parser: VerbParser) -> None:
    """Add the options of `steps`."""
    add_store(parser)
    parser.add_value(
        "--older-than",
        "Skip steps that were begun fewer seconds ago.",
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

    def list_steps() -> int:
        store = open_store(options)
        scan = store.scan(STEPS)
        oldest: list[OpenStep] = []
        count = younger_count = damaged_count = 0
        while (page := run_flow(scan.next(), store.target)) is not None:
            for image in page:
                for step in map(find_step, image.steps.values()):
                    if not isinstance(step, Step):
                        damaged_count += 1
                        sys.stderr.write(f"onewrite: {image.name}: {step}\n")
                    elif step.since <= begun_by:
                        count += 1
                        oldest.append(OpenStep(image.name, step))
                    else:
                        younger_count += 1
            # Drop the rest after each page: all open steps might not fit into memory.
            oldest = sorted(oldest, key=lambda open_step: open_step.step.since)[:_MAX_LISTED]
        if options["json"]:
            tell_json({"open": count, "damaged": damaged_count, "steps": [open_step.export() for open_step in oldest]})
        elif oldest:
            tell([open_step.format_line(now) for open_step in oldest])
            if more := count - len(oldest):
                tell(f"{format_count(more, 'more was', 'more were')} begun later.\n")
        elif younger_count:
            tell(
                f"No step is open that was begun so long ago. {format_count(younger_count, 'younger one is', 'younger ones are')} open.\n"
            )
        elif not damaged_count:
            tell("No step is open.\n")
        return Exit.FOUND if count or damaged_count else Exit.DONE

    return run_verb(list_steps)
