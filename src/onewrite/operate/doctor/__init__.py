"""`onewrite doctor` finds problems of a setup. It only reads.

`reading.py`, `amazon.py`, and `mongodb.py` read the facts. `checks.py` judges them and is pure.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from textwrap import wrap
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from onewrite.errors import ConfigurationError
from onewrite.message import printable
from onewrite.operate.doctor.checks import CHECKS, examine
from onewrite.operate.doctor.facts import CheckResult, Facts, Unread
from onewrite.operate.exits import Exit
from onewrite.operate.modules import MODULE, find, find_module
from onewrite.operate.options import AsJson, CollectionUrl, EndpointUrl, Options, Region, TableName, VersionOption, option
from onewrite.operate.report import format_count, is_plain, run_verb, tell, tell_json
from onewrite.operate.stores import is_named, make_function_client, make_queue_client, open_store

_WIDTH = 100
_MAX_SENTENCE = 4096  # characters of a sentence, which can quote the user's names
_HEADINGS = {
    "error": "Errors: a message can be lost or take effect twice",
    "warning": "Warnings",
    "notice": "Notices: possibly intended, and counted only with --strict",
}


class DoctorReport:
    """All checks, and the facts that could not be read.

    With `strict`, notices count as findings, and missing permissions as failures. Findings of the `accepted` checks don't
    count.
    """

    def __init__(
        self, checks: Sequence[CheckResult], unread: Sequence[Unread], *, strict: bool, accepted: Sequence[str] = ()
    ) -> None:
        self._checks, self._unread, self._strict, self._accepted = checks, unread, strict, accepted

    @property
    def code(self) -> int:
        """The exit code. With `strict`, a notice counts as a finding, and a missing permission as a failure."""
        failures = [fact for fact in self._unread if fact.permission is None or self._strict]
        results = [result for result in self._checks if result.state != "not checked"]
        findings = [
            finding
            for result in results
            for finding in result.findings
            if result.check.code not in self._accepted and (finding.severity != "notice" or self._strict)
        ]
        if failures or not results:
            return Exit.FAILED
        return Exit.FOUND if findings else Exit.DONE

    def export(self) -> dict[str, object]:
        """Return the report in machine-readable form."""
        unread = [
            {"what": fact.what, "permission": fact.permission, "error": fact.error, "checks": self._list_needing(fact)}
            for fact in self._unread
        ]
        checks = [
            {
                "code": result.check.code,
                "title": result.check.title,
                "state": result.state,
                "told": result.text,
                "permission": None if result.missing is None else result.missing.permission,
                "findings": [finding._asdict() for finding in result.findings],
                "accepted": result.check.code in self._accepted,
            }
            for result in self._checks
        ]
        return {"checks": checks, "unread": unread}

    def _list_needing(self, unread: Unread) -> list[str]:
        """Return the checks that needed this fact."""
        return [result.check.code for result in self._checks if result.missing == unread]

    def list_lines(self) -> Iterator[str]:
        """Yield the lines of the report: the findings (most severe first), unread facts, passed checks, and checks that weren't made."""
        for severity, heading in _HEADINGS.items():
            findings = [
                (result.check.code, finding)
                for result in self._checks
                for finding in result.findings
                if finding.severity == severity
            ]
            if findings:
                yield heading
                for code, finding in findings:
                    accepted = " (accepted)" if code in self._accepted else ""
                    yield from _wrap("  ", f"{code}{accepted}: {finding.what}")
                    yield from _wrap("    ", f"Why: {finding.why}")
                    yield from _wrap("    ", f"Do: {finding.do}")
                    yield from _wrap("    ", f"From: {finding.rests_on}.")
                yield ""
        if self._unread:
            yield "Not read"
            for fact in self._unread:
                needing = ", ".join(self._list_needing(fact)) or "none"
                yield from _wrap("  ", f"{fact.what}: {fact.reason}. {fact.error}")
                yield from _wrap("    ", f"Checks that need it: {needing}")
            yield ""
        yield from self._list_section("passed", "Passed")
        yield from self._list_section("not checked", "Not checked")
        count = sum([len(result.findings) for result in self._checks])
        yield f"{count} found, {format_count(self._count('passed'), 'check')} passed, {self._count('not checked')} not made."

    def _list_section(self, state: str, heading: str) -> Iterator[str]:
        results = [result for result in self._checks if result.state == state]
        if results:
            yield heading
            for result in results:
                yield from _wrap("  ", f"{result.check.code}: {result.text}")
            yield ""

    def _count(self, state: str) -> int:
        return len([result for result in self._checks if result.state == state])


