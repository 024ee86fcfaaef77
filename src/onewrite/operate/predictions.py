"""The outcome that a message would have on an entity, and the reason, judged by the ledgers themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from onewrite.core.effect import make_effect_error
from onewrite.core.judging import judge_message
from onewrite.core.label import TOMBSTONE, USUAL_SET, make_label_name, read_ledger_name
from onewrite.core.ledgers import HighWaterMark, IdSet, InSequence, Ledger, SeenIds
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Remember
from onewrite.core.values import moment
from onewrite.core.write import NO_EFFECT, Image, Write
from onewrite.errors import InvalidMessage, LedgerMismatch
from onewrite.identity.cloudevents import cloudevent_key
from onewrite.message import Message
from onewrite.operate.image import (
    EntityImage,
    EntityLedger,
    choose_ledger,
    find_ledgers,
    find_predecessors,
    find_text_sets,
    make_remember,
    read_id,
)
from onewrite.outcome import Busy, Deferred, Gone, Outcome, Stale, Uncertain


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question about a message: the time to judge it at, and the ledgers to ask."""

    message: Message
    now: float
    attribute: str | None = None
    ledger: Ledger | None = None  # a store's ledger. Without one, the entity's labels decide


class Prediction(NamedTuple):
    """The outcome for a store with this ledger. `outcome` is its name, such as "Duplicate"."""

    ledger: str
    attribute: str
    outcome: str
    why: str

    @property
    def is_known(self) -> bool:
        """Whether the entity has something of this message or its source."""
        return self.outcome not in ("Applied", "Deferred", "InvalidMessage", "LedgerMismatch")


def predict_outcomes(image: EntityImage, inquiry: Inquiry) -> list[Prediction]:
    """Return a prediction for each ledger that a store could use, according to the operator and the entity.

    If the entity shows no ledger, the prediction is for a new one.
    """
    if inquiry.ledger is not None:
        return [judge(image, inquiry.ledger, inquiry.message, inquiry.now)]
    new, sets = make_label_name(""), _list_sets(image, inquiry.message)
    ledgers = find_ledgers(image, inquiry.now, inquiry.attribute, new, *sets)
    new_ledgers = [ledger for ledger in ledgers if ledger.attribute == new]
    if inquiry.attribute is None:
        candidates = [ledger for ledger in ledgers if ledger.is_named and not ledger.moved_to] or new_ledgers
        candidates += [ledger for ledger in ledgers if ledger.attribute in sets and ledger not in candidates]
    else:
        candidates = [ledger for ledger in ledgers if ledger.attribute == inquiry.attribute]
    return [prediction for candidate in candidates for prediction in _list_predictions(image, inquiry, candidate, ledgers)]


def _list_sets(image: EntityImage, message: Message) -> list[str]:
    """Return the attributes in which an `IdSet`, which doesn't have a label, could hold the message.

    They are the usual attribute, and each set of strings with this ID.
    """
    change = make_remember(IdSet(USUAL_SET), message, 0)
    marks = {change.mark, *change.aliases}
    usual = [USUAL_SET] if USUAL_SET in image.fields else []
    holders = [name for name, ids in find_text_sets(image).items() if not marks.isdisjoint(ids)]
    return list(dict.fromkeys([*usual, *holders]))


def _list_predictions(
    image: EntityImage, inquiry: Inquiry, ledger: EntityLedger, ledgers: list[EntityLedger]
) -> Iterator[Prediction]:
    """Yield a prediction for each kind of ledger that the label can belong to."""
    try:
        choices = list_possible_ledgers(ledger, ledgers)
    except LedgerMismatch as error:
        # A mismatch blocks every message without an open effect, and it explains more than the message's own outcome.
        prediction = judge(image, SeenIds(name=read_ledger_name(ledger.attribute)), inquiry.message, inquiry.now)
        why = str(error) if prediction.outcome == "LedgerMismatch" else prediction.why
        yield prediction._replace(ledger="", why=why)
        return
    for choice in choices:
        prediction = judge(image, choice, inquiry.message, inquiry.now)
        yield prediction._replace(ledger="") if ledger.is_new else prediction


def list_possible_ledgers(ledger: EntityLedger, ledgers: list[EntityLedger]) -> list[Ledger]:
    """Return the ledgers that a store can have here: the label's own, with all earlier ones in `previous=` if it has one."""
    own = choose_ledger(ledger)
    earlier = [former for former in ledger.ledgers if former.layout != own.layout]
    for origin in find_predecessors(ledgers, ledger.attribute):
        # If an attribute doesn't hold a ledger anymore, only its label must be accepted.
        earlier.extend(origin.ledgers or (SeenIds(name=read_ledger_name(origin.attribute)),))
    previous, name = tuple(earlier), read_ledger_name(own.attribute)
    match own:
        case IdSet():
            return [IdSet(own.attribute, previous=previous)]
        case SeenIds():
            return [SeenIds(own.retention, name=name, readable=own.readable, previous=previous)]
        case _:  # both kinds have the label of marks, but InSequence refuses an entity with an earlier ledger
            return [HighWaterMark(name=name, previous=previous), InSequence(name=name)]


