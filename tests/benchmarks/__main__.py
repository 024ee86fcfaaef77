"""`python -m tests.benchmarks`: ratios of two things that took turns in one run, on real engines over loopback."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.benchmarks import events, explorer, hot_entity, imports, lean, memory, relay, worker
from tests.benchmarks.measure import Plan, Row
from tests.benchmarks.peers import run as peers
from tests.benchmarks.sections import PAGE, Section, write
from tests.support.engines import dynoxide_binary, mongod_binary

GROUPS: dict[str, Callable[[Plan], Iterator[Row] | Iterator[Section]]] = {
    "lean": lean.rows,
    "relay": relay.rows,
    "worker": worker.rows,
    "memory": memory.rows,
    "explorer": explorer.rows,
    "imports": imports.rows,
    "hot_entity": hot_entity.rows,
    "events": events.rows,
    "peers": peers.results,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000, help="turns of each contender (default: 2000)")
    parser.add_argument("--only", action="append", choices=GROUPS, help="this group alone; may be given again")
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help=f"write what belongs there into the {PAGE} of this folder"
    )
    options = parser.parse_args(arguments)
    for engine in (dynoxide_binary, mongod_binary):
        engine()  # fetched where it is missing
    for group in options.only or GROUPS:
        for result in GROUPS[group](Plan(options.rounds)):
            if isinstance(result, Section) and options.write is not None:
                write(result, options.write)
            print(f"\n{result.text}\n" if isinstance(result, Section) else describe(group, result), flush=True)
    return 0


def describe(group: str, row: Row) -> str:
    value, low, high = (f"{number:.3f} {row.unit}" for number in (row.value, row.low, row.high))
    return f"{group}: {row.what} / {row.against}: {value} ({low} to {high})"


if __name__ == "__main__":
    sys.exit(main())
