"""Both engines offer the same names with the same options, and a table explains each difference."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from onewrite import dynamodb, mongodb
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection

PAGE = Path(__file__).parents[2] / "docs" / "dynamodb.md"
# What names the entity, or is written to it: each engine has its own words, and its own native arguments.
OF_THE_ENGINE = {"self", "table", "collection", "filter", "update", "document", "item", "native"}
OWN_OPTIONS = {
    "missing_ok",
    "rejected_ok",
    "upsert",
}  # among the native arguments: ours, and MongoDB's way to say whether to create


def differences() -> tuple[set[str], set[str]]:
    """Return the names in the two columns of the page's table."""
    table = PAGE.read_text(encoding="utf-8").split("## Differences from the MongoDB store")[1]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")][2:]
    dynamodb_names, mongodb_names = (
        {name for row in rows for name in re.findall(r"`([^`]+)`", row[column])} for column in (0, 1)
    )
    return dynamodb_names, mongodb_names


def options(function: Any) -> list[tuple[str, Any, Any]]:
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters if each.name not in OF_THE_ENGINE]


def offered(store: type, module: Any) -> set[str]:
    """All that a user of an engine names: methods, exports and options."""
    methods = {name for name in dir(store) if not name.startswith("_")}
    made_with = {f"{name}=" for name, *_ in options(store.__init__) if name != "ledger"}  # type: ignore[misc]  # of a class
    native = {
        f"{name}="
        for each in vars(__import__(f"{module.__name__}.native", fromlist=["native"])).values()
        if inspect.isclass(each) and each.__module__.endswith(".native") and hasattr(each, "__required_keys__")
        for name in OWN_OPTIONS & get_type_hints(each).keys()
    }
    return methods | set(module.__all__) | made_with | native


OFFERED = offered(GuardedTable, dynamodb), offered(GuardedCollection, mongodb)
ALIKE = sorted(OFFERED[0] & OFFERED[1])


def test_page_lists_each_difference_between_the_engines() -> None:
    assert differences() == (OFFERED[0] - OFFERED[1], OFFERED[1] - OFFERED[0])


@pytest.mark.parametrize("name", [name for name in ALIKE if not name.endswith("=")])
def test_shared_methods_of_the_engines_have_the_same_options(name: str) -> None:
    ours: Any = getattr(GuardedTable, name, None)
    others: Any = getattr(GuardedCollection, name, None)
    if ours is None:
        ours, others = getattr(dynamodb, name), getattr(mongodb, name)
    if inspect.isfunction(ours):
        assert options(ours) == options(others)
        told = [inspect.signature(each).return_annotation for each in (ours, others)]
        assert told[0] == told[1]


@pytest.mark.parametrize(
    ("ours", "others"),
    [("update_item", "update_one"), ("put_item", "insert_one"), ("delete_item", "delete_one"),
     ("update_item", "find_one_and_update"), ("delete_item", "find_one_and_delete"), ("get_item", "find_one")],
)  # fmt: skip
def test_differently_named_counterparts_have_the_same_options(ours: str, others: str) -> None:
    assert options(getattr(GuardedTable, ours)) == options(getattr(GuardedCollection, others))


@pytest.mark.parametrize(
    ("blocking", "later"), [(GuardedTable, AsyncGuardedTable), (GuardedCollection, AsyncGuardedCollection)]
)
def test_asynchronous_store_has_the_methods_of_the_blocking_store(blocking: Any, later: Any) -> None:
    assert {name for name in dir(blocking) if name[0] != "_"} == {name for name in dir(later) if name[0] != "_"}
    for name in dir(blocking):
        if name[0] != "_" and inspect.isfunction(getattr(blocking, name)):
            assert options(getattr(blocking, name)) == options(getattr(later, name))
    without = {name for name, *_ in options(blocking.__init__)} - {name for name, *_ in options(later.__init__)}
    assert without == ({"lean"} if blocking is GuardedTable else set())
