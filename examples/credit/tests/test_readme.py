from __future__ import annotations

from pathlib import Path

import pytest

from credit.__main__ import main

README = Path(__file__).parents[1] / "README.md"


def test_readme_shows_the_output_of_main(capsys: pytest.CaptureFixture[str]) -> None:
    main()

    assert capsys.readouterr().out in README.read_text(encoding="utf-8")
