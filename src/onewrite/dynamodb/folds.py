"""Several messages in one write of a table. What they are together, and what becomes of each, is in onewrite/core/folding.py."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.core.event import copied_events, copy_of, emission_of_fold
from onewrite.core.flow import Call, Flow
from onewrite.core.folding import TOO_MUCH, FoldRefusal, Function, Landing, Member, Native, TooMuch, fold, join, make_plan
from onewrite.core.ledgers.entry import Advance, Change, Entry, Lookup
from onewrite.core.write import NO_STEP, Image, NoStepAtAll, StepPart, Write, has_landed, kept_out, token_of
from onewrite.dynamodb.dialect import Draft, add_parts, check_looks
from onewrite.dynamodb.expression import ExpressionTooLong, leaves_room
from onewrite.dynamodb.flows import Flows, says_too_large, send, text_of
from onewrite.dynamodb.layout import canonical
from onewrite.dynamodb.request import build_update
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.message import Message
from onewrite.outcome import Outcome

# A source's mark takes the same room for any number of its messages. But a function that makes something of each would not get
# more of them into one item, or into one expression.
_MOST = 1000
# What the caller's own condition may take beside the ledger's, so a usual one does not make the first try too long.
_ROOM, _OPERATORS = 512, 20


def fold_into(flows: Flows, messages: Iterable[Message], function: Function) -> Flow[list[Outcome]]:
    return fold(Folds(flows), messages, function)


class Folds:
    """What a fold asks of a table."""

    def __init__(self, flows: Flows) -> None:
        self._flows = flows

    @property
    def most(self) -> int:
        return most_at_once(self.entry(Message("any", source="any", sequence=1)))

    def canonical(self, entity: object) -> Hashable:
        return canonical(entity)

    def entry(self, message: Message) -> Entry:
        entry = self._flows.ledger.entry(message, self._flows.clock())
        check_looks(entry)
        return entry

    def entity_of(self, native: Native) -> object:
        key: object = native.get("Key")
        if not isinstance(key, Mapping):
            raise InvalidUpdate("The function of a fold names the entity: return its Key beside the UpdateExpression.")
        return cast("dict[str, Any]", copy_of(key))  # the function may use its dict again, for another entity

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        arguments = _arguments(native) | {name: native[name] for name in ("missing_ok",) if name in native}
        return self._flows.write(message, arguments, build_update, native.get("emit"))

    def write_all(self, members: Sequence[Member], native: Native) -> Flow[Landing | FoldRefusal | TooMuch]:
        if self._flows.is_async:
            native = {**self._flows.kept(_arguments(native)), "emit": copied_events(native.get("emit"))}
        # Hardly any entity has a step open, and a condition for the step of each message takes the room of further messages.
        return (yield from self._write_all(members, native, NoStepAtAll()))

    def _write_all(self, members: Sequence[Member], native: Native, step: StepPart) -> Flow[Landing | FoldRefusal | TooMuch]:
        flows = self._flows
        try:
            write, call = self._request([member.message for member in members], native, step)
        except ExpressionTooLong:
            return TOO_MUCH
        try:
            response = yield from send(call)
        except ClientError as error:
            return (yield from self._not_written(error, write, call, members, native))
        flows.compare_clocks(write.now, response)
        return Landing(flows.applied_outcome(write.message, response).entity, response=response)

    def _request(self, messages: Sequence[Message], native: Native, step: StepPart) -> tuple[Write, Call]:
        flows = self._flows
        # All at one moment, so all marks go into one slot; the messages may have waited for the caller's function.
        now, name, emit = flows.clock(), flows.attempts(), native.get("emit")
        entry = join([flows.ledger.entry(message, now) for message in messages])
        outbox_part = flows.empty_emission if emit is None else emission_of_fold(flows.emitter, messages, emit, now, name)
        token = token_of(name)
        write = Write(messages[0], native["Key"], now, entry, step, outbox_part, token, other_messages=tuple(messages[1:]))
        return write, flows.call(write, _arguments(native), build_update)

    def _not_written(
        self, error: ClientError, write: Write, call: Call, members: Sequence[Member], native: Native
    ) -> Flow[Landing | FoldRefusal | TooMuch]:
        try:
            image, failure = yield from self._flows.refusal(error, write, call)
        except EntityTooLarge:
            return TOO_MUCH
        if has_landed(write, image):
            return Landing(image.entity if call.kwargs.get("ReturnValues") == "ALL_NEW" else None, retried=True)
        refusal = _refusal_of(write, image)
        all_let_in = not make_plan(members, refusal).answers
        if failure is not None and all_let_in:
            if says_too_large(text_of(failure)):
                return TOO_MUCH
            self._flows.raise_failure(failure, write, call, image)
        if all_let_in and image.steps and isinstance(write.step, NoStepAtAll):  # a step of another message was in the way
            return (yield from self._write_all(members, native, NO_STEP))
        return refusal


def _arguments(native: Native) -> dict[str, Any]:
    """Those of `update_item` itself."""
    return {name: value for name, value in native.items() if name not in ("emit", "missing_ok")}


def _refusal_of(write: Write, image: Image) -> FoldRefusal:
    """Why the write did not land, given the item as it was then."""

    def refusal(member: Member, ledger: Lookup) -> Outcome | None:
        single_write = write._replace(message=member.message, entry=member.entry, other_messages=())
        return kept_out(single_write, image._replace(ledger=ledger))

    return FoldRefusal(image.ledger, refusal)


@lru_cache(maxsize=64)  # entries of one message differ by the ledger and by the slots that time has come to
def most_at_once(entry: Entry) -> int:
    """For how many messages, each of which alone asks this, the condition is short enough."""

    def is_too_long(count: int) -> bool:
        message = Message("any")
        token, others = token_of(""), (message,) * (count - 1)
        write = Write(message, {}, 0, _entry_for(entry, count), NoStepAtAll(), None, token, other_messages=others)
        add_parts(write, request := Draft(repeats=count > 1))
        return not leaves_room(request.condition, size=_ROOM, operators=_OPERATORS)

    return 1 + bisect_left(range(2, _MOST + 1), True, key=is_too_long)


def _entry_for(entry: Entry, count: int) -> Entry:
    """What so many messages of one source ask."""
    changes: list[Change] = (
        [entry.own._replace(last=entry.own.mark)] if isinstance(entry.own, Advance) else [entry.own] * count
    )
    also = [change for change in entry.also for _ in range(1 if isinstance(change, Advance) else count)]
    return Entry(entry.terms, changes[0], tuple(also), tuple(changes[1:]))
