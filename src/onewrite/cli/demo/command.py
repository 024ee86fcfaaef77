"""`onewrite demo` shows what becomes of messages that are delivered more than once, with onewrite and without."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from onewrite.cli.demo.comparison import HANDLERS, ONEWRITE, Comparison, Row, compare
from onewrite.cli.demo.shops import Engine
from onewrite.cli.demo.simulation import order_events, sendings
from onewrite.cli.terminal import is_plain

HEADINGS = ("handler", "deliveries", "requests per message", "effects applied twice", "effects lost")
_STAND_INS = {Engine.DYNAMODB: "DynamoDB (moto)", Engine.MONGODB: "MongoDB (mongomock)"}


def demo(
    engine: Annotated[Engine, typer.Option(help="Which database to imitate.")] = Engine.DYNAMODB,
    messages: Annotated[int, typer.Option(min=1, help="How many different messages to deliver.")] = 200,
    seed: Annotated[int, typer.Option(help="Decides everything that happens: the same seed gives the same numbers.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,  # noqa: FBT002  # a flag
) -> None:
    """Deliver a stream of order events to three handlers, in this process, with duplicates and dying workers."""
    if as_json:
        comparison = compare(engine, messages, seed, lambda _: None)
        sys.stdout.write(json_text(comparison))
    elif is_plain(sys.stdout, os.environ):
        comparison = compare(engine, messages, seed, lambda _: None)
        sys.stdout.write(plain_text(comparison))
    else:
        comparison = show(Console(file=sys.stdout, force_terminal=True), engine, messages, seed)
    raise typer.Exit(0 if comparison.exactly_once else 1)


def json_text(comparison: Comparison) -> str:
    return json.dumps(asdict(comparison) | {"exactly_once": comparison.exactly_once}, indent=2) + "\n"


def plain_text(comparison: Comparison) -> str:
    lines = [HEADINGS, *map(cells, comparison.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = [_aligned(line, widths) for line in lines]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([title(comparison), "", table[0], rule, *table[1:], "", meaning(comparison), ""])


def show(console: Console, engine: Engine, messages: int, seed: int) -> Comparison:
    """Compare with progress bars on a terminal, and show the result in colour."""
    copies = len(sendings(order_events(messages, seed), seed))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bars = {name: progress.add_task(name, total=copies, start=False) for name in HANDLERS}

        def settled(name: str) -> None:
            progress.start_task(bars[name])
            progress.advance(bars[name])

        comparison = compare(engine, messages, seed, settled)
    console.print(rich_table(comparison))
    console.print(meaning(comparison), highlight=False)
    return comparison


def rich_table(comparison: Comparison) -> Table:
    table = Table(title=title(comparison), title_justify="left", title_style="bold")
    for place, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if place else "left")
    for row in comparison.rows:
        faultless = row.applied_twice == row.lost == 0
        table.add_row(*cells(row), style="green" if faultless else "red")
    return table


def title(comparison: Comparison) -> str:
    plural = "" if comparison.messages == 1 else "s"
    return f"{comparison.messages} message{plural}, seed {comparison.seed}, {_STAND_INS[comparison.engine]}"


def cells(row: Row) -> tuple[str, ...]:
    return row.handler, f"{row.deliveries}", f"{row.requests_per_message:.2f}", f"{row.applied_twice}", f"{row.lost}"


def meaning(comparison: Comparison) -> str:
    if not comparison.exactly_once:
        return f"The row of {ONEWRITE} must be all zeros, and is not: this is a bug in {ONEWRITE}."
    return "Messages came twice and workers died on the way: a row with two zeros applied each message exactly once."


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    """The first cell is aligned to the left, and the numbers to the right."""
    first, *numbers = zip(line, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *[cell.rjust(width) for cell, width in numbers]])
