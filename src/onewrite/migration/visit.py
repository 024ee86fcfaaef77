"""The flow that migrates one entity, on any engine, and the pace of many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from onewrite.errors import OnewriteError
from onewrite.flow import Flow
from onewrite.migration.plan import Drop, Found, Origin, Plan, State, Step, dropped_by

# An entity that others write all the time takes a few tries to drop, and the next run finds what is left.
_TRIES = 8


class Page(NamedTuple):
    """Some entities, and how many were read to find them."""

    entities: list[Found]
    read: int


class Store(Protocol):
    """What a migration asks of an engine. `target` is the client that its flows are run with."""

    target: Any

    # Where to go on after the last page, as JSON.
    @property
    def position(self) -> object: ...

    # How many entities there are to read, as far as the engine knows.
    def total(self) -> Flow[int]: ...

    # The next entities that may have something to carry; None at the end. Those that were deleted are left out.
    def next(self) -> Flow[Page | None]: ...

    # The entity as it is now, or None where it is gone, or has nothing to carry any more.
    def look(self, found: Found) -> Flow[Found | None]: ...

    # Whether the write found the entity as it must be.
    def write(self, found: Found, step: Step) -> Flow[bool]: ...

    # The bytes of the entity after the step.
    def size_after(self, found: Found, step: Step) -> int: ...

    def fits(self, found: Found, step: Step) -> bool: ...


class Visit(NamedTuple):
    """What became of one entity. `size`: its bytes after the steps that were taken, or that would be."""

    found: Found
    plan: Plan
    size: int
    carried: bool = False
    dropped: bool = False
    lost: bool = False  # did others write the entity at every try?


def visit(
    store: Store, origin: Origin, found: Found, clock: Callable[[], float], *, drops: bool, writes: bool
) -> Flow[Visit]:
    """Do with an entity what its plan says, or without `writes` only say it. Nothing is left half done that harms."""
    plan = origin.plan(found, clock(), store.fits, drops=drops)
    visited = _visited(store, found, plan)
    for _ in range(_TRIES if writes else 0):
        written, stopped = yield from _written(store, found, plan)
        carried = visited.carried or any(not isinstance(step, Drop) for step in written)
        dropped = visited.dropped or any(dropped_by(step) is not None for step in written)
        visited = visited._replace(carried=carried, dropped=dropped)
        if stopped is None:
            return visited
        if stopped:
            return visited._replace(plan=Plan(State.REFUSED, why=stopped))
        now: Found | None = yield from store.look(found)
        if now is None:
            return visited
        found, plan = now, origin.plan(now, clock(), store.fits, drops=drops and not carried)
        worse = plan._replace(state=visited.plan.state.or_worse(plan.state))
        visited = _visited(store, found, worse)._replace(carried=carried, dropped=dropped)
    return visited._replace(lost=writes)


def _written(store: Store, found: Found, plan: Plan) -> Flow[tuple[list[Step], str | None]]:
    """The steps that were taken, and what stopped the others: nothing, another writer (""), or a reason to tell."""
    written: list[Step] = []
    for step in plan.steps:
        try:
            if not (yield from store.write(found, step)):
                return written, ""
        except OnewriteError as error:
            return written, str(error)
        written.append(step)
    return written, None


def _visited(store: Store, found: Found, plan: Plan) -> Visit:
    grown = sum([store.size_after(found, step) - found.size for step in plan.steps])
    return Visit(found, plan, found.size + grown)


def pause(written: int, elapsed: float, rate: float) -> float:
    """The seconds to wait so that no more than `rate` entities a second are written."""
    return max(0.0, written / rate - elapsed)
