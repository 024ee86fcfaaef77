"""What the doctor has found, as lines for a person or as a document for a program. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from textwrap import wrap

from onewrite.doctor.facts import Unread
from onewrite.doctor.finding import Checked, Finding
from onewrite.message import printable

_WIDTH = 100
_LONGEST = 4096  # characters of a sentence, which may quote names of the user's
_HEADINGS = {"error": "Errors: a message may be lost, or take effect twice", "warning": "Warnings"}


class Report:
    """All checks, and what could not be read. `strict`: does what could not be checked for lack of a permission count as found?"""

    def __init__(self, checks: Sequence[Checked], unread: Sequence[Unread], *, strict: bool) -> None:
        self._checks, self._unread, self._strict = checks, unread, strict

    @property
    def code(self) -> int:
        """The exit code: 1 if anything was found, or could not be read for another reason than a permission, or no check was made."""
        failed = [each for each in self._unread if each.permission is None or self._strict]
        made = [each for each in self._checks if each.state != "not checked"]
        found = [each for each in made if each.state == "found"]
        return int(bool(found or failed or not made))

    def json_text(self) -> str:
        return (
            json.dumps({"checks": [*map(_as_json, self._checks)], "unread": [*map(self._told, self._unread)]}, indent=2)
            + "\n"
        )

    def _told(self, unread: Unread) -> dict[str, object]:
        return {"what": unread.what, "permission": unread.permission, "error": unread.error, "checks": self._needing(unread)}

    def _needing(self, unread: Unread) -> list[str]:
        """The checks that lacked it."""
        return [each.check.code for each in self._checks if each.missing == unread]

    def lines(self) -> Iterator[str]:
        """Findings first, errors before warnings; then what could not be read, and the checks that passed or were not made."""
        for severity, heading in _HEADINGS.items():
            found = [
                (each.check.code, finding)
                for each in self._checks
                for finding in each.findings
                if finding.severity == severity
            ]
            if found:
                yield heading
                for code, finding in found:
                    yield from _finding_lines(code, finding)
                yield ""
        yield from self._unread_lines()
        yield from self._listed("passed", "Passed")
        yield from self._listed("not checked", "Not checked")
        count = sum([len(each.findings) for each in self._checks])
        yield f"{count} found, {self._count('passed')} checks passed, {self._count('not checked')} not made."

    def _unread_lines(self) -> Iterator[str]:
        if self._unread:
            yield "Not read"
            for each in self._unread:
                lacks = f"the permission {each.permission} is missing" if each.permission else "the request failed"
                needing = ", ".join(self._needing(each)) or "none"
                yield from _wrapped("  ", f"{each.what}: {lacks}. {each.error}")
                yield from _wrapped("    ", f"Checks that need it: {needing}")
            yield ""

    def _listed(self, state: str, heading: str) -> Iterator[str]:
        listed = [each for each in self._checks if each.state == state]
        if listed:
            yield heading
            for each in listed:
                yield from _wrapped("  ", f"{each.check.code}: {each.told}")
            yield ""

    def _count(self, state: str) -> int:
        return len([each for each in self._checks if each.state == state])


def _as_json(checked: Checked) -> dict[str, object]:
    return {
        "code": checked.check.code,
        "title": checked.check.title,
        "state": checked.state,
        "told": checked.told,
        "permission": None if checked.missing is None else checked.missing.permission,
        "findings": [finding._asdict() for finding in checked.findings],
    }


def _finding_lines(code: str, finding: Finding) -> Iterator[str]:
    yield from _wrapped("  ", f"{code}: {finding.what}")
    yield from _wrapped("    ", f"Why: {finding.why}")
    yield from _wrapped("    ", f"Do: {finding.do}")
    yield from _wrapped("    ", f"From: {finding.rests_on}.")


def _wrapped(indent: str, text: str) -> list[str]:
    inner = f"{indent}  "
    return wrap(
        printable(text, _LONGEST),
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=inner,
        break_long_words=False,
        break_on_hyphens=False,
    )


def is_heading(line: str) -> bool:
    return line[:1] not in ("", " ", *"0123456789")
