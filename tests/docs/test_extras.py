"""Without the packages of an extra: what does without them works, and what needs them names the extra."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import onewrite
from onewrite.process.extras import name_extra

SOURCE = Path(onewrite.__path__[0]).parent

BLOCKED = """
import json, sys

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.path.insert(0, {source!r})
sys.meta_path.insert(0, Refusing())
try:
    {statement}
except ImportError as error:
    print(json.dumps([type(error).__name__, error.name, str(error), error.__suppress_context__]))
else:
    print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}} & set({blocked!r}))))
"""
ON_AWS, ON_MONGODB = ("boto3", "botocore", "aiobotocore"), ("pymongo", "bson")
TOOLS = ("mongomock", "moto", "opentelemetry")


def without(blocked: tuple[str, ...], statement: str) -> Any:
    """What a new process says that has none of these packages."""
    program = BLOCKED.format(blocked=blocked, source=str(SOURCE), statement=statement)
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return json.loads(found.stdout)


@pytest.mark.parametrize(
    ("module", "blocked", "missing", "package", "extra"),
    [
        ("dynamodb", ("boto3",), "boto3", "boto3", "dynamodb"),
        ("dynamodb", ("boto3", "botocore"), "boto3", "boto3", "dynamodb"),
        ("mongodb", ("pymongo", "bson"), "bson", "pymongo", "mongodb"),
        ("mongodb", ("pymongo",), "pymongo", "pymongo", "mongodb"),
        ("sqs", ("boto3", "botocore"), "botocore", "botocore", "aws"),
    ],
)
def test_missing_driver_is_an_import_error_naming_the_extra(
    module: str, blocked: tuple[str, ...], missing: str, package: str, extra: str
) -> None:
    kind, name, text, hides_the_cause = without(blocked, f"import onewrite.{module}")
    assert kind == "ModuleNotFoundError"
    assert name.partition(".")[0] == missing
    assert text == f'onewrite.{module} needs {package}, which is not installed: pip install "onewrite[{extra}]"'
    assert hides_the_cause


@pytest.mark.parametrize(
    ("module", "blocked"),
    [
        *[
            (f"onewrite{name}", (*ON_AWS, *ON_MONGODB, *TOOLS))
            for name in ("", ".identity", ".aws_lambda", ".metrics", ".outbox", ".operate.app")
        ],
        ("onewrite.dynamodb", ON_MONGODB),
        ("onewrite.mongodb", ON_AWS),
    ],
)
def test_module_imports_only_the_packages_it_needs(module: str, blocked: tuple[str, ...]) -> None:
    assert without(blocked, f"import {module}") == []


def test_failed_import_of_another_module_is_raised_unchanged() -> None:
    theirs = ModuleNotFoundError("No module named 'shop'", name="shop")
    with pytest.raises(ModuleNotFoundError) as caught, name_extra("mongodb", "onewrite.mongodb"):
        raise theirs
    assert caught.value is theirs


def test_version_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert onewrite.__version__ == project["version"]


def test_package_lacks_other_attributes() -> None:
    with pytest.raises(AttributeError, match="module 'onewrite' has no attribute 'version'"):
        onewrite.version  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]  # noqa: B018
