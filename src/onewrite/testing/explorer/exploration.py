"""The result of an exploration, as values and as the report of a failing test."""

from __future__ import annotations

import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pprint import pformat
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.label import EFFECT, EFFECTS, is_ours
from onewrite.errors import ConfigurationError
from onewrite.metrics import snake_case
from onewrite.outcome import Applied, BeginOutcome
from onewrite.testing.explorer.deliverables import Titles, read_outcomes
from onewrite.testing.explorer.difference import show
from onewrite.testing.explorer.judge import JudgedSchedule, WrongEnd
from onewrite.testing.explorer.remarks import DOUBTFUL, FAILING, KINDS, NOTE, Remark, list_in_words
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.explorer.subject import Subject, format_delivery
from onewrite.testing.explorer.trial import TrialStep
from onewrite.testing.model.contents import Entity
from onewrite.testing.taps.fault import Fault
from onewrite.testing.taps.traffic import describe

_WIDTH = 100  # the timeline's width, in characters
_NARROWEST_COLUMN, _WIDEST_COLUMN = 20, 46
_STATES_SHOWN = 6
_REDELIVERIES_SHOWN = 12  # a message that is never settled has many redeliveries, all alike

_MAX_VALUES, _MAX_VALUE_LENGTH = 3, 24
_KEYS = frozenset({"_id", "id"})  # already shown in the description of the request
Changes: TypeAlias = Sequence[Sequence[tuple[Entity, Entity]]]  # per response: entities before and after


class Legend(NamedTuple):
    """The titles and changes that a reader of a schedule needs in addition to its steps."""

    titles: Titles
    read_changes: Callable[[TrialStep], Changes]
    own_processes: bool = False  # whether each delivery runs in its own process


def make_legend(subject: Subject) -> Legend:
    def read_changes(step: TrialStep) -> Changes:
        request = step.taken_step.request
        if request is None:
            return ()
        return [subject.machine.changes(before, request, after) for before, after in pairwise(step.states)]

    return Legend(subject.titles, read_changes, subject.mode.has_own_processes)


class ExplorationWarning(UserWarning):
    """No schedule ends wrongly, but the test probably has a mistake. The text is a remark of the exploration."""


class IncompleteExploration(ExplorationWarning):
    """No schedule that was run ends wrongly, but not every schedule within the bounds was run."""


@dataclass(frozen=True, slots=True)
class ShownStep:
    """A step of a counterexample: the name of the delivery, such as "m1, delivery 1", and a description of its action.

    `values` contains the values that the step read or changed, and the handler's result, if it ended.
    """

    delivery: str
    words: str
    settling: bool = False
    values: str = ""

    def __str__(self) -> str:
        return f"{self.delivery}: {self.words}"


@dataclass(frozen=True, slots=True)
class Counterexample:
    """A schedule that ends wrongly, without unnecessary steps. It should have ended in one of the `expected` states."""

    steps: tuple[ShownStep, ...]
    reason: str
    expected: tuple[Any, ...]
    observed: Any
    replay_code: str  # `explore(..., replay=replay_code)` runs this schedule again
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class ReportUse:
    """What a test has done with a report. A finding that it hasn't checked fails the test."""

    accepted: set[str] = field(default_factory=set[str])  # kinds of remarks
    is_checked: bool = False  # it has asked whether there is a finding, or for the counterexample


