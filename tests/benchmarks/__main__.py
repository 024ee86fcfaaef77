"""`python -m tests.benchmarks`: ratios of two things that took turns in one run, on real engines over loopback."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks import events, explorer, hot_entity, imports, lean, processor, speed_dynamodb, speed_mongodb, worker
from tests.benchmarks.measure import Plan, Row
from tests.benchmarks.peers import run as peers
from tests.benchmarks.sections import PAGE, Section, write
from tests.support.engines import dynoxide_binary, mongod_binary

GROUPS: dict[str, Callable[[Plan], Iterator[Row] | Iterator[Section] | Iterator[Row | Section]]] = {
    "speed_dynamodb": speed_dynamodb.rows,
    "lean": lean.rows,
    "speed_mongodb": speed_mongodb.rows,
    "processor": processor.rows,
    "explorer": explorer.rows,
    "worker": worker.rows,
    "hot_entity": hot_entity.rows,
    "imports": imports.rows,
    "events": events.rows,
    "peers": peers.results,
}


def main(arguments: list[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    plan = Plan(options.rounds)
    for engine in (dynoxide_binary, mongod_binary):
        engine()  # fetched where it is missing
    results: list[tuple[str, Row]] = []
    for group in options.only or GROUPS:
        for result in GROUPS[group](plan):
            if isinstance(result, Section):
                _show(result, options)
                continue
            results.append((group, result))
            if not options.json:
                _progress(group, result)
    print(_json(results) if options.json else "\n" + table([row for _, row in results]))
    return 0  # a missed target is a result, not a failure


def table(rows: list[Row]) -> str:
    lines = [("what", "against", "value", "spread", "target", "")]
    lines += [(row.what, row.against, _number(row.value, row), _spread(row), _target(row), row.verdict) for row in rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000, help="turns of each contender (default: 2000)")
    parser.add_argument("--only", action="append", choices=GROUPS, help="this group alone; may be given again")
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help=f"write what belongs there into the {PAGE} of this folder"
    )
    parser.add_argument("--json", action="store_true", help="the rows as JSON")
    return parser


def _show(section: Section, options: argparse.Namespace) -> None:
    if options.write is not None:
        write(section, options.write)
    if not options.json:
        print(f"\n{section.text}\n", flush=True)


def _progress(group: str, row: Row) -> None:
    print(
        f"{group}: {row.what} / {row.against}: {_number(row.value, row)} {row.verdict}".rstrip(), file=sys.stderr, flush=True
    )


def _json(results: list[tuple[str, Row]]) -> str:
    return json.dumps(
        [{"group": group, **dataclasses.asdict(row), "verdict": row.verdict} for group, row in results], indent=2
    )


def _number(value: float, row: Row) -> str:
    match row.unit:
        case "x":
            return f"{value:.3f} x"
        case "s":
            return f"{value:.1f} s"
        case "us":
            return f"{value:.1f} us"


def _spread(row: Row) -> str:
    return f"{_number(row.low, row)} .. {_number(row.high, row)}"


def _target(row: Row) -> str:
    return "" if row.target is None else f"<= {_number(row.target, row)}"


if __name__ == "__main__":
    sys.exit(main())
