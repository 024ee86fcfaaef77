"""Functions that find the objects that the command line names in the user's modules."""

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
from typing import Any, TypeVar, cast

from onewrite.batch.handler import find_handler
from onewrite.core.ledgers import Ledger
from onewrite.errors import ConfigurationError
from onewrite.operate.exits import EXTRAS
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
_GET_LEDGER = attrgetter("_flows.ledger")  # a store keeps its ledger to its own flows


class _NothingThereError(ConfigurationError):
    """The named module or attribute doesn't exist. The user's code hasn't failed."""


def find(name: str, form: str = HANDLER, *, quiet: bool = True) -> Any:
    """Return the object that `module:name` names, or its result if it is a function without arguments.

    The module can be in the current directory. `form` is the argument's name in the help. `quiet` sends the module's output to
    stderr, because programs read the command's stdout.
    """
    module, _, attribute = name.partition(":")
    if not _is_dotted(module) or not _is_dotted(attribute):
        raise ConfigurationError(
            f"{form}: expected {(form if ':' in form else 'MODULE:NAME').lower()}, for example {_EXAMPLES[form]}, got "
            f"{name!r}."
        )
    content = _import(module, form, quiet=quiet)

    def read() -> Any:
        try:
            return attrgetter(attribute)(content)
        except AttributeError as error:
            raise _NothingThereError(f"{form}: the module {module!r} has no {attribute!r}.") from error

    value = _run_users(read, f"{name} can't be created", quiet=quiet)  # a module's __getattr__ can create it now
    return _run_users(value, f"{name}() fails", quiet=quiet) if _is_maker(value) else value


def find_module(name: str) -> ModuleType:
    """Return the module of this name, which can be in the current directory."""
    if not _is_dotted(name):
        raise ConfigurationError(f"{MODULE}: expected a module's name, for example shop.stores, got {name!r}.")
    return _import(name, MODULE, quiet=True)


def _is_maker(value: object) -> bool:
    """Whether this is a plain function without required arguments, and not a handler. Then its result is used."""
    function = inspect.unwrap(value) if callable(value) else value
    if not isinstance(function, FunctionType | MethodType) or find_handler(value) is not None:
        return False
    if any(
        is_kind(function)
        for is_kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    ):
        return False
    # `*arguments` doesn't have a default either, because a wrapper that accepts any arguments might need some.
    parameters = inspect.signature(function).parameters.values()
    return all(parameter.default is not parameter.empty for parameter in parameters)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _import(module: str, form: str, *, quiet: bool) -> ModuleType:
    """Import the user's module, which can be in the current directory."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)

    def import_module() -> ModuleType:
        try:
            return importlib.import_module(module)
        except ModuleNotFoundError as error:
            if f"{module}.".startswith(f"{error.name}."):
                raise _NothingThereError(
                    f"{form}: the module {error.name!r} is neither in {folder} nor installed. Run the command in the module's "
                    "directory, or install it."
                ) from error
            raise

    return _run_users(import_module, f"The module {module} can't be imported", quiet=quiet)


def _run_users(act: Callable[[], T], failure: str, *, quiet: bool) -> T:
    """Run the user's code.

    If it fails, print its exception with the traceback, and raise OutsideFailure with `failure` as the description.
    """
    try:
        with redirect_stdout(sys.stderr) if quiet else nullcontext():
            return act()
    except _NothingThereError:
        raise
    except (Exception, SystemExit) as error:  # a script that exits with 0 on import must not look like a success
        if isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] in EXTRAS:
            raise  # `main` names the package to install
        traceback.print_exception(error)  # for the user, who must fix the module
        fault = f"{type(error).__name__}: {error}".removesuffix(".")
        raise OutsideFailure(
            f"{failure}: {fault}. Nothing was read or written. Fix the module and repeat the command."
        ) from error


def find_ledger(name: str | None) -> Ledger | None:
    """Return the ledger that `module:name` names, directly or by its store."""
    if name is None:
        return None
    candidate = find(name, STORE)
    if hasattr(candidate, "entry"):
        return cast("Ledger", candidate)
    if hasattr(candidate, "_flows"):
        return cast("Ledger", _GET_LEDGER(candidate))
    raise ConfigurationError(f"{name!r}: expected a guarded store or a ledger, got a {type(candidate).__name__}.")
