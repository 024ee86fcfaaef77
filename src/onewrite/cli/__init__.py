"""The `onewrite` command. It needs packages that the library does not need, and says how to install them if they are missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from onewrite.cli.early_signals import EarlySignals
from onewrite.extras import package_of

_REMEDY = 'pip install "onewrite[cli,testing,dynamodb,mongodb]"'
_OF_STORES = 'pip install "onewrite[cli,aws,mongodb]"'
_VERBS_OF_STORES = (
    *("worker", "relay", "steps", "migrate", "doctor", "plan"),
    *("inspect", "forget", "set-mark", "clear", "strip"),
)
_OF_THE_PAGE = 'pip install "onewrite[plan,aws,mongodb]"'
_REMEDIES: dict[str, str] = dict.fromkeys(_VERBS_OF_STORES, _OF_STORES)
# The top-level modules that the extras install. If another module is missing, our remedy would not help, so the error is raised.
_EXTRAS = frozenset(
    {
        "boto3",
        "botocore",
        "bson",
        "jmespath",
        "mongomock",
        "moto",
        "plotly",
        "py_partiql_parser",
        "pymongo",
        "responses",
        "rich",
        "typer",
    }
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, which is 2 for what cannot be run as it was asked for.

    Without `argv` the command is the whole process, and the verbs `worker` and `relay` take over its signals. A program that calls this
    with an `argv` of its own keeps its signal handlers, except while a worker runs in the main thread.
    """
    arguments = sys.argv[1:] if argv is None else argv
    early_signals = EarlySignals()
    if argv is None and arguments[:1] in (["worker"], ["relay"]):
        early_signals.catch()
    try:
        from onewrite.cli.app import run  # noqa: PLC0415  # it imports Typer, which may be missing and is slow

        return run(arguments, early_signals)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        remedy = _OF_THE_PAGE if missing == "plotly" else _REMEDIES.get(arguments[0], _REMEDY) if arguments else _REMEDY
        sys.stderr.write(f"onewrite: {package_of(error)} is not installed. Run: {remedy}\n")
        return 2
