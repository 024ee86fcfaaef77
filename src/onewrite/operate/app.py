"""The verbs, each in its own module, which is imported only if the verb runs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

import onewrite
from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.operate.exits import Exit
from onewrite.operate.options import VerbParser
from onewrite.operate.report import OutsideFailure, say
from onewrite.operate.stores import close_clients


class _Verb(NamedTuple):
    """A verb. Its module has two functions: `add_options(parser)`, and `run(options)`, which returns the exit code."""

    module: str
    summary: str
    details: str


_VERBS = {
    "worker": _Verb(
        "worker",
        "Run a handler that is decorated with @sqs_handler on the messages of a queue, and delete the settled messages.",
        "After SIGTERM or Ctrl-C it finishes the messages in progress and stops. After a second signal it stops at once.",
    ),
    "relay": _Verb(
        "relay",
        "Publish the events that a store's writes emit, until SIGTERM or Ctrl-C.",
        "Then it finishes the work in progress. --once ends with exit code 1 if something failed, and with 5 if an event is "
        "still pending or an outbox can't be read. --stuck ends with 5 if it lists anything.",
    ),
    "effects": _Verb(
        "effects",
        "List open effects, which were begun and not finished, with the oldest first.",
        "This reads the whole store. The exit code is 5 if it lists an effect, or finds a damaged one.",
    ),
    "doctor": _Verb(
        "doctor",
        "Find problems of a queue, a function, a table or collection, and guarded stores.",
        "This only reads. The exit code is 0 if nothing was found, 5 if an error or a warning was found, and 1 if something "
        "can't be read. Notices and missing permissions count only with --strict. Findings of --accept never count.",
    ),
    "inspect": _Verb(
        "inspect",
        "Show the ledgers of an entity with their IDs and marks, its pending events, open effects, tombstone, and their sizes.",
        "With --message, also show the outcome of a delivery of that message, and the reason. This only reads. The exit code "
        "is 3 if the entity doesn't exist.",
    ),
    "forget": _Verb(
        "repair", "Forget one message, which then takes effect again.", "This shows the request, and writes only with --yes."
    ),
    "set-mark": _Verb(
        "repair", "Move a source's mark.", "This shows which sequences it affects, and writes only with --yes."
    ),
    "clear": _Verb(
        "repair",
        "Empty a ledger of an entity.",
        "This shows which messages would take effect again, and writes only with --yes.",
    ),
}


class _CommandParser(ArgumentParser):
    """The parser of a command line that doesn't begin with a verb."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"{message}. For usage, run `onewrite --help`.")


def run(arguments: Sequence[str], *, owns_process: bool) -> int:
    """Run a verb and return its exit code."""
    try:
        if not arguments:
            _make_command_parser().print_help(sys.stderr)
            return Exit.REFUSED
        verb = _VERBS.get(arguments[0])
        if verb is None:
            _make_command_parser().parse_args(arguments)
            raise ConfigurationError("The command line doesn't begin with a verb. For usage, run `onewrite --help`.")
        parser = VerbParser(arguments[0], f"{verb.summary} {verb.details}")
        module: Any = import_module(f"onewrite.operate.{verb.module}")
        module.add_options(parser)
        options = {**parser.read(arguments[1:]), "verb": arguments[0], "owns_process": owns_process}
        code: int = module.run(options)
    except SystemExit as end:  # the parser has printed the help or the version
        code = int(end.code or 0)
    except OutsideFailure as error:
        code = say(error, Exit.FAILED)
    except OnewriteError as error:
        code = say(error, Exit.REFUSED)
    finally:
        close_clients()
    return code


def _make_command_parser() -> ArgumentParser:
    parser = _CommandParser(prog="onewrite", description="A message delivered twice takes effect once.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"onewrite {onewrite.__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB")
    for name, verb in _VERBS.items():
        verbs.add_parser(name, help=verb.summary)
    return parser
