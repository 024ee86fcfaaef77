"""Several messages in one write of a table. What they are together, and what becomes of each, is in onewrite/core/folding.py."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

from onewrite.core.engine import Native
from onewrite.core.event import copy_value
from onewrite.core.folding import FoldedWrites
from onewrite.core.ledgers.entry import Advance, Change, Entry
from onewrite.core.pipeline import make_token
from onewrite.core.write import NoStepAtAll, Write
from onewrite.dynamodb.dialect import Draft, add_parts, check_looks
from onewrite.dynamodb.expression import ExpressionTooLong, leaves_room
from onewrite.dynamodb.flows import Flows, TableAttempt
from onewrite.errors import EntityTooLarge, InvalidUpdate
from onewrite.message import Message

# A source's mark takes the same room for any number of its messages. But a function that makes something of each would not get
# more of them into one item, or into one expression.
_MAX_MESSAGES = 1000
# What the caller's own condition may take beside the ledger's, so a usual one does not make the first try too long.
_ROOM, _OPERATORS = 512, 20


class Folds(FoldedWrites[Flows]):
    """What a fold asks of a table."""

    too_much = (ExpressionTooLong, EntityTooLarge)
    # Hardly any entity has a step open, and a condition for the step of each message takes the room of further messages.
    step = NoStepAtAll()

    @property
    def max_messages(self) -> int:
        return count_room(self.entry(Message("any", source="any", sequence=1)))

    def check_looks(self, entry: Entry) -> None:
        check_looks(entry)

    def read_entity(self, native: Native) -> Mapping[str, Any]:
        key: object = native.get("Key")
        if not isinstance(key, Mapping):
            raise InvalidUpdate("The function of a fold names the entity: return its Key beside the UpdateExpression.")
        return cast("Mapping[str, Any]", copy_value(key))  # the function may use its dict again, for another entity

    def build(self, write: Write, native: Native) -> TableAttempt:
        return self.engine.attempt(write, native)


@lru_cache(maxsize=64)  # entries of one message differ by the ledger and by the slots that time has come to
def count_room(entry: Entry) -> int:
    """Return for how many messages, each of which alone asks this, the condition is short enough."""

    def is_too_long(count: int) -> bool:
        message = Message("any")
        token, others = make_token(""), (message,) * (count - 1)
        write = Write(message, {}, 0, _entry_for(entry, count), NoStepAtAll(), None, token, other_messages=others)
        add_parts(write, request := Draft(repeats=count > 1))
        return not leaves_room(request.condition, size=_ROOM, operators=_OPERATORS)

    return 1 + bisect_left(range(2, _MAX_MESSAGES + 1), True, key=is_too_long)


def _entry_for(entry: Entry, count: int) -> Entry:
    """Return what so many messages of one source ask."""
    changes: list[Change] = (
        [entry.own._replace(last=entry.own.mark)] if isinstance(entry.own, Advance) else [entry.own] * count
    )
    also = [change for change in entry.also for _ in range(1 if isinstance(change, Advance) else count)]
    return Entry(entry.terms, changes[0], tuple(also), tuple(changes[1:]))
