"""The pytest plugin: stand-ins, engines, and the explorer as fixtures. Each fixture imports its modules when it's first used."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from onewrite.errors import ConfigurationError

if TYPE_CHECKING:
    from onewrite.testing.explorer.explore import Explore
    from onewrite.testing.servers.engines import Dynoxide, Mongod
    from onewrite.testing.session import Session
    from onewrite.testing.standins.stores import MakeCollection, MakeTable
    from onewrite.testing.taps.faults import Faults

_SESSION: pytest.StashKey[Session] = pytest.StashKey()
_WORKER_LINES: pytest.StashKey[list[str]] = pytest.StashKey()
_OUTPUT = "onewrite_summary"  # the key of the summary in the output of a pytest-xdist worker


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("onewrite", "exploring message handlers")
    group.addoption(
        "--onewrite-replay", metavar="CODE", help="run only the schedule of this replay code, which a counterexample shows"
    )
    group.addoption(
        "--onewrite-forget",
        action="store_true",
        help="forget the schedules of earlier failures, which are otherwise tried first",
    )


@pytest.fixture
def moto_table() -> Iterator[MakeTable]:
    """`moto_table("orders", key="orderId")`: an empty table that exists until the test ends."""
    from onewrite.testing.standins.stores import moto_tables

    with moto_tables() as make:
        yield make


@pytest.fixture
def mongomock_collection() -> MakeCollection:
    """`mongomock_collection("orders")`: an empty collection."""
    from onewrite.testing.standins import stores

    return stores.mongomock_collection


@pytest.fixture(scope="session")
def mongod() -> Iterator[Mongod]:
    """Start one MongoDB for the whole run, or skip the test if mongod isn't installed. `mongod.collection("orders")` is empty."""
    from onewrite.testing.servers import engines

    with engines.mongod() as server:
        yield server


@pytest.fixture(scope="session")
def dynoxide() -> Iterator[Dynoxide]:
    """Start one DynamoDB engine for the whole run, or skip the test. `dynoxide.table("orders")` is empty."""
    from onewrite.testing.servers import engines

    with engines.dynoxide() as server:
        yield server


@pytest.fixture
def faults() -> Iterator[Callable[[Any], Faults]]:
    """`faults(store)`: like `onewrite.testing.Faults`. The test fails at its end if a planned fault never occurred."""
    from onewrite.testing.taps.faults import Faults

    all_faults: list[Faults] = []

    def plan(store: Any) -> Faults:
        all_faults.append(Faults(store))
        return all_faults[-1]

    yield plan
    for store_faults in all_faults:
        store_faults.assert_all_used()


@pytest.fixture
def explore(request: pytest.FixtureRequest) -> Explore:
    """`onewrite.testing.explore`, configured by pytest's command-line options."""
    from onewrite.testing.explorer.explore import Explore

    return Explore(partial(_session(request.config).run, _name_from_here(request.node)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:  # noqa: ARG001  # pytest passes it by name
    """Fail a test that never checked the report of an exploration with a finding."""
    _take_unread()
    yield
    for exploration in _take_unread():
        pytest.fail(
            f"{exploration}\n\nThe test didn't check this report. Call report.assert_effectively_once() in the test.",
            pytrace=False,
        )


def _take_unread() -> list[Any]:
    module = sys.modules.get("onewrite.testing.explorer.explore")
    return [] if module is None else module.take_unread()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show an exploration's findings even if the test only has `assert report`."""
    report = yield
    session = item.config.stash.get(_SESSION, None)
    if session is not None and call.when == "call":
        session.note_end(_name_from_here(item), failed=report.failed)
    if session is not None and call.when == "call" and report.failed:
        for entry in session.entries:
            found = entry.exploration.found
            if entry.nodeid == _name_from_here(item) and found is not None and found.reason not in str(report.longrepr):
                report.sections.append(("onewrite", str(entry.exploration)))
    return report


def _name_from_here(item: Any) -> str:
    """Return the test's name with its path from the current folder, where a replay command runs. A nodeid has the path from rootdir."""
    path, separator, names = str(item.nodeid).partition("::")
    return f"{os.path.relpath(item.config.rootpath / path, item.config.invocation_params.dir)}{separator}{names}"


def _session(config: pytest.Config) -> Session:
    from onewrite.testing.session import FailedSchedules, Session

    if _SESSION not in config.stash:
        failed_schedules = FailedSchedules(config.rootpath / ".onewrite")
        if config.getoption("onewrite_forget"):
            failed_schedules.forget()
        config.stash[_SESSION] = Session(failed_schedules, config.getoption("onewrite_replay"), _find_terminal(config))
    return config.stash[_SESSION]


def _find_terminal(config: pytest.Config) -> Callable[[str], None] | None:
    """Return a function that shows a line on the terminal in place of the last one. Return None in CI, and without a terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or not reporter.isatty or "CI" in os.environ:
        return None
    return partial(reporter.rewrite, erase=True)


def pytest_configure(config: pytest.Config) -> None:
    replay_code: str | None = config.getoption("onewrite_replay")
    if replay_code is None:
        return
    from onewrite.testing.explorer.schedule import read

    try:
        read(replay_code)
    except ConfigurationError as error:
        raise pytest.UsageError(f"--onewrite-replay: {error}") from error
    if config.getoption("numprocesses", None):
        raise pytest.UsageError("--onewrite-replay replays in this process. Omit -n.")
    _session(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that was asked to replay a schedule and didn't. Pass a worker's summary to the process that prints it."""
    own_session = session.config.stash.get(_SESSION, None)
    if own_session is None:
        return
    if own_session.nothing_replayed and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_OUTPUT] = [*own_session.summary()]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the summary of a pytest-xdist worker that has ended. A worker that crashed has none."""
    lines = getattr(node, "workeroutput", {}).get(_OUTPUT, ())
    node.config.stash.setdefault(_WORKER_LINES, []).extend(lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    session = config.stash.get(_SESSION, None)
    none: list[str] = []
    for line in config.stash.get(_WORKER_LINES, none) if session is None else session.summary():
        terminalreporter.write_line(line)
