"""Hooks for `on_outcome` that count what became of each record and measure how long it took.

An outcome is counted under its name: Applied, Duplicate, Stale, Deferred, Rejected, Missing, Gone, Busy, Uncertain or Superseded;
so is
Begun, where the function returned it. A record that raised an error, or in which no key was found, counts as Failed. One whose
function returned no outcome counts as NoOutcome if its guarded writes were settled, and one that was not for the function as Skipped. Uncertain and Begun deserve
an alarm: the first waits for an operator, the second for a function that finishes its step. Each outcome
of a record that has several is counted. No metric contains anything of a record's content.

Both hooks may be called from several threads at a time.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from onewrite.core.clock import checked_clock
from onewrite.errors import ConfigurationError
from onewrite.identity import Skip
from onewrite.message import Message
from onewrite.outcome import Answer, Applied

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

Reported: TypeAlias = Answer | Sequence[Answer] | BaseException | Skip | None
Hook: TypeAlias = Callable[[Message | None, Reported, float], object]

FAILED = "Failed"
NO_OUTCOME = "NoOutcome"
SKIPPED = "Skipped"
# What CloudWatch accepts as names. The namespaces that begin with "AWS/" are its own.
_NAMESPACE = re.compile("(?!AWS/|:)[A-Za-z0-9._#:/-]{1,255}")
_DIMENSION = re.compile("(?=.*[!-~])[ -~]{1,1024}")
# In seconds, as OpenTelemetry's conventions for messaging advise. The SDK's default bounds are meant for milliseconds.
_BUCKET_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


def print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # one write with the line's end, so no other thread writes in between
    sys.stdout.flush()


def emf(
    *,
    namespace: str = "onewrite",
    function: str | None = None,
    clock: Callable[[], float] = time.time,
    write: Callable[[str], object] = print_line,
) -> Hook:
    """Writes a line in CloudWatch's Embedded Metric Format for each record. CloudWatch makes metrics of it in Lambda's log.

    Their dimension is `FunctionName`, as for Lambda's own metrics. Its value is `function`, otherwise what the environment
    variable AWS_LAMBDA_FUNCTION_NAME holds when this is called; without either there is no dimension. `Retried` counts the
    Applied whose first answer was lost, and `Duration` is in milliseconds.

    A line has about 250 bytes. Lines are not summed up over several records, because Lambda may stop a function at any time.
    `write` is given a line without a line break; the default prints it.
    """
    put = emf_writer(namespace, function, checked_clock(clock), write)

    def hook(message: Message | None, outcome: Reported, seconds: float) -> None:  # noqa: ARG001  # a hook is given it
        kinds = kinds_of(outcome)
        counts = Counter([*(kind for kind, _ in kinds), *("Retried" for _, is_retry in kinds if is_retry)])
        metrics = {name: (count, "Count") for name, count in counts.items()}
        put({**metrics, "Duration": (round(seconds * 1000, 3), "Milliseconds")})

    return hook


def emf_writer(
    namespace: str, function: str | None, clock: Callable[[], float], write: Callable[[str], object]
) -> Callable[[Mapping[str, tuple[float, str]]], None]:
    """A function that writes metrics, given by name with their values and units, as one line of that format."""
    if not isinstance(cast("object", namespace), str) or not _NAMESPACE.fullmatch(namespace):
        raise ConfigurationError(
            f"emf(namespace={namespace!r}): a namespace is made of letters, digits and . _ # : / - and does not begin with AWS/ "
            "or a colon."
        )
    name = function_name(function)
    dimension = {} if name is None else {"FunctionName": name}

    def put(metrics: Mapping[str, tuple[float, str]]) -> None:
        units = [{"Name": metric, "Unit": unit} for metric, (_, unit) in metrics.items()]
        directive = {"Namespace": namespace, "Dimensions": [[*dimension]], "Metrics": units}
        about = {"Timestamp": int(clock() * 1000), "CloudWatchMetrics": [directive]}
        line = {"_aws": about, **dimension, **{metric: value for metric, (value, _) in metrics.items()}}
        write(json.dumps(line, separators=(",", ":")))

    return put


def opentelemetry(meter: Meter, *, function: str | None = None) -> Hook:
    """Counts on OpenTelemetry's `meter`: `onewrite.messages` by `outcome`, and `onewrite.message.duration` in seconds.

    The attribute `outcome` is one of applied, duplicate, stale, deferred, rejected, missing, gone, busy, uncertain, superseded, begun, skipped,
    failed and none. An Applied whose first answer was lost has the attribute `retried` too, and a failure has `error.type`.
    Everything has `faas.name`, the name of the function, where `emf` would have its dimension.
    """
    messages = meter.create_counter("onewrite.messages", unit="{message}", description="What became of messages.")
    duration = meter.create_histogram(
        "onewrite.message.duration",
        unit="s",
        description="How long a record was worked on.",
        explicit_bucket_boundaries_advisory=_BUCKET_BOUNDS,
    )
    name = function_name(function)
    common = {} if name is None else {"faas.name": name}

    def hook(message: Message | None, outcome: Reported, seconds: float) -> None:  # noqa: ARG001  # a hook is given it
        failure = {"error.type": type(outcome).__qualname__} if isinstance(outcome, BaseException) else {}
        duration.record(seconds, {**common, **failure})
        for kind, is_retry in kinds_of(outcome):
            retry = {"retried": True} if is_retry else {}
            messages.add(1, {**common, **failure, **retry, "outcome": "none" if kind == NO_OUTCOME else kind.lower()})

    return hook


def kinds_of(outcome: Reported) -> list[tuple[str, bool]]:
    """What became of one record: the name of each outcome, and whether the first answer to its write was lost.

    A failure and a record without outcomes have a name too, so there is always at least one.
    """
    if isinstance(outcome, BaseException):
        return [(FAILED, False)]
    if isinstance(outcome, Skip):
        return [(SKIPPED, False)]
    outcomes: Sequence[Answer] = () if outcome is None else outcome if isinstance(outcome, Sequence) else (outcome,)
    kinds = [(type(answer).__name__, isinstance(answer, Applied) and answer.retried) for answer in outcomes]
    return kinds or [(NO_OUTCOME, False)]


def function_name(function: str | None) -> str | None:
    name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or None if function is None else function
    if name is not None and (not isinstance(cast("object", name), str) or not _DIMENSION.fullmatch(name)):
        raise ConfigurationError(
            f"function={name!r}: a name has from 1 to 1024 printable ASCII characters, and not only spaces."
        )
    return name
