"""`onewrite doctor` says what is wrong with a set-up. It only reads."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Annotated, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from onewrite.cli.command_line import AsJson, VersionOption
from onewrite.cli.doctor.report import Report, is_heading
from onewrite.cli.exits import end
from onewrite.cli.names import find, find_module
from onewrite.cli.options import option
from onewrite.cli.store_urls import function_client, queue_client
from onewrite.cli.stores import CollectionUrl, NamedCollection, NamedTable, TableName, named_store
from onewrite.cli.terminal import is_plain
from onewrite.doctor.examination import examine
from onewrite.doctor.facts import Facts, Server
from onewrite.errors import ConfigurationError

_option = partial(option, "DOCTOR")
FORM = "MODULE"
Reader: TypeAlias = Callable[[Facts], Facts]  # adds what it reads

ModuleName: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar=FORM,
        help="The module with the handlers and their stores, as in shop.handlers, or one handler: shop.handlers:ship.",
    ),
]
QueueUrl: TypeAlias = Annotated[str | None, _option("queue", "The URL of the SQS queue that the handlers are fed from.")]
FunctionName: TypeAlias = Annotated[str | None, _option("function", "The name or the ARN of the Lambda function.")]
SampleSize: TypeAlias = Annotated[int, _option("sample", "How many entities to read at the most.", min=1, max=10_000)]
Strict: TypeAlias = Annotated[bool, typer.Option("--strict", help="Exit with 1 as well if a permission is missing.")]


def doctor(
    module: ModuleName = None,
    *,
    queue: QueueUrl = None,
    table: TableName = None,
    collection: CollectionUrl = None,
    function: FunctionName = None,
    sample: SampleSize = 100,
    strict: Strict = False,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Say what is wrong with a queue, a function, a table or collection, and the handlers of a module. It only reads.

    The exit code is 0 if nothing was found, and 1 if an error or a warning was found or something cannot be read. A permission
    that is missing is told, and counts only with --strict.
    """
    del version  # its callback has printed it
    of_module = _of_module(module)  # an error in the user's own code is shown with its traceback

    def examined() -> int:
        facts = _read([of_module, _of_queue(queue), _of_function(function), _of_store(table, collection, sample)])
        report = Report(examine(facts), facts.unread(), strict=strict)
        sys.stdout.write(report.json_text()) if as_json else _print(report)
        return report.code

    end(examined, "The set-up cannot be read")


# Each of these looks at one argument, and makes a client for it, before anything is read for another one.


def _read(readers: Sequence[Reader | None]) -> Facts:
    asked = [reader for reader in readers if reader is not None]
    if not asked:
        raise ConfigurationError("Say what to look at: --queue, --function, --table, --collection, or a MODULE.")
    facts = Facts()
    for reader in asked:
        facts = reader(facts)
    return facts


def _of_module(name: str | None) -> Reader | None:
    if name is None:
        return None
    found = find(name, FORM) if ":" in name else find_module(name, FORM)
    from onewrite.doctor.reading.module import read_module  # noqa: PLC0415  # it is needed only here, as those below are

    return lambda facts: replace(facts, module=read_module(name, found))


def _of_queue(url: str | None) -> Reader | None:
    if url is None:
        return None
    client = queue_client(url)
    from onewrite.doctor.reading.amazon import AMAZON, read_queues  # noqa: PLC0415  # MongoDB's users may have no botocore

    return lambda facts: replace(facts, **AMAZON.run(read_queues(url), client)._asdict())


def _of_function(name: str | None) -> Reader | None:
    if name is None:
        return None
    client = function_client(name)
    from onewrite.doctor.reading.amazon import AMAZON, read_function  # noqa: PLC0415  # as above

    return lambda facts: replace(facts, **AMAZON.run(read_function(name), client)._asdict())


def _of_store(table: str | None, collection: str | None, most: int) -> Reader | None:
    if table is None and collection is None:
        return None
    named = named_store(table, collection)
    return partial(_read_table, named, most) if isinstance(named, NamedTable) else partial(_read_collection, named, most)


def _read_table(named: NamedTable, most: int, facts: Facts) -> Facts:
    from onewrite.doctor.reading.amazon import AMAZON  # noqa: PLC0415  # as above
    from onewrite.doctor.reading.table import read_table  # noqa: PLC0415  # as above

    return replace(facts, **AMAZON.run(read_table(named.name, most, time.time), named.client)._asdict())


def _read_collection(named: NamedCollection, most: int, facts: Facts) -> Facts:
    from onewrite.doctor.reading.collection import MONGODB, read_collection  # noqa: PLC0415  # DynamoDB's users may have no pymongo

    with closing(named.collection.database.client):
        found = MONGODB.run(read_collection(named.collection, most, time.time), named.collection)
    clock = found.server.clock if isinstance(found.server, Server) else found.server
    return replace(facts, **found._asdict(), clock=clock)


def _print(report: Report) -> None:
    if is_plain(sys.stdout, os.environ):
        sys.stdout.writelines([f"{line}\n" for line in report.lines()])
        return
    console = Console(file=sys.stdout, force_terminal=True)
    for line in report.lines():
        console.print(Text(line, style="bold" if is_heading(line) else ""), soft_wrap=True)
