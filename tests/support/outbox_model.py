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
from onewrite.core.flow import Do
from onewrite.core.pending import Box, PendingEvent
from onewrite.core.tombstone import Tombstone
from onewrite.errors import ConfigurationError
from onewrite.outbox.passes import Passes

ENTITY: Mapping[str, Any] = {"id": "e"}
CRASH, LOST = "the relay dies", "the answer is lost"
TOMBSTONE = Tombstone("", "expiresAt", 1, "delete")
Entity = tuple[int | None, str | None, tuple[PendingEvent, ...]]
Reply = tuple[str, Any]  # "got" and a value, "refused" and an event, or "raised" and nothing


class World(NamedTuple):
    """The entity, what consumers were shown, and what was emitted, each by its source's incarnation."""

    entity: Entity = (None, None, ())
    shown_counts: tuple[tuple[str, int], ...] = ()
    emitted_ids: tuple[tuple[str, tuple[str, ...]], ...] = ()
    calls: int = 0
    owed_ids: tuple[str, ...] = ()  # the events that no delete and no restore has taken away
    backup: Entity | None = None
    is_restored: bool = False  # since then nobody may emit until the entity is restarted
    dead: bool = False  # a tombstone has taken the entity's place
    waits: bool = False  # at that moment there were pending events, so the one who deleted it leaves the expiry to a relay
    expires: bool = False


@dataclass(frozen=True)
class Ask:
    """One request to the store."""

    name: str
    box: Box | None = None
    argument: Any = None


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


def _passes() -> Passes:
    return Passes(Boxes(), lambda _: None, 10, lambda: 1_790_000_000.0)


def _skip() -> Any:
    """An operator sees the oldest event, and skips it later."""
    box = yield Ask("read")
    if box.events:
        yield from _passes()._skip(ENTITY, box.outgoing(0).id)


def _restart() -> Any:
    yield from _passes()._restart(ENTITY, "again")


PROGRAMS: dict[str, Callable[[], Generator[Any, Any, Any]]] = {
    "relay": lambda: _passes()._flush(ENTITY),
    "skip": _skip,
    "restart": _restart,
}


