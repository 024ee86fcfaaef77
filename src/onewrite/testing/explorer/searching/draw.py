"""Runs a schedule whose steps are drawn at random."""

from __future__ import annotations

from random import Random

from onewrite.testing.explorer.judging.judge import Finding, Judge, JudgedSchedule
from onewrite.testing.explorer.schedule import Fault, Step
from onewrite.testing.explorer.trials.trial import Trial

_FAULTS = [fault for fault in Fault if fault]
_FAULT_SHARE = 0.2  # of the steps of a random schedule, as long as the bounds allow faults


def drawn(judge: Judge, seed: str) -> JudgedSchedule:
    """Run a schedule whose steps are drawn at random. The same seed draws the same."""

    def body(trial: Trial) -> JudgedSchedule:
        draw = Random(seed)
        finding: Finding | None = None
        while finding is None and (able := trial.able()):
            fault = draw.choice(_FAULTS) if draw.random() < _FAULT_SHARE else Fault.NONE
            step = Step(draw.choice(able), fault)
            trial.take(step if trial.allows(step) else Step(step.delivery))
            finding = judge.check(trial)
        return JudgedSchedule(tuple(trial.steps), finding or judge.conclude(trial))

    return judge.run(body)
