"""Every schedule within the bounds, and of those that cannot differ only one.

The search goes depth first. The handler cannot be put back to where it was, so each schedule is run from its start: first the
steps that it shares with the one before, then one that was not yet taken there, then on to the end.

Two things spare schedules, and neither spares a state:

- *Partial-order reduction, by sleep sets.* Where steps a and b may be taken in either order with the same result, the schedules
  that begin with b need not take a next: those that begin with a have been there. So once a has been followed, it sleeps while b
  is, for as long as the steps taken are independent of it. `independent` judges that where the two are to be taken, with the
  bounds and what each step did to its delivery. Sleep sets leave out steps between states and no state: whatever is true of a
  state, such as being a legal end with this or that in the store, is seen.
- *Joining.* Where the store holds the same, and every delivery has sent the same requests, met the same faults and had the same
  answers as in an earlier schedule, what can follow is the same, and has been followed. A step that slept there, and is awake
  here, slept because what it leads to had been seen even then.

Both take a handler for what it sends and is answered. What it keeps in memory counts where it shows in the next request. A legal
end is checked before a schedule is given up for joining another, so that `observe` may look at memory too.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from onewrite.testing.explorer.calls import Answer
from onewrite.testing.explorer.judge import Judge, Shown
from onewrite.testing.explorer.schedule import Board, Delivery, Step, Taken, faults_for, independent
from onewrite.testing.explorer.trial import Trial
from onewrite.testing.model.canonical import NotCanonicalError, canonical


@dataclass(slots=True)
class _Node:
    """A place in the search: what has been taken from it, what is to be, and what need not be."""

    board: Board
    histories: Mapping[Delivery, int]  # a number for all that a delivery has been through
    asleep: Mapping[Step, Taken]
    todo: list[Step]  # the next one last
    followed: dict[Step, Taken] = field(default_factory=dict[Step, Taken])
    step: Step | None = None

    def unfold(self, taken: Taken) -> None:
        """Once it is known what a delivery sends next, the faults that this may meet are next."""
        if not taken.step.fault:
            faulty = [Step(taken.step.delivery, fault) for fault in faults_for(taken.request)]
            self.todo += [step for step in reversed(faulty) if self.board.allows(step)]

    def asleep_after(self, taken: Taken) -> dict[Step, Taken]:
        others = {**self.asleep, **self.followed}
        return {step: other for step, other in others.items() if independent(self.board, taken, other)}


class Search:
    """Iterates over the schedules. `pruned` counts the branches that were not followed."""

    def __init__(self, judge: Judge, *, prune: bool = True) -> None:
        self.pruned = 0
        self._judge = judge
        self._prune = prune
        self._path: list[_Node] = []
        self._numbers: dict[Hashable, int] = {}
        self._seen: set[Hashable] = set()

    def __iter__(self) -> Iterator[Shown]:
        while True:
            yield self._judge.run(self._go)
            if not self._turn():
                return

    def _go(self, trial: Trial) -> Shown:
        """Take the path, and go on from its end until there is no way on."""
        if not all(self._follow(node, trial) for node in self._path):
            finding = self._judge.conclude(trial)
            return Shown(tuple(trial.happenings), finding)
        while True:
            finding = self._judge.check(trial)
            node = self._arrive(trial)
            if not node.todo:
                finding = finding or self._judge.conclude(trial)
                break
            if self._has_joined(node, trial):
                break
            self._path.append(node)
            if finding is not None or not self._choose(node):
                break  # what follows a finding is another schedule
            self._follow(node, trial)
        return Shown(tuple(trial.happenings), finding)

    def _turn(self) -> bool:
        """Go back to the last place from which there is another way."""
        while self._path and not self._choose(self._path[-1]):
            self._path.pop()
        return bool(self._path)

    def _choose(self, node: _Node) -> bool:
        while node.todo:
            node.step = node.todo.pop()
            sleeper = node.asleep.get(node.step)
            if sleeper is None:
                return True
            self.pruned += 1
            node.unfold(sleeper)
        return False

    def _follow(self, node: _Node, trial: Trial) -> bool:
        """Take the node's step; False if it is not there any more."""
        step = cast("Step", node.step)
        before = node.followed.get(step)
        taken = trial.take(step) if trial.board.allows(step) else None
        if before is None and taken is not None:
            node.followed[step] = taken
            node.unfold(taken)
        elif before is None or taken is None or before.key != taken.key:
            self._judge.differs(step.delivery, before, taken)
        return taken is not None

    def _arrive(self, trial: Trial) -> _Node:
        todo = [Step(delivery) for delivery in reversed(trial.board.able())]
        if not self._path or not self._prune:
            return _Node(trial.board, {}, {}, todo)
        parent, happening = self._path[-1], trial.happenings[-1]
        delivery, fault = happening.taken.step
        been_through = (parent.histories.get(delivery), happening.taken.key, fault, *map(_spelt, happening.answers))
        histories = {**parent.histories, delivery: self._number(been_through)}
        return _Node(trial.board, histories, parent.asleep_after(happening.taken), todo)

    def _has_joined(self, node: _Node, trial: Trial) -> bool:
        if not self._prune:
            return False
        board, pending = node.board, frozenset(trial.pending().items())
        place = (trial.state, frozenset(node.histories.items()), pending, board.open, frozenset(board.settled))
        if place in self._seen:
            self.pruned += 1
            return True
        self._seen.add(place)
        return False

    def _number(self, spelt: Hashable) -> int:
        return self._numbers.setdefault(spelt, len(self._numbers) + 1)


def _spelt(answer: Answer) -> Hashable:
    """An answer in one spelling, without what differs from one request to the next. What has none equals no other."""
    value: Any = answer.value
    if answer.error is not None:
        value = (type(answer.error).__name__, str(answer.error), getattr(answer.error, "response", None))
    try:
        return canonical(_without_metadata(value), ordered=True)
    except NotCanonicalError:
        return object()


def _without_metadata(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_without_metadata(part) for part in cast("tuple[Any, ...]", value)]
    if isinstance(value, dict):
        return {name: inner for name, inner in cast("dict[str, Any]", value).items() if name != "ResponseMetadata"}
    return value
