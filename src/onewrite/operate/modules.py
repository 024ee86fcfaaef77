"""Finds what the command line names in the user's modules. To import one, or to call what it names, can fail, and then says so."""

from __future__ import annotations

import importlib
import inspect
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext, redirect_stdout
from operator import attrgetter
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any, TypeVar

from onewrite.batch.handler import handler_of
from onewrite.core.ledgers import Ledger
from onewrite.errors import ConfigurationError
from onewrite.operate.early import EXTRAS
from onewrite.operate.report import OutsideFailure

T = TypeVar("T")

HANDLER = "MODULE:HANDLER"
RELAY = "MODULE:RELAY"
STORE = "MODULE:STORE"
MODULE = "MODULE"
_EXAMPLES = {
    HANDLER: "shop.handlers:ship",
    RELAY: "shop.relays:orders",
    STORE: "shop.stores:orders",
    MODULE: "shop.stores:orders",
}
_LEDGER_OF = attrgetter("_flows.ledger")  # a store has no public name for what only its own flows need


class _NothingThereError(ConfigurationError):
    """What the command line names is not there: the user's code has not failed."""


def find(name: str, form: str = HANDLER, *, quiet: bool = True) -> Any:
    """What `module:name` names, or returns if it is a function without arguments. The module may be in the current directory.

    `form` is what the help calls the argument. `quiet`: what the module prints goes to where errors go, because the verb's output is for
    a program.
    """
    module, _, attribute = name.partition(":")
    if not _is_dotted(module) or not _is_dotted(attribute):
        raise ConfigurationError(
            f"{form}: {name!r} is not of the form {(form if ':' in form else 'MODULE:NAME').lower()}, as {_EXAMPLES[form]} is."
        )
    content = _import(module, form, quiet=quiet)

    def read() -> Any:
        try:
            return attrgetter(attribute)(content)
        except AttributeError as error:
            raise _NothingThereError(f"{form}: the module {module!r} has no {attribute!r}.") from error

    value = _run_users(read, f"{name} cannot be made", quiet=quiet)  # a __getattr__ of the module may make it now
    return _run_users(value, f"{name}() fails", quiet=quiet) if _is_maker(value) else value


def find_module(name: str) -> ModuleType:
    """The module of that name, which may be in the current directory."""
    if not _is_dotted(name):
        raise ConfigurationError(f"{MODULE}: {name!r} is no name of a module, as shop.stores is.")
    return _import(name, MODULE, quiet=True)


def _is_maker(value: object) -> bool:
    """Is it a plain function that needs no argument, and no handler? What it returns is meant then."""
    function = inspect.unwrap(value) if callable(value) else value
    if not isinstance(function, FunctionType | MethodType) or handler_of(value) is not None:
        return False
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        return False
    parameters = inspect.signature(function).parameters.values()
    return all(each.default is not each.empty for each in parameters)  # *arguments would wrap something that needs some


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _import(module: str, form: str, *, quiet: bool) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)

    def import_it() -> ModuleType:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if f"{module}.".startswith(f"{error.name}."):
                text = f"{form}: there is no module {error.name!r} in {folder} or among the installed packages."
                raise _NothingThereError(text) from error
            raise

    return _run_users(import_it, f"The module {module} cannot be imported", quiet=quiet)


def _run_users(act: Callable[[], T], failure: str, *, quiet: bool) -> T:
    """Run code of the user's. What it raises is shown with its traceback, and `failure` says what failed."""
    try:
        with redirect_stdout(sys.stderr) if quiet else nullcontext():
            return act()
    except _NothingThereError:
        raise
    except (Exception, SystemExit) as error:  # a script that exits with 0 when it is imported must not look like a success
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRAS:
            raise  # `main` says what to install
        traceback.print_exception(error)  # the user's own code is to be mended
        fault = f"{type(error).__name__}: {error}".removesuffix(".")
        raise OutsideFailure(f"{failure}: {fault}. Nothing was looked at and nothing was done.") from error


def ledger_of(name: str | None) -> Ledger | None:
    """The ledger that `module:name` names, itself or by the store that has it."""
    if name is None:
        return None
    candidate = find(name, STORE)
    ledger = candidate if hasattr(candidate, "entry") else _LEDGER_OF(candidate) if hasattr(candidate, "_flows") else None
    if ledger is None:
        raise ConfigurationError(f"{name!r} is a {type(candidate).__name__}, and neither a guarded store nor a ledger.")
    return ledger  # type: ignore[no-any-return]  # whatever the module has
