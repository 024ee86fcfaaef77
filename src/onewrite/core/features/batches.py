"""Writes several messages to one entity at once, on any engine.

The result is that of single guarded writes in some order. To find the order, the messages are judged in turn, each as if the earlier
ones were already stored: first on the assumption that the ledger accepts all that it can, and after a refusal, given the entity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias, cast

from onewrite.core.engine import Attempt, Engine, Landed, Native, Refusal
from onewrite.core.features.event import check_causes
from onewrite.core.flow import NOTHING_FINAL, Do, Flow, split_final_refusals
from onewrite.core.judging import NoReason, OtherEffect, Reason, Verdict, find_open_effect, judge_message
from onewrite.core.label import Slot
from onewrite.core.ledgers.entry import ABSENT, Advance, Change, Entry, Lookup
from onewrite.core.pipeline import Settled, make_write, send_write, settle
from onewrite.core.values import copy_value
from onewrite.core.write import NO_EFFECT, Image, NoEffectAtAll, Write
from onewrite.errors import InvalidMessage, InvalidUpdate
from onewrite.message import Message, sort_by_sequence
from onewrite.outcome import Applied, Deferred, Duplicate, Outcome, Rejected, Stale

Function: TypeAlias = Callable[[list[Message]], Any]
"""The caller's function. It takes messages, and returns the arguments of the write with their changes. It can be asynchronous."""


class Member(NamedTuple):
    """A message, its place in the caller's list, and the entry of its own write."""

    place: int
    message: Message
    entry: Entry


# --- the order of the messages ----------------------------------------------------------------


def order_messages(messages: Sequence[Message]) -> list[int]:
    """Return the places of the messages in the order of their changes: within a source, the order of their sequences."""
    for message in messages:
        if not isinstance(cast("object", message), Message):
            kind = type(message).__name__
            raise InvalidMessage(f"update_batch: expected a list of messages, but one is a {kind}. Convert it to a Message.")
    return sort_by_sequence(messages)


# --- the messages that a ledger accepts -----------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """The plan for a write of several messages.

    - `fresh`: the messages that the ledger accepts
    - `outcomes`: the outcomes of all other messages, by their places, once the fresh ones are written
    """

    fresh: list[Member]
    outcomes: dict[int, Outcome]


def make_plan(members: Iterable[Member], batch_refusal: Refusal) -> Plan:
    """Return the plan for these messages. Each is judged as if the earlier fresh ones were already written."""
    ledger = _LedgerAhead(batch_refusal.image.ledger)
    fresh: list[Member] = []
    outcomes: dict[int, Outcome] = {}
    for member in members:
        outcome = judge_member(batch_refusal, member, ledger)
        if outcome is None:
            fresh.append(member)
            ledger.write(member.entry.own)
        else:
            outcomes[member.place] = outcome
    return Plan(fresh, outcomes)


class _LedgerAhead:
    """A ledger after the writes of this batch. It caches values, because a set can be large."""

    __slots__ = ("_contents", "_look_up")

    def __init__(self, look_up: Lookup) -> None:
        self._look_up = look_up
        self._contents: dict[Slot, object] = {}

    def __call__(self, slot: Slot) -> object:
        if slot not in self._contents:
            self._contents[slot] = self._look_up(slot)
        return self._contents[slot]

    def write(self, change: Change) -> None:
        """Change the contents as this change of the ledger will change them in the database."""
        if isinstance(change, Advance):
            self._contents[change.slot] = change.mark
            return
        present = change.sets.present
        marks = self(present)
        self._contents[present] = frozenset([change.mark, *(() if marks is ABSENT else cast("Iterable[object]", marks))])


def assume_refusal(members: Sequence[Member]) -> Refusal:
    """Return a refusal by an entity that wasn't read yet. Its ledger accepts the first message of each source, and every ID."""
    marks: dict[Slot, object] = {}
    for member in members:
        change = member.entry.own
        if isinstance(change, Advance):
            marks.setdefault(change.slot, cast("int", change.mark) - 1 if change.rule == "next" else ABSENT)

    def look_up(slot: Slot) -> object:
        return marks.get(slot, ABSENT)

    first = members[0]
    # Nothing is known of the entity except the marks.
    image = Image(exists=False, is_gone=False, entity=None, ledger=look_up, effects={}, fields={}, is_null_absent=False)
    return Refusal(Write((first.message,), {}, 0.0, first.entry, NO_EFFECT), image)


def make_single_write(write: Write, member: Member) -> Write:
    """Return the write of several messages as a write of only this one."""
    return write._replace(messages=(member.message,), entry=member.entry)


def judge_member(refusal: Refusal, member: Member, ledger: Lookup) -> Outcome | None:
    """Return why the message is refused after the earlier writes of this batch, or None if only the caller's condition can refuse it."""
    return judge_message(make_single_write(refusal.write, member), refusal.image._replace(ledger=ledger))


