"""How long an import takes in a new process, as Lambda does it at a cold start. The modules of Python itself count too."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.measure import Plan, Row

# What is imported, and what the process has imported before. A Lambda function imports boto3 in any case.
_IMPORTS = (("onewrite", ""), ("onewrite.identity", ""), ("onewrite.aws_lambda", ""), ("onewrite.aws_lambda", "boto3"))
_PROCESSES = 15
_MEASURE = "from time import perf_counter; began = perf_counter(); import {module}; print(perf_counter() - began)"


def rows(plan: Plan) -> Iterator[Row]:
    del plan  # a process is a turn
    for module, before in _IMPORTS:
        times = [_measure(module, before) for _ in range(_PROCESSES)]
        imported = f"{before or 'nothing'} imported"
        yield Row(f"import {module}", imported, statistics.median(times), min(times), max(times), "us")


def _measure(module: str, before: str) -> float:
    """Return the microseconds of an import, with Python's compiled files already written."""
    program = f"import {before or 'sys'}; {_MEASURE.format(module=module)}"
    output = subprocess.check_output([sys.executable, "-c", program], text=True)
    return float(output) * 1e6
