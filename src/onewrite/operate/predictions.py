"""The outcome that a message would have on an entity, and the reason, judged by the ledgers themselves. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from onewrite.core.effect import make_effect_error
from onewrite.core.judging import judge_message
from onewrite.core.label import TOMBSTONE, USUAL_SET, is_ours, make_label_name, read_ledger_name
from onewrite.core.ledgers import HighWaterMark, IdSet, InSequence, Ledger, SeenIds
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Remember
from onewrite.core.values import moment
from onewrite.core.write import NO_EFFECT, Image, Write
from onewrite.errors import InvalidMessage, LedgerMismatch
from onewrite.message import Message
from onewrite.operate.image import (
    EntityImage,
    EntityLedger,
    choose_ledger,
    find_ledgers,
    find_predecessors,
    find_text_sets,
    make_remember,
)
from onewrite.outcome import Busy, Deferred, Gone, Outcome, Stale, Uncertain


@dataclass(frozen=True, slots=True)
class Inquiry:
    """A question about a message: the time to judge it at, and the ledgers to ask."""

    message: Message
    now: float
    attribute: str | None = None
    in_sequence: int | None = None  # the marks belong to an InSequence with this first number
    ledger: Ledger | None = None  # a store's ledger; without it, the labels decide


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
    if inquiry.in_sequence is not None:  # an InSequence store counts, whatever else is in the entity
        with_label = [ledger for ledger in candidates if is_ours(ledger.attribute)]
        with_marks = [ledger for ledger in with_label if ledger.marks or ledger.version is not None]
        candidates = with_marks or with_label or new_ledgers
    return [prediction for candidate in candidates for prediction in _list_predictions(image, inquiry, candidate, ledgers)]


def _list_sets(image: EntityImage, message: Message) -> list[str]:
    """Return the attributes in which an `IdSet` could hold the message: the usual attribute and each set with this ID.

    An `IdSet` has no label, so its attribute isn't known.
    """
    change = make_remember(IdSet(USUAL_SET), message, 0)
    marks = {change.mark, *change.aliases}
    usual = [USUAL_SET] if USUAL_SET in image.fields else []
    holders = [name for name, ids in find_text_sets(image).items() if not marks.isdisjoint(ids)]
    return list(dict.fromkeys([*usual, *holders]))


def _list_predictions(
    image: EntityImage, inquiry: Inquiry, ledger: EntityLedger, ledgers: list[EntityLedger]
) -> Iterator[Prediction]:
    """Yield the predictions of a ledger.

    A caller's own set doesn't show which stores look into it. If that matters, there are two predictions.
    """
    sets = [IdSet(other.attribute) for other in ledgers if not is_ours(other.attribute) and other is not ledger]
    try:
        choices = list_possible_ledgers(ledger, ledgers, inquiry.in_sequence)
    except LedgerMismatch as error:
        # A mismatch blocks every message without an open effect, and it explains more than the message's own outcome.
        prediction = judge(image, SeenIds(name=read_ledger_name(ledger.attribute)), inquiry.message, inquiry.now)
        why = str(error) if prediction.outcome == "LedgerMismatch" else prediction.why
        yield prediction._replace(ledger="", why=why)
        return
    for choice in choices:
        code = "" if ledger.is_new and inquiry.in_sequence is None else _format_code(choice)
        prediction = judge(image, choice, inquiry.message, inquiry.now)._replace(ledger=code)
        yield prediction
        for also in () if isinstance(choice, InSequence) else sets:  # an InSequence store has no previous=
            with_set = replace(cast("Any", choice), previous=(*cast("tuple[Ledger, ...]", choice.previous), also))
            second = judge(image, with_set, inquiry.message, inquiry.now)
            if second.outcome != prediction.outcome:
                start = "a new ledger ("
                if code:  # without its closing parenthesis
                    start = code[:-1] if code.endswith("()") else f"{code[:-1]}, "
                yield second._replace(ledger=f"{start}previous={_format_code(also)})")


def list_possible_ledgers(ledger: EntityLedger, ledgers: list[EntityLedger], in_sequence: int | None = None) -> list[Ledger]:
    """Return the ledgers that a store could have here: the label's ledger, with all earlier ones in its previous= if it has one."""
    own = choose_ledger(ledger)
    earlier = [former for former in ledger.ledgers if former.layout != own.layout]
    for origin in find_predecessors(ledgers, ledger.attribute):
        # If a place has no ledger left, only its label must be accepted.
        earlier.extend(origin.ledgers or (SeenIds(name=read_ledger_name(origin.attribute)),))
    also, name = tuple(earlier), read_ledger_name(own.attribute)
    if in_sequence is not None:
        # An InSequence store has no previous=: it refuses an entity with another ledger.
        return [InSequence(in_sequence, name=name)]
    match own:
        case IdSet():
            return [IdSet(own.attribute, previous=also)]
        case SeenIds():
            return [SeenIds(own.retention, name=name, readable=own.readable, previous=also)]
        case _:  # both kinds keep marks, and the operator didn't say which this is
            return [HighWaterMark(name=name, previous=also), InSequence(name=name)]


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
    """Return the ledger as code, as far as the entity shows its arguments."""
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
