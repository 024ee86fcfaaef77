"""What the metrics' hooks emit, read as CloudWatch and OpenTelemetry read it."""

from __future__ import annotations

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from onewrite import (
    Applied,
    Begun,
    ConfigurationError,
    Deferred,
    Duplicate,
    InvalidMessage,
    Message,
    TakenOver,
    Uncertain,
)
from onewrite.metrics import Hook, emf, opentelemetry

CANARY = "4111-1111-1111-1111"
MESSAGE = Message("m1", body={"card": CANARY}, attributes={"card": CANARY})
NOW = 1_790_000_000.25

# What is reported, and what it counts for.
CASES: list[tuple[Any, dict[str, int]]] = [
    (Applied(MESSAGE, {"card": CANARY}), {"Applied": 1}),
    (Applied(MESSAGE, retried=True), {"Applied": 1, "Retried": 1}),
    (Deferred(MESSAGE, 7), {"Deferred": 1}),
    (Uncertain(MESSAGE, NOW, "fence", CANARY), {"Uncertain": 1}),
    (TakenOver(MESSAGE), {"TakenOver": 1}),
    (Begun(MESSAGE, CANARY, "fence", NOW, NOW), {"Begun": 1}),
    (InvalidMessage(CANARY), {"Failed": 1}),
    (KeyboardInterrupt(), {"Failed": 1}),
    (None, {"NoOutcome": 1}),
    ((), {"NoOutcome": 1}),
    ([Applied(MESSAGE)], {"Applied": 1}),
    ((Applied(MESSAGE), Duplicate(MESSAGE), Applied(MESSAGE, retried=True)), {"Applied": 2, "Duplicate": 1, "Retried": 1}),
]


@pytest.fixture(autouse=True)
def outside_lambda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_LAMBDA_FUNCTION_NAME", raising=False)


def read_emf(line: str) -> tuple[str, dict[str, str], dict[str, tuple[float, str]], int]:
    """Namespace, dimensions, metrics and time of a line, by the rules of the format's specification."""
    assert "\n" not in line
    root = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert set(root["_aws"]) == {"Timestamp", "CloudWatchMetrics"}
    timestamp, (directive,) = root["_aws"]["Timestamp"], root["_aws"]["CloudWatchMetrics"]
    assert type(timestamp) is int
    assert set(directive) == {"Namespace", "Dimensions", "Metrics"}
    (names,) = directive["Dimensions"]
    assert len(names) <= 30
    dimensions = {name: root[name] for name in names}
    assert all(isinstance(value, str) and 1 <= len(value) <= 1024 for value in dimensions.values())
    assert 1 <= len(directive["Metrics"]) <= 100
    metrics: dict[str, tuple[float, str]] = {}
    for metric in directive["Metrics"]:
        assert set(metric) == {"Name", "Unit"}
        assert type(root[metric["Name"]]) in (int, float)
        assert metric["Name"] not in metrics
        metrics[metric["Name"]] = (root[metric["Name"]], metric["Unit"])
    assert set(root) == {"_aws", *dimensions, *metrics}
    return directive["Namespace"], dimensions, metrics, timestamp


@pytest.mark.parametrize(("outcome", "counts"), CASES)
def test_emf_counts_each_outcome_and_shows_nothing_else(outcome: Any, counts: dict[str, int]) -> None:
    lines: list[str] = []
    emf(function="orders", clock=lambda: NOW, write=lines.append)(MESSAGE, outcome, 0.0123456)
    (line,) = lines
    namespace, dimensions, metrics, timestamp = read_emf(line)
    assert (namespace, dimensions, timestamp) == ("onewrite", {"FunctionName": "orders"}, 1_790_000_000_250)
    assert metrics.pop("Duration") == (12.346, "Milliseconds")
    assert metrics == {name: (count, "Count") for name, count in counts.items()}
    assert CANARY not in line


def test_emf_reads_the_function_name_from_lambda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "from-lambda")
    lines: list[str] = []
    hook, named = emf(write=lines.append), emf(write=lines.append, function="mine")
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "later")
    hook(None, None, 0)
    named(None, None, 0)
    assert [read_emf(line)[1] for line in lines] == [{"FunctionName": "from-lambda"}, {"FunctionName": "mine"}]


