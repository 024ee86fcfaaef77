from __future__ import annotations

from pathlib import Path

import pytest

from payment.__main__ import main

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_the_table_that_main_counts_is_the_one_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    main()

    assert capsys.readouterr().out in README.read_text(encoding="utf-8")
