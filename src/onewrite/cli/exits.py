"""How a verb ends: with an exit code, and where it cannot go on, with a sentence that says why."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

import typer

from onewrite.errors import OnewriteError


def end(act: Callable[[], int], failure: str = "The database or the network fails") -> NoReturn:
    """Do it, and end with its exit code: 2 where it cannot be done as asked, and 1 where something fails."""
    try:
        code = act()
    except OnewriteError as error:
        code = told(error, 2)
    except (ModuleNotFoundError, typer.Exit, typer.BadParameter):
        raise  # `main` says what to install, and Typer what is misspelt
    except Exception as error:
        code = told(f"{failure}: {type(error).__name__}: {error}", 1)
    raise typer.Exit(code)


def told(error: object, code: int) -> int:
    sys.stderr.write(f"onewrite: {error}\n")
    return code
