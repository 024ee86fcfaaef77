"""What the documentation shows is what happens: every Python block runs, every docstring's example holds."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

import onewrite

ROOT = Path(__file__).parents[2]
PAGES = [
    page
    for pattern in ("README.md", "docs/*.md", "examples/*/README.md", "infra/README.md")
    for page in sorted(ROOT.glob(pattern))
]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FOUND = [module.name for module in pkgutil.walk_packages(onewrite.__path__, "onewrite.")]
MODULES = ["onewrite", *(name for name in FOUND if not name.endswith("__main__"))]  # to import that one is to run it


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_python_block_of_a_page_runs(page: Path) -> None:
    text = page.read_text()
    namespace: dict[str, Any] = {"__name__": page.stem}
    for block in BLOCK.finditer(text):
        lines_before = text.count("\n", 0, block.start(1))  # so that a traceback shows the line of the page
        exec(compile("\n" * lines_before + block[1], str(page), "exec"), namespace)  # noqa: S102  # our own pages


def test_the_readme_shows_code() -> None:
    assert len(BLOCK.findall((ROOT / "README.md").read_text())) > 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_to_a_file_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("name", MODULES)
def test_every_example_in_a_docstring_holds(name: str) -> None:
    module = importlib.import_module(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert doctest.testmod(module, report=True).failed == 0


def test_there_are_examples_in_docstrings() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]
    assert {test.name for test in examples} >= {"onewrite.message.Message", "onewrite.message.sortable"}
