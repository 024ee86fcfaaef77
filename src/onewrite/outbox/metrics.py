"""Hooks for a relay's `on_pass` that count the outcomes of events, and measure how long events were pending.

The hooks in `onewrite.metrics` have the same names, but are for `on_outcome`. No metric contains an event's content.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from onewrite.metrics import find_function_name, make_emf_writer, print_line
from onewrite.outbox.passes import SweepReport
from onewrite.outbox.relay import OnPass

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

# Seconds: from an event that is published at once to an event that was pending for a day.
_AGES = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 21600.0, 86400.0)


def emf(
    *,
    namespace: str = "onewrite",
    function: str | None = None,
    clock: Callable[[], float] = time.time,
    write: Callable[[str], object] = print_line,
) -> OnPass:
    """Return a hook that writes a line in CloudWatch's Embedded Metric Format for each pass, even if the pass found no event.

    An alarm can therefore distinguish an idle relay from a relay that doesn't run. While a pass goes on, each minute has a line too. Only the
    lines of sweeps contain `OldestEvent`. For the arguments, see `onewrite.metrics.emf`.
    """
    put = make_emf_writer(namespace, function, clock, write)

    def on_pass(report: SweepReport) -> None:
        counts = {
            "EventsPublished": report.published,
            "EventsPending": report.pending,
            "EventsRefused": len(report.refused),
            "EventsFailed": len(report.failed),
            "EntitiesOvertaken": report.overtaken,
            "EntitiesBroken": len(report.broken),
            "PassesFailed": int(report.error is not None),
        }
        metrics: dict[str, tuple[float, str]] = {name: (count, "Count") for name, count in counts.items()}
        # An unknown age must not look like an empty outbox to the alarm. A pass that goes on knows of old events.
        if report.complete or report.continues:
            metrics["OldestEvent"] = (round(_find_max_age(report), 3), "Seconds")
        put(metrics)

    return on_pass


def opentelemetry(meter: Meter, *, function: str | None = None) -> OnPass:
    """Return a hook that counts with OpenTelemetry's `meter`.

    - `onewrite.relay.events`: events by `outcome`: published, refused, or failed.
    - `onewrite.relay.entities`: skipped entities by `outcome`: overtaken or broken.
    - `onewrite.relay.passes`: passes. A failed pass has the attribute `error.type`.
    - `onewrite.relay.pending`: a histogram of the events that each pass left pending.
    - `onewrite.relay.oldest`: a histogram of the age of the oldest event that each sweep found, in seconds.
    """
    events = meter.create_counter("onewrite.relay.events", unit="{event}", description="Outcomes of events.")
    entities = meter.create_counter("onewrite.relay.entities", unit="{entity}", description="Skipped entities.")
    passes = meter.create_counter("onewrite.relay.passes", unit="{pass}", description="Relay passes.")
    pending = meter.create_histogram("onewrite.relay.pending", unit="{event}", description="Pending events after a pass.")
    description = "Age of the oldest event of a pass."
    oldest = meter.create_histogram(
        "onewrite.relay.oldest", unit="s", description=description, explicit_bucket_boundaries_advisory=_AGES
    )
    name = find_function_name(function)
    common = {} if name is None else {"faas.name": name}

    def on_pass(report: SweepReport) -> None:
        event_outcomes = {"published": report.published, "refused": len(report.refused), "failed": len(report.failed)}
        entity_outcomes = {"overtaken": report.overtaken, "broken": len(report.broken)}
        for counter, outcomes in ((events, event_outcomes), (entities, entity_outcomes)):
            for outcome, count in outcomes.items():
                counter.add(count, {**common, "outcome": outcome})
        failure = {} if report.error is None else {"error.type": type(report.error).__qualname__}
        if not report.continues:
            passes.add(1, {**common, **failure})
        pending.record(report.pending, common)
        if report.complete or report.continues:
            oldest.record(_find_max_age(report), common)

    return on_pass


def _find_max_age(report: SweepReport) -> float:
    """Return the age of the oldest event of the pass in seconds. Published events count too, so that a slow relay is visible."""
    return max(report.oldest, report.waited)
