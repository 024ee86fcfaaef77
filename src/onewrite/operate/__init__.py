"""The `onewrite` command: a module or package for each verb, and what the verbs share.

The command needs packages that the library doesn't.

- `image.py` is an engine-neutral image of an entity. `dynamodb.py` and `mongodb.py` read it, scan for it, and write only if
  the entity is unchanged. `stores.py` creates them from the command line, whose shared options are in `options.py`.
- `report.py` prints text or JSON, chooses the exit code, and logs what was done.
- `inspect.py` and `repair.py` (`forget`, `set-mark`, `clear`) show and repair entities, with `answers.py` and `changes.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from onewrite.core.extras import find_package
from onewrite.operate.early import AT_ONCE, EXTRAS, EarlySignals, Exit, end_at_last, interrupt

_REMEDY = 'pip install "onewrite[cli,aws,mongodb]"'


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. docs/cli.md lists the codes.

    Without `argv`, the command owns the process and handles its signals. A program that passes its own `argv` keeps its
    signal handlers, except while a worker runs in the main thread.
    """
    early_signals = EarlySignals()
    if argv is not None:
        return _run(argv, early_signals)
    arguments = sys.argv[1:]
    code: int = Exit.FAILED
    try:
        early_signals.catch()
        if arguments[:1] not in (["worker"], ["relay"]):
            early_signals.pass_on(interrupt, within=AT_ONCE)
        _make_usable()
        code = _run(arguments, early_signals)
        early_signals.finish(code)
    except KeyboardInterrupt:  # a signal during startup
        sys.stderr.write("onewrite: Interrupted by a signal. Nothing was done.\n")
        code = Exit.INTERRUPTED
    finally:
        end_at_last(code)
    # If an interrupt met an `exec`, as in the import of a dataclass, `python -m` would end by SIGINT instead of with the code.
    # CPython forgets that interrupt at the next `exec`.
    exec("")  # noqa: S102
    return code


def _make_usable() -> None:
    """Make the standard streams usable. A closed stream discards output and has no input.

    Characters outside a stream's encoding become escapes.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115  # until the process ends
        elif isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _run(arguments: Sequence[str], early_signals: EarlySignals) -> int:
    try:
        from onewrite.operate.app import run

        return run(arguments, early_signals)
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in EXTRAS:
            raise
        sys.stderr.write(f"onewrite: {find_package(error)} is not installed. Run: {_REMEDY}\n")
        return Exit.REFUSED
