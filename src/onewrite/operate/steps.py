"""`onewrite steps` lists the open steps of a table or collection: begun and not finished. It only reads."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeAlias

from rich.console import Console
from rich.table import Table
from rich.text import Text

from onewrite.core.event import moment
from onewrite.core.flow import run
from onewrite.core.label import STEPS
from onewrite.core.step import Step
from onewrite.operate.exits import Exit
from onewrite.operate.image import find_step
from onewrite.operate.options import AsJson, EndpointUrl, Region, RequiredCollection, RequiredTable, VersionOption, option
from onewrite.operate.report import escape, format_age, format_count, is_plain, run_verb, tell, tell_json
from onewrite.operate.stores import open_store

_option = partial(option, "STEPS")
_MAX_LISTED = 100  # maximum number of listed steps: more are an incident, and the first ones show the cause
HEADINGS = ("age", "begun", "lease until", "message", "source", "key", "ledger", "entity")

OlderThan: TypeAlias = Annotated[float, _option("older-than", "Skip steps that were begun fewer seconds ago.", min=0)]


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

    def list_cells(self, now: float) -> tuple[str, ...]:
        """Return the step for a person, in the order of the headings."""
        step, message = self.step, self.step.message
        until = f"{moment(step.until)}{', not sent' if step.is_unsent else ''}"
        message_name = " / ".join([message.id, *message.parts])
        return (
            format_age(max(0, now - step.since)),
            moment(step.since),
            until,
            escape(message_name),
            escape(message.source),
            step.key,
            escape(step.ledger),
            self.entity,
        )


def steps(
    *,
    table: RequiredTable = None,
    collection: RequiredCollection = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    older_than: OlderThan = 0,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """List open steps, which were begun and not finished, with the oldest first. This reads the whole store.

    The exit code is 5 if it lists a step, or if an entity has something else in a step's place.
    """
    options = locals()
    now = time.time()
    begun_by = now - older_than if older_than else math.inf  # a worker's clock can be ahead of this one

    def list_steps() -> int:
        store = open_store(options)
        scan = store.scan(STEPS)
        oldest: list[OpenStep] = []
        count = younger_count = damaged_count = 0
        while (page := run(scan.next(), store.target)) is not None:
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
        if as_json:
            tell_json({"open": count, "damaged": damaged_count, "steps": [open_step.export() for open_step in oldest]})
        elif oldest:
            _print_steps(oldest, count, now)
        elif younger_count:
            tell(
                f"No step is open that was begun so long ago. {format_count(younger_count, 'younger one is', 'younger ones are')} open.\n"
            )
        elif not damaged_count:
            tell("No step is open.\n")
        return Exit.FOUND if count or damaged_count else Exit.DONE

    run_verb(list_steps)


def _print_steps(oldest: list[OpenStep], count: int, now: float) -> None:
    """Print the oldest of `count` open steps: a table on a terminal, otherwise a line for each."""
    rows = [open_step.list_cells(now) for open_step in oldest]
    if is_plain(sys.stdout, os.environ):
        tell(_format_plain_lines(rows))
    else:
        Console(file=sys.stdout, force_terminal=True).print(_make_table(rows))
    if more := count - len(rows):
        tell(f"{format_count(more, 'more was', 'more were')} begun later.\n")


def _format_plain_lines(rows: list[tuple[str, ...]]) -> Iterator[str]:
    for step_age, begun, until, message, source, key, ledger, entity in rows:
        of_source = f" of {source}" if source else ""
        yield f"{step_age}  begun {begun}, lease until {until}  message {message}{of_source}  key {key}  in {ledger} of {entity}"


def _make_table(rows: list[tuple[str, ...]]) -> Table:
    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))  # as Text, so that rich doesn't read a foreign string as markup
    return table
