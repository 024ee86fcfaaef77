"""The calls of a function with the messages of a group, and what became of their records.

If a call raises an error nobody knows which of its messages is to blame. So they are tried one by one, in their order, and only
what fails by itself must come again. That is safe because the writes are guarded: what the failed call has written is a
Duplicate by then.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from onewrite.batch.function import WrongReturn
from onewrite.batch.grouping.plan import Part, Unit
from onewrite.batch.grouping.records import GroupedRecord, MessageEnd
from onewrite.batch.report import Result
from onewrite.batch.workers import Deadline
from onewrite.identity import Skip
from onewrite.message import Message

CallEnd: TypeAlias = tuple[MessageEnd, ...] | BaseException
"""How a call ended: for each of its messages, or with an error."""
Results: TypeAlias = dict[int, Result]
"""By the positions of the records."""
Steps: TypeAlias = Generator[tuple[Message, ...], CallEnd, Results]
"""Yields the messages of each call, and is sent how it ended."""
_Timed: TypeAlias = tuple[MessageEnd, float]
"""How it ended with a message, and its share of the seconds."""
_CallSteps: TypeAlias = Generator[tuple[Message, ...], CallEnd, dict[Part, _Timed]]
"""As `Steps`, and returns what became of the messages that were processed."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The records of one batch by their positions, and what is done with them.

    `in_order`: what stands behind a failure is left alone, because it comes again with it. `read` reads a record once more,
    because the function may have changed its messages. `tell(message, end, seconds)` and `tell_failed(error, count)` are called
    for each message that was processed, and for each group that is tried one by one.
    """

    records: Mapping[int, GroupedRecord]
    in_order: bool
    deadline: Deadline
    read: Callable[[Any], GroupedRecord]
    tell: Callable[[Message | None, MessageEnd | Skip, float], None]
    tell_failed: Callable[[BaseException, int], None]
    monotonic: Callable[[], float]

    def of(self, units: Sequence[Unit]) -> Steps:
        """One unit after the other. The results are those of the records of which nothing is left to do."""
        results: Results = {}
        for number, unit in enumerate(units):
            if number and self.deadline.is_over:
                break
            ended = yield from self._of_unit(unit)
            results |= ended
            if self.in_order and not all(result.settled for result in ended.values()):
                break
        return results

    def _of_unit(self, unit: Unit) -> Steps:
        left = [part for part in unit.parts if not self.records[part[0]].has_failed]
        called = [part for part in left if self.records[part[0]].messages]
        ends = (yield from self._ends(called)) if called else {}
        for part, end in ends.items():
            record = self.records[part[0]]
            self.tell(self._message(part), *end)
            if not record.has_failed:
                record.note(*end)
        results: Results = {}
        for position in dict.fromkeys(position for position, _ in left):
            record = self.records[position]
            if not isinstance(record.found, tuple):
                self.tell(None, record.found, 0.0)
            if record.is_over:
                results[position] = record.result()
        return self._until_failure(results)

    def _until_failure(self, results: Results) -> Results:
        """In an order nothing behind a failure is done, even if its effect is in: it comes again, and is a Duplicate then."""
        failed = next((place for place, result in enumerate(results.values()) if not result.settled), None)
        return results if failed is None or not self.in_order else dict([*results.items()][: failed + 1])

    def _ends(self, called: Sequence[Part]) -> _CallSteps:
        end, seconds = yield from self._call(tuple(self._message(part) for part in called))
        share = seconds / len(called)
        if not isinstance(end, BaseException):
            return {part: (each, share) for part, each in zip(called, end, strict=True)}
        if len(called) == 1 or isinstance(end, WrongReturn):
            return dict.fromkeys(called, (end, share))
        self.tell_failed(end, len(called))
        return (yield from self._one_by_one(called, end, share))

    def _one_by_one(self, called: Sequence[Part], error: BaseException, share: float) -> _CallSteps:
        """In an order up to the first failure, and of each record. Once there is no time left, the error of the group is that of each."""
        ends: dict[Part, _Timed] = {}
        failed: set[int] = set()
        for part in called:
            if part[0] in failed:
                continue
            end, seconds = (error, 0.0) if self.deadline.is_over else (yield from self._alone(part))
            ends[part] = end, share + seconds
            if isinstance(end, BaseException) or not all(outcome.settled for outcome in end):
                failed.add(part[0])
                if self.in_order:
                    break
        return ends

    def _alone(self, part: Part) -> Generator[tuple[Message, ...], CallEnd, _Timed]:
        position, number = part
        before = self.records[position]
        anew = self.read(before.record)
        if isinstance(anew.found, BaseException):
            return anew.found, 0.0
        messages = anew.messages if len(anew.messages) == len(before.messages) else before.messages
        end, seconds = yield from self._call((messages[number],))
        return (end if isinstance(end, BaseException) else end[0]), seconds

    def _call(self, messages: tuple[Message, ...]) -> Generator[tuple[Message, ...], CallEnd, tuple[CallEnd, float]]:
        began = self.monotonic()
        end = yield messages
        seconds = self.monotonic() - began
        self.deadline.took(seconds)
        return end, seconds

    def _message(self, part: Part) -> Message:
        return self.records[part[0]].messages[part[1]]
