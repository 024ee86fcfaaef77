"""The explorations of one pytest run, their summary, and the schedule to replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.deliverables import list_names
from onewrite.testing.explorer.exploration import Exploration, count_in_words
from onewrite.testing.explorer.explore import Arguments, run
from onewrite.testing.explorer.schedule import decode

_MAX_REMARKS = 20


class SessionEntry(NamedTuple):
    """An exploration, with the test that made it."""

    nodeid: str
    exploration: Exploration
    replayed: bool


@dataclass(slots=True)
class Session:
    """The explorations of a run, and the schedule to replay if the command line names one."""

    replay_code: str | None = None
    entries: list[SessionEntry] = field(default_factory=list[SessionEntry])

    def run(self, nodeid: str, arguments: Arguments) -> Exploration:
        """Run an exploration with the test's arguments, or replay the schedule of the command line."""
        replayed = self.replay_code is not None and _fits(self.replay_code, arguments.messages)
        if replayed:
            arguments = replace(arguments, replay=self.replay_code)
        exploration = run(arguments, nodeid)
        self.entries.append(SessionEntry(nodeid, exploration, replayed))
        return exploration

    @property
    def nothing_replayed(self) -> bool:
        """Whether a replay code was given, but matched no exploration."""
        return self.replay_code is not None and not any(entry.replayed for entry in self.entries)

    def summary(self) -> Iterator[str]:
        for nodeid, exploration, replayed in self.entries:
            if replayed:
                yield f"onewrite: replayed {self.replay_code} in {nodeid}\n{exploration}"
        if self.entries:
            yield _format_totals(self.entries)
        incomplete_count = sum(
            exploration.passes and not (exploration.exhausted or exploration.sampled) for _, exploration, _ in self.entries
        )
        if incomplete_count:
            yield (
                f"onewrite: {incomplete_count} of these explorations found nothing, but stopped before all schedules within bounds "
                "were run"
            )
        yield from _list_remarks(self.entries)
        if self.nothing_replayed:
            yield f"onewrite: nothing was replayed: {self.replay_code} fits the messages of no exploration in this run"


def _fits(replay_code: str, messages: Sequence[Any]) -> bool:
    """Whether the replay code names these messages. Explorations of other messages run as usual."""
    try:
        decode(replay_code, list_names(messages))
    except ConfigurationError:
        return False
    return True


def _list_remarks(entries: Sequence[SessionEntry]) -> Iterator[str]:
    """Yield the remarks of the explorations that found nothing wrong, each once."""
    tests: dict[str, list[str]] = {}
    for nodeid, exploration, _ in entries:
        for remark in exploration.open_remarks if exploration.passes else ():
            nodeids = tests.setdefault(f"[{remark.kind}] {remark.text}", [])
            if nodeid not in nodeids:
                nodeids.append(nodeid)
    for text, nodeids in list(tests.items())[:_MAX_REMARKS]:
        others = f" and {len(nodeids) - 1} more" if len(nodeids) > 1 else ""
        yield f"onewrite: {nodeids[0]}{others}: {text}"
    if len(tests) > _MAX_REMARKS:
        yield f"onewrite: and {count_in_words(len(tests) - _MAX_REMARKS, 'more remark')}"


def _format_totals(entries: Sequence[SessionEntry]) -> str:
    schedules = sum(entry.exploration.schedules for entry in entries)
    pruned_schedules = sum(entry.exploration.pruned for entry in entries)
    seconds = sum(entry.exploration.seconds for entry in entries)
    tests = len({entry.nodeid for entry in entries})
    return (
        f"onewrite: explored {count_in_words(schedules, 'schedule')} ({pruned_schedules:,} pruned) in {count_in_words(tests, 'test')}, "
        f"{seconds:.1f} s"
    )
