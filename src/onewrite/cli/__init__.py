"""The `onewrite` command. It needs packages that the library itself does not: without them it names the remedy."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_REMEDY = 'pip install "onewrite[cli,testing,dynamodb,mongodb]"'
# The roots of what the extras bring. Any other missing module is somebody else's, and is not hidden behind our remedy.
_EXTRAS = frozenset(
    {"boto3", "botocore", "bson", "mongomock", "moto", "py_partiql_parser", "pymongo", "responses", "rich", "typer"}
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 2 for what cannot be run as it was asked for."""
    try:
        from onewrite.cli.app import run  # noqa: PLC0415  # it imports typer

        return run(sys.argv[1:] if argv is None else argv)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in _EXTRAS:
            raise
        sys.stderr.write(f"onewrite: {missing} is not installed. Run: {_REMEDY}\n")
        return 2