@cache
def _next_step(program: str, history: tuple[Reply, ...]) -> Ask | Do | None:
    """What an actor does after these replies; None: it is done."""
    steps = PROGRAMS[program]()
    try:
        step = next(steps)
        for kind, value in history:
            reply = [value] if kind == "refused" else value
            step = steps.throw(ConnectionError(LOST)) if kind == "raised" else steps.send(reply)
    except (StopIteration, ConnectionError, ConfigurationError):
        return None
    finally:
        steps.close()
    ask: Ask | Do = step
    return ask


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
        ways: dict[State, tuple[State, str] | None] = {self._start: None}
        queue = deque([self._start])
        while queue:
            state = queue.popleft()
            try:
                _check_expiry(state.world)
                moves = list(self._steps(state))
                if not moves:
                    self._check_end(state.world)
            except Wrong as wrong:
                raise Wrong("\n".join([*_way(ways, state), str(wrong)])) from None
            for name, next_state in moves:
                if next_state not in ways:
                    ways[next_state] = state, name
                    queue.append(next_state)
        return len(ways)

    def _steps(self, state: State) -> Iterator[tuple[str, State]]:
        for n, actor in enumerate(state.actors):
            if actor.program == "script":
                if actor.script:
                    operation, *operations = actor.script
                    if state.world.is_restored:
                        continue
                    next_actor = actor._replace(script=tuple(operations))
                    yield f"{operation}", _with(state, n, next_actor, _native(state.world, operation))
                continue
            step = _next_step(actor.program, actor.history)
            if actor.program == "restart" and not state.world.is_restored:
                continue
            if isinstance(step, Ask):
                yield from self._answer(state, n, step)
            elif step is not None:
                yield from self._publish(state, n, step)

    def _answer(self, state: State, n: int, ask: Ask) -> Iterator[tuple[str, State]]:
        world, box = self._perform(state.world, ask)
        actor = state.actors[n]
        name = f"{actor.program} {n}: {ask.name}"
        yield f"{name} -> {box}", _with(state, n, _after_reply(actor, ("got", box)), world)
        if state.faults:
            faulty_state = state._replace(faults=state.faults - 1)
            yield f"{name}, {LOST}", _with(faulty_state, n, _after_reply(actor, ("raised", None)), world)
            yield f"{name}, {CRASH}", _with(faulty_state, n, Actor("script"), world)

    def _publish(self, state: State, n: int, publish: Do) -> Iterator[tuple[str, State]]:
        ((event,),), actor = publish.args, state.actors[n]
        next_world = _show(
            state.world, event.source.rpartition("/")[2], event.sequence, self._emitted_id(state.world, event)
        )
        name = f"{actor.program} {n}: publish {event.sequence} of {event.source}"
        yield f"{name} -> accepted", _with(state, n, _after_reply(actor, ("got", None)), next_world)
        if not state.faults:
            return
        faulty_state = state._replace(faults=state.faults - 1)
        refusal: Reply = ("refused", event) if self._rules.stops_at_refusal else ("got", None)
        for landing, world in ((" that had landed", next_world), ("", state.world)):
            yield f"{name} -> refusal{landing}", _with(faulty_state, n, _after_reply(actor, refusal), world)
            yield f"{name} -> failure{landing}", _with(faulty_state, n, _after_reply(actor, ("raised", None)), world)
            yield f"{name}{landing}, {CRASH}", _with(faulty_state, n, Actor("script"), world)

    @staticmethod
    def _emitted_id(world: World, event: Any) -> str:
        """The stored id of what is published: every source's ids are known, and a published one is made from one of them."""
        life = event.source.rpartition("/")[2]
        for stored_id in dict(world.emitted_ids).get(life, ()):
            pending_event = PendingEvent(stored_id, "t", "", "1970-01-01T00:00:00.000Z", life, "")
            if Box(ENTITY, "o", event.sequence - 1, life, (pending_event,)).outgoing(0).id == event.id:
                return stored_id
        raise Wrong(f"{event} is published, and nobody has emitted it in that source")

    def _perform(self, world: World, ask: Ask) -> tuple[World, Box | None]:
        sent_count, incarnation, events = world.entity
        now = Box(ENTITY, "o", sent_count, incarnation, events, tombstone=TOMBSTONE if world.dead else None)
        if ask.box is None:
            return world, now
        place = (
            ask.argument - 1 if ask.name == "clear" else ask.argument[0] if ask.name == "replace" else 0 if events else None
        )
        if not self._matches(now, ask.box, place):
            return world, now
        if ask.name == "replace":
            entity = sent_count, incarnation, now.with_event(*ask.argument).events
            return world._replace(entity=entity), None
        if ask.name == "restart":
            restarted = (ask.argument, tuple([event.id for event in events]))
            emitted = (*world.emitted_ids, restarted)
            return world._replace(entity=(0, ask.argument, events), emitted_ids=emitted, is_restored=False), None
        if ask.argument == len(ask.box.events) and len(events) != ask.argument:
            return world, now  # clears everything, and more has come
        ends = ask.argument == len(events)
        if ends and self._rules.tombstone and now.tombstone != ask.box.tombstone:
            return world, now
        if ends and ask.box.tombstone is not None:
            world = world._replace(expires=True)
        cleared = (ask.box.base + ask.argument, ask.box.life, events[ask.argument :])
        return world._replace(entity=cleared), None

    def _matches(self, box_now: Box, box_read: Box, place: int | None) -> bool:
        if self._rules.count and box_now.sent_count != box_read.sent_count:
            return False
        if self._rules.incarnation and box_now.incarnation != box_read.incarnation:
            return False
        if place is None:
            return True
        if place >= len(box_now.events):
            return False
        return not self._rules.nonce or box_now.events[place].nonce == box_read.events[place].nonce

    def _check_end(self, world: World) -> None:
        """A relay that nothing disturbs shows the rest: then all that was emitted in this life has been shown, and nothing waits."""
        if world.is_restored:  # the operator's try to restart it has failed, and another one would follow
            return
        state = State(world, (Actor("relay"),), 0)
        while moves := list(self._steps(state)):
            ((_, state),) = moves
        sent_count, incarnation, events = state.world.entity
        if state.world.dead and not state.world.expires:
            raise Wrong("the tombstone stays forever")
        if events:
            raise Wrong(f"at the end {len(events)} events wait, and the relay does not publish them")
        shown_ids = [name for life, n in state.world.shown_counts for name in dict(state.world.emitted_ids)[life][:n]]
        if lost_ids := set(state.world.owed_ids).difference(shown_ids):
            raise Wrong(f"these events are gone from the outbox, and were never shown: {sorted(lost_ids)}")
        if incarnation is not None:
            emitted_ids, shown_count = (
                dict(state.world.emitted_ids)[incarnation],
                dict(state.world.shown_counts).get(incarnation, 0),
            )
            if not sent_count == len(emitted_ids) == shown_count:
                raise Wrong(
                    f"{len(emitted_ids)} events were emitted in {incarnation}, {shown_count} shown, {sent_count} counted"
                )


