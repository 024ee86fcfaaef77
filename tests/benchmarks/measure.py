"""Contenders take turns call by call, so a loaded machine slows each of them alike; what counts is their ratio."""

from __future__ import annotations

import random
import statistics
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

from onewrite import Applied, Message, Outcome

Contender = Callable[[int], object]
Unit = Literal["x", "s", "us"]

SLICES = 5  # of one run: how far their ratios lie apart says how much to trust the one in the middle


class WrongOutcomeError(Exception):
    """A write that is refused takes less time and less room, and must not count as a cheap one."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to measure."""

    rounds: int
    seed: int = 20240229

    @property
    def warmup(self) -> int:
        """Rounds that are not counted. There are as many entities, so each exists before the first counted round."""
        return max(self.rounds // 10, 20)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result."""

    what: str
    against: str
    value: float
    low: float
    high: float
    unit: Unit = "x"


def take_turns(
    contenders: Mapping[str, Contender], rounds: int, *, warmup: int, seed: int, clock: Callable[[], float] = perf_counter
) -> dict[str, list[float]]:
    """Seconds of each call, or of the processor in it, as the clock says. In each round every contender has one turn, in an order drawn anew."""
    order = list(contenders)
    shuffle = random.Random(seed).shuffle
    seconds: dict[str, list[float]] = {name: [] for name in order}
    for turn in range(warmup + rounds):
        shuffle(order)
        for name in order:
            call = contenders[name]
            start = clock()
            result = call(turn)
            duration = clock() - start
            if isinstance(result, Outcome):
                expect(Applied, result)
            if turn >= warmup:
                seconds[name].append(duration)
    return seconds


def ratio(what: str, against: str, times: Sequence[float], rival_times: Sequence[float]) -> Row:
    """The medians' ratio, and the least and the largest ratio of one slice of the run."""
    slices = [_ratio(part, rival_part) for part, rival_part in zip(_slices(times), _slices(rival_times), strict=True)]
    return Row(what, against, _ratio(times, rival_times), min(slices), max(slices))


def expect(kind: type[Outcome], outcome: object) -> None:
    if not isinstance(outcome, kind):
        raise WrongOutcomeError(f"{outcome!r} where {kind.__name__} is measured.")


def fresh_messages(plan: Plan) -> list[Message]:
    """A message for each turn, with random ids. They are there before the clock runs, as the handler's caller has them."""
    return [Message(message_id) for message_id in message_ids(plan.warmup + plan.rounds, plan.seed)]


def message_ids(count: int, seed: int) -> list[str]:
    source = random.Random(seed)
    return [str(uuid.UUID(int=source.getrandbits(128), version=4)) for _ in range(count)]


def _slices(values: Sequence[float]) -> list[Sequence[float]]:
    size = max(len(values) // SLICES, 1)
    return [values[at : at + size] for at in range(0, size * SLICES, size) if values[at : at + size]]


def _ratio(times: Sequence[float], rival_times: Sequence[float]) -> float:
    return statistics.median(times) / statistics.median(rival_times)
