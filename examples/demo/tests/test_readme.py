from __future__ import annotations

from pathlib import Path

import pytest

from demo.__main__ import main

README = Path(__file__).parents[1] / "README.md"


def test_comparison_in_the_readme_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main()

    assert capsys.readouterr().out.strip() in README.read_text(encoding="utf-8")
