"""Sweeps over several entities under random faults: two relays and a writer, interleaved step by step.

`tests/gallery/test_publishing.py` goes through every order of steps for one entity. Here passes meet many entities at once, with a
broker that refuses, fails before or after it has accepted, and a database that fails before or after a change has landed. Relays
are asked to stop, or die between any two steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from onewrite.core.event import moment
from onewrite.core.pending import Box, Broken, PendingEvent, Search
from onewrite.outbox import Outgoing, SweepReport
from onewrite.outbox.passes import Passes

START = 1_790_000_000.0
Entity = Mapping[str, Any]


@dataclass(frozen=True)
class Ask:
    """One request to the database."""

    perform: Callable[[], Any]


class World:
    """The entities, the consumers and the time. Raises AssertionError as soon as an event is lost, invented or overtaken."""

    target = None

    def __init__(self, random: Random) -> None:
        self.random, self.now, self.calls = random, START, 0
        self.boxes = {name: Box({"id": name}, f"o/{name}") for name in "abcde"}
        self.emitted: dict[str, list[str]] = defaultdict(list)  # the stored ids, in order
        self.shown: dict[str, int] = defaultdict(int)  # how many of them consumers have seen
        self.faults = True

    # --- what writers and consumers do -------------------------------------------------------------------------------

    def emit(self) -> None:
        name = self.random.choice([*self.boxes])
        box, count = self.boxes[name], self.random.choice([1, 1, 2, 30])
        self.calls += 1
        new = [PendingEvent(f"{self.calls}.{n}", "t", "1", moment(self.now), f"n{self.calls}", "") for n in range(count)]
        self.emitted[name] += [event.id for event in new]
        self.boxes[name] = replace(box, events=(*box.events, *new))

    def show(self, event: Outgoing) -> None:
        name, number = event.entity["id"], event.sequence
        assert number <= self.shown[name] + 1, f"{number} of {name} goes out, and consumers have seen {self.shown[name]}"
        stored = self.emitted[name][number - 1]
        life = self.boxes[name].life
        pending = PendingEvent(stored, "t", "1", "", life, "")
        expected = Box({"id": name}, f"o/{name}", sent_count=number - 1, incarnation=life, events=(pending,)).outgoing(0).id
        assert event.id == expected, f"another event goes out as {number} of {name}"
        self.shown[name] = max(self.shown[name], number)

    def publish(self, events: list[Outgoing]) -> list[Outgoing]:
        assert len({event.source for event in events}) == len(events), "two events of an entity are in one call"
        fails = self.faults and self.random.random() < 0.15
        refused = [event for event in events if self.faults and self.random.random() < 0.15]
        for event in events:
            if event not in refused and not (fails and self.random.random() < 0.5):
                self.show(event)
        if fails:
            raise ConnectionError("the broker has failed")
        return refused

    def answer(self, ask: Ask) -> Any:
        """What the database answers, if it does. Where it does not, it may have done what it was asked to."""
        lost = self.faults and self.random.random() < 0.12
        reply = None if lost and self.random.random() < 0.5 else ask.perform()
        if lost:
            raise TimeoutError("the database has not answered")
        return reply

    # --- what a relay asks of a store --------------------------------------------------------------------------------

    def canonical(self, entity: Entity, /) -> str:
        return str(entity["id"])

    def entity(self, filter: object, key: object) -> Entity:
        raise NotImplementedError

    read_source: Any = entity
    read_doorbell: Any = entity
    replace: Any = entity
    restart: Any = entity

    def read(self, entity: Entity, /) -> Any:
        return (yield Ask(lambda: self.boxes[entity["id"]]))

    def clear(self, box: Box, count: int, now: float) -> Any:
        def perform() -> Box | None:
            name = box.entity["id"]
            stored = self.boxes[name]
            if not stored.follows(box, count) or (count == len(box.events) and len(stored.events) != count):
                return stored
            assert box.base + count <= self.shown[name], f"an event of {name} is cleared that was not published"
            self.boxes[name] = replace(stored.after(count), due=stored.events[count].time if stored.events[count:] else None)
            return None

        return (yield Ask(perform))

    def postpone(self, box: Box, due: str) -> Any:
        def perform() -> Box | None:
            stored = self.boxes[box.entity["id"]]
            if not stored.follows(box, 1):
                return stored
            self.boxes[box.entity["id"]] = replace(stored, due=due)
            return None

        return (yield Ask(perform))

    def finder(self, before: str | None) -> Any:
        world = self

        class Finder:
            """Lists what is pending, and reads each a step later, as the engines do."""

            names: list[str] | None = None

            def next(self) -> Any:
                if self.names is None:
                    self.names = yield Ask(lambda: [name for name, box in world.boxes.items() if box.is_due(before)])
                    return Search.CONTINUES
                if not self.names:
                    return None
                entity = {"id": self.names.pop()}
                try:
                    box: Box = yield from world.read(entity)
                except TimeoutError as error:
                    return Broken(entity, error)
                return box if box.is_due(before) else Search.CONTINUES

        return Finder()


class Relay:
    """One relay, that makes one pass after the other until it is stopped or dies."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._passes = self._fresh()
        self._steps: Generator[Any, Any, SweepReport] | None = None
        self._step: Any = None
        self.swept: SweepReport | None = None  # of the last pass that came to its end

    def _fresh(self) -> Passes:
        passes = Passes(self._world, self._world.publish, 3, lambda: self._world.now)
        passes._share = self._world.random.random
        return passes

    def act(self) -> None:
        """Take the next step of a pass."""
        world, self.swept = self._world, None
        try:
            if self._steps is None:
                self._passes._is_stopped = False
                self._steps = self._passes._sweep(
                    timedelta(), timedelta(seconds=world.random.choice([3.0, 1e9]) if world.faults else 1e9)
                )
                self._step = next(self._steps)
                return
            try:
                reply = world.answer(self._step) if isinstance(self._step, Ask) else self._step.function(*self._step.args)
            except (ConnectionError, TimeoutError) as error:
                self._step = self._steps.throw(error)
            else:
                self._step = self._steps.send(reply)
        except StopIteration as end:
            self._steps, self.swept = None, end.value
        except (ConnectionError, TimeoutError):
            self._steps = None

    def stop(self) -> None:
        self._passes._is_stopped = True

    def die(self) -> None:
        """Nothing more is asked of the database: what was published is not cleared."""
        if self._steps is not None:
            self._steps.close()
        self._steps, self.swept, self._passes = None, None, self._fresh()  # another one begins with empty hands


