"""The order of messages that come without one: who is taken first, and when a deferred message is worth another try. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TypeAlias

from onewrite.message import Message, by_sequence
from onewrite.outcome import Answer, Deferred, Rejected

_Place: TypeAlias = tuple[str, tuple[str, ...], int]  # the source, the parts and the sequence of a message


def ordered(messages: Sequence[Message | None]) -> tuple[list[Hashable | None], list[int]]:
    """For each message its lane, and all positions in the order in which to take them.

    The lane is the message's source, if it has a sequence. The messages of a source are taken by their sequence, at the
    positions that the source has in the batch, so that no source is put off until the others are done.
    """
    lanes: list[Hashable | None] = [
        None if message is None or message.sequence is None else message.source for message in messages
    ]
    return lanes, by_sequence(messages)


class SecondTries:
    """Which deferred records are worth another try: those whose predecessor was settled after their last try had begun.

    A place counts as settled once only. So a record is tried again at most once for each place that it waits for. One that
    waits for a step as well is not tried again: the end of a step seldom comes while the batch is under way.
    """

    __slots__ = ("_begun", "_settled", "_waiting")

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}  # for each position how many places were settled when its last try began
        self._settled: dict[_Place, int] = {}  # for each settled place its number, from 0
        self._waiting: dict[_Place, list[int]] = defaultdict(list)

    def begin(self, position: int) -> None:
        self._begun[position] = len(self._settled)

    def settle(self, outcomes: Iterable[Answer]) -> list[int]:
        """The positions to try again, now that there are these outcomes."""
        again: dict[int, None] = {}
        for outcome in outcomes:
            place = _place(outcome.message)
            if outcome.settled and place is not None and place not in self._settled:
                self._settled[place] = len(self._settled)
                again.update(dict.fromkeys(self._waiting.pop(place, ())))
        for waiting in self._waiting.values():
            waiting[:] = [position for position in waiting if position not in again]
        return [*again]

    def defer(self, position: int, outcomes: Sequence[Answer]) -> bool:
        """Keep in mind what the record waits for. True: that came while it was tried, and it is to be tried again now."""
        if not all(each.settled or isinstance(each, Deferred | Rejected) for each in outcomes):
            return False
        before = [_place(each.message, -1) for each in outcomes if isinstance(each, Deferred)]
        places = [place for place in before if place is not None]
        if any(self._settled.get(place, -1) >= self._begun[position] for place in places):
            return True
        for place in places:
            self._waiting[place].append(position)
        return False


def _place(message: Message, distance: int = 0) -> _Place | None:
    if type(message.sequence) is not int:
        return None
    return message.source, message.parts, message.sequence + distance
