"""Draws each .dot file of this folder with Graphviz as an SVG beside it: `make diagrams`.

An SVG says by a hash which source it was drawn from. Its lines and letters follow the colours of the page, light or dark.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

FOLDER = Path(__file__).parent
LETTERS = "Helvetica,Arial,sans-serif"
DEFAULTS = [
    "-Gbgcolor=transparent",
    "-Gnodesep=0.3",
    "-Granksep=0.45",
    *(f"-{kind}fontname={LETTERS}" for kind in "GNE"),
    "-Nfontsize=12",
    "-Efontsize=11",
    "-Nshape=box",
    "-Nstyle=rounded,filled",
    "-Nfillcolor=#8b949e26",
    "-Nmargin=0.16,0.1",
    "-Earrowsize=0.7",
]
STYLE = "<style>svg { color: #24292f } @media (prefers-color-scheme: dark) { svg { color: #e6edf3 } }</style>"


def mark(source: str) -> str:
    return f"<!-- drawn from {hashlib.sha256(source.encode()).hexdigest()} -->"


def drawn(source: str) -> str:
    command = ["dot", "-Tsvg", *DEFAULTS]
    svg = subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout  # noqa: S603  # our own sources
    _, opening, rest = svg.partition("<svg")
    head, end, body = rest.partition(">")
    body = body.replace("<text ", '<text fill="currentColor" ').replace('"black"', '"currentColor"')
    return f"{mark(source)}\n{opening}{head}{end}\n{STYLE}{body}"


def main() -> None:
    for path in sorted(FOLDER.glob("*.dot")):
        path.with_suffix(".svg").write_text(drawn(path.read_text()))


if __name__ == "__main__":
    main()
