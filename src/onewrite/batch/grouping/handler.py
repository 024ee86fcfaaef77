"""What a decorator makes of a function of several messages: a handler whose calls have the messages of one group."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeAlias, Unpack

from onewrite.batch import workers
from onewrite.batch.function import G, checked_group, is_async
from onewrite.batch.grouping.batch import GroupedBatch
from onewrite.batch.grouping.calls import Calls, Steps
from onewrite.batch.grouping.plan import groups, runs
from onewrite.batch.grouping.records import GroupBy, GroupedRecord, read
from onewrite.batch.handler import Delivery, Handler, Options
from onewrite.batch.report import Result, line_in, logger
from onewrite.batch.source import Source
from onewrite.batch.workers import NoticedInterrupts
from onewrite.errors import ConfigurationError
from onewrite.identity import Identity
from onewrite.message import Message

_TimeLeft: TypeAlias = Callable[[], float] | None


class GroupHandler(Handler[G]):
    """What Lambda calls with a batch, if the function takes several messages at a time. See `Handler` for the options.

    `group_by(message)` tells the group of a message: something that can be hashed. What it raises fails the record. The function
    is given a list of messages of one group, and returns a sequence of one Outcome for each, in their order, or None. If it raises
    an error, it is given each of them alone.

    `max_workers` counts groups, and `margin` is kept before each call. `on_outcome` is called for each message, with its share of
    the seconds.
    """

    _checked = staticmethod(checked_group)

    def __init__(
        self,
        each: Callable[..., G],
        source: Source,
        identity: Identity,
        *,
        group_by: GroupBy,
        **options: Unpack[Options],
    ) -> None:
        if not callable(group_by) or is_async(group_by):
            raise ConfigurationError(
                f"group_by={group_by!r}: give a plain function of a Message, such as lambda message: message.body['orderId']."
            )
        super().__init__(each, source, identity, **options)
        self._group_by = group_by

        def called(messages: Sequence[Message]) -> G:
            return each([*messages])  # a list that the function may change

        self._called = called

    def read(self, record: Any) -> GroupedRecord:
        """The record with its messages and their groups, for `process_group`."""
        return read(record, self._identified, self._group_by)

    def process(self, record: Any, delivery: Delivery | None = None) -> Result:
        """As `Handler.process`: the messages of one record, those of one group in one call."""
        with NoticedInterrupts():
            return self.process_group([self._read_for(record, delivery)], in_order=True)[0]

    async def aprocess(self, record: Any, delivery: Delivery | None = None) -> Result:
        """As `Handler.aprocess`."""
        return (await self.aprocess_group([self._read_for(record, delivery)], in_order=True))[0]

    def _read_for(self, record: Any, delivery: Delivery | None) -> GroupedRecord:
        found = self.read(record)
        if delivery is not None:
            delivery.messages = found.messages
        return found

    def process_group(
        self, records: Sequence[GroupedRecord], *, in_order: bool, time_left: _TimeLeft = None
    ) -> dict[int, Result]:
        """Process records outside a batch, and say what became of them, by their positions. What is not said was not done.

        `in_order`: the records are in an order that their source keeps, and nothing behind a failure is done.
        """
        with NoticedInterrupts():
            return self._run(self._steps_of_group(records, time_left, in_order=in_order))

    async def aprocess_group(
        self, records: Sequence[GroupedRecord], *, in_order: bool, time_left: _TimeLeft = None
    ) -> dict[int, Result]:
        """As `process_group`, for an asynchronous function. Only the cancellation of the task that awaits this is raised."""
        return await self._arun(self._steps_of_group(records, time_left, in_order=in_order), workers.task_is_cancelled)

    def _steps_of_group(self, records: Sequence[GroupedRecord], time_left: _TimeLeft, *, in_order: bool) -> Steps:
        found = dict(enumerate(records))
        units = runs(found, [""] * len(records)) if in_order else groups(found)
        return self._calls(found, workers.Deadline(time_left, 0.0), in_order=in_order).of(units)

    def _calls(self, records: Mapping[int, GroupedRecord], deadline: workers.Deadline, *, in_order: bool) -> Calls:
        return Calls(records, in_order, deadline, self.read, self._tell, self._tell_failed, self._monotonic)

    def _work_through(
        self, records: Sequence[Any], of_each: Sequence[Hashable], left: _TimeLeft
    ) -> tuple[workers.Shared[Any], Sequence[int]]:
        in_order = any(lane is not None for lane in of_each)
        read = enumerate(self._read_ahead(records, left, self.read))
        known = {position: record for position, record in read if record is not None}
        units = runs(known, of_each) if in_order else groups(known)
        deadline = workers.Deadline(left, self._margin)
        batch = GroupedBatch(units, len(records), deadline, tries_again=not in_order)
        calls = self._calls(known, deadline, in_order=in_order)

        def steps(taken: int) -> Steps:
            if taken < len(units):
                return calls.of([units[taken]])
            again = {position: self.read(records[position]) for position in batch.positions(taken)}
            return self._calls(again, deadline, in_order=True).of(runs(again, of_each))

        self._work(batch, steps, min(self._max_workers, len({unit.lane for unit in units})))
        settled = {position for position, result in batch.results.items() if result.settled}
        return batch, [position for position in range(len(records)) if position not in settled]

    def _tell_failed(self, error: BaseException, count: int) -> None:
        """That a group is tried one by one is logged, because a function that fails for every group is slow."""
        kind, where = type(error).__name__, line_in(error, self.each)
        logger.warning("%s: %s at %s for a group of %s messages, which are tried one by one", self.name, kind, where, count)