def resolve_event(image: EntityImage, inquiry: Inquiry) -> Inquiry:
    """Return an inquiry about the CloudEvent with this ID and source, if the entity knows that one only.

    A CloudEvent's log line shows its own ID and source. `cloudevent()` derives the message's ID from both.
    """
    message = inquiry.message
    if not message.source:
        return inquiry
    variant = replace(inquiry, message=replace(message, id=cloudevent_key(message.source, message.id)))
    is_known, is_event = [
        any(prediction.is_known for prediction in predict_outcomes(image, candidate)) for candidate in (inquiry, variant)
    ]
    return variant if is_event and not is_known else inquiry


_MAX_SOURCES = 10  # that a hint names


def list_hints(image: EntityImage, inquiry: Inquiry) -> tuple[str, ...]:
    """Return advice for an operator whose message the entity doesn't know: other names that it can have."""
    sources = sorted(
        {
            source
            for ledger in find_ledgers(image, inquiry.now, inquiry.attribute)
            for source in [
                *[mark.source for mark in ledger.marks],
                *[read_id(text).source for id_set in ledger.sets for text in id_set.ids],
            ]
            if source
        }
    )
    hint = (
        "A message's ID is unique only with its source and parts. Its log line shows them: pass --source and "
        "--part if it has any."
    )
    if not sources or inquiry.message.source in sources:
        return () if inquiry.message.source else (hint,)
    examples = ", ".join([repr(source) for source in sources[:_MAX_SOURCES]])
    more = f" and {len(sources) - _MAX_SOURCES} more" if len(sources) > _MAX_SOURCES else ""
    return (f"The entity knows the sources {examples}{more}, but not {inquiry.message.source!r}.", hint)


def judge(image: EntityImage, ledger: Ledger, message: Message, now: float) -> Prediction:
    """Return the outcome for a store with this ledger."""
    try:
        entry = ledger.entry(message, now)
        _check_numbers(image, entry)
        outcome, why = _determine_outcome(image, entry, message, now)
    except (LedgerMismatch, InvalidMessage) as error:
        outcome, why = type(error).__name__, str(error)
    return Prediction(_format_code(ledger), ledger.attribute, outcome, why)


def _check_numbers(image: EntityImage, entry: Entry) -> None:
    """Raise if the engine can't store a mark of the message, as a write does."""
    for change in entry.checked:
        if isinstance(change.mark, int) and abs(change.mark) > image.layout.max_number:
            raise InvalidMessage(
                f"Sequence {change.mark} is too large for {image.layout.engine}. Pass onewrite.sortable(n)."
            )


def _format_code(ledger: Ledger) -> str:
    """Return the ledger as code, with the arguments that the entity shows."""
    match ledger:
        case SeenIds():
            argument = "retention=None" if ledger.retention is None else ledger.layout.removesuffix(" text")
            return f"SeenIds({argument}{', readable=True' if ledger.readable else ''})"
        case IdSet():
            return f"IdSet({ledger.attribute!r})"
        case InSequence():
            return f"InSequence(first={ledger.first})"
        case _:
            return type(ledger).__name__ + "()"


def _determine_outcome(image: EntityImage, entry: Entry, message: Message, now: float) -> tuple[str, str]:
    """Return the outcome and its reason, as the engines determine them after a refused write."""
    if "" in image.effects:
        raise make_effect_error()
    is_gone = TOMBSTONE in image.fields
    stored = Image(
        not is_gone,
        is_gone,
        entity=None,
        ledger=image.lookup,
        effects=image.effects,
        fields=image.fields,
        is_null_absent=True,
    )
    refusal = judge_message(Write((message,), {}, now, entry, NO_EFFECT), stored)
    if refusal is None:
        return "Applied", "no ledger here refuses it. If your own condition holds, it takes effect"
    if isinstance(refusal, Busy | Uncertain):  # an open effect decides before the ledger
        return _describe_refusal(refusal, "")
    reasons = [
        _describe_reason(image, change) for change in entry.checked if change.judge(message, image.lookup) is not None
    ]
    return _describe_refusal(refusal, "; ".join(reasons))


def _describe_refusal(outcome: Outcome, reasons: str) -> tuple[str, str]:
    match outcome:
        case Busy():
            reason = f"a worker has begun an effect of it, with a lease until {moment(outcome.until)}"
        case Uncertain():
            reason = (
                f"an effect of it was begun at {moment(outcome.since)} and never finished. Look it up with the key "
                f"{outcome.key}"
            )
        case Gone():
            reason = "the entity was deleted, and its tombstone refuses every message"
        case Deferred():
            reason = f"number {outcome.expected} of the source is missing; {reasons}"
        case Stale():
            reason = f"{reasons}, which is past it"
        case _:
            reason = reasons
    return type(outcome).__name__, reason


def _describe_reason(image: EntityImage, change: Change) -> str:
    place, lookup = image.layout.place_of, image.lookup
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
