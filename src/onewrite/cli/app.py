"""The verbs, as one Typer application. Each verb has its own file, and is added here."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from onewrite.cli.command_line import CommandLine, VersionOption
from onewrite.cli.demo.command import demo
from onewrite.cli.doctor.command import doctor
from onewrite.cli.early_signals import EarlySignals
from onewrite.cli.migrating.command import migrate
from onewrite.cli.plan.command import plan
from onewrite.cli.relay import relay
from onewrite.cli.repairs.changing import clear, forget, set_mark
from onewrite.cli.repairs.inspect import inspect
from onewrite.cli.repairs.strip import strip
from onewrite.cli.steps import steps
from onewrite.cli.worker import worker

# Help and errors without markup look the same on a terminal, in a log and in a pipe.
app = typer.Typer(add_completion=False, no_args_is_help=True, rich_markup_mode=None)
app.command()(demo)
app.command()(worker)
app.command()(relay)
app.command()(steps)
app.command()(migrate)
app.command()(doctor)
app.command()(plan)
app.command()(inspect)
app.command()(forget)
app.command()(set_mark)
app.command()(clear)
app.command()(strip)


@app.callback()
def onewrite(*, version: VersionOption = False) -> None:  # its callback has printed it
    """A message delivered twice takes effect once."""


def run(arguments: Sequence[str], early_signals: EarlySignals) -> int:
    """Run a verb and return the exit code. Typer raises SystemExit at the end, and this returns the code that is in it."""
    command = typer.main.get_command(app)  # Calling `app` itself would replace sys.excepthook.
    code: str | int | None = None
    try:
        command.main(args=list(arguments), prog_name="onewrite", obj=CommandLine(arguments, early_signals))
    except SystemExit as end:
        code = end.code
    return code if isinstance(code, int) else int(code is not None)
