"""The README of each example shows what its program prints."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from tests.support.pages import ROOT

SLOW = ("payment", "saga")


@pytest.mark.parametrize(
    "example", ["credit", "demo", "order_history", *(pytest.param(each, marks=pytest.mark.slow) for each in SLOW)]
)
def test_readme_shows_the_output_of_the_example(
    example: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["python -m"])
    import_module(f"{example}.__main__").main()
    assert capsys.readouterr().out.strip() in (ROOT / "examples" / example / "README.md").read_text()
