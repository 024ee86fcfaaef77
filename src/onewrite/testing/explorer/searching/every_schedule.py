"""Runs every schedule within the bounds, but of several schedules that cannot end differently only one.

The search goes depth first. A handler cannot be put back to where it was, so each schedule is run from its start: first the
steps that it shares with the schedule before it, then a step that was not yet taken there, and then any steps on to the
end.

Two things spare schedules. Neither of them spares a state.

- *Partial-order reduction by sleep sets.* If the steps a and b may be taken in either order with the same result, then the
  schedules that begin with b need not take a next, because those that begin with a have been through the same states. So
  once the search has followed a, it puts a to sleep while it follows b, for as long as the steps taken are independent of
  a. The function `independent` judges that at the place where both steps are possible: from the bounds and from what each
  step did to its delivery, and a step that has changed what the handler keeps in memory is independent of none. Sleep sets leave out steps between states but no state, so everything that is true of a state is
  seen, such as that it is a legal end with a certain content of the store.
- *Joining.* Suppose that the store and the handler hold the same as at some place in an earlier schedule, and that every
  delivery has sent the same requests, met the same faults, received the same answers and found the same in memory. Then the same can follow, and it has been followed.
  A step that slept at the earlier place and is awake here need not be followed either, because the states that it leads to
  had been seen before it was put to sleep.

Where nobody can read what the handler keeps in memory, no schedule is spared. Reading may miss something, so at the end some
schedules are drawn as well. A legal end is checked before the schedule is given up because it joins another one, so `observe` may
look at memory too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import cast

from onewrite.testing.explorer.handler.comparable import comparable
from onewrite.testing.explorer.judging.judge import Judge, JudgedSchedule
from onewrite.testing.explorer.schedule import Delivery, Progress, Step, TakenStep, independent
from onewrite.testing.explorer.searching.checks import last_checks
from onewrite.testing.explorer.trials.trial import Trial


@dataclass(slots=True)
class _Node:
    """A place in the search: the steps that were followed from it, those that are still to follow, and those that sleep."""

    progress: Progress
    memory: int  # a number that stands for what the handler keeps
    histories: Mapping[Delivery, int]  # for each delivery, a number that stands for all that it has been through
    asleep: Mapping[Step, TakenStep]
    todo: list[Step]  # the next one last
    followed: dict[Step, TakenStep] = field(default_factory=dict[Step, TakenStep])
    step: Step | None = None  # the step that is being followed

    def add_alternatives(self, taken: TakenStep) -> None:
        """Follow the faults that may befall the request of a step, and what else its delivery may send, now that these are known."""
        self.todo += [step for step in reversed(taken.alternatives) if self.progress.allows(step)]

    def asleep_after(self, taken: TakenStep) -> dict[Step, TakenStep]:
        others = {**self.asleep, **self.followed}
        return {step: other for step, other in others.items() if independent(self.progress, taken, other)}


class Search:
    """Iterates over the schedules. `pruned` counts the branches that were not followed."""

    def __init__(self, judge: Judge, *, prune: bool = True) -> None:
        self.pruned = 0
        self._judge = judge
        self._prune = prune
        self._path: list[_Node] = []
        self._numbers: dict[Hashable, int] = {}
        self._memory: tuple[Trial | None, int, int] = None, 0, 0  # what was read last, and where
        self._seen: set[Hashable] = set()

    def __iter__(self) -> Iterator[JudgedSchedule]:
        schedules = 1
        yield self._judge.run(self._run)
        while self._go_back():
            schedules += 1
            yield self._judge.run(self._run)
        if self.pruned:
            yield from (judged for judged in last_checks(self._judge, schedules) if judged.finding is not None)

    def _run(self, trial: Trial) -> JudgedSchedule:
        """Take the steps of the path, and then any steps until no step is possible or nothing new can follow."""
        if not all(self._follow(node, trial) for node in self._path):
            finding = self._judge.conclude(trial)
            return JudgedSchedule(tuple(trial.steps), finding)
        while True:
            finding = self._judge.check(trial)
            node = self._node(trial)
            if not node.todo:
                finding = finding or self._judge.conclude(trial)
                break
            if self._joins(node, trial):
                break
            self._path.append(node)
            if finding is not None or not self._choose(node):
                break  # what would follow a finding belongs to another schedule
            self._follow(node, trial)
        return JudgedSchedule(tuple(trial.steps), finding)

    def _go_back(self) -> bool:
        """Go back to the last place from which another step can be followed. False if there is none."""
        while self._path and not self._choose(self._path[-1]):
            self._path.pop()
        return bool(self._path)

    def _choose(self, node: _Node) -> bool:
        """Choose the next step that does not sleep. False if there is none."""
        while node.todo:
            node.step = node.todo.pop()
            sleeper = node.asleep.get(node.step)
            if sleeper is None:
                return True
            self.pruned += 1
            node.add_alternatives(sleeper)
        return False

    def _follow(self, node: _Node, trial: Trial) -> bool:
        """Take the node's step. False if it is no longer possible, because the handler has behaved differently this time."""
        step = cast("Step", node.step)
        before = node.followed.get(step)
        taken = trial.take(step) if trial.allows(step) else None
        if before is None and taken is not None:
            if self._prune and self._memory_of(trial) != node.memory:
                taken = taken._replace(reaches_others=True)
            node.followed[step] = taken
            node.add_alternatives(taken)
        elif before is None or taken is None or before.key != taken.key:
            self._judge.differs(step.delivery, before, taken)
        return taken is not None

    def _node(self, trial: Trial) -> _Node:
        """The place to which the last step has led."""
        todo = [Step(delivery) for delivery in reversed(trial.able())]
        memory = self._memory_of(trial) if self._prune else 0
        if not self._path or not self._prune:
            return _Node(trial.progress, memory, {}, {}, todo)
        parent, last = self._path[-1], trial.steps[-1]
        delivery, fault, which = step = last.taken.step
        been_through = (parent.memory, parent.histories.get(delivery), last.taken.key, fault, which)
        histories = {**parent.histories, delivery: self._number((*been_through, *map(comparable, last.answers)))}
        asleep = parent.asleep_after(parent.followed.get(step, last.taken))
        return _Node(trial.progress, memory, histories, asleep, todo)

    def _joins(self, node: _Node, trial: Trial) -> bool:
        """Has an earlier schedule been at a place like this, so that all that can follow has been followed?"""
        if not self._prune:
            return False
        progress, pending = node.progress, frozenset(trial.pending().items())
        histories = frozenset(node.histories.items())
        place = trial.state, node.memory, histories, pending, progress.open, frozenset(progress.settled)
        if place in self._seen:
            self.pruned += 1
            return True
        self._seen.add(place)
        return False

    def _memory_of(self, trial: Trial) -> int:
        """A number that stands for what the handler keeps now. It is asked for twice at each new place."""
        known, at, number = self._memory
        if known is not trial or at != len(trial.steps):
            number = self._number(trial.memory)
            self._memory = trial, len(trial.steps), number
        return number

    def _number(self, been_through: Hashable) -> int:
        return self._numbers.setdefault(been_through, len(self._numbers) + 1)
