"""What the bytecode in a Lambda package saves at a cold start: the imports of the order-history example, with it and without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.measure import Plan, Row, ratio, take_turns
from tests.support.packages import make_package

TARGET = 0.5
_STARTS = 15  # each takes a third of a second, and a median of these is steady
# boto3 is the runtime's, and has its bytecode either way.
_START = """
import time
import boto3
begun = time.perf_counter()
import order_history.feed
print(time.perf_counter() - begun)
"""


def rows(plan: Plan) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as temporary:
        package = Path(temporary) / "compiled"
        make_package("--output", package)
        sources = Path(temporary) / "sources"
        shutil.copytree(package, sources, ignore=shutil.ignore_patterns("__pycache__"))
        seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
        contenders = {
            "ours": lambda _: seconds["ours"].append(_seconds(package)),
            "theirs": lambda _: seconds["theirs"].append(_seconds(sources)),
        }
        take_turns(contenders, _STARTS, warmup=0, seed=plan.seed)
    yield ratio(
        "imports at a cold start, packed with bytecode", "packed without", seconds["ours"], seconds["theirs"], target=TARGET
    )


def _seconds(package: Path) -> float:
    """As Lambda starts it: what is compiled is not kept, for the package cannot be written to."""
    environment = {**os.environ, "PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", _START]
    return float(subprocess.run(command, env=environment, cwd=package, check=True, capture_output=True, text=True).stdout)
