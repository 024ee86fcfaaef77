"""Has the ways of one engine handle the same messages in turns, each message twice, and counts what came of it.

A way that fails, or whose effects are not as many as they must be, is an error and has no numbers: what does less work takes less time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from statistics import median
from time import perf_counter, process_time

from onewrite import Applied, Duplicate, Message, Outcome
from tests.benchmarks.measure import Plan, expect, message_ids, ratio
from tests.benchmarks.peers.bills import Bill
from tests.benchmarks.peers.ways import Cost, Delivery, Engine, Line, Proxy, Result, Unmeasured, Way
from tests.support.distance import Distance

DISTANCE = 0.002  # seconds each way
LARGE = "x" * 4_400  # makes an entity of 4.5 KB
_BILLED = 20  # turns whose requests and units are counted
_FAR = 5  # as many times fewer turns further away, where each takes so much longer

Kind = type[Applied] | type[Duplicate]


@dataclass(slots=True)
class Runner:
    """One way, its entities, and what its turns took. It is out of the race after an error."""

    way: Way
    entities: Sequence[str]
    costs: dict[Kind, list[Cost]] = field(default_factory=lambda: {Applied: [], Duplicate: []})
    error: str = ""

    def turn(self, number: int, messages: Sequence[Message], kind: Kind) -> None:
        if self.error:
            return
        batch = self.way.batch
        batch_messages, entity = messages[number * batch : (number + 1) * batch], self.entities[number % len(self.entities)]
        cpu, start = process_time(), perf_counter()
        try:
            result = self.way.deliver(batch_messages, entity)
            duration, processor_seconds = perf_counter() - start, process_time() - cpu
            check(result, kind)
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"
            return
        self.costs[kind].append(Cost(duration / batch, processor_seconds / batch))

    def cost(self, kind: Kind) -> Cost:
        return Cost(*(median(column) for column in zip(*self.costs[kind], strict=True)))


def check(result: object, kind: Kind) -> None:
    """What is no outcome says nothing; the effects will."""
    for outcome in result if isinstance(result, list) else [result]:
        if isinstance(outcome, Outcome):
            expect(kind, outcome)


def measure(engine: Engine, plan: Plan) -> tuple[list[Result], float]:
    """All ways, in the order of the engine; and the largest deviation of a slice's ratio from the ratio of the whole run."""
    far_plan = replace(plan, rounds=max(plan.rounds // _FAR, 1), seed=plan.seed + 1)
    with ExitStack() as stack:
        near_ways = engine.ways(engine.port, stack)
        near = race(engine, near_ways, plan)
        distance = stack.enter_context(Distance(engine.port, DISTANCE))
        far = race(engine, engine.ways(distance.port, stack), far_plan)
        proxy = engine.proxy(stack)
        bills = count_costs(engine, engine.ways(proxy.port, stack), proxy, plan.seed + 2)
    lines = [runner if isinstance(runner, Unmeasured) else line(runner, near, far, bills) for runner in near_ways]
    return lines, deviation([runner for runner in near.values() if not runner.error])


def race(engine: Engine, ways: Sequence[Way | Unmeasured], plan: Plan) -> dict[str, Runner]:
    """Each way has as many entities as get the same number of messages each. They are there before the race begins."""
    runners = {
        way.name: Runner(way, [f"{plan.seed} {way.name} {n:05d}" for n in range(plan.warmup * way.batch)])
        for way in ways
        if isinstance(way, Way)
    }
    for runner in runners.values():
        engine.create(runner.entities)
    messages = _messages(plan, max(runner.way.batch for runner in runners.values()))
    for kind in (Applied, Duplicate):
        _take_turns([*runners.values()], messages, kind, plan)
    for runner in runners.values():
        turns = plan.warmup + plan.rounds
        runner.error = runner.error or wrong(runner.way, turns * runner.way.batch, engine.effects(runner.entities))
    return runners


def wrong(way: Way, messages: int, effects: int) -> str:
    """What is wrong about so many effects of messages that were delivered twice. Nothing: an empty text."""
    right = messages if way.guarded else 2 * messages
    return "" if effects == right else f"{effects:,} effects of {messages:,} messages, where {right:,} are right"


def deviation(runners: Sequence[Runner]) -> float:
    seconds = [[cost.seconds for cost in runner.costs[Applied]] for runner in runners]
    rows = [ratio("", "", times, seconds[0]) for times in seconds[1:]]
    return max((max(row.high / row.value, row.value / row.low) - 1 for row in rows), default=0.0)


def _messages(plan: Plan, batch: int) -> list[Message]:
    return [Message(message_id) for message_id in message_ids((plan.warmup + plan.rounds) * batch, plan.seed)]


def _take_turns(runners: list[Runner], messages: Sequence[Message], kind: Kind, plan: Plan) -> None:
    order, shuffle = [*runners], random.Random(plan.seed).shuffle
    for turn in range(plan.warmup + plan.rounds):
        shuffle(order)
        for runner in order:
            runner.turn(turn, messages, kind)
        if turn == plan.warmup - 1:
            for runner in runners:
                runner.costs[kind].clear()


# ---------------------------------------------------------------- bills


@dataclass(frozen=True, slots=True)
class Costs:
    """What the messages of one way cost, by their kind and the text in their entity."""

    bills: dict[tuple[Kind, str], Bill]
    error: str


def count_costs(engine: Engine, ways: Sequence[Way | Unmeasured], proxy: Proxy, seed: int) -> dict[str, Costs]:
    costs: dict[str, Costs] = {}
    for way in ways:
        if isinstance(way, Way):
            bills, error = {}, ""
            for number, text in enumerate(("", LARGE)):
                runner = Runner(way, [f"{seed + number} {way.name} {n:05d}" for n in range(_BILLED + 1)])
                engine.create(runner.entities, text)
                messages = [Message(bill) for bill in message_ids(len(runner.entities) * way.batch, seed + number)]
                bills.update({(kind, text): bill for kind, bill in _bills(runner, messages, proxy)})
                error = error or runner.error
            costs[way.name] = Costs(bills, error)
    return costs


def _bills(runner: Runner, messages: Sequence[Message], proxy: Proxy) -> Iterator[tuple[Kind, Bill]]:
    runner.turn(_BILLED, messages, Applied)  # not billed: a library may make its table, and a client gets to know its server
    kinds: tuple[Kind, ...] = (Applied, Duplicate)
    for kind in kinds:
        proxy.take()
        for turn in range(_BILLED):
            runner.turn(turn, messages, kind)
        yield kind, proxy.take() / (_BILLED * runner.way.batch)


def line(way: Way, near: dict[str, Runner], far: dict[str, Runner], bills: dict[str, Costs]) -> Result:
    runners, costs = (near[way.name], far[way.name]), bills[way.name]
    if problem := next((part.error for part in (*runners, costs) if part.error), ""):
        return Unmeasured(way.name, f"ERROR: {problem}")

    def delivery(kind: Kind) -> Delivery:
        small, large = (costs.bills[kind, text] for text in ("", LARGE))
        return Delivery(runners[0].cost(kind), runners[1].cost(kind), small, large)

    return Line(way.name, way.ours, delivery(Applied), delivery(Duplicate), 1 if way.guarded else 2)
