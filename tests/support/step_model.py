"""Workers that perform one step of one message, in every order, with crashes, lost answers and clocks that are off.

The flows are the library's own. Beneath them is an entity in memory, in which each request is one step of the model, and a provider
that recognises a key for as long as it promises and not a second longer. An effect that is sent reaches the provider within the time
that `left()` gave it, or never: that is what the timeout of the request is for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from onewrite import Applied, Begun, Duplicate, InSequence, Message, Outcome, Stale, Superseded
from onewrite.core.engine import Engine
from onewrite.core.flow import Do
from onewrite.core.label import Slot
from onewrite.core.ledgers.entry import ABSENT
from onewrite.core.pipeline import Refusal
from onewrite.core.step import STEP_SKEW, FinalWrite, Step
from onewrite.core.steps import perform
from onewrite.core.write import Begins, Image, Withdraws, Write

M = Message("m", source="s", sequence=1)
LEASE = timedelta(minutes=1)
SAFE_FOR = LEASE + 2 * STEP_SKEW + timedelta(minutes=30)  # a step is taken over for half an hour after its begin
START = 1_790_000_000.0
Reply = tuple[str, Any]  # "got" and a value, or "raised" and nothing


class Wrong(Exception):
    """Somebody was charged twice, or a charge was never recorded."""


class World(NamedTuple):
    now: float = START
    step: Step | None = None
    mark: str = "absent"  # or "done", or "overtaken" by a later message of the source
    charges: tuple[tuple[str, float], ...] = ()  # each key, and when the provider learnt it
    records: int = 0
    settled: bool = False  # somebody has told the broker that the message is done


class Worker(NamedTuple):
    """A delivery: what it was told so far, and what its clock has shown. `offset`: how far the clock is ahead."""

    number: int
    offset: float
    deliveries: int
    replies: tuple[Reply, ...] = ()
    readings: tuple[float, ...] = ()
    runs: bool = False


class State(NamedTuple):
    world: World
    workers: tuple[Worker, ...]
    faults: int
    ticks: int


@dataclass(frozen=True)
class Ask:
    """One request to the store: begin, finish, withdraw or let go. `fence`: of the step that it is about, if there is one."""

    name: str
    fence: str | None = None
    step: Any = None  # to begin, or of which the effect is sent


@dataclass(frozen=True)
class Attempt:
    """A write of the library's, which asks instead of being sent."""

    write: Write
    ask: Ask

    def send(self) -> Any:
        """Begin a step. The image shows what refused it, and the new step itself where it was begun."""
        step, mark = yield self.ask
        steps = {} if step is None else {self.write.marks[0][0]: step.as_fields()}

        def look_up(slot: Slot) -> object:
            return {"absent": ABSENT, "done": 1, "overtaken": 2}[mark] if slot.key else ABSENT

        return Refusal(self.write, Image(True, False, {}, look_up, steps, {}, False))

    def lands(self) -> Any:
        return (yield self.ask)

    def show(self, outcome: Outcome) -> Outcome:
        return outcome


class Store(Engine):
    """The engine of one worker."""

    final_write, has_token, full_name = FinalWrite("write", frozenset(), "{}"), False, "entities"

    def __init__(self, clock: Callable[[], float], call: str) -> None:
        super().__init__(InSequence(), clock, lambda: call, outbox=None, tombstones=None, is_async=False)

    def is_taken(self, name: str) -> bool:
        return False

    def keep(self, native: Any) -> Any:
        return native

    def read_key(self, native: Any) -> Mapping[str, Any]:
        return {}

    def name_entity(self, key: Any) -> Any:
        return {}

    def canonical(self, key: Any, /) -> str:
        return ""

    def attempt(self, write: Write, native: Any) -> Any:
        assert isinstance(write.step, Withdraws)
        return Attempt(write, Ask("withdraw", write.step.fence))

    def attempt_begin(self, write: Write, native: Any) -> Any:
        assert isinstance(write.step, Begins)
        return Attempt(write, Ask("begin", None, write.step.step))

    def change_step(self, write: Write, native: Any, ledger: str, fence: str, change: Any) -> Any:
        return Attempt(write, Ask("begin", fence, change) if isinstance(change, Step) else Ask("let go", fence))

    def read(self, key: Any, native: Any, entry: Any = None) -> Any:
        raise NotImplementedError

    def finish(self, message: Any, native: Any, claim: Any, emit: Any = None, attempt: Any = None) -> Any:
        return (yield Ask("finish", claim.fence))


