"""The parser of a verb's command line, whose options can come from the environment too, and the options of several verbs."""

from __future__ import annotations

import os
from argparse import SUPPRESS, Action, ArgumentError, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias

from onewrite.errors import ConfigurationError
from onewrite.message import Message, printable

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter


# The values by their options' names. "given" has the names of the options on the command line itself.
Options: TypeAlias = Mapping[str, Any]


_MAX_ERROR = 4096  # characters, which can include a value of the command line


class _Option(NamedTuple):
    label: str  # for an error, for example --queue-url
    variable: str | None  # the environment variable that can set it
    default: object
    is_required: bool
    takes: str  # "value", "values", or "nothing"


class _Store(Action):
    """Stores a value, or adds it to the values of an option that repeats. Refuses a second value, or an equal one."""

    def __init__(self, *, repeats: bool = False, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._repeats = repeats

    def __call__(
        self, parser: ArgumentParser, namespace: Namespace, values: object, option_string: str | None = None
    ) -> None:
        del parser, option_string
        earlier_values: list[object] = getattr(namespace, self.dest, []) if self._repeats else []
        if values in earlier_values:
            raise ArgumentError(self, f"pass {values} once")
        if not self._repeats and hasattr(namespace, self.dest):
            raise ArgumentError(self, "pass it once")
        value = True if self.nargs == 0 else values
        setattr(namespace, self.dest, [*earlier_values, value] if self._repeats else value)


class VerbParser(ArgumentParser):
    """The parser of one verb. A value comes from the command line, else from the environment, and else is the default.

    An option can be passed once, and its value can begin with a dash.
    """

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(
            prog=f"onewrite {verb}", description=description, allow_abbrev=False, argument_default=SUPPRESS, usage=None
        )
        self.verb = verb
        self._prefix = f"ONEWRITE_{verb}_".upper().replace("-", "_")
        self._options: dict[str, _Option] = {}

    def add_position(
        self, name: str, metavar: str, text: str, *, variable: str | None = None, is_required: bool = False
    ) -> None:
        """Add the verb's only argument without a name."""
        self._options[name] = _Option(metavar, variable, None, is_required, "value")
        self.add_argument(name, metavar=metavar, nargs="?", type=read_text, help=_describe(text, variable, None))

    def add_value(
        self,
        flag: str,
        text: str,
        *,
        metavar: str,
        variable: str | bool = False,
        default: object = None,
        kind: Callable[[str], object] | None = None,
        choices: Sequence[str] | None = None,
        is_required: bool = False,
        repeats: bool = False,
    ) -> None:
        """Add an option with a value. A `variable` of True is its usual name, for example ONEWRITE_WORKER_QUEUE_URL."""
        variable_name = self._name_variable(flag) if variable is True else variable or None
        name = _read_name(flag)
        self._options[name] = _Option(flag, variable_name, default, is_required, "values" if repeats else "value")
        self.add_argument(
            flag,
            action=_Store,
            repeats=repeats,
            type=kind or read_text,
            choices=choices,
            metavar=metavar,
            help=_describe(text, variable_name, default),
        )

    def add_flag(self, flag: str, text: str, *, has_variable: bool = False) -> None:
        """Add an option without a value."""
        variable = self._name_variable(flag) if has_variable else None
        self._options[_read_name(flag)] = _Option(flag, variable, default=False, is_required=False, takes="nothing")
        self.add_argument(flag, action=_Store, nargs=0, help=_describe(text, variable, None))

    def read(self, arguments: Sequence[str]) -> dict[str, Any]:
        """Return the values of all options, and the names of the options on the command line."""
        given = vars(self.parse_args(self._join_values(arguments)))
        values = {name: option.default for name, option in self._options.items()}
        for name, option in self._options.items():
            if name not in given and option.variable is not None and (text := os.environ.get(option.variable)):
                values |= self._read_variable(option, text)
        values |= given
        missing = [name for name, option in self._options.items() if option.is_required and values[name] is None]
        if missing:
            option = self._options[missing[0]]
            self.error(f"{option.label} is missing. Pass it{f', or set {option.variable}' if option.variable else ''}")
        return {**values, "given": frozenset(given)}

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage, because the error must fit into one line of a container's log."""
        raise ConfigurationError(f"{printable(message, _MAX_ERROR)}. For usage, run `{self.prog} --help`.")

    def _join_values(self, arguments: Sequence[str]) -> list[str]:
        """Join each value that begins with a dash to its option. Otherwise argparse takes the value for an option."""
        labels = {option.label for option in self._options.values()}
        value_labels = {option.label for option in self._options.values() if option.takes != "nothing"}
        joined: list[str] = []
        for argument in arguments:
            is_value = argument.startswith("-") and argument.partition("=")[0] not in {*labels, "-h", "--help"}
            if is_value and joined and joined[-1] in value_labels:
                joined[-1] += f"={argument}"
            else:
                joined.append(argument)
        return joined

    def _read_variable(self, option: _Option, text: str) -> dict[str, Any]:
        """Return the value of an environment variable, as if the command line had it."""
        match option.takes:
            case "nothing" if text.lower() in ("0", "false", "no", "off"):
                return {}
            case "nothing" if text.lower() in ("1", "true", "yes", "on"):
                arguments = [option.label]
            case "nothing":
                self.error(f"{option.variable}: expected true or false, got {text!r}")
            case "values":
                arguments = [f"{option.label}={part}" for part in text.split()]
            case _:
                arguments = [f"{option.label}={text}"] if option.label.startswith("-") else ["--", text]
        try:
            return vars(self.parse_args(arguments))
        except ConfigurationError as error:
            raise ConfigurationError(f"{option.variable}: {error}") from None

    def _name_variable(self, flag: str) -> str:
        return f"{self._prefix}{_read_name(flag)}".upper()


def _read_name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")


def _describe(text: str, variable: str | None, default: object) -> str:
    """Return the help of an option, with its default and its environment variable."""
    notes = (
        [] if default in (None, "") else [f"default: {default:g}" if isinstance(default, float) else f"default: {default}"]
    )
    notes += [variable] if variable is not None else []
    return (f"{text} ({', '.join(notes)})" if notes else text).replace("%", "%%")


def read_text(text: str) -> str:
    """Return a value. Raise if it is empty, such as "$ID" without a variable ID, because it could change the verb's meaning."""
    if not text:
        raise ArgumentTypeError("the value is empty")
    return text


def make_number_reader(kind: type[int | float], low: float, high: float) -> Callable[[str], int | float]:
    """Return a function that reads a number within these limits."""

    def read(text: str) -> int | float:
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not low <= number <= high:  # NaN is outside of all limits
            form = "a whole number" if kind is int else "a number"
            raise ArgumentTypeError(f"expected {form} from {low:g} to {high:g}, got {text!r}")
        return number

    return read


# --- options of several verbs -------------------------------------------------------------------------------------------

METRICS = ("emf", "opentelemetry")
LOG_FORMATS = ("text", "json")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


def add_store(parser: VerbParser, *, is_required: bool = True) -> None:
    """Add the options that name a table or a collection."""
    either = " Required without {}." if is_required else ""
    table = f"A DynamoDB table.{either.format('--collection')}"
    collection = f"A MongoDB collection: mongodb://HOST/DATABASE.COLLECTION.{either.format('--table')}"
    parser.add_value("--table", table, metavar="NAME", variable="ONEWRITE_TABLE")
    parser.add_value("--collection", collection, metavar="URL", variable="ONEWRITE_COLLECTION")
    parser.add_value("--region", "The AWS region, if not the configured one.", metavar="REGION")
    parser.add_value("--endpoint-url", "The endpoint of DynamoDB, if not AWS's.", metavar="URL")


def add_entity(parser: VerbParser) -> None:
    """Add the options that name an entity and one of its ledgers."""
    key = """The entity: '{"orderId": "o-1"}', or a MongoDB _id in extended JSON."""
    parser.add_value("--key", key, metavar="JSON", is_required=True)
    attribute = (
        "The ledger's attribute, as inspect shows it: ow_l, or for example ow_billing:l for name='billing', or the attribute of "
        "an IdSet."
    )
    parser.add_value("--attribute", attribute, metavar="NAME")


def add_source(parser: VerbParser) -> None:
    """Add the options that name a message's source and parts."""
    parser.add_value("--source", "The message's source.", metavar="TEXT", default="", kind=str)
    part = "The message's part, as in message.part(NAME). Repeat it for several parts."
    parser.add_value("--part", part, metavar="NAME", repeats=True)


def add_message(parser: VerbParser, *, is_required: bool = False) -> None:
    """Add the options that name a message."""
    parser.add_value("--message", "The message's id.", metavar="ID", is_required=is_required)
    add_source(parser)
    sequence = "The message's sequence: a number, or a string such as 00042 or 'text:42'."
    parser.add_value("--sequence", sequence, metavar="N")


def add_json(parser: VerbParser) -> None:
    parser.add_flag("--json", "Print one JSON document and nothing else.")


def add_logging(parser: VerbParser) -> None:
    """Add the options of a process that runs for long."""
    parser.add_value(
        "--drain-seconds",
        "The maximum number of seconds from SIGTERM or Ctrl-C to the end.",
        metavar="SECONDS",
        variable=True,
        default=25.0,
        kind=make_number_reader(float, 0, 43_200),
    )
    parser.add_value(
        "--metrics",
        "emf prints CloudWatch metrics; opentelemetry counts on the global meter. Repeat it for both.",
        metavar="KIND",
        variable=True,
        choices=METRICS,
        repeats=True,
    )
    parser.add_value(
        "--log-format",
        "text for lines, or json for one JSON object per line.",
        metavar="FORMAT",
        variable=True,
        default="text",
        choices=LOG_FORMATS,
    )
    parser.add_value(
        "--log-level",
        f"The minimum level to log: {', '.join(LOG_LEVELS)}.",
        metavar="LEVEL",
        variable=True,
        default="INFO",
        kind=str.upper,
        choices=LOG_LEVELS,
    )


def refuse_ineffective(options: Options, names: Iterable[str], why: str) -> None:
    """Raise if one of these options is on the command line, where it doesn't have an effect."""
    for name in names:
        if name in options["given"]:
            raise ConfigurationError(
                f"--{name.replace('_', '-')} has no effect {why}. Remove it, or run `onewrite {options['verb']} --help`."
            )


_TEXT = "text:"


def make_message(options: Options) -> Message:
    """Return the message that the options name."""
    parts = tuple(options["part"] or ())
    sequence = None if options["sequence"] is None else read_sequence(options["sequence"])
    return Message(options["message"], source=options["source"], sequence=sequence, parts=parts)


def read_sequence(text: str) -> int | str:
    """Return the sequence as a message has it: a string if it has leading zeros, such as 00042, or the prefix "text:"."""
    if text.startswith(_TEXT):
        return text.removeprefix(_TEXT)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return text
    try:
        number = int(text)
    except ValueError as error:  # Python refuses to convert more than some thousand digits
        raise ConfigurationError(
            f"--sequence has {len(digits)} digits, which is too long for a number. If the sequence is a string, pass "
            f"{_TEXT} before it."
        ) from error
    return number if text == str(number) else text


def get_global_meter() -> Meter:
    """Return the meter of `--metrics opentelemetry`."""
    try:
        from opentelemetry.metrics import get_meter
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            '--metrics opentelemetry needs a package. Run: pip install "onewrite[opentelemetry]"'
        ) from error
    return get_meter("onewrite")
