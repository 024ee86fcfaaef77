"""`onewrite plan`: its options, and what it does with them."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from rich.console import Console

from onewrite.cli.command_line import AsJson, VersionOption
from onewrite.cli.exits import end
from onewrite.cli.options import option
from onewrite.cli.plan.asked import EngineName, asked, engine_of
from onewrite.cli.plan.texts import json_text, plain_text, table
from onewrite.cli.stores import CollectionUrl, TableName
from onewrite.cli.terminal import is_plain
from onewrite.costs.inputs import Inputs
from onewrite.costs.plan import Way, ways
from onewrite.costs.sample import Sample
from onewrite.errors import ConfigurationError

_option = partial(option, "PLAN")

Messages: TypeAlias = Annotated[
    str | None, _option("messages", "Messages of all entities together, each counted once: 20/s, 500/h or 10000/d.")
]
EngineOption: TypeAlias = Annotated[EngineName | None, _option("engine", "Of what to speak where no store is named.")]
ItemBytes: TypeAlias = Annotated[int | None, _option("item-bytes", "Bytes of an entity without its ledger.")]
Entities: TypeAlias = Annotated[int | None, _option("entities", "How many entities get messages.")]
Hottest: TypeAlias = Annotated[
    float | None, _option("hottest", "Percent of all messages that the busiest entity gets. Without it, all get as many.")
]
Duplicates: TypeAlias = Annotated[float, _option("duplicates", "Percent of the messages that are delivered once more.")]
IdBytes: TypeAlias = Annotated[int, _option("id-bytes", "Bytes of a message's id.")]
SourceBytes: TypeAlias = Annotated[int, _option("source-bytes", "Bytes of the name of a source.")]
Sources: TypeAlias = Annotated[int, _option("sources", "How many sources one entity hears of.")]
Retention: TypeAlias = Annotated[str, _option("retention", "How long an id is remembered: 14d, 36h.")]
Window: TypeAlias = Annotated[int, _option("window", "The window of SeenNumbers.")]
Age: TypeAlias = Annotated[float, _option("age", "For how many days an entity has got messages.")]
Indexes: TypeAlias = Annotated[
    list[str] | None,
    _option("index", "A secondary index: [NAME=]ALL|KEYS_ONLY|INCLUDE[:BYTES][:still|changes|moves]. May be repeated."),
]
Writes: TypeAlias = Annotated[
    list[str] | None,
    _option("writes", "What your write does to an index of --table: NAME=still|changes|moves. May be repeated."),
]
PriceList: TypeAlias = Annotated[
    str | None, _option("prices", "Dollars for a million write units, and for a gigabyte a month: 0.625,0.25.")
]
SampleSize: TypeAlias = Annotated[int, _option("sample", "How many entities of a live store to read.", min=1, max=10_000)]
Html: TypeAlias = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots as well.")]


def plan(
    *,
    messages: Messages = None,
    table: TableName = None,
    collection: CollectionUrl = None,
    engine: EngineOption = None,
    item_bytes: ItemBytes = None,
    entities: Entities = None,
    hottest: Hottest = None,
    duplicates: Duplicates = 1,
    id_bytes: IdBytes = 36,
    source_bytes: SourceBytes = 16,
    sources: Sources = 1,
    retention: Retention = "14d",
    window: Window = 500,
    age: Age = 365,
    index: Indexes = None,
    writes: Writes = None,
    prices: PriceList = None,
    sample: SampleSize = 100,
    as_json: AsJson = False,
    html: Html = None,
    version: VersionOption = False,
) -> None:
    """Say what messages cost with each ledger, and with what else keeps out duplicates: bytes, write units, dollars, and how long it goes well.

    --table or --collection reads a live store, and writes nothing: it fills in what no option says. Each option but --table, --collection,
    --json and --html may also be given by the environment: --item-bytes as ONEWRITE_PLAN_ITEM_BYTES.
    """
    _plan(**locals())


def _plan(*, as_json: bool, html: Path | None, version: bool, **options: Any) -> None:
    del version  # its callback has printed it

    def planned() -> int:
        inputs, sample = asked(options)
        compared = ways(inputs, engine_of(inputs))
        if html is not None:
            _write_page(html, inputs, compared, sample)
        sys.stdout.write(json_text(inputs, compared, sample)) if as_json else _print(inputs, compared, sample)
        return 0

    end(planned)


def _write_page(path: Path, inputs: Inputs, compared: list[Way], sample: Sample | None) -> None:
    from onewrite.cli.plan.page import page  # noqa: PLC0415  # it imports Plotly, which is slow

    try:
        with path.open("w", encoding="utf-8") as file:
            file.write(page(inputs, compared, sample))
    except OSError as error:
        raise ConfigurationError(f"The page cannot be written: {error}") from error


def _print(inputs: Inputs, compared: list[Way], sample: Sample | None) -> None:
    if is_plain(sys.stdout, os.environ):
        sys.stdout.write(plain_text(inputs, compared, sample))
    else:
        console = Console(file=sys.stdout, force_terminal=True)
        console.print(table(inputs, compared), plain_text(inputs, [], sample), sep="\n", highlight=False, markup=False)
