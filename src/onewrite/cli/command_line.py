"""What verbs are told beside their own options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, TypeAlias

import typer

from onewrite.cli.early_signals import EarlySignals


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The whole command line, and the signals that came before there was something to stop."""

    arguments: Sequence[str]
    early_signals: EarlySignals


def _show_version(wanted: bool) -> None:  # noqa: FBT001  # Typer calls it
    if wanted:
        typer.echo(f"onewrite {version('onewrite')}")
        raise typer.Exit


VersionOption: TypeAlias = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]
