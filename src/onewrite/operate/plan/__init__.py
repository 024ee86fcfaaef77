"""`onewrite plan`: what messages cost with each ledger, and with what else keeps out duplicates.

This reads what the options say, and what a live store shows where they say nothing.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import typer
from rich.console import Console

from onewrite.core.flow import run
from onewrite.core.ledgers.seen_ids import LONGEST_SQS_RETENTION, UNITS
from onewrite.errors import ConfigurationError
from onewrite.operate.options import AsJson, CollectionUrl, EndpointUrl, Region, TableName, VersionOption, option
from onewrite.operate.plan.inputs import Does, IndexLoad, Inputs, Prices
from onewrite.operate.plan.page import page
from onewrite.operate.plan.texts import json_text, plain_text, rich_table
from onewrite.operate.plan.ways import EngineCosts, StoreSample, ways
from onewrite.operate.report import end, is_plain, noun, tell
from onewrite.operate.stores import is_named, store_of

T = TypeVar("T")

_SPAN = re.compile(r"(\d{1,9})(d|h|m|s)")
_INDEX = re.compile(
    r"(?:(?P<name>[\w.-]+)=)?(?P<kind>ALL|KEYS_ONLY|INCLUDE)(?::(?P<size>\d{1,9}))?(?::(?P<does>still|changes|moves))?(?P<local>:local)?"
)
_WRITES = re.compile(r"(?P<name>[\w.-]+)=(?P<does>still|changes|moves)")
_RATE = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)/(s|m|h|d)")
_PRICES = re.compile(r"(\d{1,9}(?:\.\d{1,9})?),(\d{1,9}(?:\.\d{1,9})?)")
_ALL = 100  # percent
_KEYS = 100  # bytes that the keys of an entry are taken to have


def span(text: str) -> timedelta:
    """A retention, as 14d or 36h."""
    match = _SPAN.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"--retention {text}: give a number with d, h, m or s behind it, as in 14d or 36h.")
    return int(match[1]) * UNITS[match[2]]


def index_load(text: str, place: int, item_bytes: int) -> IndexLoad:
    """An index, as `by-status=ALL`, `INCLUDE:200:changes` or `KEYS_ONLY:still`. One without a name is called by its `place`."""
    match = _INDEX.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            f"--index {text}: write [NAME=]ALL, KEYS_ONLY or INCLUDE:BYTES, and behind it :still, :changes or :moves for what "
            "your write does to the index's entry, and :local for a local index."
        )
    kind, size = match["kind"], match["size"]
    if kind == "INCLUDE" and size is None:
        raise ConfigurationError(f"--index {text}: say how many bytes the index projects, as in INCLUDE:200.")
    if size is not None and int(size) < 1:
        raise ConfigurationError(f"--index {text}: an entry has a byte at least.")
    usual = {"ALL": item_bytes, "KEYS_ONLY": _KEYS, "INCLUDE": 0}[kind]
    does = match["does"] or ("still" if kind == "KEYS_ONLY" else "changes")
    return IndexLoad(
        match["name"] or f"index {place}", int(size or usual), kind == "ALL", cast("Does", does), match["local"] is not None
    )


def with_writes(loads: Sequence[IndexLoad], texts: Sequence[str]) -> tuple[IndexLoad, ...]:
    """The indexes of a live table, with what the options say of writes to them, as in `by-day=moves`."""
    effects: dict[str, Does] = {}
    for text in texts:
        match = _WRITES.fullmatch(text)
        if match is None:
            raise ConfigurationError(
                f"--writes {text}: write NAME=still, NAME=changes or NAME=moves, with the name of an index."
            )
        if match["name"] not in {load.name for load in loads}:
            raise ConfigurationError(f"--writes {text}: no item that was looked at is in an index of that name.")
        effects[match["name"]] = cast("Does", match["does"])
    return tuple([replace(load, does=effects.get(load.name, load.does)) for load in loads])


def share(option: str, percent: float | None) -> float | None:
    """A share, of a number of percent."""
    if percent is not None and not 0 <= percent <= _ALL:
        raise ConfigurationError(f"{option} {percent:g}: give percent, from 0 to 100.")
    return None if percent is None else percent / _ALL


def per_day(text: str) -> float:
    """Messages a day, as 20/s or 10000/d say it."""
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise ConfigurationError(
            f"--messages {text}: give a number above 0, and for each s, m, h or d, as in 20/s or 10000/d."
        )
    return float(match[1]) * (timedelta(days=1) / UNITS[match[2]])


def price_list(text: str | None) -> Prices:
    """The prices that were given, or the usual ones."""
    if text is None:
        return Prices()
    match = _PRICES.fullmatch(text)
    if match is None:
        raise ConfigurationError(
            f"--prices {text}: give dollars for a million write units and for a gigabyte a month, as in 0.625,0.25."
        )
    return Prices(float(match[1]), float(match[2]), "as given")


_AS_THEY_ARE = ("id_bytes", "source_bytes", "sources", "age", "event_bytes")
_WINDOW = 500


class EngineName(Enum):
    """The databases that are known."""

    DYNAMODB = "dynamodb"
    MONGODB = "mongodb"


def inputs_of(options: Mapping[str, Any]) -> tuple[Inputs, StoreSample | None]:
    """The inputs, and what was read of the store if one is named."""
    messages = per_day(options["messages"])
    retention = None if options["retention"] is None else span(options["retention"])
    hottest, duplicates = share("--hottest", options["hottest"]), share("--duplicates", options["duplicates"])
    prices = price_list(options["prices"])  # what is wrong with an option is told before a database is asked
    _check_complete(options)
    sample = _read_sample(options)
    item_bytes = _needed_of(sample, options["item_bytes"], "own", "--item-bytes")
    inputs = Inputs(
        engine=_engine(options, sample),
        item_bytes=item_bytes,
        per_day=messages,
        entities=_needed_of(sample, options["entities"], "entities", "--entities"),
        hottest=hottest,
        duplicates=duplicates or 0,
        retention=_first_of(retention, getattr(sample, "retention", None), LONGEST_SQS_RETENTION),
        window=_first_of(options["window"], getattr(sample, "window", None), _WINDOW),
        events=options["events"] if options["events"] is not None else float(sample is not None and sample.outboxes > 0),
        indexes=_indexes(options, sample, item_bytes),
        prices=prices,
        **{name: options[name] for name in _AS_THEY_ARE},
    )
    return inputs, sample


def _first_of(*values: T | None) -> T:
    """The first value that is known: what was given, what the live store shows, or the usual one."""
    return next(value for value in values if value is not None)


def _check_complete(options: Mapping[str, Any]) -> None:
    """Raise if no live store is named and something is missing that it would show."""
    missing = [f"--{name.replace('_', '-')}" for name in ("item_bytes", "entities") if options[name] is None]
    if missing and not is_named(options):
        verb, them = noun(len(missing), "is", "are"), noun(len(missing), "it", "them")
        raise ConfigurationError(
            f"{' and '.join(missing)} {verb} missing: give {them}, or name a live store by --table or --collection."
        )


def _needed_of(sample: StoreSample | None, value: int | None, name: str, option: str) -> int:
    """The value of an option, or what the sample shows."""
    if value is not None:
        return value
    if not (sample_value := getattr(sample, name)):
        raise ConfigurationError(f"There is nothing in {cast('StoreSample', sample).name} to learn from: give {option}.")
    return int(sample_value)


def _read_sample(options: Mapping[str, Any]) -> StoreSample | None:
    if not is_named(options):
        return None
    store, most = store_of(options), options["sample"]
    if store.engine == "dynamodb":
        from onewrite.operate.plan.dynamodb import table_sample  # noqa: PLC0415  # one engine does without the other's driver

        return run(table_sample(store, most), store.target)
    from onewrite.operate.plan.mongodb import collection_sample  # noqa: PLC0415  # as above

    return run(collection_sample(store, most), store.target)


def _engine(options: Mapping[str, Any], sample: StoreSample | None) -> Any:
    name: EngineName | None = options["engine"]
    if sample is None:
        return (name or EngineName.DYNAMODB).value
    if name is not None and name.value != sample.engine:
        raise ConfigurationError(f"--engine {name.value} contradicts the store that is named, which is {sample.engine}.")
    return sample.engine


def _indexes(options: Mapping[str, Any], sample: StoreSample | None, item_bytes: int) -> tuple[IndexLoad, ...]:
    texts: list[str] = options["index"] or []
    writes: list[str] = options["writes"] or []
    if sample is None:
        if writes:
            raise ConfigurationError(
                "--writes is for the indexes of a live table: say it with --index, as in --index ALL:moves."
            )
        return tuple([index_load(text, place, item_bytes) for place, text in enumerate(texts, start=1)])
    if texts:
        raise ConfigurationError(
            "--index is for tables that are not there yet: a live one says itself which indexes it has."
        )
    return with_writes(sample.indexes, writes)


def engine_of(inputs: Inputs) -> EngineCosts:
    """What counts for the engine of the inputs."""
    if inputs.engine == "dynamodb":
        from onewrite.operate.plan.dynamodb import OnDynamoDB  # noqa: PLC0415  # each driver may be missing

        return OnDynamoDB(inputs)

    from onewrite.operate.plan.mongodb import OnMongoDB  # noqa: PLC0415

    return OnMongoDB(inputs)


_option = partial(option, "PLAN")
_REQUIRED = "Required without --table or --collection."


def plan(
    *,
    messages: Annotated[
        str, _option("messages", "Messages of all entities together, each counted once: 20/s, 500/h or 10000/d.")
    ],
    table: TableName = None,
    collection: CollectionUrl = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    engine: Annotated[EngineName | None, _option("engine", "The database, if no store is named.")] = None,
    item_bytes: Annotated[int | None, _option("item-bytes", f"Bytes of an entity without its ledger. {_REQUIRED}")] = None,
    entities: Annotated[int | None, _option("entities", f"How many entities get messages. {_REQUIRED}")] = None,
    hottest: Annotated[
        float | None,
        _option("hottest", "Percent of all messages that the busiest entity gets. Without it, all get as many."),
    ] = None,
    duplicates: Annotated[float, _option("duplicates", "Percent of the messages that are delivered once more.")] = 1,
    events: Annotated[
        float | None, _option("events", "How many events a message emits; 1 if the live store has outboxes, or else none.")
    ] = None,
    event_bytes: Annotated[int, _option("event-bytes", "Bytes of an event.")] = 500,
    id_bytes: Annotated[int, _option("id-bytes", "Bytes of a message's id.")] = 36,
    source_bytes: Annotated[int, _option("source-bytes", "Bytes of the name of a source.")] = 16,
    sources: Annotated[int, _option("sources", "From how many sources one entity gets messages.")] = 1,
    retention: Annotated[
        str | None, _option("retention", "How long an id is remembered: 14d, 36h; as in the live store, or else 14d.")
    ] = None,
    window: Annotated[
        int | None, _option("window", f"The window of SeenNumbers; as in the live store, otherwise {_WINDOW}.")
    ] = None,
    age: Annotated[float, _option("age", "For how many days an entity has received messages.")] = 365,
    index: Annotated[
        list[str] | None,
        _option(
            "index",
            "A secondary index: [NAME=]ALL|KEYS_ONLY|INCLUDE[:BYTES][:still|changes|moves][:local]. May be repeated.",
        ),
    ] = None,
    writes: Annotated[
        list[str] | None,
        _option("writes", "What your write does to an index of --table: NAME=still|changes|moves. May be repeated."),
    ] = None,
    prices: Annotated[
        str | None, _option("prices", "Dollars for a million write units, and for a gigabyte a month: 0.625,0.25.")
    ] = None,
    sample: Annotated[int, _option("sample", "How many entities of a live store to read.", min=1, max=10_000)] = 100,
    as_json: AsJson = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots as well.")] = None,
    version: VersionOption = False,
) -> None:
    """Say what messages cost with each ledger, and with what else keeps out duplicates: bytes, write units, dollars, and how long an entity has room.

    --table or --collection reads a live store, and writes nothing: it fills in what no option says. Each option but --table, --collection,
    --json and --html may also be given by the environment: --item-bytes as ONEWRITE_PLAN_ITEM_BYTES.
    """
    options = locals()

    def make_plan() -> int:
        inputs, sample = inputs_of(options)
        all_ways = ways(inputs, engine_of(inputs))
        if html is not None:
            try:
                html.write_text(page(inputs, engine_of(inputs), all_ways, sample), encoding="utf-8")
            except OSError as error:
                raise ConfigurationError(f"The page cannot be written: {error}") from error
        if as_json:
            tell(json_text(inputs, all_ways, sample))
        elif is_plain(sys.stdout, os.environ):
            tell(plain_text(inputs, all_ways, sample))
        else:
            console = Console(file=sys.stdout, force_terminal=True)
            console.print(
                rich_table(inputs, all_ways), plain_text(inputs, [], sample), sep="\n", highlight=False, markup=False
            )
        return 0

    end(make_plan)
