"""`onewrite strip` removes what onewrite keeps in the entities of a table or collection, for somebody who leaves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias

import typer

from onewrite.core.flow import run
from onewrite.core.label import BY_HAND, OUTBOX, TOMBSTONE, is_label_name, other_version
from onewrite.core.step import Step, found_step
from onewrite.errors import ConfigurationError, LedgerMismatch
from onewrite.operate.image import (
    Edit,
    EntityImage,
    EntityStore,
    as_read,
    held_ledgers,
    holds_set_by_hand,
    kept_as,
    later_labels,
)
from onewrite.operate.options import (
    AsJson,
    Attribute,
    EndpointUrl,
    Operator,
    Region,
    RequiredCollection,
    RequiredTable,
    VersionOption,
    Yes,
)
from onewrite.operate.report import count_of, end, escape, log_to_stderr, progress, record, tell, tell_json
from onewrite.operate.stores import store_of


@dataclass(frozen=True, slots=True)
class HeldBack:
    """An entity that is left as it is, and why."""

    name: str
    why: str


@dataclass(frozen=True, slots=True)
class Removal:
    """What is removed from an entity, in bytes, and how. `edit.deletes`: it is a tombstone, and goes as a whole."""

    edit: Edit
    size: int


Stripping: TypeAlias = Removal | HeldBack | None  # None: there is nothing of ours in it


def stripping(image: EntityImage, attribute: str | None) -> Stripping:
    """Remove all that is ours, or the ledger or the outbox of one attribute."""
    fields = image.our_fields if attribute is None else image.fields_of(attribute)
    why = _held_back(image, attribute)
    if why is not None:
        return HeldBack(image.name, why)
    if not fields:
        return None
    if TOMBSTONE in image.fields and attribute is None:
        return Removal(Edit((TOMBSTONE,), deletes=True), image.size)  # which lets no guarded write in
    ledgers = [
        ledger for ledger in held_ledgers(image, 0) if ledger.label is not None and attribute in (None, ledger.attribute)
    ]
    outboxes = [name for label in outboxes_of(image) if attribute in (None, label) for name in OUTBOX]
    edit = Edit(as_read(image, ledgers, fields=[*fields, *outboxes]), removes=fields)
    return Removal(edit, image.bytes_of(fields))


def _held_back(image: EntityImage, attribute: str | None) -> str | None:
    """Why nothing may be removed: something is under way, or is not understood, or is not ours."""
    for label in later_labels(image.fields):
        if attribute in (None, label):
            return other_version(label, image.fields[label])
    ledgers = [ledger for ledger in held_ledgers(image, 0) if attribute in (None, ledger.attribute)]
    for ledger in ledgers:
        try:
            _ = kept_as(ledger) if ledger.moved_to is None else None
        except LedgerMismatch as error:
            return str(error)
    outboxes = [OUTBOX.events for label in outboxes_of(image) if attribute in (None, label)]
    if pending := [name for name in outboxes if image.fields.get(name)]:
        return f"Events are pending in {pending[0]!r}: let the relay publish them first."
    if any(attribute in (None, step_ledger(value)) for value in image.steps.values()):
        return "A step is open: let it finish first, or release it. `onewrite steps` lists open steps."
    return None


def step_ledger(value: object) -> str | None:
    """By what the ledger is known that the step's finish writes; None if it cannot be read."""
    step = found_step("", value).step
    return step.ledger if isinstance(step, Step) else None


def outboxes_of(image: EntityImage) -> list[str]:
    """By what the entity's outbox is known, if it has one."""
    return [OUTBOX.label] if OUTBOX.label in image.fields else []


