"""What is marked as slow is left out, and the end of the run says so."""

from __future__ import annotations

import pytest

TESTS = """
import pytest

def test_quick(): ...

@pytest.mark.slow
def test_slow(): ...
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\nmarkers =\n    slow: takes seconds\n")
    pytester.makepyfile(test_one=TESTS, test_other=TESTS)
    return pytester


def outcome(run: pytest.Pytester, *arguments: str) -> tuple[int, bool]:
    """How many tests passed, and whether the end says how many were left out."""
    result = run.runpytest_inprocess("-p", "tests.support.slow", "-p", "no:cacheprovider", *arguments)
    return result.parseoutcomes()["passed"], any("slow tests. `make test SLOW=1`" in line for line in result.outlines)


def test_slow_tests_are_left_out_and_counted_at_the_end(run: pytest.Pytester) -> None:
    assert outcome(run) == (2, True)


def test_they_are_counted_where_other_processes_collect_them(run: pytest.Pytester) -> None:
    assert outcome(run, "-p", "xdist", "-n", "2") == (2, True)


def test_they_run_where_they_are_asked_for(run: pytest.Pytester) -> None:
    assert outcome(run, "--slow") == (4, False)


def test_they_run_in_ci(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert outcome(run) == (4, False)


@pytest.mark.parametrize("named", ["test_one.py", "test_one.py::test_slow"])
def test_they_run_in_a_file_that_is_named(run: pytest.Pytester, named: str) -> None:
    assert outcome(run, named) == (2 if named.endswith(".py") else 1, False)


def test_they_are_left_out_of_a_folder_that_is_named(run: pytest.Pytester) -> None:
    assert outcome(run, str(run.path)) == (2, True)