@dataclass(frozen=True)
class Bounds:
    """How far each worker's clock is ahead, in seconds; how often the message comes to each; how much time passes and goes wrong."""

    offsets: tuple[float, ...] = (0.0, 0.0)
    deliveries: int = 1
    faults: int = 1
    ticks: int = 3
    # Seconds, one of which passes at each tick: a lease; and so much that a step may be taken over after one, and a key is forgotten
    # after two.
    passes: tuple[float, ...] = (60.0, 1320.0)
    overtaken: bool = False  # a later message of the source comes in between


@dataclass(frozen=True)
class Rules:
    """The rules that may be left out, to see what they are for."""

    first_key: bool = True  # a takeover keeps the key of the first begin
    first_time: bool = True  # and its time
    skew: bool = True  # a takeover bears that clocks are off
    left: bool = True  # an effect is not sent after its lease
    remembers_sent: bool = True  # a release of what may have been sent leaves the step
    outranks: bool = True  # an open step comes before the ledger


class Model:
    """Searches all states. `explore` returns how many there are, or raises `Wrong` with the shortest way to a wrong one."""

    def __init__(self, bounds: Bounds, rules: Rules = Rules()) -> None:
        self._bounds, self._rules = bounds, rules
        workers = [Worker(n, offset, bounds.deliveries) for n, offset in enumerate(bounds.offsets)]
        self._known_steps: dict[tuple[Worker, float], tuple[Any, tuple[float, ...]]] = {}
        self._start = State(World(), tuple(workers), bounds.faults, bounds.ticks)

    def explore(self) -> int:
        ways: dict[State, tuple[State, str] | None] = {self._start: None}
        queue = deque([self._start])
        while queue:
            state = queue.popleft()
            for name, next_state in self._moves(state):
                if next_state in ways:
                    continue
                ways[next_state] = state, name
                if wrong := _wrong(next_state.world):
                    raise Wrong("\n".join([*_way(ways, next_state), wrong]))
                queue.append(next_state)
        return len(ways)

    def _moves(self, state: State) -> Iterator[tuple[str, State]]:
        world = state.world
        if state.ticks:
            for seconds in self._bounds.passes:
                yield (
                    f"{seconds} s pass",
                    state._replace(world=world._replace(now=world.now + seconds), ticks=state.ticks - 1),
                )
        if self._bounds.overtaken and world.mark == "absent":
            yield "a later message moves the mark", state._replace(world=world._replace(mark="overtaken"))
        for worker in state.workers:
            if worker.runs:
                yield from self._step(state, worker)
            elif worker.deliveries and not world.settled:
                yield (
                    f"the message comes to {worker.number}",
                    self._go_on(state, worker._replace(runs=True, deliveries=worker.deliveries - 1)),
                )

    def _step(self, state: State, worker: Worker) -> Iterator[tuple[str, State]]:
        ask = self._next(worker, state.world.now)[0]
        name = f"{worker.number}: {ask.name}"
        for reply, world in self._perform(state.world, worker, ask):
            yield f"{name} -> {reply}", self._go_on(state._replace(world=world), _hears(worker, reply))
            if state.faults:
                faulty_state = state._replace(world=world, faults=state.faults - 1)
                yield f"{name}, and the worker dies", _put(faulty_state, _idle(worker))
                if ask.name == "effect" and reply[0] == "got":
                    yield f"{name}, and its answer is lost", self._go_on(faulty_state, _hears(worker, ("raised", None)))
                if ask.name in ("begin", "finish"):  # the driver sends it again
                    for second_reply, next_world in self._perform(world, worker, ask):
                        next_state = self._go_on(
                            faulty_state._replace(world=next_world),
                            _hears(worker, self._reply_of_both(ask, reply, second_reply)),
                        )
                        yield f"{name}, sent twice", next_state

    @staticmethod
    def _reply_of_both(ask: Ask, first: Reply, second: Reply) -> Reply:
        """A write that finishes knows its own earlier try by its token, and says so as the first answer would have."""
        return first if ask.name == "finish" and isinstance(first[1], Applied) else second

    # --- what is asked --------------------------------------------------------------------------------------------------

    def _next(self, worker: Worker, now: float) -> tuple[Any, tuple[float, ...]]:
        """What the worker does after what it was told, and what its clock has shown by then. An outcome: it is done."""
        if (worker, now) not in self._known_steps:
            self._known_steps[worker, now] = self._play(worker, now)
        return self._known_steps[worker, now]

    def _play(self, worker: Worker, now: float) -> tuple[Any, tuple[float, ...]]:
        past_readings, readings = deque(worker.readings), list[float]()

        def clock() -> float:
            reading = past_readings.popleft() if past_readings else now + worker.offset
            readings.append(reading)
            return reading

        steps = self._program(worker, clock)
        try:
            step = next(steps)
            for kind, value in worker.replies:
                step = steps.throw(TimeoutError()) if kind == "raised" else steps.send(value)
        except StopIteration as stop:
            return stop.value, tuple(readings)
        except TimeoutError:
            return None, tuple(readings)
        finally:
            steps.close()
        return (Ask("effect", step=step.args[0]) if isinstance(step, Do) else step), tuple(readings)

    def _program(self, worker: Worker, clock: Any) -> Any:
        safe_for = SAFE_FOR if self._rules.skew else SAFE_FOR + 2 * STEP_SKEW
        now = clock()
        store = Store(clock if self._rules.left else lambda: now, f"{worker.number}.{worker.deliveries}")
        return perform(store, M, "charge", lambda _: None, {}, lease=LEASE, safe_for=safe_for, then=lambda _: {})

    # --- what it does ---------------------------------------------------------------------------------------------------

    def _perform(self, world: World, worker: Worker, ask: Ask) -> Iterator[tuple[Reply, World]]:
        if ask.name == "begin":
            yield self._begin(world, ask.step, ask.fence)
        elif ask.name == "effect":
            yield from self._effect(world, worker, ask.step)
        elif ask.name == "finish":
            yield _finish(world, ask.fence)
        else:
            yield self._release(world, worker, ask)

    def _begin(self, world: World, step: Step, replaced: str | None) -> tuple[Reply, World]:
        stored_step, mark = world.step, world.mark
        if mark != "absent" and not self._rules.outranks:
            return ("got", (None, mark)), world
        if stored_step is not None and stored_step.fence != replaced:
            return ("got", (stored_step, mark)), world
        if stored_step is None and (mark != "absent" or replaced is not None):
            return ("got", (None, mark)), world
        if stored_step is not None and not self._rules.first_key:
            step = step._replace(key=step.fence)
        if stored_step is not None and not self._rules.first_time:
            step = step._replace(since=step.until - LEASE.total_seconds())
        return ("got", (step, mark)), world._replace(step=step)

    def _effect(self, world: World, worker: Worker, step: Begun) -> Iterator[tuple[Reply, World]]:
        yield ("raised", None), world  # it never arrives
        if self._rules.left and world.now >= step.until - worker.offset:
            return
        same_charges = [
            charge for charge in world.charges if charge[0] == step.key and world.now < charge[1] + SAFE_FOR.total_seconds()
        ]
        charges = world.charges if same_charges else (*world.charges, (step.key, world.now))
        yield ("got", "charged"), world._replace(charges=charges)

    def _release(self, world: World, worker: Worker, ask: Ask) -> tuple[Reply, World]:
        if world.step is None or world.step.fence != ask.fence:
            return ("got", False), world
        if ask.name == "withdraw" or (world.step.first and not self._rules.remembers_sent):
            return ("got", True), world._replace(step=None)
        return ("got", True), world._replace(step=world.step._replace(until=world.now + worker.offset))

    def _go_on(self, state: State, worker: Worker) -> State:
        """The state once the worker has gone on to its next request, or to its end."""
        step, readings = self._next(worker, state.world.now)
        if isinstance(step, Ask):
            return _put(state, worker._replace(readings=readings))
        world = state.world._replace(settled=state.world.settled or (step is not None and step.settled))
        return _put(state._replace(world=world), _idle(worker))


