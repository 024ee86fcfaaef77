"""The measured ways as tables in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.benchmarks.peers.bills import Bill
from tests.benchmarks.peers.ways import Delivery, Line, Result, Unmeasured

_COLUMNS = ("time, on loopback", "time, {away} away", "processor time", "requests", "write units", "write units, 4.5 KB")
_LONGEST = 120  # characters of an error


def tables(results: Mapping[str, Sequence[Result]], away: str) -> str:
    """One table of fresh messages and one of duplicates. `results` has the ways of each engine, the unguarded one first."""
    columns = [column.format(away=away) for column in _COLUMNS]
    fresh = [_head("a fresh message", *columns), *_rows(results, lambda line: line.fresh, len(columns))]
    duplicates = [
        _head("a duplicate", *columns, "effects"),
        *_rows(results, lambda line: line.again, len(columns), effects=True),
    ]
    return "\n".join([*fresh, "", *duplicates])


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*columns: str) -> str:
    return f"{row(*columns)}\n{'|---' * len(columns)}|"


def _rows(
    results: Mapping[str, Sequence[Result]], side: Callable[[Line], Delivery], columns: int, *, effects: bool = False
) -> Iterator[str]:
    for engine, ways in results.items():
        yield row(f"**{engine}**", *[""] * (columns + effects))
        first_line = next((result for result in ways if isinstance(result, Line)), None)
        for result in ways:
            if isinstance(result, Unmeasured) or first_line is None:
                reason = result.why if isinstance(result, Unmeasured) else ""
                yield row(result.name, _one_line(reason), *[""] * (columns + effects - 1))
            else:
                cells = _cells(side(result), side(first_line))
                yield row(_title(result), *cells, *([f"{result.effects:g}"] if effects else []))


def _title(line: Line) -> str:
    return f"**{line.name}**" if line.ours else line.name


def _one_line(reason: str) -> str:
    return " ".join(reason.replace("|", "/").split())[:_LONGEST]


def _cells(delivery: Delivery, first: Delivery) -> list[str]:
    times = [_time(delivery.near.seconds, first.near.seconds), _time(delivery.far.seconds, first.far.seconds)]
    return [
        *times,
        _time(delivery.near.cpu, first.near.cpu),
        f"{delivery.small.requests:.3g}",
        _units(delivery.small),
        _units(delivery.large),
    ]


def _time(seconds: float, first: float) -> str:
    return f"{seconds * 1000:.2f} ms ({seconds / first:.2f})"


def _units(bill: Bill) -> str:
    reads = f" and {bill.read_units:.3g} to read" if bill.read_units else ""
    return f"{bill.write_units:.3g}{reads}" if bill.write_units or bill.read_units else ""
