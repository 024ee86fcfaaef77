"""Each failure on docs/guarantee.md names a test that exists, and that runs on servers unless the row is about clocks."""

from __future__ import annotations

import ast
import re

import pytest

from tests.support.pages import ROOT

PAGE = ROOT / "docs" / "guarantee.md"
_, _, SURVIVED = PAGE.read_text().partition("## Failures it survives")
TABLE = SURVIVED.partition("\n## ")[0]
ROWS = [line for line in TABLE.splitlines() if line.startswith("| ")][1:]
TESTS = re.compile(r"\]\((\S+) \"(test_\w+)\"\)")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split('"')[1])
def test_row_names_an_existing_test(row: str) -> None:
    named = TESTS.findall(row)
    assert named
    folders = ("../tests/properties/",) if "Clocks" in row else ("../tests/engines/", "../tests/contract/")
    assert all(path.startswith(folders) for path, _ in named)
    for path, name in named:
        tree = ast.parse((PAGE.parent / path).read_text())
        assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
