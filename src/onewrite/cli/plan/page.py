"""A plan as one page that needs nothing else: the plots, the table, and what the numbers rest on. Light and dark, as the visitor has it."""

from __future__ import annotations

from html import escape
from string import Template

from plotly.offline import get_plotlyjs  # pyright: ignore[reportMissingTypeStubs]  # Plotly has no types

from onewrite.cli.plan.asked import engine_of
from onewrite.cli.plan.plots import COLOURS, Plot, plots
from onewrite.cli.plan.texts import columns, notes, title
from onewrite.costs.inputs import Inputs
from onewrite.costs.plan import Way
from onewrite.costs.sample import Sample

# The policy lets the browser fetch nothing, whatever the scripts would want.
_PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:">
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
<script>$plotly</script>
<script>
const figures = [$figures];
const dark = matchMedia("(prefers-color-scheme: dark)");
function colours() {
  const style = getComputedStyle(document.documentElement), of = name => style.getPropertyValue(name).trim();
  const axis = { gridcolor: of("--line"), linecolor: of("--line"), zerolinecolor: of("--line"), tickcolor: of("--line") };
  return { ink: of("--ink"), card: of("--card"), axis };
}
function draw() {
  const { ink, card, axis } = colours();
  figures.forEach((figure, n) => {
    const layout = { ...figure.layout, font: { ...figure.layout.font, color: ink }, hoverlabel: { bgcolor: card, font: { color: ink } } };
    layout.xaxis = { ...layout.xaxis, ...axis };
    layout.yaxis = { ...layout.yaxis, ...axis };
    Plotly.react("plot" + n, figure.data, layout, { displayModeBar: false, responsive: true });
  });
}
dark.addEventListener("change", draw);
draw();
</script>
</body>
</html>
""")


def page(inputs: Inputs, compared: list[Way], sample: Sample | None) -> str:
    """The whole page as text."""
    drawn = plots(inputs, engine_of(inputs), compared)
    shown = columns(inputs, compared)
    return _PAGE.substitute(
        title=escape(title(inputs)),
        legend="".join([_in_legend(way, COLOURS[n % len(COLOURS)]) for n, way in enumerate(compared)]),
        plots="".join([_section(n, plot) for n, plot in enumerate(drawn)]),
        headings="".join([f"<th>{escape(each.heading)}</th>" for each in shown]),
        rows="".join([_row([each.cells[n] for each in shown], fits=way.fits) for n, way in enumerate(compared)]),
        notes="".join([f"<li>{escape(note)}</li>" for note in notes(inputs, sample)]),
        plotly=get_plotlyjs(),
        figures=",".join([plot.figure.to_json().replace("</", "<\\/") for plot in drawn]),
    )


def _in_legend(way: Way, colour: str) -> str:
    other = "" if way.ledger is not None else ' class="other"'
    return f'<li><i{other} style="border-color: {colour}"></i>{escape(way.name)}</li>'


def _section(n: int, plot: Plot) -> str:
    return f'<section><h2>{escape(plot.title)}</h2><p>{escape(plot.text)}</p><div id="plot{n}"></div></section>'


def _row(cells: list[str], *, fits: bool) -> str:
    return f"<tr{'' if fits else ' class=unfit'}>{''.join([f'<td>{escape(cell)}</td>' for cell in cells])}</tr>"
