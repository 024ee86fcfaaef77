"""Finds the handler that the command line names."""

from __future__ import annotations

import importlib
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

HANDLER = "MODULE:HANDLER"


def find(name: str) -> Any:
    """The handler that `module:handler` names. The module may be in the current directory."""
    module, _, handler = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *handler.split("."))):
        raise _misuse(f"{name!r} is not of the form module:handler, as shop.handlers:ship is.")
    found = _import(module)
    try:
        return attrgetter(handler)(found)
    except AttributeError as error:
        raise _misuse(f"the module {module!r} has no {handler!r}.") from error


def _import(module: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # The module is there, but a module that it imports is not.
        raise _misuse(f"there is no module {error.name!r} in {here} or among the installed packages.") from error


def _misuse(text: str) -> typer.BadParameter:
    return typer.BadParameter(text, param_hint=HANDLER)