def _wrap(indent: str, text: str) -> list[str]:
    inner = f"{indent}  "
    return wrap(
        printable(text, _MAX_SENTENCE),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=inner,
        break_long_words=False,
        break_on_hyphens=False,
    )


_option = partial(option, "DOCTOR")


def doctor(
    module: Annotated[
        str | None,
        typer.Argument(
            metavar=MODULE,
            help=(
                "The module with the guarded stores and handlers, for example shop.stores; or one store, or a function "
                "that creates one: shop.stores:orders."
            ),
        ),
    ] = None,
    *,
    queue: Annotated[str | None, _option("queue", "The URL of the SQS queue that feeds the handlers.")] = None,
    table: TableName = None,
    collection: CollectionUrl = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    function: Annotated[str | None, _option("function", "The Lambda function's name or ARN.")] = None,
    sample: Annotated[int, _option("sample", "The maximum number of entities to read.", min=1, max=10_000)] = 100,
    strict: Annotated[
        bool, typer.Option("--strict", help="Count a notice as a finding, and a missing permission as a failure.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="CODE", help="Don't count this check's findings. Repeat it for several checks."),
    ] = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Find problems of a queue, a function, a table or collection, and guarded stores. This only reads.

    The exit code is 0 if nothing was found, 5 if an error or a warning was found, and 1 if something can't be read. Notices
    and missing permissions count only with --strict. Findings of --accept never count.
    """
    options = locals()

    def examine_setup() -> int:
        accepted = tuple(accept or ())
        codes = [check.code for check in CHECKS]
        for code in accepted:
            if code not in codes:
                raise ConfigurationError(f"--accept {code}: expected the code of a check: {', '.join(codes)}.")
        facts = _read_facts(options)
        report = DoctorReport(examine(facts), facts.list_unread(), strict=strict, accepted=accepted)
        if as_json:
            tell_json(report.export())
        elif is_plain(sys.stdout, os.environ):
            tell(report.list_lines())
        else:
            console = Console(file=sys.stdout, force_terminal=True)
            for line in report.list_lines():
                console.print(Text(line, style="bold" if line[:1].isalpha() else ""), soft_wrap=True)
        return report.code

    run_verb(examine_setup, "The setup can't be read")


def _read_facts(options: Options) -> Facts:
    """Return the facts. All arguments are checked, and all clients created, before anything is read."""
    # Import a driver only if it is needed: a user of one database need not have the other's.
    module, queue, function = options["module"], options["queue"], options["function"]
    readers = list[Callable[[], Facts]]()
    if module is not None:
        from onewrite.operate.doctor.reading import read_module

        content = find(module, MODULE) if ":" in module else find_module(module)
        known_module = read_module(module, content)
        readers.append(lambda: Facts(module=known_module))
    if queue is not None:
        sqs = make_queue_client(queue, options)
        from onewrite.operate.doctor.amazon import AMAZON, read_queues

        readers.append(lambda: AMAZON.run(read_queues(queue), sqs))
    if function is not None:
        client = make_function_client(function, options)
        from onewrite.operate.doctor.amazon import AMAZON, read_function

        readers.append(lambda: AMAZON.run(read_function(function), client))
    if is_named(options):
        store, most = open_store(options), options["sample"]
        if options["table"] is not None:
            from onewrite.operate.doctor.amazon import AMAZON, read_table

            readers.append(lambda: AMAZON.run(read_table(store.name, most, time.time), store.target))
        else:
            from onewrite.operate.doctor.mongodb import MONGODB, read_collection

            readers.append(lambda: MONGODB.run(read_collection(store.target, most, time.time), store.target))
    if not readers:
        raise ConfigurationError("Pass at least one of --queue, --function, --table, --collection, or a MODULE.")
    facts = Facts()
    for reader in readers:
        new_facts = reader()
        facts = replace(
            facts, **{name: fact for name in new_facts.__slots__ if (fact := getattr(new_facts, name)) is not None}
        )
    return facts
