"""The measured ways as tables in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tests.benchmarks.peers.bills import Bill
from tests.benchmarks.peers.ways import Line, Result, Unmeasured

_TIMES = ("time on loopback", "time, {away} away", "processor time")
_BILL = ("requests", "write units", "write units, 4.5 KB")
_DUPLICATE = "duplicate, requests"
_LONGEST = 120  # characters of an error


def tables(results: Mapping[str, Sequence[Result]], away: str) -> str:
    """Return the table of all ways. `results` has the ways of each engine, the unguarded one first: the others' times are ratios to its own."""
    columns = [column.format(away=away) for column in ("a fresh message", *_TIMES, *_BILL, _DUPLICATE)]
    return "\n".join(_lines(results, columns))


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*columns: str) -> str:
    return f"{row(*columns)}\n{'|---' * len(columns)}|"


def _lines(results: Mapping[str, Sequence[Result]], columns: Sequence[str]) -> Iterator[str]:
    yield _head(*columns)
    for engine, ways in results.items():
        yield row(f"**{engine}**", *[""] * (len(columns) - 1))
        first_line = next((result for result in ways if isinstance(result, Line)), None)
        for result in ways:
            if isinstance(result, Unmeasured) or first_line is None:
                reason = result.why if isinstance(result, Unmeasured) else ""
                yield row(result.name, _one_line(reason), *[""] * (len(columns) - 2))
            else:
                yield row(_title(result), *_cells(result, first_line))


def _title(line: Line) -> str:
    return f"**{line.name}**" if line.ours else line.name


def _one_line(reason: str) -> str:
    return " ".join(reason.replace("|", "/").split())[:_LONGEST]


def _cells(line: Line, first: Line) -> list[str]:
    return [
        *(_time(seconds, base, line is first) for seconds, base in zip(_times(line), _times(first), strict=True)),
        f"{line.fresh.small.requests:.3g}",
        _units(line.fresh.small),
        _units(line.fresh.large),
        f"{line.again.small.requests:.3g}",
    ]


def _times(line: Line) -> tuple[float, float, float]:
    return line.fresh.near.seconds, line.fresh.far.seconds, line.fresh.near.cpu


def _time(seconds: float, first: float, is_first: bool) -> str:
    return f"{seconds * 1000:.2f} ms" if is_first else f"{seconds / first:.2f}"


def _units(bill: Bill) -> str:
    reads = f" and {bill.read_units:.3g} to read" if bill.read_units else ""
    return f"{bill.write_units:.3g}{reads}" if bill.write_units or bill.read_units else ""
