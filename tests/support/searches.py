"""A search of the explorer through all schedules of a handler, as the explorer reduces it, or whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any, Literal, TypeAlias

from onewrite import Message
from onewrite.testing.explorer.judge import Judge, JudgedSchedule
from onewrite.testing.explorer.modes import Handling, Mode
from onewrite.testing.explorer.schedule import Bounds
from onewrite.testing.explorer.search import EverySchedule
from onewrite.testing.explorer.subject import Subject

How: TypeAlias = Literal["every schedule", "run and compared", "recalled"]
REDUCED: tuple[How, ...] = ("run and compared", "recalled")


def search_schedules(
    build: Callable[[Any], Any],
    messages: Sequence[Message],
    world: Callable[[], Any],
    bounds: Bounds,
    observe: Callable[[Any], object],
    how: How,
    *,
    own_processes: bool = False,
) -> tuple[list[JudgedSchedule], Judge]:
    """Return the schedules that were run, and who judged them. `own_processes`: each delivery has one of its own."""
    with closing(Subject(build, messages, world, bounds, 30)) as subject:
        judge = Judge(subject, observe)
        judge.prepare()
        if how != "every schedule":
            judge.switch(Mode(Handling.COMPARED if how == "run and compared" else Handling.RECALLED))
        if own_processes:
            judge.switch(judge.mode.separate())
        return list(EverySchedule(judge)), judge
