"""Runs every schedule within the bounds of a handler that can be recalled, and follows each place only once.

A place is where a schedule stands: what the store holds, which answers the deliveries that are under way have been given, and
what the bounds still allow. What can follow depends on nothing else. So a schedule is given up at a place where another has been.
A delivery that has ended counts by what it has left in the store, and two deliveries of one message that have been given the
same answers may take each other's part.

No handler runs here but where it is not known yet what it does. So a place costs microseconds, and going back costs nothing.

That what the handler does follows from its answers is checked in each run of it that is made: those that show something new,
those of the counterexample, and those of `checks`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from onewrite.testing.explorer.judging.judge import Judge, JudgedSchedule
from onewrite.testing.explorer.schedule import Step
from onewrite.testing.explorer.searching.checks import first_checks, last_checks
from onewrite.testing.explorer.trials.recalled_trial import RecalledTrial

_KNOWN = JudgedSchedule((), None)  # a schedule that is given up


class PlaceSearch:
    """Iterates over the schedules. `pruned` counts those that were given up because they came to a place that was known."""

    def __init__(self, judge: Judge) -> None:
        self.pruned = 0
        self._judge = judge
        self._seen: set[Hashable] = set()

    def __iter__(self) -> Iterator[JudgedSchedule]:
        checks = first_checks(self._judge)
        nothing = True
        start = self._judge.recalled_trial()
        stack = [(start, _steps(start))]
        while stack:
            trial, todo = stack[-1]
            if not todo:
                stack.pop()
                continue
            onwards = _after_next(trial, todo)
            if self._is_known(onwards.place):
                yield _KNOWN
                continue
            following = _steps(onwards)
            judged = self._judge.judged(onwards, may_go_on=bool(following))
            if judged is not None:
                nothing = nothing and judged.finding is None
                yield judged
            stack.append((onwards, following))
        checks += last_checks(self._judge, len(self._seen))
        if nothing:
            self._judge.prove()
            yield from (judged for judged in checks if judged.finding is not None)

    def _is_known(self, place: Hashable) -> bool:
        """Has another schedule been at this place?"""
        if place in self._seen:
            self.pruned += 1
            return True
        self._seen.add(place)
        return False


def _after_next(trial: RecalledTrial, todo: list[Step]) -> RecalledTrial:
    """A trial that has taken the next step. What may befall its request, or be sent instead, is still to be taken."""
    onwards = trial.fork()
    taken = onwards.take(todo.pop())
    todo += [other for other in reversed(taken.alternatives) if trial.progress.allows(other)]
    return onwards


def _steps(trial: RecalledTrial) -> list[Step]:
    """What may come next, the first last."""
    return [Step(delivery) for delivery in reversed(trial.able())]
