"""`onewrite migrate` carries what a store's own code remembers about messages over into ledgers, while consumers run."""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.cli.command_line import AsJson, VersionOption
from onewrite.cli.exits import end
from onewrite.cli.migrating.bookmark import Bookmark
from onewrite.cli.migrating.running import migrate_all
from onewrite.cli.options import option
from onewrite.cli.store_urls import dynamodb_client
from onewrite.cli.stores import CollectionUrl, NamedTable, TableName, named_store
from onewrite.errors import ConfigurationError, LedgerMismatch
from onewrite.flow import run
from onewrite.label import check_name, label_of
from onewrite.ledgers import HighWaterMark, SeenIds
from onewrite.ledgers.kept import Kept
from onewrite.message import printable
from onewrite.migration.ids import Ids
from onewrite.migration.plan import Origin, State
from onewrite.migration.powertools import Remaining
from onewrite.migration.report import Asked, Report
from onewrite.migration.versions import Versions
from onewrite.migration.visit import Store, Visit

_option = partial(option, "MIGRATE")
_LONGEST = 4096  # characters of an entity's key and of a reason: somebody has to find it

OldIds: TypeAlias = Annotated[
    str | None, typer.Option("--ids", metavar="NAME", help="The attribute in which your code keeps a set of ids.")
]
Version: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--version-in",
        metavar="NAME",
        help="The attribute in which your code keeps the number of a source's last message; with a * at its end, all that begin so.",
    ),
]
Powertools: TypeAlias = Annotated[
    str | None, typer.Option(metavar="TABLE", help="A table of Powertools' idempotency: say when it is needed no more.")
]
To: TypeAlias = Annotated[
    str | None,
    typer.Option(help="For --ids, how the ledger keeps them: 14d, 36h or all; 'all text' and the like for readable=True."),
]
Name: TypeAlias = Annotated[str, typer.Option(help="The new ledger's name, if it has one.")]
Source: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The source of the messages, as the new consumers' identity gives it: text, with {name} for what the entity holds there."
    ),
]
NoSource: TypeAlias = Annotated[bool, typer.Option("--no-source", help="The messages have no source.")]
Drop: TypeAlias = Annotated[
    bool,
    typer.Option("--drop", help="Remove the old attribute where all of it is carried. No old consumer may run any more."),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Write. Without it, only say what would be written.")]
Rate: TypeAlias = Annotated[float, _option("rate", "The most entities that are written in a second.", min=0.01)]
Resume: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep in this file how far it has come, and go on there.")
]
Function: TypeAlias = Annotated[
    str, typer.Option(help="Of --powertools: the keys' part before the #, if the table serves several functions.")
]
Switched: TypeAlias = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Of --powertools: when the last consumer without a guarded store had stopped."),
]
ExpiresAfter: TypeAlias = Annotated[
    float | None, typer.Option(min=0, help="Of --powertools: the longest expires_after_seconds of its functions.")
]


