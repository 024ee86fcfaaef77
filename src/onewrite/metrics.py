"""Hooks that count what happened to each record, for `on_outcome`.

Counted are, by the outcome's name: Applied, Duplicate, Stale, Deferred and Rejected; Failed, where there is an error in
their place (a record without a key is among those); NoOutcome, where the handler reported none. A record with several
outcomes counts each. How long the record took is measured along. Nothing of a record's content goes out.

Both may be called from several threads at a time.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from onewrite.errors import ConfigurationError
from onewrite.message import Message
from onewrite.outcome import Applied, Outcome

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter

Reported: TypeAlias = Outcome | Sequence[Outcome] | BaseException | None
Hook: TypeAlias = Callable[[Message | None, Reported, float], object]

_NONE = "NoOutcome"
# As CloudWatch takes them. "AWS/" is for its own.
_NAMESPACE = re.compile("(?!AWS/|:)[A-Za-z0-9._#:/-]{1,255}")
_DIMENSION = re.compile("(?=.*[!-~])[ -~]{1,1024}")
# In seconds, as OpenTelemetry advises for messaging. The SDK's own bounds are meant for milliseconds.
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")  # one write, so that no other thread's line gets in between
    sys.stdout.flush()


def emf(
    *,
    namespace: str = "onewrite",
    function: str | None = None,
    clock: Callable[[], float] = time.time,
    write: Callable[[str], object] = _print,
) -> Hook:
    """Writes a line of CloudWatch's Embedded Metric Format for each record. In the log of a Lambda function it makes metrics.

    Their dimension is `FunctionName`, as in Lambda's own: `function`, or what AWS_LAMBDA_FUNCTION_NAME says when this is
    called. Where neither says anything there is no dimension. `Retried` counts the Applied whose first answer was lost, and
    `Duration` is in milliseconds.

    A line has about 250 bytes. None is held back to be summed up later: a function that is stopped has no later.
    `write` takes a line without its end; the default prints it.
    """
    if not isinstance(cast("object", namespace), str) or not _NAMESPACE.fullmatch(namespace):
        raise ConfigurationError(
            f"emf(namespace={namespace!r}): take letters, digits and . _ # : / - for it, and do not begin with AWS/ or a colon."
        )
    name = _function_name(function)
    dimension = {} if name is None else {"FunctionName": name}

    def hook(message: Message | None, outcome: Reported, seconds: float) -> None:  # noqa: ARG001  # a hook is called with it
        counts = _counts(outcome)
        metrics = [*({"Name": each, "Unit": "Count"} for each in counts), {"Name": "Duration", "Unit": "Milliseconds"}]
        directive = {"Namespace": namespace, "Dimensions": [[*dimension]], "Metrics": metrics}
        about = {"Timestamp": int(clock() * 1000), "CloudWatchMetrics": [directive]}
        line = {"_aws": about, **dimension, **counts, "Duration": round(seconds * 1000, 3)}
        write(json.dumps(line, separators=(",", ":")))

    return hook


def opentelemetry(meter: Meter, *, function: str | None = None) -> Hook:
    """Counts on OpenTelemetry's `meter`: `onewrite.messages` by `outcome`, and `onewrite.message.duration` in seconds.

    `outcome` is one of applied, duplicate, stale, deferred, rejected, failed and none. With it go `retried` for an Applied
    whose first answer was lost, and `error.type` for a failure. `faas.name` is on all, where `emf` would know the function.
    """
    messages = meter.create_counter("onewrite.messages", unit="{message}", description="What became of messages.")
    duration = meter.create_histogram(
        "onewrite.message.duration",
        unit="s",
        description="How long a record was worked on.",
        explicit_bucket_boundaries_advisory=_BOUNDS,
    )
    name = _function_name(function)
    common = {} if name is None else {"faas.name": name}

    def hook(message: Message | None, outcome: Reported, seconds: float) -> None:  # noqa: ARG001  # a hook is called with it
        failure = {"error.type": type(outcome).__qualname__} if isinstance(outcome, BaseException) else {}
        duration.record(seconds, {**common, **failure})
        for each, retried in _named(outcome):
            lost = {"retried": True} if retried else {}
            messages.add(1, {**common, **failure, **lost, "outcome": "none" if each == _NONE else each.lower()})

    return hook


def _counts(outcome: Reported) -> Counter[str]:
    """How often there is each, by the name of its metric."""
    named = _named(outcome)
    return Counter([*(name for name, _ in named), *("Retried" for _, retried in named if retried)])


def _named(outcome: Reported) -> list[tuple[str, bool]]:
    """The name of each outcome, and whether the first answer to it was lost."""
    if isinstance(outcome, BaseException):
        return [("Failed", False)]
    outcomes: Sequence[Outcome] = () if outcome is None else outcome if isinstance(outcome, Sequence) else (outcome,)
    named = [(type(each).__name__, isinstance(each, Applied) and each.retried) for each in outcomes]
    return named or [(_NONE, False)]


def _function_name(given: str | None) -> str | None:
    name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME") or None if given is None else given
    if name is not None and (not isinstance(cast("object", name), str) or not _DIMENSION.fullmatch(name)):
        raise ConfigurationError(f"function={name!r}: a name is of 1 to 1024 printable ASCII characters.")
    return name