def send_batch(attempt: Attempt, plan: Plan) -> Flow[Landed | Refusal]:
    """Send the write of several messages. Return the refusal if the plan no longer fits the entity."""

    def judge_refusal(write: Write, image: Image) -> Verdict[None]:
        if len(make_plan(plan.fresh, Refusal(write, image)).fresh) != len(plan.fresh):
            return Reason(None)  # the plan no longer fits
        if any(find_open_effect(make_single_write(write, member), image) for member in plan.fresh):
            return Reason(None)  # it was released before its effect was sent, and a single write of the message ends it
        # An effect of a different message might have refused the write.
        return OtherEffect(NO_EFFECT) if image.effects and isinstance(write.effect, NoEffectAtAll) else NoReason()

    flow: Flow[Settled[None]] = settle(attempt, judge_refusal)
    last_attempt, result, refusal = yield from flow
    if not isinstance(result, Landed):
        return cast("Refusal", refusal)
    if refusal is None:
        return result
    return result._replace(entity=last_attempt.show(Applied(attempt.write.message, result.entity)).entity)


# --- the batch ----------------------------------------------------------------------------------------------------------


def update_batch(engine: Engine, messages: Iterable[Message], function: Function) -> Flow[list[Outcome]]:
    """Write the messages in as few writes as possible. The outcomes are in the order of the messages."""
    if isinstance(cast("object", messages), Message | str) or not isinstance(cast("object", messages), Iterable):
        raise InvalidMessage(
            f"update_batch: expected a list of messages first, got a {type(messages).__name__}. Write update_batch([message, ...], function)."
        )
    if not callable(function):
        raise InvalidUpdate(
            f"update_batch: expected a function after the messages, got a {type(cast('object', function)).__name__}. Pass for example lambda "
            f"fresh: {{...}}, which returns the arguments of one write."
        )
    message_list = [*messages]
    call = _Batch(engine, function)
    outcomes: dict[int, Outcome] = {}
    order = order_messages(message_list)
    first_places: dict[object, int] = {}
    entries = [call.make_entry(message) for message in message_list]
    # For each message, the place of its first copy, which is the only one to write.
    firsts = [
        first_places.setdefault(_identify(message, entry), place)
        for place, (message, entry) in enumerate(zip(message_list, entries, strict=True))
    ]
    max_messages = engine.limit_messages(entries[0]) if entries else 0
    places = [place for place in order if firsts[place] == place]
    while places:
        # The entries are made again, because time has passed since the first chunk.
        chunk = [Member(place, message_list[place], call.make_entry(message_list[place])) for place in places[:max_messages]]
        chunk_outcomes = yield from call.write_chunk(chunk)
        if chunk_outcomes is None:
            max_messages = max(1, len(chunk) // 2)
        else:
            outcomes |= chunk_outcomes
            places = places[len(chunk) :]
    for place, first in enumerate(firsts):
        if place != first:
            outcomes[place] = _copy_outcome(outcomes[first], message_list[place])
    return [outcomes[place] for place in range(len(message_list))]


def _identify(message: Message, entry: Entry) -> object:
    """Return a key that is equal for two copies of a message."""
    change = entry.own
    return (change.slot, change.mark, message.id) if isinstance(change, Advance) else change.mark


def _copy_outcome(outcome: Outcome, message: Message) -> Outcome:
    """Return the outcome of a second copy of a message."""
    return Duplicate(message, outcome.entity) if isinstance(outcome, Applied) else replace(outcome, message=message)


class _Batch:
    """One call of `update_batch`. It calls the caller's function, and checks that all writes name the same entity."""

    def __init__(self, engine: Engine, function: Function) -> None:
        self._engine, self._function = engine, function
        self._entity: object = ABSENT
        self._native: Native = {}  # the last result of the caller's function, without `emit` and the final refusals
        self._emit: object = None
        self._final = NOTHING_FINAL
        # The first unsettled message of each source whose later messages could make it Stale.
        self._unsettled: dict[Slot, Message] = {}

    def make_entry(self, message: Message) -> Entry:
        """Return the entry of a write of this message now."""
        entry = self._engine.ledger.entry(message, self._engine.clock())
        self._engine.check_marks(entry)
        return entry

    def write_chunk(self, chunk: Sequence[Member]) -> Flow[dict[int, Outcome] | None]:
        """Write the messages in one write. If the ledger refuses some, write the others in one write, and if that fails, one by one.

        Return the outcomes by the messages' places, or None if one write of them is too large.
        """
        held = {member.place: outcome for member in chunk if (outcome := self._hold(member)) is not None}
        chunk = [member for member in chunk if member.place not in held]
        if not chunk:
            return held
        outcomes = yield from self._write_unheld(chunk)
        return None if outcomes is None else held | outcomes

    def _hold(self, member: Member) -> Outcome | None:
        """Return `Deferred` if an earlier message of its source isn't settled, and would be `Stale` after the write of this one."""
        change = member.entry.own
        earlier = self._unsettled.get(change.slot) if isinstance(change, Advance) else None
        return None if earlier is None else Deferred(member.message, cast("int | str", earlier.sequence))

    def _write_unheld(self, chunk: Sequence[Member]) -> Flow[dict[int, Outcome] | None]:
        """Write the messages like `write_chunk`. None of them has to wait for an earlier message of its source."""
        refusal = assume_refusal(chunk)
        asked_places: set[int] = set()
        for _ in chunk:  # a bound, because other writers can refuse the write again and again
            plan = make_plan(chunk, refusal)
            if not plan.fresh:
                return plan.outcomes
            # If the ledger accepts all refused messages, the caller's condition refused them. One by one, some of them might pass.
            fresh_places = {member.place for member in plan.fresh}
            if len(chunk) == 1 or (asked_places and (len(plan.fresh) == 1 or asked_places <= fresh_places)):
                break
            asked_places = fresh_places
            yield from self._ask_function(plan.fresh)
            try:
                result = yield from send_batch(self._make_attempt([member.message for member in plan.fresh]), plan)
            except self._engine.too_much:
                return None
            if isinstance(result, Landed):
                return plan.outcomes | {
                    member.place: Applied(member.message, result.entity, result.retried, result.response)
                    for member in plan.fresh
                }
            refusal = result
        return (yield from self._write_singly(chunk, refusal))

    def _make_attempt(self, messages: Sequence[Message]) -> Attempt:
        """Return one write for all the messages, ready to be sent."""
        engine, native = self._engine, self._engine.keep(self._native)
        # Hardly any entity has an open effect, and a condition for the effect of each message would leave room for fewer messages.
        effect = NO_EFFECT if len(messages) == 1 else NoEffectAtAll()
        write = make_write(engine, tuple(messages), engine.read_key(native), effect, emit=self._emit)
        return engine.make_batch_attempt(write, native)

    def _write_singly(self, chunk: Sequence[Member], batch_refusal: Refusal) -> Flow[dict[int, Outcome]]:
        """Write the messages in order, except for those that the ledger refuses after the earlier writes. Return the outcomes by place."""
        ledger, has_other_writer = _LedgerAhead(batch_refusal.image.ledger), False
        outcomes: dict[int, Outcome] = {}
        for member in chunk:
            change = member.entry.own
            outcome = judge_member(batch_refusal, member, ledger)
            outcome = self._hold(member) if outcome is None else outcome
            # If another writer has written since the refusal, it might have written the predecessor too.
            if outcome is None or (isinstance(outcome, Deferred) and has_other_writer and change.requires_predecessor):
                yield from self._ask_function([member])
                outcome = yield from send_write(self._make_attempt([member.message]), self._final)
                # A settled refusal has moved a counting mark too.
                if isinstance(outcome, Applied) or (
                    isinstance(outcome, Rejected) and outcome.settled and change.requires_predecessor
                ):
                    ledger.write(change)
                has_other_writer = has_other_writer or isinstance(outcome, Duplicate | Stale)
            if isinstance(change, Advance) and change.is_overtakable and not outcome.settled:
                self._unsettled.setdefault(change.slot, member.message)
            outcomes[member.place] = outcome
        return outcomes

    def _ask_function(self, fresh: Sequence[Member]) -> Flow[None]:
        """Call the caller's function for the arguments of a write of these messages. Check them, and keep them for the next write."""
        messages = [member.message for member in fresh]
        returned = yield Do(self._function, ([*messages],))
        if not isinstance(returned, Mapping):
            raise InvalidUpdate(
                f"The function of a batch returned a {type(returned).__name__}. Return a dict with the arguments of the write."
            )
        native, self._final = split_final_refusals(cast("Native", returned))
        arguments = {**native}
        self._emit = arguments.pop("emit", None)
        if "finishes" in arguments:
            raise InvalidUpdate(
                "A batch can't finish an effect. Finish the effect of each message with update_item or update_one."
            )
        if self._emit is not None:
            # Check this even for one message. A mistake is then found before a larger batch arrives.
            check_causes(messages, self._emit)
        name, canonical = self._engine.entity_argument, self._engine.canonical
        if not arguments.get(name):
            raise InvalidUpdate(f"The function of a batch returned no {name}. Return the {name} together with the update.")
        entity = copy_value(self._engine.read_key(arguments))  # the function can reuse its dict for a different entity
        if self._entity is ABSENT:
            self._entity = entity
        elif canonical(self._entity) != canonical(entity):
            raise InvalidUpdate(
                "The function of a batch returned a different entity in a later call, but a batch writes to one entity. Group the messages by "
                "entity, and pass each group to update_batch."
            )
        self._native = arguments
