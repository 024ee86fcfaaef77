"""The explorations of one pytest run, their summary, and the schedule to replay."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from onewrite.errors import ConfigurationError
from onewrite.testing.explorer.deliverables import list_names
from onewrite.testing.explorer.exploration import Exploration, count_in_words
from onewrite.testing.explorer.explore import Arguments, run
from onewrite.testing.explorer.remarks import NOTE, Remark
from onewrite.testing.explorer.schedule import decode

_MAX_REMARKS = 20
_TRIED_FIRST = Remark(
    NOTE,
    "This schedule was tried first, because it failed in an earlier run. If it passes, all others are run. pytest --onewrite-forget forgets it.",
)


class SessionEntry(NamedTuple):
    """An exploration, with the test that made it."""

    nodeid: str
    exploration: Exploration
    replayed: bool


class FailedSchedules:
    """The replay codes of the tests that failed, in a folder with a file for each test. A folder that can't be written stores nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, nodeid: str) -> list[str]:
        """Return the codes of a test."""
        with suppress(OSError):
            return self._find_file(nodeid).read_text(encoding="utf-8").split()
        return []

    def write(self, nodeid: str, codes: Sequence[str]) -> None:
        """Store the codes of a test, or forget it if there are none."""
        with suppress(OSError):
            if not codes:
                self._find_file(nodeid).unlink(missing_ok=True)
                return
            self._folder.mkdir(exist_ok=True)
            (self._folder / ".gitignore").write_text("*\n", encoding="utf-8")
            self._find_file(nodeid).write_text("\n".join(codes), encoding="utf-8")

    def forget(self) -> None:
        with suppress(OSError):
            for file in self._folder.glob("*.codes"):
                file.unlink()

    def _find_file(self, nodeid: str) -> Path:
        return self._folder / f"{blake2b(nodeid.encode(), digest_size=8).hexdigest()}.codes"


@dataclass(slots=True)
class Session:
    """The explorations of a run, and the schedule to replay if the command line names one."""

    failed_schedules: FailedSchedules
    replay_code: str | None = None
    show: Callable[[str], None] | None = None  # shows the progress of an exploration
    entries: list[SessionEntry] = field(default_factory=list[SessionEntry])

    def run(self, nodeid: str, arguments: Arguments) -> Exploration:
        """Run an exploration with the test's arguments, or replay the schedule of the command line, or one that has failed before."""
        replayed = self.replay_code is not None and _fits(self.replay_code, arguments.messages)
        if replayed:
            arguments = replace(arguments, replay=self.replay_code)
        exploration = self._run_failed(nodeid, arguments)
        if exploration is None:
            exploration = run(arguments, nodeid, self.show)
        self.entries.append(SessionEntry(nodeid, exploration, replayed))
        return exploration

    def _run_failed(self, nodeid: str, arguments: Arguments) -> Exploration | None:
        """Run the schedules that have failed in the test before, and return the first exploration that fails again."""
        codes = self.failed_schedules.read(nodeid) if arguments.replay is None else []
        for code in codes:
            if _fits(code, arguments.messages):
                exploration = run(replace(arguments, replay=code), nodeid)
                if exploration.found is not None:
                    return replace(exploration, remarks=(*exploration.remarks, _TRIED_FIRST))
        return None

    def note_end(self, nodeid: str, *, failed: bool) -> None:
        """Store the counterexamples of a failed test. Forget those of a test that passes."""
        found = [entry.exploration.found for entry in self.entries if entry.nodeid == nodeid]
        if found and self.replay_code is None:
            self.failed_schedules.write(nodeid, [each.replay_code for each in found if each is not None] if failed else [])

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
            yield f"onewrite: nothing was replayed: no exploration in this run has the messages of {self.replay_code}"


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
