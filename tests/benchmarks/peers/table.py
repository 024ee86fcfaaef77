"""The measured ways as tables in Markdown. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from tests.benchmarks.peers.bills import Bill
from tests.benchmarks.peers.ways import Delivery, Line, Result, Unmeasured

_TIMES = ("ms, on loopback", "ms, {away} away", "ms of processor time")
_BILL = ("requests", "write units", "write units, 4.5 KB")
_LONGEST = 120  # characters of an error


def tables(results: Mapping[str, Sequence[Result]], away: str) -> str:
    """Return a table of fresh messages and one of duplicates. `results` has the ways of each engine, the unguarded one first."""
    times = [column.format(away=away) for column in _TIMES]
    fresh = _table(results, ["a fresh message", *times, *_BILL], lambda line, first: _cells(line.fresh, first.fresh))
    duplicates = _table(results, ["a duplicate", times[1], *_BILL, "effects"], _duplicate_cells)
    return "\n".join([*fresh, "", *duplicates])


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _head(*columns: str) -> str:
    return f"{row(*columns)}\n{'|---' * len(columns)}|"


def _table(
    results: Mapping[str, Sequence[Result]], columns: Sequence[str], cells: Callable[[Line, Line], list[str]]
) -> Iterator[str]:
    """Yield the lines of a table. `cells` gets a measured way, and the first one that was measured on its engine."""
    yield _head(*columns)
    for engine, ways in results.items():
        yield row(f"**{engine}**", *[""] * (len(columns) - 1))
        first_line = next((result for result in ways if isinstance(result, Line)), None)
        for result in ways:
            if isinstance(result, Unmeasured) or first_line is None:
                reason = result.why if isinstance(result, Unmeasured) else ""
                yield row(result.name, _one_line(reason), *[""] * (len(columns) - 2))
            else:
                yield row(_title(result), *cells(result, first_line))


def _title(line: Line) -> str:
    return f"**{line.name}**" if line.ours else line.name


def _one_line(reason: str) -> str:
    return " ".join(reason.replace("|", "/").split())[:_LONGEST]


def _cells(delivery: Delivery, first: Delivery) -> list[str]:
    times = [_time(delivery.near.seconds, first.near.seconds), _time(delivery.far.seconds, first.far.seconds)]
    return [*times, _time(delivery.near.cpu, first.near.cpu), *_bill(delivery)]


def _duplicate_cells(line: Line, first: Line) -> list[str]:
    return [_time(line.again.far.seconds, first.again.far.seconds), *_bill(line.again), f"{line.effects:g}"]


def _bill(delivery: Delivery) -> list[str]:
    return [f"{delivery.small.requests:.3g}", _units(delivery.small), _units(delivery.large)]


def _time(seconds: float, first: float) -> str:
    return f"{seconds * 1000:.2f} ({seconds / first:.2f})"


def _units(bill: Bill) -> str:
    reads = f" and {bill.read_units:.3g} to read" if bill.read_units else ""
    return f"{bill.write_units:.3g}{reads}" if bill.write_units or bill.read_units else ""
