"""The pytest plugin, by running pytest inside pytest."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from typing import TypeAlias

import mongomock  # noqa: F401  # pytester forgets what was first imported inside: a later test would meet all of it twice
import pytest

import onewrite.mongodb
import onewrite.testing.session  # the same
from onewrite import Message, SeenIds
from onewrite.testing.explorer import explore as explore_module
from onewrite.testing.standins.stores import mongomock_collection

Run: TypeAlias = Callable[..., pytest.RunResult]

OURS = "-p", "onewrite.testing.plugin", "-p", "no:cacheprovider"
DRIVERS = "boto3", "botocore", "moto", "mongomock", "pymongo", "aiobotocore"

EXPLORATIONS = """
    import mongomock
    from onewrite import Message, SeenIds
    from onewrite.mongodb import GuardedCollection

    M1, M2 = Message("m1"), Message("m2")

    def guarded(collection):
        customers = GuardedCollection(collection, SeenIds())
        return lambda message: customers.update_one(message, {"_id": "c1"}, {"$inc": {"n": 1}}, upsert=True)

    def careless(customers):
        return lambda message: customers.update_one({"_id": "c1"}, {"$inc": {"n": 1}}, upsert=True)

    def n(customers):
        return customers.find_one({"_id": "c1"})["n"]

    def world():
        return mongomock.MongoClient().shop.customers
"""
RIGHT = f"""
    {EXPLORATIONS}

    def test_right(explore):
        explore(guarded, messages=[M1], world=world, observe=n).assert_effectively_once()
"""
WRONG = f"""
    {EXPLORATIONS}

    def test_wrong(explore):
        explore(careless, messages=[M1], world=world, observe=n).assert_effectively_once()
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest on these tests, with our plugin and no other."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(tests: str, *args: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=tests)
        return pytester.runpytest_inprocess(*OURS, *args)

    return run


def code_in(result: pytest.RunResult) -> str:
    found = re.search(r"--onewrite-replay ([\w.]+)", result.stdout.str())
    assert found is not None
    return found[1]


@pytest.mark.parametrize("module", ["onewrite.testing", "onewrite.testing.plugin"])
def test_unused_plugin_does_not_import_a_driver(module: str) -> None:
    code = f"import {module}, sys; print([name for name in {DRIVERS} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_the_summary_counts_schedules_and_tests(run: Run) -> None:
    result = run(RIGHT + WRONG.replace(EXPLORATIONS, ""))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines([r"onewrite: explored \d+ schedules \(\d+ pruned\) in 2 tests, \d+\.\d s"])


def test_summary_reports_incomplete_explorations(run: Run) -> None:
    result = run(RIGHT.replace("observe=n", "observe=n, schedules=2"), "-W", "default")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            "onewrite: explored 2 schedules (* pruned) in 1 test, *",
            "onewrite: 1 of these explorations found nothing, but stopped before all schedules within bounds were run",
        ]
    )


def test_a_replay_runs_one_schedule_and_fails_again(run: Run) -> None:
    code = code_in(run(WRONG))
    result = run(WRONG, "--onewrite-replay", code)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            f"onewrite: replayed {code} in test_it.py::test_wrong",
            "*m1, delivery 1*m1, delivery 2*",
            "*1*update_one customers c1: applied*",
            "onewrite: explored 1 schedule (0 pruned) in 1 test, *",
        ]
    )


@pytest.mark.parametrize("code", ["1.072f.1a1b.7ca8", "nonsense", ""])
def test_a_mistyped_replay_code_is_refused_before_any_test_runs(run: Run, code: str) -> None:
    result = run(RIGHT, f"--onewrite-replay={code}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"ERROR: --onewrite-replay: '{code}' is*. Copy it whole from the report of a counterexample."]
    )


def test_run_fails_if_replay_code_matches_no_exploration(run: Run) -> None:
    result = run(RIGHT.replace("[M1]", "[M2]"), "--onewrite-replay=1.072f.1a1b.7ca9")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        ["onewrite: nothing was replayed: no exploration in this run has the messages of 1.072f.1a1b.7ca9"]
    )


def test_replay_is_refused_if_tests_run_in_other_processes(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("""
        def pytest_addoption(parser):
            parser.addoption("--numprocesses")  # as pytest-xdist has it
    """)
    result = run(RIGHT, "--onewrite-replay=1.072f.1a1b.7ca9", "--numprocesses=2")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*Omit -n*"])


BLIND = RIGHT.replace("observe=n", "observe=lambda customers: None")
CANCELLING = f"""
    {EXPLORATIONS}

    def up_and_down(collection):
        customers = GuardedCollection(collection, SeenIds())
        step = {{"m1": 1, "m2": -1}}
        return lambda message: customers.update_one(message, {{"_id": "c1"}}, {{"$inc": {{"n": step[message.id]}}}}, upsert=True)

    def filled():
        customers = world()
        customers.insert_one({{"_id": "c1", "n": 0}})
        return customers

    def test_cancelling(explore):
        explore(up_and_down, messages=[M1, M2], world=filled, observe=n).assert_effectively_once()
"""


@pytest.mark.parametrize("options", [(), ("-W", "ignore")], ids=str)
def test_test_with_a_blind_observe_fails(run: Run, options: tuple[str, ...]) -> None:
    result = run(BLIND, *options)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*AssertionError: No counterexample, but:",
            "E*No message changes what observe() sees. It returns None*",
            "E*If you mean that, call assert_effectively_once(accept='unobserved')",
            "onewrite: test_it.py::test_right: [[]unobserved] No message changes what observe() sees*",
        ]
    )


