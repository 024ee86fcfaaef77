"""What a benchmark shows as a part of a page, and how it gets there: between two comments that name it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PAGE = "benchmarks.md"


@dataclass(frozen=True, slots=True)
class Section:
    """`files` are written beside the page."""

    name: str
    text: str
    files: Mapping[str, str] = field(default_factory=dict)


def write(section: Section, folder: Path) -> None:
    page = folder / PAGE
    page.write_text(replace(page.read_text(), section))
    for name, text in section.files.items():
        (folder / name).write_text(text)


def replace(page: str, section: Section) -> str:
    """The page with this section in the place of the one that is there."""
    begin, end = f"<!-- {section.name}: made by the benchmark -->\n", f"<!-- end of {section.name} -->\n"
    head, begin_line, remainder = page.partition(begin)
    _, end_line, tail = remainder.partition(end)
    if not begin_line or not end_line:
        raise ValueError(f"{PAGE} has no place for {section.name}: put these two lines where it belongs:\n{begin}{end}")
    return f"{head}{begin}\n{section.text}\n\n{end}{tail}"
