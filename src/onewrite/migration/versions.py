"""Plans for an attribute that holds the number of the last message of one source, as the user's own code keeps it.

Until it is carried, a guarded store between the old code and the new has the old condition in its own call, beside
`HighWaterMark`, and sets the old attribute as before. So each looks into both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from onewrite.errors import ConfigurationError, LedgerMismatch
from onewrite.label import Slot, prefix_of
from onewrite.ledgers import HighWaterMark
from onewrite.ledgers.entry import ABSENT, Advance
from onewrite.message import Message
from onewrite.migration.plan import REST, CarryMark, Drop, Fits, Found, Plan, State, check_template, filled, refusing


@dataclass(frozen=True, slots=True)
class Versions:
    """The attribute `name`, or all that begin with it where it ends with a *, to be carried into `ledger`.

    `source` is a template. Where the name ends with a *, {*} in it stands for the rest of an attribute's name.
    """

    name: str
    ledger: HighWaterMark
    source: str
    _prefix: str | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_template(self.source)
        prefix = self.name.removesuffix(REST) if self.name.endswith(REST) else None
        if (f"{{{REST}}}" in self.source) != (prefix is not None):
            raise ConfigurationError("A --version-in that ends with * and a --source with {*} in it go together.")
        if prefix == "":
            raise ConfigurationError("--version-in *: say how the names of the attributes begin.")
        object.__setattr__(self, "_prefix", prefix)

    @property
    def attribute(self) -> str | None:
        return self.name if self._prefix is None else None

    def plan(self, found: Found, now: float, fits: Fits, *, drops: bool) -> Plan:
        """What is to be done with the entity. `drops`: may the old attributes be removed?"""
        plans = [refusing(self._plan_of(name, found, now, fits, drops=drops)) for name in self._names(found)]
        whole = Plan(State.CARRIED)
        for each in plans:
            state = whole.state.or_worse(each.state)
            whole = Plan(state, (*whole.steps, *each.steps), whole.marks + each.marks, whole.why or each.why)
        return whole

    def _names(self, found: Found) -> list[str]:
        if self._prefix is None:
            return [self.name]
        ours = f"{prefix_of(self.ledger.attribute)}@"
        return sorted([name for name in found.held if name.startswith(self._prefix) and not name.startswith(ours)])

    def _plan_of(self, name: str, found: Found, now: float, fits: Fits, *, drops: bool) -> Callable[[], Plan]:
        return partial(self._plan, name, found, now, fits, drops=drops)

    def _plan(self, name: str, found: Found, now: float, fits: Fits, *, drops: bool) -> Plan:
        sequence, read = found.lookup(Slot(name)), found.held[name]
        if type(sequence) is not int and not isinstance(sequence, str):
            raise LedgerMismatch(f"{name!r} holds a {type(read).__name__}, and a mark is an integer or text.")
        source = filled(self.source, found, name[len(self._prefix or "") :])
        message = Message("migrated", source=source, sequence=sequence)
        entry = self.ledger.entry(message, now)
        if entry.judge(message, found.lookup) is not None:
            return Plan(State.CARRIED, (Drop(name, entry, read),) if drops else ())
        step = CarryMark(name, entry, message, read)
        if not fits(found, step):
            return Plan(State.REFUSED, why="The entity would be too large for the database: split it first.")
        marks: Advance = self.ledger.look(message, now)
        return Plan(State.FRESH if found.lookup(marks.slot) is ABSENT else State.CHANGED, (step,), 1)
