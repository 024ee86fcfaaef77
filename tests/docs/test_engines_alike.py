"""What both engines offer has the same name and the same options, and the table in the reference explains every difference."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import pytest

from onewrite import dynamodb, mongodb
from onewrite.dynamodb import AsyncGuardedTable, GuardedTable
from onewrite.mongodb import AsyncGuardedCollection, GuardedCollection

REFERENCE = Path(__file__).parents[2] / "docs" / "reference.md"
# What names the entity, or is written to it: each engine has its own words, and its own native arguments.
OF_THE_ENGINE = {"self", "table", "collection", "filter", "update", "document", "item", "native"}
OWN_OPTIONS = {"missing_ok", "upsert"}  # among the native arguments: ours, and MongoDB's way to say whether to create


class Row(NamedTuple):
    what: str
    dynamodb: tuple[str, ...]
    mongodb: tuple[str, ...]
    why: str


def rows() -> list[Row]:
    text = REFERENCE.read_text(encoding="utf-8").split("## The two engines side by side")[1].split("\n## ")[0]
    lines = [[cell.strip() for cell in re.split(r"\|", line)[1:-1]] for line in text.splitlines() if line.startswith("|")]
    return [Row(what, _names(one), _names(other), why) for what, one, other, why in lines[2:]]


def _names(cell: str) -> tuple[str, ...]:
    return tuple(re.findall(r"`([^`]+)`", cell))


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


def test_the_table_names_all_that_each_engine_offers_and_nothing_else() -> None:
    for store, module in ((GuardedTable, dynamodb), (GuardedCollection, mongodb)):
        column = [name for row in rows() for name in getattr(row, module.__name__.rpartition(".")[2])]
        assert sorted(column) == sorted(offered(store, module))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_a_row_explains_its_difference_or_has_none(row: Row) -> None:
    assert bool(row.why) == (row.dynamodb != row.mongodb)


ALIKE = sorted({name for row in rows() for name in set(row.dynamodb) & set(row.mongodb)})


@pytest.mark.parametrize("name", [name for name in ALIKE if not name.endswith("=")])
def test_what_both_engines_offer_takes_the_same_options(name: str) -> None:
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
    [("update_item", "update_one"), ("put_item", "insert_one"), ("delete_item", "delete_one"), ("putting", "inserting"),
     ("update_item", "find_one_and_update"), ("delete_item", "find_one_and_delete"), ("get_item", "find_one")],
)  # fmt: skip
def test_what_goes_by_two_names_takes_the_same_options(ours: str, others: str) -> None:
    assert options(getattr(GuardedTable, ours)) == options(getattr(GuardedCollection, others))


@pytest.mark.parametrize(
    ("blocking", "later"), [(GuardedTable, AsyncGuardedTable), (GuardedCollection, AsyncGuardedCollection)]
)
def test_an_asynchronous_store_offers_what_the_blocking_one_does(blocking: Any, later: Any) -> None:
    assert {name for name in dir(blocking) if name[0] != "_"} == {name for name in dir(later) if name[0] != "_"}
    for name in dir(blocking):
        if name[0] != "_" and inspect.isfunction(getattr(blocking, name)):
            assert options(getattr(blocking, name)) == options(getattr(later, name))
    without = {name for name, *_ in options(blocking.__init__)} - {name for name, *_ in options(later.__init__)}
    assert without <= {"lean"}
