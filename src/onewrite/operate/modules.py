"""Finds what the command line names in the user's modules. To import one is a step that can fail, and then says so."""

from __future__ import annotations

import importlib
import sys
import traceback
from contextlib import ExitStack, redirect_stdout
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from onewrite.core.ledgers import Ledger
from onewrite.errors import ConfigurationError
from onewrite.operate.early import EXTRAS
from onewrite.operate.report import OutsideFailure

HANDLER = "MODULE:HANDLER"
RELAY = "MODULE:RELAY"
STORE = "MODULE:STORE"
_EXAMPLES = {HANDLER: "shop.handlers:ship", RELAY: "shop.relays:orders", STORE: "shop.stores:orders"}
_LEDGER_OF = attrgetter("_flows.ledger")  # a store has no public name for what only its own flows need


def find(name: str, form: str = HANDLER, *, quiet: bool = True) -> Any:
    """What `module:name` names. The module may be in the current directory. `form` is what the help calls the argument.

    `quiet`: what the module prints goes to where errors go, because the verb's output is for a program.
    """
    module, _, attribute = name.partition(":")
    if not _is_dotted(module) or not _is_dotted(attribute):
        raise ConfigurationError(f"{form}: {name!r} is not of the form {form.lower()}, as {_EXAMPLES[form]} is.")
    content = _import(module, form, quiet=quiet)
    try:
        return attrgetter(attribute)(content)
    except AttributeError as error:
        raise ConfigurationError(f"{form}: the module {module!r} has no {attribute!r}.") from error


def find_module(name: str, form: str) -> ModuleType:
    """The module of that name, which may be in the current directory."""
    if not _is_dotted(name):
        raise ConfigurationError(f"{form}: {name!r} is no name of a module, as shop.handlers is.")
    return _import(name, form, quiet=True)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _import(module: str, form: str, *, quiet: bool) -> ModuleType:
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with ExitStack() as stack:
            if quiet:
                stack.enter_context(redirect_stdout(sys.stderr))
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            raise ConfigurationError(
                f"{form}: there is no module {error.name!r} in {folder} or among the installed packages."
            ) from error
        if (error.name or "").partition(".")[0] in EXTRAS:
            raise  # `main` says what to install
        failure: BaseException = error  # the module is there, but a module that it imports is not
    except (Exception, SystemExit) as error:
        failure = error
    traceback.print_exception(failure)  # the user's own code is to be mended
    fault = (
        f"it ended the process ({failure.code!r})"
        if isinstance(failure, SystemExit)
        else f"{type(failure).__name__}: {failure}"
    )
    raise OutsideFailure(
        f"The module {module} cannot be imported: {fault}. Nothing was looked at and nothing was done."
    ) from failure


def ledger_of(name: str | None) -> Ledger | None:
    """The ledger that `module:name` names, itself or by the store that has it."""
    if name is None:
        return None
    candidate = find(name, STORE)
    ledger = candidate if hasattr(candidate, "entry") else _LEDGER_OF(candidate) if hasattr(candidate, "_flows") else None
    if ledger is None:
        raise ConfigurationError(f"{name!r} is a {type(candidate).__name__}, and neither a guarded store nor a ledger.")
    return ledger  # type: ignore[no-any-return]  # whatever the module has
