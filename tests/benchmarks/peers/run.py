"""onewrite beside the other ways to handle a message that comes at least once: one run, a table and a plot."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.benchmarks.measure import Plan
from tests.benchmarks.peers.dynamodb import OnDynamoDB
from tests.benchmarks.peers.mongodb import OnMongoDB
from tests.benchmarks.peers.plot import draw_costs
from tests.benchmarks.peers.race import DISTANCE, measure
from tests.benchmarks.peers.table import tables
from tests.benchmarks.peers.ways import Engine, Result
from tests.benchmarks.sections import Section

PICTURE = "peers.svg"
_PACKAGES = ("boto3", "pymongo", "aws-lambda-powertools", "idemkit")


def results(plan: Plan) -> Iterator[Section]:
    away, load_before, spread = f"{2000 * DISTANCE:g} ms", _load(), 0.0
    results_of: dict[str, list[Result]] = {}
    with ExitStack() as stack:
        engines: list[Engine] = [OnDynamoDB(stack), OnMongoDB(stack)]
        for engine in engines:
            lines, deviation = measure(engine, plan)
            results_of[f"{engine.name} ({engine.program})"], spread = lines, max(spread, deviation)
        about = (
            f"One run of {plan.rounds:,} turns, {machine()}; the load was {load_before} when it began and {_load()} when it ended. In each fifth "
            f"of the run, the ratios on loopback are within {spread:.0%} of those in the table."
        )
        plot = f"![What one fresh message costs by each way: requests, write units, time, and processor time]({PICTURE})"
        yield Section("peers", f"{about}\n\n{plot}\n\n{tables(results_of, away)}", {PICTURE: draw_costs(results_of, away)})


def machine() -> str:
    versions = [f"Python {platform.python_version()}"]
    for package in _PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{package} {importlib.metadata.version(package)}")
    return f"{os.cpu_count()} cores{_processor()}, {', '.join(versions)}"


def _processor() -> str:
    """Its name, where Linux tells it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return f" ({line.partition(':')[2].strip()})"
    return ""


def _load() -> str:
    return f"{os.getloadavg()[0]:.1f}"