def test_a_doubtful_remark_is_in_the_summary_once(run: Run) -> None:
    twice = CANCELLING + CANCELLING.replace(EXPLORATIONS, "").replace("test_cancelling", "test_again")
    result = run(twice, "-W", "default")
    result.assert_outcomes(passed=2, warnings=2)
    result.stdout.fnmatch_lines(
        [
            "*ExplorationWarning: In the end, observe() returns the same as before the first message*",
            "onewrite: test_it.py::test_cancelling and 1 more: [[]cancelled] In the end, observe() returns the same*",
        ]
    )
    run(CANCELLING, "-W", "error").assert_outcomes(failed=1)
    ignoring = run(CANCELLING, "-W", "error", "-W", "ignore::onewrite.testing.ExplorationWarning")
    ignoring.assert_outcomes(passed=1)


def test_summary_is_printed_if_tests_run_in_other_processes(run: Run) -> None:
    silent = BLIND.replace(".assert_effectively_once()", "").replace("explore(guarded", "assert explore(guarded")
    result = run(silent, "-p", "xdist", "-n", "1")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["onewrite: explored * in 1 test, *", "onewrite: test_it.py::test_right: [[]unobserved] *"])


EXPLORED = "explore(careless, messages=[M1], world=world, observe=n)"


def looking(line: str) -> str:
    return f"""
    {EXPLORATIONS}
    import onewrite.testing

    def test_wrong(explore):
        {line}
"""


@pytest.mark.parametrize(
    "line",
    [
        EXPLORED,
        f"assert {EXPLORED}",
        f"assert {EXPLORED}.nondeterministic is None",
        f"{EXPLORED}.assert_effectively_once",
        f"onewrite.testing.{EXPLORED}",
    ],
)
def test_an_unread_counterexample_fails_the_test(run: Run, line: str) -> None:
    result = run(looking(line))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Not effectively once:*", "*m1, delivery 1*m1, delivery 2"])


def test_test_that_reads_its_counterexample_passes(run: Run) -> None:
    run(looking(f"assert {EXPLORED}.counterexample")).assert_outcomes(passed=1)


def test_the_replay_command_runs_in_the_folder_of_the_run(run: Run, pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]")  # its folder is pytest's rootdir
    pytester.makepyfile(test_it=WRONG)
    folder = pytester.mkdir("folder")
    (pytester.path / "test_it.py").rename(folder / "test_it.py")
    os.chdir(folder)  # pytester goes back at its end
    result = pytester.runpytest_inprocess(*OURS)
    result.stdout.fnmatch_lines(["*replay    pytest test_it.py::test_wrong --onewrite-replay *"])


# --- schedules that failed before ---------------------------------------------------------------------------------------


def test_a_failing_schedule_is_stored_and_tried_first(run: Run, pytester: pytest.Pytester) -> None:
    code = code_in(run(WRONG))
    assert (pytester.path / ".onewrite" / ".gitignore").read_text() == "*\n"
    again = run(WRONG)
    again.assert_outcomes(failed=1)
    assert code_in(again) == code
    again.stdout.fnmatch_lines(["*1 schedule run*", "*This schedule was tried first, because it failed in an earlier run.*"])
    forgetful = run(WRONG, "--onewrite-forget")
    forgetful.stdout.no_fnmatch_line("*tried first*")


def test_a_fixed_handler_is_explored_whole_and_forgotten(run: Run, pytester: pytest.Pytester) -> None:
    run(WRONG)
    fixed = run(WRONG.replace("explore(careless", "explore(guarded"))
    fixed.assert_outcomes(passed=1)
    fixed.stdout.re_match_lines([r"onewrite: explored \d\d+ schedules .*"])
    assert [file.name for file in (pytester.path / ".onewrite").iterdir()] == [".gitignore"]


def test_an_expected_counterexample_is_not_stored(run: Run, pytester: pytest.Pytester) -> None:
    run(looking(f"assert {EXPLORED}.counterexample")).assert_outcomes(passed=1)
    assert not (pytester.path / ".onewrite").exists()


def test_progress_of_a_long_search_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(explore_module, "_SECONDS_SILENT", 0.0)
    message = Message("m1")

    def build(collection: object) -> Callable[[Message], object]:
        customers = onewrite.mongodb.GuardedCollection(collection, SeenIds())
        return lambda message: customers.update_one(message, {"_id": "c1"}, {"$inc": {"n": 1}}, upsert=True)

    arguments = explore_module.Arguments(
        build, [message], mongomock_collection, lambda customers: customers.find_one({"_id": "c1"})
    )
    explore_module.run(arguments, None, lines.append)
    assert re.fullmatch(
        r"onewrite: \d+ schedules run, \d+ steps deep, at most (\d+ days?, )?[\d:]+ left to the limit of 300,000", lines[0]
    )
