"""What `plan` says: as a table, as lines, as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from onewrite.message import printable
from onewrite.operate.plan.inputs import Inputs
from onewrite.operate.plan.ways import MONTH, Spread, StoreSample, Way
from onewrite.operate.report import count_of, noun

_SIZES = ("B", "KB", "MB", "GB", "TB", "PB")
_LONG = 1000  # the first number that is told in the next unit, or with a comma
_EXACT = 100  # the first number that is told without a fraction
_CENT = 0.01
_YEAR = 365  # days
_A_FEW = 2  # of a unit of time: fewer are told in the next one below


class Column(NamedTuple):
    """A heading, and its text for each way."""

    heading: str
    cells: list[str]


def columns(inputs: Inputs, ways: list[Way]) -> list[Column]:
    """All that is told of the ways, side by side."""
    dynamodb = inputs.engine == "dynamodb"
    pairs = [
        ("", [way.name for way in ways]),
        ("ledger", [_sizes(way.ledger) for way in ways]),
        ("write units, fresh", [_or(way.fresh, _spread) for way in ways] if dynamodb else []),
        ("write units, refused", [_or(way.refused, _spread) for way in ways] if dynamodb else []),
        ("write units a month", [_or(way.a_month, count) for way in ways] if dynamodb else []),
        ("dollars a month", [_or(way.dollars, dollars) for way in ways] if dynamodb else []),
        ("stored beside", [_or(way.stored, size) for way in ways]),
        ("full after", ["never" if way.full_after is None else age(way.full_after) for way in ways]),
        ("burst", [_or(way.burst, rate) for way in ways] if dynamodb else []),
        ("sustained", [_or(way.sustained, rate) for way in ways]),
    ]
    return [Column(heading, cells) for heading, cells in pairs if cells]


def rich_table(inputs: Inputs, ways: list[Way]) -> Table:
    """For a terminal."""
    table = Table(title=title(inputs))
    all_columns = columns(inputs, ways)
    for column in all_columns:
        table.add_column(
            column.heading, justify="left" if column is all_columns[0] else "right", no_wrap=column is all_columns[0]
        )
    for n, way in enumerate(ways):
        table.add_row(*[Text(column.cells[n]) for column in all_columns], style="" if way.fits else "red")
    return table


def plain_text(inputs: Inputs, ways: list[Way], sample: StoreSample | None) -> str:
    """For a file or a pipe: a paragraph for each way, and what the numbers rest on."""
    parts = [title(inputs), ""] if ways else []
    all_columns = columns(inputs, ways)
    for n, way in enumerate(ways):
        lines = [f"  {column.heading}: {column.cells[n]}" for column in all_columns[1:] if column.cells[n] != "-"]
        parts += [f"{way.name}{'' if way.fits else '  (does not fit)'}", *lines, ""]
    return "\n".join([*parts, *notes(inputs, sample), ""])


def title(inputs: Inputs) -> str:
    hot = rate(inputs.per_second)
    return (
        f"{_counted(inputs.per_day, 'message')} a day to {count_of(inputs.entities, 'entity', 'entities')} of {size(inputs.item_bytes)}; "
        f"the busiest gets {hot}"
    )


def notes(inputs: Inputs, sample: StoreSample | None) -> list[str]:
    """What the numbers rest on, a sentence each."""
    return [*_of_sample(sample), *_of_indexes(inputs), *_of_engine(inputs)]


def _of_sample(sample: StoreSample | None) -> Iterator[str]:
    if sample is None:
        return
    yield (
        f"{printable(sample.name)}: read {sample.looked_at:,} of about {count_of(sample.entities, 'entity', 'entities')}. On average they have {size(sample.own)} "
        f"without a ledger, and their ledgers {size(sample.ledger)}; the largest has {size(sample.largest)} in all."
    )
    if sample.kept:
        ledger_texts = ", ".join([f"{printable(name)} (in {number})" for name, number in sample.kept.items()])
        yield f"Ledgers found: {ledger_texts}. The largest share of a ledger in an entity is {sample.largest_share:.0%}."
    for name in sample.unused:
        yield f"No entity that was read is in the index {printable(name)}: it is not counted."


def _of_indexes(inputs: Inputs) -> Iterator[str]:
    for index in inputs.indexes:
        does = {"still": "does not touch it", "changes": "changes it", "moves": "changes its key"}[index.does]
        copies = ", and copies the ledger at every write" if index.copies_ledger else ""
        yield f"Index {printable(index.name)}: an entry has {size(index.size)} without a ledger; your own write {does}{copies}."


def _of_engine(inputs: Inputs) -> Iterator[str]:
    yield (
        f"Entities have received messages for {age(inputs.age)}; {inputs.duplicates * 100:g}% of the messages come a second time. An id has {count_of(inputs.id_bytes, 'byte')}; an entity gets "
        f"messages from {count_of(inputs.sources, 'source')}, with a name of {count_of(inputs.source_bytes, 'byte')}. A month has {MONTH} days. Ranges go from right after old marks were removed to just before."
    )
    if inputs.engine == "mongodb":
        yield (
            "MongoDB charges nothing for a write: what counts is how large a document becomes, of 16 MB that it takes, and what is stored. Every byte of a mark "
            "is written to the oplog once as well."
        )
        return
    if inputs.events:
        yield (
            f"A message emits {inputs.events:g} {noun(inputs.events, 'event')} of {size(inputs.event_bytes)}. They are part of the item until a relay has cleared them, "
            "which is one more write for each message, of the item and of each index that projects all attributes, and two of the index of the outbox."
        )
    prices = inputs.prices
    yield (
        f"A million write units cost ${prices.per_million_units:g}, a gigabyte ${prices.per_gigabyte_month:g} a month ({printable(prices.where)}). What is stored "
        "beside is the ledgers, or the records of messages; requests for reads and the entities' own storage are not counted."
    )
    yield "An item takes 400 KB and 1,000 write units a second. Tokens of the attempts of the last 45 minutes are part of each ledger: they bound what a busy item sustains."


def json_text(inputs: Inputs, ways: list[Way], sample: StoreSample | None) -> str:
    """For a program: numbers as they are, times in days, sizes in bytes, shares as fractions."""
    assumptions = {**asdict(inputs), "retention": inputs.retention.total_seconds() / 86_400}
    way_details = [asdict(way) for way in ways]
    days = None if sample is None or sample.retention is None else sample.retention.total_seconds() / 86_400
    sample_details = None if sample is None else {**asdict(sample), "retention": days}
    unit = "write units" if inputs.engine == "dynamodb" else None
    return json.dumps({"unit": unit, "inputs": assumptions, "sample": sample_details, "ways": way_details}, indent=2) + "\n"


# --- numbers in words ---------------------------------------------------------------------------------------------------


def size(value: float) -> str:
    """Bytes, in steps of 1024."""
    units = iter(_SIZES)
    unit = next(units)
    while value >= _LONG and (larger := next(units, None)) is not None:
        value, unit = value / 1024, larger
    return f"{_short(value)} {unit}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= _EXACT or value == int(value) else f"{value:.3g}"


def count(value: float) -> str:
    """A number as a person reads it."""
    for least, word in ((1e12, " trillion"), (1e9, " billion"), (1e6, " million")):
        if value >= least:
            return f"{value / least:.3g}{word}"
    return f"{value:,.0f}" if value >= _EXACT else f"{value:.3g}"


def dollars(value: float) -> str:
    return f"${value:,.0f}" if value >= _LONG else f"${value:.3g}" if 0 < value < _CENT else f"${value:,.2f}"


def age(days: float) -> str:
    if days >= _A_FEW * _YEAR:
        return _counted(days / _YEAR, "year")
    return _counted(days, "day") if days >= _A_FEW else _counted(days * 24, "hour")


def _counted(value: float, thing: str) -> str:
    text = count(value)
    return f"{text} {thing if text == '1' else f'{thing}s'}"


def rate(per_second: float) -> str:
    """Messages in a time in which there are some."""
    for unit, seconds in (("s", 1), ("h", 3600), ("day", 86_400)):
        if per_second * seconds >= 1:
            return f"{count(per_second * seconds)}/{unit}"
    return f"{count(per_second * 86_400 * _YEAR)}/year"


def _or(value: float | Spread | None, text: Any) -> str:
    return "-" if value is None else str(text(value))


def _sizes(spread: Spread | None) -> str:
    if spread is None:
        return "-"
    low, high = size(spread.low), size(spread.high)
    return high if low == high else f"{low} to {high}"


def _spread(spread: Spread) -> str:
    """The average, and the range where there is one."""
    low, high = count(spread.low), count(spread.high)
    return count(spread.mean) if low == high else f"{count(spread.mean)} ({low} to {high})"
