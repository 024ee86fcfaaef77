"""The plugin's stand-ins and servers as fixtures, by running pytest inside pytest."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import boto3
import pytest

import onewrite.testing.servers.engines
import onewrite.testing.standins.stores
from onewrite.testing.standins.stores import MakeCollection, MakeTable

# A pytest inside this process forgets what it was the first to import: drivers with types of their own would be there twice.
NAMES = "pymongo", "botocore.exceptions", "onewrite.testing.servers.engines", "onewrite.testing.standins.collection"
DRIVERS = [import_module(name) for name in NAMES]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], pytest.RunResult]:
    """Run pytest on these tests, with our plugin and no other, and no engine anywhere."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr("onewrite.testing.servers.process.MONGOD_PACKAGES", ())
    monkeypatch.setenv("PATH", "")
    for name in ("ONEWRITE_MONGOD", "ONEWRITE_DYNOXIDE", "ONEWRITE_DYNAMODB_LOCAL"):
        monkeypatch.delenv(name, raising=False)

    def run(tests: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=tests)
        return pytester.runpytest_inprocess("-p", "onewrite.testing.plugin", "-p", "no:cacheprovider", "-rs")

    return run


def tables() -> list[str]:
    client = boto3.client("dynamodb")  # it needs no settings
    names = client.list_tables()["TableNames"]
    client.close()
    return sorted(names)


def test_table_created_again_is_empty(moto_table: MakeTable) -> None:
    assert tables() == []
    table = moto_table("orders", key="orderId")
    table.put_item(Item={"orderId": "o-1"})
    moto_table("lines", "id")
    assert tables() == ["lines", "orders"]
    assert moto_table("orders").scan()["Count"] == table.scan()["Count"] == 0


@pytest.mark.parametrize("by", ["fixture", "function"])
def test_tables_and_collections_work_without_a_with_block(
    by: str, moto_table: MakeTable, mongomock_collection: MakeCollection
) -> None:
    make_table = moto_table if by == "fixture" else onewrite.testing.moto_table
    make_collection = mongomock_collection if by == "fixture" else onewrite.testing.mongomock_collection
    table = make_table("by-hand", "id", sort_key="line", types={"line": "N"})
    table.put_item(Item={"id": "a", "line": 1})
    assert table.scan()["Count"] == 1
    with make_table("in-a-block", "id") as other:
        assert other.name == "in-a-block"
        assert tables() == ["by-hand", "in-a-block"]
    assert tables() == ["by-hand"]
    with table:
        assert table.scan()["Count"] == 1
    assert tables() == []
    for asynchronous in (False, True):
        collection = make_collection("orders", asynchronous=asynchronous)
        with collection as same, make_collection("orders") as another:
            assert same is collection
            assert collection.name == another.name == "orders"


def test_unused_fault_fails_the_test_on_teardown(run: Callable[[str], pytest.RunResult]) -> None:
    result = run("""
        import pytest
        from onewrite.testing import Crash

        def test_met(faults, mongomock_collection):
            orders = faults(mongomock_collection())
            orders.crash_after(1)
            with pytest.raises(Crash):
                orders.store.insert_one({"_id": 1})

        def test_not_met(faults, mongomock_collection):
            faults(mongomock_collection()).crash_before(1)
    """)
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*No request met these planned faults: crash_before(1)*"])


def test_missing_engine_skips_the_test_and_names_the_remedy(run: Callable[[str], pytest.RunResult]) -> None:
    result = run("""
        import unittest
        import onewrite.testing

        def test_mongod(mongod): ...
        def test_dynoxide(dynoxide): ...
        def test_by_hand():
            with onewrite.testing.mongod(): ...

        class TestOfUnittest(unittest.TestCase):
            def test_it(self):
                with onewrite.testing.dynoxide(): ...
    """)
    result.assert_outcomes(skipped=4)
    found = ("*mongod was not found*pip install*ONEWRITE_MONGOD*", "*dynoxide was not found*npm install*ONEWRITE_DYNOXIDE*")
    result.stdout.fnmatch_lines_random(found)


def test_engine_starts_once_for_all_tests(run: Callable[[str], pytest.RunResult], monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[str] = []
    monkeypatch.setattr("onewrite.testing.servers.process._is_program", lambda _: True)
    monkeypatch.setattr("onewrite.testing.servers.process.ServerProcess.start", lambda server: starts.append(server.name))
    for name in ("MONGOD", "DYNOXIDE"):
        monkeypatch.setenv(f"ONEWRITE_{name}", "a-program")
    result = run("""
        def test_one(mongod, dynoxide): ...
        def test_two(mongod, dynoxide): ...
    """)
    result.assert_outcomes(passed=2)
    assert starts == ["mongod", "dynoxide"]
