"""What a fold saves: on a large entity, and where eight writers want the same one."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial

from onewrite import Applied, HighWaterMark, Message, SeenIds
from onewrite.core.ledgers import Ledger
from tests.benchmarks.measure import Contender, Plan, Row, WrongOutcomeError, message_ids, ratio, take_turns
from tests.benchmarks.peers.bills import Bill
from tests.benchmarks.peers.race import check
from tests.benchmarks.peers.ways import FOLD_SIZE, Deliver, Engine, Writers

UNITS, SECONDS = 1 / 8, 1 / 5  # the most that a message in a fold may cost, by what it costs alone
_LARGE = "x" * 2_800  # with all that is beside it, an entity has 3 KB
_FOLDS, _WARMUP = 100, 10
_LEDGERS: Mapping[str, Ledger] = {"SeenIds": SeenIds(), "HighWaterMark": HighWaterMark()}
_WRITERS, _MESSAGES, _TURNS = 8, 50, 5  # writers of one entity, the messages of each in a turn, and turns

ONE_BY_ONE, FOLD, TRANSACTION = "one by one", f"`fold` of {FOLD_SIZE}", "transaction with processed messages"


def results(engines: Sequence[Engine], plan: Plan) -> Iterator[Row]:
    for engine in engines:
        with ExitStack() as stack:
            for name, ledger in _LEDGERS.items():
                yield from _large(engine, f"{engine.name}, {name}", ledger, plan)
            yield from _hot_rows(engine.name, _hot(engine, engine.writers(engine.port, stack, SeenIds()), plan.seed))


# ---------------------------------------------------------------- a large entity


def _large(engine: Engine, what: str, ledger: Ledger, plan: Plan) -> Iterator[Row]:
    with ExitStack() as stack:
        writers = engine.writers(engine.port, stack, ledger)
        took = take_turns(_contenders(engine, what, writers, _WARMUP + _FOLDS), _FOLDS, warmup=_WARMUP, seed=plan.seed)
        _verify(engine, what, (_WARMUP + _FOLDS) * FOLD_SIZE)
        proxy = engine.proxy(stack)
        bills: list[Bill] = []
        contenders = _contenders(engine, f"{what} billed", engine.writers(proxy.port, stack, ledger), _FOLDS)
        for contender in contenders.values():
            proxy.take()
            for turn in range(_FOLDS):
                contender(turn)
            bills.append(proxy.take() / (_FOLDS * FOLD_SIZE))
    single_seconds, fold_seconds = took[ONE_BY_ONE], took[FOLD]
    yield ratio(f"{FOLD}, 3 KB, {what}: time", ONE_BY_ONE, fold_seconds, single_seconds, target=SECONDS)
    if bills[0].write_units:
        units = bills[1].write_units / bills[0].write_units
        yield Row(f"{FOLD}, 3 KB, {what}: write units", ONE_BY_ONE, units, units, units, "x", UNITS)


def _contenders(engine: Engine, what: str, writers: Writers, turns: int) -> dict[str, Contender]:
    """Both have the same messages, numbered in their order, and an entity each."""
    messages = [
        Message(message_id, "s", sequence=n) for n, message_id in enumerate(message_ids(turns * FOLD_SIZE, len(what)), 1)
    ]
    contenders: dict[str, Contender] = {}
    for name, deliver in ((ONE_BY_ONE, _one_by_one(writers.single)), (FOLD, writers.fold)):
        engine.create([f"{what} {name}"], _LARGE)
        contenders[name] = partial(_deliver, deliver, messages, f"{what} {name}")
    return contenders


def _one_by_one(deliver: Deliver) -> Deliver:
    return lambda messages, entity: [deliver([message], entity) for message in messages]


def _deliver(deliver: Deliver, messages: Sequence[Message], entity: str, turn: int) -> None:
    check(deliver(messages[turn * FOLD_SIZE : (turn + 1) * FOLD_SIZE], entity), Applied)


def _verify(engine: Engine, what: str, messages: int) -> None:
    for name in (ONE_BY_ONE, FOLD):
        _check_effects(engine, f"{what} {name}", messages)


def _check_effects(engine: Engine, entity: str, messages: int) -> None:
    if (effects := engine.effects([entity])) != messages:
        raise WrongOutcomeError(f"{effects} effects of {messages} messages to {entity!r}.")


# ---------------------------------------------------------------- one entity that all want


def _hot(engine: Engine, writers: Writers, seed: int) -> dict[str, float]:
    """Messages a second; the middle one of the turns. Each turn has an entity of its own, or the ledgers would grow."""
    ways = {ONE_BY_ONE: (writers.single, 1), FOLD: (writers.fold, FOLD_SIZE), TRANSACTION: (writers.transaction, 1)}
    rates: dict[str, list[float]] = {name: [] for name in ways}
    order, shuffle = [*ways], random.Random(seed).shuffle
    for turn in range(_TURNS):
        shuffle(order)
        for name in order:
            deliver, batch = ways[name]
            rates[name].append(_rush(engine, f"{name} of {_WRITERS}, {turn}", deliver, batch))
    return {name: statistics.median(numbers) for name, numbers in rates.items()}


def _rush(engine: Engine, entity: str, deliver: Deliver, batch: int) -> float:
    engine.create([entity])
    messages = [Message(f"{entity} {n}") for n in range(_WRITERS * _MESSAGES)]

    def write(first: int) -> None:
        for at in range(first, first + _MESSAGES, batch):
            check(deliver(messages[at : at + batch], entity), Applied)

    with ThreadPoolExecutor(_WRITERS) as threads:
        start = time.perf_counter()
        for _ in threads.map(write, range(0, len(messages), _MESSAGES)):
            pass
        duration = time.perf_counter() - start
    _check_effects(engine, entity, len(messages))
    return len(messages) / duration


def _hot_rows(engine: str, rates: Mapping[str, float]) -> Iterator[Row]:
    for rival in (ONE_BY_ONE, TRANSACTION):
        value = rates[rival] / rates[FOLD]
        yield Row(f"{FOLD}, {_WRITERS} writers, {engine}: time", rival, value, value, value, "x")
