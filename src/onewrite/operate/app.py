"""The Typer application. Each verb has its own module and is added here. Usage errors are worded here too."""

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
from onewrite.operate.exits import Exit
from onewrite.operate.inspect import inspect
from onewrite.operate.options import VersionOption
from onewrite.operate.relay import relay
from onewrite.operate.repair import clear, forget, set_mark
from onewrite.operate.report import OutsideFailure, escape, say, say_interrupted
from onewrite.operate.steps import steps
from onewrite.operate.stores import close_clients
from onewrite.operate.worker import worker

# Without markup, help and errors look the same on a terminal, in a log, and in a pipe.
app = typer.Typer(add_completion=True, no_args_is_help=True, rich_markup_mode=None)


class _Verb(TyperCommand):
    """A verb that refuses empty option values, such as "$ID" if ID isn't set.

    An empty value could change what the verb does.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the verb unless an option is empty."""
        for parameter in self.params:
            value: object = ctx.params.get(parameter.name)
            # Typer before 0.28 collects the values of a repeated option in a tuple.
            values = cast("Sequence[object]", value) if isinstance(value, list | tuple) else [value]
            if parameter.default != "" and any(member in ("", Path()) for member in values):
                name, form = _describe_parameter(parameter)
                raise ConfigurationError(f"{name} is empty. Pass {form}.")
        return super().invoke(ctx)


def _read_first_sentence(docstring: str) -> str:
    paragraph = introspection.cleandoc(docstring).partition("\n\n")[0]
    return f"{paragraph.partition('. ')[0].removesuffix('.')}."


for verb in (worker, relay, steps, doctor, inspect, forget, set_mark, clear):
    # The list of verbs would cut off the sentence at the end of the line.
    app.command(cls=_Verb, short_help=_read_first_sentence(verb.__doc__ or ""))(verb)

# The class of all usage errors: click's, or that of the click inside Typer.
_UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
_KINDS = {int: "a whole number", float: "a number", bool: "true or false"}


@app.callback()
def onewrite(*, version: VersionOption = False) -> None:  # the option's callback has printed it
    """A message delivered twice takes effect once."""


def run(arguments: Sequence[str], *, owns_process: bool) -> int:
    """Run a verb and return its exit code."""
    command = typer.main.get_command(app)  # calling `app` itself would replace sys.excepthook
    code: int | None
    try:
        code = command.main(args=list(arguments), prog_name="onewrite", obj=owns_process, standalone_mode=False)
    except _UsageError as error:
        path = "onewrite" if error.ctx is None else error.ctx.command_path
        if not arguments:  # the error is only the help text
            error.show()
            return Exit.REFUSED
        code = say(f"{escape(_describe_misuse(error, arguments))} For usage, run `{path} --help`.", Exit.REFUSED)
    except typer.Abort as abort:
        if isinstance(abort.__context__, KeyboardInterrupt):  # Ctrl-C during the question
            return say_interrupted()
        code = say("The question got no answer, so nothing was done. To skip the question, pass --yes.", Exit.FAILED)
    except OutsideFailure as error:
        code = say(error, Exit.FAILED)
    except OnewriteError as error:
        code = say(error, Exit.REFUSED)
    finally:
        close_clients()
    return int(code or 0)


def _describe_misuse(error: Any, arguments: Sequence[str]) -> str:
    """Return the mistake in the command line and its correction. Only the class of Typer's error is used, not its text."""
    parameter: Any = getattr(error, "param", None)
    match type(error).__name__:
        case "NoSuchOption":
            similar = " or ".join(sorted(error.possibilities or ()))
            return f"{error.option_name} isn't an option of this verb.{f' Did you mean {similar}?' if similar else ''}"
        case "BadOptionUsage":
            if any(argument.startswith(f"{error.option_name}=") for argument in arguments):
                return f"{error.option_name} doesn't take a value. Pass it alone."
            return f"{error.option_name} needs a value after it."
        case "MissingParameter":
            variable = f", or set {parameter.envvar}" if parameter.envvar else ""
            name, form = _describe_parameter(parameter)
            return f"{name} is missing. Pass {form}{variable}."
        case "BadParameter" if parameter is None:  # raised by a verb
            return f"{error.param_hint}: {error.message}"
        case "BadParameter":
            name = parameter.opts[0]
            values = [value for option, value in pairwise(arguments) if option == name]
            values += [argument.partition("=")[2] for argument in arguments if argument.startswith(f"{name}=")]
            # A value that the command line doesn't have comes from the environment.
            origin = parameter.envvar if parameter.envvar and not values else name
            return f"{origin} {' '.join(values) or os.environ.get(origin, '')}: expected {_describe_expected_values(error.ctx, parameter.name)}."
        case _ if error.ctx.parent is None:
            word = next((argument for argument in arguments if not argument.startswith("-")), "")
            return f"{word!r} isn't a verb. The verbs are {', '.join(sorted(error.ctx.command.commands))}."
        case _:
            extra = error.message.partition(" (")[2].removesuffix(")")
            return f"{extra} isn't an argument of this verb. Put an option's value after its name, and quote values with spaces."


def _describe_parameter(parameter: Any) -> tuple[str, str]:
    """Return the name of an option or argument, and how to pass it."""
    option = parameter.opts[0]
    return (option, f"{option} {parameter.metavar or 'VALUE'}") if option.startswith("-") else (parameter.metavar, "it")


def _describe_expected_values(context: Any, name: str) -> str:
    """Return the valid values of an option, from the annotation of the verb's parameter."""
    hint = get_type_hints(introspection.unwrap(context.command.callback), include_extras=True)[name]
    kinds = [hint.__origin__]
    # The annotation can be X | None or list[X].
    while members := [member for kind in kinds for member in get_args(kind) if member is not type(None)]:
        kinds = members
    kind, option = kinds[0], hint.__metadata__[0]
    if issubclass(kind, Enum):
        return f"one of {', '.join([str(member.value) for member in kind])}"
    limits = [f"{word} {limit:g}" for word, limit in (("from", option.min), ("to", option.max)) if limit is not None]
    return " ".join([_KINDS[kind], *limits]) + (" on" if option.min is not None and option.max is None else "")
