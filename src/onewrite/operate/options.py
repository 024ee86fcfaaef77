"""The shared options of the verbs: one name and one meaning for each."""

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


Options: TypeAlias = Mapping[str, Any]  # the values of the command line by the verb's argument names


class MetricsKind(Enum):
    """The destination of metrics."""

    EMF = "emf"
    OPENTELEMETRY = "opentelemetry"


def option(verb: str, name: str, text: str, **more: Any) -> Any:
    """Return an option that the environment can set too: the worker's --queue-url as ONEWRITE_WORKER_QUEUE_URL."""
    return typer.Option(f"--{name}", envvar=f"ONEWRITE_{verb}_{name}".upper().replace("-", "_"), help=text, **more)


def _show_version(is_given: bool) -> None:  # noqa: FBT001  # Typer calls it
    if is_given:
        typer.echo(f"onewrite {version('onewrite')}")
        raise typer.Exit


VersionOption: TypeAlias = Annotated[
    bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def _make_table_option(more: str = "") -> Any:
    return typer.Option("--table", metavar="NAME", envvar="ONEWRITE_TABLE", help=f"A DynamoDB table.{more}")


def _make_collection_option(more: str = "") -> Any:
    text = f"A MongoDB collection: mongodb://HOST/DATABASE.COLLECTION.{more}"
    return typer.Option("--collection", metavar="URL", envvar="ONEWRITE_COLLECTION", help=text)


TableName: TypeAlias = Annotated[str | None, _make_table_option()]
CollectionUrl: TypeAlias = Annotated[str | None, _make_collection_option()]
# For verbs that need one of the two.
RequiredTable: TypeAlias = Annotated[str | None, _make_table_option(" Required without --collection.")]
RequiredCollection: TypeAlias = Annotated[str | None, _make_collection_option(" Required without --table.")]
Region: TypeAlias = Annotated[str | None, typer.Option("--region", help="The AWS region, if not the configured one.")]
EndpointUrl: TypeAlias = Annotated[
    str | None, typer.Option("--endpoint-url", metavar="URL", help="The endpoint of DynamoDB, if not AWS's.")
]


Key: TypeAlias = Annotated[
    str,
    typer.Option("--key", metavar="JSON", help="""The entity: '{"orderId": "o-1"}', or a MongoDB _id in extended JSON."""),
]
Attribute: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--attribute",
        metavar="NAME",
        help=(
            "The attribute of the ledger's label, as inspect shows it: ow_l, or ow_billing:l for name='billing'; or "
            "the attribute of MessageIds."
        ),
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
    typer.Option(
        "--part", metavar="NAME", help="The message's part, as in message.part(NAME). Repeat it for several parts."
    ),
]
Operator: TypeAlias = Annotated[
    str | None, typer.Option("--operator", help="Your name, for the log. The default is the user of this process.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Write. Without this option nothing is written.")]

_TEXT = "text:"


def make_message(options: Options) -> Message:
    """Return the message that the options name."""
    parts = tuple(options["part"] or ())
    sequence = None if options["sequence"] is None else read_sequence(options["sequence"])
    return Message(options["message"], source=options["source"], sequence=sequence, parts=parts)


def read_sequence(text: str) -> int | str:
    """Return the sequence as a message has it.

    A number with leading zeros, such as 00042, is text, and so is a value with the prefix "text:".
    """
    if text.startswith(_TEXT):
        return text.removeprefix(_TEXT)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()):
        return text
    try:
        number = int(text)
    except ValueError as error:  # Python refuses to convert more than some thousand digits
        raise ConfigurationError(
            f"--sequence has {len(digits)} digits, which is too long for a number. If the sequence is text, write "
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
