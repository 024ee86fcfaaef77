"""Hooks for `on_outcome` that count each record's outcomes and measure how long it took.

An outcome counts under its name, such as Applied or Duplicate, and each outcome of a record with several counts. These count too:

- Failed: the function or the identity raised
- NoOutcome: the function returned no outcome, and its guarded writes were settled
- Skipped: the identity returned `Skip`
- Begun: the function returned it, and did not finish its effect

Set an alarm on Uncertain, which waits for an operator, and on Begun. No metric contains content of a record. Both hooks can be
called from several threads at once.
"""

from __future__ import annotations

import inspect
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
from onewrite.outcome import Applied, BeginOutcome

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

__all__ = ["Hook", "emf", "opentelemetry"]

Reported: TypeAlias = BeginOutcome | Sequence[BeginOutcome] | BaseException | Skip | None
Hook: TypeAlias = Callable[[Message | None, Reported, float], object]

FAILED = "Failed"
NO_OUTCOME = "NoOutcome"
_WORD_START = re.compile(r"(?<=[a-z])(?=[A-Z])")
SKIPPED = "Skipped"
# The names that CloudWatch accepts. Namespaces that begin with "AWS/" belong to AWS.
_NAMESPACE = re.compile("(?!AWS/|:)[A-Za-z0-9._#:/-]{1,255}")
_DIMENSION = re.compile("(?=.*[!-~])[ -~]{1,1024}")
# In seconds, as OpenTelemetry's messaging conventions advise. The SDK's default bounds are for milliseconds.
_BUCKET_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


def print_line(line: str) -> None:
    """Print a line, as Lambda's log needs it."""
    sys.stdout.write(f"{line}\n")  # a single write: no other thread can write before the line break
    sys.stdout.flush()


def emf(
    *,
    namespace: str = "onewrite",
    function: str | None = None,
    clock: Callable[[], float] = time.time,
    write: Callable[[str], object] = print_line,
) -> Hook:
    """Return a hook that writes a line in CloudWatch's Embedded Metric Format for each record.

    CloudWatch makes metrics from these lines in Lambda's log. Their dimension is `FunctionName`, as for Lambda's own metrics. Its
    value is `function`, or else the environment variable AWS_LAMBDA_FUNCTION_NAME; without either there is no dimension. `Retried`
    counts each Applied whose first response was lost, and `Duration` is in milliseconds.

    A line has about 250 bytes. Each record has its own line, because Lambda can stop a function at any time. `write` receives the
    line without a line break; the default prints it.
    """
    put = make_emf_writer(namespace, function, clock, write)

    def hook(message: Message | None, outcome: Reported, seconds: float) -> None:  # noqa: ARG001  # part of the hook's signature
        kinds = list_kinds(outcome)
        counts = Counter([kind for kind, _ in kinds])
        counts.update("Retried" for _, is_retry in kinds if is_retry)
        metrics = {name: (count, "Count") for name, count in counts.items()}
        put({**metrics, "Duration": (round(seconds * 1000, 3), "Milliseconds")})

    return hook


def make_emf_writer(
    namespace: str, function: str | None, clock: Callable[[], float], write: Callable[[str], object]
) -> Callable[[Mapping[str, tuple[float, str]]], None]:
    """Return a function that writes metrics as one EMF line. It takes values and units by metric name."""
    if not isinstance(cast("object", namespace), str) or not _NAMESPACE.fullmatch(namespace):
        raise ConfigurationError(
            f"emf(namespace={namespace!r}): CloudWatch doesn't accept this namespace. Use letters, digits, and . _ # : "
            "/ - only, and don't begin with AWS/ or a colon."
        )
    if not callable(write) or inspect.iscoroutinefunction(write):
        raise ConfigurationError(f"emf(write={write!r}): expected a plain function of a line, for example print.")
    now = checked_clock(clock)
    name = find_function_name(function)
    dimension = {} if name is None else {"FunctionName": name}

    def put(metrics: Mapping[str, tuple[float, str]]) -> None:
        """Write one line. The dimension and the metrics are its top-level fields, as the format demands."""
        units = [{"Name": metric, "Unit": unit} for metric, (_, unit) in metrics.items()]
        directive = {"Namespace": namespace, "Dimensions": [[*dimension]], "Metrics": units}
        metadata = {"Timestamp": int(now() * 1000), "CloudWatchMetrics": [directive]}
        line = {"_aws": metadata, **dimension, **{metric: value for metric, (value, _) in metrics.items()}}
        write(json.dumps(line, separators=(",", ":")))

    return put


def opentelemetry(meter: Meter, *, function: str | None = None) -> Hook:
    """Return a hook that counts on OpenTelemetry's `meter`.

    It counts `onewrite.messages` by the attribute `outcome`, which is an outcome's name in snake case, such as taken_over, or skipped, failed, or
    no_outcome; and it records `onewrite.message.duration` in seconds. An Applied whose first response was lost also has the attribute `retried`,
    and a failure has `error.type`. `faas.name` is the function's name, as the dimension of `emf`.
    """
    messages = meter.create_counter("onewrite.messages", unit="{message}", description="Messages by outcome.")
    duration = meter.create_histogram(
        "onewrite.message.duration",
        unit="s",
        description="Time to process a record.",
        explicit_bucket_boundaries_advisory=_BUCKET_BOUNDS,
    )
    name = find_function_name(function)
    common = {} if name is None else {"faas.name": name}

    def hook(message: Message | None, outcome: Reported, seconds: float) -> None:  # noqa: ARG001  # part of the hook's signature
        failure = {"error.type": type(outcome).__qualname__} if isinstance(outcome, BaseException) else {}
        duration.record(seconds, {**common, **failure})
        for kind, is_retry in list_kinds(outcome):
            retry = {"retried": True} if is_retry else {}
            messages.add(1, {**common, **failure, **retry, "outcome": snake_case(kind)})

    return hook


def snake_case(kind: str) -> str:
    """Return the name of an outcome in snake case."""
    return _WORD_START.sub("_", kind).lower()


def list_kinds(outcome: Reported) -> list[tuple[str, bool]]:
    """Return the name of each outcome of one record, and whether its write was retried. There is always at least one name."""
    if isinstance(outcome, BaseException):
        return [(FAILED, False)]
    if isinstance(outcome, Skip):
        return [(SKIPPED, False)]
    if outcome is None:
        return [(NO_OUTCOME, False)]
    outcomes: Sequence[BeginOutcome] = outcome if isinstance(outcome, Sequence) else (outcome,)
    kinds = [(type(each).__name__, isinstance(each, Applied) and each.retried) for each in outcomes]
    return kinds or [(NO_OUTCOME, False)]


def find_function_name(function: str | None) -> str | None:
    """Return the caller's name of the function, or else Lambda's, or None outside Lambda."""
    name = function
    if name is None:
        name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or None  # an empty variable counts as unset
    if name is not None and (not isinstance(cast("object", name), str) or not _DIMENSION.fullmatch(name)):
        raise ConfigurationError(f"function={name!r}: expected 1 to 1024 printable ASCII characters, not only spaces.")
    return name