_MOST = 20  # entities that were held back, of which a person is told the reason; --json has 1000
_MOST_KEPT = 1000
_WARNING = (
    "Nothing was written. Stop all consumers and relays, and give the same command --yes. Afterwards nothing distinguishes a message that is delivered again "
    "from a fresh one."
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

    def add(self, result: Stripping) -> None:
        """One more entity."""
        self.read += 1
        match result:
            case None:
                self.clean += 1
            case HeldBack():
                self.held_back += 1
                self.reasons.extend([result] if len(self.reasons) < _MOST_KEPT else [])
            case _:
                self.bytes += result.size
                self.deleted += result.edit.deletes
                self.stripped += not result.edit.deletes

    def progress_text(self, *, yes: bool) -> str:
        """In a few words, while it goes on."""
        return f"{self.stripped + self.deleted} {'done' if yes else 'to do'}, {self.held_back} left as they are"

    def details(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("read", "clean", "stripped", "deleted", "changed", "bytes", "sets")}
        reasons = [{"entity": reason.name, "why": reason.why} for reason in self.reasons]
        return {**counts, "held_back": self.held_back, "reasons": reasons}


def strip(
    *,
    table: RequiredTable = None,
    collection: RequiredCollection = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    attribute: Attribute = None,
    page_size: PageSize = 100,
    yes: Yes = False,
    operator: Operator = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Remove ledgers, empty outboxes and tombstones from all entities. Stop all consumers first.

    It counts, and writes only with --yes, entity by entity. What has pending events or an open step is left as it is, and reported: then the exit
    code is 1. It may be stopped and run again at any time.
    """
    options = locals()
    end(lambda: _strip(options))


def _strip(options: dict[str, Any]) -> int:
    attribute = options["attribute"]
    if attribute not in (None, OUTBOX.label) and not is_label_name(attribute):
        raise ConfigurationError(
            f"--attribute {attribute}: give where the label of a ledger stands, such as ow_l, or {OUTBOX.label}. An attribute of yours, "
            "whatever MessageIDs keeps there, you remove by yourself."
        )
    store, count, yes = store_of(options), Count(), options["yes"]
    if yes:
        log_to_stderr()
    try:
        with progress(run(store.count(), store.target), plain=options["as_json"]) as show:
            scan = store.scan(size=options["page_size"])
            while (page := run(scan.next(), store.target)) is not None:
                for image in page:
                    _strip_one(store, image, attribute, count, yes=yes)
                    show(count.read, count.progress_text(yes=yes))
    finally:  # what was done before somebody stopped it, or the database failed, is done as well
        if yes:
            text = f"strip: {count_of(count.stripped, 'entity', 'entities')} stripped, {count_of(count.deleted, 'tombstone')} deleted."
            record(text, options["operator"], {"act": "strip", **count.details()})
    _tell(count, yes=yes, as_json=options["as_json"])
    return int(count.held_back > 0)


def _strip_one(store: EntityStore, image: EntityImage, attribute: str | None, count: Count, *, yes: bool) -> None:
    current: EntityImage | None = image
    count.sets += holds_set_by_hand(image)
    for _ in range(_TRIES):
        result = None if current is None else stripping(current, attribute)  # None: it was deleted meanwhile
        if current is None or not isinstance(result, Removal) or not yes:
            count.add(result)
            return
        if run(store.write(current, result.edit), store.target) == len(store.calls(current, result.edit)):
            count.add(result)
            return
        count.changed += 1
        current = run(store.read(image.key), store.target)
    count.add(HeldBack(image.name, "It is still being written to: stop its consumers, and run this again."))


def _tell(count: Count, *, yes: bool, as_json: bool) -> None:
    if as_json:
        tell_json({"written": yes, **count.details()})
        return
    was, were = ("was", "were") if yes else ("would be", "would be")
    lines = [
        f"{count_of(count.read, 'entity', 'entities')}, {count.clean} with nothing of onewrite's.",
        f"{count_of(count.stripped, f'entity {was}', f'entities {were}')} stripped, and {count_of(count.deleted, f'tombstone {was}', f'tombstones {were}')} deleted: {count_of(count.bytes, 'byte')}.",
    ]
    if count.sets:
        lines.append(
            f"{count_of(count.sets, 'entity has', 'entities have')} a set of ids in {BY_HAND}, which is an attribute of yours: it stays."
        )
    if count.changed:
        lines.append(
            f"An entity was changed {count_of(count.changed, 'time')} between the read and the write: a consumer still writes. Stop it."
        )
    lines.extend([f"Left as it is: {reason.name}: {escape(reason.why)}" for reason in count.reasons[:_MOST]])
    if (more := count.held_back - _MOST) > 0:
        lines.append(
            f"{count_of(more, 'more is left as it is', 'more are left as they are')}. --json shows up to {_MOST_KEPT} of them."
        )
    if not yes:
        lines.append(_WARNING)
    tell(lines)
