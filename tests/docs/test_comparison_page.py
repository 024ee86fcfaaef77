"""The figures of docs/comparison.md are those of the page that the benchmark writes."""

from __future__ import annotations

import pytest

from tests.support.pages import ROOT

HEAD = "| a fresh message |"


def table(page: str) -> list[dict[str, str]]:
    """The rows of the table of a fresh message, by the names of its columns."""
    lines = iter((ROOT / "docs" / page).read_text().splitlines())
    names = next(cells(line) for line in lines if line.startswith(HEAD))
    rows: list[dict[str, str]] = []
    for line in lines:
        if not line.startswith("|"):
            return rows
        rows.append(dict(zip(names, cells(line), strict=True)))
    return rows


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


MEASURED = table("benchmarks.md")
SHOWN = table("comparison.md")[1:]


def test_there_is_a_row_for_each_kind_of_way() -> None:
    assert len(SHOWN) >= 8


@pytest.mark.parametrize("row", SHOWN, ids=lambda row: row["a fresh message"])
def test_a_row_is_as_it_was_measured(row: dict[str, str]) -> None:
    assert row in [{name: measured[name] for name in row} for measured in MEASURED]
