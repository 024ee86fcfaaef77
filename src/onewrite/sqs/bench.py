"""Where a slot's messages are processed: by a handler of one message, or by one of the messages of a group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from onewrite.batch.grouping.handler import GroupHandler
from onewrite.batch.grouping.records import GroupedRecord
from onewrite.batch.handler import Handler
from onewrite.batch.report import Result
from onewrite.identity import record_id
from onewrite.sqs.deciding.lines import Held, Load
from onewrite.sqs_message import Received

_Record: TypeAlias = Callable[[Received, int], dict[str, Any]]
"""The record that the handler is given for a message of a queue."""

Results: TypeAlias = Sequence[Result | None]


class Bench(Protocol):
    """None of this is called under the crew's lock. A load has a result for each of its messages, or None for one that was not processed."""

    has_groups: bool

    def read(self, messages: Iterable[Received], queue: int) -> list[tuple[Hashable, Any]] | None:
        """The group of each message, and what the handler has read of it. None: there are no groups."""
        ...

    def process(self, load: Load) -> Results: ...

    async def aprocess(self, load: Load) -> Results: ...

    def failed(self, load: Load, error: BaseException) -> Results:
        """The results of a load that ended with an error outside of the handler."""
        ...


def bench_of(handler: Handler[Any], record: _Record, time_left: Callable[[Load], float]) -> Bench:
    return _Groups(handler, record, time_left) if isinstance(handler, GroupHandler) else _OneByOne(handler, record)


class _OneByOne:
    has_groups = False

    def __init__(self, handler: Handler[Any], record: _Record) -> None:
        self._handler, self._make_record = handler, record

    def read(self, messages: Iterable[Received], queue: int) -> list[tuple[Hashable, Any]] | None:
        del messages, queue
        return None

    def process(self, load: Load) -> Results:
        return (self._handler.process(self._record(load.members[0]), load.members[0]),)

    async def aprocess(self, load: Load) -> Results:
        return (await self._handler.aprocess(self._record(load.members[0]), load.members[0]),)

    def failed(self, load: Load, error: BaseException) -> Results:
        records = [self._record(held) for held in load.members]
        return [Result(record, record_id(record), None, (), error, 0.0) for record in records]

    def _record(self, held: Held) -> dict[str, Any]:
        return self._make_record(held.message, held.queue)


class _Groups(_OneByOne):
    has_groups = True

    def __init__(self, handler: GroupHandler[Any], record: _Record, time_left: Callable[[Load], float]) -> None:
        super().__init__(handler, record)
        self._groups, self._time_left = handler, time_left

    def read(self, messages: Iterable[Received], queue: int) -> list[tuple[Hashable, Any]] | None:
        read = [self._groups.read(self._make_record(message, queue)) for message in messages]
        # What has no messages is done by itself. What has several belongs to the group of the first one.
        return [(record.keys[0] if record.keys else object(), record) for record in read]

    def process(self, load: Load) -> Results:
        found = self._groups.process_group(self._read(load), **self._options(load))
        return [found.get(number) for number in range(len(load.members))]

    async def aprocess(self, load: Load) -> Results:
        found = await self._groups.aprocess_group(self._read(load), **self._options(load))
        return [found.get(number) for number in range(len(load.members))]

    def _options(self, load: Load) -> dict[str, Any]:
        return {"in_order": load.members[0].group is not None, "time_left": lambda: self._time_left(load)}

    def _read(self, load: Load) -> list[GroupedRecord]:
        """What was read already is used once only, because the function may change it."""
        found: list[GroupedRecord] = []
        for held in load.members:
            first, held.read = held.read, None
            found.append(first or self._groups.read(self._record(held)))
            held.messages = found[-1].messages
        return found
