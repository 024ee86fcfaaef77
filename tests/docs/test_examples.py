"""The README of each example shows what its program prints."""

from __future__ import annotations

import sys
from importlib import import_module

import pytest

from tests.support.pages import BLOCK, ROOT

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


def test_page_about_several_entities_shows_a_recipe() -> None:
    recipes = [path.read_text() for path in (ROOT / "examples" / "several").glob("*.py")]
    shown, use = [block[1] for block in BLOCK.finditer((ROOT / "docs" / "several.md").read_text())]
    assert any(shown in recipe for recipe in recipes)
    assert "make_counter" in use
