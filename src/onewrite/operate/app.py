"""The verbs, as one Typer application. Each verb has its own file, and is added here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import Any, get_args, get_type_hints

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
    """Run a verb and return the exit code."""
    command = typer.main.get_command(app)  # Calling `app` itself would replace sys.excepthook.
    line = CommandLine(arguments, early_signals)
    try:
        code: int | None = command.main(args=list(arguments), prog_name="onewrite", obj=line, standalone_mode=False)
    except Failed as error:
        return told(error, Exit.FAILED)
    except typer.Abort:
        return told("Stopped.", Exit.FAILED)
    except SystemExit as ended:
        return int(ended.code) if isinstance(ended.code, int) else int(ended.code is not None)
    except Misuse as error:
        misuse: Any = error
        if not arguments:  # it holds the help
            misuse.show()
            return Exit.REFUSED
        return told(in_our_words(misuse, [*arguments]), Exit.REFUSED)
    return code or 0


Misuse: type[Exception] = typer.BadParameter.__bases__[
    0
]  # Typer has no public name for what all misspelt command lines raise


def in_our_words(error: Any, arguments: list[str]) -> str:
    """What is wrong with the command line, and what to do. Typer's own words depend on its version, and on what it is built with."""
    functions = [info.callback for info in app.registered_commands if info.callback is not None]
    verbs = {function.__name__.replace("_", "-"): function for function in functions}
    verb = arguments[0] if arguments and arguments[0] in verbs else ""
    called, see = verb or "onewrite", f"`{f'onewrite {verb}'.strip()} --help` shows what it takes."
    hints = get_type_hints(verbs[verb], include_extras=True) if verb else {}
    param: Any = getattr(error, "param", None)
    match type(error).__name__:
        case "NoSuchOption":
            likely = f" Did you mean {' or '.join(error.possibilities)}?" if error.possibilities else ""
            return f"{called} has no option {error.option_name}.{likely} {see}"
        case "BadOptionUsage":
            is_switch = any(each.startswith(f"{error.option_name}=") for each in arguments)
            return f"{error.option_name} {'takes no value' if is_switch else 'needs a value behind it'}. {see}"
        case "MissingParameter":
            named = f"{param.opts[0]} {param.metavar}" if param.param_type_name == "option" else param.metavar
            return f"{called} needs {named}: {param.help} {see}"
        case "BadParameter" if param is None:  # one of ours
            return f"{error.param_hint}: {error.message}"
        case "BadParameter":
            return f"{param.opts[0]} takes {_values_of(hints[param.name])}. {see}"
        case _ if verb or (arguments and arguments[0].startswith("-")):
            return f"{called} takes no more arguments: {error.message.rpartition('(')[2].rstrip(')')}. {see}"
        case _:
            return f"There is no verb {arguments[0]!r}: give one of {', '.join(verbs)}."


def _values_of(annotated: Any) -> str:
    """Which values an option takes, by its type and its bounds."""
    kind, option = annotated.__origin__, annotated.__metadata__[0]
    kinds = [each for each in (get_args(kind) or (kind,)) if each is not type(None)]
    if issubclass(kinds[0], Enum):
        return f"one of {', '.join([str(each.value) for each in kinds[0]])}"
    number = "a whole number" if kinds[0] is int else "a number"
    if option.max is not None:
        return f"{number} from {option.min} to {option.max:g}"
    return number if option.min is None else f"{number} from {option.min} on"
