"""`onewrite doctor` finds problems of a setup. It only reads.

`facts.py` has the facts. `amazon.py` and `mongodb.py` read them, and `checks.py`, which is pure, judges them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from textwrap import wrap

from onewrite.errors import ConfigurationError
from onewrite.message import printable
from onewrite.operate.doctor.checks import CHECKS, examine
from onewrite.operate.doctor.facts import CheckResult, Facts, Unread, read_module
from onewrite.operate.exits import Exit
from onewrite.operate.modules import MODULE, find, find_module
from onewrite.operate.options import Options, VerbParser, add_json, add_store, make_number_reader, refuse_ineffective
from onewrite.operate.report import format_count, run_verb, tell, tell_json
from onewrite.operate.stores import is_named, make_function_client, make_queue_client, open_store

_WIDTH = 100
_MAX_SENTENCE = 4096  # characters of a sentence, which can quote the user's names
_HEADINGS = {
    "error": "Errors: a message can be lost or take effect twice",
    "warning": "Warnings",
    "notice": "Notices: possibly intended, and counted only with --strict",
}


class DoctorReport:
    """The results of all checks, and the facts that could not be read. Findings of `accepted` checks don't count."""

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
        """Yield the lines of the report, with the most severe findings first."""
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
                yield from _wrap("    ", f"Do: {fact.advice}")
                yield from _wrap("    ", f"Checks that need it: {needing}")
            yield ""
        passed = [result for result in self._checks if result.state == "passed"]
        unmade = [result for result in self._checks if result.state == "not checked"]
        unexplained = [result for result in unmade if result.option is None and result.missing is None]
        for heading, results in (("Passed", passed), ("Not checked", unexplained)):
            if results:
                yield heading
                for result in results:
                    yield from _wrap("  ", f"{result.check.code}: {result.text}")
                yield ""
        options = dict.fromkeys([result.option for result in unmade if result.option is not None])
        if options:
            yield f"To make more checks, pass {', '.join(options)}."
            yield ""
        count = sum([len(result.findings) for result in self._checks])
        yield f"{count} found, {format_count(len(passed), 'check')} passed, {len(unmade)} not made."


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


def add_options(parser: VerbParser) -> None:
    """Add the options of `doctor`."""
    module = (
        "The module with the guarded stores and handlers, for example shop.stores; or one store, or a function that "
        "returns one: shop.stores:orders."
    )
    parser.add_position("module", MODULE, module)
    parser.add_value("--queue", "The URL of the SQS queue that feeds the handlers.", metavar="URL", variable=True)
    add_store(parser, is_required=False)
    parser.add_value("--function", "The Lambda function's name or ARN.", metavar="NAME", variable=True)
    parser.add_value(
        "--sample",
        "The maximum number of entities to read.",
        metavar="N",
        variable=True,
        default=100,
        kind=make_number_reader(int, 1, 10_000),
    )
    parser.add_flag("--strict", "Count a notice as a finding, and a missing permission as a failure.")
    accept = "Don't count this check's findings. Repeat it for several checks."
    codes = [check.code for check in CHECKS]
    parser.add_value("--accept", accept, metavar="CODE", choices=codes, repeats=True)
    add_json(parser)


def run(options: Options) -> int:
    """Run the verb and return its exit code."""
    if not is_named(options):
        refuse_ineffective(options, ["sample"], "without --table or --collection")
    if options["table"] is None and options["function"] is None:
        refuse_ineffective(options, ["endpoint_url"], "without --table or --function")
        if options["queue"] is None:
            refuse_ineffective(options, ["region"], "without --table, --function, or --queue")

    def examine_setup() -> int:
        facts = _read_facts(options)
        accepted = tuple(options["accept"] or ())
        report = DoctorReport(examine(facts), facts.list_unread(), strict=options["strict"], accepted=accepted)
        if options["json"]:
            tell_json(report.export())
        else:
            tell(report.list_lines())
        return report.code

    return run_verb(examine_setup, "The setup can't be read")


def _read_facts(options: Options) -> Facts:
    """Return the facts. All arguments are checked, and all clients created, before anything is read."""
    # A driver is imported only if it is needed, because a user of one database need not have the other's.
    module, queue, function = options["module"], options["queue"], options["function"]
    readers = list[Callable[[], Facts]]()
    if module is not None:
        known_module = read_module(module, find(module, MODULE) if ":" in module else find_module(module))
        readers.append(lambda: Facts(module=known_module))
    if queue is not None:
        sqs = make_queue_client(queue, options)
        from onewrite.operate.doctor.amazon import read_queues

        readers.append(lambda: read_queues(sqs, queue))
    if function is not None:
        client = make_function_client(function, options)
        from onewrite.operate.doctor.amazon import read_function

        readers.append(lambda: read_function(client, function))
    if is_named(options):
        store, limit = open_store(options), options["sample"]
        if options["table"] is not None:
            from onewrite.operate.doctor.amazon import read_table

            readers.append(lambda: read_table(store.target, store.name, limit, time.time))
        else:
            from onewrite.operate.doctor.mongodb import read_collection

            readers.append(lambda: read_collection(store.target, limit, time.time))
    if not readers:
        raise ConfigurationError("Pass at least one of --queue, --function, --table, --collection, or a MODULE.")
    facts = Facts()
    for reader in readers:
        new_facts = reader()
        facts = replace(
            facts, **{name: fact for name in new_facts.__slots__ if (fact := getattr(new_facts, name)) is not None}
        )
    return facts
