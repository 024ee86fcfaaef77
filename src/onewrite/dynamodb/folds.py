"""Several messages in one write of a table. What they are together, and what becomes of each, is in onewrite/folding.py."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, cast

from botocore.exceptions import ClientError

from onewrite.copies import copied
from onewrite.dynamodb.deletes import DeleteFlows
from onewrite.dynamodb.flows import says_too_large, send, text_of
from onewrite.dynamodb.verdict import entity_of, kept_out, landed
from onewrite.dynamodb.writing.attempt import Attempt, new_attempt
from onewrite.dynamodb.writing.expression import ExpressionTooLong, leaves_room
from onewrite.dynamodb.writing.layout import lookup
from onewrite.dynamodb.writing.own_part import Words, conditions
from onewrite.dynamodb.writing.request import guard_update
from onewrite.dynamodb.writing.same import canonical
from onewrite.errors import InvalidUpdate
from onewrite.event import emission_of_fold
from onewrite.flow import Call, Flow
from onewrite.folding import TOO_MUCH, Each, Function, Native, Refused, TooMuch, Written, fold, joined, planned
from onewrite.label import STEPS
from onewrite.ledgers.entry import AdvanceShape, Entry, Lookup, Shape
from onewrite.message import Message
from onewrite.outcome import Entity, Outcome

# A source's mark takes the same room for any number of its messages. But a function that makes something of each would not get
# more of them into one item, or into one expression.
_MOST = 1000
# What the caller's own condition may take beside the ledger's, so that a usual one does not make the first try too long.
_ROOM, _OPERATORS = 512, 20


class FoldFlows(DeleteFlows):
    """The flows of `DeleteFlows`, and those of writes of several messages."""

    def fold(self, messages: Iterable[Message], function: Function) -> Flow[list[Outcome]]:
        return fold(self, messages, function)

    @property
    def most(self) -> int:
        message = Message("any", source="any", sequence=1)
        return most_at_once(self.entry(message).shape, exact=self._exact)

    def entry(self, message: Message) -> Entry:
        return self._ledger.entry(message, self.clock())

    def entity_of(self, native: Native) -> object:
        key: object = native.get("Key")
        if not isinstance(key, Mapping):
            raise InvalidUpdate("The function of a fold names the entity: return its Key beside the UpdateExpression.")
        return cast("dict[str, Any]", copied(key))  # the function may use its dict again, for another entity

    def canonical(self, entity: object) -> Hashable:
        return canonical(entity)

    def write_one(self, message: Message, native: Native) -> Flow[Outcome]:
        arguments = _arguments(native) | {name: native[name] for name in ("missing_ok",) if name in native}
        return self.write(message, arguments, emit=native.get("emit"))

    def write_all(self, each: Sequence[Each], native: Native) -> Flow[Written | Refused | TooMuch]:
        try:
            attempt, call = self._together([one.message for one in each], native)
        except ExpressionTooLong:
            return TOO_MUCH
        try:
            response = yield from send(call)
        except ClientError as error:
            found = yield from self._not_written(error, attempt, call, each)
            if found is None:
                self._exact = True
                return (yield from self.write_all(each, native))
            return found
        if self._watch.wants_clock(attempt.now):
            self._look_at_clock(attempt.now, response)
        return Written(self._applied(attempt.message, response).entity, response=response)

    def _together(self, messages: Sequence[Message], native: Native) -> tuple[Attempt, Call]:
        # All at one moment, so that all marks go into one slot; the messages may have waited for the caller's function.
        now, name = self.clock(), self.attempts()
        entry = joined([self._ledger.entry(message, now) for message in messages])
        emit = native.get("emit")
        emitted = self._nothing if emit is None else emission_of_fold(self._emitter, messages, emit, now, name)
        more: dict[str, Any] = {"exact": self._exact, "entity_key": native["Key"], "more": tuple(messages[1:])}
        attempt = new_attempt(messages[0], entry, name, now, emitted, **more)
        return attempt, guard_update(attempt, {**self._table, **_arguments(native)}, self._convert)

    def _not_written(
        self, error: ClientError, attempt: Attempt, call: Call, each: Sequence[Each]
    ) -> Flow[Written | Refused | TooMuch | None]:
        """None: only a step of another message is in the way, so that the write is to be sent again as an exact one."""
        item, unexplained = yield from self._refusal(error, call)
        held = item or {}
        if landed(attempt, held):
            shows = call.kwargs.get("ReturnValues") == "ALL_NEW"
            return Written(entity_of(attempt, item) if shows else None, retried=True)
        refused = _refused(attempt, item)
        all_let_in = not planned(each, refused).answers
        if unexplained is not None and all_let_in:
            if says_too_large(text_of(unexplained)):
                return TOO_MUCH
            self._raise(unexplained, attempt, call, item)
        if STEPS in held and not attempt.exact:
            self._exact = True  # where one message has a step open, more will
            return None if all_let_in else refused
        return refused


def _arguments(native: Native) -> dict[str, Any]:
    """Those of `update_item` itself."""
    return {name: value for name, value in native.items() if name not in ("emit", "missing_ok")}


def _refused(attempt: Attempt, item: Entity | None) -> Refused:
    """Why the write did not land, given the item as it was then."""
    held, entity = item or {}, entity_of(attempt, item)

    def refusal(one: Each, ledger: Lookup) -> Outcome | None:
        return kept_out(attempt._replace(message=one.message, entry=one.entry), held, ledger, entity)

    return Refused(lookup(held), refusal)


@lru_cache(maxsize=64)  # shapes differ by the ledger and by the slots that time has come to
def most_at_once(shape: Shape, *, exact: bool) -> int:
    """For how many messages, each of which alone asks this, the condition is short enough."""

    def is_too_long(count: int) -> bool:
        asked = conditions(_for(shape, count), Words(), "write", exact=exact, more=count - 1)
        return not leaves_room(" AND ".join(asked), size=_ROOM, operators=_OPERATORS)

    return 1 + bisect_left(range(2, _MOST + 1), True, key=is_too_long)


def _for(shape: Shape, count: int) -> Shape:
    """The shape for so many messages of one source."""
    own, *also = [[change] * (1 if isinstance(change, AdvanceShape) else count) for change in shape.changes]
    return Shape(shape.terms, (*own, *[change for changes in also for change in changes]), len(own))
