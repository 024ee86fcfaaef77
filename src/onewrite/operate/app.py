"""The verbs, as one Typer application. Each verb has its own file, and is added here. What is wrong with a command line is said in our words."""

from __future__ import annotations

import inspect as introspection
import os
from collections.abc import Sequence
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from onewrite.errors import ConfigurationError, OnewriteError
from onewrite.operate.doctor import doctor
from onewrite.operate.early import EarlySignals
from onewrite.operate.inspect import inspect
from onewrite.operate.options import VersionOption
from onewrite.operate.relay import relay
from onewrite.operate.repair import clear, forget, set_mark
from onewrite.operate.report import Exit, OutsideFailure, escape, say, say_interrupted
from onewrite.operate.steps import steps
from onewrite.operate.stores import close_clients
from onewrite.operate.worker import worker

# Help and errors without markup look the same on a terminal, in a log and in a pipe.
app = typer.Typer(add_completion=True, no_args_is_help=True, rich_markup_mode=None)


class _Verb(TyperCommand):
    """Refuses an option that is given as nothing, as "$ID" is where ID is not set. The verb might do what was not asked for."""

    def invoke(self, ctx: Any) -> Any:
        """Do it."""
        for parameter in self.params:
            value: object = ctx.params.get(parameter.name)
            # Typer before 0.28 collects the values of a repeated option in a tuple.
            values = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
            if parameter.default != "" and any(each in ("", Path()) for each in values):
                name, form = _named(parameter)
                raise ConfigurationError(f"{name} is empty: give {form}.")
        return super().invoke(ctx)


def _first_sentence(docstring: str) -> str:
    paragraph = introspection.cleandoc(docstring).partition("\n\n")[0]
    return f"{paragraph.partition('. ')[0].removesuffix('.')}."


for verb in (worker, relay, steps, doctor, inspect, forget, set_mark, clear):
    # The list of verbs would cut the sentence off at the end of the line.
    app.command(cls=_Verb, short_help=_first_sentence(verb.__doc__ or ""))(verb)

# All errors of a command line have this class, which is click's, or that of the click within Typer.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


@app.callback()
def onewrite(*, version: VersionOption = False) -> None:  # its callback has printed it
    """A message delivered twice takes effect once."""


def run(arguments: Sequence[str], early_signals: EarlySignals) -> int:
    """Run a verb and return its exit code."""
    command = typer.main.get_command(app)  # Calling `app` itself would replace sys.excepthook.
    code: int | None
    try:
        code = command.main(args=list(arguments), prog_name="onewrite", obj=early_signals, standalone_mode=False)
    except _UsageError as error:
        path = "onewrite" if error.ctx is None else error.ctx.command_path
        if not arguments:  # all that there is to say is the help
            error.show()
            return Exit.REFUSED
        code = say(f"{escape(_misuse(error, arguments))} `{path} --help` shows what it takes.", Exit.REFUSED)
    except typer.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):  # in the question itself
            return say_interrupted()
        code = say("Nobody answered, and nothing was done. With --yes nobody is asked.", Exit.FAILED)
    except OutsideFailure as error:
        code = say(error, Exit.FAILED)
    except OnewriteError as error:
        code = say(error, Exit.REFUSED)
    finally:
        close_clients()
    return int(code or 0)


def _misuse(error: Any, arguments: Sequence[str]) -> str:
    """What is wrong with the command line, and what to write instead. Only the kind of Typer's error is used, and none of its words."""
    parameter: Any = getattr(error, "param", None)
    match type(error).__name__:
        case "NoSuchOption":
            similar = " or ".join(sorted(error.possibilities or ()))
            return f"{error.option_name} is no option here.{f' Did you mean {similar}?' if similar else ''}"
        case "BadOptionUsage":
            takes = any(argument.startswith(f"{error.option_name}=") for argument in arguments)
            return (
                f"{error.option_name} is a switch: give it without a value."
                if takes
                else f"{error.option_name}: give a value after it."
            )
        case "MissingParameter":
            variable = f", or set {parameter.envvar}" if parameter.envvar else ""
            name, form = _named(parameter)
            return f"{name} is missing: give {form}{variable}."
        case "BadParameter" if parameter is None:  # a verb has raised it
            return f"{error.param_hint}: {error.message}"
        case "BadParameter":
            name = parameter.opts[0]
            values = [value for option, value in pairwise(arguments) if option == name]
            values += [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{name}=")]
            variable = parameter.envvar if parameter.envvar and not values else name
            return f"{variable} {' '.join(values) or os.environ.get(variable, '')}: give {_expected_values(error.ctx, parameter.name)}."
        case _ if error.ctx.parent is None:
            word = next((argument for argument in arguments if not argument.startswith("-")), "")
            return f"{word!r} is no verb. The verbs are {', '.join(sorted(error.ctx.command.commands))}."
        case _:
            extra = error.message.partition(" (")[2].removesuffix(")")
            return f"{extra}: there is nothing that takes this. Give values of options after their names, and quote what has spaces."


def _named(parameter: Any) -> tuple[str, str]:
    """What an option or an argument is called, and what to give for it."""
    option = parameter.opts[0]
    return (option, f"{option} {parameter.metavar or 'VALUE'}") if option.startswith("-") else (parameter.metavar, "it")


def _expected_values(context: Any, name: str) -> str:
    """The values that an option takes, as the annotation of the verb's argument says it."""
    hint = get_type_hints(introspection.unwrap(context.command.callback), include_extras=True)[name]
    kinds = [hint.__origin__]
    while members := [
        member for kind in kinds for member in get_args(kind) if member is not type(None)
    ]:  # X | None, list[X]
        kinds = members
    kind, option = kinds[0], hint.__metadata__[0]
    if issubclass(kind, Enum):
        return f"one of {', '.join([str(member.value) for member in kind])}"
    limits = [f"{word} {limit:g}" for word, limit in (("from", option.min), ("to", option.max)) if limit is not None]
    return " ".join([_KINDS[kind], *limits]) + (" on" if option.min is not None and option.max is None else "")
