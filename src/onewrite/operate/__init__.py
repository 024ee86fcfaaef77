"""The `onewrite` command, with a module or package for each verb.

- `image.py` is an engine-neutral image of an entity. `dynamodb.py` and `mongodb.py` read it, scan for it, and write only if
  the entity is unchanged. `stores.py` creates them from the command line, whose shared options are in `options.py`.
- `report.py` prints text or JSON, chooses the exit code, and logs changes.
- `inspect.py` and `repair.py` (`forget`, `set-mark`, `clear`) show and repair entities, with `predictions.py` and `changes.py`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from onewrite.operate.exits import EXTRAS, Exit, end_at_last, interrupt_process
from onewrite.process.extras import find_package
from onewrite.process.stopping import STOP_SIGNALS, handle_stop_signals, undo_in_children


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. docs/cli.md lists the codes.

    Without `argv`, the command owns the process: SIGTERM or Ctrl-C ends it at once, except while a worker, a relay, or a write
    is in progress. A program that passes its own `argv` keeps its signal handlers at all other times.
    """
    if argv is not None:
        return _run(argv, owns_process=False)
    code: int = Exit.FAILED
    try:
        with undo_in_children(handle_stop_signals(interrupt_process)):
            _make_usable()
            code = _run(sys.argv[1:], owns_process=True)
    finally:
        # The command is done, and a signal no longer changes its result. The interpreter resets every other handler as it ends.
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        end_at_last(code)
    return code


def _make_usable() -> None:
    """Make the standard streams usable, even if they are closed. Characters outside a stream's encoding become escapes."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # until the process ends
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: Sequence[str], *, owns_process: bool) -> int:
    try:
        from onewrite.operate.app import run

        return run(arguments, owns_process=owns_process)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        package = find_package(error)
        extra = "mongodb" if package == "pymongo" else "aws"
        sys.stderr.write(f'onewrite: {package} is not installed. Run: pip install "onewrite[{extra}]"\n')
        return Exit.REFUSED
