"""The benchmarks' bills are those of a real engine."""

from __future__ import annotations

from contextlib import ExitStack

from onewrite import Message
from tests.benchmarks.peers.bills import Bill
from tests.benchmarks.peers.dynamodb import OnDynamoDB
from tests.benchmarks.peers.mongodb import OnMongoDB
from tests.benchmarks.peers.race import LARGE
from tests.benchmarks.peers.ways import Engine, Way
from tests.support.engines import dynoxide_binary, mongod_binary, require

ON_DYNAMODB = {
    "unguarded, `Table`": (Bill(1, 5), Bill(1, 5)),
    "onewrite, client": (Bill(1, 5), Bill(1, 5)),
    "onewrite, client, `lean=True`": (Bill(1, 5), Bill(1, 5)),
    "onewrite, client, `fold` of 10": (Bill(1, 5), Bill(1, 5)),
    "Powertools idempotency around it": (Bill(3, 7), Bill(1, 1)),
    "`TransactWriteItems` with a processed table": (Bill(1, 12), Bill(1, 12)),
}
ON_MONGODB = {
    "unguarded": (Bill(1), Bill(1)),
    "onewrite": (Bill(1), Bill(2)),
    "onewrite, `fold` of 10": (Bill(1), Bill(2)),
    "a processed collection first, no transaction": (Bill(2), Bill(1)),
    "transaction with a processed collection": (Bill(3), Bill(2)),
}


def test_a_fresh_message_and_its_duplicate_cost_as_many_requests_and_units_as_the_documentation_says() -> None:
    require(dynoxide_binary)
    with ExitStack() as stack:
        assert_bills(OnDynamoDB(stack), stack, ON_DYNAMODB)
    require(mongod_binary)
    with ExitStack() as stack:
        assert_bills(OnMongoDB(stack), stack, ON_MONGODB)


def assert_bills(engine: Engine, stack: ExitStack, expected: dict[str, tuple[Bill, Bill]]) -> None:
    proxy = engine.proxy(stack)
    ways = [way for way in engine.ways(proxy.port, stack) if isinstance(way, Way) and way.name in expected]
    found: dict[str, tuple[Bill, Bill]] = {}
    for way in ways:
        engine.create([way.name], LARGE)
        bills: list[Bill] = []
        for _ in range(2):
            proxy.take()
            way.deliver([Message(f"a message to {way.name}")], way.name)
            bills.append(proxy.take())
        found[way.name] = bills[0], bills[1]
        assert engine.effects([way.name]) == (1 if way.guarded else 2)
    assert found == expected
