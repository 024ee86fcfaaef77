"""How long an import takes in a new process, as Lambda does it at a cold start. The modules of Python itself count too."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.measure import Plan, Row

_MODULES = ("onewrite", "onewrite.identity", "onewrite.aws_lambda")
_PROCESSES = 15
_MEASURE = "from time import perf_counter; began = perf_counter(); import {module}; print(perf_counter() - began)"


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # a process is a turn
    for module in _MODULES:
        times = [_measure(module) for _ in range(_PROCESSES)]
        yield Row(f"import {module}", "nothing imported", statistics.median(times), min(times), max(times), "us")


def _measure(module: str) -> float:
    """Return the microseconds of an import, with Python's compiled files already written."""
    output = subprocess.check_output([sys.executable, "-c", _MEASURE.format(module=module)], text=True)
    return float(output) * 1e6
