"""What the stand-ins and taps touch inside other packages is listed, and is looked at before a test relies on it."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import botocore.endpoint
import mongomock.collection
import moto.dynamodb.responses
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from pymongo.server_description import ServerDescription

import onewrite.testing
from onewrite.testing import UnsupportedByStandIn, mongomock_collection, moto_table, seams
from onewrite.testing.taps.tap import tap

PACKAGES = (seams.MONGOMOCK, seams.MOTO, seams.BOTOCORE, seams.BOTO3, seams.AIOBOTOCORE, seams.PYMONGO)
ROOT = Path(__file__).parents[2]
ROOMS = Path(onewrite.testing.__path__[0])
# Attributes that a constructor sets: the class does not show them. Without them a test fails where they are used.
SET_BY_CONSTRUCTORS = {"_endpoint", "_request_signer", "_credentials", "_emitter", "_unique_id_handlers"}


@pytest.fixture
def anew() -> Iterator[None]:
    """A package is looked at once a process: here it is looked at again, and again after the test."""
    seams.check.cache_clear()
    yield
    seams.check.cache_clear()


@pytest.mark.usefixtures("anew")
@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_the_installed_version_of_each_package_fits(package: seams.Package) -> None:
    seams.check(package)


@pytest.mark.usefixtures("anew")
def test_a_name_that_is_missing_in_mongomock_is_said_when_a_collection_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(mongomock.collection.Collection, "_iter_documents")
    with pytest.raises(UnsupportedByStandIn) as refused, mongomock_collection():
        pytest.fail("never reached")
    assert str(refused.value) == (
        f"mongomock {version('mongomock')} is not as onewrite.testing needs it: mongomock.collection.Collection._iter_documents is "
        "missing. mongomock>=4.3,<4.4 is known to fit: install that, or run this test on mongod()."
    )


@pytest.mark.usefixtures("anew")
def test_a_method_of_moto_with_other_parameters_is_said_when_a_table_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moto.dynamodb.responses.DynamoHandler, "call_action", lambda self, request=None: None)
    changed = r"^moto .*DynamoHandler\.call_action takes \(self, request=\), and should take \(self\)\. moto>=5"
    with pytest.raises(UnsupportedByStandIn, match=changed), moto_table():
        pytest.fail("never reached")


@pytest.mark.usefixtures("anew")
def test_a_module_that_is_missing_is_said_before_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "moto.dynamodb.comparisons", None)
    with (
        pytest.raises(UnsupportedByStandIn, match=r"moto\.dynamodb\.comparisons\.OpEqual\.__init__ is missing"),
        moto_table(),
    ):
        pytest.fail("never reached")


def _changed_attempt(self: object, request: object) -> None: ...


@pytest.mark.usefixtures("anew")
def test_a_driver_that_does_not_fit_a_tap_is_said_when_it_is_tapped(monkeypatch: pytest.MonkeyPatch) -> None:
    collection = mongomock_collection()
    monkeypatch.delattr(ServerDescription, "retryable_writes_supported")
    with pytest.raises(
        UnsupportedByStandIn, match=r"^pymongo .*retryable_writes_supported is missing.*or leave out the tap\."
    ):
        tap(collection, print)
    with moto_table() as table:
        monkeypatch.setattr(botocore.endpoint.Endpoint, "_do_get_response", _changed_attempt)
        with pytest.raises(
            UnsupportedByStandIn, match=r"^botocore .*_do_get_response takes \(self, request\), and should take"
        ):
            tap(table, print)


OF_TESTING = [(seams.MONGOMOCK, "testing"), (seams.MOTO, "testing")]
OF_STORES = [(seams.BOTO3, "dynamodb"), (seams.AIOBOTOCORE, "async"), (seams.PYMONGO, "mongodb")]


@pytest.mark.parametrize(("package", "extra"), [*OF_TESTING, *OF_STORES])
def test_the_versions_that_fit_are_those_that_the_extras_install(package: seams.Package, extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements = map(Requirement, project["project"]["optional-dependencies"][extra])
    assert [one.specifier for one in requirements if one.name == package.name] == [SpecifierSet(package.fits)]


def _foreign_private_names() -> set[str]:
    """The private attributes in the two rooms that no code there defines, or that are taken of `super()`."""
    trees = [ast.parse(path.read_text()) for room in ("standins", "taps") for path in (ROOMS / room).rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and re.match("_[^_]", node.attr)]
    own = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    own |= {ast.unparse(node.target) for node in nodes if isinstance(node, ast.AnnAssign)}
    own |= {node.attr for node in attributes if isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"}
    return {node.attr for node in attributes if node.attr not in own or ast.unparse(node.value) == "super()"}


def test_every_private_name_of_another_package_that_is_used_is_listed() -> None:
    listed = {word for package in PACKAGES for seam in package.seams for word in re.findall(r"\w+", seam)}
    names = _foreign_private_names()
    assert {"_make_api_call", "_do_get_response", "_update", "_db_store"} <= names
    assert names - listed == SET_BY_CONSTRUCTORS
