"""What a delivery of a message would get from an entity, and why. The ledgers themselves judge. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, cast

from onewrite.core.event import moment
from onewrite.core.label import TOMBSTONE, label_of, ledger_name
from onewrite.core.ledgers import HighWaterMark, InSequence, Ledger, MessageIDs, SeenIds, SeenNumbers
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Lookup, Remember
from onewrite.core.step import answer_to, no_step, read_step, step_mark
from onewrite.errors import ConfigurationError, InvalidMessage, LedgerMismatch
from onewrite.message import Message
from onewrite.operate.image import EntityImage, EntityLedger, held_ledgers, kept_as, moved_here
from onewrite.outcome import Busy, Deferred, Gone, Outcome, Stale, Uncertain


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A message, the moment at which it is asked about, and which ledgers are asked."""

    message: Message
    now: float
    attribute: str | None = None
    in_sequence: int | None = None  # marks are those of an InSequence that begins with this number
    ledger: Ledger | None = None  # that of a store; without it the labels tell


class Expected(NamedTuple):
    """What a delivery gets from a store with this ledger. `outcome` is its name, as "Duplicate"."""

    ledger: str
    attribute: str
    outcome: str
    why: str

    @property
    def is_applied(self) -> bool:
        return self.outcome == "Applied"

    @property
    def is_known(self) -> bool:
        """Whether the entity has something of this very message, or of its source."""
        return self.outcome not in ("Applied", "Deferred", "InvalidMessage", "LedgerMismatch")


def expected(image: EntityImage, asked: Inquiry) -> list[Expected]:
    """One answer for each ledger that a store may have, given what the operator says and the labels of the entity."""
    if asked.ledger is not None:
        return [judged(image, asked.ledger, asked.message, asked.now, image.lookup)]
    every = held_ledgers(image, asked.now, asked.attribute)
    held = [each for each in every if not each.moved_to and asked.attribute in (None, each.attribute)]
    if asked.in_sequence is not None:  # That store counts, whatever others have left here.
        labelled = [each for each in held if each.kept is not None or each.version is not None]
        held = [each for each in labelled if each.marks or each.version is not None] or labelled
        if not held:
            ledger = InSequence(asked.in_sequence, name=ledger_name(asked.attribute or label_of("")))
            return [judged(image, ledger, asked.message, asked.now, image.lookup)]
    return [answer for each in held for answer in _expected_of(image, asked, each, every)]


def _expected_of(image: EntityImage, asked: Inquiry, held: EntityLedger, every: list[EntityLedger]) -> Iterator[Expected]:
    """A set that is kept by hand says nothing of the stores that look into it: where it makes a difference there are two answers."""
    by_hand = tuple([MessageIDs(each.attribute) for each in every if each.kept is None and each.sets and each is not held])
    try:
        alone, looking = (stores_ledgers(held, every, asked.in_sequence, more) for more in ((), by_hand))
    except LedgerMismatch as error:
        yield Expected("", held.attribute, "LedgerMismatch", str(error))
        return
    for ledger, other in zip(alone, looking, strict=False):
        answer, second = (judged(image, each, asked.message, asked.now, image.lookup) for each in (ledger, other))
        yield answer
        if second.outcome != answer.outcome:
            yield second._replace(
                ledger=f"{second.ledger[:-1]}{'' if second.ledger.endswith('()') else ', '}also=MessageIDs())"
            )