@pytest.mark.parametrize("seed", range(60))
def test_no_event_is_lost_invented_or_overtaken_by_sweeps(seed: int) -> None:
    random = Random(seed)
    world = World(random)
    relays = [Relay(world), Relay(world)]
    for _ in range(400):
        relay = random.choice(relays)
        match random.choices(["act", "emit", "stop", "die", "wait"], [85, 8, 2, 2, 6])[0]:
            case "act":
                relay.act()
            case "emit":
                world.emit()
            case "stop":
                relay.stop()
            case "die":
                relay.die()
            case _:
                world.now += random.choice([0.1, 1.0, 20.0])

    # When all is well again, whatever waits goes out.
    world.faults = False
    for relay in relays:
        while relay.swept is None:
            relay.act()
    world.now += 1000.0
    last = None
    for _ in range(10_000):
        if last is not None and not any(box.events for box in world.boxes.values()):
            break
        relays[0].act()
        last = relays[0].swept or last
    assert last is not None
    assert (last.complete, last.error, last.pending, last.refused, last.failed) == (True, None, 0, [], [])
    assert {name: world.shown[name] for name in world.boxes} == {name: len(world.emitted[name]) for name in world.boxes}
    assert {name: box.base for name, box in world.boxes.items()} == {name: world.shown[name] for name in world.boxes}
