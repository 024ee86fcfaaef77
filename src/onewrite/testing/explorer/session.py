"""What a run of pytest asks of the explorer, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.exploration import Report
from onewrite.testing.explorer.explore import Explorer
from onewrite.testing.explorer.replay import decode
from onewrite.testing.explorer.trial import names_of


class Explored(NamedTuple):
    """An exploration that a test has made."""

    nodeid: str
    report: Report
    replayed: bool


@dataclass(slots=True)
class Session:
    """What the command line says, and all explorations."""

    schedules: int | None = None
    token: str | None = None
    explored: list[Explored] = field(default_factory=list[Explored])

    @property
    def nothing_replayed(self) -> bool:
        return self.token is not None and not any(one.replayed for one in self.explored)

    def summary(self) -> Iterator[str]:
        for nodeid, report, replayed in self.explored:
            if replayed:
                yield f"onewrite: replayed {self.token} in {nodeid}\n{report}"
        if self.explored:
            yield _totals(self.explored)
        unfinished = sum(_is_unfinished(one) for one in self.explored)
        if unfinished:
            yield f"onewrite: {unfinished} of these explorations found nothing, but stopped before all schedules within bounds were run"
        if self.nothing_replayed:
            yield f"onewrite: nothing was replayed: {self.token} fits the messages of no exploration in this run"


class Explore:
    """`onewrite.testing.explore`, obeying the command line."""

    def __init__(self, session: Session, nodeid: str) -> None:
        self._session = session
        self._nodeid = nodeid
        self._explorer = Explorer(nodeid=nodeid)

    def __call__(self, build: Any, messages: Sequence[Any], world: Any, observe: Any, **bounds: Any) -> Report:
        """Run every schedule within the bounds, until one ends wrongly."""
        bounds |= {"build": build, "messages": messages, "world": world, "observe": observe}
        return self._run(self._explorer, bounds)

    def random(self, build: Any, messages: Sequence[Any], world: Any, observe: Any, **bounds: Any) -> Report:
        """Run schedules drawn at random, the same ones for the same seed."""
        bounds |= {"build": build, "messages": messages, "world": world, "observe": observe}
        return self._run(self._explorer.random, bounds)

    def _run(self, explore: Callable[..., Report], arguments: dict[str, Any]) -> Report:
        session = self._session
        replayed = session.token is not None and _fits(session.token, arguments["messages"])
        if replayed:
            arguments["replay"] = session.token
        if session.schedules is not None:
            arguments["schedules"] = session.schedules
        report = explore(**arguments)
        session.explored.append(Explored(self._nodeid, report, replayed))
        # Who asks for one schedule, or for fewer, knows that these are not all, and needs no warning.
        return replace(report, sampled=True) if replayed or session.schedules is not None else report


def _fits(token: str, messages: Sequence[Any]) -> bool:
    """A test may make several explorations: those of other messages than the token's are made as usual."""
    try:
        decode(token, names_of(messages))
    except ConfigurationError:
        return False
    return True


def _is_unfinished(explored: Explored) -> bool:
    _, report, replayed = explored
    return report.ok and not (report.exhausted or report.sampled or replayed)


def _totals(explored: Sequence[Explored]) -> str:
    schedules = sum(one.report.schedules for one in explored)
    pruned = sum(one.report.pruned for one in explored)
    seconds = sum(one.report.seconds for one in explored)
    tests = len({one.nodeid for one in explored})
    return f"onewrite: explored {schedules:,} schedule{_s(schedules)} ({pruned:,} pruned) in {tests} test{_s(tests)}, {seconds:.1f} s"


def _s(number: int) -> str:
    return "" if number == 1 else "s"
