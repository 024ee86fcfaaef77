"""`slow` marks what takes seconds by its nature, and is left out where somebody waits for the tests to end.

It runs in CI, with `--slow`, and in a file or a test that is named on the command line. The end of a run says how many were left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.ci import in_ci

_LEFT_OUT: pytest.StashKey[set[str]] = pytest.StashKey()
_WORKERS_NAME = "onewrite_slow_left_out"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too, as in CI")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_LEFT_OUT] = set()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if in_ci() or config.getoption("--slow"):
        return
    named_paths = set(named_files(config.args, config.invocation_params.dir))
    left_out = [item for item in items if item.get_closest_marker("slow") is not None and item.path not in named_paths]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        names = config.stash[_LEFT_OUT]
        names.update(item.nodeid for item in left_out)
        items[:] = [item for item in items if item.nodeid not in names]


def named_files(arguments: Sequence[str], start: Path) -> Iterator[Path]:
    """The files among the arguments: with `::` after it, one names a test within a file."""
    for argument in arguments:
        path = (start / argument.partition("::")[0]).resolve()
        if path.is_file():
            yield path


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Each worker of pytest-xdist collects all tests, and the process that prints the summary collects none."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    left_out = session.config.stash[_LEFT_OUT]
    if output is not None:
        output[_WORKERS_NAME] = sorted(left_out)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[_LEFT_OUT].update(getattr(node, "workeroutput", {}).get(_WORKERS_NAME, ()))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if count := len(config.stash[_LEFT_OUT]):
        terminalreporter.section("left out")
        terminalreporter.line(
            f"{count} slow tests. `make test SLOW=1` and `pytest --slow` run them too, and so does CI=true."
        )
