"""Packing for Lambda, as infra/README.md says to; imports nothing of the examples, which the benchmarks do not have on their path."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def make_package(*arguments: str | Path, python: str | Path = sys.executable) -> str:
    """Packs what the arguments say, with the Python of the runtime that it is for. What package.py prints."""
    # Without our PYTHONPATH: another version of Python must not find this one's packages.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [python, ROOT / "infra" / "package.py", *arguments]
    return subprocess.run(command, check=True, capture_output=True, env=environment).stdout.decode()