@dataclass(frozen=True, slots=True)
class Exploration:
    """The result of an exploration. It is true if no schedule ends wrongly.

    `pruned` is the number of branches that weren't run, because they can't end differently from the branches that were run.
    """

    schedules: int
    pruned: int
    seconds: float
    exhausted: bool  # whether every schedule within the bounds was run or pruned
    bounds: Bounds
    found: Counterexample | None = None
    nondeterministic: str | None = None  # how a schedule differed when it was run again
    sampled: bool = False  # whether it wasn't meant to run every schedule
    remarks: tuple[Remark, ...] = ()
    use: ReportUse = field(default_factory=ReportUse, compare=False, repr=False)

    @property
    def counterexample(self) -> Counterexample | None:
        self.use.is_checked = True
        return self.found

    @property
    def ok(self) -> bool:
        self.use.is_checked = True
        return self.passes

    def __bool__(self) -> bool:
        return self.ok

    @property
    def is_unread(self) -> bool:
        """Whether the exploration has a finding that the test hasn't checked."""
        return not (self.passes or self.use.is_checked)

    @property
    def passes(self) -> bool:
        """Whether the exploration has no finding. Unlike `ok`, this doesn't count as a check by the test."""
        return self.found is None and self.nondeterministic is None

    def assert_effectively_once(self, *, accept: str | Collection[str] = ()) -> None:
        """Raise `AssertionError` if a schedule ends wrongly, a write is lost, or incorrect handlers would pass too.

        The error contains the counterexample or the remarks. Other remarks are only warnings, and so is an incomplete exploration
        without a counterexample.

        Args:
            accept: The kinds of remarks to accept: one kind, such as "idle", or several. `Remark` lists the kinds.
        """
        __tracebackhide__ = True  # so that pytest shows the line of the test
        for kind in [accept] if isinstance(accept, str) else accept:
            if kind not in KINDS:
                all_kinds = ", ".join(KINDS)
                raise ConfigurationError(f"accept={kind!r} isn't a kind of remark. The kinds are {all_kinds}.")
            self.use.accepted.add(kind)
        if not self.ok:
            raise AssertionError(str(self))
        if failing_remarks := [remark for remark in self.open_remarks if remark.kind in FAILING]:
            kinds = tuple(dict.fromkeys(remark.kind for remark in failing_remarks))
            lines = [
                "No counterexample, but:",
                *[f"  {remark.text}" for remark in failing_remarks],
                f"If you mean that, call assert_effectively_once(accept={(kinds[0] if len(kinds) == 1 else kinds)!r})",
            ]
            raise AssertionError("\n".join(lines))
        for remark in [remark for remark in self.open_remarks if remark.kind in DOUBTFUL]:
            warnings.warn(ExplorationWarning(remark.text), stacklevel=2)
        if not self.exhausted and not self.sampled:
            warnings.warn(IncompleteExploration(str(self)), stacklevel=2)

    @property
    def open_remarks(self) -> list[Remark]:
        """Return the remarks about probable mistakes, except for the kinds that the test has accepted."""
        return [remark for remark in self.remarks if remark.kind != NOTE and remark.kind not in self.use.accepted]

    def __str__(self) -> str:
        paragraphs: list[str] = []
        if self.nondeterministic is not None:  # first, because it might be the cause of the other findings
            paragraphs.append(f"Not deterministic: {self.nondeterministic}\n")
        if self.counterexample is not None:
            paragraphs.append(f"{self.counterexample}\n")
        if self.ok:
            paragraphs.append(f"No counterexample{'' if self.exhausted else ' so far'}.")
        bounds = self.bounds
        paragraphs.append(
            f"{count_in_words(self.schedules, 'schedule')} run, {count_in_words(self.pruned, 'branch', 'es')} pruned, {self.seconds:.1f} s; "
            f"deliveries={bounds.deliveries}, faults={bounds.faults}, reorder={bounds.reorder!r}, concurrency={bounds.concurrency}"
        )
        if self.ok and not self.exhausted and not self.sampled:
            paragraphs.append(
                "Not all schedules were run. Pass a higher schedules=, lower the bounds, or continue with explore.random()."
            )
        return "\n".join([*paragraphs, *map(str, self.remarks)])


def make_counterexample(
    schedule: JudgedSchedule, finding: WrongEnd, legend: Legend, replay_code: str, command: str
) -> Counterexample:
    """Return the counterexample. `command` runs the schedule again."""
    steps = tuple(step for step in _list_shown_steps(schedule, legend) if not step.settling)
    text = "\n".join(
        [
            f"Not effectively once: {finding.reason}.",
            "",
            format_timeline(schedule, legend),
            "",
            *([] if finding.observed in finding.expected else _format_states("expected", finding.expected)),
            *_format_states("observed", (finding.observed,)),
            f"  replay    {command}",
        ]
    )
    return Counterexample(steps, finding.reason, finding.expected, finding.observed, replay_code=replay_code, text=text)


def format_timeline(schedule: JudgedSchedule, legend: Legend) -> str:
    """Return the steps of a schedule as text, with a column for each delivery, and the redeliveries below them."""
    all_steps = _list_shown_steps(schedule, legend)
    steps = [step for step in all_steps if not step.settling]
    lines = ["     Each delivery is in a process of its own."] if legend.own_processes else []
    lines += _format_rows(steps)
    redeliveries = [step for step in all_steps if step.settling]
    if redeliveries:
        # If the schedule doesn't have steps of its own, these are first deliveries, not redeliveries.
        lines.append(f"     {'then redelivered until settled' if steps else 'delivered one at a time, without faults'}:")
        shown = _find_repetition(redeliveries)
        for step in redeliveries[:shown]:
            lines += textwrap.wrap(f"{step}{step.values}", _WIDTH, initial_indent="     ", subsequent_indent="       ")
        if len(redeliveries) > shown:
            lines.append(f"     and so on, {count_in_words(len(redeliveries) - shown, 'request')} more")
    return "\n".join(lines)