def _finish(world: World, fence: str | None) -> tuple[Reply, World]:
    if world.step is None:
        outcome = _of_mark(world)
        return ("got", Superseded(M) if outcome is None else outcome), world
    if world.step.fence != fence:
        return ("got", Superseded(M)), world
    mark = "done" if world.mark == "absent" else world.mark
    return ("got", Applied(M)), world._replace(step=None, mark=mark, records=world.records + 1)


def _of_mark(world: World) -> Outcome | None:
    return {"absent": None, "done": Duplicate(M), "overtaken": Stale(M, 2)}[world.mark]


def _wrong(world: World) -> str | None:
    if len(world.charges) > 1:
        return f"charged {len(world.charges)} times"
    if world.records > 1:
        return f"recorded {world.records} times"
    if world.settled and world.charges and not world.records:
        return "charged, never recorded, and the broker has forgotten the message"
    return None


def _hears(worker: Worker, reply: Reply) -> Worker:
    return worker._replace(replies=(*worker.replies, reply))


def _idle(worker: Worker) -> Worker:
    return Worker(worker.number, worker.offset, worker.deliveries)


def _put(state: State, worker: Worker) -> State:
    n = worker.number
    return state._replace(workers=(*state.workers[:n], worker, *state.workers[n + 1 :]))


def _way(ways: dict[State, tuple[State, str] | None], state: State) -> list[str]:
    way: list[str] = []
    while (step := ways[state]) is not None:
        state, name = step
        way.append(name)
    return way[::-1]
