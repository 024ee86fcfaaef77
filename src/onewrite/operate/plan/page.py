"""A plan as one page that needs nothing else: the plots, the table, and what the numbers rest on. Light and dark, as the visitor has it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from itertools import groupby
from math import log10
from string import Template
from typing import NamedTuple

from onewrite.operate.plan.inputs import Inputs
from onewrite.operate.plan.texts import columns, count, dollars, notes, rate, size, title
from onewrite.operate.plan.ways import Curve, EngineCosts, StoreSample, Way, by_age, by_rate

# Told apart by those who see no red or no green too, and legible on white and on black.
COLOURS = ("#2f81f7", "#9a6dea", "#e5534b", "#2da44e", "#c98a0b", "#7d8590", "#e0703a", "#d6539b")
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 720, 380, 76, 12, 16, 48  # of a plot with lines, and of the room around it
_DECADES = (0.1, 1, 10, 100, 1e3, 1e4, 1e5)
_BYTES = (1, 10, 100, 2**10, 10 * 2**10, 100 * 2**10, 2**20, 10 * 2**20)

# The policy lets the browser fetch nothing and run nothing.
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>onewrite plan</title>
<style>
:root { color-scheme: light dark; --paper: #ffffff; --card: #f6f8fa; --ink: #1f2328; --soft: #59636e; --line: #d1d9e0; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #0d1117; --card: #151b23; --ink: #f0f6fc; --soft: #9198a1; --line: #3d444d; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 0; }
p { margin: 4px 0 0; color: var(--soft); }
section { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: 16px; margin-top: 16px; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; list-style: none; margin: 16px 0 0; padding: 0; font-size: .9rem; }
.legend i { display: inline-block; width: 18px; border-top: 3px solid; margin-right: 6px; vertical-align: middle; }
.legend i.other { border-top-style: dashed; }
.plots { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); margin-top: 16px; }
.plots section { margin: 0; min-width: 0; }
@media (min-width: 900px) { .plots { grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); } .plots section:first-child { grid-column: 1 / -1; } }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .85rem; font-variant-numeric: tabular-nums; margin-top: 8px; width: 100%; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid var(--line); vertical-align: top; min-width: 72px; }
th:first-child, td:first-child { text-align: left; min-width: 150px; }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
tr.unfit td { color: #e5534b; }
.bar { height: 14px; border-radius: 2px; margin: 2px 0 10px; min-width: 1px; }
.name { margin: 0; color: var(--ink); font-size: .9rem; }
svg { display: block; width: 100%; height: auto; margin-top: 8px; font: 13px system-ui, sans-serif; }
svg text { fill: var(--ink); } svg .grid { stroke: var(--line); } svg polyline { fill: none; stroke-width: 2.5; }
svg .hot { stroke: #7d8590; stroke-width: 1.5; stroke-dasharray: 2 4; }
li { margin-top: 6px; color: var(--soft); }
</style>
</head>
<body>
<main>
<h1>onewrite plan</h1>
<p>$title.</p>
<ul class="legend">$legend</ul>
<div class="plots">$plots</div>
<section><h2>Side by side</h2><div class="wide"><table><thead><tr>$headings</tr></thead><tbody>$rows</tbody></table></div></section>
<section><h2>What the numbers rest on</h2><ul>$notes</ul></section>
</main>
</body>
</html>
""")


def page(inputs: Inputs, engine: EngineCosts, ways: list[Way], sample: StoreSample | None) -> str:
    """The whole page as text."""
    colours = {way.name: COLOURS[n % len(COLOURS)] for n, way in enumerate(ways)}
    all_columns = columns(inputs, ways)
    plots = [_of_month(ways, colours), _of_rates(inputs, engine, colours)] if inputs.engine == "dynamodb" else []
    other_class = ' class="other"'
    legend = [
        f'<li><i{"" if way.ledger is not None else other_class} style="border-color: {colours[way.name]}"></i>{escape(way.name)}</li>'
        for way in ways
    ]
    rows = [
        f"<tr{'' if way.fits else ' class=unfit'}>{''.join([f'<td>{escape(column.cells[n])}</td>' for column in all_columns])}</tr>"
        for n, way in enumerate(ways)
    ]
    return _PAGE.substitute(
        title=escape(title(inputs)),
        legend="".join(legend),
        plots="".join([*plots, _of_ages(inputs, engine, colours)]),
        headings="".join([f"<th>{escape(column.heading)}</th>" for column in all_columns]),
        rows="".join(rows),
        notes="".join([f"<li>{escape(note)}</li>" for note in notes(inputs, sample)]),
    )


def _section(heading: str, text: str, plot: str) -> str:
    return f"<section><h2>{escape(heading)}</h2><p>{escape(text)}</p>{plot}</section>"


