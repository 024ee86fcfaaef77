"""Finds what the command line names: a handler, a relay or a store."""

from __future__ import annotations

import importlib
import sys
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

HANDLER = "MODULE:HANDLER"
RELAY = "MODULE:RELAY"
STORE = "MODULE:STORE"
_EXAMPLES = {HANDLER: "shop.handlers:ship", RELAY: "shop.relays:orders", STORE: "shop.stores:orders"}


def find(name: str, form: str = HANDLER) -> Any:
    """What `module:name` names. The module may be in the current directory. `form` is what the help calls the argument."""
    module, _, attribute = name.partition(":")
    if not _is_dotted(module) or not _is_dotted(attribute):
        raise misuse(f"{name!r} is not of the form {form.lower()}, as {_EXAMPLES[form]} is.", form)
    found = _import(module, form)
    try:
        return attrgetter(attribute)(found)
    except AttributeError as error:
        raise misuse(f"the module {module!r} has no {attribute!r}.", form) from error


def find_module(name: str, form: str) -> ModuleType:
    """The module of that name, which may be in the current directory."""
    if not _is_dotted(name):
        raise misuse(f"{name!r} is no name of a module, as shop.handlers is.", form)
    return _import(name, form)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _import(module: str, form: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # The module is there, but a module that it imports is not.
        raise misuse(f"there is no module {error.name!r} in {here} or among the installed packages.", form) from error


def misuse(text: str, form: str) -> typer.BadParameter:
    """What is said of an argument of that form."""
    return typer.BadParameter(text, param_hint=form)
