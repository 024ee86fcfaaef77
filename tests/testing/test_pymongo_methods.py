"""Every public method of pymongo is known to the taps, and answered or refused by the stand-in."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import pytest
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase
from pymongo.collection import Collection
from pymongo.cursor import Cursor
from pymongo.database import Database
from pymongo.operations import IndexModel

from onewrite import ConfigurationError
from onewrite.testing import UnsupportedByStandIn
from onewrite.testing.standins.collection import ARGUMENTS, ATTRIBUTES, DATABASE_ARGUMENTS
from onewrite.testing.standins.stores import mongomock_collection
from onewrite.testing.taps import mongodb_methods as methods
from onewrite.testing.taps.tap import tap


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.fixture
def orders() -> Any:
    return mongomock_collection("orders")


@pytest.fixture
def tapped(orders: Any) -> Any:
    return tap(orders, lambda request: pytest.fail(f"{request} was sent"))


# ---------------------------------------------------------------- the tap


@pytest.mark.parametrize(
    ("kind", "path"), [(Collection, ()), (AsyncCollection, ()), (Database, ("database",)), (AsyncDatabase, ("database",))]
)
def test_tap_refuses_each_unknown_method(tapped: Any, kind: type[Any], path: tuple[str, ...]) -> None:
    known = methods.DATABASE_READS | methods.DATABASE_SILENT if path else methods.READS | methods.WRITES | methods.SILENT
    for name in sorted(public(kind) - known):
        with pytest.raises(ConfigurationError, match=f"^{name} can't be tapped"):
            getattr(tapped.database if path else tapped, name)("anything")


# ---------------------------------------------------------------- the stand-in


@pytest.mark.parametrize(("kind", "answered"), [(Collection, ARGUMENTS), (Database, DATABASE_ARGUMENTS)])
def test_stand_in_refuses_methods_unsupported_by_mongomock(orders: Any, kind: type[Any], answered: Any) -> None:
    for name in sorted(public(kind) - set(answered) - ATTRIBUTES):
        with pytest.raises(
            UnsupportedByStandIn, match=rf"^mongomock doesn't support {name}\. Run this test on mongod\(\)\.$"
        ):
            getattr(orders if kind is Collection else orders.database, name)()


def parameters(kind: type[Any], method: str) -> Mapping[str, inspect.Parameter]:
    finds = method in ("find", "find_one")
    return inspect.signature(Cursor if finds else getattr(kind, method)).parameters


IGNORED = [
    (method, name)
    for method, answered in ARGUMENTS.items()
    for name, parameter in parameters(Collection, method).items()
    if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name not in {"self", "collection", *answered}
]
WITHOUT_EFFECT = {
    "allow_disk_use",
    "allow_partial_results",
    "batch_size",
    "bypass_document_validation",
    "comment",
    "max_time_ms",
    "no_cursor_timeout",
    "oplog_replay",
}


def test_arguments_ignored_by_mongomock_are_refused(orders: Any) -> None:
    for method, argument in [one for one in IGNORED if one[1] not in WITHOUT_EFFECT]:
        given = {name: {"x": 1} for name in methods.list_required_names(method)}
        with pytest.raises(UnsupportedByStandIn, match=f"^mongomock's {method} ignores {argument}, and MongoDB doesn't"):
            getattr(orders, method)(**given, **{argument: {"x": 1}})


def test_several_indexes_can_be_created_at_once(orders: Any) -> None:
    assert orders.create_indexes([IndexModel("a", unique=True), IndexModel([("b", 1)], name="b")]) == ["a_1", "b"]
    assert orders.index_information()["a_1"]["unique"]
    with pytest.raises(UnsupportedByStandIn, match="create_index ignores collation"):
        orders.create_indexes([IndexModel("c", collation={"locale": "en"})])


def test_stand_in_database_supports_common_pymongo_methods(orders: Any) -> None:
    database = orders.database
    assert database.command("ping") == {"ok": 1}
    assert database.command({"buildInfo": 1})["version"]
    assert database.list_collection_names(nameOnly=True) == []
    with pytest.raises(UnsupportedByStandIn, match="databases ignore options"):
        database.with_options(write_concern=1)
    with pytest.raises(UnsupportedByStandIn, match="command"):
        database.command("serverStatus")


def test_stand_in_client_refuses_sessions(orders: Any) -> None:
    client = orders.database.client
    assert type(client.other.things) is type(orders)
    client.other.things.insert_one({"_id": 1})
    assert client.list_database_names() == ["other"]
    with pytest.raises(UnsupportedByStandIn, match="no sessions"):
        client.start_session()
