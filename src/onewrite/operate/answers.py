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


class Prediction(NamedTuple):
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


def answers_to(image: EntityImage, inquiry: Inquiry) -> list[Prediction]:
    """One answer for each ledger that a store may have, given what the operator says and the labels of the entity."""
    if inquiry.ledger is not None:
        return [judge(image, inquiry.ledger, inquiry.message, inquiry.now, image.lookup)]
    ledgers = held_ledgers(image, inquiry.now, inquiry.attribute)
    candidates = [ledger for ledger in ledgers if not ledger.moved_to and inquiry.attribute in (None, ledger.attribute)]
    if inquiry.in_sequence is not None:  # That store counts, whatever others have left here.
        with_label = [ledger for ledger in candidates if ledger.label is not None or ledger.version is not None]
        candidates = [ledger for ledger in with_label if ledger.marks or ledger.version is not None] or with_label
        if not candidates:
            in_sequence = InSequence(inquiry.in_sequence, name=ledger_name(inquiry.attribute or label_of("")))
            return [judge(image, in_sequence, inquiry.message, inquiry.now, image.lookup)]
    return [answer for candidate in candidates for answer in _answers_of(image, inquiry, candidate, ledgers)]


def _answers_of(
    image: EntityImage, inquiry: Inquiry, ledger: EntityLedger, ledgers: list[EntityLedger]
) -> Iterator[Prediction]:
    """A set that is kept by hand says nothing of the stores that look into it: where it makes a difference there are two answers."""
    without_label = [candidate for candidate in ledgers if candidate.label is None and candidate.sets]
    by_hand = tuple([MessageIDs(candidate.attribute) for candidate in without_label if candidate is not ledger])
    try:
        plain, looking = (stores_ledgers(ledger, ledgers, inquiry.in_sequence, more) for more in ((), by_hand))
    except LedgerMismatch as error:
        yield Prediction("", ledger.attribute, "LedgerMismatch", str(error))
        return
    for pair in zip(plain, looking, strict=False):
        answer, second = (judge(image, choice, inquiry.message, inquiry.now, image.lookup) for choice in pair)
        yield answer
        if second.outcome != answer.outcome:
            yield second._replace(
                ledger=f"{second.ledger[:-1]}{'' if second.ledger.endswith('()') else ', '}also=MessageIDs())"
            )


def stores_ledgers(
    ledger: EntityLedger, ledgers: list[EntityLedger], in_sequence: int | None = None, more: tuple[Ledger, ...] = ()
) -> list[Ledger]:
    """The ledgers that a store may have which writes there: the one of the label, with all that came before in its also=."""
    own = kept_as(ledger)
    earlier = [former for former in ledger.ledgers if former.layout != own.layout]
    for origin in moved_here(ledgers, ledger.attribute):
        earlier.extend(origin.ledgers or (SeenIds(name=ledger_name(origin.attribute)),))  # its label alone must be accepted
    also, name = (*earlier, *more), ledger_name(own.attribute)
    if in_sequence is not None:
        other_ledgers = (own, *also) if own.layout != HighWaterMark().layout else also
        return [InSequence(in_sequence, name=name, also=(*other_ledgers, HighWaterMark(name=name)))]
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


def judge(image: EntityImage, ledger: Ledger, message: Message, now: float, lookup: Lookup) -> Prediction:
    """What a store with this ledger answers."""
    try:
        entry = ledger.entry(message, now)
        outcome, why = _outcome(image, entry, message, now, lookup)
    except (LedgerMismatch, InvalidMessage) as error:
        outcome, why = type(error).__name__, str(error)
    return Prediction(_code_of(ledger), ledger.attribute, outcome, why)


def _code_of(ledger: Ledger) -> str:
    """The ledger as the user's code makes it, as far as the entity shows that."""
    match ledger:
        case SeenIds():
            argument = "retention=None" if ledger.retention is None else f"{ledger.layout.removesuffix(' text')}"
            return f"SeenIds({argument}{', readable=True' if ledger.readable else ''})"
        case MessageIDs():
            return "MessageIDs()"
        case SeenNumbers():
            return f"SeenNumbers({ledger.window})"
        case InSequence():
            return f"InSequence(first={ledger.first})"
        case _:
            return type(ledger).__name__ + "()"


def _outcome(image: EntityImage, entry: Entry, message: Message, now: float, lookup: Lookup) -> tuple[str, str]:
    if "" in image.steps:
        raise no_step()
    for attribute in entry.terms.attributes:
        step = image.steps.get(step_mark(attribute, message).hex())
        if step is not None:
            return _explain(answer_to(read_step(step), message, now, None, {}), "")
    refusal = entry.judge(message, lookup, is_gone=TOMBSTONE in image.fields)
    if refusal is None:
        return "Applied", "nothing here keeps it out. If your own condition holds, it takes effect"
    reasons = [_reason(image, change, lookup) for change in entry.changes if change.judge(message, lookup, None) is not None]
    return _explain(refusal, "; ".join(reasons))


def _explain(outcome: Outcome, reasons: str) -> tuple[str, str]:
    match outcome:
        case Busy():
            reason = f"a worker has begun a step of it, and its lease lasts until {moment(outcome.until)}"
        case Uncertain():
            reason = f"a step of it was begun at {moment(outcome.since)}, and never finished. Look its effect up by the key {outcome.key}"
        case Gone():
            reason = "the entity was deleted, and its tombstone refuses every message"
        case Deferred():
            reason = f"number {outcome.expected} of the source is missing; {reasons}"
        case Stale():
            reason = f"{reasons}, which is past it"
        case _:
            reason = reasons
    return type(outcome).__name__, reason


def _reason(image: EntityImage, change: Change, lookup: Lookup) -> str:
    place = image.layout.place_of
    match change:
        case Remember():
            spellings = {change.mark, *change.aliases}
            slots = [
                slot
                for slot in change.sets.live
                if isinstance(marks := lookup(slot), frozenset) and not marks.isdisjoint(spellings)
            ]
            return f"{' and '.join([place(slot) for slot in slots])} has it"
        case Advance():
            mark = lookup(change.slot)
            return f"{place(change.slot)} is {'not there' if mark is ABSENT else repr(mark)}"
        case _:
            block = cast("int", lookup(change.tag))
            return f"{place(change.tag)} has the block that begins with {block * change.size}"
