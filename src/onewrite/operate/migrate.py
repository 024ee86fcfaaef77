"""`onewrite migrate` carries what a store's own code remembers about messages over into ledgers, while consumers run."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeAlias, cast

import typer

from onewrite.batch.handler import handler_of
from onewrite.core.flow import run
from onewrite.core.label import check_attribute, check_name, label_of
from onewrite.core.ledgers import HighWaterMark, SeenIds
from onewrite.core.ledgers.kept import LabelledLedger
from onewrite.errors import ConfigurationError, InvalidMessage, LedgerMismatch, OnewriteError
from onewrite.message import Message, full_name
from onewrite.operate.image import EntityImage
from onewrite.operate.migration import (
    CarriedMark,
    EntityPlan,
    EntityState,
    Ids,
    MigratedStore,
    Origin,
    Versions,
    Visit,
    is_concerned,
    pause,
    visit,
)
from onewrite.operate.modules import HANDLER, call, find
from onewrite.operate.options import AsJson, EndpointUrl, Region, RequiredCollection, RequiredTable, VersionOption, option
from onewrite.operate.report import Exit, end, escape, progress, tell, tell_json
from onewrite.operate.stores import place_of, store_of

_option = partial(option, "MIGRATE")
OldIds: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--ids", metavar="NAME", help="The attribute in which your code keeps a set of ids. Required without --version-in."
    ),
]
Version: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--version-in",
        metavar="NAME",
        help="The attribute in which your code keeps the number of a source's last message; with a * at its end, all that begin so. Required without --ids.",
    ),
]
To: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="Required with --ids: how the ledger keeps them: 14d, 36h or all; 'all text' and the like for readable=True."
    ),
]
Name: TypeAlias = Annotated[str, typer.Option(help="The new ledger's name, if it has one.")]
Source: TypeAlias = Annotated[
    str | None,
    typer.Option(
        help="The source of the messages, as the new consumers' identity gives it: text, with {name} for what the entity holds there. Required without --no-source."
    ),
]
NoSource: TypeAlias = Annotated[
    bool, typer.Option("--no-source", help="The messages have no source. Required without --source.")
]
Drop: TypeAlias = Annotated[
    bool,
    typer.Option("--drop", help="Remove the old attribute where all of it is carried. No old consumer may run any more."),
]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", help="Write. Without it, only say what would be written.")]
Rate: TypeAlias = Annotated[float, _option("rate", "The most entities that are written in a second.", min=0.01)]
Resume: TypeAlias = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Keep in this file how far it has come, and go on there.")
]
Identity: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--identity",
        metavar=HANDLER,
        help="With --records: the new consumers' handler, or their identity, to compare what is carried with what it makes of them.",
    ),
]
Records: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--records",
        metavar="FILE",
        help="With --identity: some of your messages as JSON, as Lambda gets them: an event, a list of records, or one record.",
    ),
]


def migrate(
    *,
    table: RequiredTable = None,
    collection: RequiredCollection = None,
    region: Region = None,
    endpoint_url: EndpointUrl = None,
    ids: OldIds = None,
    version_in: Version = None,
    to: To = None,
    name: Name = "",
    source: Source = None,
    no_source: NoSource = False,
    identity: Identity = None,
    records: Records = None,
    drop: Drop = False,
    yes: Yes = False,
    rate: Rate = 50.0,
    resume: Resume = None,
    as_json: AsJson = False,
    version: VersionOption = False,
) -> None:
    """Carry into ledgers what your own code remembers about messages, entity by entity, while consumers run. docs/migrating.md says when.

    The exit code is 1 if the store cannot be read or written, or if something was found that somebody has to see to.
    """
    options = locals()
    end(lambda: _migrate(options))


def _migrate(options: dict[str, Any]) -> int:
    origin = _origin(options)
    sample = MessageSample.of(options["identity"], options["records"])
    store = store_of(options)
    resume, drop = options["resume"], options["drop"]
    bookmark = resume and Bookmark(resume, f"{place_of(store, options)} {origin} drop={drop}")
    position = bookmark.read() if bookmark else None
    report = MigrationReport(options["yes"], drop, position is not None, sample)
    start = time.monotonic()
    scan = store.scan(origin.attribute, position=position)
    with progress(run(store.count(), store.target), plain=options["as_json"]) as show:
        while (page := run(scan.next(), store.target)) is not None:
            for image in page:
                if not is_concerned(origin, image):
                    continue
                report.add(_visit(store, origin, image, report), origin)
                if wait := pause(report.carried_count + report.dropped_count, time.monotonic() - start, options["rate"]):
                    time.sleep(wait)
            report.read_count = scan.read_count
            show(report.read_count, f"{report.carried_count} carried, {report.dropped_count} dropped")
            # Whoever is killed begins again at the bookmark, or at the beginning.
            if bookmark is not None and options["yes"]:
                bookmark.write(scan.position)
    tell_json(report.details()) if options["as_json"] else tell(report.lines())
    return report.exit_code


def _visit(store: MigratedStore, origin: Origin, image: EntityImage, report: MigrationReport) -> Visit:
    """What becomes of an entity; nothing, where the sample shows that consumers would not recognise what is carried."""
    if why := report.sample and report.sample.differs(origin, image):
        return Visit(image, EntityPlan(EntityState.REFUSED, why=why), image.size)
    return run(visit(store, origin, image, time.time, drops=report.drops, writes=report.writes), store.target)


def _origin(options: dict[str, Any]) -> Origin:
    ids, version_in, to, name = options["ids"], options["version_in"], options["to"], options["name"]
    if (ids is None) == (version_in is None):
        raise ConfigurationError("Give one of --ids and --version-in: what your code keeps now.")
    source: str = options["source"] or ""
    if (options["source"] is None) != options["no_source"]:
        raise ConfigurationError(
            "Give --source or --no-source, as the identity of the new consumers has it: a mark of another source would not be recognised."
        )
    if version_in is not None:
        if to is not None:
            raise ConfigurationError(
                "--to goes with --ids. The number of a last message becomes a mark of HighWaterMark or InSequence."
            )
        if options["collection"] is not None:  # where a "." in a name leads into a document
            check_attribute(version_in)
        return Versions(version_in, HighWaterMark(name=name), source)
    return Ids(ids or "", _seen_ids(to, name), source)


def _seen_ids(to: str | None, name: str) -> SeenIds:
    if to is None:
        raise ConfigurationError(
            "Give --to, the retention of the new ledger, such as 14d. It is what SeenIds() has by default."
        )
    check_name(name)
    try:
        ledger = LabelledLedger(label_of(name), to).ledger
    except LedgerMismatch:
        ledger = None
    if not isinstance(ledger, SeenIds):
        raise ConfigurationError(f"--to {to!r}: give 14d, 36h, 90m, 45s or all; and ' text' behind it for readable=True.")
    return ledger


@dataclass(frozen=True, slots=True)
class MessageSample:
    """What the identity of the new consumers makes of some of their messages."""

    messages: tuple[Message, ...]

    @classmethod
    def of(cls, identity: str | None, records: Path | None) -> MessageSample | None:
        if (identity is None) != (records is None):
            raise ConfigurationError("--identity and --records go together.")
        if identity is None or records is None:
            return None
        named_object = find(identity)
        handler = handler_of(named_object)
        identify: Callable[[Any], object] = named_object if handler is None else attrgetter("_identity")(handler)
        try:
            data: Any = json.loads(records.read_text())
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"--records {records}: no JSON can be read there: {error}") from error
        of_event = cast("dict[str, Any]", data).get("Records", [data]) if isinstance(data, dict) else data
        if not isinstance(of_event, list):
            raise ConfigurationError(f"--records {records}: give an event, a list of records, or one record.")
        answers = call(
            lambda: [identify(record) for record in cast("list[Any]", of_event)], identity, refusal=InvalidMessage
        )
        messages = tuple([answer for answer in answers if isinstance(answer, Message)])
        if not messages:
            raise ConfigurationError(f"--records {records}: the identity makes no message of what is there.")
        return cls(messages)

    def differs(self, origin: Origin, image: EntityImage) -> str:
        """Why consumers would not recognise what is carried, as far as the sample shows it; nothing if they would."""
        now = time.time()
        try:
            carried_marks = origin.carried_marks(image, now)
        except OnewriteError:
            return ""  # the plan says what is wrong with the entity
        known_marks = {carried_mark.mark for carried_mark in carried_marks}
        messages = [carried_mark.message for carried_mark in carried_marks]
        for sample_message in self.messages:
            if isinstance(origin, Ids):
                carried_message = next((message for message in messages if message.id == sample_message.id), None)
                if carried_message is not None and origin.ledger.look(sample_message, now).mark not in known_marks:
                    return f"{full_name(carried_message)} would be carried, and the new consumers call it {full_name(sample_message)}: they would take it for fresh."
            else:
                carried_message = next((message for message in messages if message.source == sample_message.source), None)
                if carried_message is not None and not isinstance(carried_message.sequence, type(sample_message.sequence)):
                    return (
                        f"The mark of {carried_message.source!r} would be {carried_message.sequence!r}, and the new consumers number its messages as {sample_message.sequence!r}: "
                        "the two do not compare."
                    )
        return ""

    def warning(self, sources: set[str]) -> str:
        """What is to be said if no source of the sample is among those for which marks are carried."""
        sample_sources = {message.source for message in self.messages}
        if not sources or sample_sources & sources:
            return ""
        return (
            f"The new consumers' messages in --records are of {_names_of(sample_sources)}, and marks are carried for {_names_of(sources)}: if none of these "
            "are sources of theirs, they would take everything for fresh."
        )


def _names_of(sources: set[str]) -> str:
    return ", ".join([repr(source) if source else "no source" for source in sorted(sources)[:_FEW]])


_FEW = 5  # entities of which nothing is wrong: to see whether it is as meant
_MANY = 100  # of those to which somebody has to see: more have one cause
_AS_MEANT = (EntityState.CARRIED, EntityState.FRESH)
_MOST_MARKS = 3  # marks of an entity


@dataclass(slots=True)
class MigrationReport:
    """Counts of what was found, and of what was written."""

    writes: bool
    drops: bool
    is_resumed: bool
    sample: MessageSample | None
    read_count: int = 0
    marks: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    carried_count: int = 0
    dropped_count: int = 0
    lost_count: int = 0
    refused_in_part: int = 0
    states: Counter[EntityState] = field(default_factory=Counter[EntityState])
    examples: dict[EntityState, list[dict[str, Any]]] = field(default_factory=dict[EntityState, list[dict[str, Any]]])
    sources: set[str] = field(default_factory=set[str])

    def add(self, result: Visit, origin: Origin) -> None:
        plan, image, now = result.plan, result.image, time.time()
        self.states[plan.state] += 1
        self.marks += plan.marks
        self.bytes_before += image.size
        self.bytes_after += result.size
        self.carried_count += result.is_carried
        self.dropped_count += result.is_dropped
        self.lost_count += result.is_lost
        self.refused_in_part += plan.state is EntityState.REFUSED and (result.is_carried or result.is_dropped)
        carried_marks = list[CarriedMark]()
        with suppress(OnewriteError):  # the plan says what is wrong
            carried_marks = origin.carried_marks(image, now)
        if len(self.sources) < _MANY:
            self.sources |= {carried_mark.message.source for carried_mark in carried_marks}
        examples = self.examples.setdefault(plan.state, [])
        if len(examples) < (_FEW if plan.state in _AS_MEANT else _MANY):
            examples.append(
                {
                    "state": plan.state.value,
                    "entity": image.name,
                    "marks": plan.marks,
                    "bytes": {"before": image.size, "after": result.size},
                    "why": plan.why,
                    "written": result.is_carried or result.is_dropped,
                    "carries": [_carries(carried_mark) for carried_mark in carried_marks[:_MOST_MARKS]],
                }
            )

    @property
    def exit_code(self) -> Exit:
        """Is there something that a person has to see to? Nothing to do is there only where the whole store was read."""
        if self._trouble():
            return Exit.FAILED
        return Exit.DONE if self.states or self.is_resumed else Exit.NOTHING_TO_DO

    def details(self) -> dict[str, Any]:
        """For a program."""
        return {
            "read": self.read_count,
            "states": {state.value: self.states[state] for state in EntityState},
            "marks": self.marks,
            "bytes": {"before": self.bytes_before, "after": self.bytes_after},
            "written": {"carried": self.carried_count, "dropped": self.dropped_count, "tried in vain": self.lost_count},
            "examples": [example for examples in self.examples.values() for example in examples],
            "next": self.following(),
        }

    def lines(self) -> Iterator[str]:
        """For a person."""
        counts = [f"{self.states[state]} {state.value}" for state in EntityState if self.states[state]]
        yield f"{self.read_count} read: {', '.join(counts) or 'none has the old attribute'}"
        if counts:
            yield f"marks: {self.marks}; bytes: {self.bytes_before} -> {self.bytes_after}"
            if self.writes:
                yield f"written: {self.carried_count} carried, {self.dropped_count} rid of the old attribute"
        for example in [example for examples in self.examples.values() for example in examples]:
            sizes = "{before} -> {after}".format(**example["bytes"])
            line = f"  {example['state']}  {escape(example['entity'])}  marks: {example['marks']}; bytes: {sizes}"
            yield f"{line}  {escape(example['why'])}".rstrip()
            for mark in example["carries"]:
                source = f"source {escape(mark['source'])}" if mark["source"] else "no source"
                parts = "".join([f", part {escape(part)}" for part in mark["parts"]])
                of = "the last message" if mark["id"] is None else f"message {escape(mark['id'])}"
                yield f"    {of} of {source}{parts}: mark {escape(str(mark['mark']))}"
        yield from self.following()

    def following(self) -> list[str]:
        """What comes next, in sentences."""
        sentence = "This run began at the bookmark: what it says is true of the entities behind it alone."
        return [*self._trouble(), *self._next(), *([sentence] if self.is_resumed else [])]

    def _trouble(self) -> list[str]:
        refused_count, too_large = self.states[EntityState.REFUSED], 0 if self.drops else self.states[EntityState.TOO_LARGE]
        sentence = "Nothing was written there."
        if self.refused_in_part:
            sentence = f"In {self.refused_in_part} of them what could be carried was carried before, and is safe; in the others nothing was written."
        troubles = [
            (
                self.states[EntityState.CHANGED],
                "Changed: {}. Somebody still writes the old attribute there: it has gained something since it was carried.",
            ),
            (refused_count, f"Refused: {{}}, for the reason that is given with each. {sentence}"),
            (
                too_large,
                "Too large: {}. There is no room for the old set and the ledger together. --drop moves the ids in one write.",
            ),
            (self.lost_count, "Tried in vain: {}. Others have written there at every try. Run it again."),
        ]
        warning = "" if self.sample is None else self.sample.warning(self.sources)
        return [*[text.format(count) for count, text in troubles if count], *([warning] if warning else [])]

    def _next(self) -> list[str]:
        due_count = self.states[EntityState.FRESH] + self.states[EntityState.CHANGED]
        carried_count = self.states[EntityState.CARRIED]
        if not self.writes and (due_count or (self.drops and (carried_count or self.states[EntityState.TOO_LARGE]))):
            return ["Nothing was written. Give --yes to write."]
        if due_count:
            return ["Run it again, until it finds nothing to carry and nothing changed."]
        if carried_count and not self.drops:
            sentence = (
                "All that the old attribute holds is in the ledger. Once none of the old consumers runs any more, run it with --drop, which "
                "removes the old attribute."
            )
            return [sentence]
        if not self.states:
            return ["No entity has an attribute of this name now. That is also what a misspelt name looks like."]
        return (
            [] if self._trouble() else ["No entity has the old attribute any more. Consumers can do without a look into it."]
        )


def _carries(carried_mark: CarriedMark) -> dict[str, Any]:
    message, is_number = carried_mark.message, carried_mark.message.sequence is not None
    mark = carried_mark.mark.hex() if isinstance(carried_mark.mark, bytes) else carried_mark.mark
    return {"id": None if is_number else message.id, "source": message.source, "parts": [*message.parts], "mark": mark}


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A file that says how far a migration has come. `of` says which migration it is of: another one would leave entities out."""

    path: Path
    of: str

    def read(self) -> object:
        """Where to go on, or None at the beginning."""
        if not self.path.parent.is_dir():
            raise ConfigurationError(
                f"There is no folder {self.path.parent} to keep the bookmark in. Make it, or give another file."
            )
        if not self.path.exists():
            return None
        try:
            document = cast("dict[str, object]", json.loads(self.path.read_text()))
            of, position = document["of"], document["position"]
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise ConfigurationError(f"{self.path} is no bookmark of a migration. Give another file.") from error
        if of != self.of:
            raise ConfigurationError(f"{self.path} is of another migration: {of}. Give another file, or remove it.")
        return position

    def write(self, position: object) -> None:
        """It replaces the file at once, so whoever is killed leaves the old one or the new one."""
        if position is None:
            self.path.unlink(missing_ok=True)
            return
        fresh = self.path.with_name(f"{self.path.name}.new")
        fresh.write_text(json.dumps({"of": self.of, "position": position}))
        fresh.replace(self.path)
