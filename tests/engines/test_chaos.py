"""The chaos runs, ends, and leaves nothing behind. `make chaos` runs it for longer, and on a replica set too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.engines import dynoxide_binary, mongod_binary, require

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_chaos_applies_and_publishes_each_message_once(tmp_path: Path) -> None:
    require(dynoxide_binary)
    require(mongod_binary)
    command = [sys.executable, "-m", "tests.chaos", "--seed", "3", "--minutes", "0.05", "--only", "dynoxide", "mongod"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}  # where the servers have their folders
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)
    said = run.stdout
    assert run.returncode == 0, said + run.stderr
    counts = {line.split("  ")[0]: line.split()[-2:] for line in said.splitlines() if line[-1:].isdigit()}
    assert all(int(count) > 0 for count in counts["messages"] + counts["Applied"] + counts["events"]), said
    assert counts["lost"] == counts["doubled"] == counts["events lost"] == ["0", "0"]
    assert [*tmp_path.iterdir()] == []
