"""Of what a test multiplies, a sample runs, and all of it where all is asked for."""

from __future__ import annotations

import pytest

TESTS = """
import pytest

def test_alone(): ...

@pytest.mark.parametrize("case", range(20))
def test_cases(case): ...

@pytest.mark.parametrize("store", ["moto table", "dynoxide table", "mongomock", "mongod"])
@pytest.mark.parametrize("ledger", ["seen", "mark", "numbers"])
@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_product(store, ledger, case): ...

@pytest.mark.few(2)
@pytest.mark.parametrize("case", range(20))
def test_few(case): ...

@pytest.mark.few(1, each="engine")
@pytest.mark.parametrize("engine", ["dynamodb", "mongodb"])
@pytest.mark.parametrize("case", range(5))
def test_few_of_each(engine, case): ...
"""
ALL = 1 + 20 + 36 + 20 + 10


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    file = pytester.mkdir("contract") / "test_one.py"
    file.write_text(TESTS)
    return pytester


def names(run: pytest.Pytester, *arguments: str) -> list[str]:
    plugins = ["-p", "tests.support.slow", "-p", "tests.support.sampling", "-p", "no:cacheprovider"]
    result = run.runpytest_inprocess(*plugins, "-v", *arguments)
    return sorted(line.split(" PASSED")[0] for line in result.outlines if " PASSED" in line)


def test_every_value_is_in_the_sample_and_every_case_on_one_store_of_each_engine(run: pytest.Pytester) -> None:
    sample_names = names(run)
    assert len([name for name in sample_names if "test_alone" in name or "test_cases" in name]) == 21
    cases = [name.partition("[")[2].rstrip("]").split("-") for name in sample_names if "test_product" in name]
    assert {store for *_, store in cases} == {"moto table", "dynoxide table", "mongomock", "mongod"}
    assert len({(case, ledger, store.startswith("mongo")) for case, ledger, store in cases}) == 18
    assert 18 <= len(cases) < 36
    assert sample_names == names(run)


def test_of_cases_that_are_alike_a_few_run(run: pytest.Pytester) -> None:
    sample_names = names(run)
    assert len([name for name in sample_names if "test_few[" in name]) == 2
    assert sorted(name.split("-")[1] for name in sample_names if "test_few_of_each" in name) == ["dynamodb]", "mongodb]"]


def test_a_test_of_the_engines_has_few_cases(run: pytest.Pytester) -> None:
    (run.path / "contract").rename(run.path / "engines")
    sample_names = names(run)
    assert [
        len([name for name in sample_names if f"{test}[" in name]) for test in ("test_cases", "test_product", "test_few")
    ] == [2, 2, 2]


@pytest.mark.parametrize("argument", ["--slow", "contract/test_one.py"])
def test_all_run_where_they_are_asked_for(run: pytest.Pytester, argument: str) -> None:
    assert len(names(run, argument)) == ALL


def test_all_run_in_ci(run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    assert len(names(run)) == ALL
