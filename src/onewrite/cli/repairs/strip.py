"""`onewrite strip` removes what onewrite keeps in the entities of a table or collection, for somebody who leaves it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.cli import operator_acts
from onewrite.cli.command_line import AsJson, VersionOption
from onewrite.cli.logs import log_to_stderr
from onewrite.cli.progress import progress
from onewrite.cli.repairs.options import Attribute, Operator, Repairs, Yes, end, repairs_of
from onewrite.cli.repairs.text import shown
from onewrite.cli.stores import CollectionUrl, TableName
from onewrite.flow import run
from onewrite.label import BY_HAND
from onewrite.repair.holdings import holds_set_by_hand
from onewrite.repair.image import Image
from onewrite.repair.strip import HeldBack, Stripped, Stripping
from onewrite.repair.strip import strip as stripping

_MOST = 20  # entities that were held back, of which a person is told the reason; --json has 1000
_MOST_KEPT = 1000
_WARNING = (
    "Nothing was written. Stop all consumers and relays, and give the same command --yes. Afterwards nothing tells a message that is delivered again from "
    "a fresh one."
)
_TRIES = 3  # an entity that changes more often than that has a writer that was not stopped

PageSize: TypeAlias = Annotated[
    int,
    typer.Option("--page-size", min=1, help="Entities that are read at once. A smaller one takes less capacity a second."),
]


@dataclass(slots=True)
class Count:
    """What a pass has found, and done. `changed`: entities that another writer changed between the read and the write; `sets`: those
    with a set of ids that is the user's own.
    """

    read: int = 0
    clean: int = 0
    stripped: int = 0
    deleted: int = 0
    changed: int = 0
    bytes: int = 0
    sets: int = 0
    held_back: int = 0
    reasons: list[HeldBack] = field(default_factory=list[HeldBack])

    def add(self, found: Stripping) -> None:
        """One more entity."""
        self.read += 1
        match found:
            case None:
                self.clean += 1
            case HeldBack():
                self.held_back += 1
                self.reasons.extend([found] if len(self.reasons) < _MOST_KEPT else [])
            case _:
                self.bytes += found.size
                self.deleted += found.plan.deletes
                self.stripped += not found.plan.deletes

    def said(self, *, yes: bool) -> str:
        """In a few words, while it goes on."""
        return f"{self.stripped + self.deleted} {'done' if yes else 'to do'}, {self.held_back} left as they are"

    def details(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("read", "clean", "stripped", "deleted", "changed", "bytes", "sets")}
        reasons = [{"entity": each.named, "why": each.why} for each in self.reasons]
        return {**counts, "held_back": self.held_back, "reasons": reasons}


def strip(
    *,
    table: TableName = None,
    collection: CollectionUrl = None,
    attribute: Attribute = None,
    page_size: PageSize = 100,
    yes: Yes = False,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Remove ledgers, empty outboxes and tombstones from all entities. Stop all consumers first.

    It counts, and writes only with --yes, entity by entity. What has pending events or an open step is left as it is, and told: then the exit
    code is 1. It may be stopped and run again at any time.
    """
    given = locals()
    end(lambda: _strip(given))


def _strip(given: dict[str, Any]) -> int:
    repairs, count, yes = repairs_of(given["table"], given["collection"]), Count(), given["yes"]
    if yes:
        log_to_stderr()
    try:
        with progress(run(repairs.count(), repairs.target), plain=given["as_json"]) as shown:
            for image in _entities(repairs, given["page_size"]):
                _strip_one(repairs, image, given["attribute"], count, yes=yes)
                shown(count.read, count.said(yes=yes))
    finally:  # what was done before somebody stopped it, or the database failed, is done as well
        if yes:
            text = f"strip: {count.stripped} entities were stripped, and {count.deleted} tombstones deleted."
            operator_acts.record(text, given["operator"] or operator_acts.this_user(), {"act": "strip", **count.details()})
    _tell(count, yes=yes, as_json=given["as_json"])
    return int(count.held_back > 0)


def _entities(repairs: Repairs, page_size: int) -> Iterator[Image]:
    pages = repairs.pages(page_size)
    while (page := run(pages.next(), repairs.target)) is not None:
        yield from page


def _strip_one(repairs: Repairs, image: Image, attribute: str | None, count: Count, *, yes: bool) -> None:
    current: Image | None = image
    count.sets += holds_set_by_hand(image)
    for _ in range(_TRIES):
        found = None if current is None else stripping(current, attribute)  # None: it was deleted meanwhile
        if current is None or not isinstance(found, Stripped) or not yes or _is_written(repairs, current, found):
            count.add(found)
            return
        count.changed += 1
        current = run(repairs.read(image.key), repairs.target)
    count.add(HeldBack(image.named, "It is still being written to: stop its consumers, and run this again."))


def _is_written(repairs: Repairs, image: Image, found: Stripped) -> bool:
    return run(repairs.write(image, found.plan), repairs.target) == len(repairs.calls(image, found.plan))


def _tell(count: Count, *, yes: bool, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"written": yes, **count.details()}, indent=2) + "\n")
        return
    verb = "were" if yes else "would be"
    lines = [
        f"{count.read} entities: {count.clean} have nothing of onewrite's.",
        f"{count.stripped} {verb} stripped, and {count.deleted} {verb} deleted because only a tombstone is left of them: {count.bytes} bytes.",
    ]
    if count.sets:
        lines.append(f"{count.sets} have a set of ids in {BY_HAND}, which is an attribute of yours: it stays.")
    if count.changed:
        lines.append(
            f"{count.changed} times an entity was changed between the read and the write: a consumer still writes. Stop it."
        )
    lines.extend([f"Left as it is: {each.named}: {shown(each.why)}" for each in count.reasons[:_MOST]])
    if (more := count.held_back - _MOST) > 0:
        lines.append(f"{more} more are left as they are. --json shows up to {_MOST_KEPT} of them.")
    if not yes:
        lines.append(_WARNING)
    sys.stdout.writelines([f"{line}\n" for line in lines])
