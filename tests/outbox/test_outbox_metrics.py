"""What a relay's metrics say of a pass, read as CloudWatch and OpenTelemetry read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from onewrite import LedgerMismatch
from onewrite.outbox import BrokenOutbox, Outgoing, SweepReport
from onewrite.outbox.metrics import emf, opentelemetry

NOW = 1_790_000_000.25
EVENT = Outgoing("id", "shop/_id=N:1/n", "Paid", 1, "2026-11-22T08:00:00.000Z", '"secret"', "m1", {"_id": 1})
BUSY = SweepReport(
    entities=5,
    published=7,
    overtaken=1,
    pending=3,
    oldest=40.25,
    waited=2.0,
    refused=[EVENT],
    failed=[(EVENT, ConnectionError("secret"))] * 2,
    broken=[BrokenOutbox({"_id": 1}, LedgerMismatch("secret"))],
    error=ConnectionError("secret"),
)


@pytest.fixture(autouse=True)
def outside_lambda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_LAMBDA_FUNCTION_NAME", raising=False)


def emitted(swept: SweepReport) -> dict[str, Any]:
    lines: list[str] = []
    emf(function="relay", clock=lambda: NOW, write=lines.append)(swept)
    (line,) = lines
    assert "secret" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_emf_counts_a_pass_without_event_contents() -> None:
    line = emitted(BUSY)
    about = line.pop("_aws")
    (directive,) = about["CloudWatchMetrics"]
    assert about["Timestamp"] == 1_790_000_000_250
    assert (directive["Namespace"], directive["Dimensions"]) == ("onewrite", [["FunctionName"]])
    units = {name: "Count" for name in line if name != "FunctionName"} | {"OldestEvent": "Seconds"}
    assert {metric["Name"]: metric["Unit"] for metric in directive["Metrics"]} == units
    events = {"EventsPublished": 7, "EventsPending": 3, "EventsRefused": 1, "EventsFailed": 2}
    entities = {"EntitiesOvertaken": 1, "EntitiesBroken": 1}
    assert line == {"FunctionName": "relay", **events, **entities, "PassesFailed": 1, "OldestEvent": 40.25}


def test_late_published_event_counts_as_the_oldest() -> None:
    assert emitted(SweepReport(published=1, waited=900.0, pending=1, oldest=1.0))["OldestEvent"] == 900.0


def test_incomplete_pass_does_not_report_the_oldest_event() -> None:
    unknown = SweepReport(published=1, oldest=5.0, complete=False)
    assert "OldestEvent" not in emitted(unknown)
    assert "onewrite.relay.oldest" not in counted(unknown)


def test_pass_that_goes_on_reports_the_oldest_known_event() -> None:
    minute = SweepReport(published=1, oldest=5.0, complete=False, continues=True)
    assert emitted(minute)["OldestEvent"] == 5.0
    assert "onewrite.relay.passes" not in counted(minute)


def counted(*passes: SweepReport, **options: Any) -> dict[str, list[tuple[dict[str, Any], float]]]:
    """What an exporter would be given: of each metric its points, with their counts or sums."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    hook = opentelemetry(provider.get_meter("test"), **options)
    for swept in passes:
        hook(swept)
    data: Any = reader.get_metrics_data()
    assert "secret" not in str(data)
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    return {metric.name: [_seen(point) for point in metric.data.data_points] for metric in metrics}


def _seen(point: Any) -> tuple[dict[str, Any], float]:
    return dict(point.attributes), point.value if hasattr(point, "value") else point.max


def test_opentelemetry_counts_events_entities_and_passes() -> None:
    assert counted(BUSY, SweepReport(published=1, waited=90.0)) == {
        "onewrite.relay.events": [({"outcome": "published"}, 8), ({"outcome": "refused"}, 1), ({"outcome": "failed"}, 2)],
        "onewrite.relay.entities": [({"outcome": "overtaken"}, 1), ({"outcome": "broken"}, 1)],
        "onewrite.relay.passes": [({"error.type": "ConnectionError"}, 1), ({}, 1)],
        "onewrite.relay.pending": [({}, 3)],
        "onewrite.relay.oldest": [({}, 90.0)],
    }
