from __future__ import annotations

import re
from pathlib import Path

import pytest

from saga.__main__ import main

README = Path(__file__).parents[1] / "README.md"


def test_the_readmes_code_runs_as_it_stands() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, README.name, "exec"), names)  # noqa: S102  # our own text
    assert blocks


@pytest.mark.slow
def test_the_table_that_main_counts_is_the_one_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    main([])

    assert capsys.readouterr().out in README.read_text(encoding="utf-8")
