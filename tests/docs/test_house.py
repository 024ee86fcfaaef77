"""How the house is built: what it imports, and what it exports."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import onewrite
import onewrite.aws_lambda
import onewrite.brokers
import onewrite.dynamodb
import onewrite.identity
import onewrite.mongodb
import onewrite.outbox
import onewrite.sqs
import onewrite.testing

SOURCE = Path(onewrite.__path__[0])
FILES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text()) for path in FILES}

# Each may import what stands before it. "" is `onewrite` itself, which re-exports what stands before it.
FLOORS = [
    {"errors"},
    {"message"},
    {"outcome"},
    {"core"},
    {""},
    {"lean"},
    {"identity"},
    {"dynamodb", "mongodb"},
    {"metrics"},
    {"batch"},
    {"aws_lambda", "brokers"},
    {"sqs"},
    {"outbox"},
    {"testing"},
    {"operate"},
    {"__main__"},
]
PACKAGES = [
    onewrite,
    onewrite.aws_lambda,
    onewrite.brokers,
    onewrite.dynamodb,
    onewrite.identity,
    onewrite.mongodb,
    onewrite.outbox,
    onewrite.sqs,
    onewrite.testing,
]
LEVEL = {room: level for level, floor in enumerate(FLOORS) for room in floor}


def module_of(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path) for path in FILES}


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports(tree: ast.Module) -> Iterator[str]:
    """The modules of ours that a module imports, inside functions and for types too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "onewrite")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "an import says the whole name"
            if (node.module or "").split(".")[0] == "onewrite":
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield inner if inner in MODULES else str(node.module)


def test_importing_onewrite_does_not_import_drivers_or_tools() -> None:
    program = """
import sys
import onewrite
known = {name.split(".")[0] for name in sys.modules}
print(*sorted(known & {"boto3", "botocore", "aiobotocore", "pymongo", "bson", "mongomock", "moto", "rich", "typer", "click"}))
"""
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})\n{program}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.parametrize(("engine", "other"), [("dynamodb", "pymongo"), ("mongodb", "botocore")])
def test_engine_works_without_the_other_engines_driver(engine: str, other: str) -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r}); import onewrite.{engine}; print({other!r} in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert found == "False\n"


@pytest.mark.parametrize("package", PACKAGES)
def test_exported_names_are_sorted_and_exist(package: object) -> None:
    names: list[str] = vars(package)["__all__"]
    assert names == sorted(names)
    assert [name for name in names if not hasattr(package, name)] == []


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_one_way(path: Path) -> None:
    own = room(module_of(path))
    upwards = [name for name in imports(TREES[path]) if room(name) != own and LEVEL[room(name)] >= LEVEL[own]]
    assert upwards == []


def test_imports_are_not_circular() -> None:
    graph = {module_of(path): set(imports(tree)) - {module_of(path)} for path, tree in TREES.items()}
    assert len(list(TopologicalSorter(graph).static_order())) == len(MODULES)


@pytest.mark.parametrize("package", [onewrite.aws_lambda, onewrite.brokers])
def test_signatures_name_every_option(package: object) -> None:
    """`help()` and editors show the names and defaults, not `**options`."""
    handlers = [getattr(package, name) for name in vars(package)["__all__"] if name.lower().endswith("handler")]
    for handler in handlers:
        parameters = inspect.signature(handler).parameters
        assert {"on_outcome", "log_exceptions", "clock"} <= set(parameters)
        assert all(each.kind is not inspect.Parameter.VAR_KEYWORD for each in parameters.values())


@pytest.mark.parametrize("package", PACKAGES)
def test_exported_classes_and_methods_have_docstrings(package: object) -> None:
    silent = []
    for name in vars(package)["__all__"]:
        exported = getattr(package, name)
        if not inspect.isclass(exported) and not inspect.isfunction(exported):
            continue  # a type alias
        if not inspect.getdoc(exported):
            silent.append(name)
        for method, value in vars(exported).items():
            # `entry` is what the engines ask a ledger for: its protocol speaks for it.
            if inspect.isfunction(value) and not method.startswith("_") and method != "entry" and not value.__doc__:
                silent.append(f"{name}.{method}")
    assert silent == []