@pytest.mark.parametrize("name", [None, ""])
def test_emf_has_no_dimension_if_function_is_unknown(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if name is not None:
        monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", name)
    lines: list[str] = []
    emf(write=lines.append)(None, None, 0)
    assert read_emf(lines[0])[1] == {}


def test_emf_prints_a_line_at_the_machines_time(capsys: pytest.CaptureFixture[str]) -> None:
    emf(namespace="shop/orders")(MESSAGE, Applied(MESSAGE), 0.5)
    out = capsys.readouterr().out
    assert out.endswith("}\n")
    namespace, _, metrics, timestamp = read_emf(out[:-1])
    assert (namespace, metrics) == ("shop/orders", {"Applied": (1, "Count"), "Duration": (500.0, "Milliseconds")})
    assert timestamp > 1_700_000_000_000


def test_lines_of_several_threads_stay_whole(capfd: pytest.CaptureFixture[str]) -> None:
    hook = emf()
    with ThreadPoolExecutor(8) as pool:
        for _ in range(400):
            pool.submit(hook, MESSAGE, Applied(MESSAGE), 0.001)
    lines = capfd.readouterr().out.splitlines()
    assert len(lines) == 400
    assert {json.dumps(read_emf(line)[2]) for line in lines} == {
        json.dumps({"Applied": (1, "Count"), "Duration": (1.0, "Milliseconds")})
    }


async def write_later(_: str) -> None:
    """Nobody awaits it."""


@pytest.mark.parametrize("write", [None, "stdout", write_later])
def test_write_that_is_not_a_plain_function_is_refused(write: Any) -> None:
    with pytest.raises(ConfigurationError, match="write="):
        emf(write=write)


@pytest.mark.parametrize("namespace", ["", "AWS/Lambda", ":shop", "sh op", "é", "x" * 256, None, 5])
def test_a_namespace_that_cloudwatch_would_drop_is_refused(namespace: Any) -> None:
    with pytest.raises(ConfigurationError, match="namespace="):
        emf(namespace=namespace)


@pytest.mark.parametrize("function", ["", " ", "é", "a\nb", "x" * 1025, 5])
def test_function_name_invalid_as_a_dimension_is_refused(function: Any) -> None:
    for make in (emf, lambda function: opentelemetry(MeterProvider().get_meter("test"), function=function)):
        with pytest.raises(ConfigurationError, match="function="):
            make(function=function)


class Counted:
    """A hook on a meter of OpenTelemetry, and what an exporter would be given."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self.reader], shutdown_on_exit=False)
        self.hook: Hook = opentelemetry(self.provider.get_meter("test"), **options)

    def metrics(self) -> dict[str, Any]:
        data: Any = self.reader.get_metrics_data()
        return {metric.name: metric for metric in data.resource_metrics[0].scope_metrics[0].metrics}

    def points(self) -> list[tuple[dict[str, Any], int]]:
        points = self.metrics()["onewrite.messages"].data.data_points
        return [(dict(point.attributes), point.value) for point in points]


@pytest.mark.parametrize(("outcome", "counts"), CASES)
def test_opentelemetry_counts_each_outcome_and_shows_nothing_else(outcome: Any, counts: dict[str, int]) -> None:
    counted = Counted()
    counted.hook(MESSAGE, outcome, 0.0123)
    points = counted.points()
    total: Counter[str] = Counter()
    for attributes, value in points:
        total["".join(word.capitalize() for word in attributes["outcome"].split("_"))] += value
        total["Retried"] += value if attributes.get("retried") else 0
    assert +total == counts
    assert CANARY not in str(points)


def test_opentelemetry_distinguishes_failures_by_error_type() -> None:
    counted = Counted()
    for error in (InvalidMessage(CANARY), ValueError(CANARY), ValueError(CANARY)):
        counted.hook(None, error, 0.1)
    assert counted.points() == [
        ({"outcome": "failed", "error.type": "InvalidMessage"}, 1),
        ({"outcome": "failed", "error.type": "ValueError"}, 2),
    ]
    durations = counted.metrics()["onewrite.message.duration"].data.data_points
    assert [(dict(point.attributes), point.count) for point in durations] == [
        ({"error.type": "InvalidMessage"}, 1),
        ({"error.type": "ValueError"}, 2),
    ]


def test_opentelemetry_measures_a_record_once_with_many_outcomes() -> None:
    counted = Counted()
    counted.hook(MESSAGE, [Applied(MESSAGE), Duplicate(MESSAGE)], 0.004)
    counted.hook(MESSAGE, None, 3.0)
    metric = counted.metrics()["onewrite.message.duration"]
    (point,) = metric.data.data_points
    assert (metric.unit, point.count, point.sum, dict(point.attributes)) == ("s", 2, 3.004, {})
    assert (point.explicit_bounds[0], point.explicit_bounds[-1]) == (0.005, 10.0)
    assert counted.metrics()["onewrite.messages"].unit == "{message}"


def test_opentelemetry_names_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "from-lambda")
    for counted, name in ((Counted(), "from-lambda"), (Counted(function="mine"), "mine")):
        counted.hook(MESSAGE, Applied(MESSAGE), 0.1)
        assert counted.points() == [({"outcome": "applied", "faas.name": name}, 1)]
