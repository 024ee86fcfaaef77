"""The plots of a plan, as Plotly's own description of them. Pure."""

from __future__ import annotations

from typing import Any, NamedTuple

import plotly.graph_objects  # pyright: ignore[reportMissingTypeStubs]  # Plotly has no types

from onewrite.cli.plan.texts import dollars, rate, size
from onewrite.costs.curves import Curve, by_age, by_rate
from onewrite.costs.inputs import Inputs
from onewrite.costs.plan import MONTH, Engine, Way

go: Any = plotly.graph_objects
# Told apart by those who see no red or no green too, and legible on white and on black.
COLOURS = ("#2f81f7", "#9a6dea", "#e5534b", "#2da44e", "#c98a0b", "#7d8590", "#e0703a", "#d6539b")
_BAR = 46  # pixels from one bar to the next
_LINES = 380  # pixels
_DECADES, _IN_SHORT = [0.1, 1, 10, 100, 1e3, 1e4, 1e5], ["0.1", "1", "10", "100", "1k", "10k", "100k"]
_BYTES = [1, 10, 100, 2**10, 10 * 2**10, 100 * 2**10, 2**20, 10 * 2**20]


class Plot(NamedTuple):
    """A figure, and the words above and below it."""

    title: str
    text: str
    figure: Any


def plots(inputs: Inputs, engine: Engine, compared: list[Way]) -> list[Plot]:
    """All plots, the most telling one first."""
    colours = {way.name: COLOURS[n % len(COLOURS)] for n, way in enumerate(compared)}
    return [_of_month(inputs, compared, colours), _of_rates(inputs, engine, colours), _of_ages(inputs, engine, colours)]


def _of_month(inputs: Inputs, compared: list[Way], colours: dict[str, str]) -> Plot:
    if inputs.engine == "dynamodb":
        values, told = [way.dollars for way in compared], dollars
        words = "What all messages cost in a month, in dollars", "Write units, and what is kept to know the messages again."
    else:
        values, told = [None if way.a_month is None else way.a_month / MONTH for way in compared], size
        words = "What all messages write to the oplog in a day", "With what your own update writes there: one number."
    shown = ["does not fit" if value is None else told(value) for value in values]
    figure = _figure([_bars(values, shown, colours)], _BAR * len(shown) + 24)
    figure.update_yaxes(autorange="reversed", showticklabels=False, showgrid=False)
    figure.update_xaxes(rangemode="tozero", showticklabels=False, nticks=6)  # the bars have their values above them
    for way, text in zip(compared, shown, strict=True):
        above = {"text": f"{way.name}: <b>{text}</b>", "showarrow": False, "xanchor": "left", "yshift": 17}
        figure.add_annotation(x=0, y=way.name, xref="paper", **above)
    return Plot(*words, figure)


def _bars(values: list[float | None], shown: list[str], colours: dict[str, str]) -> Any:
    return go.Bar(
        x=[value or 0 for value in values],
        y=[*colours],
        orientation="h",
        width=0.4,
        marker={"color": [*colours.values()]},
        customdata=shown,
        hovertemplate="%{y}: %{customdata}<extra></extra>",
    )


def _of_rates(inputs: Inputs, engine: Engine, colours: dict[str, str]) -> Plot:
    unit = "write units" if inputs.engine == "dynamodb" else "oplog bytes"
    lines = [_line(curve, colours, f"%{{y:.3~s}} {unit}") for curve in by_rate(inputs, engine)]
    figure = _figure(lines, _LINES, "messages a day to one entity", unit)
    figure.update_xaxes(type="log", tickvals=_DECADES, ticktext=_IN_SHORT)
    figure.update_yaxes(type="log" if inputs.engine == "dynamodb" else "linear", tickformat="~s", nticks=6)
    text = "On average, by how busy the entity is. A line ends where the entity is full."
    hot = inputs.per_second * 86_400
    if _DECADES[0] <= hot <= _DECADES[-1]:
        figure.add_vline(x=hot, line={"dash": "dot", "width": 1.5, "color": "#7d8590"})
        text = f"{text} The dotted line is your busiest entity, with {rate(inputs.per_second)}."
    return Plot("What a fresh message costs", text, figure)


def _of_ages(inputs: Inputs, engine: Engine, colours: dict[str, str]) -> Plot:
    lines = [_line(curve, colours, "%{y:,.0f} bytes") for curve in by_age(inputs, engine)]
    figure = _figure(lines, _LINES, "days since its first message", " ")
    figure.update_yaxes(type="log", tickvals=_BYTES, ticktext=[size(each) for each in _BYTES])
    figure.update_xaxes(rangemode="tozero", nticks=6)
    text = (
        f"Of the busiest entity, which holds {size(engine.limit)} with all that is in it. Old marks are removed all at once."
    )
    return Plot("How large the ledger is", text, figure)


def _line(curve: Curve, colours: dict[str, str], told: str) -> Any:
    name = curve.name
    dash = "dash" if name.startswith(("no guard", "processed", "Powertools")) else "solid"
    line = {"color": colours[name], "dash": dash, "width": 2.5}
    return go.Scatter(
        x=curve.x, y=curve.y, name=name, mode="lines", line=line, hovertemplate=f"{name}: {told}<extra></extra>"
    )


def _figure(traces: list[Any], height: int, x_title: str = "", y_title: str = "") -> Any:
    """Without colours of its own: the page sets those of the visitor's scheme."""
    figure = go.Figure(traces)
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 64 if y_title else 8, "r": 16, "t": 16, "b": 48 if x_title else 8},
        showlegend=False,
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        hovermode="closest",
        dragmode=False,
        font={"family": "system-ui, sans-serif", "size": 13},
    )
    figure.update_xaxes(title={"text": x_title, "standoff": 8}, fixedrange=True)
    figure.update_yaxes(title={"text": y_title, "standoff": 4}, fixedrange=True)
    return figure
