"""`onewrite inspect` shows what an entity holds for its ledgers, and what a delivery of a message would get. It only reads."""

from __future__ import annotations

import json
import sys
import time
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.cli.command_line import AsJson, VersionOption
from onewrite.cli.repairs.options import (
    At,
    Attribute,
    Key,
    Parts,
    Sequence,
    Source,
    end,
    entity_of,
    ledger_of,
    message_of,
    moment_of,
    repairs_of,
)
from onewrite.cli.repairs.text import inspected
from onewrite.cli.stores import CollectionUrl, TableName
from onewrite.repair.answers import Asked
from onewrite.repair.report import inspection

MessageId: TypeAlias = Annotated[
    str | None, typer.Option("--message", metavar="ID", help="Say what a delivery of this message would get, and why.")
]
InSequence: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--in-sequence", metavar="FIRST", help="The marks are those of InSequence(first=FIRST), and not of HighWaterMark."
    ),
]
LedgerName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        metavar="MODULE:STORE",
        help="Ask the ledger of this guarded store, or this ledger, instead of the labels.",
    ),
]


def inspect(
    *,
    key: Key,
    table: TableName = None,
    collection: CollectionUrl = None,
    attribute: Attribute = None,
    message: MessageId = None,
    source: Source = "",
    sequence: Sequence = None,
    part: Parts = None,
    in_sequence: InSequence = None,
    ledger: LedgerName = None,
    at: At = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Show what an entity holds: ledgers with their ids and marks, pending events, open steps, a tombstone, and their bytes.

    It only reads. The exit code is 1 if the store cannot be read, or has no such entity.
    """
    given = locals()
    end(lambda: _inspect(given))


def _inspect(given: dict[str, Any]) -> int:
    now, attribute, asked = moment_of(given["at"], time.time()), given["attribute"], None
    if given["message"] is not None:
        asked = Asked(message_of(given), now, attribute, given["in_sequence"], ledger_of(given["ledger"]))
    image = entity_of(repairs_of(given["table"], given["collection"]), given["key"])
    found = inspection(image, now, attribute, asked)
    text = json.dumps(found, indent=2) if given["as_json"] else "\n".join(inspected(found, given["message"]))
    sys.stdout.write(f"{text}\n")
    return 0