def migrate(
    *,
    table: TableName = None,
    collection: CollectionUrl = None,
    ids: OldIds = None,
    version_in: Version = None,
    powertools: Powertools = None,
    to: To = None,
    name: Name = "",
    source: Source = None,
    no_source: NoSource = False,
    drop: Drop = False,
    yes: Yes = False,
    rate: Rate = 50.0,
    resume: Resume = None,
    function: Function = "",
    switched: Switched = None,
    expires_after: ExpiresAfter = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Carry into ledgers what your own code remembers about messages, entity by entity, while consumers run. docs/migrating.md says when.

    The exit code is 1 if the store cannot be read or written, or if something was found that somebody has to see to.
    """
    _start(**locals())


def _start(*, powertools: str | None, as_json: bool, **options: Any) -> None:
    end(partial(_migrate if powertools is None else partial(_wait, powertools), as_json=as_json, **options))


def _migrate(*, as_json: bool, table: str | None, collection: str | None, resume: Path | None, **options: Any) -> int:
    origin = _origin(**options)
    named = named_store(table, collection)
    where = table or collection or ""
    bookmark = None if resume is None else Bookmark(resume, f"{where.rpartition('@')[2]} {origin} drop={options['drop']}")
    position = None if bookmark is None else bookmark.read()
    asked = Asked(options["yes"], options["drop"], position is not None)
    report = migrate_all(_store(named, origin, position), origin, asked, time.time, rate=options["rate"], bookmark=bookmark)
    sys.stdout.write(json.dumps(report.details(), indent=2) + "\n" if as_json else _text(report))
    return int(report.found_something)


def _store(named: Any, origin: Origin, position: object) -> Store:
    if isinstance(named, NamedTable):
        from onewrite.dynamodb.migration import MigrationStore as OfTable  # noqa: PLC0415  # One engine does without the other's driver.

        return OfTable(named.client, named.name, origin.attribute, clock=time.time, position=position)
    from onewrite.mongodb.migration import MigrationStore as OfCollection  # noqa: PLC0415  # as above

    return OfCollection(named.collection, origin.attribute, clock=time.time, position=position)


def _origin(*, ids: str | None, version_in: str | None, to: str | None, name: str, **options: Any) -> Origin:
    if (ids is None) == (version_in is None):
        raise ConfigurationError("Give one of --ids, --version-in and --powertools: what your code keeps now.")
    source = _source(options["source"], no_source=options["no_source"])
    if version_in is not None:
        if to is not None:
            raise ConfigurationError(
                "--to goes with --ids. The number of a last message becomes a mark of HighWaterMark or InSequence."
            )
        return Versions(version_in, HighWaterMark(name=name), source)
    return Ids(ids or "", _seen_ids(to, name), source)


def _source(source: str | None, *, no_source: bool) -> str:
    if (source is None) != no_source:
        raise ConfigurationError(
            "Give --source or --no-source, as the identity of the new consumers has it: a mark of another source would not be recognised."
        )
    return source or ""


def _seen_ids(to: str | None, name: str) -> SeenIds:
    if to is None:
        raise ConfigurationError(
            "Give --to, the retention of the new ledger, such as 14d. It is what SeenIds() has by default."
        )
    check_name(name)
    try:
        ledger = Kept(label_of(name), to).ledger
    except LedgerMismatch:
        ledger = None
    if not isinstance(ledger, SeenIds):
        raise ConfigurationError(f"--to {to!r}: give 14d, 36h, 90m, 45s or all; and ' text' behind it for readable=True.")
    return ledger


def _wait(
    records_table: str, *, as_json: bool, function: str, switched: str | None, expires_after: float | None, **_: Any
) -> int:
    if switched is None or expires_after is None:
        raise ConfigurationError(
            "--powertools needs --switched and --expires-after, from which it tells the records of before."
        )
    from onewrite.dynamodb.powertools import Records  # noqa: PLC0415  # as above

    records, remaining = (
        Records(dynamodb_client(), records_table, function),
        Remaining(_seconds(switched), expires_after, time.time()),
    )
    while (page := run(records.next(), records.target)) is not None:
        for record in page:
            remaining.add(record)
    sentences = "".join([f"{each}\n" for each in remaining.sentences()])
    sys.stdout.write(json.dumps(remaining.details(), indent=2) + "\n" if as_json else sentences)
    return int(remaining.is_needed)


def _seconds(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ConfigurationError(f"--switched {text!r}: give a time with its zone, such as 2026-11-22T08:00:00Z.")
    return at.timestamp()


def _text(report: Report) -> str:
    found = [f"{report.states[state]} {state.value}" for state in State if report.states[state]]
    sums = f"marks: {report.marks}; bytes: {report.bytes_before} -> {report.bytes_after}"
    wrote = f"written: {report.carried} carried, {report.dropped} rid of the old attribute"
    lines = [f"{report.read} read: {', '.join(found) or 'none has the old attribute'}"]
    lines += [sums, *([wrote] if report.asked.writes else [])] if found else []
    lines += [f"  {state.value}  {_line(each)}" for state, visits in report.examples.items() for each in visits]
    return "".join([f"{line}\n" for line in [*lines, *report.following()]])


def _line(visited: Visit) -> str:
    told = f"{printable(visited.found.name, _LONGEST)}  marks: {visited.plan.marks}; bytes: {visited.found.size} -> {visited.size}"
    return f"{told}  {printable(visited.plan.why, _LONGEST)}".rstrip()
