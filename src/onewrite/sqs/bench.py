"""Where a slot's messages are processed: by a handler of one message, or by one of the messages of a group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeAlias

from onewrite.batch.handler import Handler
from onewrite.batch.order import RecordState
from onewrite.batch.report import Result
from onewrite.identity import record_id
from onewrite.sqs.deciding.lines import Load
from onewrite.sqs_message import Received

_Record: TypeAlias = Callable[[Received, int], dict[str, Any]]
"""The record that the handler is given for a message of a queue."""

Results: TypeAlias = Sequence[Result | None]


class Bench:
    """None of this is called under the crew's lock. A load has a result for each of its messages, or None for one that was not processed."""

    def __init__(self, handler: Handler[Any], record: _Record, time_left: Callable[[Load], float]) -> None:
        self._handler, self._make_record, self._time_left = handler, record, time_left
        self.has_groups = handler.has_groups

    def read(self, messages: Iterable[Received], queue: int) -> list[tuple[Hashable, Any]]:
        """The group of each message, and what the handler has read of it."""
        read = [self._handler.read(self._make_record(message, queue)) for message in messages]
        # What has no messages is done by itself. What has several belongs to the group of the first one.
        return [(record.keys[0] if record.keys else object(), record) for record in read]

    def process(self, load: Load) -> Results:
        return self._handler.process_together(self._read(load), **self._options(load))

    async def aprocess(self, load: Load) -> Results:
        return await self._handler.aprocess_together(self._read(load), **self._options(load))

    def failed(self, load: Load, error: BaseException) -> Results:
        """The results of a load that ended with an error outside of the handler."""
        records = [self._make_record(held.message, held.queue) for held in load.members]
        return [Result(record, record_id(record), None, (), error, 0.0) for record in records]

    def _options(self, load: Load) -> dict[str, Any]:
        return {"in_order": load.members[0].group is not None, "time_left": lambda: self._time_left(load)}

    def _read(self, load: Load) -> list[RecordState]:
        """What was read already is used once only, because the function may change it."""
        found: list[RecordState] = []
        for held in load.members:
            first, held.read = held.read, None
            found.append(first or self._handler.read(self._make_record(held.message, held.queue)))
            held.messages = found[-1].messages
        return found
