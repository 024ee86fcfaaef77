from __future__ import annotations

from pathlib import Path

import pytest

from order_history.__main__ import main

README = Path(__file__).parents[1] / "README.md"


def test_the_story_that_main_tells_is_the_one_in_the_readme(capsys: pytest.CaptureFixture[str]) -> None:
    main()

    assert capsys.readouterr().out in README.read_text(encoding="utf-8")