def _check_expiry(world: World) -> None:
    if world.expires and world.entity[2]:
        raise Wrong("the database may remove the tombstone with what is pending in it")


def _show(world: World, life: str, number: int, emitted_id: str) -> World:
    emitted_ids, shown_counts = dict(world.emitted_ids)[life], dict(world.shown_counts)
    count = shown_counts.get(life, 0)
    if number > count + 1:
        raise Wrong(f"{number} of {life} is shown, and consumers have seen {count} so far")
    if emitted_ids[number - 1 : number] != (emitted_id,):
        raise Wrong(f"{emitted_id} is shown as {number} of {life}, in which these were emitted: {emitted_ids}")
    shown_counts[life] = max(count, number)
    return world._replace(shown_counts=tuple(sorted(shown_counts.items())))


def _native(world: World, operation: str) -> World:
    sent_count, incarnation, events = world.entity
    match operation:
        case "bury":
            return world._replace(dead=True, waits=bool(events))
        case "clean up":
            return world._replace(expires=world.expires or not world.waits)
        case _ if world.dead:
            return world  # nobody can write into a tombstone
        case "delete":
            return world._replace(entity=(None, None, ()), owed_ids=())
        case "back up":
            return world._replace(backup=world.entity)
        case "restore":
            assert world.backup is not None
            owed_ids = tuple([event.id for event in world.backup[2]])
            return world._replace(entity=world.backup, owed_ids=owed_ids, is_restored=True)
    nonce = f"call{world.calls}"
    count = int(operation.removeprefix("emit"))
    new = [PendingEvent(f"{nonce}.{n}", "t", "null", "1970-01-01T00:00:00.000Z", nonce, "") for n in range(count)]
    life = incarnation or (events[0].nonce if events else nonce)
    emitted_ids = dict(world.emitted_ids)
    emitted_ids[life] = (*emitted_ids.get(life, ()), *[event.id for event in new])
    owed_ids = (*world.owed_ids, *[event.id for event in new])
    entity = sent_count, incarnation, (*events, *new)
    return world._replace(entity=entity, emitted_ids=tuple(emitted_ids.items()), calls=world.calls + 1, owed_ids=owed_ids)


def _after_reply(actor: Actor, reply: Reply) -> Actor:
    next_actor = actor._replace(history=(*actor.history, reply))
    if _next_step(next_actor.program, next_actor.history) is not None:
        return next_actor
    return actor._replace(history=(), passes=actor.passes - 1) if actor.passes > 1 else Actor("script")


def _with(state: State, n: int, actor: Actor, world: World) -> State:
    return State(world, (*state.actors[:n], actor, *state.actors[n + 1 :]), state.faults)


def _way(ways: Mapping[State, tuple[State, str] | None], state: State) -> list[str]:
    steps: list[str] = []
    while (step := ways[state]) is not None:
        state, name = step
        steps.insert(0, name)
    return steps
