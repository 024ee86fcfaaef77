"""A guarded write, on any engine: the caller's own call with parts beside it, and what it means that the entity refused it. Pure.

The parts are the ledger, a step, the outbox, the token of the call and what stays after a delete. An update, a record, a creation, a delete, a
fold, the begin and the finish of a step, and a participant of a transaction are one write with different parts. `request.py` of an engine writes
down what each part asks of the entity and what it adds to it. What a part reads in a refusal is here, and so is which of several refusals counts:

    the write has landed           Applied, from an earlier try whose answer was lost: told by the token, on DynamoDB alone
    a step of the message is open  Busy, Uncertain; a delete is kept off by a step of any message
    the ledger                     Duplicate, then Gone, Stale, Deferred
    another outbox                 raises
    nothing of ours                Missing, or Rejected: the caller's own condition

The finish of a step asks for the step before all else: see `judge_finish`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.event import Emission
from onewrite.core.label import TOKEN, TOMBSTONE, check_outbox
from onewrite.core.ledgers.entry import Advance, Entry, Lookup
from onewrite.core.step import Step, answer_to, read_step, step_mark
from onewrite.core.tombstone import Tombstone, is_tombstone_of
from onewrite.errors import EntityTooLarge
from onewrite.message import Message
from onewrite.outcome import Applied, Busy, Deferred, Entity, Missing, Outcome, Rejected, Superseded, Uncertain, Unmet

_TOKEN_BYTES = 6  # two calls have the same token once in 2^48: docs/format.md says what that means


def token_of(call: str) -> bytes:
    """Return the token of the call with this name, which no other call has.

    botocore sends a request again when the response is lost, and the first attempt's mark then refuses the second. The entity keeps the
    token of its last writer, and so shows whose mark that is.
    """
    return blake2b(call.encode(), digest_size=_TOKEN_BYTES).digest()


class NoStep(NamedTuple):
    """No step of the messages may be open."""


class NoStepAtAll(NamedTuple):
    """No step of any message may be open: a delete would take it along, and for a fold there is hardly ever one."""


class Begins(NamedTuple):
    """Begins this step, unless the message has one."""

    step: Step


class Finishes(NamedTuple):
    """Ends the message's step, which has this fence. `ledger`: under which it was begun. `overtaken`: the ledger's mark has moved past the message."""

    fence: str
    ledger: str
    overtaken: bool = False


class Withdraws(NamedTuple):
    """Takes the begin of the message's step back, if the message could be done without it."""

    fence: str
    ledger: str


class Burial(NamedTuple):
    """Makes a tombstone of the entity. `removes`: what goes in the same request, where there is no room for a tombstone beside it."""

    tombstone: Tombstone
    removes: tuple[str, ...] = ()


NO_STEP = NoStep()
StepPart: TypeAlias = NoStep | NoStepAtAll | Begins | Finishes | Withdraws


class Write(NamedTuple):
    """One guarded write: of which message, to which entity, and the parts beside the caller's own call."""

    message: Message
    key: Mapping[str, Any]  # names the entity, as the caller wrote it
    now: float
    entry: Entry  # what the ledger asks, and what it gains
    step: StepPart
    emission: Emission | None = None  # what the outbox gains, in a store that has one
    token: bytes | None = None  # of the call, where the engine does not recognize its own retries
    burial: Burial | None = None  # what it leaves of the entity
    other_messages: tuple[Message, ...] = ()  # that it writes too

    @property
    def asks_outbox(self) -> bool:
        """Does it ask whose outbox the entity has? A finish that emits must not be the first to meet another one: so a begin asks too."""
        return self.emission is not None and (bool(self.emission.events) or isinstance(self.step, Begins))

    @property
    def marks(self) -> list[list[str]]:
        """For each message those of its steps: under this ledger, and under those in its also=."""
        return [
            [step_mark(attribute, message).hex() for attribute in self.entry.terms.attributes]
            for message in (self.message, *self.other_messages)
        ]


class Image(NamedTuple):
    """An entity, as it was when it refused a write, or when it was read to find out why."""

    exists: bool
    is_gone: bool  # what is left of a deleted one
    entity: Entity | None  # as the caller sees it
    ledger: Lookup  # its ledger
    steps: Mapping[str, Any]  # that are open, by their marks
    fields: Mapping[str, Any]  # at its top
    null_is_absent: bool  # as for the filters of the engine


def judge_read(write: Write, image: Image) -> Outcome:
    """What an unconditional write would get of an entity that was only read."""
    outcome = judge(write, image)
    return Applied(write.message, image.entity) if isinstance(outcome, Unmet) else outcome


def has_landed(write: Write, image: Image) -> bool:
    """Whether an earlier attempt of this very call was the last write of the entity.

    A token alone proves nothing, because another call may have the same one: the effect must be there too. A call that another
    writer has overtaken finds no token of its own, and its message is `Duplicate` or `Stale`.
    """
    return write.token is not None and image.fields.get(TOKEN) == write.token and shows_effect(write, image)


def judge(write: Write, image: Image) -> Outcome:
    """Why the entity refused the write, which is any but the finish of a step."""
    outcome = kept_out(write, image)
    if outcome is None:
        outcome = Rejected(write.message, image.entity) if image.exists else Missing(write.message)
    if isinstance(write.step, NoStepAtAll) and image.steps and isinstance(outcome, Rejected | Busy | Uncertain):
        # A step of any message keeps the entity alive, also where its lease is over.
        until = max([read_step(step).until for step in image.steps.values()])
        return Busy(write.message, until, image.entity)
    return outcome


