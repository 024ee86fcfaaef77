"""A round: new entities, messages under attack, everything healed and delivered until it is settled, and then the count."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from onewrite import SeenIds
from onewrite.outbox import Outgoing, Relay
from tests.chaos.broker import Broker
from tests.chaos.relay import Duty
from tests.chaos.relays import Relays
from tests.chaos.setups import Attacker, ControlSetup, Setup
from tests.chaos.traffic import Source, Traffic, damage, issued_for
from tests.chaos.witness import Copy, Witness
from tests.engines.stores import State

ROUND_SECONDS = 20.0
_LARGEST = 150  # messages of a source, so an entity stays small and a round ends
_PATIENCE = 180.0  # for a machine that is busy with something else
_PAUSE = 1.0  # seconds between two attacks on the servers, on the average
_MOST_EXAMPLES = 5  # examples of what is wrong
_PUT_OFF = 600.0  # seconds: more than any event waits that was refused


@dataclass(slots=True)
class Result:
    """What a setup did and saw. `examples` are lines that help to find out why."""

    setup: str
    must_lose: bool
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        if self.must_lose:
            return self.counts["lost"] > 0
        return not any(self.counts[wrong] for wrong in WRONG)


WRONG = (
    *("lost", "doubled", "out of order", "claimed twice", "never settled", "resurrected", "charged twice", "never charged"),
    *("events lost", "events invented", "events out of order"),
)


def play_round(setup: Setup, name: str, seconds: float, seed: str) -> Result:
    """One round on a setup that is open."""
    result = Result(setup.name, isinstance(setup, ControlSetup))
    traffic = Traffic(name, setup.kinds, _LARGEST, setup.entities)
    setup.create(traffic.must_exist())
    choice = random.Random(f"{seed} broker")
    setup.counts.clear()
    clock = _at_the_turn()

    def check() -> None:
        attacker.check()
        relays.check()

    relays = Relays(setup.target, _duties(setup, clock), random.Random(f"{seed} relays"), result.counts)
    with relays, Broker(setup.target, traffic, choice, result.counts, clock) as broker:
        with Attacker(setup, random.Random(f"{seed} attacker"), pause=_PAUSE) as attacker:
            broker.deliver(seconds, check)
        relays.calm()
        broker.drain(_PATIENCE)
        _count_lost(setup, traffic, result)
        # A message that was lost takes effect now, and one whose mark was lost takes effect a second time.
        if not broker.deliver_everything_again(_PATIENCE):
            result.counts["never settled"] += 1
        _count_wrong(setup, traffic, broker.claims, result)
    relays.check()
    if setup.relays:
        count_before = relays.witness.events
        _publish_the_rest(setup, relays.witness, clock)
        result.counts["events left at the end"] += relays.witness.events - count_before
        _count_events(setup, traffic, relays.witness, broker.claims, result)
    result.counts["charges"] += sum(len(keys) for keys in _charges(setup).values())
    setup.charges.unlink(missing_ok=True)
    setup.clear([*traffic.entities()])
    result.counts += setup.counts
    result.counts["messages"] += traffic.messages
    result.counts["rounds"] += 1
    return result


def _count_lost(setup: Setup, traffic: Traffic, result: Result) -> None:
    result.counts["never settled"] += traffic.unsettled_count
    for entity, sources, state in _states(setup, traffic):
        if not _is_deleted(entity, sources):
            harm = damage(entity, sources, state.n, state.effects)
            _count(result, "lost", entity, harm.losses)


def _count_wrong(setup: Setup, traffic: Traffic, claims: Counter[str], result: Result) -> None:
    charges = _charges(setup)
    for entity, sources, state in _states(setup, traffic):
        if _is_deleted(entity, sources):
            result.counts["entities deleted"] += 1
            _count(result, "resurrected", entity, state.effects or ["counter"] * state.n)
            continue
        harm = damage(entity, sources, state.n, state.effects)
        _count(result, "doubled", entity, harm.doubles)
        _count(result, "out of order", entity, harm.misplacements)
        if sources[0].kind == "effect":
            _count(result, "never charged", entity, [effect for effect in state.effects if effect not in charges])
            _count(result, "charged twice", entity, [effect for effect in state.effects if len(charges[effect]) > 1])
    _count(result, "claimed twice", "all", [effect for effect, count in claims.items() if count > 1])


def _count(result: Result, problem: str, entity: str, cases: Sequence[str]) -> None:
    result.counts[problem] += len(cases)
    result.examples += [f"{result.setup}: {problem} in {entity}: {case}" for case in cases[:_MOST_EXAMPLES]]


def _is_deleted(entity: str, sources: Sequence[Source]) -> bool:
    """A message that deletes it was issued, and so it is settled at the end."""
    return any(delivery.deletes for delivery in issued_for(entity, sources))


def _charges(setup: Setup) -> defaultdict[str, set[str]]:
    """The keys under which each effect was charged."""
    charges: defaultdict[str, set[str]] = defaultdict(set)
    for line in setup.charges.read_text().splitlines() if setup.charges.exists() else ():
        effect, _, key = line.rpartition(" ")
        charges[effect].add(key)
    return charges


def _duties(setup: Setup, clock: float) -> list[Duty]:
    """Some relays get notifications. All see what any worker says is due, whose clock may be ahead."""
    return [Duty(n % 2 == 0, n % 3 == 0, clock + _skew()) for n in range(setup.relays)]


def _publish_the_rest(setup: Setup, witness: Witness, clock: float) -> None:
    """One more relay, which nothing disturbs, and whose clock is past the time to which any event was put off."""

    def publish(events: list[Outgoing]) -> None:
        witness.take(Copy(event.source, event.sequence, event.id, event.body) for event in events)

    relay = Relay(setup.store, publish, clock=lambda: time.time() + clock + _skew() + _PUT_OFF)
    relay.sweep()
    if waiting_entities := relay.pending():
        raise RuntimeError(f"{len(waiting_entities)} entities have events that no relay publishes: {waiting_entities[0]}")


def _count_events(setup: Setup, traffic: Traffic, witness: Witness, claims: Counter[str], result: Result) -> None:
    for entity, sources, state in _states(setup, traffic):
        effects = state.effects
        if _is_deleted(entity, sources):  # its events alone say what happened to it, and the deletion is the last of them
            effects = witness.effects(entity)
            deliveries = issued_for(entity, sources)
            losses = [
                delivery.effect for delivery in deliveries if claims[delivery.effect] and delivery.effect not in effects
            ]
            _count(result, "events lost", entity, losses)
            deletions = {delivery.effect for delivery in deliveries if delivery.deletes}
            _count(result, "events out of order", entity, [effect for effect in effects[:-1] if effect in deletions])
            _count(result, "events lost", entity, ["the deletion"] if not deletions.intersection(effects) else [])
        harm = witness.harm(entity, effects)
        for problem, cases in zip(("events lost", "events invented", "events out of order"), harm, strict=True):
            _count(result, problem, entity, cases)
    result.counts["events"] += witness.events
    result.counts["copies"] += witness.copies


def _states(setup: Setup, traffic: Traffic) -> Iterator[tuple[str, list[Source], State]]:
    for entity, sources in traffic.entities().items():
        yield entity, sources, setup.state(entity)


def _skew() -> float:
    skew = SeenIds().skew
    assert skew is not None
    return skew.total_seconds()


def _at_the_turn() -> float:
    """How far to set clocks forward so they stand where SeenIds goes from one set to the next.

    The workers' clocks are off by as much as the ledger bears, so some write into the set before and some into the set after.
    """
    width = SeenIds()._window.width / 1_000_000
    now = time.time()
    return width - now % width
