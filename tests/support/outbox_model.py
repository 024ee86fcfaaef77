"""Relays, writers, deletes, restores and an operator on one entity, in every order and with every fault within bounds.

The flows are the relay's own. Beneath them is a store of one entity in memory, in which each request is one step, and a broker
that may refuse, fail after it has accepted, or lose a relay in the middle. What consumers were shown is kept as a count for each
source, because first copies may only go on from there; a copy must be of the very event that had the number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from onewrite.core.event import Outbox
from onewrite.core.pending import Box, PendingEvent
from onewrite.core.tombstone import Tombstone
from onewrite.outbox.passes import Passes, Publish

ENTITY: Mapping[str, Any] = {"id": "e"}
CRASH, LOST = "the relay dies", "the answer is lost"
TOMBSTONE = Tombstone("", "expiresAt", 1, "delete")
Entity = tuple[int | None, str | None, tuple[PendingEvent, ...]]
Reply = tuple[str, Any]  # "got" and a value, "refused" and an event, or "raised" and nothing


class World(NamedTuple):
    """The entity, what consumers were shown, and what was emitted, each by its source's incarnation."""

    entity: Entity = (None, None, ())
    shown: tuple[tuple[str, int], ...] = ()
    emitted: tuple[tuple[str, tuple[str, ...]], ...] = ()
    calls: int = 0
    owed: tuple[str, ...] = ()  # the events that no delete and no restore has taken away
    backup: Entity | None = None
    restored: bool = False  # since then nobody may emit until the entity is restarted
    dead: bool = False  # a tombstone has taken the entity's place
    waits: bool = False  # at that moment there were pending events, so the one who deleted it leaves the expiry to a relay
    expires: bool = False


@dataclass(frozen=True)
class Ask:
    """One request to the store."""

    what: str
    box: Box | None = None
    more: Any = None


class Wrong(Exception):
    """Consumers were shown what they must not see, or never will be shown what they must."""


