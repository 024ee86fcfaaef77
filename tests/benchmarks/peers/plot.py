"""The measured ways as bars, in an SVG that is written here: it needs no library, and its grey is legible on white and on black."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from tests.benchmarks.peers.ways import Line, Result

_WIDTH, _GUTTER, _BARS = 900, 330, 500  # of the picture, of the names, and of the longest bar
_TITLE, _ENGINE, _WAY, _BAR = 58, 36, 32, 12  # heights
_TEXT, _OURS, _THEIRS = "#797979", "#2f81f7", "#8b949e"
_NEAR, _FAR = 0.5, 1.0  # opacities


def picture(results: Mapping[str, Sequence[Result]], away: str) -> str:
    """How long a fresh message takes, the unguarded write of each engine being 1."""
    lines_of = {engine: [line for line in ways if isinstance(line, Line)] for engine, ways in results.items()}
    longest = max((ratio for lines in lines_of.values() for line in lines for ratio in _ratios(line, lines[0])), default=1.0)
    height = _TITLE + sum(_ENGINE + _WAY * len(lines) for lines in lines_of.values())
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" font-size="13">',
        _text(0, 16, "The time of a fresh message, unguarded write = 1 (less is better)", bold=True),
        *_legend(away),
    ]
    top = _TITLE
    for engine, lines in lines_of.items():
        parts.append(_text(0, top + 16, engine, bold=True))
        top += _ENGINE
        parts.append(_line(top - 8, top + _WAY * len(lines) - 8, 1 / longest))
        for line in lines:
            parts += _bars(line, lines[0], top, longest)
            top += _WAY
    return "\n".join([*parts, "</svg>", ""])


def _ratios(line: Line, first: Line) -> tuple[float, float]:
    return line.fresh.near.seconds / first.fresh.near.seconds, line.fresh.far.seconds / first.fresh.far.seconds


def _legend(away: str) -> Iterator[str]:
    for x, (opacity, text) in zip((0, 110), ((_NEAR, "on loopback"), (_FAR, f"{away} away")), strict=True):
        yield _rect(x, 30, _BAR, _THEIRS, opacity)
        yield _text(x + 18, 41, text)
    yield _rect(220, 30, _BAR, _OURS, _FAR)
    yield _text(238, 41, "onewrite")


def _bars(line: Line, first: Line, top: int, longest: float) -> Iterator[str]:
    yield _text(_GUTTER - 10, top + 16, line.name.replace("`", ""), end=True)
    for number, (ratio, opacity) in enumerate(zip(_ratios(line, first), (_NEAR, _FAR), strict=True)):
        width, y = ratio / longest * _BARS, top + number * _BAR
        yield _rect(_GUTTER, y, width, _OURS if line.ours else _THEIRS, opacity)
        yield _text(_GUTTER + width + 6, y + 10, f"{ratio:.2f}", size=11)


def _line(top: float, bottom: float, share: float) -> str:
    x = _GUTTER + share * _BARS
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{bottom}" stroke="{_TEXT}" stroke-dasharray="3 3"/>'


def _rect(x: float, y: float, width: float, colour: str, opacity: float) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR - 1}" fill="{colour}" fill-opacity="{opacity}"/>'


def _text(x: float, y: float, text: str, *, bold: bool = False, end: bool = False, size: int = 13) -> str:
    weight, anchor = ' font-weight="bold"' if bold else "", ' text-anchor="end"' if end else ""
    return f'<text x="{x:.1f}" y="{y}" fill="{_TEXT}" font-size="{size}"{weight}{anchor}>{escape(text)}</text>'
