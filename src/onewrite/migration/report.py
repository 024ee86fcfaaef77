"""What a run over all entities has done or would do, counted, and what comes next. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from onewrite.migration.plan import State
from onewrite.migration.visit import Visit

_FEW = 5  # entities of which nothing is wrong: to see whether it is as meant
_MANY = 100  # of those to which somebody has to see: more have one cause
_AS_MEANT = (State.CARRIED, State.FRESH)


class Asked(NamedTuple):
    """How the command was called, as far as it matters to what is said."""

    writes: bool
    drops: bool
    resumed: bool = False


@dataclass(slots=True)
class Report:
    """Counts of what was found, and of what was written."""

    asked: Asked
    read: int = 0
    marks: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    carried: int = 0
    dropped: int = 0
    lost: int = 0
    states: Counter[State] = field(default_factory=Counter[State])
    examples: dict[State, list[Visit]] = field(default_factory=dict[State, list[Visit]])

    def add(self, visited: Visit) -> None:
        state = visited.plan.state
        self.states[state] += 1
        self.marks += visited.plan.marks
        self.bytes_before += visited.found.size
        self.bytes_after += visited.size
        self.carried += visited.carried
        self.dropped += visited.dropped
        self.lost += visited.lost
        examples = self.examples.setdefault(state, [])
        if len(examples) < (_FEW if state in _AS_MEANT else _MANY):
            examples.append(visited)

    @property
    def found_something(self) -> bool:
        """Is there something that a person has to see to?"""
        return bool(self.lost or self.states[State.CHANGED] or self.states[State.REFUSED] or self._too_large)

    @property
    def _too_large(self) -> int:
        return 0 if self.asked.drops else self.states[State.TOO_LARGE]

    def details(self) -> dict[str, Any]:
        """For a program."""
        return {
            "read": self.read,
            "states": {state.value: self.states[state] for state in State},
            "marks": self.marks,
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "written": {"carried": self.carried, "dropped": self.dropped, "tried in vain": self.lost},
            "examples": [_example(state, each) for state, visits in self.examples.items() for each in visits],
            "next": self.following(),
        }

    def following(self) -> list[str]:
        """What comes next, in sentences."""
        return [
            *self._of_trouble(),
            *self._of_step(),
            *(
                ["This run began at the bookmark: what it says is true of the entities behind it alone."]
                if self.asked.resumed
                else []
            ),
        ]

    def _of_trouble(self) -> list[str]:
        said = {
            self.states[
                State.CHANGED
            ]: "Changed: {}. Somebody still writes the old attribute there: it has gained something since it was carried.",
            self.states[State.REFUSED]: "Refused: {}, for the reason that is told with each. Nothing was written there.",
            self._too_large: "Too large: {}. There is no room for the old set and the ledger together. --drop moves the ids in one write.",
            self.lost: "Tried in vain: {}. Others have written there at every try. Run it again.",
        }
        return [text.format(count) for count, text in said.items() if count]

    def _of_step(self) -> list[str]:
        left, carried = self.states[State.FRESH] + self.states[State.CHANGED], self.states[State.CARRIED]
        if not self.asked.writes and (left or (self.asked.drops and (carried or self.states[State.TOO_LARGE]))):
            return [_DRY]
        if left:
            return [_AGAIN]
        if carried and not self.asked.drops:
            return [_DROP]
        return [] if self.found_something else [_DONE]


_DRY = "Nothing was written. Give --yes to write."
_AGAIN = "Run it again, until it finds nothing to carry and nothing changed."
_DROP = (
    "All that the old attribute holds is in the ledger. Once none of the old consumers runs any more, run it with --drop, which removes "
    "the old attribute."
)
_DONE = "No entity has the old attribute any more. Consumers can do without a look into it."


def _example(state: State, visited: Visit) -> dict[str, Any]:
    plan, found = visited.plan, visited.found
    return {
        "state": state.value,
        "entity": found.name,
        "marks": plan.marks,
        "bytes": {"before": found.size, "after": visited.size},
        "why": plan.why,
    }
