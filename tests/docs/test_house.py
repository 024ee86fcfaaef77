"""How the house is built: what it imports, and what it exports."""

from __future__ import annotations

import ast
import inspect
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
    {"process"},
    {"lean"},
    {"identity"},
    {"stores"},
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


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_imports_point_one_way(path: Path) -> None:
    own = room(module_of(path))
    upwards = [name for name in imports(TREES[path]) if room(name) != own and LEVEL[room(name)] >= LEVEL[own]]
    assert upwards == []


def test_guarded_write_imports_nothing_that_is_built_on_it() -> None:
    write = [path for path in FILES if path.is_relative_to(SOURCE / "core") and "features" not in path.parts]
    assert [(path.stem, name) for path in write for name in imports(TREES[path]) if "core.features" in name] == []


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
