"""The options that these verbs have in common, and how each of them ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, NoReturn, Protocol, TypeAlias

import typer

from onewrite.cli import exits
from onewrite.cli.names import STORE, find
from onewrite.cli.stores import NamedTable, named_store
from onewrite.errors import ConfigurationError
from onewrite.flow import Call, Flow, run
from onewrite.ledgers import Ledger
from onewrite.message import Message
from onewrite.repair.image import Image, NothingToDo, Plan

Key: TypeAlias = Annotated[
    str,
    typer.Option("--key", metavar="JSON", help='The entity: \'{"orderId": "o-1"}\', or an _id of MongoDB in extended JSON.'),
]
Attribute: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--attribute",
        metavar="NAME",
        help="Where the label of the ledger stands, as inspect shows it: ow_l, or ow_billing:l for name='billing'; or the attribute of MessageIDs.",
    ),
]
Source: TypeAlias = Annotated[str, typer.Option("--source", metavar="TEXT", help="The message's source.")]
Sequence: TypeAlias = Annotated[
    str | None, typer.Option("--sequence", metavar="N", help="The message's sequence. What has digits only is a number.")
]
Parts: TypeAlias = Annotated[
    list[str] | None,
    typer.Option("--part", metavar="NAME", help="The message's part, as of message.part(NAME). May be given several times."),
]
At: TypeAlias = Annotated[
    str | None,
    typer.Option("--at", metavar="TIME", help="Instead of now, as 2026-11-22T08:00:00Z. Without a zone it is UTC."),
]
Operator: TypeAlias = Annotated[
    str | None, typer.Option("--operator", help="Who asks for it, for the log; by default the user of this process.")
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Write. Without it nothing is written.")]

_LEDGER_OF = attrgetter("_flows.ledger")  # a store has no public name for what only its own flows need


class Pages(Protocol):
    """Goes through a store once."""

    def next(self) -> Flow[list[Image] | None]: ...


class Repairs(Protocol):
    """What these verbs ask of a table or collection. `target` is the client that its flows are run with."""

    target: Any

    def key(self, text: str) -> dict[str, Any]: ...
    def read(self, key: Mapping[str, Any]) -> Flow[Image | None]: ...
    def calls(self, image: Image, plan: Plan) -> list[Call]: ...
    def write(self, image: Image, plan: Plan) -> Flow[int]: ...
    def shown(self, call: Call) -> Any: ...
    def count(self) -> Flow[int]: ...
    def pages(self, size: int) -> Pages: ...


def repairs_of(table: str | None, collection: str | None) -> Repairs:
    """The table or collection that is named."""
    store = named_store(table, collection)
    if isinstance(store, NamedTable):
        from onewrite.dynamodb.repair import Repairs as OfTable  # noqa: PLC0415  # One engine does without the other's driver.

        return OfTable(store.client, store.name)
    from onewrite.mongodb.repair import Repairs as OfCollection  # noqa: PLC0415  # as above

    return OfCollection(store.collection)


def entity_of(repairs: Repairs, key: str) -> Image:
    """The entity as it is now."""
    image = run(repairs.read(repairs.key(key)), repairs.target)
    if image is None:
        raise NothingToDo(f"There is no entity {key}.")
    return image


def end(act: Callable[[], int]) -> NoReturn:
    """Do it, and end with its exit code, or say in a sentence why it could not be done."""

    def done() -> int:
        try:
            return act()
        except NothingToDo as error:
            return exits.told(error, 1)

    exits.end(done)


def moment_of(text: str | None, now: float) -> float:
    """The time that is asked about, in epoch seconds."""
    if text is None:
        return now
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(f"--at {text}: give a time as 2026-11-22T08:00:00Z.") from error
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def message_of(given: Mapping[str, Any]) -> Message:
    """The message that the options name."""
    parts = tuple(given["part"] or ())
    return Message(given["message"], source=given["source"], sequence=_sequence_of(given["sequence"]), parts=parts)


def _sequence_of(text: str | None) -> int | str | None:
    """The sequence as a message has it."""
    digits = (text or "").removeprefix("-")
    return int(digits if digits == text else f"-{digits}") if digits.isascii() and digits.isdigit() else text


def ledger_of(name: str | None) -> Ledger | None:
    """The ledger that `module:name` names, itself or by the store that has it."""
    if name is None:
        return None
    found = find(name, STORE)
    ledger = found if hasattr(found, "entry") else _LEDGER_OF(found) if hasattr(found, "_flows") else None
    if ledger is None:
        raise ConfigurationError(f"{name!r} is a {type(found).__name__}, and neither a guarded store nor a ledger.")
    return ledger  # type: ignore[no-any-return]  # whatever the module has
