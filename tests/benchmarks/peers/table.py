"""The measured ways as tables in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.benchmarks.peers.bills import Bill
from tests.benchmarks.peers.ways import Delivery, Line, Result, Unmeasured

_COLUMNS = ("time, on loopback", "time, {away} away", "processor time", "requests", "write units", "write units, 4.5 KB")
_LONGEST = 120  # characters of an error


def tables(measured: Mapping[str, Sequence[Result]], away: str) -> str:
    """One table of fresh messages and one of duplicates. `measured` has the ways of each engine, the unguarded one first."""
    columns = [column.format(away=away) for column in _COLUMNS]
    fresh = [_head("a fresh message", *columns), *_rows(measured, lambda each: each.fresh, len(columns))]
    again = [
        _head("a duplicate", *columns, "effects"),
        *_rows(measured, lambda each: each.again, len(columns), effects=True),
    ]
    return "\n".join([*fresh, "", *again])


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*columns: str) -> str:
    return f"{row(*columns)}\n{'|---' * len(columns)}|"


def _rows(
    measured: Mapping[str, Sequence[Result]], side: Callable[[Line], Delivery], columns: int, *, effects: bool = False
) -> Iterator[str]:
    for engine, ways in measured.items():
        yield row(f"**{engine}**", *[""] * (columns + effects))
        first = next((each for each in ways if isinstance(each, Line)), None)
        for each in ways:
            if isinstance(each, Unmeasured) or first is None:
                why = each.why if isinstance(each, Unmeasured) else ""
                yield row(each.name, _told(why), *[""] * (columns + effects - 1))
            else:
                cells = _cells(side(each), side(first))
                yield row(_named(each), *cells, *([f"{each.effects:g}"] if effects else []))


def _named(line: Line) -> str:
    return f"**{line.name}**" if line.ours else line.name


def _told(why: str) -> str:
    return " ".join(why.replace("|", "/").split())[:_LONGEST]


def _cells(found: Delivery, first: Delivery) -> list[str]:
    times = [_time(found.near.seconds, first.near.seconds), _time(found.far.seconds, first.far.seconds)]
    return [
        *times,
        _time(found.near.cpu, first.near.cpu),
        f"{found.small.requests:.3g}",
        _units(found.small),
        _units(found.large),
    ]


def _time(seconds: float, first: float) -> str:
    return f"{seconds * 1000:.2f} ms ({seconds / first:.2f})"


def _units(bill: Bill) -> str:
    reads = f" and {bill.read_units:.3g} to read" if bill.read_units else ""
    return f"{bill.write_units:.3g}{reads}" if bill.write_units or bill.read_units else ""
