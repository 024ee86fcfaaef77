"""The options that verbs have in common: one name and one meaning for each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from importlib.metadata import version
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from onewrite.errors import ConfigurationError
from onewrite.message import Message

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter


Options: TypeAlias = Mapping[str, Any]  # what the command line says, by the names of the verb's arguments


class MetricsKind(Enum):
    """Where metrics go."""

    EMF = "emf"
    OPENTELEMETRY = "opentelemetry"


def option(verb: str, name: str, text: str, **more: Any) -> Any:
    """An option that the environment may give too: the worker's --queue-url as ONEWRITE_WORKER_QUEUE_URL."""
    return typer.Option(f"--{name}", envvar=f"ONEWRITE_{verb}_{name}".upper().replace("-", "_"), help=text, **more)


def _show_version(is_given: bool) -> None:  # noqa: FBT001  # Typer calls it
    if is_given:
        typer.echo(f"onewrite {version('onewrite')}")
        raise typer.Exit


VersionOption: TypeAlias = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]

# --- which store. A URL may hold a password, which the environment keeps from the list of processes ---------------------------


def _table(more: str = "") -> Any:
    return typer.Option("--table", metavar="NAME", envvar="ONEWRITE_TABLE", help=f"A table of DynamoDB.{more}")


def _collection(more: str = "") -> Any:
    text = f"A collection of MongoDB: mongodb://HOST/DATABASE.COLLECTION.{more}"
    return typer.Option("--collection", metavar="URL", envvar="ONEWRITE_COLLECTION", help=text)


TableName: TypeAlias = Annotated[str | None, _table()]
CollectionUrl: TypeAlias = Annotated[str | None, _collection()]
# For a verb that does nothing without one of them.
RequiredTable: TypeAlias = Annotated[str | None, _table(" Required without --collection.")]
RequiredCollection: TypeAlias = Annotated[str | None, _collection(" Required without --table.")]
Region: TypeAlias = Annotated[str | None, typer.Option("--region", help="The region at AWS, if not the configured one.")]
EndpointUrl: TypeAlias = Annotated[
    str | None, typer.Option("--endpoint-url", metavar="URL", help="Where the table is, if not at AWS.")
]

# --- which entity, and which message ------------------------------------------------------------------------------------

Key: TypeAlias = Annotated[
    str,
    typer.Option("--key", metavar="JSON", help='The entity: \'{"orderId": "o-1"}\', or an _id of MongoDB in extended JSON.'),
]
Attribute: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--attribute",
        metavar="NAME",
        help="Where the label of the ledger stands, as inspect shows it: ow_l, or ow_billing:l for name='billing'; or the attribute of MessageIds.",
    ),
]
_MESSAGE = typer.Option("--message", metavar="ID", help="The message's id.")
MessageId: TypeAlias = Annotated[str, _MESSAGE]
AnyMessageId: TypeAlias = Annotated[str | None, _MESSAGE]
Source: TypeAlias = Annotated[str, typer.Option("--source", metavar="TEXT", help="The message's source.")]
SequenceOption: TypeAlias = Annotated[
    str | None,
    typer.Option("--sequence", metavar="N", help="The message's sequence: a number, or a text such as 00042 or 'text:42'."),
]
Parts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="NAME", help="The message's part, as of message.part(NAME). May be given several times."),
]
Operator: TypeAlias = Annotated[
    str | None, typer.Option("--operator", help="Who asks for it, for the log; by default the user of this process.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Write. Without it nothing is written.")]

_TEXT = "text:"


def message_of(options: Options) -> Message:
    """The message that the options name."""
    parts = tuple(options["part"] or ())
    sequence = None if options["sequence"] is None else sequence_of(options["sequence"])
    return Message(options["message"], source=options["source"], sequence=sequence, parts=parts)


def sequence_of(text: str) -> int | str:
    """The sequence as a message has it. A number that nobody would write so, such as 00042, is a text, and so is what says it."""
    if text.startswith(_TEXT):
        return text.removeprefix(_TEXT)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return text
    try:
        number = int(text)
    except ValueError as error:  # Python makes no number of some thousand digits
        raise ConfigurationError(
            f"--sequence has {len(digits)} digits: write {_TEXT} before it if the sequence is a text."
        ) from error
    return number if text == str(number) else text


def global_meter() -> Meter:
    """The meter of `--metrics opentelemetry`."""
    try:
        from opentelemetry.metrics import get_meter  # noqa: PLC0415  # a package that few have
    except ModuleNotFoundError as error:
        raise ConfigurationError('--metrics opentelemetry needs a package: pip install "onewrite[opentelemetry]"') from error
    return get_meter("onewrite")
