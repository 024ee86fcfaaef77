"""The verbs, as one Typer application. Each verb has its own file, and is added here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand

from onewrite.operate.demo import demo
from onewrite.operate.doctor import doctor
from onewrite.operate.early import EarlySignals
from onewrite.operate.inspect import inspect
from onewrite.operate.migrate import migrate
from onewrite.operate.options import CommandLine, VersionOption
from onewrite.operate.plan import plan
from onewrite.operate.relay import relay
from onewrite.operate.repair import clear, forget, set_mark
from onewrite.operate.report import Exit, Failed, told
from onewrite.operate.steps import steps
from onewrite.operate.strip import strip
from onewrite.operate.worker import worker

_NEGATIVE = re.compile(r"-\d+")


class WithNumbers(TyperCommand):
    """Takes a negative number for a value, and for no option of that name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(_NEGATIVE.fullmatch(each) for each in args)
        return super().parse_args(ctx, args)


# Help and errors without markup look the same on a terminal, in a log and in a pipe.
app = typer.Typer(add_completion=True, no_args_is_help=True, rich_markup_mode=None)
for verb in (demo, worker, relay, steps, migrate, doctor, plan, inspect, clear, strip):
    app.command()(verb)
app.command(cls=WithNumbers)(forget)
app.command(cls=WithNumbers)(set_mark)


@app.callback()
def onewrite(*, version: VersionOption = False) -> None:  # its callback has printed it
    """A message delivered twice takes effect once."""


def run(arguments: Sequence[str], early_signals: EarlySignals) -> int:
    """Run a verb and return the exit code. Typer raises SystemExit at the end, and this returns the code that is in it."""
    command = typer.main.get_command(app)  # Calling `app` itself would replace sys.excepthook.
    code: str | int | None = None
    try:
        command.main(args=list(arguments), prog_name="onewrite", obj=CommandLine(arguments, early_signals))
    except Failed as error:
        code = told(error, Exit.FAILED)
    except SystemExit as end:
        code = end.code
    return int(code) if isinstance(code, int) else int(code is not None)
