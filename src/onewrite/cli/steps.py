"""`onewrite steps` lists the steps that were begun in a table or collection and are not finished. It only reads."""

from __future__ import annotations

import heapq
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from onewrite.cli.command_line import AsJson, VersionOption
from onewrite.cli.exits import end
from onewrite.cli.operator_acts import age
from onewrite.cli.options import option
from onewrite.cli.store_urls import FORMS, step_finder
from onewrite.cli.terminal import is_plain
from onewrite.event import moment
from onewrite.flow import run
from onewrite.message import printable
from onewrite.step import FoundStep, Step

_option = partial(option, "STEPS")
_LONGEST = 4096  # characters of an id with its parts: an operator needs all of it
_MOST = 100  # steps that are listed: more are an incident, whose first ones say what it is
HEADINGS = ("age", "begun", "lease until", "message", "source", "key", "ledger", "entity")

Store: TypeAlias = Annotated[str, typer.Argument(metavar="STORE", envvar="ONEWRITE_STEPS", help=f"The store: {FORMS}.")]
OlderThan: TypeAlias = Annotated[
    float, _option("older-than", "Leave out what was begun less than so many seconds ago.", min=0)
]


class OpenStep(NamedTuple):
    """A step, and the key of its entity as text."""

    entity: str
    step: Step

    def details(self) -> dict[str, Any]:
        """For a program."""
        step, message = self.step, self.step.message
        return {
            "message": message.id,
            "source": message.source,
            "sequence": message.sequence,
            "parts": [*message.parts],
            "key": step.key,
            "begun": moment(step.since),
            "until": moment(step.until),
            "ledger": step.ledger,
            "entity": self.entity,
        }

    def cells(self, now: float) -> tuple[str, ...]:
        """For a person, in the order of the headings."""
        step, message = self.step, self.step.message
        times = (age(max(0, now - step.since)), moment(step.since), moment(step.until))
        named = " / ".join([message.id, *message.parts])
        shown = [printable(text, _LONGEST) for text in (named, message.source, step.ledger)]
        return *times, shown[0], shown[1], step.key, shown[2], self.entity


class Oldest:
    """Counts open steps, and keeps those that were begun first: at most `most`, however many there are."""

    def __init__(self, most: int, begun_by: float) -> None:
        self._most, self._begun_by = most, begun_by
        self._kept: list[tuple[float, int, OpenStep]] = []  # a heap, on top of which is the one that was begun last
        self.count = 0
        self.damaged = 0

    def add(self, found: FoundStep) -> None:
        """What cannot be read is told at once."""
        if not isinstance(found.step, Step):
            self.damaged += 1
            sys.stderr.write(f"onewrite: {found.entity}: {found.step}\n")
        elif found.step.since <= self._begun_by:
            self.count += 1
            heapq.heappush(self._kept, (-found.step.since, -self.count, OpenStep(found.entity, found.step)))
            if len(self._kept) > self._most:
                heapq.heappop(self._kept)

    def listed(self) -> list[OpenStep]:
        """Those that were begun first come first."""
        return [kept[2] for kept in sorted(self._kept, reverse=True)]


def steps(
    store: Store,
    *,
    older_than: OlderThan = 0,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """List the steps that were begun and are not finished, those first that were begun first. It reads all of the store.

    The exit code is 1 if the store cannot be read, or if an entity has something else where a step should be.
    """
    del version  # its callback has printed it
    now = time.time()
    found = Oldest(_MOST, now - older_than if older_than else math.inf)  # a worker's clock may be ahead of this one

    def listed() -> int:
        _scan(store, found)
        sys.stdout.write(_json_text(found)) if as_json else _print(found, now)
        return int(found.damaged > 0)

    end(listed)


def _scan(store: str, found: Oldest) -> None:
    finder = step_finder(store)
    while (page := run(finder.next(), finder.target)) is not None:
        for each in page:
            found.add(each)


def _json_text(found: Oldest) -> str:
    listed = [each.details() for each in found.listed()]
    return json.dumps({"open": found.count, "damaged": found.damaged, "steps": listed}, indent=2) + "\n"


def _print(found: Oldest, now: float) -> None:
    lines = [each.cells(now) for each in found.listed()]
    if lines and not is_plain(sys.stdout, os.environ):
        Console(file=sys.stdout, force_terminal=True).print(_table(lines))
    else:
        sys.stdout.writelines(_plain_lines(lines))
    more = found.count - len(lines)
    sys.stdout.write(f"{more} more were begun later.\n" if more else "" if lines else "No step is open.\n")


def _plain_lines(lines: list[tuple[str, ...]]) -> Iterator[str]:
    for waits, begun, until, message, source, key, ledger, entity in lines:
        of_source = f" of {source}" if source else ""
        yield f"{waits}  begun {begun}, lease until {until}  message {message}{of_source}  key {key}  in {ledger} of {entity}\n"


def _table(lines: list[tuple[str, ...]]) -> Table:
    table = Table()
    for heading in HEADINGS:
        table.add_column(heading, overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))
    return table
