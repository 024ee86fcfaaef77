"""Metric filters and alarms, evaluated as CloudWatch documents it.

A metric is known by its namespace, its name, and its dimensions. Its values are those of every five minutes, None where nothing is
measured.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, TypeAlias

Metric: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...]]
Measurements: TypeAlias = Mapping[Metric, list[float | None]]

LONG = 40  # times five minutes: more than any alarm looks at
FIVE_MINUTES = 300


def metric(namespace: str, name: str, **dimensions: str) -> Metric:
    return namespace, name, tuple(sorted(dimensions.items()))


def rings(alarm: Mapping[str, Any], measurements: Measurements) -> bool:
    """Whether all of the alarm's last periods breach. The alarm is as `describe_alarms` returns it."""
    dimensions = {dimension["Name"]: dimension["Value"] for dimension in alarm["Dimensions"]}
    values = measurements.get(metric(alarm["Namespace"], alarm["MetricName"], **dimensions), [None] * LONG)
    size, periods = max(1, alarm["Period"] // FIVE_MINUTES), alarm["EvaluationPeriods"]
    return all(_breaches(alarm, values[start : start + size]) for start in range(LONG - periods * size, LONG, size))


def _breaches(alarm: Mapping[str, Any], values: Iterable[float | None]) -> bool:
    points = [value for value in values if value is not None]
    if not points:
        return bool(alarm["TreatMissingData"] == "breaching")
    statistics: dict[str, Callable[[list[float]], float]] = {"Sum": sum, "Maximum": max, "SampleCount": len}
    statistic = statistics[alarm["Statistic"]](points)
    is_above = alarm["ComparisonOperator"] == "GreaterThanThreshold"
    assert is_above or alarm["ComparisonOperator"] == "LessThanThreshold"
    return bool(statistic > alarm["Threshold"] if is_above else statistic < alarm["Threshold"])


def alarms_that_ring(alarms: Mapping[str, Mapping[str, Any]], measurements: Measurements) -> set[str]:
    return {name for name, alarm in alarms.items() if rings(alarm, measurements)}


def measured_by_emf(lines: Iterable[str]) -> dict[Metric, list[float | None]]:
    """Return what CloudWatch measures if each five minutes bring a line like the last of these."""
    measured: dict[Metric, list[float | None]] = {}
    for line in map(json.loads, lines):
        for directive in line["_aws"]["CloudWatchMetrics"]:
            for names, value in product(directive["Dimensions"], directive["Metrics"]):
                key = metric(directive["Namespace"], value["Name"], **{name: line[name] for name in names})
                measured[key] = [float(line[value["Name"]])] * LONG
    return measured


# ---------------------------------------------------------------- metric filters

# The filter of both templates, which the tests try on the log lines of handlers and workers.
UNSETTLED = '{ $.onewrite.failures[0].error = "*" || $.onewrite.returned > 0 }'

# A term of a JSON pattern: a selector, an operator, and a text with wildcards or a number.
_TERM = re.compile(r'\s*\$((?:\.\w+|\[\d+\])+)\s*(=|>=|<=|>|<)\s*(?:"([^"]*)"|(-?\d+(?:\.\d+)?))\s*')


def is_counted(pattern: str, line: str) -> bool:
    """Whether a metric filter's JSON pattern selects the line. `&&` binds tighter than `||`; parentheses aren't supported."""
    assert (pattern[0], pattern[-1]) == ("{", "}"), pattern
    alternatives = [[_parse_term(term) for term in each.split("&&")] for each in pattern[1:-1].split("||")]
    try:
        document = json.loads(line)
    except ValueError:  # a JSON pattern selects no other lines
        return False
    return any(all(_holds(term, document) for term in terms) for terms in alternatives)


def counted_lines(pattern: str, lines: Iterable[str]) -> int:
    return sum(is_counted(pattern, line) for line in lines)


def _parse_term(text: str) -> tuple[list[str], str, str | None, str | None]:
    match = _TERM.fullmatch(text)
    assert match is not None, f"not a term of a JSON pattern: {text}"
    selector, operator, wanted, number = match.groups()
    return re.findall(r"\w+", selector), operator, wanted, number


def _holds(term: tuple[list[str], str, str | None, str | None], document: Any) -> bool:
    path, operator, wanted, number = term
    value = document
    for name in path:
        try:
            value = value[int(name) if isinstance(value, list) else name]
        except (KeyError, IndexError, TypeError, ValueError):
            return False
    if wanted is not None:
        assert operator == "=", "texts are only compared for equality here"
        return (
            isinstance(value, str)
            and re.fullmatch(".*".join(map(re.escape, wanted.split("*"))), value, re.DOTALL) is not None
        )
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    limit = float(number or 0)
    return {
        "=": value == limit,
        ">": value > limit,
        "<": value < limit,
        ">=": value >= limit,
        "<=": value <= limit,
    }[operator]
