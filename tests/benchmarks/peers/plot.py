"""Draws what a fresh message costs in each way as an SVG. Its grey is legible on white and on black, and no library is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from tests.benchmarks.peers.ways import Line, Result

_WIDTH, _NAMES, _PANEL, _LONGEST = 900, 290, 152, 100  # of the picture, of the names, of a panel, and of the longest bar
_TITLE, _ENGINE, _WAY, _BAR = 64, 32, 22, 14  # heights
_TEXT, _OURS, _THEIRS = "#797979", "#2f81f7", "#8b949e"


class _Cost(NamedTuple):
    """One cost of a message, which has a panel of its own."""

    title: str
    read: Callable[[Line], float]


def draw_costs(results: Mapping[str, Sequence[Result]], away: str) -> str:
    """Return the picture. Each cost of an unguarded write is 1, so the panels show ratios, except where an engine has no such cost."""
    costs = [
        _Cost("requests", lambda line: line.fresh.small.requests),
        _Cost("write units", lambda line: line.fresh.small.write_units),
        _Cost(f"time, {away} away", lambda line: line.fresh.far.seconds),
        _Cost("processor time", lambda line: line.fresh.near.cpu),
    ]
    lines_of = {engine: [line for line in ways if isinstance(line, Line)] for engine, ways in results.items()}
    height = _TITLE + sum(_ENGINE + _WAY * len(lines) for lines in lines_of.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13">',
        _text(0, 16, "What one fresh message costs (unguarded write = 1, less is better)", bold=True),
        *[_text(_NAMES + _PANEL * place, 46, cost.title, bold=True) for place, cost in enumerate(costs)],
    ]
    top = _TITLE
    for engine, lines in lines_of.items():
        parts.append(_text(0, top + 14, engine, bold=True))
        top += _ENGINE
        for number, line in enumerate(lines):
            parts.append(_text(0, top + _WAY * number + 11, line.name.replace("`", ""), ours=line.ours))
        for place, cost in enumerate(costs):
            parts += _draw_panel(_NAMES + _PANEL * place, top, lines, cost)
        top += _WAY * len(lines)
    return "\n".join([*parts, "</svg>", ""])


def _draw_panel(left: float, top: float, lines: Sequence[Line], cost: _Cost) -> Iterator[str]:
    unguarded = cost.read(lines[0]) if lines else 0
    if not unguarded:  # MongoDB has no write units
        return
    ratios = [cost.read(line) / unguarded for line in lines]
    longest = max(ratios)
    for number, (line, ratio) in enumerate(zip(lines, ratios, strict=True)):
        width, y = ratio / longest * _LONGEST, top + _WAY * number
        yield _draw_bar(left, y, width, _OURS if line.ours else _THEIRS)
        yield _text(left + width + 5, y + 11, f"{ratio:.2f}".rstrip("0").rstrip("."), size=11)
    x, bottom = left + _LONGEST / longest, top + _WAY * len(lines) - 4
    yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 4}" y2="{bottom}" stroke="{_TEXT}" stroke-dasharray="3 3"/>'


def _draw_bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{colour}"/>'


def _text(x: float, y: float, text: str, *, bold: bool = False, ours: bool = False, size: int = 13) -> str:
    weight, colour = ' font-weight="bold"' if bold else "", _OURS if ours else _TEXT
    return f'<text x="{x:.1f}" y="{y}" fill="{colour}" font-size="{size}"{weight}>{escape(text)}</text>'