class Boxes:
    """What a relay asks of a store, as steps of the model. `by_count`: clears look at the count only, as a naive relay's would."""

    outbox = Outbox("o")
    target = None

    def entity(self, filter: object, key: object) -> Mapping[str, Any]:
        raise NotImplementedError

    def of_doorbell(self, entity: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError

    def of_source(self, source: str) -> Mapping[str, Any]:
        raise NotImplementedError

    def canonical(self, entity: Mapping[str, Any], /) -> str:
        return repr(entity)

    def finder(self, before: str | None) -> Any:
        raise NotImplementedError

    def read(self, entity: Mapping[str, Any], /) -> Any:
        return (yield Ask("read"))

    def clear(self, box: Box, count: int, now: float) -> Any:
        return (yield Ask("clear", box, count))

    def replace(self, box: Box, place: int, event: PendingEvent) -> Any:
        return (yield Ask("replace", box, (place, event)))

    def restart(self, box: Box, incarnation: str) -> Any:
        return (yield Ask("restart", box, incarnation))

    def postpone(self, box: Box, due: str) -> Any:
        return None
        yield  # a flow of no steps: when an event is tried again changes nothing here


def _passes(stops: Callable[[], bool] = lambda: False) -> Passes:
    return Passes(Boxes(), lambda: 0.0, lambda: 0.0, 10, stops)


def _skip() -> Any:
    """An operator sees the oldest event, and skips it later."""
    box = yield Ask("read")
    if box.events:
        yield from _passes().skip(ENTITY, box.outgoing(0).id)


def _restart() -> Any:
    yield from _passes().restart(ENTITY, "again")


PROGRAMS: dict[str, Callable[[], Generator[Any, Any, Any]]] = {
    "relay": lambda: _passes().flush(ENTITY),
    "skip": _skip,
    "restart": _restart,
}


@cache
def _next_step(program: str, history: tuple[Reply, ...]) -> Ask | Publish | None:
    """What an actor does after these replies; None: it is done."""
    steps = PROGRAMS[program]()
    try:
        step = next(steps)
        for kind, value in history:
            reply = [value] if kind == "refused" else value
            step = steps.throw(ConnectionError(LOST)) if kind == "raised" else steps.send(reply)
    except (StopIteration, ConnectionError):
        return None
    finally:
        steps.close()
    found: Ask | Publish = step
    return found


class Actor(NamedTuple):
    """Somebody who takes steps: a program and the replies so far, or a script of native operations."""

    program: str
    history: tuple[Reply, ...] = ()
    script: tuple[str, ...] = ()
    passes: int = 1  # how often it begins anew


class State(NamedTuple):
    world: World
    actors: tuple[Actor, ...]
    faults: int


@dataclass(frozen=True)
class Bounds:
    """Who takes part, and how many faults there may be.

    A script's operations are: emit1, emit2, delete, back up, restore; bury and clean up, the two requests of a guarded delete.
    """

    relays: int = 2
    passes: int = 2
    scripts: tuple[tuple[str, ...], ...] = (("emit1", "emit2"),)
    operators: tuple[str, ...] = ()
    faults: int = 1


@dataclass(frozen=True)
class Rules:
    """The rules of the store and of the broker's callers that may be left out, to see what they are for."""

    nonce: bool = True
    incarnation: bool = True
    count: bool = True
    stops_at_refusal: bool = True
    tombstone: bool = True


class Model:
    """Searches all states. `explore` returns how many there are, or raises `Wrong` with the shortest way to a wrong one."""

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self._rules = rules
        actors = [Actor("relay", passes=bounds.passes)] * bounds.relays + [Actor(name) for name in bounds.operators]
        actors += [Actor("script", script=script) for script in bounds.scripts]
        self._start = State(World(), tuple(actors), bounds.faults)

    def explore(self) -> int:
        before: dict[State, tuple[State, str] | None] = {self._start: None}
        waiting = deque([self._start])
        while waiting:
            state = waiting.popleft()
            try:
                _check_expiry(state.world)
                following = list(self._steps(state))
                if not following:
                    self._check_end(state.world)
            except Wrong as wrong:
                raise Wrong("\n".join([*_way(before, state), str(wrong)])) from None
            for what, reached in following:
                if reached not in before:
                    before[reached] = state, what
                    waiting.append(reached)
        return len(before)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        for n, actor in enumerate(state.actors):
            if actor.program == "script":
                if actor.script:
                    operation, *rest = actor.script
                    if state.world.restored:
                        continue
                    after = actor._replace(script=tuple(rest))
                    yield f"{operation}", _with(state, n, after, _native(state.world, operation))
                continue
            step = _next_step(actor.program, actor.history)
            if actor.program == "restart" and not state.world.restored:
                continue
            if isinstance(step, Ask):
                yield from self._asked(state, n, step)
            elif step is not None:
                yield from self._published(state, n, step)

    def _asked(self, state: State, n: int, ask: Ask) -> Iterator[tuple[str, State]]:
        world, found = self._perform(state.world, ask)
        actor = state.actors[n]
        name = f"{actor.program} {n}: {ask.what}"
        yield f"{name} -> {found}", _with(state, n, _told(actor, ("got", found)), world)
        if state.faults:
            spent = state._replace(faults=state.faults - 1)
            yield f"{name}, {LOST}", _with(spent, n, _told(actor, ("raised", None)), world)
            yield f"{name}, {CRASH}", _with(spent, n, Actor("script"), world)

    def _published(self, state: State, n: int, publish: Publish) -> Iterator[tuple[str, State]]:
        (event,), actor = publish.events, state.actors[n]
        shown = _show(state.world, event.source.rpartition("/")[2], event.sequence, self._emitted_id(state.world, event))
        name = f"{actor.program} {n}: publish {event.sequence} of {event.source}"
        yield f"{name} -> accepted", _with(state, n, _told(actor, ("got", None)), shown)
        if not state.faults:
            return
        spent = state._replace(faults=state.faults - 1)
        refusal: Reply = ("refused", event) if self._rules.stops_at_refusal else ("got", None)
        for landed, world in ((" that had landed", shown), ("", state.world)):
            yield f"{name} -> refusal{landed}", _with(spent, n, _told(actor, refusal), world)
            yield f"{name} -> failure{landed}", _with(spent, n, _told(actor, ("raised", None)), world)
            yield f"{name}{landed}, {CRASH}", _with(spent, n, Actor("script"), world)

    @staticmethod
    def _emitted_id(world: World, event: Any) -> str:
        """The stored id of what is published: every source's ids are known, and a published one is made from one of them."""
        life = event.source.rpartition("/")[2]
        for stored in dict(world.emitted).get(life, ()):
            pending = PendingEvent(stored, "t", "", "1970-01-01T00:00:00.000Z", life, "")
            if Box(ENTITY, "o", event.sequence - 1, life, (pending,)).outgoing(0).id == event.id:
                return stored
        raise Wrong(f"{event} is published, and nobody has emitted it in that source")

    def _perform(self, world: World, ask: Ask) -> tuple[World, Box | None]:
        sent, incarnation, events = world.entity
        now = Box(ENTITY, "o", sent, incarnation, events, tombstone=TOMBSTONE if world.dead else None)
        if ask.box is None:
            return world, now
        place = ask.more - 1 if ask.what == "clear" else ask.more[0] if ask.what == "replace" else 0 if events else None
        if not self._matches(now, ask.box, place):
            return world, now
        if ask.what == "replace":
            entity = sent, incarnation, now.with_event(*ask.more).events
            return world._replace(entity=entity), None
        if ask.what == "restart":
            restarted = (ask.more, tuple([event.id for event in events]))
            emitted = (*world.emitted, restarted)
            return world._replace(entity=(0, ask.more, events), emitted=emitted, restored=False), None
        if ask.more == len(ask.box.events) and len(events) != ask.more:
            return world, now  # clears everything, and more has come
        ends = ask.more == len(events)
        if ends and self._rules.tombstone and now.tombstone != ask.box.tombstone:
            return world, now
        if ends and ask.box.tombstone is not None:
            world = world._replace(expires=True)
        cleared = (ask.box.base + ask.more, ask.box.life, events[ask.more :])
        return world._replace(entity=cleared), None

    def _matches(self, now: Box, read: Box, place: int | None) -> bool:
        if self._rules.count and now.sent_count != read.sent_count:
            return False
        if self._rules.incarnation and now.incarnation != read.incarnation:
            return False
        if place is None:
            return True
        if place >= len(now.events):
            return False
        return not self._rules.nonce or now.events[place].nonce == read.events[place].nonce

    def _check_end(self, world: World) -> None:
        """A relay that nothing disturbs shows the rest: then all that was emitted in this life has been shown, and nothing waits."""
        if world.restored:  # the operator's try to restart it has failed, and another one would follow
            return
        state = State(world, (Actor("relay"),), 0)
        while following := list(self._steps(state)):
            ((_, state),) = following
        sent, incarnation, events = state.world.entity
        if state.world.dead and not state.world.expires:
            raise Wrong("the tombstone stays forever")
        if events:
            raise Wrong(f"at the end {len(events)} events wait, and the relay does not publish them")
        known = [each for life, n in state.world.shown for each in dict(state.world.emitted)[life][:n]]
        if lost := set(state.world.owed).difference(known):
            raise Wrong(f"these events are gone from the outbox, and were never shown: {sorted(lost)}")
        if incarnation is not None:
            emitted, shown = dict(state.world.emitted)[incarnation], dict(state.world.shown).get(incarnation, 0)
            if not sent == len(emitted) == shown:
                raise Wrong(f"{len(emitted)} events were emitted in {incarnation}, {shown} shown, {sent} counted")


def _check_expiry(world: World) -> None:
    if world.expires and world.entity[2]:
        raise Wrong("the database may remove the tombstone with what is pending in it")


def _show(world: World, life: str, number: int, emitted_id: str) -> World:
    emitted, shown = dict(world.emitted)[life], dict(world.shown)
    count = shown.get(life, 0)
    if number > count + 1:
        raise Wrong(f"{number} of {life} is shown, and consumers have seen {count} so far")
    if emitted[number - 1 : number] != (emitted_id,):
        raise Wrong(f"{emitted_id} is shown as {number} of {life}, in which these were emitted: {emitted}")
    shown[life] = max(count, number)
    return world._replace(shown=tuple(sorted(shown.items())))


def _native(world: World, operation: str) -> World:
    sent, incarnation, events = world.entity
    match operation:
        case "bury":
            return world._replace(dead=True, waits=bool(events))
        case "clean up":
            return world._replace(expires=world.expires or not world.waits)
        case _ if world.dead:
            return world  # nobody can write into a tombstone
        case "delete":
            return world._replace(entity=(None, None, ()), owed=())
        case "back up":
            return world._replace(backup=world.entity)
        case "restore":
            assert world.backup is not None
            owed = tuple([event.id for event in world.backup[2]])
            return world._replace(entity=world.backup, owed=owed, restored=True)
    nonce = f"call{world.calls}"
    count = int(operation.removeprefix("emit"))
    new = [PendingEvent(f"{nonce}.{n}", "t", "null", "1970-01-01T00:00:00.000Z", nonce, "") for n in range(count)]
    life = incarnation or (events[0].nonce if events else nonce)
    emitted = dict(world.emitted)
    emitted[life] = (*emitted.get(life, ()), *[event.id for event in new])
    owed = (*world.owed, *[event.id for event in new])
    entity = sent, incarnation, (*events, *new)
    return world._replace(entity=entity, emitted=tuple(emitted.items()), calls=world.calls + 1, owed=owed)


def _told(actor: Actor, reply: Reply) -> Actor:
    told = actor._replace(history=(*actor.history, reply))
    if _next_step(told.program, told.history) is not None:
        return told
    return actor._replace(history=(), passes=actor.passes - 1) if actor.passes > 1 else Actor("script")


def _with(state: State, n: int, actor: Actor, world: World) -> State:
    return State(world, (*state.actors[:n], actor, *state.actors[n + 1 :]), state.faults)


def _way(before: Mapping[State, tuple[State, str] | None], state: State) -> list[str]:
    steps: list[str] = []
    while (came := before[state]) is not None:
        state, what = came
        steps.insert(0, what)
    return steps