def _of_month(ways: list[Way], colours: dict[str, str]) -> str:
    most = max([way.dollars or 0 for way in ways]) or 1
    bars = [
        f'<p class="name">{escape(way.name)}: <b>{"does not fit" if way.dollars is None else dollars(way.dollars)}</b></p>'
        f'<div class="bar" style="width: {100 * (way.dollars or 0) / most:.2f}%; background: {colours[way.name]}"></div>'
        for way in ways
    ]
    text = "Write units, and what is kept to know the messages again."
    return _section("What all messages cost in a month, in dollars", text, f'<div class="bars">{"".join(bars)}</div>')


def _of_rates(inputs: Inputs, engine: EngineCosts, colours: dict[str, str]) -> str:
    curves = by_rate(inputs, engine)
    highest = max([y for curve in curves for y in curve.y if y is not None], default=1)
    y = _Axis(0.5, max(highest, 1) * 1.2, [tick for tick in _DECADES[1:] if tick < highest * 1.2], count, is_log=True)
    x = _Axis(_DECADES[0], _DECADES[-1], _DECADES, count, is_log=True)
    text, hot = "On average, by how busy the entity is. A line ends where the entity is full.", inputs.per_second * 86_400
    on_scale = _DECADES[0] <= hot <= _DECADES[-1]
    if on_scale:
        text = f"{text} The dotted line is your busiest entity, with {rate(inputs.per_second)}."
    plot = _lines(
        curves, colours, x, y, titles=("messages a day to one entity", "write units"), hot=hot if on_scale else None
    )
    return _section("What a fresh message costs", text, plot)


def _of_ages(inputs: Inputs, engine: EngineCosts, colours: dict[str, str]) -> str:
    curves = by_age(inputs, engine)
    values = [y for curve in curves for y in curve.y if y]
    low, high = min(values, default=1) / 1.5, max(values, default=10) * 1.5
    y = _Axis(low, high, [tick for tick in _BYTES if low < tick < high], size, is_log=True)
    last = curves[0].x[-1]
    x = _Axis(0, last, [last * step / 4 for step in range(5)], count, is_log=False)
    text = f"For the busiest entity, which may have {size(engine.limit)} in all. Old marks are removed all at once."
    return _section(
        "How large the ledger is", text, _lines(curves, colours, x, y, titles=("days since its first message", ""))
    )


class _Axis(NamedTuple):
    """From where to where a scale goes, where it has ticks, and what they are called."""

    low: float
    high: float
    ticks: Sequence[float]
    label: Callable[[float], str]
    is_log: bool

    def share(self, value: float) -> float:
        """Where it is between the ends."""
        if self.is_log:
            return (log10(value) - log10(self.low)) / (log10(self.high) - log10(self.low))
        return (value - self.low) / (self.high - self.low)


def _lines(
    curves: list[Curve], colours: dict[str, str], x: _Axis, y: _Axis, *, titles: tuple[str, str], hot: float | None = None
) -> str:
    """Curves as a picture. A curve has gaps where it has no value."""

    def across(value: float) -> str:
        return f"{_LEFT + x.share(value) * (_WIDTH - _LEFT - _RIGHT):.1f}"

    def down(value: float) -> str:
        return f"{_HEIGHT - _BOTTOM - y.share(value) * (_HEIGHT - _TOP - _BOTTOM):.1f}"

    low, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    elements = [
        f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{down(tick)}" y2="{down(tick)}"/>'
        f'<text x="{_LEFT - 8}" y="{down(tick)}" dy="4" text-anchor="end">{escape(y.label(tick))}</text>'
        for tick in y.ticks
    ]
    elements += [
        f'<line class="grid" y1="{_TOP}" y2="{low}" x1="{across(tick)}" x2="{across(tick)}"/>'
        f'<text class="x" x="{across(tick)}" y="{low + 18}" text-anchor="middle">{escape(x.label(tick))}</text>'
        for tick in x.ticks
    ]
    for curve in curves:
        dash = ' stroke-dasharray="7 4"' if curve.name.startswith(("no guard", "processed", "Powertools")) else ""
        for has_values, points in groupby(zip(curve.x, curve.y, strict=True), lambda point: bool(point[1])):
            if has_values:
                path = " ".join([f"{across(at)},{down(value or 0)}" for at, value in points])
                stroke = f'stroke="{colours[curve.name]}"{dash}'
                elements.append(f'<polyline {stroke} points="{path}"><title>{escape(curve.name)}</title></polyline>')
    if hot is not None:
        elements.append(f'<line class="hot" y1="{_TOP}" y2="{low}" x1="{across(hot)}" x2="{across(hot)}"/>')
    elements.append(f'<text x="{(_LEFT + right) / 2}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(titles[0])}</text>')
    if titles[1]:
        elements.append(
            f'<text transform="translate(14 {(_TOP + low) / 2}) rotate(-90)" text-anchor="middle">{escape(titles[1])}</text>'
        )
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(elements)}</svg>'
