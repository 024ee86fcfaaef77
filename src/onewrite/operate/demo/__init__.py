"""`onewrite demo` shows what becomes of messages that are delivered more than once, with onewrite and without."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from onewrite.errors import ConfigurationError
from onewrite.operate.demo.comparison import HANDLERS, ONEWRITE, Comparison, Row, compare, order_events, sendings
from onewrite.operate.demo.shops import Engine
from onewrite.operate.demo.web import serve
from onewrite.operate.report import count_of, is_plain, tell

_MESSAGES = 200
HEADINGS = ("handler", "deliveries", "requests per message", "effects applied twice", "effects lost")
_STAND_INS = {Engine.DYNAMODB: "DynamoDB (moto)", Engine.MONGODB: "MongoDB (mongomock)"}


def demo(
    *,
    engine: Annotated[Engine, typer.Option(help="Which database to imitate.")] = Engine.DYNAMODB,
    messages: Annotated[
        int | None, typer.Option(min=1, help=f"How many different messages to deliver; by default {_MESSAGES}.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides everything that happens: the same seed gives the same numbers.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")] = False,
    web: Annotated[
        bool, typer.Option("--web", help="Show it on a page, without an end, at an address of this machine.")
    ] = False,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="Where --web listens, if not on a free port.")] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the page of --web in the browser.")] = False,
) -> None:
    """Deliver a stream of messages to three handlers, in this process, with duplicates and dying workers."""
    if web:
        _refuse({"--messages": messages is not None, "--json": as_json}, "has no meaning with --web, which has no end.")
        _serve(engine, seed, port or 0, opens=opens)
        return
    _refuse({"--port": port is not None, "--open": opens}, "needs --web.")
    raise typer.Exit(0 if _compare(engine, messages or _MESSAGES, seed, as_json=as_json).exactly_once else 1)


def _compare(engine: Engine, messages: int, seed: int, *, as_json: bool) -> Comparison:
    if as_json:
        comparison = compare(engine, messages, seed, lambda _: None)
        tell(json_text(comparison))
    elif is_plain(sys.stdout, os.environ):
        comparison = compare(engine, messages, seed, lambda _: None)
        tell(plain_text(comparison))
    else:
        comparison = show(Console(file=sys.stdout, force_terminal=True), engine, messages, seed)
    return comparison


def _serve(engine: Engine, seed: int, port: int, *, opens: bool) -> None:
    try:
        serve(engine, seed, port, opens=opens)
    except ConfigurationError as error:
        raise typer.BadParameter(str(error), param_hint="--port") from error


def _refuse(options: Mapping[str, bool], reason: str) -> None:
    for name, is_given in options.items():
        if is_given:
            raise typer.BadParameter(reason, param_hint=name)


def json_text(comparison: Comparison) -> str:
    return json.dumps(asdict(comparison) | {"exactly_once": comparison.exactly_once}, indent=2) + "\n"


def plain_text(comparison: Comparison) -> str:
    lines = [HEADINGS, *map(cells, comparison.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    # The first cell is aligned to the left, and the numbers to the right.
    table = ["  ".join([first.ljust(widths[0]), *map(str.rjust, numbers, widths[1:])]) for first, *numbers in lines]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join([title(comparison), "", table[0], rule, *table[1:], "", meaning(comparison), ""])


def show(console: Console, engine: Engine, messages: int, seed: int) -> Comparison:
    """Compare with progress bars on a terminal, and show the result in colour."""
    copies = len(sendings(order_events(messages, seed), seed))
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bars = {name: progress.add_task(name, total=copies, start=False) for name in HANDLERS}

        def advance(name: str) -> None:
            progress.start_task(bars[name])
            progress.advance(bars[name])

        comparison = compare(engine, messages, seed, advance)
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
    return f"{count_of(comparison.messages, 'message')}, seed {comparison.seed}, {_STAND_INS[comparison.engine]}"


def cells(row: Row) -> tuple[str, ...]:
    return row.handler, f"{row.deliveries}", f"{row.requests_per_message:.2f}", f"{row.applied_twice}", f"{row.lost}"


def meaning(comparison: Comparison) -> str:
    if not comparison.exactly_once:
        return f"The row of {ONEWRITE} must be all zeros, and is not: this is a bug in {ONEWRITE}."
    return "Messages came twice and workers died on the way: a row with two zeros applied each message exactly once."
