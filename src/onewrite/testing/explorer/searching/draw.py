"""Runs a schedule whose steps are drawn at random."""

from __future__ import annotations

from random import Random

from onewrite.testing.explorer.judging.judge import Finding, Judge, JudgedSchedule
from onewrite.testing.explorer.schedule import Fault, Step
from onewrite.testing.explorer.trials.trial import Trial

_FAULTS = [fault for fault in Fault if fault]
_MANY_REQUESTS = 5040  # which of its pending requests a delivery sends is counted round: up to ten have the same chance
_FAULT_SHARE = 0.2  # of the steps of a random schedule, as long as the bounds allow faults


def drawn(judge: Judge, seed: str) -> JudgedSchedule:
    """Run a schedule whose steps are drawn at random. The same seed draws the same."""

    def body(trial: Trial) -> JudgedSchedule:
        draw, draw_which = Random(seed), Random(f"{seed}/which")
        finding: Finding | None = None
        while finding is None and (able := trial.able()):
            fault = draw.choice(_FAULTS) if draw.random() < _FAULT_SHARE else Fault.NONE
            step = Step(draw.choice(able), fault, draw_which.randrange(_MANY_REQUESTS))
            trial.take(step if trial.allows(step) else step._replace(fault=Fault.NONE))
            finding = judge.check(trial)
        return JudgedSchedule(tuple(trial.steps), finding or judge.conclude(trial))

    return judge.run(body)
