"""Where coverage is measured, and where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from onewrite.core.ledgers import marks
from tests.support.measured import forget

TESTS = """
import sys, pytest

def traced(): return sys.gettrace() is not None

@pytest.mark.parametrize("n", range(2))
def test_quick(n): assert traced() == {quick}

@pytest.mark.slow
def test_slow(): assert traced() == {slow}

@pytest.mark.measured
def test_marked(): assert traced() == {marked}
"""
MARKERS = "[pytest]\nmarkers =\n    slow: takes seconds\n    measured: is measured\n"


@pytest.mark.parametrize(
    ("ci", "unit", "engine"),
    [
        ("true", {"quick": True, "slow": False, "marked": True}, {"quick": False, "slow": False, "marked": True}),
        ("", {"quick": True, "slow": True, "marked": True}, {"quick": True, "slow": True, "marked": True}),
    ],
    ids=["in CI", "elsewhere"],
)
@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "1")], ids=["in one process", "in a worker"])
@pytest.mark.slow
def test_in_ci_the_quick_tests_of_units_are_measured_and_those_that_are_marked(
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ci: str,
    unit: dict[str, bool],
    engine: dict[str, bool],
    workers: tuple[str, ...],
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini(MARKERS)
    for room, items in (("core", unit), ("engines", engine)):
        file = pytester.path / room / f"test_{room}.py"
        file.parent.mkdir(parents=True)
        file.write_text(TESTS.format(**items))
    plugins = ["-p", "tests.support.measured", "-p", "pytest_cov", "-p", "no:cacheprovider"]
    pytester.runpytest_subprocess(*plugins, *workers, "--cov", "--cov-report=").assert_outcomes(passed=8)


def test_what_was_computed_before_is_computed_again() -> None:
    before = marks.mark_slot("events", "s", ())
    assert marks.mark_slot("events", "s", ()) is before
    forget()
    assert marks.mark_slot("events", "s", ()) is not before
