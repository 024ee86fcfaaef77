"""The `onewrite` command: a file or a folder for each verb, and what verbs share. It needs packages that the library does not need.

- `image.py` is one image of an entity, with everything of ours in it, in no engine's words. `dynamodb.py` and `mongodb.py` make it, scan for it, and write
  only what is still as it was read. `stores.py` makes them from the command line, whose shared options are in `options.py`.
- `report.py` says it: text, JSON, exit codes, and the log of what was done.
- `inspect.py` and `repair.py` (`forget`, `set-mark`, `clear`) look at entities and mend them, by `answers.py` and `changes.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from onewrite.core.extras import find_package
from onewrite.operate.early import AT_ONCE, EXTRAS, INTERRUPTED, EarlySignals, end_at_last, interrupt

_REMEDY = 'pip install "onewrite[cli,aws,mongodb]"'


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, which docs/cli.md explains.

    Without `argv` the command is the whole process, and takes over its signals. A program that calls this with an `argv` of its own
    keeps its signal handlers, except while a worker runs in the main thread.
    """
    early_signals = EarlySignals()
    if argv is not None:
        return _run(argv, early_signals)
    arguments, code = sys.argv[1:], 1
    try:
        early_signals.catch()
        if arguments[:1] not in (["worker"], ["relay"]):
            early_signals.pass_on(interrupt, within=AT_ONCE)
        _make_usable()
        code = _run(arguments, early_signals)
        early_signals.finish(code)
    except KeyboardInterrupt:  # while it starts
        sys.stderr.write("onewrite: Interrupted by a signal.\n")
        code = INTERRUPTED
    finally:
        end_at_last(code)
    return code


def _make_usable() -> None:
    """What is written to a stream that is closed is lost, nobody answers there, and a character that an encoding lacks becomes an escape."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # until the process ends
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: Sequence[str], early_signals: EarlySignals) -> int:
    try:
        from onewrite.operate.app import run  # noqa: PLC0415  # it imports Typer, which may be missing and is slow

        return run(arguments, early_signals)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        sys.stderr.write(f"onewrite: {find_package(error)} is not installed. Run: {_REMEDY}\n")
        return 2
