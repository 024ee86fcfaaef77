"""`slow` marks what takes seconds by its nature, and is left out where somebody waits for the tests to end.

It runs in CI, with `--slow`, and in a file or a test that is named on the command line. The end of a run says if they may have been left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.support.ci import in_ci


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the slow tests too, as in CI")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _runs_all(config):
        return
    named_paths = set(named_files(config.args, config.invocation_params.dir))
    left_out = {item for item in items if item.get_closest_marker("slow") is not None and item.path not in named_paths}
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]


def _runs_all(config: pytest.Config) -> bool:
    return in_ci() or bool(config.getoption("--slow"))


def named_files(arguments: Sequence[str], start: Path) -> Iterator[Path]:
    """The files among the arguments: with `::` after it, one names a test within a file."""
    for argument in arguments:
        path = (start / argument.partition("::")[0]).resolve()
        if path.is_file():
            yield path


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not _runs_all(config):
        terminalreporter.line(
            "Slow tests were left out unless you named their file. `make test SLOW=1` and `pytest --slow` run them too."
        )
