"""Alarms as CloudWatch evaluates them, and what is measured when something of infra/ fails.

What AWS measures is taken from its documentation; what onewrite measures is compared with what it emits where the alarms are tried.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

# Of each metric, by its name and the value of its dimension: the values of every five minutes, None where nothing is measured.
Measurements: TypeAlias = Mapping[tuple[str, str], list[float | None]]

LONG = 40  # times five minutes: more than any alarm looks at


@dataclass(frozen=True, slots=True)
class Alarm:
    description: str
    expression: str  # of the ids of its metrics
    metrics: dict[str, tuple[str, str, str]]  # name, the value of its dimension, and the statistic
    period: int  # of five minutes each, of which one alarm alone looks at less
    periods: int
    threshold: float
    missing_rings: bool

    def rings(self, measurements: Measurements) -> bool:
        """Whether it rings at the end: all of its last periods breach."""
        series = {
            name: [
                _statistic(statistic, measurements.get((metric, dimension), [None] * LONG)[start : start + self.period])
                for start in range(LONG - self.periods * self.period, LONG, self.period)
            ]
            for name, (metric, dimension, statistic) in self.metrics.items()
        }
        return all(self._breaches({name: values[n] for name, values in series.items()}) for n in range(self.periods))

    def _breaches(self, values: Mapping[str, float | None]) -> bool:
        if "FILL" not in self.expression and None in values.values():
            return self.missing_rings
        python = self.expression.replace("AND", "and")
        return bool(eval(python, {"__builtins__": {}, "FILL": _fill, "IF": _if, **values}) > self.threshold)  # noqa: S307  # of our own module


def _fill(value: float | None, instead: float) -> float:
    return instead if value is None else value


def _if(true: bool, yes: float, no: float) -> float:
    return yes if true else no


def _statistic(name: str, values: list[float | None]) -> float | None:
    points = [value for value in values if value is not None]
    if not points:
        return None
    return sum(points) if name == "Sum" else max(points)


def alarm_of(properties: Mapping[str, Any]) -> Alarm:
    """The alarm as moto describes it."""
    if not properties.get("Metrics"):
        metrics = {"it": (properties["MetricName"], _about(properties["Dimensions"]), properties["Statistic"])}
        return _alarm(properties, "it", metrics, properties["Period"])
    (expression,) = [metric["Expression"] for metric in properties["Metrics"] if metric.get("Expression")]
    stats = {metric["Id"]: metric["MetricStat"] for metric in properties["Metrics"] if metric.get("MetricStat")}
    metrics = {
        name: (stat["Metric"]["MetricName"], _about(stat["Metric"]["Dimensions"]), stat["Stat"])
        for name, stat in stats.items()
    }
    (period,) = {stat["Period"] for stat in stats.values()}
    return _alarm(properties, expression, metrics, period)


def _alarm(properties: Mapping[str, Any], expression: str, metrics: dict[str, tuple[str, str, str]], period: Any) -> Alarm:
    return Alarm(
        str(properties.get("AlarmDescription", "")),
        expression,
        metrics,
        max(1, int(period) // 300),
        int(properties["EvaluationPeriods"]),
        float(properties["Threshold"]),
        properties["TreatMissingData"] == "breaching",
    )


def _about(dimensions: list[Mapping[str, Any]]) -> str:
    return "".join(dimension["Value"] for dimension in dimensions)


def measurements(failure: str, function: str, source: str) -> dict[tuple[str, str], list[float | None]]:
    """What is measured of a function when all is well, and when something is not. A stream is written under its source's name."""
    often: list[float | None] = [1.0] * LONG
    never: list[float | None] = [None] * LONG
    well: dict[tuple[str, str], list[float | None]] = {
        ("ApproximateNumberOfMessagesVisible", f"{function}-dead-letters"): [0.0] * LONG,
        ("ApproximateAgeOfOldestMessage", f"{function}-events"): [2.0] * LONG,
        ("Invocations", function): [*often],
        ("Errors", function): [0.0] * LONG,
        ("Throttles", function): [0.0] * LONG,
        ("IteratorAge", function): [500.0] * LONG,
        ("IncomingRecords", source): [*often],
        ("ConsumedWriteCapacityUnits", source): [*often],
    }
    unread: dict[tuple[str, str], list[float | None]] = {
        ("Invocations", function): [*never],
        ("Errors", function): [*never],
        ("Throttles", function): [*never],
        ("IteratorAge", function): [*never],
    }
    changes: dict[str, dict[tuple[str, str], list[float | None]]] = {
        "all is well": {},
        "nothing comes": {**unread, ("IncomingRecords", source): [*never], ("ConsumedWriteCapacityUnits", source): [*never]},
        "a message is given up": {("ApproximateNumberOfMessagesVisible", f"{function}-dead-letters"): [1.0] * LONG},
        "it is too slow": {
            ("ApproximateAgeOfOldestMessage", f"{function}-events"): [2000.0] * LONG,
            ("IteratorAge", function): [2_000_000.0] * LONG,
        },
        "it times out": {("Errors", function): [*often]},
        "the account has no room": {("Throttles", function): [*often]},
        # A standard queue puts what was received three times behind the rest, so nothing old is seen.
        "it keeps deferring": {(f"Unsettled-{function}", ""): [1.0, None] * (LONG // 2)},
        "one message fails once": {(f"Unsettled-{function}", ""): [*[None] * (LONG - 1), 1.0]},
        "nobody reads": {**unread, ("ApproximateAgeOfOldestMessage", f"{function}-events"): [2000.0] * LONG},
    }
    return {**well, **changes[failure]}


# Which alarms ring, by their names in the module.
_COMMON: dict[str, set[str]] = {
    "all is well": set(),
    "nothing comes": set(),
    "a message is given up": {"dead-letters"},
    "it times out": {"errors"},
    "the account has no room": {"throttles"},
    "it keeps deferring": {"unsettled"},
    "one message fails once": set(),
    "it is too slow": {"oldest-message"},
}
FAILURES: dict[str, dict[str, set[str]]] = {
    "queue": {**_COMMON, "nobody reads": {"oldest-message"}},
    "stream": {**_COMMON, "nobody reads": {"unread"}},
}
# The one filter of the log that all alarms on unsettled messages count with: its pattern, and the value that it adds up for a line.
UNSETTLED = ('{ $.onewrite.failures[0].error = "*" || $.onewrite.returned > 0 }', "1")
_TERM = re.compile(r'\$\.([\w.\[\]]+) (?:= ("\*")|> (\d+))')


def counted_lines(pattern: str, lines: Iterable[str]) -> int:
    """How many lines a filter's pattern selects, as CloudWatch reads it: terms of a path and a value, of which one must be true."""
    documents = [json.loads(line) for line in lines if line.startswith("{")]
    terms = pattern.removeprefix("{ ").removesuffix(" }").split(" || ")
    return sum(any(_selects(term, document) for term in terms) for document in documents)


def _selects(term: str, document: Any) -> bool:
    match = _TERM.fullmatch(term)
    assert match is not None, term
    path, any_text, least = match.groups()
    value = document
    for name in re.findall(r"\w+", path):
        try:
            value = value[int(name) if isinstance(value, list) else name]
        except (KeyError, IndexError, TypeError):
            return False
    return isinstance(value, str) if any_text else isinstance(value, int | float) and value > int(least)


def measured_by_emf(lines: Iterable[str]) -> dict[tuple[str, str], list[float | None]]:
    """What CloudWatch measures if each five minutes bring a line like the last of these."""
    measured: dict[tuple[str, str], list[float | None]] = {}
    for line in map(json.loads, lines):
        for found in line["_aws"]["CloudWatchMetrics"]:
            assert found["Namespace"] == "onewrite"
            for (dimension,), metric in product(found["Dimensions"], found["Metrics"]):
                measured[metric["Name"], line[dimension]] = [float(line[metric["Name"]])] * LONG
    return measured