def stores_ledgers(
    held: EntityLedger, every: list[EntityLedger], in_sequence: int | None = None, more: tuple[Ledger, ...] = ()
) -> list[Ledger]:
    """The ledgers that a store may have which writes there: the one of the label, with all that came before in its also=."""
    own = kept_as(held)
    before = [ledger for ledger in held.ledgers if ledger.layout != own.layout]
    for moved in moved_here(every, held.attribute):
        before.extend(moved.ledgers or (SeenIds(name=ledger_name(moved.attribute)),))  # its label alone must be accepted
    also, name = (*before, *more), ledger_name(own.attribute)
    if in_sequence is not None:
        others = (own, *also) if own.layout != HighWaterMark().layout else also
        return [InSequence(in_sequence, name=name, also=(*others, HighWaterMark(name=name)))]
    match own:
        case MessageIDs():
            return [MessageIDs(own.attribute, also=also)]
        case SeenIds():
            return [SeenIds(own.retention, name=name, readable=own.readable, also=also)]
        case SeenNumbers():
            return [SeenNumbers(own.window, name=name, also=also)]
        case _:  # both keep marks, and nobody has said which it is
            marks = HighWaterMark(name=name, also=also)
            try:
                return [marks, InSequence(name=name, also=also)]
            except ConfigurationError:  # no store is made so
                return [marks]


def judged(image: EntityImage, ledger: Ledger, message: Message, now: float, held: Lookup) -> Expected:
    """What a store with this ledger answers."""
    try:
        entry = ledger.entry(message, now)
        outcome, why = _outcome(image, entry, message, now, held)
    except (LedgerMismatch, InvalidMessage) as error:
        outcome, why = type(error).__name__, str(error)
    return Expected(_named(ledger), ledger.attribute, outcome, why)


def _named(ledger: Ledger) -> str:
    """The ledger as the user's code makes it, as far as the entity shows that."""
    match ledger:
        case SeenIds():
            kept = "retention=None" if ledger.retention is None else f"{ledger.layout.removesuffix(' text')}"
            return f"SeenIds({kept}{', readable=True' if ledger.readable else ''})"
        case MessageIDs():
            return "MessageIDs()"
        case SeenNumbers():
            return f"SeenNumbers({ledger.window})"
        case InSequence():
            return f"InSequence(first={ledger.first})"
        case _:
            return type(ledger).__name__ + "()"


def _outcome(image: EntityImage, entry: Entry, message: Message, now: float, held: Lookup) -> tuple[str, str]:
    if "" in image.steps:
        raise no_step()
    for attribute in entry.terms.attributes:
        stored = image.steps.get(step_mark(attribute, message).hex())
        if stored is not None:
            return _told(answer_to(read_step(stored), message, now, None, {}), "")
    refusal = entry.judge(message, held, is_gone=TOMBSTONE in image.fields)
    if refusal is None:
        return "Applied", "nothing here keeps it out. If your own condition holds, it takes effect"
    reasons = [_reason(image, change, held) for change in entry.changes if change.judge(message, held, None) is not None]
    return _told(refusal, "; ".join(reasons))


def _told(outcome: Outcome, reasons: str) -> tuple[str, str]:
    match outcome:
        case Busy():
            why = f"a worker has begun a step of it, and its lease lasts until {moment(outcome.until)}"
        case Uncertain():
            why = f"a step of it was begun at {moment(outcome.since)}, and never finished. Look its effect up by the key {outcome.key}"
        case Gone():
            why = "the entity was deleted, and its tombstone refuses every message"
        case Deferred():
            why = f"number {outcome.expected} of the source is missing; {reasons}"
        case Stale():
            why = f"{reasons}, which is past it"
        case _:
            why = reasons
    return type(outcome).__name__, why


def _reason(image: EntityImage, change: Change, held: Lookup) -> str:
    place = image.layout.place_of
    match change:
        case Remember():
            spellings = {change.mark, *change.aliases}
            slots = [
                slot
                for slot in change.sets.live
                if isinstance(marks := held(slot), frozenset) and not marks.isdisjoint(spellings)
            ]
            return f"{' and '.join([place(slot) for slot in slots])} has it"
        case Advance():
            mark = held(change.slot)
            return f"{place(change.slot)} is {'not there' if mark is ABSENT else repr(mark)}"
        case _:
            block = cast("int", held(change.tag))
            return f"{place(change.tag)} has the block that begins with {block * change.size}"
