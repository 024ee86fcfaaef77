"""What a relay does step by step: its flows over boxes in memory, with the answers that a broker may give."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import pytest

from onewrite import ConfigurationError, LedgerMismatch, Message, Outbox
from onewrite.core.features.event import Event, make_emitter
from onewrite.core.features.pending import Box, BrokenOutbox, PendingEvent, Search
from onewrite.core.flow import Do, drive
from onewrite.core.values import moment, seconds
from onewrite.outbox import Outgoing, SweepReport
from onewrite.outbox.passes import MAX_UNCLEARED, Passes
from onewrite.outbox.relay import compute_pause, report_pass
from tests.support.batches import Clock

NOW = 1_790_000_000.0
OUTBOX = Outbox("o")
EMITTER = make_emitter(OUTBOX, "ow_l")
Reply = Callable[[list[Outgoing]], Any]


def box(name: str, *types: str, age: float = 0.0, **more: Any) -> Box:
    stored = EMITTER.emit([Message(name)], [Event(each, None) for each in types], NOW - age, name).events
    return Box({"id": name}, f"o/{name}", events=tuple([PendingEvent(**event) for event in stored]), **more)


class Boxes:
    """Entities in memory that nobody else changes, and the changes that are asked of them. No request is sent.

    `looking` is called with each that a search finds, and with None at its end.
    """

    target = None

    def __init__(self, *boxes: Any, looking: Callable[[Any], object] = lambda _: None) -> None:
        self.boxes: Any = boxes
        self.looking = looking
        self.cleared: list[tuple[str, int]] = []
        self.postponed: list[tuple[str, float]] = []
        self.overtaken: set[str] = set()
        self.failing: dict[str, Exception] = {}  # what is raised at a clear of which entity
        self.postpone_fails: Exception | None = None

    def entity(self, filter: object, key: object) -> Mapping[str, Any]:
        raise NotImplementedError

    def read_notified(self, entity: Mapping[str, Any], /) -> Mapping[str, Any]:
        return entity

    read_source: Any = entity
    replace: Any = entity
    restart: Any = entity

    def read(self, entity: Mapping[str, Any], /) -> Any:
        found = next(each for each in self.boxes if each.entity == entity)
        if isinstance(found, BrokenOutbox):
            raise found.error
        return found
        yield

    def clear(self, box: Box, count: int, now: float) -> Any:
        name = box.entity["id"]
        if name in self.failing:
            raise self.failing[name]
        if name in self.overtaken:
            return Box(box.entity, box.origin)
        self.cleared.append((name, count))
        return None
        yield

    def postpone(self, box: Box, due: str) -> Any:
        if self.postpone_fails is not None:
            raise self.postpone_fails
        self.postponed.append((box.entity["id"], round(seconds(due) - NOW, 3)))
        return None
        yield

    def canonical(self, entity: Mapping[str, Any], /) -> str:
        return repr(entity)

    def finder(self, before: str | None, share: Callable[[], float]) -> Any:
        boxes, looking = iter(self.boxes), self.looking

        class Finder:
            def next(self) -> Any:
                found = next(boxes, None)
                looking(found)
                return found
                yield

            def count_remaining(self) -> Any:
                return boxes.__length_hint__()
                yield

        return Finder()


class Flows(Passes):
    """The flows of a relay that is stopped as a test says."""

    def __init__(self, boxes: Any, batch: int, clock: Callable[[], float], stopping: Callable[[], bool]) -> None:
        self._stopping = stopping
        super().__init__(boxes, takes_all, batch, clock)
        self._share = lambda: 1.0

    _is_stopped: Any = property(lambda self: self._stopping(), lambda *_: None)

    def sweep(self, older_than: float = 0.0, within: float = 1e9) -> Any:
        return self._sweep(timedelta(seconds=older_than), timedelta(seconds=within))

    def sweep_with_reports(self, on_minute: Callable[[SweepReport], None]) -> Any:
        progress = self._begin_sweep(timedelta(0), on_minute=on_minute, looks_ahead=False)
        yield from self._pass(progress)
        return progress.take_untold()

    def notify(self, entities: list[dict[str, Any]]) -> Any:
        return self._notify(entities, timedelta.max)

    def pending(self, older_than: float, limit: int) -> Any:
        return self._waiting(timedelta(seconds=older_than), limit)

    flush, broken = Passes._flush, Passes._broken


def passes(
    boxes: Boxes, clock: Callable[[], float] = lambda: NOW, *, batch: int = 3, stopping: Callable[[], bool] = lambda: False
) -> Flows:
    return Flows(boxes, batch, clock, stopping)


MOST_CALLS = 1000  # far more than any pass here makes


def play(steps: Any, reply: Reply) -> tuple[Any, list[list[str]]]:
    """The result, and the types of the events in each call to the broker."""
    calls: list[list[str]] = []

    def perform(step: Any) -> Any:
        assert isinstance(step, Do)
        assert len(calls) < MOST_CALLS, "the pass never ends"
        (events,) = step.args
        calls.append([f"{event.entity['id']}{event.sequence}" for event in events])
        return reply(events)

    return drive(steps, perform), calls


def takes_all(events: list[Outgoing]) -> None:
    return None


def fails_with(*names: str) -> Reply:
    def reply(events: list[Outgoing]) -> None:
        if any(event.entity["id"] in names for event in events):
            raise ConnectionError

    return reply


def refuses(*types: str) -> Reply:
    return lambda events: [event for event in events if event.type in types]


def test_call_has_one_event_of_each_entity() -> None:
    boxes = Boxes(box("a", *"XXX"), box("b", "X"), box("c", "X"), box("d", *"XX"))
    swept, calls = play(passes(boxes).sweep(), takes_all)
    assert calls == [["a1", "b1", "c1"], ["a2", "d1"], ["a3", "d2"]]
    assert sorted(boxes.cleared) == [("a", 3), ("b", 1), ("c", 1), ("d", 2)]
    assert (swept.entities, swept.published, swept.pending) == (4, 7, 0)


@pytest.mark.parametrize("older_than", [8e13, -8e13])  # more than two million years
def test_sweep_for_events_older_than_any_date_ends(older_than: float) -> None:
    assert play(passes(Boxes()).sweep(older_than), takes_all)[0].complete


def test_entity_with_many_events_is_cleared_repeatedly() -> None:
    boxes = Boxes(box("a", *["X"] * (2 * MAX_UNCLEARED + 1)))
    flushed, _ = play(passes(boxes).flush({"id": "a"}), takes_all)
    assert boxes.cleared == [("a", MAX_UNCLEARED), ("a", MAX_UNCLEARED), ("a", 1)]
    assert [event.sequence for event in flushed.published] == [*range(1, 2 * MAX_UNCLEARED + 2)]


def test_failed_call_is_repeated_event_by_event() -> None:
    boxes = Boxes(box("a", *"XX"), box("b", "X"), box("c", "X"))
    swept, calls = play(passes(boxes).sweep(), fails_with("b"))
    assert calls == [["a1", "b1", "c1"], ["a1"], ["b1"], ["c1"], ["a2"]]
    assert [event.entity["id"] for event, _ in swept.failed] == ["b"]
    assert (swept.published, swept.pending, swept.error) == (3, 1, None)
    assert boxes.postponed == [("b", 1.0)]


def test_pass_ends_if_every_broker_call_fails() -> None:
    clock, boxes = Clock(NOW), Boxes(*[box(name, "X") for name in "abcdefg"])

    def fails_slowly(events: list[Outgoing]) -> None:
        clock.goes_on(10.0)
        raise ConnectionError

    swept, calls = play(passes(boxes, clock).sweep(), fails_slowly)
    assert calls == [["a1", "b1", "c1"], ["a1"], ["b1"]]  # for half a minute nobody has answered
    assert isinstance(swept.error, ConnectionError)
    assert (boxes.cleared, swept.complete, len(swept.failed)) == ([], False, 3)


def test_slow_search_does_not_count_as_failing_broker() -> None:
    clock = Clock(NOW)

    class Slow(Boxes):
        def finder(self, before: str | None, share: Callable[[], float]) -> Any:
            clock.goes_on(100.0)
            return super().finder(before, share)

    boxes = Slow(*[box(name, "X") for name in "abcde"])
    swept, _ = play(passes(boxes, clock, batch=2).sweep(), fails_with("a", "b", "c"))
    assert (swept.published, len(swept.failed), swept.error) == (2, 3, None)


def test_failing_events_do_not_block_later_events() -> None:
    bad = [f"{n}" for n in range(60)]
    boxes = Boxes(*[box(name, "X") for name in bad], box("good", "X"))
    swept, _ = play(passes(boxes).sweep(), fails_with(*bad))
    assert (boxes.cleared, len(swept.failed), swept.error, swept.complete) == ([("good", 1)], 60, None, True)


def test_notification_pass_continues_after_failing_calls() -> None:
    relay = passes(Boxes(*[box(name, "X") for name in "abc"]), batch=1)
    swept, _ = play(relay.notify([{"id": name} for name in "abc"]), fails_with("a", "b"))
    assert (swept.published, len(swept.failed), swept.error) == (1, 2, None)


def test_entity_that_cannot_be_cleared_is_retried_every_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock, boxes = Clock(NOW), Boxes(box("a", *"XX", age=9.0), box("b", "X"))
    boxes.failing = {"a": ConnectionError("not valid")}
    relay = passes(boxes, clock)
    swept, calls = play(relay.sweep(), takes_all)
    assert (calls, boxes.cleared, swept.error) == ([["a1", "b1"], ["a2"]], [("b", 1)], boxes.failing["a"])
    assert [(event.sequence, error) for event, error in swept.failed] == [(1, boxes.failing["a"])]
    assert (swept.pending, swept.oldest, swept.overtaken) == (2, 9.0, 0)
    assert caplog.messages[0].startswith(
        "Relay: the database refused to record the published or refused events of {'id': 'a'}"
    )
    boxes.boxes = boxes.boxes[:1]
    swept, calls = play(relay.sweep(), takes_all)
    assert (calls, swept.pending, swept.oldest) == ([], 2, 9.0)
    tries = [second for second in range(301) if _is_tried(relay, clock, second)]
    assert tries == [60, 120, 180, 240, 300]


@pytest.mark.parametrize("name", ["a", "b"])
def test_pass_succeeds_despite_an_entity_that_cannot_be_cleared(name: str) -> None:
    boxes = Boxes(box("a", "X"), box("b", "X"))
    boxes.failing = {name: ConnectionError("not valid")}
    swept, _ = play(passes(boxes).sweep(), takes_all)
    assert ([event.entity["id"] for event, _ in swept.failed], swept.error) == ([name], None)


def _is_tried(relay: Flows, clock: Clock, second: int) -> bool:
    clock.now = NOW + second
    return bool(play(relay.sweep(), takes_all)[1])


def test_found_entities_do_not_wait_for_a_slow_search() -> None:
    clock = Clock(NOW)
    found = [box("a", "X"), *[Search.CONTINUES] * 9, box("b", "X")]
    boxes = Boxes(*found, looking=lambda _: clock.goes_on(0.5))
    assert play(passes(boxes, clock).sweep(), takes_all)[1] == [["a1"], ["b1"]]
    swept, calls = play(passes(boxes, clock).sweep(within=4.0), takes_all)
    assert (calls, swept.complete) == ([["a1"]], False)


def test_pass_ends_if_the_database_refuses_every_change() -> None:
    boxes = Boxes(*[box(name, "X") for name in "abcdefg"])
    boxes.failing = {name: ConnectionError() for name in "abcdefg"}
    clock = Clock(NOW)
    swept, calls = play(passes(boxes, clock).sweep(), lambda _: clock.goes_on(15.0))
    assert calls == [["a1", "b1", "c1"], ["d1", "e1", "f1"]]  # for half a minute nobody has answered
    assert (swept.error, swept.complete) == (boxes.failing["f"], False)


def test_outbox_broken_before_its_clear_does_not_block_others() -> None:
    boxes = Boxes(box("a", *"XY"), box("b", "X"))
    boxes.failing = {"a": LedgerMismatch("something else")}
    swept, _ = play(passes(boxes).sweep(), refuses("Y"))
    assert ([each.entity for each in swept.broken], boxes.cleared) == ([{"id": "a"}], [("b", 1)])
    assert (swept.overtaken, swept.pending) == (0, 0)


def test_entity_found_twice_is_processed_once() -> None:
    boxes = Boxes(box("a", *"XX"), box("a", *"XX"), box("b", "X"))
    _, calls = play(passes(boxes).sweep(), takes_all)
    assert calls == [["a1", "b1"], ["a2"]]


def test_single_retry_does_not_begin_after_the_time_limit() -> None:
    clock, boxes = Clock(NOW), Boxes(*[box(name, "X") for name in "abc"])

    def takes_one(events: list[Outgoing]) -> None:
        clock.goes_on(6.0)
        if len(events) > 1:
            raise ConnectionError

    swept, calls = play(passes(boxes, clock).sweep(within=10.0), takes_one)
    assert (calls, swept.published, len(swept.failed)) == ([["a1", "b1", "c1"], ["a1"]], 1, 2)


def test_call_does_not_begin_if_the_clear_exceeds_the_limit() -> None:
    clock = Clock(NOW)

    class Slow(Boxes):
        def clear(self, box: Box, count: int, now: float) -> Any:
            clock.goes_on(20.0)
            return super().clear(box, count, now)

    boxes = Slow(box("a", "X"), box("b", *"XXX"))
    swept, calls = play(passes(boxes, clock).sweep(within=10.0), takes_all)
    assert (calls, boxes.cleared, swept.pending) == ([["a1", "b1"]], [("a", 1), ("b", 1)], 2)


def test_sweep_that_ends_early_is_not_complete() -> None:
    stopped = iter([False] * 3 + [True] * 9)
    boxes = Boxes(*[box(name, "X") for name in "abc"])
    swept, _ = play(passes(boxes, batch=1, stopping=lambda: next(stopped)).sweep(), takes_all)
    assert (swept.published, swept.complete) == (1, False)


def test_unreadable_entity_does_not_block_others(caplog: pytest.LogCaptureFixture) -> None:
    throttled: Any = BrokenOutbox({"id": "a"}, ConnectionError("throttled"))
    boxes = Boxes(throttled, box("b", "X"))
    swept, calls = play(passes(boxes).notify([{"id": name} for name in "ab"]), takes_all)
    assert (calls, swept.error) == ([["b1"]], None)
    assert caplog.messages == ["Relay: the outbox of {'id': 'a'} can't be read, so its events aren't published: throttled"]
    for names in ("ba", "aaab", "a" * 50 + "b" + "a" * 50):
        swept, calls = play(passes(boxes).notify([{"id": name} for name in names]), takes_all)
        assert (calls, swept.error, swept.complete) == ([["b1"]], None, False)
        assert {str(broken.error) for broken in swept.broken} == {"throttled"}


def test_pass_fails_if_no_entity_is_readable() -> None:
    for names, error in (("a", ConnectionError("throttled")), ("a" * 50, ConnectionError()), ("a", ConfigurationError())):
        with pytest.raises(type(error)):
            play(passes(Boxes(BrokenOutbox({"id": "a"}, error))).notify([{"id": name} for name in names]), takes_all)


@pytest.mark.parametrize("kind", ["sweep", "flush"])
def test_published_events_are_cleared_before_an_invalid_reply_raises(kind: str) -> None:
    boxes, replies = Boxes(box("a", *"XXX"), box("b", "X")), iter([None, None, "ok"])
    relay = passes(boxes)
    with pytest.raises(ConfigurationError, match="publish returned"):
        play(relay.sweep() if kind == "sweep" else relay.flush({"id": "a"}), lambda _: next(replies))
    assert ("a", 2) in boxes.cleared


def test_found_events_are_published_if_the_search_fails() -> None:
    def looking(found: Any) -> None:
        if found is None:
            raise ConnectionError("throttled")

    boxes = Boxes(box("a", *"XX"), box("b", "X"), looking=looking)
    swept, _ = play(passes(boxes).sweep(), takes_all)
    assert sorted(boxes.cleared) == [("a", 2), ("b", 1)]
    assert (str(swept.error), swept.published, swept.complete) == ("throttled", 3, False)
    with pytest.raises(ConnectionError, match="throttled"):
        play(passes(Boxes(looking=looking)).sweep(), takes_all)


def test_ending_pass_clears_accepted_events() -> None:
    boxes, stopped = Boxes(box("a", *"XX")), iter([False] * 4 + [True] * 3)
    swept, calls = play(passes(boxes, stopping=lambda: next(stopped)).sweep(), takes_all)
    assert (calls, boxes.cleared) == ([["a1"]], [("a", 1)])
    assert (swept.published, swept.pending, swept.oldest) == (1, 1, 0.0)


def test_refused_event_stops_its_entity_only() -> None:
    boxes = Boxes(box("a", "X", "Poison", "X", age=40.0), box("b", "X"))
    swept, _ = play(passes(boxes).sweep(), refuses("Poison"))
    assert [(event.type, event.sequence) for event in swept.refused] == [("Poison", 2)]
    assert (swept.published, swept.pending, swept.oldest, swept.waited) == (2, 2, 40.0, 40.0)
    assert sorted(boxes.cleared) == [("a", 1), ("b", 1)]


@pytest.mark.parametrize(("age", "wait"), [(0.0, 1.0), (8.0, 8.0), (1e6, 300.0), (-100.0, 101.0)])
def test_wait_after_a_refusal_doubles(age: float, wait: float) -> None:
    boxes = Boxes(box("a", "Poison", age=age))
    play(passes(boxes).sweep(), refuses("Poison"))
    assert boxes.postponed == [("a", wait)]


def test_wait_after_a_failure_is_at_most_a_minute() -> None:
    boxes = Boxes(box("a", "X", age=1e6))
    with pytest.raises(ConnectionError):
        play(passes(boxes).flush({"id": "a"}), fails_with("a"))
    assert boxes.postponed == [("a", 60.0)]


def test_overtaken_relay_postpones_nothing() -> None:
    boxes = Boxes(box("a", *"XY"))
    boxes.overtaken = {"a"}
    swept, _ = play(passes(boxes).sweep(), lambda events: [event for event in events if event.type == "Y"])
    assert (swept.overtaken, len(swept.refused), swept.pending, boxes.postponed) == (1, 1, 0, [])


def test_unreadable_entity_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(NOW)
    relay = passes(Boxes(BrokenOutbox({"id": "a"}, LedgerMismatch("something else"))), clock)
    for after, lines in ((0.0, 1), (1.0, 1), (59.0, 1), (60.0, 2), (61.0, 2)):
        clock.now = NOW + after
        play(relay.sweep(), takes_all)
        assert len(caplog.records) == lines
    assert (
        caplog.messages[0]
        == "Relay: the outbox of {'id': 'a'} can't be read, so its events aren't published: something else"
    )


def test_sweep_is_complete_and_a_notifications_pass_is_not() -> None:
    boxes = Boxes(box("a", "X"))
    assert play(passes(boxes).sweep(), takes_all)[0].complete
    assert not play(passes(boxes).notify([{"id": "a"}]), takes_all)[0].complete


def test_notification_skips_postponed_and_empty_entities() -> None:
    later = moment(NOW + 5)
    boxes = Boxes(box("a", "X", due=later), box("b"), box("c", "X", age=5.0, due=moment(NOW)))
    _, calls = play(passes(boxes).notify([{"id": name} for name in "abc"]), takes_all)
    assert calls == [["c1"]]


def test_oldest_pending_entities_are_listed() -> None:
    broken = BrokenOutbox({"id": "x"}, LedgerMismatch("something else"))
    boxes = Boxes(box("a", "X", age=5.0), broken, box("b", *"XX", age=9.0), box("c", "X", age=1.0), box("d", "X", age=7.0))
    waiting, _ = play(passes(boxes).pending(2.0, 2), takes_all)
    assert [(each.entity["id"], each.age, each.pending) for each in waiting] == [("b", 9.0, 2), ("d", 7.0, 1)]


def test_broken_entities_are_listed_up_to_a_limit() -> None:
    broken = [BrokenOutbox({"id": name}, LedgerMismatch("something else")) for name in "abc"]
    assert play(passes(Boxes(box("d", "X"), *broken)).broken(2), takes_all)[0] == broken[:2]


def test_pending_events_are_listed_if_their_clock_was_ahead() -> None:
    boxes = Boxes(*[box(f"{n}", "X", age=n - 60.0) for n in range(9)])
    waiting, _ = play(passes(boxes).pending(0.0, 3), takes_all)
    assert [each.age for each in waiting] == [-52.0, -53.0, -54.0]
    assert play(passes(boxes).pending(1.0, 3), takes_all)[0] == []


@pytest.mark.parametrize(
    "reply",
    [True, {"Failed": []}, [1], 0, [box("b", "X").outgoing(0)]],
    ids=["true", "dict", "number", "zero", "of another call"],
)
def test_invalid_reply_raises_and_clears_nothing(reply: Any) -> None:
    boxes = Boxes(box("a", "X"))
    with pytest.raises(ConfigurationError, match="publish returned"):
        play(passes(boxes).sweep(), lambda _: reply)
    assert boxes.cleared == []


def test_cloudevent_has_the_emitted_body_and_the_sequence() -> None:
    stored = PendingEvent("id", "Paid", '{"price":1.50}', moment(NOW), "n", "cause")
    event = Box({"id": 1}, "o/1", sent_count=6, incarnation="life", events=(stored,)).outgoing(0)
    text = event.cloudevent()
    assert text.endswith(',"data":{"price":1.50}}')
    plain = {"specversion": "1.0", "datacontenttype": "application/json", "data": {"price": 1.5}}
    named = {"id": event.id, "source": "o/1/life", "type": "Paid", "time": "2026-09-21T14:13:20.000Z"}
    assert json.loads(text) == plain | named | {"sequence": "7", "sequencetype": "Integer", "causationid": "cause"}


def test_relays_wait_longer_with_each_failure() -> None:
    assert [compute_pause(failures, 1.0, 1.0) for failures in (0, 1, 2, 6, 60)] == [1.0, 2.0, 4.0, 60.0, 60.0]
    assert compute_pause(0, 1.0, 0.0) == 0.5
    assert compute_pause(3, 120.0, 1.0) == 120.0
    assert [compute_pause(failures, 0.0, 1.0) for failures in (0, 1, 2)] == [0.0, 0.2, 0.4]


def test_pass_is_reported_to_log_and_hook(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    told: list[SweepReport] = []
    swept = SweepReport(refused=[box("a", "X").outgoing(0)], error=ValueError("w"))
    report_pass(swept, told.append)
    assert told == [swept]
    assert all(words in caplog.text for words in ("the broker refused", "a pass failed"))
    report_pass(SweepReport(), None)


def test_failing_hook_does_not_stop_the_relay(caplog: pytest.LogCaptureFixture) -> None:
    def hook(swept: SweepReport) -> None:
        raise ValueError

    report_pass(SweepReport(), hook)
    assert re.search(
        "on_pass raised ValueError at .* hook. The relay continues, but its metrics are incomplete", caplog.text
    )


class Refusal(Exception):
    """An error of a broker or a database, whose text can quote anything."""

    def __init__(self) -> None:
        super().__init__("amqp://relay:secret@broker refused OrderPaid")
        self.response = {"Error": {"Code": "Throttled"}}


def test_log_names_errors_without_their_texts(caplog: pytest.LogCaptureFixture) -> None:
    def publish(events: list[Outgoing]) -> None:
        raise Refusal

    boxes = Boxes(box("a", "X"), box("b", "X"))
    boxes.failing = {"b": Refusal()}
    swept, _ = play(passes(boxes).sweep(), lambda events: None if events[0].entity["id"] == "b" else publish(events))
    report_pass(swept, None)
    report_pass(SweepReport(error=swept.failed[0][1]), None, publish)
    assert "secret" not in caplog.text
    assert re.search(
        r"event .* failed, and is retried later: Refusal \(Throttled\) at test_outbox_passes\.py:\d+ ", caplog.text
    )
    assert "the next one retries: Refusal (Throttled) at " in caplog.text


def test_long_pass_reports_each_minute_and_what_remains(caplog: pytest.LogCaptureFixture) -> None:
    clock, boxes = Clock(NOW), Boxes(*[box(name, *"XX", age=10.0) for name in "abcdefgh"])

    def takes_slowly(events: list[Outgoing]) -> None:
        clock.goes_on(20.0)

    minutes: list[SweepReport] = []
    last, _ = play(passes(boxes, clock, batch=2).sweep_with_reports(minutes.append), takes_slowly)
    assert [(minute.published, minute.pending, minute.oldest) for minute in minutes] == [(6, 6, 70.0), (6, 2, 0.0)]
    assert [minute.waited for minute in minutes] == [70.0, 130.0]
    assert (last.published, last.pending, last.complete, last.continues) == (4, 0, True, False)
    assert {(minute.complete, minute.continues) for minute in minutes} == {(False, True)}
    with caplog.at_level(logging.INFO):
        report_pass(minutes[0], None)
    assert (
        "6 events published in the last minute. The pass continues: at least 6 events are pending, the oldest for"
        in caplog.text
    )


def test_postponed_events_count_as_pending_until_they_are_due() -> None:
    clock, boxes = Clock(NOW), Boxes(box("a", *"XX", age=100.0))
    relay = passes(boxes, clock)
    swept, _ = play(relay.sweep(), refuses("X"))
    assert (swept.pending, swept.oldest) == (2, 100.0)
    boxes.boxes = ()  # a finder finds no entity that isn't due
    clock.goes_on(60.0)
    swept, _ = play(relay.sweep_with_reports(lambda _: None), takes_all)
    assert (swept.pending, swept.oldest, swept.complete) == (2, 160.0, True)
    clock.goes_on(60.0)
    swept, _ = play(relay.sweep_with_reports(lambda _: None), takes_all)
    assert swept.pending == 0  # due, and not found: another relay has published them


def test_new_relay_counts_events_that_another_one_has_postponed() -> None:
    boxes = Boxes(box("a", *"XX", age=100.0, due=moment(NOW + 30)), box("b", "X"))
    relay = passes(boxes)
    for published in (1, 0):
        swept, _calls = play(relay.sweep(), takes_all)
        assert (swept.published, swept.pending, swept.oldest, swept.refused) == (published, 2, 100.0, [])
        boxes.boxes = boxes.boxes[:1]


@pytest.mark.parametrize(("ahead", "is_published"), [(30.0, False), (100.0, True), (50_000.0, True)])
def test_events_from_the_future_are_published_with_a_warning(
    ahead: float, is_published: bool, caplog: pytest.LogCaptureFixture
) -> None:
    swept, _ = play(passes(Boxes(box("a", "X", age=-ahead))).sweep(), takes_all)
    assert (swept.published == 1) is is_published
    assert (f"an event's time is {ahead:.0f} s ahead of this relay's clock" in caplog.text) is is_published


def test_flush_raises_the_publishers_error_first() -> None:
    boxes = Boxes(box("a", "X"))
    boxes.postpone_fails = TimeoutError()
    with pytest.raises(ConnectionError) as raised:
        play(passes(boxes).flush({"id": "a"}), fails_with("a"))
    assert raised.value.__cause__ is boxes.postpone_fails


def test_flush_raises_the_databases_error() -> None:
    boxes = Boxes(box("a", "X"))
    boxes.failing = {"a": TimeoutError()}
    with pytest.raises(TimeoutError) as raised:
        play(passes(boxes).flush({"id": "a"}), takes_all)
    assert raised.value.__cause__ is None  # an error that is its own cause sends readers of causes in a circle