def _find_repetition(steps: Sequence[ShownStep]) -> int:
    """Return how many redeliveries to show: up to the point from which all others repeat the same few, or a maximum."""
    texts = [f"{step.words}{step.values}" for step in steps]
    for first in range(len(texts)):
        for period in range(1, _REDELIVERIES_SHOWN):
            rest = texts[first:]
            if len(rest) > 2 * period and rest[period:] == rest[:-period]:
                return min(first + period, _REDELIVERIES_SHOWN)
    return min(len(texts), _REDELIVERIES_SHOWN)


def describe_step(step: TrialStep, part_titles: Sequence[str] = ()) -> str:
    """Return a step in words, such as "UpdateItem customers c1: guarded, applied"."""
    request, fault, ending = step.taken_step.request, step.taken_step.step.fault, _describe_end(step, part_titles)
    if request is None:
        return f"{'begins' if fault is Fault.BEGUN else 'sends nothing'}{ending}"
    if step.taken_step.outage:
        return f"{request}: {'is left' if step.taken_step.outage.is_partial else 'fails'} again{ending}"
    if fault is Fault.CRASH_BEFORE:
        return f"CRASH before {request}"
    if fault.is_kept_back:
        return f"{request}: {fault.words}{ending}"
    answers = [describe(request, answer.error or answer.value) for answer in step.answers]
    if step.taken_step.cancelled:
        answers[0] = f"cancelled, but it has arrived: {answers[0]}"
    if fault is Fault.RACED:
        return f"{request}: together with the previous write, so it finds no document: {answers[0]}{ending}"
    if fault is Fault.RETRIED:
        return f"{request}: {answers[0]}, the response is lost, sent again by the driver: {answers[1]}{ending}"
    return f"{request}: {answers[0]}{fault.words}{ending}"


def _list_shown_steps(schedule: JudgedSchedule, legend: Legend) -> list[ShownStep]:
    titles = legend.titles

    def name_delivery(step: TrialStep) -> str:
        records = f" of {_list_titles(titles.parts, step.partial_parts)}" if step.partial_parts else ""
        return f"{format_delivery(titles.messages, step.taken_step.step.delivery)}{records}"

    return [
        ShownStep(name_delivery(step), describe_step(step, titles.parts), step.settling, _describe_values(step, legend))
        for step in schedule.trial_steps
    ]


def _describe_values(step: TrialStep, legend: Legend) -> str:
    """Return the values that the step read or changed, and whether the handler returned."""
    request = step.taken_step.request
    parts = [_describe_changes(pairs, step) for pairs in legend.read_changes(step)]
    if request is not None and not request.writes and step.answers:
        parts = [_describe_read(step.answers[0].value)]
    text = ", then ".join(filter(None, parts))
    is_crash = step.taken_step.step.fault.is_crash
    returns = step.end is not None and not is_crash and not _describe_end(step, legend.titles.parts)
    return f"{f' ({text})' if text else ''}{', returns: settled' if returns else ''}"


def _describe_read(answer: Any) -> str:
    """Return the values of the document or the item that a read returned. Other responses, such as a list, have none."""
    if not isinstance(answer, Mapping):
        return ""
    entity = cast("Entity", answer)
    if "ResponseMetadata" in entity:  # a response of DynamoDB
        entity = entity.get("Item", {})
    return _join_words([f"{name}={_shorten(value)}" for name, value in _select_own_values(entity).items()])


def _describe_changes(pairs: Sequence[tuple[Entity, Entity]], step: TrialStep) -> str:
    """Return the changes of entities in words, each after the step of a guarded store that it began or finished."""
    words: list[str] = []
    for before, after in pairs:
        old, new = _select_own_values(before), _select_own_values(after)
        if not after:
            words.append("deleted")
        for name in dict.fromkeys([*old, *new]) if after else ():
            if name not in old:
                words.append(f"{name}={_shorten(new[name])}")
            elif old[name] != new.get(name):
                words.append(f"{name} {_shorten(old[name])} -> {_shorten(new[name]) if name in new else 'nothing'}")
        old_steps, new_steps = _find_open_steps(before), _find_open_steps(after)
        if len(new_steps) < len(old_steps):
            words.insert(0, f'finish "{step.effect_name}"')
        elif new_steps != old_steps:
            taken_over = ", taken over" if len(new_steps) == len(old_steps) else ""
            ran = "" if step.taken_step.step.fault else ", your code ran"
            words.insert(0, f'begin_effect "{step.effect_name}": Begun{taken_over}{ran}')
    return _join_words(words)


