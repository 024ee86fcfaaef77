"""What an exploration came to, as values and as text."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pprint import pformat
from typing import Any

from onewrite.outcome import Deferred, Duplicate, Rejected, Stale
from onewrite.testing.explorer.calls import Answer
from onewrite.testing.explorer.judge import Finding, Shown
from onewrite.testing.explorer.schedule import Bounds, Fault
from onewrite.testing.explorer.trial import Happening, name_of
from onewrite.testing.taps.traffic import describe

_WIDTH = 100
_NARROWEST, _WIDEST = 20, 46
_STATES_SHOWN = 6
_REDELIVERIES_SHOWN = 12  # a message that never settles comes again and again
_AFTERMATH = {
    Fault.NONE: "",
    Fault.CRASH_BEFORE: "",
    Fault.CRASH_AFTER: ", then CRASH",
    Fault.LOST: ", but the answer is lost",
}


class IncompleteExploration(UserWarning):
    """Nothing was found, but not every schedule within the bounds was run."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step of a counterexample: which delivery ("m1, delivery 1"), and what it did, in words."""

    delivery: str
    words: str
    settling: bool = False

    def __str__(self) -> str:
        return f"{self.delivery}: {self.words}"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The shortest schedule that was found to end wrongly. `expected` are the states that it might have ended in."""

    steps: tuple[ShownStep, ...]
    reason: str
    expected: tuple[Any, ...]
    observed: Any
    token: str
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Report:
    """What was run and what was found. `pruned` counts the branches that could add nothing to those that were run."""

    schedules: int
    pruned: int
    seconds: float
    exhausted: bool  # every schedule within the bounds was run, or pruned
    bounds: Bounds
    counterexample: Counterexample | None = None
    nondeterministic: str | None = None  # what differs when the same schedule is run twice
    sampled: bool = False  # not every schedule was meant to be run
    remarks: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.counterexample is None and self.nondeterministic is None

    def assert_effectively_once(self) -> None:
        """`AssertionError` with the counterexample; a warning where nothing was found but not all was run."""
        __tracebackhide__ = True  # pytest is to show the test, not this
        if not self.ok:
            raise AssertionError(str(self))
        if not self.exhausted and not self.sampled:
            warnings.warn(IncompleteExploration(str(self)), stacklevel=2)

    def __str__(self) -> str:
        return "\n".join(_paragraphs(self))


def _paragraphs(report: Report) -> Iterator[str]:
    if report.counterexample is not None:
        yield f"{report.counterexample}\n"
    if report.nondeterministic is not None:
        yield f"Not deterministic: {report.nondeterministic}\n"
    if report.ok:
        yield f"No counterexample{'' if report.exhausted else ' so far'}."
    bounds = report.bounds
    yield (
        f"{report.schedules} schedules run, {report.pruned} branches pruned, {report.seconds:.1f} s; deliveries={bounds.deliveries}, "
        f"crashes={bounds.crashes}, reorder={bounds.reorder!r}, concurrency={bounds.concurrency}"
    )
    if report.ok and not report.exhausted and not report.sampled:
        yield "These were not all: raise schedules=, lower the bounds, or look further with explore.random()."
    yield from report.remarks


def counterexample(shown: Shown, finding: Finding, names: Sequence[str], token: str, command: str) -> Counterexample:
    steps = tuple(step for step in _told(shown, names) if not step.settling)
    text = "\n".join(
        [
            f"Not effectively once: {finding.reason}.",
            "",
            timeline(shown, names),
            "",
            *_states("expected", finding.expected),
            *_states("observed", (finding.observed,)),
            f"  replay    {command}",
        ]
    )
    return Counterexample(steps, finding.reason, finding.expected, finding.observed, token, text)


def timeline(shown: Shown, names: Sequence[str]) -> str:
    """What was run, one column a delivery."""
    told = _told(shown, names)
    steps = [step for step in told if not step.settling]
    settling = _settling([str(step) for step in told if step.settling], undisturbed=not steps)
    return "\n".join([*_timeline(steps), *settling])


def _told(shown: Shown, names: Sequence[str]) -> list[ShownStep]:
    return [
        ShownStep(name_of(names, happening.taken.step.delivery), words(happening), happening.settling)
        for happening in shown.happenings
    ]


def words(happening: Happening) -> str:
    """A step in words, such as "UpdateItem customers c1: guarded, applied"."""
    request, fault = happening.taken.request, happening.taken.step.fault
    if request is None:
        return f"sends nothing{_ending(happening)}"
    if fault is Fault.CRASH_BEFORE:
        return f"CRASH before {request}"
    told = [describe(request, _value(answer)) for answer in happening.answers]
    if fault is Fault.RETRIED:
        return f"{request}: {told[0]}, the answer is lost, sent again by the driver: {told[1]}{_ending(happening)}"
    return f"{request}: {told[0]}{_AFTERMATH[fault]}{_ending(happening)}"


def _value(answer: Answer) -> object:
    return answer.value if answer.error is None else answer.error


def _ending(happening: Happening) -> str:
    """How the handler ended, where that says more than the request."""
    end = happening.end
    if end is None or happening.taken.step.fault.kills:
        return ""
    if end.error is not None:
        return f", raises {type(end.error).__name__}"
    said = isinstance(end.value, Duplicate | Stale | Deferred | Rejected)
    return f", {type(end.value).__name__.lower()}" if said else ""


def _settling(lines: Sequence[str], *, undisturbed: bool) -> Iterator[str]:
    if lines:
        yield f"     {'delivered one at a time, undisturbed' if undisturbed else 'then redelivered until settled'}:"
        for line in lines[:_REDELIVERIES_SHOWN]:
            yield from textwrap.wrap(line, _WIDTH, initial_indent="     ", subsequent_indent="       ")
        if len(lines) > _REDELIVERIES_SHOWN:
            yield f"     and {len(lines) - _REDELIVERIES_SHOWN} requests more"


def _timeline(steps: Sequence[ShownStep]) -> Iterator[str]:
    """One column a delivery, one row a step."""
    columns = list(dict.fromkeys(step.delivery for step in steps))
    if not steps:
        return
    width = max(_NARROWEST, min(_WIDEST, _WIDTH // len(columns)))
    yield _row("", [[column] for column in columns], width)
    for number, step in enumerate(steps, 1):
        cells = [textwrap.wrap(step.words, width - 2) if column == step.delivery else [] for column in columns]
        yield _row(str(number), cells, width)


def _row(number: str, cells: Sequence[Sequence[str]], width: int) -> str:
    """A row, of as many lines as its longest cell."""
    height = max(map(len, cells))
    columns = [[f"{line:>3}  " for line in (number, *[""] * (height - 1))]]
    columns += [[line.ljust(width) for line in (*cell, *[""] * (height - len(cell)))] for cell in cells]
    return "\n".join("".join(line).rstrip() for line in zip(*columns, strict=True))


def _states(title: str, states: Sequence[Any]) -> Iterator[str]:
    for number, state in enumerate(states[:_STATES_SHOWN]):
        first, *rest = pformat(state, width=_WIDTH - 12, sort_dicts=False).splitlines()
        yield f"  {title if number == 0 else '':<8}  {'or ' if number else ''}{first}"
        yield from (f"{'':12}{line}" for line in rest)
    if len(states) > _STATES_SHOWN:
        yield f"{'':12}or one of {len(states) - _STATES_SHOWN} more"