def kept_out(write: Write, image: Image) -> Outcome | None:
    """Why the message is kept out, whatever the caller's condition says. None: it is let in."""
    step = open_step(write, image) if image.steps else None
    if step is not None:
        return answer_to(step, write.message, write.now, image.entity, write.key)
    refusal = write.entry.judge(write.message, image.ledger, entity=image.entity, is_gone=image.is_gone)
    if refusal is None:
        check_emits(write, image)
    return refusal


def judge_finish(write: Write, image: Image) -> Outcome | Finishes:
    """Why a write could not finish its step. A `Finishes`: nothing is in the way, and the step is to be finished so.

    The fence alone says that the effect is this worker's to record.
    """
    if has_landed(write, image):
        return Applied(write.message, image.entity, retried=True)
    finishes, step = cast("Finishes", write.step), open_step(write, image)
    if step is None:
        refusal = write.entry.judge(write.message, image.ledger, entity=image.entity, is_gone=image.is_gone)
        return Superseded(write.message, image.entity) if refusal is None or isinstance(refusal, Deferred) else refusal
    if step.fence != finishes.fence:
        return Superseded(write.message, image.entity)
    gap = write.entry.judge(write.message, image.ledger, entity=image.entity)
    if isinstance(gap, Deferred):  # a counting ledger took over while the step was open: its mark cannot pass over the gap
        return gap
    check_emits(write, image)
    # A step that was begun under the ledger before this one stands there. A mark that others have moved past the message stays where it is.
    change = write.entry.own
    overtaken = isinstance(change, Advance) and change.judge(write.message, image.ledger, None) is not None
    return finishes._replace(ledger=step.ledger, overtaken=overtaken)


def met_by_begin(write: Write, image: Image) -> Step | Outcome:
    """What has refused the begin of a step: the one that is open, or why the message may have none."""
    step = open_step(write, image)
    if step is not None:
        check_emits(write, image)  # whoever takes the step over must be able to finish it
        return step
    return judge(write, image)


def open_step(write: Write, image: Image) -> Step | None:
    """The step that the message has begun and not finished, under this ledger or one in its also=."""
    if not image.steps:
        return None
    return next((read_step(image.steps[mark]) for mark in write.marks[0] if mark in image.steps), None)


def check_emits(write: Write, image: Image) -> None:
    """Raise if the entity has another outbox than the write asks for."""
    if write.asks_outbox:
        check_outbox(cast("Emission", write.emission).label, image.fields, null_is_absent=image.null_is_absent)


def is_held_before(write: Write, image: Image) -> bool:
    """Whether a ledger in also= keeps the message out, and the store's own ledger counts."""
    return write.entry.holds_before(write.message, image.ledger)


def is_waited_for(write: Write, image: Image) -> bool:
    """Whether the messages behind this one wait for the mark to move over it, which a ledger in also= holds."""
    entry = write.entry
    is_next = not image.is_gone and entry.own.judge(write.message, image.ledger, None) is None
    return is_next and is_held_before(write, image)


def shows_effect(write: Write, image: Image) -> bool:
    """Is the entity one that this write may have left, with whatever others have written since?"""
    if write.burial is not None and not is_tombstone_of(write.burial.tombstone.by, image.fields.get(TOMBSTONE)):
        return False
    is_open = bool(image.steps) and any(mark in image.steps for marks in write.marks for mark in marks)
    return not is_open and write.entry.shows(image.ledger)


def of_creation(outcome: Outcome, item: Mapping[str, Any], keys: int) -> Outcome:
    """The answer to the creation of this item, of which so many fields may be the key.

    Where nothing is there, the caller's condition was false of that. Where nothing but a key is there, as a `record` leaves it that came
    before the creation, it is redelivered.
    """
    if isinstance(outcome, Missing):
        return Rejected(outcome.message)
    is_bare = isinstance(outcome, Rejected) and outcome.entity is not None and len(outcome.entity) <= keys
    if is_bare and cast("Entity", outcome.entity).items() < item.items():
        return replace(cast("Rejected", outcome), settled=False)
    return outcome


# --- an entity that is full ----------------------------------------------------------------------------------------------


class Size(NamedTuple):
    """The bytes of an entity, in `total`, and what they are. `new_events` would come with this write."""

    total: int
    caller: int  # its own attributes or fields
    outbox: int
    new_events: int = 0

    @property
    def ledger(self) -> int:
        return self.total - self.caller - self.outbox


def too_large(limit: str, size: Size, remedy: str) -> EntityTooLarge:
    """`remedy` is what helps where the ledger takes more than the events. Nothing is known of an entity of no size."""
    if not size.total:
        shares = "its present size is not known"
    else:
        outbox = f", {size.outbox} its outbox's, whose events wait for a relay," if size.outbox else ""
        shares = f"it has {size.total} now, {size.ledger} of them its ledger's{outbox} and {size.caller} the caller's own"
    brings = f" The events of this write would add {size.new_events}." if size.new_events else ""
    if size.outbox + size.new_events > size.ledger:
        remedy = "Emit less, and let a relay publish what waits: until then it stands in the entity."
    return EntityTooLarge(
        f"The entity would exceed {limit}: {shares}.{brings} It is unchanged, and will refuse every further message that adds to it. {remedy}"
    )