def _find_open_steps(entity: Entity) -> Entity:
    """Return the open steps of an entity. On DynamoDB, each step has its own attribute; on MongoDB, all steps are in one field."""
    named = {name: value for name, value in entity.items() if name.startswith(EFFECT)}
    return named or (cast("Entity", steps) if isinstance(steps := entity.get(EFFECTS), Mapping) else {})


def _join_words(words: Sequence[str]) -> str:
    more = len(words) - _MAX_VALUES
    return ", ".join([*words[:_MAX_VALUES], *([f"{more} more"] if more > 0 else [])])


def _select_own_values(entity: Entity) -> dict[str, Any]:
    """Return the entity's values that the user chose, without its key."""
    return {name: value for name, value in entity.items() if not is_ours(name) and name not in _KEYS}


def _shorten(value: Any) -> str:
    """Return a value as a short string. A typed value of a DynamoDB client is shown without its type."""
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping) and len(typed := cast("Mapping[str, Any]", value)) == 1:
        ((name, inner),) = typed.items()
        if name == "N":  # the typed form of a DynamoDB client
            return str(inner)
        value = inner if name == "S" else typed
    return textwrap.shorten(show(cast("object", value)), _MAX_VALUE_LENGTH, placeholder="...")


def _list_titles(part_titles: Sequence[str], parts: Sequence[int]) -> str:
    return list_in_words([part_titles[part] for part in parts])


def _describe_end(step: TrialStep, part_titles: Sequence[str]) -> str:
    """Return the handler's result or error, if it adds something to the request."""
    end = step.end
    if end is None or step.taken_step.step.fault.is_crash:
        return ""
    if end.error is not None:
        return f", raises {type(end.error).__name__}"
    if step.repeated_parts:
        return f", fails {_list_titles(part_titles, step.repeated_parts)}"
    outcomes = [outcome for outcome in read_outcomes(end.value) if isinstance(outcome, BeginOutcome)]
    unsettled = [outcome for outcome in outcomes if not outcome.settled]
    if unsettled:
        return f", {snake_case(type(unsettled[0]).__name__).replace('_', ' ')} (not settled)"
    if isinstance(end.value, BeginOutcome) and not isinstance(
        end.value, Applied
    ):  # the description of the request says "applied"
        return f", {snake_case(type(end.value).__name__).replace('_', ' ')}"
    return ""


def _format_rows(steps: Sequence[ShownStep]) -> Iterator[str]:
    """Yield a row for each step, below the names of the deliveries."""
    columns = list(dict.fromkeys(step.delivery for step in steps))
    if not steps:
        return
    width = max(_NARROWEST_COLUMN, min(_WIDEST_COLUMN, _WIDTH // len(columns)))
    yield _format_row("", [textwrap.wrap(column, width - 2) for column in columns], width)
    for number, step in enumerate(steps, 1):
        cells = [
            textwrap.wrap(f"{step.words}{step.values}", width - 2) if column == step.delivery else [] for column in columns
        ]
        yield _format_row(str(number), cells, width)


def _format_row(number: str, cells: Sequence[Sequence[str]], width: int) -> str:
    """Return a row that has as many lines as its longest cell."""
    height = max(map(len, cells))
    columns = [[f"{line:>3}  " for line in (number, *[""] * (height - 1))]]
    columns += [[line.ljust(width) for line in (*cell, *[""] * (height - len(cell)))] for cell in cells]
    return "\n".join("".join(line).rstrip() for line in zip(*columns, strict=True))


def _format_states(title: str, states: Sequence[Any]) -> Iterator[str]:
    for number, state in enumerate(states[:_STATES_SHOWN]):
        line = show(state)
        first, *rest = (
            [line] if len(line) <= _WIDTH - 12 else pformat(state, width=_WIDTH - 12, sort_dicts=False).splitlines()
        )
        yield f"  {'' if number else title:<8}  {'or ' if number else ''}{first}"
        yield from (f"{'':12}{line}" for line in rest)
    if len(states) > _STATES_SHOWN:
        yield f"{'':12}or one of {len(states) - _STATES_SHOWN} more"


def count_in_words(count: int, noun: str, plural: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else plural}"
